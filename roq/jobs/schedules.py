"""Schedules in SQL: declared by programs, fired by instances, paused by operators.

A schedule is a row; `next` is the first time that nothing was decided about. Any instance fires
any schedule, whether it runs the type or not: in one transaction it locks the row, writes the times
down (`job_fired`, one row for a schedule and a time), submits their jobs and moves `next` on. So a
time has one job, however many instances look at it, and whichever of them is killed in between.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from roq.errors import InvalidRequest, JobExists
from roq.jobs.database import MICROSECONDS, JobDatabase, Row
from roq.jobs.held import BLOCK
from roq.jobs.instances import JobInstances
from roq.jobs.rows import Body, Claimed, Look, NewJob
from roq.jobs.schema import SCHEDULE
from roq.jobs.states import PRIORITIES, JobStatus
from roq.jobs.store import JobStore
from roq.jobs.timetable import Overlap, SchedulePlan, decide, next_time
from roq.jobs.types import CODEC, ITEMS_MAX, PARAMS_BYTES_MAX, checked_text
from roq.jobs.views import FiredRow, ScheduleRow

log = logging.getLogger(__name__)

SCHEDULES_MAX: Final = 1_000
"""In one database."""
OPEN_MAX: Final = 1_000
"""So many jobs of one schedule wait or run; times beyond have none."""
FIRED_KEPT: Final = 1_000
"""So many times of each schedule are remembered, and all whose jobs wait or run."""
FIRED_SHOWN: Final = 5
AHEAD_MAX: Final = 86_400 * MICROSECONDS
"""So long a schedule waits for its next time, if the clock was set back by that."""
LATE: Final = 30 * MICROSECONDS
"""A schedule whose time was so long ago does not fire, though instances live."""
_VERSIONS: Final = range(2**31)
_OPEN: Final = "job.status IN ('CREATED', 'RUNNING')"


class Definition(msgspec.Struct, frozen=True):
    """What the column `definition` holds, as JSON.

    Attributes:
        plan: when it fires.
        by: who has declared it last: an instance, or an operator.
        at: when that was.
    """

    plan: SchedulePlan
    by: str = ""
    at: int = 0


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule to be written down."""

    name: str
    type: str
    plan: SchedulePlan
    restartable: bool
    params: Body | None = None

    @property
    def body(self) -> Body:
        """Params as the row has them: a codec stands there also without any."""
        return self.params or Body(CODEC, 1, b"")


class JobSchedules:
    """The SQL of schedules, and what operators see of them and do; `JobOperations.schedules`.

    Each call without a connection raises `Unavailable` if the database cannot be reached.
    """

    def __init__(self, store: JobStore, instances: JobInstances) -> None:
        self._store = store
        self._instances = instances
        self._database: JobDatabase = store.database
        self._unreadable: dict[str, str] = {}
        """Of schedules that cannot be fired here: what was last said of them."""

    # --- declare ----------------------------------------------------------------------------------

    def declare(
        self, connection: sa.Connection, schedules: Iterable[NewSchedule], by: str
    ) -> list[str]:
        """Write schedules down; gives the names of those that were something else before.

        What is there already stays as it is: its next time, and whether it is paused. The next time
        is a new one if it fires at other times from now on.

        Raises:
            InvalidRequest: there are too many.
        """
        now = self._database.now(connection)
        changed = []
        for each in sorted(schedules, key=lambda each: each.name):
            if self._insert(connection, each, by, now):
                continue
            row = self._row(connection, each.name)
            was = _definition(row)
            same = (
                was is not None
                and (was.plan, row.type, _body(row)) == (each.plan, each.type, each.body)
                and bool(row.restartable) is each.restartable
            )
            again = (
                was is None
                or not was.plan.same_times(each.plan)
                or not isinstance(row.next, int | None)
            )
            self._database.run(
                connection,
                "UPDATE job_schedule SET type = :type, definition = :definition, codec = :codec,"
                " version = :version, body = :body, restartable = :restartable, next = :next"
                " WHERE name = :name",
                **self._values(each, by, now),
                next=next_time(each.plan, now) if again else row.next,
            )
            if not same:
                changed.append(each.name)
                log.warning(
                    "schedule %s was declared otherwise by %s: it is now as %s says",
                    each.name, was.by if was is not None else "nobody", by,
                    extra={"event": "jobs_schedule"},
                )  # fmt: skip
                self._instances.note(connection, by, "schedule set", each.name)
        return changed

    def _insert(self, connection: sa.Connection, schedule: NewSchedule, by: str, now: int) -> bool:
        made = self._database.run(
            connection,
            "INSERT INTO job_schedule (name, type, definition, codec, version, body, restartable,"
            " next) VALUES (:name, :type, :definition, :codec, :version, :body, :restartable,"
            " :next) ON CONFLICT (name) DO NOTHING RETURNING name",
            **self._values(schedule, by, now),
            next=next_time(schedule.plan, now),
        ).first()
        if made is None:
            return False
        number = self._database.run(connection, "SELECT count(*) FROM job_schedule").scalar_one()
        if number > SCHEDULES_MAX:
            raise InvalidRequest(
                f"there are {SCHEDULES_MAX:,} schedules, and cannot be more: "
                "`roq jobs schedule delete` those that nobody needs"
            )
        return True

    def _values(self, schedule: NewSchedule, by: str, now: int) -> dict[str, Any]:
        return {
            "name": schedule.name, "type": schedule.type,
            "definition": msgspec.json.encode(Definition(schedule.plan, by, now)).decode(),
            **schedule.body._asdict(),
            "restartable": int(schedule.restartable),
        }  # fmt: skip

    def _row(self, connection: sa.Connection, name: str) -> Row:
        """A schedule, that nobody else changes until this transaction ends."""
        asked = sa.select(SCHEDULE).where(SCHEDULE.c.name == name).with_for_update()
        found = connection.execute(asked).first()
        if found is None:
            raise InvalidRequest(f"there is no schedule {name!r}: `roq jobs schedules`")
        return found

    # --- fire -------------------------------------------------------------------------------------

    def fire_due(self, connection: sa.Connection) -> int:
        """Fire what is due; gives how many times were decided about.

        What another instance fires just now is left to it. A schedule that cannot be read, or whose
        zone is not known on this host, is told in the log and left to others.
        """
        locked = "" if self._database.sqlite else " FOR UPDATE OF s SKIP LOCKED"
        found = self._database.run(
            connection,
            "SELECT s.* FROM job_schedule AS s JOIN job_type AS t ON t.name = s.type"
            " WHERE s.enabled = 1 AND t.enabled = 1 AND s.next <= :now"
            f" ORDER BY s.next, s.name LIMIT {SCHEDULES_MAX}{locked}",
            now=self._database.now(connection),
        ).all()
        now = self._database.now(connection)
        rows: dict[str, Row] = {}
        plans: dict[str, SchedulePlan] = {}
        times: list[tuple[int, str]] = []
        moved: list[list[object]] = []
        for row in found:
            try:
                plan = _plan(row)
                decision = decide(plan, row.next, now)
            except InvalidRequest as error:
                self._tell(row.name, str(error))
                continue
            if times and len(times) + len(decision.fire) > BLOCK:
                break  # the rest next time: nobody waits for a long transaction
            rows[row.name], plans[row.name] = row, plan
            times += [(time, row.name) for time in decision.fire]
            moved.append([row.name, decision.due])
        if moved:
            self._database.run(
                connection,
                "UPDATE job_schedule SET next = d.next FROM "
                + self._database.given(("name", "text"), ("next", "bigint"))
                + " AS d WHERE job_schedule.name = d.name",
                moved,
            )
            self._fire(connection, rows, plans, self._new(connection, sorted(times)))
        return len(times)

    def _new(
        self, connection: sa.Connection, times: Sequence[tuple[int, str]]
    ) -> list[tuple[int, str]]:
        """Write times down; gives those that were not."""
        if not times:
            return []
        new = self._database.run(
            connection,
            "INSERT INTO job_fired (schedule, time) SELECT schedule, time FROM "
            + self._database.given(("time", "bigint"), ("schedule", "text"))
            + " AS d WHERE true ON CONFLICT (schedule, time) DO NOTHING RETURNING time, schedule",
            [list(each) for each in times],
        )
        return sorted((row.time, row.schedule) for row in new)

    def _fire(
        self,
        connection: sa.Connection,
        rows: dict[str, Row],
        plans: dict[str, SchedulePlan],
        times: Sequence[tuple[int, str]],
    ) -> None:
        """Submit the jobs of times; all at once, so that locks are taken in one order."""
        room = self._room(connection, {name for _, name in times})
        wanted: list[tuple[int, str]] = []
        for time, name in times:
            if room[name] > 0:
                room[name] -= 1
                wanted.append((time, name))
            else:
                self._tell(name, f"{OPEN_MAX:,} of its jobs wait or run: {name} fires without one")
        if not wanted:
            return
        told = self._store.submit(
            connection, [_job(rows[name], plans[name], time) for time, name in wanted]
        )
        self._link(
            connection,
            [
                [name, time, each.id]
                for (time, name), each in zip(wanted, told, strict=True)
                if each.outcome == "new"
            ],
        )

    def _link(self, connection: sa.Connection, rows: Sequence[Sequence[object]]) -> None:
        if rows:
            self._database.run(
                connection,
                "UPDATE job_fired SET job = d.job FROM "
                + self._database.given(("schedule", "text"), ("time", "bigint"), ("job", "bigint"))
                + " AS d WHERE job_fired.schedule = d.schedule AND job_fired.time = d.time",
                rows,
            )

    def _room(self, connection: sa.Connection, names: set[str]) -> dict[str, int]:
        """How many more jobs each may have that wait or run."""
        room = dict.fromkeys(names, OPEN_MAX)
        if names:
            for row in self._database.run(
                connection,
                "SELECT f.schedule AS name, count(*) AS number FROM job_fired AS f JOIN job"
                f" ON job.id = f.job WHERE {_OPEN} AND f.schedule IN (SELECT name FROM"
                f" {self._database.given(('name', 'text'))} AS d) GROUP BY f.schedule",
                [[name] for name in sorted(names)],
            ):
                room[row.name] -= row.number
        return room

    def _tell(self, name: str, text: str) -> None:
        """Say it in the log, once."""
        if self._unreadable.get(name) != text:
            if len(self._unreadable) >= SCHEDULES_MAX:
                self._unreadable.clear()
            self._unreadable[name] = text
            log.warning("schedule %s: %s", name, text, extra={"event": "jobs_schedule"})

    def time_of(self, run: Claimed) -> int | None:
        """The time that a job was submitted for; None: no schedule did, or it is forgotten."""
        with self._database.read() as connection:
            time: int | None = self._database.run(
                connection,
                "SELECT time FROM job_fired WHERE schedule = :name AND job = :job",
                name=run.tag,
                job=run.id,
            ).scalar()
        return time

    def tidy(self, connection: sa.Connection) -> int:
        """Forget a block of old times; gives how many. Schedules whose next time is that of a clock
        which was far ahead begin anew."""
        self._database.lock(connection, ["roq.jobs.fired"])
        self._correct(connection)
        gone = self._database.run(
            connection,
            f"DELETE FROM job_fired WHERE (schedule, time) IN ({_first_of()} SELECT f.schedule,"
            f" f.time FROM {_LAST} AND f.time < s.first AND NOT EXISTS (SELECT 1 FROM job"
            f" WHERE job.id = f.job AND {_OPEN}) LIMIT :block)",
            most=FIRED_KEPT,
            block=10 * BLOCK,
        )
        return gone.rowcount

    def _correct(self, connection: sa.Connection) -> None:
        """Have schedules wait no longer than a day for what the clock has once said."""
        now = self._database.now(connection)
        skipped = "" if self._database.sqlite else " FOR UPDATE SKIP LOCKED"
        for row in self._database.run(
            connection,
            f"SELECT * FROM job_schedule WHERE next > :late ORDER BY name{skipped}",
            late=now + AHEAD_MAX,
        ).all():
            try:
                expected = next_time(_plan(row), now)
            except InvalidRequest:
                continue  # `fire_due` says so
            if expected is None or row.next <= expected + AHEAD_MAX:
                continue
            self._tell(row.name, "the database's clock was far ahead: its next time is a new one")
            self._database.run(
                connection,
                "UPDATE job_schedule SET next = :next WHERE name = :name",
                next=expected,
                name=row.name,
            )

    # --- operate ----------------------------------------------------------------------------------

    def look(self) -> list[ScheduleRow]:
        """All schedules, by name, with their next time and the last ones."""
        with self._database.read() as connection:
            look = self._instances.look(connection, 0, whole=False)
            jobs: dict[str, list[FiredRow]] = {}
            for row in self._database.run(
                connection,
                f"{_first_of('AND l.job IS NOT NULL')} SELECT f.schedule, f.time, f.job, (SELECT"
                f" status FROM job WHERE job.id = f.job) AS status FROM {_LAST}"
                " AND f.time >= s.first AND f.job IS NOT NULL ORDER BY f.schedule, f.time DESC",
                most=FIRED_SHOWN,
            ):
                status = None if row.status is None else JobStatus(row.status)
                jobs.setdefault(row.schedule, []).append(
                    FiredRow(time=row.time, job=row.job, status=status)
                )
            last = {
                row.name: row.last
                for row in self._database.run(
                    connection,
                    "SELECT name, (SELECT max(time) FROM job_fired WHERE schedule = name) AS last"
                    " FROM job_schedule",
                )
            }
            found = connection.execute(sa.select(SCHEDULE).order_by(SCHEDULE.c.name)).all()
        return [_shown(row, last.get(row.name), jobs.get(row.name, []), look) for row in found]

    def unfired(self, connection: sa.Connection, look: Look) -> list[tuple[str, str, str]]:
        """Type, name and why of schedules that are on, have a next time, and do not fire."""
        asked = sa.select(SCHEDULE).where(SCHEDULE.c.enabled == 1, SCHEDULE.c.next.is_not(None))
        found = connection.execute(asked.order_by(SCHEDULE.c.name)).all()
        return [(str(row.type), row.name, why) for row in found if (why := _why(row, look))]

    def put(
        self, name: str, type: str, plan: SchedulePlan, params: bytes | None, *, who: str
    ) -> None:
        """Make a schedule, or change it.

        Args:
            name: of the schedule.
            type: of its jobs; some program has declared it.
            plan: when it fires.
            params: of its jobs, as JSON; None: they have none.
            who: for the audit.

        Raises:
            InvalidRequest: a value that cannot be, or a type that nobody has declared.
        """
        checked_text("the name of a schedule", name)
        if params is not None:
            _check_json(params)
        with self._database.write() as connection:
            kind = self._database.run(
                connection,
                "SELECT version, restartable FROM job_type WHERE name = :type",
                type=type,
            ).first()
            if kind is None:
                raise InvalidRequest(f"no program has declared type {type!r}: `roq jobs types`")
            new = NewSchedule(
                name, type, plan, bool(kind.restartable),
                None if params is None else Body(CODEC, kind.version, params),
            )  # fmt: skip
            if name not in self.declare(connection, [new], who):
                self._instances.note(connection, who, "schedule set", name)

    def switch(self, name: str, on: bool, *, who: str) -> None:
        """Pause a schedule, or let it go on; what it has missed is caught up with as it says.

        Raises:
            InvalidRequest: there is none of this name.
        """
        with self._database.write() as connection:
            self._row(connection, name)
            self._database.run(
                connection,
                "UPDATE job_schedule SET enabled = :on WHERE name = :name",
                name=name,
                on=int(on),
            )
            word = "resume" if on else "pause"
            self._instances.note(connection, who, f"schedule {word}", name)
            self._database.notify(connection)

    def delete(self, name: str, *, who: str) -> None:
        """Delete a schedule; its jobs stay. A program that declares it makes it again.

        Raises:
            InvalidRequest: there is none of this name.
        """
        with self._database.write() as connection:
            self._row(connection, name)
            for table, column in (("job_schedule", "name"), ("job_fired", "schedule")):
                self._database.run(
                    connection, f"DELETE FROM {table} WHERE {column} = :name", name=name
                )
            self._instances.note(connection, who, "schedule delete", name)

    def fire(self, name: str, *, who: str) -> int:
        """Submit a job of a schedule now, beside its times; gives its id. A paused one does, too.

        Raises:
            InvalidRequest: there is none of this name, or it cannot be read.
            JobExists: it is one of those that skip, and a job of it waits or runs.
        """
        with self._database.write() as connection:
            row = self._row(connection, name)
            plan = _plan(row)
            now = self._database.now(connection)
            last = self._database.run(
                connection,
                "SELECT max(time) FROM job_fired WHERE schedule = :name AND time >= :now"
                " AND time < :now + 1000",
                name=name,
                now=now,
            ).scalar()
            time = now if last is None else last + 1
            self._new(connection, [(time, name)])
            (told,) = self._store.submit(connection, [_job(row, plan, now)])
            if told.outcome != "new":
                raise JobExists(
                    f"job {told.id} of schedule {name} waits or runs, and it has one at a time",
                    told.id,
                )
            self._link(connection, [[name, time, told.id]])
            self._instances.note(connection, who, "schedule fire", name, 1)
        return told.id


_LAST: Final = "s CROSS JOIN job_fired AS f WHERE f.schedule = s.name"
"""From each schedule to its times, by their index; so written that SQLite goes this way."""


def _first_of(which: str = "") -> str:
    """SQL of `s`: the first of the last times of each schedule; the index leads there."""
    return (
        "WITH s AS MATERIALIZED (SELECT each.name, coalesce((SELECT l.time FROM job_fired AS l"
        f" WHERE l.schedule = each.name {which} ORDER BY l.time DESC LIMIT 1 OFFSET :most - 1), 0)"
        " AS first FROM job_schedule AS each)"
    )


def _job(row: Row, plan: SchedulePlan, due: int) -> NewJob:
    """The job of a time, which has come."""
    mark = f"schedule {row.name}"
    return NewJob(
        type=row.type, priority=plan.priority, restartable=bool(row.restartable),
        items=plan.items, tag=row.name, due=due,
        unique=mark if plan.overlap is Overlap.SKIP else None, on_unique="skip",
        key=mark if plan.overlap is Overlap.QUEUE else None,
        params=_body(row) if row.body else None,
    )  # fmt: skip


def _definition(row: Row) -> Definition | None:
    try:
        return msgspec.json.decode(row.definition, type=Definition)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _plan(row: Row) -> SchedulePlan:
    """Of a row that is as this program writes them, whoever has edited it: what any part of RoQ
    does with it or its jobs works, or is their own error."""
    found = _definition(row)
    well = (
        found is not None
        and found.plan.priority in PRIORITIES.values()
        and 0 <= found.plan.items < ITEMS_MAX
        # A column of SQLite holds anything.
        and isinstance(row.name, str)
        and isinstance(row.next, int | None)
        and isinstance(row.version, int)
        and row.version in _VERSIONS
        and isinstance(row.body, bytes | None)
    )
    if found is None or not well:
        raise InvalidRequest("its row cannot be read: `roq jobs schedule set` it anew")
    return found.plan


def _body(row: Row) -> Body:
    """What its jobs have; of what cannot be that, as if they had nothing."""
    return Body(row.codec, row.version, row.body if isinstance(row.body, bytes) else b"")


def _check_json(params: bytes) -> None:
    try:
        msgspec.json.decode(params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"params are no JSON: {error}") from None
    if len(params) > PARAMS_BYTES_MAX:
        raise InvalidRequest(f"params have {len(params):,} bytes, of {PARAMS_BYTES_MAX:,}")


def _shown(row: Row, last: int | None, jobs: list[FiredRow], look: Look) -> ScheduleRow:
    definition = _definition(row)
    plan = SchedulePlan() if definition is None else definition.plan
    return ScheduleRow(
        name=row.name, type=row.type, on=bool(row.enabled), times=plan.times, zone=plan.zone,
        catch_up=plan.catch_up, overlap=plan.overlap, priority=plan.priority,
        next=row.next if isinstance(row.next, int) else None,
        why=_why(row, look),
        by="" if definition is None else definition.by,
        at=0 if definition is None else definition.at, last=last, jobs=jobs,
    )  # fmt: skip


def _why(row: Row, look: Look) -> str:  # noqa: PLR0911 - a line for each reason
    """Why a schedule does not fire, and what to do; empty: it does."""
    if not row.enabled:
        return f"it is paused: `roq jobs schedule resume {row.name}`"
    try:
        next_time(_plan(row), look.now)
    except InvalidRequest as error:
        return str(error)
    if not look.on:
        return "all jobs are switched off: `roq jobs on`"
    if row.type in look.off:
        return f"type {row.type} is switched off: `roq jobs on {row.type}`"
    if row.type not in look.limits:
        return f"no program has declared type {row.type}: start one that has"
    if row.next is None:
        return "its last time is over"
    if not look.peers:
        return "no instance lives: start one with `roq jobs work`"
    if row.next < look.now - LATE:
        return "it is late, and instances live: their logs say why"
    return ""
