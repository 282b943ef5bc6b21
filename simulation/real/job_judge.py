"""Decides, from what runs have written down and what stands in the database in the end, whether
jobs were run as is promised. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

OPEN = frozenset({"CREATED", "RUNNING"})
ONCE = "Once"


class JobEnd(NamedTuple):
    """A job's row."""

    id: int
    type: str
    status: str
    token: int


@dataclass(slots=True)
class JobVerdict:
    """What came out.

    Attributes:
        jobs: by how they have ended.
        runs: that have begun.
        again: … beyond the first one of each job.
        refused: outdated runs whose end was refused.
        wrong: what must not be, in sentences.
    """

    jobs: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    again: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def judge(ends: Iterable[JobEnd], effects: Mapping[int, int], lines: Iterable[str]) -> JobVerdict:
    """Judge.

    Args:
        ends: all jobs, when nothing runs any more.
        effects: job → token of the run that has done it; one of a type with effects is COMPLETE
            with its effect.
        lines: of the journal of `roq.simulation.real.job_program`.
    """
    verdict = JobVerdict()
    begun: dict[int, Counter[int]] = {}
    taken: dict[int, set[int]] = {}
    refused: set[tuple[int, int]] = set()
    for line in lines:
        what, job, token, *_ = line.split()
        if what == "begin":
            begun.setdefault(int(job), Counter())[int(token)] += 1
        elif what == "taken":
            taken.setdefault(int(job), set()).add(int(token))
        else:
            refused.add((int(job), int(token)))
    for end in ends:
        verdict.jobs[end.status] += 1
        runs = begun.get(end.id, Counter())
        verdict.runs += runs.total()
        verdict.again += max(0, runs.total() - 1)
        verdict.wrong += [
            f"job {end.id} ({end.type}, {end.status}, token {end.token}): {reason}"
            for reason in _wrong(end, runs, taken.get(end.id, set()), effects.get(end.id))
        ]
    verdict.refused = len(refused)
    verdict.wrong += [
        f"job {job}: run {token} was refused, and has its effect"
        for job, token in sorted(refused)
        if effects.get(job) == token
    ]
    return verdict


def _wrong(
    end: JobEnd, runs: Mapping[int, int], taken: set[int], effect: int | None
) -> Iterable[str]:
    twice = [token for token, number in runs.items() if number > 1]
    if twice:
        yield f"run {twice[0]} was begun twice"
    if end.status in OPEN:
        yield "it has not ended"
    if end.type == ONCE and sum(runs.values()) > 1:
        yield "it was to be run once"
    if taken - ({effect} if effect is not None else set()):
        yield f"the end of run {min(taken)} was taken, and its effect is that of {effect}"
    if end.status != "COMPLETE":
        if effect is not None:
            yield f"run {effect} has its effect"
        return
    if end.token not in runs:
        yield "the run that has completed it was not begun"
    if any(token > end.token for token in runs):
        yield f"run {max(runs)} was begun after it was complete"
    if effect is not None and effect != end.token:
        yield f"its effect is that of run {effect}"
    if effect is None and end.type in {"Effect", "Limited"}:
        yield "it has no effect"
