"""`roq demo` deals the work out, shows how far it is, and ends with what came of it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from roq.cli import demo as module
from roq.cli.demo import Rates, demo
from roq.demo.corpus import Share
from roq.demo.latency import Histogram
from roq.demo.report import Comparison, Row, StreamDigest
from roq.demo.run import DemoOutcome, Phase
from roq.errors import RoQError, Unavailable
from roq.local.launcher import StartFailed
from roq.runtime.reactor import Reactor

STREAM = StreamDigest(publisher="p", topic="t", messages=3, bytes=6, sha256="0" * 64)


def outcome(*, equal: bool) -> DemoOutcome:
    nothing = Histogram()
    return DemoOutcome(
        verdict=Comparison((Row(STREAM, (equal,)),), 0), messages=3, bytes=6, subscribers=1,
        seconds=1.0, calm=nothing, full=nothing, lost=0, duplicates=0,
    )  # fmt: skip


class PaperDemo:
    """Ends at once as the class says."""

    end: ClassVar[DemoOutcome | RoQError | None] = None
    made: ClassVar[list[Any]] = []

    def __init__(self, reactor: Reactor, shares: list[Share], **wanted: int) -> None:
        self.shares, self.wanted = shares, wanted
        self.phase, self.exchanges, self.started = Phase.STARTING, ["x1 on 127.0.0.1"], 0.0
        self.lanes = [SimpleNamespace(name="publisher 1", messages=1_234)]
        self.outcome: DemoOutcome | None = None
        self.failure: RoQError | None = None
        self._reactor = reactor
        self.made.append(self)

    def now(self) -> float:
        return 2.0

    def stop(self) -> None: ...

    def start(self) -> None:
        self.phase = Phase.RUNNING
        if isinstance(self.end, DemoOutcome):
            self.outcome = self.end
        else:
            self.failure = self.end
        self._reactor.call_soon(self._reactor.stop)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n" * 10)
    monkeypatch.setattr(module.corpus, "library", lambda: tmp_path)
    monkeypatch.setattr(module, "Demo", PaperDemo)
    monkeypatch.setattr(module, "on_stop", lambda *_: None)
    monkeypatch.setattr(PaperDemo, "made", [])

    def run(end: DemoOutcome | RoQError | None, *arguments: str) -> Result:
        monkeypatch.setattr(PaperDemo, "end", end)
        return CliRunner().invoke(demo, [*arguments], env={"COLUMNS": "200"})

    return run


def test_lines_are_dealt_out_to_two_publishers_and_two_subscribers(
    play: Callable[..., Result],
) -> None:
    done = play(outcome(equal=True), "--hosts", "3")
    assert done.exit_code == 0
    assert "20 lines (120 B) of 2 files in " in done.stdout
    (made,) = PaperDemo.made
    assert [share.lines for share in made.shares] == [10, 10]
    assert made.wanted == {"subscribers": 2, "hosts": 3, "calm": module.CALM_LINES}
    assert play(outcome(equal=True), "--lines", "5").stdout.startswith("RoQ demo  10 lines")


def test_a_log_gets_a_line_at_each_step_and_how_far_the_lanes_are(
    play: Callable[..., Result],
) -> None:
    lines = play(outcome(equal=True)).stdout.splitlines()
    step = "everything else, at full speed   exchanges x1 on 127.0.0.1"
    assert sum(line.strip() == f"2.0 s  {step}" for line in lines) == 1
    assert "  publisher 1 1,234" in lines


@pytest.mark.parametrize(
    ("end", "code", "text"),
    [
        (outcome(equal=False), 1, "what came out is not what went in: see the table above"),
        (None, 130, "it was interrupted"),
        (Unavailable("publisher 1 has ended"), 1, "publisher 1 has ended"),
        (StartFailed("no Java", 69), 69, "no Java"),
    ],
)
def test_what_went_wrong_is_a_sentence_and_an_exit_code(
    end: Any, code: int, text: str, play: Callable[..., Result]
) -> None:
    done = play(end)
    assert (done.exit_code, done.stderr) == (code, f"Error: {text}\n")


def test_rates_are_those_of_the_last_second() -> None:
    lane = SimpleNamespace(name="p", messages=0)
    clock = SimpleNamespace(lanes=[lane], now=lambda: clock.moment, moment=10.0)
    rates = Rates()
    assert rates.update(clock) == {"p": 0.0}  # type: ignore[arg-type]
    for moment, messages, rate in [(10.5, 50, 100.0), (11.0, 100, 100.0), (11.5, 350, 300.0)]:
        clock.moment, lane.messages = moment, messages
        assert rates.update(clock) == {"p": rate}  # type: ignore[arg-type]


def test_at_a_terminal_each_lane_has_a_bar_and_how_much_of_it_is_through(
    play: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=160, record=True)
    monkeypatch.setattr(module, "console", lambda: terminal)
    lanes = [
        SimpleNamespace(name="publisher 1", publishes=True, messages=250, total=1_000),
        SimpleNamespace(name="subscriber 1", publishes=False, messages=0, total=0),
    ]
    monkeypatch.setattr(PaperDemo, "lanes", property(lambda _: lanes, lambda *_: None), False)
    assert play(None).exit_code == 130
    ends = {tuple(line.split()[-4:]) for line in terminal.export_text().splitlines()}
    assert ("25", "%", "250", "0/s") in ends
    assert ("100", "%", "0", "0/s") in ends, "one with nothing to do has done it"
