"""Jobs that may not be claimed yet, in SQL: for whom they wait, and how they are let go.

A job waits for a time, for other jobs, or for its turn among those of its key (`HeldFor`). Those
two others are rows that several programs look at, so whoever decides about them locks something,
and does it in a short transaction. In a transaction of a user's nothing is decided:

* A job that is submitted there after others is held until `due`, which is 0 or less, with its
  edges; `release_due` finds what is open of its parents (`_settle`). Not so the last one of a
  batch, if all others are new in that transaction: nobody else looks at those yet.
* A job that is finished there leaves an edge to no child (`LEFT`) if others may wait for it;
  `release_left` lets them go.

So nobody waits for the end of a user's transaction, and none of it is lost if the program dies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import sqlalchemy as sa

from roq.errors import JobNotFound
from roq.jobs.database import JobDatabase
from roq.jobs.rows import NewJob, spread
from roq.jobs.schema import OPEN
from roq.jobs.states import HeldFor, JobStatus

BLOCK: Final = 500
"""Jobs that one statement releases, reaps or deletes, at most."""
LEFT: Final = 0
"""No job has this id."""


class HeldJobs:
    """The SQL of jobs that wait; a part of `JobStore`.

    Args:
        database: where jobs are.
    """

    def __init__(self, database: JobDatabase) -> None:
        self.database = database

    # --- new ones ---------------------------------------------------------------------------------

    def open_parents(
        self, connection: sa.Connection, jobs: Sequence[NewJob], *, foreign: bool
    ) -> set[int]:
        """Those of the jobs to be waited for that are not COMPLETE; they know that from now on.

        Raises:
            JobNotFound: one of them does not exist.
        """
        named = {each for job in jobs for each in job.parents}
        if not named:
            return set()
        waited_for = set() if foreign else self._marked(connection, named)
        # After the marks: one that was deleted while they waited for it is not there now.
        there = {
            row.id: row.status
            for row in self.database.run(
                connection,
                f"SELECT id, status FROM job WHERE id IN (SELECT id FROM {self._ids()} AS d)"
                f" ORDER BY id{self.database.needed}",
                spread(sorted(named)),
            )
        }
        missing = named - set(there)
        if missing:
            raise JobNotFound(f"there is no job {min(missing)} that another one could wait for")
        if foreign:
            return {id_ for id_, status in there.items() if status != JobStatus.COMPLETE}
        return waited_for

    def held_columns(
        self, job: NewJob, now: int, open_parents: set[int], *, foreign: bool
    ) -> tuple[str, int, int]:
        """The columns `held`, `due` and `waits` of a new job."""
        waits = len(set(job.parents) & open_parents)
        if waits and foreign:
            return HeldFor.LATER.value, -job.due, waits
        if waits:
            return HeldFor.PARENTS.value, job.due, waits
        if job.due > now or (foreign and job.key is not None):
            # Whose turn it is among those of a key is decided in a short transaction of ours.
            return HeldFor.LATER.value, job.due, 0
        return (HeldFor.KEY if job.key is not None else HeldFor.NO).value, job.due, 0

    def write_edges(self, connection: sa.Connection, edges: Sequence[Sequence[int]]) -> None:
        """Write down (parent, child) of jobs that wait."""
        if edges:
            self.database.run(
                connection,
                "INSERT INTO job_edge (parent, child) SELECT parent, child FROM "
                + self.database.given(("parent", "bigint"), ("child", "bigint"))
                + " AS d WHERE true ON CONFLICT DO NOTHING",
                edges,
            )

    def _marked(self, connection: sa.Connection, parents: Iterable[int]) -> set[int]:
        """Have those that are not COMPLETE know that others wait for them; gives which."""
        return {
            row.id
            for row in self.database.run(
                connection,
                f"UPDATE job SET children = 1 WHERE id IN (SELECT id FROM {self._ids()} AS d)"
                " AND status <> 'COMPLETE' RETURNING id",
                spread(sorted(parents)),
            )
        }

    # --- after others -----------------------------------------------------------------------------

    def release_children(self, connection: sa.Connection, parents: Sequence[int]) -> None:
        """These are COMPLETE: let jobs be claimed that waited for them alone."""
        if not parents:
            return
        freed = self.database.run(
            connection,
            "UPDATE job SET waits = job.waits - d.number, held = CASE"
            " WHEN job.waits > d.number THEN 'parents' WHEN job.due > :now THEN 'later'"
            " WHEN job.key IS NOT NULL THEN 'key' ELSE '' END FROM (SELECT child,"
            " count(*) AS number FROM job_edge WHERE parent IN (SELECT id FROM"
            f" {self._ids()} AS e) GROUP BY child) AS d"
            " WHERE job.id = d.child AND job.status = 'CREATED' AND job.held = 'parents'"
            " RETURNING job.type, job.key, job.held",
            spread(parents),
            now=self.database.now(connection),
        ).all()
        if freed:
            self.database.notify(connection)
        self.release_keys(
            connection, {(row.type, row.key) for row in freed if row.held == HeldFor.KEY.value}
        )

    def leave(self, connection: sa.Connection, jobs: Sequence[int]) -> None:
        """These are COMPLETE with a transaction of the user's: what waits for them goes later."""
        self.write_edges(connection, [[each, LEFT] for each in jobs])
        if jobs:
            self.database.notify(connection)

    def release_left(self, connection: sa.Connection) -> None:
        """Let go what waits for jobs that users' transactions have completed."""
        left = self.database.run(
            connection,
            "DELETE FROM job_edge WHERE child = :left AND parent IN (SELECT parent FROM job_edge"
            f" WHERE child = :left LIMIT {BLOCK}{self.database.skip_locked}) RETURNING parent",
            left=LEFT,
        ).all()
        if not left:
            return
        done = self.database.run(
            connection,
            f"SELECT id, type, key FROM job WHERE id IN (SELECT id FROM {self._ids()} AS d)",
            spread(row.parent for row in left),
        ).all()
        self.release_children(connection, [row.id for row in done])
        self.release_keys(connection, {(row.type, row.key) for row in done})

    def _settle(self, connection: sa.Connection, now: int) -> None:
        """Find out for which parents those wait that a user's transaction has submitted."""
        run, ids = self.database.run, self._ids()
        new = run(
            connection,
            "SELECT id FROM job WHERE status = 'CREATED' AND held = 'later' AND waits > 0"
            f" AND due <= :now ORDER BY due LIMIT {BLOCK}{self.database.skip_locked}",
            now=now,
        ).all()
        if not new:
            return
        edges = run(
            connection,
            "SELECT e.parent, e.child, p.id AS there FROM job_edge AS e LEFT JOIN job AS p"
            f" ON p.id = e.parent WHERE e.child IN (SELECT id FROM {ids} AS d)",
            spread(row.id for row in new),
        ).all()
        # A parent that somebody changes now, for however long, is looked at again the next time.
        locked = {
            row.id: row.status
            for row in run(
                connection,
                f"SELECT id, status FROM job WHERE id IN (SELECT id FROM {ids} AS d)"
                f" ORDER BY id{self.database.skip_locked}",
                spread(sorted({row.parent for row in edges if row.there is not None})),
            )
        }
        unclear = {row.child for row in edges if row.there and row.parent not in locked}
        waits = {row.id: 0 for row in new if row.id not in unclear}
        open_, over = set(), []
        for row in edges:
            if row.child not in waits:
                continue
            if locked.get(row.parent, "COMPLETE") != JobStatus.COMPLETE:
                waits[row.child] += 1
                open_.add(row.parent)
            else:
                over.append([row.parent, row.child])
        if open_:
            self._marked(connection, open_)
        # What a user's transaction has completed may be let go by `release_left` only later: it is
        # not to be counted once more.
        run(
            connection,
            "DELETE FROM job_edge WHERE (parent, child) IN (SELECT parent, child FROM "
            + self.database.given(("parent", "bigint"), ("child", "bigint"))
            + " AS d)",
            over,
        )
        settled = run(
            connection,
            "UPDATE job SET waits = d.waits, due = abs(job.due), held = CASE WHEN d.waits > 0"
            " THEN 'parents' WHEN abs(job.due) > :now THEN 'later'"
            " WHEN job.key IS NOT NULL THEN 'key' ELSE '' END FROM "
            + self.database.given(("id", "bigint"), ("waits", "bigint"))
            + " AS d WHERE job.id = d.id RETURNING job.type, job.key, job.held",
            [list(each) for each in waits.items()],
            now=now,
        ).all()
        self.database.notify(connection)
        self.release_keys(
            connection, {(row.type, row.key) for row in settled if row.held == HeldFor.KEY.value}
        )

    # --- a time and a key -------------------------------------------------------------------------

    def release_due(self, connection: sa.Connection) -> int:
        """Let jobs that are due be claimed; gives how many. What users' transactions have
        submitted or completed is taken up, too."""
        now = self.database.now(connection)
        self._settle(connection, now)
        self.release_left(connection)
        due = self.database.run(
            connection,
            "UPDATE job SET held = CASE WHEN key IS NULL THEN '' ELSE 'key' END, dispatched = 0"
            " WHERE id IN (SELECT id FROM job WHERE status = 'CREATED' AND held = 'later'"
            f" AND due <= :now AND waits = 0 ORDER BY due LIMIT {BLOCK}{self.database.skip_locked})"
            " RETURNING type, key",
            now=now,
        ).all()
        if due:
            self.database.notify(connection)
        self.release_keys(connection, {(row.type, row.key) for row in due if row.key is not None})
        return len(due)

    def release_keys(
        self, connection: sa.Connection, keys: Iterable[tuple[str, str | None]]
    ) -> None:
        """Of each (type, key) let the first job that waits be claimed, if none may be or runs."""
        pairs = sorted({(kind, key) for kind, key in keys if key is not None})
        if not pairs:
            return
        self.database.lock(connection, [f"roq.jobs.key {kind}\n{key}" for kind, key in pairs])
        self.database.run(
            connection,
            # With the very words of the index: SQLite takes it only then.
            "UPDATE job SET held = '', dispatched = 0 WHERE id IN (SELECT (SELECT j.id"
            " FROM job AS j WHERE j.type = d.type AND j.key = d.key AND j.held = 'key'"
            f" AND j.status = 'CREATED' AND j.{OPEN}"
            " ORDER BY j.priority, j.created, j.batch_sequence, j.id LIMIT 1) FROM "
            + self.database.given(("type", "text"), ("key", "text"))
            + " AS d WHERE NOT EXISTS (SELECT 1 FROM job AS o WHERE o.type = d.type"
            f" AND o.key = d.key AND o.held = '' AND o.{OPEN}))",
            [list(pair) for pair in pairs],
        )
        self.database.notify(connection)

    def _ids(self) -> str:
        return self.database.given(("id", "bigint"))
