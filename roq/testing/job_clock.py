"""Jobs of a program on a clock of the test's: nothing is waited for, and no thread runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import sqlalchemy as sa

from roq.errors import InvalidRequest
from roq.jobs.database import MICROSECONDS
from roq.jobs.jobs import Jobs
from roq.jobs.room import JobPlaces
from roq.jobs.rows import Body, Claimed, Ended, Want
from roq.jobs.run import Job, execute, execute_async
from roq.jobs.schedules import JobSchedules
from roq.jobs.states import RunEnd
from roq.jobs.worker import checked_end

BEGIN: Final = datetime(2030, 1, 1, tzinfo=UTC)
AT_ONCE: Final = 100
NAME: Final = "test"


class JobClock:
    """The time of a test, and what happens as it passes; made by `roq.testing.jobs`.

    Attributes:
        ended: how runs have ended so far, in order: (type, end).
    """

    def __init__(self, program: Jobs, begin: datetime) -> None:
        if begin.tzinfo is None:
            raise InvalidRequest(f"a time needs a time zone, and {begin} has none")
        self.ended: list[tuple[str, RunEnd]] = []
        self._program = program
        self._micros = int(begin.timestamp() * MICROSECONDS)
        self._owner = 0

    def __call__(self) -> int:
        """µs since 1970, as the database asks for it."""
        return self._micros

    @property
    def now(self) -> datetime:
        """What time it is."""
        return datetime.fromtimestamp(self._micros / MICROSECONDS, UTC)

    def begin(self) -> None:
        """Be an instance of the program: its types and schedules are declared."""
        program = self._program.open()
        with program.database.write() as connection:
            types = program.types.values()
            program.instances.declare(connection, (each.facts for each in types))
            self._owner = program.instances.register(connection, NAME, 1, 1, list(program.types))
            schedules = JobSchedules(program.store, program.instances)
            schedules.declare(connection, program.schedules.values(), NAME)

    def run(self) -> int:
        """Run what may run now, one job after the other, in this thread; gives how many runs."""
        runs = 0
        while claimed := self._claim():
            for run in claimed:
                self._run(run)
            runs += len(claimed)
        return runs

    def advance(self, seconds: float) -> int:
        """Let time pass: schedules fire, jobs become due, each at its time; gives how many runs.

        Raises:
            InvalidRequest: time does not go back.
        """
        if seconds < 0:
            raise InvalidRequest(f"time does not go back by {-seconds:g} s")
        until = self._micros + int(seconds * MICROSECONDS)
        runs = self.run()
        while (time := self._next()) is not None and time <= until:
            self._micros = time
            runs += self.run()
        self._micros = until
        return runs + self.run()

    def _next(self) -> int | None:
        """When something becomes due that is not due now; None: never."""
        with self._program.database.read() as connection:
            row = self._program.database.run(
                connection,
                "SELECT (SELECT min(due) FROM job WHERE status = 'CREATED' AND held = 'later'"
                " AND due > :now) AS due,"
                " (SELECT min(next) FROM job_schedule WHERE next > :now) AS fires",
                now=self._micros,
            ).one()
        return min((each for each in (row.due, row.fires) if each is not None), default=None)

    def _claim(self) -> list[Claimed]:
        program = self._program
        with program.database.write() as connection:
            program.instances.renew(connection, self._owner)
            look = program.instances.look(connection, self._owner)
            if not look.on:
                return []
            program.operate.schedules.fire_due(connection)
            program.store.release_due(connection)
            wants = [
                Want(kind.name, AT_ONCE, int(kind.limits.time_limit * MICROSECONDS))
                for kind in program.types.values()
                if kind.name not in look.off
            ]
            found = program.store.candidates(connection, wants, AT_ONCE)
            places = JobPlaces(AT_ONCE)
            return list(program.store.claim(connection, self._owner, wants, found, places).runs)

    def _run(self, run: Claimed) -> None:
        program, kind = self._program, self._program.types[run.type]
        job = Job(run, kind, self._finish, program.operate.schedules.time_of)
        ended = asyncio.run(execute_async(kind, job)) if kind.is_async else execute(kind, job)
        with program.database.write() as connection:
            ended = checked_end(program.database, connection, job, ended)
            limits = program.instances.limits(connection)
            retries = {name: each.retries for name, each in limits.items()}
            program.store.finish(connection, self._owner, [ended], NAME, retries=retries)
        self.ended.append((run.type, ended.end))

    def _finish(
        self, run: Claimed, saved: int, result: Body | None, connection: sa.Connection
    ) -> bool:
        ended = Ended(run, RunEnd.DONE, saved, result)
        store = self._program.store
        return bool(store.finish(connection, self._owner, [ended], NAME, foreign=True))


@contextmanager
def jobs(program: Jobs, begin: datetime = BEGIN) -> Iterator[JobClock]:
    """A program's jobs in an empty database of the test's, on its clock, for a block.

        with roq.testing.jobs(shop.tasks.jobs) as clock:
            handle = resize.submit(Resize([]))
            clock.run()
            assert handle.status() is roq.JobStatus.COMPLETE
            clock.advance(86_400)                  # a day of schedules, retries and due times

    Args:
        program: its `Jobs`; no instance of it may run.
        begin: the time at the beginning, with a time zone.

    Raises:
        ConfigError: an instance runs.
        InvalidRequest: the time has no zone.
    """
    clock = JobClock(program, begin)
    with (
        TemporaryDirectory(prefix="roq-jobs-") as folder,
        program.elsewhere(str(Path(folder) / "jobs.db"), clock),
    ):
        sa.event.listen(program.database.engine, "connect", _not_synced)
        clock.begin()
        yield clock


def _not_synced(connection: Any, _record: object) -> None:
    """No power cut is survived by what a test has written, so nothing waits for a disk."""
    connection.execute("PRAGMA synchronous=OFF")
