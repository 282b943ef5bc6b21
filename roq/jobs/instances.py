"""Instances, types and settings in SQL: who runs jobs, which, and how many at once.

An instance is one start of a program that runs jobs. It renews itself, not its jobs; if it does
not, others take it for dead and end its runs (`JobStore.reap`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import sqlalchemy as sa
from msgspec import UNSET

from roq.errors import ConfigError
from roq.jobs.database import MICROSECONDS, JobDatabase, Row, host_identity
from roq.jobs.held import BLOCK, LEFT
from roq.jobs.limits import (
    TypeLimits,
    changed,
    in_force,
    read_changes,
    read_limits,
    written,
)
from roq.jobs.rows import Claimed, Deltas, Ended, LivingInstance, Look, Trouble, spread
from roq.jobs.schema import AUDIT
from roq.jobs.slots import JobSlots
from roq.jobs.states import RETRY_SECONDS_MAX, JobStatus, RunEnd
from roq.jobs.store import CLAIMED, OWN_SHARD_MIN, JobStore, claimed_of

RENEW_SECONDS: Final = 3.0
EXPIRE_SECONDS: Final = 15.0
"""An instance that was not renewed for so long is dead."""
DOUBT_SECONDS: Final = 10.0
"""An instance that could not renew itself for so long claims nothing and interrupts its jobs, well
before others take it for dead."""
RESULT_SECONDS: Final = 24 * 3600.0
"""So long is a job kept after it is COMPLETE."""
TIDY_MAX: Final = 500
"""Old jobs that one call of `tidy` deletes."""
AUDIT_KEPT: Final = 10_000
"""So many actions are kept in the audit, the last ones."""
LATE_SECONDS: Final = 120.0
MECHANISMS: Final = ("database", "queue")
_BELONGING: Final = (
    ("job_params", "job"),
    ("job_result", "job"),
    ("job_error", "job"),
    ("job_edge", "parent"),
    ("job_edge", "child"),
    ("job_batch", "job"),
)


class TypeFacts(msgspec.Struct, frozen=True):
    """What the database knows of a type, as the program that runs it says."""

    name: str
    version: int
    restartable: bool
    limits: TypeLimits


class JobInstances:
    """The SQL of instances and types.

    Args:
        store: of the same database.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._database: JobDatabase = store.database
        self._deleted_to = 0
        self._clock = deque([1 << 62], maxlen=3)
        """What time it was at the last calls of `tidy`, the database says."""

    def register(
        self, connection: sa.Connection, name: str, pid: int, threads: int, types: Sequence[str]
    ) -> int:
        """Enter an instance; gives its id, which no other one has had.

        Raises:
            ConfigError: the database is SQLite, and used by another host now.
        """
        now, host = self._database.now(connection), host_identity()
        if self._database.sqlite:
            other = self._database.run(
                connection,
                "SELECT name FROM job_instance WHERE dead = 0 AND expires > :now AND host <> :host",
                now=now,
                host=host,
            ).first()
            if other is not None:
                raise ConfigError(
                    f"{self._database.name} is used by {other.name} on another host: SQLite is for "
                    "one host, put the jobs into PostgreSQL"
                )
        row = self._database.run(
            connection,
            "INSERT INTO job_instance (name, host, pid, threads, types, started, expires)"
            " VALUES (:name, :host, :pid, :threads, :types, :now, :expires) RETURNING id",
            name=name,
            host=host,
            pid=pid,
            threads=threads,
            types=_listed(types),
            now=now,
            expires=now + int(EXPIRE_SECONDS * MICROSECONDS),
        ).one()
        return int(row.id)

    def renew(self, connection: sa.Connection, owner: int, wants: Iterable[str] = ()) -> bool:
        """Say that an instance lives; False: it was taken for dead, and is to stop its runs."""
        now = self._database.now(connection)
        return (
            self._database.run(
                connection,
                "UPDATE job_instance SET expires = :expires, wants = :wants"
                " WHERE id = :owner AND dead = 0 RETURNING id",
                owner=owner,
                wants=_listed(sorted(wants)),
                expires=now + int(EXPIRE_SECONDS * MICROSECONDS),
            ).first()
            is not None
        )

    def leave(self, connection: sa.Connection, owner: int) -> None:
        """An instance ends; runs that it leaves behind are ended when it would have expired."""
        self._database.run(
            connection,
            "DELETE FROM job_instance WHERE id = :owner AND NOT EXISTS (SELECT 1 FROM job"
            " WHERE job.status = 'RUNNING' AND job.owner = :owner)",
            owner=owner,
        )
        self._database.run(
            connection,
            "UPDATE job_slot SET owner = NULL WHERE owner = :owner AND NOT EXISTS (SELECT 1 FROM"
            " job_instance AS i WHERE i.id = :owner)",
            owner=owner,
        )

    def declare(self, connection: sa.Connection, types: Iterable[TypeFacts]) -> None:
        """Write down the types of a program, and make as many slots as each may use."""
        for facts in sorted(types, key=lambda each: each.name):
            self._database.run(
                connection,
                "INSERT INTO job_type (name, version, restartable, limits)"
                " VALUES (:name, :version, :restartable, :limits)"
                " ON CONFLICT (name) DO UPDATE SET version = excluded.version,"
                " restartable = excluded.restartable, limits = excluded.limits",
                name=facts.name,
                version=facts.version,
                restartable=int(facts.restartable),
                limits=written(facts.limits),
            )
            self._make_slots(connection, facts.name)

    def set_limits(self, connection: sa.Connection, name: str, given: Mapping[str, str]) -> bool:
        """Change limits of a type, see `roq.jobs.limits.changed`; False: there is no such type.

        Raises:
            InvalidRequest: a limit that cannot be.
        """
        row = self._database.run(
            connection,
            f"SELECT changes FROM job_type WHERE name = :name{self._database.for_change}",
            name=name,
        ).first()
        if row is None:
            return False
        changes = changed(read_changes(row.changes), given)
        self._database.run(
            connection,
            "UPDATE job_type SET changes = :changes, priority = :priority WHERE name = :name",
            name=name,
            changes=written(changes),
            priority=None if changes.priority is UNSET else changes.priority,
        )
        self._make_slots(connection, name)
        return True

    def limits(self, connection: sa.Connection) -> dict[str, TypeLimits]:
        """What holds for each type."""
        rows = self._database.run(connection, "SELECT name, limits, changes FROM job_type")
        return {row.name: limits_of(row) for row in rows}

    def _make_slots(self, connection: sa.Connection, name: str) -> None:
        row = self._database.run(
            connection, "SELECT limits, changes FROM job_type WHERE name = :name", name=name
        ).one()
        JobSlots(self._database).make(connection, name, limits_of(row).cluster_limit or 0)

    def look(self, connection: sa.Connection, owner: int, *, whole: bool = True) -> Look:
        """What an instance has to know several times a second.

        Args:
            connection: a transaction.
            owner: the instance.
            whole: whether runs are seen that are late since more than `LATE_SECONDS`.
        """
        run, now = self._database.run, self._database.now(connection)
        settings = {
            row.name: row.value for row in run(connection, "SELECT name, value FROM job_setting")
        }
        types = run(
            connection, "SELECT name, limits, changes, enabled, rate_next FROM job_type"
        ).all()
        stop = run(
            connection,
            "SELECT id, token FROM job WHERE status = 'RUNNING' AND owner = :owner AND stop = 1",
            owner=owner,
        )
        peers = run(
            connection,
            "SELECT id, types, wants FROM job_instance WHERE dead = 0 AND expires > :now",
            now=now,
        )
        checks = run(
            connection,
            "SELECT (SELECT min(due) FROM job WHERE status = 'CREATED' AND held = 'later') AS due,"
            " (SELECT min(deadline) FROM job WHERE status = 'RUNNING' AND deadline > :since"
            " AND deadline <= :now) AS deadline,"
            " (SELECT min(CASE WHEN dead = 1 THEN 0 ELSE expires END) FROM job_instance)"
            " AS expires,"
            " (SELECT min(parent) FROM job_edge WHERE child = :left) AS finished,"
            " EXISTS (SELECT 1 FROM job_schedule AS s JOIN job_type AS t ON t.name = s.type"
            " WHERE s.enabled = 1 AND t.enabled = 1 AND s.next <= :now) AS fires",
            left=LEFT,
            now=now,
            since=0 if whole else now - int(LATE_SECONDS * MICROSECONDS),
        ).one()
        return Look(
            now=now,
            on=settings.get("on", "1") == "1",
            dispatch=settings.get("dispatch", MECHANISMS[0]),
            off=frozenset(row.name for row in types if not row.enabled),
            limits={row.name: limits_of(row) for row in types},
            rested={row.name: row.rate_next for row in types},
            interrupt=frozenset((row.id, row.token) for row in stop),
            due=checks.finished is not None or (checks.due is not None and checks.due <= now),
            dead=checks.expires is not None and checks.expires <= now,
            late=checks.deadline is not None,
            fires=bool(checks.fires),
            peers=tuple(
                LivingInstance(row.id, tuple(_list_of(row.types)), tuple(_list_of(row.wants)))
                for row in peers
            ),
        )

    def save(
        self, connection: sa.Connection, owner: int, places: Sequence[tuple[Claimed, int]]
    ) -> None:
        """Write down how far runs are."""
        if places:
            self._database.run(
                connection,
                "UPDATE job SET saved = d.saved FROM "
                + self._database.given(("id", "bigint"), ("token", "bigint"), ("saved", "bigint"))
                + " AS d WHERE job.id = d.id AND job.token = d.token AND job.owner = :owner"
                " AND job.status = 'RUNNING'",
                [[run.id, run.token, saved] for run, saved in places],
                owner=owner,
            )

    def give_back(
        self, connection: sa.Connection, owner: int, known: Collection[tuple[int, int]]
    ) -> int:
        """End runs that an instance has claimed without having heard of it; gives how many.

        Args:
            connection: the transaction.
            owner: the instance.
            known: (id, token) of the runs that it knows.
        """
        rows = self._database.run(
            connection,
            f"SELECT {CLAIMED} FROM job WHERE status = 'RUNNING' AND owner = :owner",
            owner=owner,
        ).all()
        unknown = [
            Ended(claimed_of(row), RunEnd.UNSTARTED, row.saved)
            for row in rows
            if (row.id, row.token) not in known
        ]
        self._store.finish(connection, owner, unknown)
        return len(unknown)

    # --- the dead ---------------------------------------------------------------------------------

    def reap(self, connection: sa.Connection) -> int:
        """Take instances that did not renew for dead, and end their runs; gives how many runs."""
        self._database.run(
            connection,
            "UPDATE job_instance SET dead = 1 WHERE id IN (SELECT id FROM job_instance"
            f" WHERE dead = 0 AND expires <= :now{self._database.skip_locked})",
            now=self._database.now(connection),
        )
        rows = self._database.run(
            connection,
            f"SELECT {CLAIMED}, job.owner, i.name AS instance FROM job JOIN job_instance AS i"
            " ON i.id = job.owner WHERE job.status = 'RUNNING' AND i.dead = 1"
            f" LIMIT {BLOCK}"
            + ("" if self._database.sqlite else " FOR NO KEY UPDATE OF job SKIP LOCKED"),
        ).all()
        for owner in sorted({row.owner for row in rows}):
            theirs = [row for row in rows if row.owner == owner]
            name = theirs[0].instance
            trouble = Trouble(f"its owner {name} died", fingerprint="owner died")
            lost = [
                Ended(claimed_of(row), RunEnd.LOST, row.saved, trouble=trouble) for row in theirs
            ]
            self._store.finish(connection, owner, lost, name)
        self._database.run(
            connection,
            "UPDATE job_slot SET owner = NULL WHERE owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM"
            " job_instance AS i WHERE i.id = job_slot.owner AND i.dead = 0)",
        )
        self._database.run(
            connection,
            "DELETE FROM job_instance WHERE dead = 1 AND NOT EXISTS (SELECT 1 FROM job WHERE"
            " job.status = 'RUNNING' AND job.owner = job_instance.id)",
        )
        return len(rows)

    def end_late(self, connection: sa.Connection) -> int:
        """End runs that their owner did not end in twice their time; gives how many.

        Their thread goes on, and may report what it likes: another token is valid now. If an
        operator has raised the limit meanwhile, they have twice that time.
        """
        now = self._database.now(connection)
        rows = self._database.run(
            connection,
            f"SELECT {CLAIMED}, job.owner, job.started FROM job WHERE status = 'RUNNING'"
            f" AND deadline <= :now ORDER BY deadline LIMIT {BLOCK}{self._database.skip_locked}",
            now=now,
        ).all()
        trouble = Trouble("it did not stop at its time limit", fingerprint="did not stop")
        limits = self.limits(connection)
        retries = {name: each.retries for name, each in limits.items()}
        for row in rows:
            limit = limits[row.type].time_limit if row.type in limits else 0.0
            deadline = row.started + int(2 * limit * MICROSECONDS)
            if deadline > now:
                self._database.run(
                    connection,
                    "UPDATE job SET deadline = :deadline WHERE id = :id",
                    deadline=deadline,
                    id=row.id,
                )
                continue
            late = Ended(claimed_of(row), RunEnd.LIMIT, row.saved, trouble=trouble)
            self._store.finish(connection, row.owner, [late], retries=retries)
        return len(rows)

    # --- the rest ---------------------------------------------------------------------------------

    def tidy(self, connection: sa.Connection) -> int:
        """Fold the counters of others' transactions, and delete a block of what is kept no longer;
        gives how many jobs that were."""
        run, deltas = self._database.run, Deltas()
        for row in run(
            connection,
            "DELETE FROM job_count WHERE shard >= :own RETURNING type, priority, status, number,"
            " items, failures",
            own=OWN_SHARD_MIN,
        ):
            deltas.add(
                row.type, row.priority, JobStatus(row.status), row.number, row.items, row.failures
            )
        now = self._database.now(connection)
        # Thrice: what was done once may be undone.
        if now >= max(self._clock) or self._bound_waits(connection, now):
            self._clock.append(now)
        before = now - int(RESULT_SECONDS * MICROSECONDS)
        old = run(
            connection,
            "SELECT id, ended FROM job WHERE status = 'COMPLETE' AND ended >= :since"
            f" AND ended <= :before ORDER BY ended LIMIT {TIDY_MAX}{self._database.skip_used}",
            since=self._deleted_to,
            before=before,
        ).all()
        # What was deleted may be in the way for long; the last look is a whole one.
        self._deleted_to = old[-1].ended if len(old) == TIDY_MAX else 0
        self.delete(connection, [row.id for row in old])
        run(
            connection,
            "DELETE FROM job_audit WHERE id IN (SELECT id FROM job_audit WHERE id <="
            " (SELECT max(id) FROM job_audit) - :kept"
            f" ORDER BY id LIMIT {10 * BLOCK}{self._database.skip_used})",
            kept=AUDIT_KEPT,
        )
        self._store.count(connection, deltas)
        return len(old)

    def _bound_waits(self, connection: sa.Connection, now: int) -> bool:
        """The clock may have been set back: nobody waits longer for what it has said once than if
        it had said so now. Jobs that were submitted for a time wait for that. What runs has begun
        now at the latest, and has all of its time from then on.

        Returns:
            Whether that is all; False: there may be more.
        """
        run, ends = self._database.run, self._database.skip_locked
        changed = run(
            connection,
            "UPDATE job SET due = :latest WHERE id IN (SELECT id FROM job WHERE status = 'CREATED'"
            " AND held = 'later' AND due > :latest AND (failures > 0 OR timeouts > 0) ORDER BY due"
            f" LIMIT {10 * BLOCK}{ends})",
            latest=now + int(RETRY_SECONDS_MAX * MICROSECONDS),
        )
        run(
            connection,
            "UPDATE job_instance SET expires = :latest WHERE id IN (SELECT id FROM job_instance"
            f" WHERE dead = 0 AND expires > :latest{ends})",
            latest=now + int(EXPIRE_SECONDS * MICROSECONDS),
        )
        run(
            connection,
            "UPDATE job SET started = :now, deadline = :now + deadline - started WHERE id IN"
            f" (SELECT id FROM job WHERE status = 'RUNNING' AND started > :now{ends})",
            now=now,
        )
        return changed.rowcount < 10 * BLOCK

    def delete(self, connection: sa.Connection, ids: Sequence[int]) -> int:
        """Delete jobs that do not run, and for which no other one waits, with all that belongs to
        them; gives how many there were."""
        if not ids:
            return 0
        self._store.release_left(connection)
        given = self._database.given(("id", "bigint"))
        # They are locked first, so that the next statement sees each job that waits for one of
        # them; one that a transaction needs just now is left out.
        free = self._database.run(
            connection,
            f"SELECT id FROM job WHERE id IN (SELECT id FROM {given} AS d)"
            f" AND status <> 'RUNNING' ORDER BY id{self._database.skip_used}",
            spread(ids),
        ).all()
        gone = self._database.run(
            connection,
            f"DELETE FROM job WHERE id IN (SELECT id FROM {given} AS d) AND (status = 'COMPLETE'"
            " OR NOT EXISTS (SELECT 1 FROM job_edge AS e JOIN job AS c ON c.id = e.child"
            " WHERE e.parent = job.id AND c.status = 'CREATED'))"
            " RETURNING id, type, priority, status, items, failures, key",
            spread(row.id for row in free),
        ).all()
        deltas = Deltas()
        for row in gone:
            deltas.add(row.type, row.priority, JobStatus(row.status), -1, -row.items, -row.failures)
        rows = spread(row.id for row in gone)
        for table, column in _BELONGING:
            self._database.run(
                connection,
                f"DELETE FROM {table} WHERE {column} IN (SELECT id FROM {given} AS d)",
                rows,
            )
        self._store.release_keys(connection, {(row.type, row.key) for row in gone})
        self._store.count(connection, deltas)
        return len(gone)

    def set(self, connection: sa.Connection, name: str, value: str) -> None:
        """Change a setting that all instances see within a second: `on` (1, 0) or `dispatch`."""
        self._database.run(
            connection,
            "INSERT INTO job_setting (name, value) VALUES (:name, :value)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            name=name,
            value=value,
        )

    def note(
        self,
        connection: sa.Connection,
        who: str,
        action: str,
        subject: str,
        number: int = 0,
        entry: int | None = None,
    ) -> int:
        """Write down what somebody does, for `roq jobs audit`, in the transaction that does it.

        Args:
            connection: the transaction.
            who, action, subject: is done.
            number: to so many.
            entry: that has become so many, of several transactions; as the first one was given it.
        """
        if entry is not None:
            connection.execute(sa.update(AUDIT).where(AUDIT.c.id == entry).values(number=number))
            return entry
        made = connection.execute(
            AUDIT.insert().values(
                at=self._database.now(connection), who=who, action=action,
                subject=subject[:2_000], number=number,
            ).returning(AUDIT.c.id)
        )  # fmt: skip
        return int(made.scalar_one())


def limits_of(row: Row) -> TypeLimits:
    """What holds for a type, from its row."""
    return in_force(read_limits(row.limits), read_changes(row.changes))


def _listed(names: Iterable[str]) -> str:
    return msgspec.json.encode(list(names)).decode()


def _list_of(text: str) -> list[str]:
    return msgspec.json.decode(text, type=list[str])
