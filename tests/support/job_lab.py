"""Jobs without threads: a test submits, claims, finishes and kills as it likes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import event, text

from roq.errors import JobNotFound
from roq.jobs.instances import TypeFacts
from roq.jobs.jobs import Jobs
from roq.jobs.limits import TypeLimits
from roq.jobs.room import JobPlaces
from roq.jobs.rows import Claimed, Ended, NewJob, Submitted, Trouble, Want
from roq.jobs.states import DEFAULT, JobStatus, RunEnd

SPAN = 600_000_000
TROUBLE = Trouble("ValueError: no", fingerprint="f" * 16)


class Lab:
    """A database of jobs, with a clock of the test's if it is SQLite."""

    def __init__(self, url: str, *, durable: bool = True) -> None:
        self.time = 1_800_000_000_000_000
        sqlite = "://" not in url
        self.jobs = Jobs(url, clock=(lambda: self.time) if sqlite else None, jitter=lambda: 0.0)
        if not durable:
            event.listen(
                self.jobs.database.engine, "connect",
                lambda made, _record: made.execute("PRAGMA synchronous=OFF"),
            )  # fmt: skip
        self.jobs.open()
        self.database = self.jobs.database
        self.store = self.jobs.store
        self.instances = self.jobs.instances

    def close(self) -> None:
        self.jobs.close()

    def empty(self) -> None:
        """As if the tables were new."""
        with self.database.write() as connection:
            for table in ("", "_params", "_result", "_error", "_edge", "_batch", "_count", "_type",
                          "_slot", "_instance", "_schedule", "_fired", "_audit"):  # fmt: skip
                connection.execute(text(f"DELETE FROM job{table}"))

    def submit(self, kind: str = "A", **given: Any) -> int:
        return self.submit_all([new(kind, **given)])[0].id

    def submit_all(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        with self.database.write() as connection:
            return self.store.submit(connection, jobs)

    def submit_foreign(self, kind: str = "A", **given: Any) -> int:
        """In a transaction of a user's."""
        with self.database.write() as connection:
            return self.store.submit(connection, [new(kind, **given)], foreign=True)[0].id

    def finish_foreign(self, owner: int, run: Claimed) -> bool:
        """As `job.finish` does in a handler's transaction."""
        with self.database.write() as connection:
            done = [Ended(run, RunEnd.DONE, 0)]
            return bool(self.store.finish(connection, owner, done, "test", foreign=True))

    def release(self) -> None:
        """What an instance does twice a second."""
        with self.store.write() as connection:
            self.store.release_due(connection)

    def delete(self, *jobs: int) -> int:
        with self.store.write() as connection:
            return self.instances.delete(connection, jobs)

    def instance(self, *types: str) -> int:
        with self.database.write() as connection:
            return self.instances.register(connection, "test", 1, 8, types or ("A",))

    def declare(self, kind: str, limit: int | None, **limits: Any) -> None:
        with self.database.write() as connection:
            holds = TypeLimits(cluster_limit=limit, **limits)
            self.instances.declare(connection, [TypeFacts(kind, 1, True, holds)])

    def claim(
        self, owner: int, most: int = 10, *types: str, limited: bool = False, running: int = 0
    ) -> list[Claimed]:
        wants = [
            Want(kind, most, SPAN, limited=limited, running=running) for kind in types or ("A",)
        ]
        return self.claims(owner, wants, most)

    def claims(self, owner: int, wants: Sequence[Want], most: int) -> list[Claimed]:
        """By an instance with so many free threads."""
        with self.store.write() as connection:
            jobs = self.store.candidates(connection, wants, most)
            return list(self.store.claim(connection, owner, wants, jobs, JobPlaces(most)).runs)

    def claim_named(self, owner: int, job: int, token: int) -> list[Claimed]:
        """As a message of a queue has it."""
        with self.database.write() as connection:
            wants = [Want("A", 1, SPAN)]
            named = [(job, token, "A")]
            return list(self.store.claim(connection, owner, wants, named, JobPlaces(1)).runs)

    def finish(self, owner: int, run: Claimed, end: RunEnd = RunEnd.DONE, saved: int = 0) -> bool:
        trouble = None if end is RunEnd.DONE else TROUBLE
        with self.database.write() as connection:
            ended = Ended(run, end, saved, trouble=trouble)
            return (run.id, run.token) in self.store.finish(connection, owner, [ended], "test")

    def kill(self, owner: int) -> None:
        """The instance does not renew itself for long, and another one notices."""
        self.set("job_instance", "expires = 1", owner)
        with self.database.write() as connection:
            self.instances.reap(connection)

    def overdue(self, job: int) -> None:
        """Twice its time limit is over, and an instance notices."""
        self.set("job", "started = 1, deadline = 1", job)
        with self.database.write() as connection:
            self.instances.end_late(connection)

    def let_due(self) -> None:
        """The times that jobs wait for come."""
        with self.database.write() as connection:
            connection.execute(text("UPDATE job SET due = 1 WHERE held = 'later'"))
            self.store.release_due(connection)

    def set(self, table: str, change: str, key: int) -> None:
        with self.database.write() as connection:
            connection.execute(text(f"UPDATE {table} SET {change} WHERE id = :id"), {"id": key})

    def waiting(self) -> list[int]:
        """Jobs that may be claimed, by priority and age."""
        asked = (
            "SELECT id FROM job WHERE status = 'CREATED' AND held = ''"
            " ORDER BY priority, created, batch_sequence, id"
        )
        with self.database.read() as connection:
            return [row.id for row in self.database.run(connection, asked)]

    def status(self, job: int) -> JobStatus:
        found = self.jobs.status_of(job)
        if found is None:
            raise JobNotFound(str(job))
        return found[0]

    def field(self, job: int, name: str) -> Any:
        with self.database.read() as connection:
            return connection.execute(
                text(f"SELECT {name} FROM job WHERE id = :id"), {"id": job}
            ).scalar_one()

    def run(self, statement: str) -> Any:
        """Run a statement; gives the first column of its first row, if it has rows."""
        with self.database.write() as connection:
            found = connection.execute(text(statement))
            return found.scalar() if found.returns_rows else None

    def check(self) -> None:
        """Counters say what there is, and nobody holds what he should not."""
        with self.database.read() as connection:
            there = connection.execute(
                text(
                    "SELECT type, priority, status, count(*), sum(items), sum(failures) FROM job"
                    " GROUP BY type, priority, status ORDER BY 1, 2, 3"
                )
            ).all()
            told = connection.execute(
                text(
                    "SELECT type, priority, status, sum(number), sum(items), sum(failures)"
                    " FROM job_count GROUP BY type, priority, status"
                    " HAVING sum(number) <> 0 OR sum(items) <> 0 OR sum(failures) <> 0"
                    " ORDER BY 1, 2, 3"
                )
            ).all()
            assert [tuple(row) for row in told] == [tuple(row) for row in there]
            odd = connection.execute(
                text("SELECT count(*) FROM job WHERE (status = 'RUNNING') <> (owner IS NOT NULL)")
            ).scalar_one()
            assert odd == 0


def new(kind: str = "A", **given: Any) -> NewJob:
    return NewJob(**{"type": kind, "priority": DEFAULT, "restartable": True, **given})
