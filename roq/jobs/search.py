"""How jobs are found among millions: by an index or by counters where there is one, and otherwise a
stretch of them at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from roq.jobs.schema import BLOCKS, COUNT, EDGE, ENDED_BADLY, JOB
from roq.jobs.states import JobStatus
from roq.jobs.views import ID_MAX, JobFilter, conditions

Condition = sa.ColumnExpressionArgument[bool]
BADLY: Final = frozenset({JobStatus.FAILED, JobStatus.INTERRUPTED, JobStatus.TIMED_OUT})
REACH: Final = 200_000
"""Jobs that are looked at for one page of a list."""
STRETCH: Final = 20_000
"""Jobs that are looked at for one block."""
CELLS_MAX: Final = 32
"""Of so many types, priorities and statuses jobs are found one after the other."""


class FoundIds(NamedTuple):
    """Jobs of a page, the newest first."""

    ids: list[int]
    below: int | None
    """Where the next page begins; None: there are no others."""


def newest(
    connection: sa.Connection, wanted: JobFilter, *, below: int | None, most: int, reach: int | None
) -> FoundIds:
    """The newest jobs that fit.

    Args:
        connection: a transaction.
        wanted: which.
        below: only ids below that one.
        most: jobs.
        reach: so many jobs are looked at if there is no index; None: all.
    """
    top = ID_MAX if below is None else min(below - 1, ID_MAX)
    cells = _cells(connection, wanted)
    there = sum(cell.number for cell in cells)
    if not there or top < 1:
        return FoundIds([], None)
    low: int | None = 0
    badly = wanted.statuses and BADLY.issuperset(wanted.statuses)
    if badly and _by_cells(wanted) and len(cells) <= CELLS_MAX:
        return _ended_badly(connection, cells, top, most)
    hints = list[sa.TextClause]()
    if _has_index(wanted):
        hints = _hints(wanted)
    elif reach is not None:
        older = sa.select(JOB.c.id).where(JOB.c.id <= top).order_by(JOB.c.id.desc())
        low = connection.scalar(older.offset(reach).limit(1))
    enough = min(most, there) if _by_cells(wanted) else most
    asked = (
        sa.select(JOB.c.id)
        .where(*conditions(wanted, above=low or 0, top=top), *hints)
        .order_by(_order(wanted).desc())
        .limit(enough)
    )
    ids = list(connection.scalars(asked))
    if len(ids) == most:
        return FoundIds(ids, ids[-1])
    return FoundIds(ids, low + 1 if low and len(ids) < enough else None)


def block(
    connection: sa.Connection,
    wanted: JobFilter,
    also: Iterable[Condition],
    *,
    above: int,
    last: int,
    most: int,
) -> tuple[list[int], int]:
    """The oldest jobs that fit, and the id above which to go on.

    Without an index so few jobs are looked at that nobody waits for long; then there may be none.

    Args:
        connection: a transaction.
        wanted: which; with a status.
        also: conditions beside the filter.
        above, last: only ids from there on, and up to that one.
        most: jobs.
    """
    top, hints = last, list[sa.TextClause]()
    if _has_index(wanted):
        hints = _hints(wanted)
    else:
        newer = sa.select(JOB.c.id).where(JOB.c.id > above).order_by(JOB.c.id)
        top = min(last, connection.scalar(newer.offset(STRETCH).limit(1)) or last)
    fits = conditions(wanted, above=above, top=top)
    asked = sa.select(JOB.c.id).where(*fits, *hints, *also).order_by(_order(wanted)).limit(most)
    ids = list(connection.scalars(asked))
    return ids, ids[-1] if len(ids) == most else top


def number(connection: sa.Connection, wanted: JobFilter, *also: Condition) -> int:
    """How many jobs fit.

    Args:
        connection: a transaction.
        wanted: which.
        also: conditions beside the filter.
    """
    if not also and _by_cells(wanted):
        return sum(cell.number for cell in _cells(connection, wanted))
    asked = sa.select(sa.func.count()).select_from(JOB)
    hints = _hints(wanted) if _has_index(wanted) or not also else []
    found = connection.scalar(asked.where(*conditions(wanted), *hints, *also))
    return int(found or 0)


def awaited() -> sa.ColumnElement[bool]:
    """Of jobs that others wait for."""
    child = JOB.alias("child")
    waiting = (
        sa.select(EDGE.c.child)
        .join(child, child.c.id == EDGE.c.child)
        .where(EDGE.c.parent == JOB.c.id, child.c.status == JobStatus.CREATED)
    )
    return sa.and_(sa.text(BLOCKS), waiting.exists())


def _cells(connection: sa.Connection, wanted: JobFilter) -> list[Any]:
    """The counters of what a filter says of types, priorities and statuses."""
    found = sa.func.sum(COUNT.c.number).label("number")
    cells = (COUNT.c.type, COUNT.c.priority, COUNT.c.status)
    asked = sa.select(*cells, found).group_by(*cells).having(found != 0).order_by(*cells)
    if wanted.types:
        asked = asked.where(COUNT.c.type.in_(wanted.types))
    if wanted.statuses:
        asked = asked.where(COUNT.c.status.in_([each.value for each in wanted.statuses]))
    if wanted.priority is not None:
        asked = asked.where(COUNT.c.priority == wanted.priority)
    return list(connection.execute(asked))


def _by_cells(wanted: JobFilter) -> bool:
    """Whether a filter says nothing but that."""
    rest = JobFilter(types=wanted.types, statuses=wanted.statuses, priority=wanted.priority)
    return wanted == rest


def _ended_badly(connection: sa.Connection, cells: list[Any], top: int, most: int) -> FoundIds:
    """The newest of each cell, one after the other, and the newest of those."""
    ids: list[int] = []
    for cell in cells:
        asked = (
            sa.select(JOB.c.id)
            .where(JOB.c.type == cell.type, JOB.c.status == cell.status)
            .where(JOB.c.priority == cell.priority, JOB.c.id <= top, sa.text(ENDED_BADLY))
            .order_by(JOB.c.id.desc())
            .limit(most)
        )
        ids += connection.scalars(asked)
    ids = sorted(ids, reverse=True)[:most]
    return FoundIds(ids, ids[-1] if len(ids) == most else None)


def _has_index(wanted: JobFilter) -> bool:
    """Whether the newest that fit are found without a look at the others."""
    return bool(wanted.ids or wanted.tag or wanted.key or _runs(wanted) or wanted == JobFilter())


def _runs(wanted: JobFilter) -> bool:
    """Whether only those fit that run, which are few."""
    return wanted.instance is not None or wanted.statuses == (JobStatus.RUNNING,)


def _order(wanted: JobFilter) -> sa.ColumnElement[int]:
    """Ids; so written that SQLite sorts those that run, and does not go through all for them."""
    return JOB.c.id + 0 if _runs(wanted) else JOB.c.id


def _hints(wanted: JobFilter) -> list[sa.TextClause]:
    """What follows from a filter, in the very words of the partial indexes: no database sees it
    of parameters."""
    if wanted.tag:
        return [sa.text("job.tag <> ''")]
    if wanted.key or wanted.ids:
        return []
    if _runs(wanted):
        return [sa.text("job.status = 'RUNNING'")]
    badly = wanted.statuses and BADLY.issuperset(wanted.statuses)
    return [sa.text(ENDED_BADLY)] if badly else []
