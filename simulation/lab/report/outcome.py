"""What came of a run, in words: the same on pages, pictures and terminals; pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from roq.simulation.lab.archive.document import Run, RunKind, RunState, Verdict
from roq.simulation.lab.archive.verdicts import fulfilled
from roq.simulation.lab.report.figures import about
from roq.simulation.lab.report.wording import clean, count, quantity
from roq.simulation.scenario.scenario import Expectation

_ERROR_MAX: Final = 600
_NOTHING: Final = "Nothing in particular was expected."


class Tone(StrEnum):
    """How good it is; never said by colour alone."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"
    PLAIN = ""


class Outcome(NamedTuple):
    """A run in a sentence."""

    tone: Tone
    headline: str
    more: str = ""


MARKS: Final = {Tone.GOOD: "✓", Tone.BAD: "✗", Tone.OPEN: "?", Tone.PLAIN: "·"}
_COMPARED: Final = {
    "<": "below {}", "<=": "at most {}", "==": "exactly {}", ">=": "at least {}", ">": "above {}",
}  # fmt: skip


def outcome(run: Run) -> Outcome:
    """What came of it: how it ended, and whether that is what was expected."""
    if run.state is RunState.COMPLETE:
        return _complete(run) if run.verdicts else Outcome(Tone.PLAIN, "Complete", _NOTHING)
    error = clean(run.error, _ERROR_MAX)
    if run.state is RunState.FAILED:
        return Outcome(Tone.BAD, "The run failed", error or "No reason is known.")
    judged = f"{_tally(run.verdicts)}." if run.verdicts else ""
    if run.state is RunState.INTERRUPTED:
        begun = "It was ended early: this is what was measured until then."
        error = f"Why: {error}." if error else ""
        return Outcome(Tone.OPEN, "Interrupted", " ".join(filter(None, (begun, error, judged))))
    if run.state is RunState.ABANDONED:
        begun = "Its process was killed: this is what was kept until then."
        return Outcome(Tone.BAD, "Abandoned", begun)
    begun = "It still runs, or its process was killed: this is what is known."
    return Outcome(Tone.OPEN, "Not finished", f"{begun} {judged}".strip())


def _complete(run: Run) -> Outcome:
    met, missed, unjudged = counts(run.verdicts)
    if missed:
        return Outcome(Tone.BAD, _of(missed, run, "not met"), f"{_tally(run.verdicts)}.")
    if not unjudged:
        return Outcome(Tone.GOOD, _all(met))
    if fulfilled(run.verdicts, run.kind) and met:
        text = f"{count(unjudged, 'expectation')} cannot be judged by a model."
        return Outcome(Tone.GOOD, f"All that a {RunKind.MODEL.value} can tell is as expected", text)
    return Outcome(Tone.OPEN, _of(unjudged, run, "could not be judged"), f"{_tally(run.verdicts)}.")


def counts(verdicts: list[Verdict]) -> tuple[int, int, int]:
    """How many are met, not met, and not judged."""
    met = sum(each.holds is True for each in verdicts)
    missed = sum(each.holds is False for each in verdicts)
    return met, missed, len(verdicts) - met - missed


def tone(verdict: Verdict) -> Tone:
    """How a verdict is shown."""
    if verdict.holds is None:
        return Tone.OPEN
    return Tone.GOOD if verdict.holds else Tone.BAD


def said(verdict: Verdict) -> str:
    """A verdict in a word or three."""
    if verdict.holds is None:
        return "not judged"
    return "met" if verdict.holds else "not met"


def wanted(expected: Expectation) -> str:
    """What was to come out: `at most 10 ms`."""
    return _COMPARED[expected.op].format(quantity(expected.value, about(expected.what).unit))


def found(verdict: Verdict) -> str:
    """What came out, exactly enough to see on which side of the wanted value it is."""
    unit = about(verdict.expected.what).unit
    shown = quantity(verdict.found, unit)
    near = verdict.found is not None and verdict.found != verdict.expected.value
    if near and shown == quantity(verdict.expected.value, unit):
        return f"{verdict.found:,.6g} {unit}".strip()
    return shown


def _all(met: int) -> str:
    if met == 1:
        return "The expectation is met"
    return "Both expectations are met" if met == 2 else f"All {met} expectations are met"


def _of(some: int, run: Run, what: str) -> str:
    return f"{some} of {count(len(run.verdicts), 'expectation')} {what}"


def _tally(verdicts: list[Verdict]) -> str:
    met, missed, unjudged = counts(verdicts)
    parts = [f"{met} met"]
    parts += [f"{missed} not met"] if missed else []
    parts += [f"{unjudged} not judged"] if unjudged else []
    return ", ".join(parts)
