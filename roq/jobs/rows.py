"""What is written to the tables of jobs and read from them, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from roq.jobs.limits import TypeLimits
from roq.jobs.states import DEFAULT, Attempts, JobStatus, RunEnd

TEXT_MAX: Final = 200
"""Characters of a tag, a key or a name."""


class Body(NamedTuple):
    """Params or a result, encoded."""

    codec: str
    version: int
    body: bytes


class NewJob(msgspec.Struct, frozen=True):
    """A job to be written down."""

    type: str
    priority: int
    """Or that which an operator has set for its type, if `chosen` is False."""
    restartable: bool
    chosen: bool = True
    items: int = 0
    tag: str = ""
    due: int = 0
    """µs since 1970; 0: at once."""
    unique: str | None = None
    on_unique: str = "raise"
    """What is done if there is one with this `unique` already: `skip`, `replace` or `raise`."""
    key: str | None = None
    parents: tuple[int, ...] = ()
    params: Body | None = None


class ReadyJob(NamedTuple):
    """A job that may be claimed, as a message tells of it; the first in order is the lowest."""

    priority: int
    id: int
    token: int
    type: str


class Submitted(NamedTuple):
    """What became of a job that was to be written down."""

    id: int
    """Its own, or that of the one with the same `unique`."""
    outcome: str
    """`new`, `skipped`, `replaced`, or `exists` if that is an error."""
    priority: int = DEFAULT
    """Of one that is new."""
    ready: bool = False
    """It is new, and may be claimed as soon as this is committed."""


class Claimed(msgspec.Struct, frozen=True):
    """A run: the job is this instance's, under this token."""

    id: int
    token: int
    type: str
    priority: int
    created: int
    sequence: int
    attempts: Attempts
    restartable: bool
    items: int
    saved: int
    tag: str = ""
    params: Body | None = None

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Jobs are run in this order."""
        return self.priority, self.created, self.sequence, self.id


class Claims(NamedTuple):
    """What came of a claim."""

    runs: Sequence[Claimed] = ()
    """By priority and age."""
    passed: frozenset[tuple[int, int]] = frozenset()
    """Jobs (id, token) that were not asked for: there was no place, or no slot, for them."""
    short: frozenset[str] = frozenset()
    """Types for which there were too few slots."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a run has ended otherwise than well."""

    text: str
    trace: str = ""
    fingerprint: str = ""


class Ended(msgspec.Struct, frozen=True):
    """A run that has ended, to be written down."""

    run: Claimed
    end: RunEnd
    saved: int
    result: Body | None = None
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Want:
    """How much an instance would claim of a type.

    Attributes:
        most: jobs.
        limit: µs that a job of it may take.
        limited: whether each needs a slot of the cluster.
        running: those that it runs.
        ahead: how many may wait for a thread; 0: none, each needs one that is free.
        rate: jobs of it that may begin in a second; None: no limit.
    """

    type: str
    most: int
    limit: int
    limited: bool = False
    running: int = 0
    ahead: int = 0
    rate: float | None = None


class LivingInstance(NamedTuple):
    """A living instance."""

    id: int
    types: tuple[str, ...]
    wants: tuple[str, ...]
    """Types of which it has free threads, waiting jobs and no slot."""


@dataclass(frozen=True, slots=True)
class Look:
    """What an instance sees of the database several times a second."""

    now: int
    on: bool
    """Whether jobs are switched on."""
    dispatch: str
    off: frozenset[str]
    """Types that are switched off."""
    limits: Mapping[str, TypeLimits]
    """What holds for each type that was declared."""
    rested: Mapping[str, int]
    """By type, as `roq.jobs.limits.may_begin` wants it."""
    interrupt: frozenset[tuple[int, int]]
    """Runs (id, token) of this instance that an operator wants to be interrupted."""
    due: bool
    """A job that was to wait is due."""
    dead: bool
    """An instance is dead."""
    late: bool
    """A job runs for much longer than it may."""
    fires: bool
    """A schedule of a type that is on fires."""
    peers: tuple[LivingInstance, ...]


@dataclass(slots=True)
class Deltas:
    """What changes in the counters of one transaction."""

    cells: dict[tuple[str, int, JobStatus], list[int]] = field(default_factory=dict)

    def add(
        self, kind: str, priority: int, status: JobStatus, number: int, items: int, failures: int
    ) -> None:
        """So many jobs more (or fewer) stand there, with these items and failures in all."""
        cell = self.cells.setdefault((kind, priority, status), [0, 0, 0])
        cell[0] += number
        cell[1] += items
        cell[2] += failures

    def merge(self, others: Deltas) -> None:
        """These, too."""
        for (kind, priority, status), cell in others.cells.items():
            self.add(kind, priority, status, *cell)

    def move(self, before: JobStatus, moved: Iterable[tuple[Claimed, JobStatus, int]]) -> None:
        """Jobs go from one status to the next, now with so many failures."""
        alike = Counter(
            (run.type, run.priority, run.items, run.attempts.failures, after, failures)
            for run, after, failures in moved
        )
        for (kind, priority, items, failed, after, failures), number in alike.items():
            self.add(kind, priority, before, -number, -number * items, -number * failed)
            self.add(kind, priority, after, number, number * items, number * failures)

    def rows(self, shard: int) -> Sequence[Sequence[object]]:
        """As the database takes them: in one order for all, so that no two writers embrace."""
        return [[*key, shard, *cell] for key, cell in sorted(self.cells.items()) if any(cell)]


def spread(ids: Iterable[int]) -> list[list[int]]:
    """Ids as rows of one column."""
    return [[each] for each in ids]
