"""Whatever stands in a folder of a run: there is a page, and it is whole."""

from __future__ import annotations

from io import StringIO

import msgspec
from html_pages import read
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.console import Console
from runs import run_of

from roq.simulation.lab.archive.document import (
    Event,
    EventKind,
    ExchangeWindow,
    LatencyWindow,
    PhaseTime,
    RunKind,
    RunState,
    Series,
    Window,
)
from roq.simulation.lab.archive.verdicts import judge
from roq.simulation.lab.report.page import written
from roq.simulation.lab.report.terminal import show

# JSON has all finite numbers, and damaged runs have strange ones.
ANY = st.floats(allow_nan=False, allow_infinity=False)
COUNTED = st.floats(0, 1e9) | ANY
TIMES = st.floats(0, 1e5) | ANY
TEXTS = st.text(max_size=20)
EXCHANGES = st.builds(
    ExchangeWindow,
    exchange=st.integers(-2, 70),
    messages_in=COUNTED,
    bytes_in=COUNTED,
    messages_out=COUNTED,
    bytes_out=COUNTED,
    publishers=st.integers(-1, 10**9),
    cpu_percent=st.none() | COUNTED,
)
LATENCIES = st.builds(
    LatencyWindow, count=st.integers(0, 10**9), mean=COUNTED, p50=COUNTED, p90=COUNTED,
    p99=COUNTED, p999=COUNTED, most=COUNTED,
)  # fmt: skip
WINDOWS = st.builds(
    Window,
    at=TIMES,
    exchanges=st.lists(EXCHANGES, max_size=6),
    serving=st.integers(0, 10**6),
    latency=st.none() | LATENCIES,
    imbalance=st.none() | COUNTED,
    offered=COUNTED,
)
EVENTS = st.builds(
    Event, at=TIMES, kind=st.sampled_from(EventKind), exchange=st.integers(-2, 70), text=TEXTS
)
SERIES = st.builds(
    Series,
    window_seconds=st.floats(0.001, 1e6),
    windows=st.lists(WINDOWS, max_size=6),
    events=st.lists(
        EVENTS,
        max_size=6,
    ),
)  # fmt: skip


# A page is large: what fails is told as it is, not made smaller for minutes.
@settings(max_examples=40, deadline=None, phases=(Phase.reuse, Phase.generate))
@given(
    series=SERIES,
    kind=st.sampled_from(RunKind),
    state=st.sampled_from(RunState),
    figures=st.dictionaries(TEXTS, ANY, max_size=5),
    known=ANY,
    phases=st.lists(st.builds(PhaseTime, name=TEXTS, begins=TIMES, ends=TIMES), max_size=4),
    text=TEXTS,
)
def test_every_run_has_a_page_and_a_verdict(
    series: Series,
    kind: RunKind,
    state: RunState,
    figures: dict[str, float],
    known: float,
    phases: list[PhaseTime],
    text: str,
) -> None:
    run = run_of("a", kind)
    figures = {**figures, "lost": known, "latency_p99_ms": known}
    run = msgspec.structs.replace(
        run,
        state=state,
        error=text,
        figures=figures,
        phases=phases,
        remarks=[text],
        settings={text: text, "n": known},
        verdicts=judge(run.scenario.expect, figures),
    )
    read(written(run, series))
    show(run, series, Console(file=StringIO(), width=80), everything=True)
