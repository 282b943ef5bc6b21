"""Runs that never were, for tests of what is made of them."""

from __future__ import annotations

import math

import msgspec

from roq.simulation.lab.archive.document import (
    Event,
    EventKind,
    ExchangeWindow,
    LatencyWindow,
    PhaseTime,
    Run,
    RunKind,
    RunState,
    Series,
    Window,
)
from roq.simulation.lab.archive.verdicts import judge
from roq.simulation.real.results import Machine
from roq.simulation.scenario.scenario import (
    Expectation,
    Phase,
    PublisherGroup,
    Scenario,
    SubscriberGroup,
)

FIGURES = {"lost": 0.0, "moves": 4.0, "latency_p99_ms": 12.5, "exchanges_most": 2.0}


def run_of(run_id: str, kind: RunKind = RunKind.LIVE, **figures: float) -> Run:
    """A run of one phase; figures are those above where nothing else is said."""
    found = {**FIGURES, **figures}
    expected = [
        Expectation(what="lost", op="==", value=0),
        Expectation(what="latency_p99_ms", op="<=", value=10),
        Expectation(what="scale_ins", op=">=", value=1),
    ]
    scenario = Scenario(
        name="a-test",
        title="A test <with> signs & more",
        phases=[
            Phase(
                name="load",
                seconds=20.0,
                publishers=[PublisherGroup(count=4, rate=100.0, size=100)],
                subscribers=[SubscriberGroup(count=2)],
            )
        ],
        expect=expected,
    )
    return Run(
        id=run_id,
        kind=kind,
        state=RunState.COMPLETE,
        scenario=scenario,
        seed=1,
        began_us=1_700_000_000_000_000,
        seconds=20.0,
        settings={"master": "local[4]", "tasks": 2},
        versions={"roq": "0.4.0"},
        machine=Machine(
            when="2026-01-31T00:00:00Z",
            cpu="a processor",
            cores=2,
            python="CPython 3.11",
            libzmq="4.3.5",
            load_before=0.5,
        ),
        clock="one clock",
        figures=found,
        verdicts=judge(expected, found),
        phases=[PhaseTime(name="load", begins=0.0, ends=20.0)],
    )


def partly_heard(series: Series, *silent: int) -> Series:
    """The same, but nobody heard the statistics in these windows."""
    return msgspec.structs.replace(
        series,
        windows=[
            msgspec.structs.replace(window, exchanges=[], serving=0, imbalance=None, covered=0.0)
            if number in silent
            else window
            for number, window in enumerate(series.windows)
        ],
    )


def series_of(windows: int, *, seconds: float = 1.0) -> Series:
    """One exchange, from the middle on two; a move, a scale-out and a fault."""
    half = windows // 2
    return Series(
        window_seconds=seconds,
        windows=[
            Window(
                at=(number + 1) * seconds,
                exchanges=[
                    ExchangeWindow(
                        exchange=exchange,
                        messages_in=200.0,
                        bytes_in=20_000.0 + 1_000 * math.sin(number),
                        messages_out=400.0,
                        bytes_out=40_000.0,
                        publishers=2,
                        cpu_percent=20.0,
                    )
                    for exchange in ((1,) if number < half else (1, 2))
                ],
                serving=1 if number < half else 2,
                latency=LatencyWindow(
                    count=400, mean=1.5, p50=1.2, p90=2.0, p99=4.0, p999=6.0, most=9.0
                ),
                imbalance=None if number < half else 1.1,
                offered=400.0,
            )
            for number in range(windows)
        ],
        events=[
            Event(at=0.0, kind=EventKind.PHASE, text="load"),
            Event(at=half * seconds, kind=EventKind.SCALE_OUT, exchange=2, text="x2 serves"),
            Event(at=half * seconds, kind=EventKind.MOVE, exchange=2, text="x1 → x2"),
            Event(at=half * seconds, kind=EventKind.FAULT, text="kill exchange 0"),
        ],
    )
