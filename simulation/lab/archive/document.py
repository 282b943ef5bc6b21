"""The documents of a run: typed, and checked when they are read."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from roq.demo.latency import Histogram
from roq.simulation.real.results import Machine
from roq.simulation.scenario.scenario import Expectation, Scenario

VERSION: Final = 1
"""Of `run.json` and `series.json`; a reader refuses later ones."""
HEARD_FROM: Final = 0.5
"""A window of which statistics tell less than this share is unknown, not idle; nothing is worked
out, drawn or judged of it. One exchange may be unknown alone."""
EVENTS_MAX: Final = 100_000
WINDOWS_MAX: Final = 100_000


class RunKind(StrEnum):
    """How a scenario was run."""

    LIVE = "live"
    MODEL = "model"


class RunState(StrEnum):
    """How a run ended."""

    RUNNING = "running"
    """Or its process was killed, on another machine."""
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    ABANDONED = "abandoned"
    """Its process was killed, and could not say so."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts."""


class Process(Document, frozen=True, kw_only=True):
    """One process among all that there ever were.

    Attributes:
        place: the machine since its last start, and the container; empty if that is not known.
        pid: there.
        start: when it began, in ticks since the start of the machine.
    """

    place: str
    pid: int
    start: int


class PhaseTime(Document, frozen=True, kw_only=True):
    """When a phase was played, in seconds since the load began."""

    name: str
    begins: float
    ends: float


class Verdict(Document, frozen=True, kw_only=True):
    """An expectation, and what came out.

    Attributes:
        expected: what was to come out.
        found: the figure; None if this run has none of that name.
        holds: whether it came out so; None if there is no figure to say.
        why: in a sentence, where there is more to say.
    """

    expected: Expectation
    found: float | None
    holds: bool | None
    why: str = ""


class Run(Document, frozen=True, kw_only=True):
    """What was asked, and what came out.

    Attributes:
        id: of the folder, too.
        kind: live or modelled.
        state, error: how it ended; why, if not well.
        process: who runs it; None when it has ended.
        scenario: as it was run, after scaling.
        time_scale: durations of the scenario were multiplied by this.
        seed: of everything drawn.
        began_us: when the load began, wall clock of the driver, microseconds since 1970.
        seconds: how long the load lasted.
        settings: whatever else the run depends on: master, tasks, thresholds, …
        versions: of RoQ and of what it runs on.
        machine: of the driver.
        clock: how times of different machines were compared, and how exact that is, in a sentence.
        figures: by name; those of `simulation.description.scenario.What` and more.
        verdicts: one for each expectation.
        phases: when each was played.
        remarks: what a reader has to know, in sentences.
    """

    version: int = VERSION
    id: str
    kind: RunKind
    state: RunState
    error: str = ""
    process: Process | None = None
    scenario: Scenario
    time_scale: float = 1.0
    seed: int = 0
    began_us: int = 0
    seconds: float = 0.0
    settings: dict[str, str | int | float] = {}
    versions: dict[str, str] = {}
    machine: Machine
    clock: str = ""
    figures: dict[str, float] = {}
    verdicts: list[Verdict] = []
    phases: list[PhaseTime] = []
    remarks: list[str] = []


RATES: Final = ("messages_in", "bytes_in", "messages_out", "bytes_out")
"""What is told of each exchange per second; in documents of the statistics they are totals."""


class ExchangeWindow(Document, frozen=True, kw_only=True):
    """One exchange in one window, per second.

    Attributes:
        exchange: its number; 0: all together, where a run does not tell them apart.
        cpu_percent: of one core; None if it was not measured.
    """

    exchange: int
    messages_in: float
    bytes_in: float
    messages_out: float = 0.0
    bytes_out: float = 0.0
    publishers: int = 0
    cpu_percent: float | None = None


class LatencyWindow(Document, frozen=True, kw_only=True):
    """Latencies of all messages that were meant to be sent in a window, in milliseconds."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    most: float

    @classmethod
    def of(
        cls, histogram: Histogram, mean: float | None = None, parts: int = 1
    ) -> LatencyWindow | None:
        """What a histogram says; None if nothing is in it.

        Args:
            histogram: of seconds.
            mean: seconds, where it is known exactly.
            parts: the histogram counts so many for each message.
        """
        if not histogram:
            return None
        p50, p90, p99, p999, most = (
            1_000 * histogram.percentile(percent) for percent in (50, 90, 99, 99.9, 100)
        )
        return cls(
            count=round(len(histogram) / parts),
            mean=1_000 * (histogram.mean() if mean is None else mean),
            p50=p50, p90=p90, p99=p99, p999=p999, most=most,
        )  # fmt: skip


LATENCIES: Final = {
    "mean": "mean", "p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9", "most": "max",
}  # fmt: skip
"""Parts of `LatencyWindow`, and how they are written."""


class Window(Document, frozen=True, kw_only=True):
    """One window.

    Attributes:
        at: its end, seconds since the load began.
        exchanges: what each did; only those that served and were heard.
        serving: how many exchanges served.
        latency: None if nothing was measured in it.
        imbalance: busiest exchange over the mean, in bytes; None with less than two, with no load,
            or if one that serves was not heard.
        offered: messages a second that the scenario wants.
        covered: share of the window that the statistics tell of, of the exchange of which they tell
            least; the rates of each exchange are those of the part in which it was heard. Of a
            window with 0 it is not known what exchanges did together.
    """

    at: float
    exchanges: list[ExchangeWindow]
    serving: int
    latency: LatencyWindow | None = None
    imbalance: float | None = None
    offered: float = 0.0
    covered: float = 1.0


class EventKind(StrEnum):
    """What can happen in a run."""

    PHASE = "phase"
    MOVE = "move"
    MOVE_FAILED = "move failed"
    SCALE_OUT = "scale-out"
    SCALE_IN = "scale-in"
    SCALE_FAILED = "scaling failed"
    FAULT = "fault"
    DEATH = "death"
    SERVES = "serves"
    GAP = "gap"


class Event(Document, frozen=True, kw_only=True):
    """Something that happened.

    Attributes:
        at: seconds since the load began.
        kind: what.
        exchange: at which one; 0: at none in particular.
        text: for people, a clause.
    """

    at: float
    kind: EventKind
    exchange: int = 0
    text: str = ""


class Series(Document, frozen=True, kw_only=True):
    """How a run went.

    Attributes:
        window_seconds: the length of each window.
        windows: in order of time, without holes.
        events: in order of time.
        events_left_out: those that were too many to be kept.
    """

    version: int = VERSION
    window_seconds: Annotated[float, Meta(gt=0)]
    windows: Annotated[list[Window], Meta(max_length=WINDOWS_MAX)]
    events: Annotated[list[Event], Meta(max_length=EVENTS_MAX)] = []
    events_left_out: int = 0
