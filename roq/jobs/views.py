"""What operators are shown of jobs, and how it is read."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from roq.errors import InvalidRequest
from roq.jobs.database import Row
from roq.jobs.limits import TypeLimits
from roq.jobs.schema import ERROR, INSTANCE, JOB
from roq.jobs.states import HeldFor, JobStatus
from roq.jobs.timetable import CatchUp, Overlap

BODY_BYTES: Final = 4096
"""So much of params and results is shown."""
NAMES_MAX: Final = 1_000
COUNTED_MAX: Final = 10_000
ID_MAX: Final = 2**63 - 1


class Action(StrEnum):
    """What an operator does to many jobs."""

    RESTART = "restart"
    REQUEUE = "requeue"
    DELETE = "delete"
    INTERRUPT = "interrupt"


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs are meant: those that have all of this. An empty field means any."""

    ids: tuple[int, ...] = ()
    types: tuple[str, ...] = ()
    statuses: tuple[JobStatus, ...] = ()
    priority: int | None = None
    tag: str | None = None
    key: str | None = None
    fingerprint: str | None = None
    """Of an error that one of its runs has ended with."""
    instance: int | None = None
    """The one that runs it."""
    created_after: int | None = None
    """µs since 1970, as all times here."""
    created_before: int | None = None


class JobCount(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one type, priority and status."""

    type: str
    priority: int
    status: JobStatus
    number: int
    items: int
    failures: int
    oldest: int | None
    """When the oldest was submitted; of those that are CREATED and not held."""
    known: bool
    """Whether any program has declared the type."""


class JobStall(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs or schedules of a type that do not go on as it is."""

    type: str
    reason: str
    """`off` or `no_instance`: jobs wait that nothing runs; `failed_parent`: … for one that did not
    complete; `dead_owner`: runs that were not yet taken over; `schedule`: one does not fire."""
    number: int
    why: str
    """For people: what to do."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list."""

    id: int
    type: str
    priority: int
    status: JobStatus
    held: HeldFor
    created: int
    due: int
    started: int | None
    ended: int | None
    token: int
    owner: int | None
    instance: str | None
    """Name of the owner."""
    failures: int
    timeouts: int
    losses: int
    restartable: bool
    items: int
    saved: int
    tag: str
    key: str | None
    unique: str | None
    stop: bool
    """It is being interrupted."""
    error: str | None


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs."""

    jobs: list[JobRow]
    below: int | None
    """Where the next page begins; None: there are no others. Fewer jobs than were asked for may
    come before it: those behind were not looked at yet."""


class BodyText(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of params or a result."""

    codec: str
    version: int
    bytes: int
    text: str
    cut: bool


class ErrorRow(msgspec.Struct, frozen=True, kw_only=True):
    """How one run has ended, if not well."""

    at: int
    token: int
    end: str
    """As `RunEnd` has it."""
    fingerprint: str
    text: str
    trace: str
    instance: str


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were submitted together, and the last one, which waits for them."""

    job: int
    """The last one."""
    name: str
    """Also the tag of its jobs."""
    type: str
    """Of the last one, as is what follows."""
    status: JobStatus
    created: int
    ended: int | None
    number: int
    """Jobs without the last one."""
    complete: int
    failed: int
    """Those that have ended otherwise: the last one waits until they are restarted."""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """All about one job."""

    job: JobRow
    why: str
    """Why it does not run; of one that is CREATED."""
    params: BodyText | None
    result: BodyText | None
    errors: list[ErrorRow]
    """The last ones, the newest first."""
    parents: list[int]
    """Jobs that it waits for, or has waited for."""
    children: list[int]
    batch: BatchRow | None
    """Of which it is the last one."""
    actions: list[Action]
    """What may be done to it."""


class FailureRow(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that have ended alike."""

    fingerprint: str
    text: str
    """Of the last one."""
    number: int
    """Up to `COUNTED_MAX`: what is more is not counted."""
    first: int
    last: int
    type: str
    """Of the last one."""
    job: int
    """The last one."""


class InstanceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A program that runs jobs."""

    id: int
    name: str
    pid: int
    threads: int
    running: int
    types: list[str]
    wants: list[str]
    """Types for which it lacks slots of the cluster."""
    slots: dict[str, int]
    """Of types with a limit in the whole cluster: those that it holds."""
    shares: dict[str, int]
    """How many are its fair share. What it holds beyond is lent by others, which do not want it."""
    started: int
    expires: int
    dead: bool
    """It has not said in time that it lives, whether or not another one has noticed."""


class TypeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A type that some program has declared."""

    name: str
    version: int
    restartable: bool
    limits: TypeLimits
    """What holds."""
    changes: dict[str, str]
    """What of it an operator has set; the rest is `declared`."""
    slots_used: int
    on: bool


class FiredRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a schedule."""

    time: int
    """At which it fired, or an operator fired it."""
    job: int
    status: JobStatus | None
    """None: the job is deleted."""


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule."""

    name: str
    type: str
    on: bool
    """Whether it is not paused."""
    times: str
    """When it fires: a cron expression, or `every 60 s`."""
    zone: str
    catch_up: CatchUp
    overlap: Overlap
    priority: int
    next: int | None
    """Its next time; of one that does not fire now, the first that it has missed."""
    why: str
    """Why it does not fire, and what to do; empty: it does."""
    by: str
    """Who declared it last."""
    at: int
    """When that was."""
    last: int | None
    """Its last time. It has no job if an earlier one was waiting or running."""
    jobs: list[FiredRow]
    """Its last jobs, the newest first."""


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody has done."""

    at: int
    who: str
    action: str
    subject: str
    number: int


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all instances."""

    on: bool
    dispatch: str
    schema: int


def rows() -> sa.Select[Any]:
    """What `job_row` needs."""
    return sa.select(JOB, INSTANCE.c.name.label("instance")).select_from(
        JOB.outerjoin(INSTANCE, INSTANCE.c.id == JOB.c.owner)
    )


def conditions(
    wanted: JobFilter, *, above: int = 0, top: int = ID_MAX
) -> list[sa.ColumnElement[bool]]:
    """A filter in SQL; every value is a parameter.

    Args:
        wanted: which jobs.
        above, top: only ids from there on, and up to that one.

    Raises:
        InvalidRequest: it names too much.
    """
    if max(len(wanted.ids), len(wanted.types)) > NAMES_MAX:
        raise InvalidRequest(f"a filter names {NAMES_MAX:,} jobs or types at most")
    found: list[sa.ColumnElement[bool]] = []
    if wanted.ids:
        found.append(JOB.c.id.in_(wanted.ids))
    if wanted.types:
        found.append(JOB.c.type.in_(wanted.types))
    if wanted.statuses:
        found.append(JOB.c.status.in_([each.value for each in wanted.statuses]))
    if wanted.fingerprint is not None:
        alike = sa.select(ERROR.c.job).where(ERROR.c.fingerprint == wanted.fingerprint)
        found.append(JOB.c.id.in_(alike.where(*_between(ERROR.c.job, above, top))))
    same = {
        JOB.c.priority: wanted.priority,
        JOB.c.tag: wanted.tag,
        JOB.c.key: wanted.key,
        JOB.c.owner: wanted.instance,
    }
    found += [column == value for column, value in same.items() if value is not None]
    if wanted.created_after is not None:
        found.append(JOB.c.created >= wanted.created_after)
    if wanted.created_before is not None:
        found.append(JOB.c.created < wanted.created_before)
    return found + _between(JOB.c.id, above, top)


def _between(column: sa.ColumnElement[int], above: int, top: int) -> list[sa.ColumnElement[bool]]:
    return ([column > above] if above > 0 else []) + ([column <= top] if top < ID_MAX else [])


def job_row(row: Row) -> JobRow:
    """A row of `rows` as a value."""
    return JobRow(
        id=row.id, type=row.type, priority=row.priority, status=JobStatus(row.status),
        held=HeldFor(row.held), created=row.created, due=abs(row.due), started=row.started,
        ended=row.ended, token=row.token, owner=row.owner, instance=row.instance,
        failures=row.failures, timeouts=row.timeouts, losses=row.losses,
        restartable=bool(row.restartable), items=row.items, saved=row.saved, tag=row.tag,
        key=row.key, unique=row.unique_key, stop=bool(row.stop), error=row.error,
    )  # fmt: skip


def body_text(connection: sa.Connection, table: sa.Table, job: int) -> BodyText | None:
    """The beginning of params or a result; None: there are none."""
    size = sa.func.length(table.c.body).label("size")
    begin = sa.func.substr(table.c.body, 1, BODY_BYTES).label("begin")
    row = connection.execute(
        sa.select(table.c.codec, table.c.version, size, begin).where(table.c.job == job)
    ).first()
    if row is None:
        return None
    text = bytes(row.begin).decode(errors="replace")
    return BodyText(
        codec=row.codec, version=row.version, bytes=row.size, text=text,
        cut=row.size > BODY_BYTES,
    )  # fmt: skip
