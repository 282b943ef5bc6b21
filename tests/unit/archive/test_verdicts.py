"""Expectations are judged by figures; what is not known is not called good."""

from __future__ import annotations

from math import nan

from roq.simulation.lab.archive.document import RunKind
from roq.simulation.lab.archive.verdicts import fulfilled, judge
from roq.simulation.scenario.scenario import Expectation

LOST = Expectation(what="lost", op="==", value=0)
QUICK = Expectation(what="latency_mean_ms", op="<=", value=16)


def test_each_expectation_gets_its_verdict() -> None:
    first, second = judge([LOST, QUICK], {"lost": 0, "latency_mean_ms": 17.0})
    assert (first.found, first.holds) == (0, True)
    assert (second.found, second.holds) == (17.0, False)
    assert not fulfilled([first, second], RunKind.LIVE)


def test_a_figure_that_is_missing_or_no_number_decides_nothing() -> None:
    for figures in ({}, {"lost": nan}):
        (verdict,) = judge([LOST], figures)
        assert (verdict.found, verdict.holds) == (None, None)
        assert verdict.why


def test_what_was_not_measured_fulfils_a_model_but_no_live_run() -> None:
    verdicts = judge([LOST, QUICK], {"latency_mean_ms": 5.0})
    assert fulfilled(verdicts, RunKind.MODEL)
    assert not fulfilled(verdicts, RunKind.LIVE)
