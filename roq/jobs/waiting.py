"""Jobs that may be claimed, in SQL: the next ones, and those of which a message is to be sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Final

import sqlalchemy as sa

from roq.jobs.database import JobDatabase, Row
from roq.jobs.held import BLOCK, HeldJobs
from roq.jobs.rows import Claimed, ReadyJob, Want, spread
from roq.jobs.states import PRIORITIES, HeldFor, JobStatus, StaleReason, why_stale

SLOW_SECONDS: Final = 0.02
"""A look that takes no longer is always a whole one."""
REST: Final = 20
"""After a whole look that was slow there is none for so many times as long …"""
REST_SECONDS: Final = 10.0
"""… and at most for so long."""
SLACK: Final = 1_000_000
"""µs: for transactions that commit later than others which began after them."""
_ORDER: Final = "priority, created, batch_sequence, id"
_LEVELS: Final = tuple(sorted(PRIORITIES.values()))
_UNSENT: Final = "status = 'CREATED' AND held = '' AND dispatched >= 0"


class WaitingFloors:
    """By type and priority, from which `created` on jobs are looked for. Pure.

    As long as some transaction is open PostgreSQL keeps what was claimed since at the front of the
    index of what waits, and whoever looks for the next job passes all of it. So who has found that
    a look takes long begins the next ones where the last one has found something. A job that comes
    to wait behind that place, such as one that is tried again, is found by the next whole look.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._floors: dict[tuple[str, int], tuple[int, float]] = {}

    def floor(self, kind: str, priority: int) -> int:
        """Where to begin; 0: the look is to be a whole one."""
        floor, until = self._floors.get((kind, priority), (0, 0.0))
        return floor if self.clock() < until else 0

    def looked(self, kind: str, priority: int, floor: int, oldest: int, seconds: float) -> None:
        """Jobs were looked for.

        Args:
            kind: type of the jobs.
            priority: theirs.
            floor: where the look began.
            oldest: `created` of the first that was found, or now if there was none.
            seconds: that the look took.
        """
        cell = (kind, priority)
        if floor:
            _, until = self._floors.get(cell, (0, 0.0))
        elif seconds > SLOW_SECONDS:
            until = self.clock() + min(REST * seconds, REST_SECONDS)
        else:
            self._floors.pop(cell, None)
            return
        self._floors[cell] = (max(1, oldest - SLACK), until)


class WaitingJobs(HeldJobs):
    """The SQL of jobs that may be claimed; a part of `JobStore`.

    Args:
        database: where jobs are.
    """

    def __init__(self, database: JobDatabase) -> None:
        super().__init__(database)
        self._floors = WaitingFloors()

    # --- the next ones ----------------------------------------------------------------------------

    def candidates(
        self, connection: sa.Connection, wants: Iterable[Want], most: int
    ) -> list[tuple[int, int, str]]:
        """The next jobs (id, token, type) of each of these types, together by priority and age.

        They are more than may be claimed: which of them is decided when their slots are known.
        """
        found: list[Row] = []
        for want in wants:
            if want.most > 0:
                found += self._next(connection, want.type, min(want.most, most))
        found.sort(key=lambda row: (row.priority, row.created, row.batch_sequence, row.id))
        return [(row.id, row.token, row.type) for row in found]

    def _next(self, connection: sa.Connection, kind: str, most: int) -> list[Row]:
        """The next jobs of a type, by priority and age."""
        asked = (
            f"SELECT {_ORDER}, token, type FROM job WHERE type = :type AND status = 'CREATED'"
            f" AND held = ''%s ORDER BY {_ORDER} LIMIT :most{self.database.skip_locked}"
        )
        floors = {each: self._floors.floor(kind, each) for each in _LEVELS}
        found: list[Row] = []
        if not any(floors.values()):
            began = self._floors.clock()
            found += self.database.run(connection, asked % "", type=kind, most=most)
            last = found[-1].priority if len(found) == most else _LEVELS[-1]
            first = {row.priority: row.created for row in reversed(found)}
            seen = {p: first.get(p) for p in _LEVELS if p <= last}
            self._looked(connection, kind, seen, began, 0)
            return found
        for priority, floor in floors.items():
            if len(found) < most:
                began = self._floors.clock()
                rows = self.database.run(
                    connection, asked % " AND priority = :priority AND created >= :floor",
                    type=kind, most=most - len(found), priority=priority, floor=floor,
                ).all()  # fmt: skip
                seen = {priority: rows[0].created if rows else None}
                self._looked(connection, kind, seen, began, floor)
                found += rows
        return found

    def oldest(self, connection: sa.Connection, kind: str, priority: int) -> int | None:
        """`created` of the oldest job of a type and priority that may be claimed; None: none."""
        began, floor = self._floors.clock(), self._floors.floor(kind, priority)
        oldest: int | None = self.database.run(
            connection,
            "SELECT min(created) FROM job WHERE type = :type AND priority = :priority"
            " AND status = 'CREATED' AND held = '' AND created >= :floor",
            type=kind,
            priority=priority,
            floor=floor,
        ).scalar()
        self._looked(connection, kind, {priority: oldest}, began, floor)
        return oldest

    def _looked(
        self,
        connection: sa.Connection,
        kind: str,
        oldest: Mapping[int, int | None],
        began: float,
        floor: int,
    ) -> None:
        """Remember what a look has found that began then and there: by priority, `created` of the
        first."""
        took = self._floors.clock() - began
        if self.database.sqlite or not (floor or took > SLOW_SECONDS):
            return  # SQLite forgets at once
        now = self.database.now(connection)
        for priority, created in oldest.items():
            self._floors.looked(kind, priority, floor, now if created is None else created, took)

    def first_priority(self, connection: sa.Connection, kind: str, below: int) -> int | None:
        """The priority of the next job of a type that goes before those of `below`; None: none may
        be claimed.

        Those of `below` itself are not looked at: they may be many that were claimed, and that the
        database cannot forget as long as some transaction is open.
        """
        for priority in _LEVELS:
            if priority < below and self.oldest(connection, kind, priority) is not None:
                return priority
        return None

    # --- by a queue -------------------------------------------------------------------------------

    def unsent(
        self,
        connection: sa.Connection,
        kind: str,
        priority: int,
        *,
        before: int = 1,
        since: int = 0,
    ) -> list[ReadyJob]:
        """Jobs of which no message was sent since then; the caller is to send one after the commit.

        Args:
            connection: the transaction.
            kind, priority: theirs.
            before: µs since 1970; 1: of which none was sent at all.
            since: without those whose message was sent before that time.
        """
        rows = self.database.run(
            connection,
            "UPDATE job SET dispatched = :now WHERE id IN (SELECT id FROM job WHERE type = :type"
            f" AND priority = :priority AND {_UNSENT} AND dispatched >= :since"
            f" AND dispatched < :before ORDER BY dispatched LIMIT {BLOCK}"
            f"{self.database.skip_locked}) RETURNING priority, id, token, type",
            now=self.database.now(connection),
            type=kind,
            priority=priority,
            before=before,
            since=since,
        )
        return sorted(ReadyJob(row.priority, row.id, row.token, row.type) for row in rows)

    def have_unsent(self, connection: sa.Connection, kinds: Iterable[str]) -> list[tuple[str, int]]:
        """Of these types, each with a priority: there are jobs whose message nobody has sent."""
        rows = self.database.run(
            connection,
            "SELECT type, priority FROM "
            + self.database.given(("type", "text"), ("priority", "int"))
            + " AS d WHERE EXISTS (SELECT 1 FROM job WHERE job.type = d.type"
            f" AND job.priority = d.priority AND {_UNSENT} AND dispatched < 1)",
            [[kind, priority] for kind in kinds for priority in _LEVELS],
        )
        return [(row.type, row.priority) for row in rows]

    def why_stale(
        self, connection: sa.Connection, asked: Iterable[ReadyJob], runs: Iterable[Claimed]
    ) -> Counter[StaleReason]:
        """Why messages have claimed nothing, and how many; those that have cost nothing here.

        Args:
            connection: the transaction that has claimed.
            asked: what the messages told.
            runs: that were claimed.
        """
        begun = {(run.id, run.token - 1) for run in runs}
        stale = [job for job in asked if (job.id, job.token) not in begun]
        if not stale:
            return Counter()
        there = {
            row.id: (JobStatus(row.status), row.token, HeldFor(row.held))
            for row in self.database.run(
                connection,
                "SELECT id, status, token, held FROM job WHERE id IN (SELECT id FROM"
                f" {self.database.given(('id', 'bigint'))} AS d)",
                spread(job.id for job in stale),
            )
        }
        return Counter(why_stale(job.token, there.get(job.id)) for job in stale)
