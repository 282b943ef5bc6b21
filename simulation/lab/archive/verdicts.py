"""Figures judged by what was expected of them; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan

from roq.simulation.lab.archive.document import RunKind, Verdict
from roq.simulation.scenario.scenario import Expectation


def judge(expected: Sequence[Expectation], figures: Mapping[str, float]) -> list[Verdict]:
    """One verdict for each expectation; a figure that is missing, or no number, decides nothing.

    Args:
        expected: of the scenario.
        figures: by the names that expectations use.
    """
    return [_verdict(each, figures.get(each.what)) for each in expected]


def fulfilled(verdicts: Sequence[Verdict], kind: RunKind) -> bool:
    """Whether everything came out as expected.

    A model has no figure for some expectations (no message is lost in it); of a live run, what
    was not measured is not fulfilled.
    """
    if kind is RunKind.MODEL:
        return all(each.holds is not False for each in verdicts)
    return all(each.holds for each in verdicts)


def _verdict(expected: Expectation, found: float | None) -> Verdict:
    if found is None or isnan(found):
        why = "this run has no such figure"
        return Verdict(expected=expected, found=None, holds=None, why=why)
    return Verdict(expected=expected, found=found, holds=expected.holds(found))
