"""What does not go on by itself, or does not go on yet, and why; each found by an index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import sqlalchemy as sa

from roq.jobs.database import JobDatabase
from roq.jobs.held import LEFT
from roq.jobs.rows import Look
from roq.jobs.schema import BLOCKS, ENDED_BADLY
from roq.jobs.views import COUNTED_MAX, JobStall

_BEHIND_FAILED: Final = (
    "SELECT type, count(DISTINCT id) AS number, min(parent) AS parent FROM"
    " (SELECT c.type, c.id, e.parent FROM"
    # The oldest ones: what waits for long is behind them.
    f" (SELECT id, status FROM job WHERE {BLOCKS} ORDER BY id LIMIT {COUNTED_MAX}) AS p"
    " JOIN job_edge AS e ON e.parent = p.id AND e.child <> :left JOIN job AS c ON c.id = e.child"
    f" WHERE p.{ENDED_BADLY} AND c.status = 'CREATED' AND c.held = 'parents'"
    f" LIMIT {COUNTED_MAX}) AS b GROUP BY type"
)
_OWNER_DEAD: Final = (
    "SELECT job.type, count(*) AS number, min(i.name) AS instance FROM job JOIN job_instance AS i"
    " ON i.id = job.owner WHERE job.status = 'RUNNING' AND (i.dead = 1 OR i.expires <= :now)"
    " GROUP BY job.type"
)


def job_stalls(
    database: JobDatabase,
    connection: sa.Connection,
    look: Look,
    waiting: Mapping[str, int],
    unfired: Iterable[tuple[str, str, str]],
) -> list[JobStall]:
    """What stands still, by type and reason.

    Args:
        database, connection: a transaction there.
        look: at the database, in it.
        waiting: type → how many jobs wait and might be claimed.
        unfired: (type, name, why) of schedules that do not fire.
    """
    run = {kind for peer in look.peers for kind in peer.types}
    found = []
    for kind, many in waiting.items():
        if not look.on or kind in look.off:
            which = "all jobs are" if not look.on else "the type is"
            found.append(_stall(kind, "off", many, f"{many:,} wait: {which} switched off"))
        elif kind not in run:
            why = f"{many:,} wait: no living instance runs them, start one (`roq jobs work`)"
            found.append(_stall(kind, "no_instance", many, why))
    for row in database.run(connection, _BEHIND_FAILED, left=LEFT):
        why = (
            f"{row.number:,} wait for jobs that did not complete, such as {row.parent}:"
            " restart those, or delete what waits"
        )
        found.append(_stall(row.type, "failed_parent", row.number, why))
    rescue = (
        "others take them over within seconds"
        if look.peers
        else "none lives to take them over, start one (`roq jobs work`)"
    )
    # Only then: what has run is in the way as long as the database cannot forget it.
    dead = database.run(connection, _OWNER_DEAD, now=look.now) if look.dead else ()
    for row in dead:
        why = f"{row.number:,} belong to instances that died, such as {row.instance}: {rescue}"
        found.append(_stall(row.type, "dead_owner", row.number, why))
    schedules: dict[str, list[str]] = {}
    for kind, name, why in unfired:
        schedules.setdefault(kind, []).append(f"schedule {name} does not fire: {why}")
    for kind, told in schedules.items():
        more = f" (and {len(told) - 1:,} more)" * (len(told) > 1)
        found.append(_stall(kind, "schedule", len(told), told[0] + more))
    return sorted(found, key=lambda each: (each.type, each.reason))


def _stall(kind: str, reason: str, number: int, why: str) -> JobStall:
    return JobStall(type=kind, reason=reason, number=number, why=why)
