"""What an operator sees of jobs, and does with them: for the command line, a console, programs.

Everything that is shown comes from counters or from an index, so it does not get slower with the
number of jobs. What is done to many jobs is counted first (`select`), and then done to those and no
others (`act`): in blocks, so that nobody waits for it, and written down in the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import sqlalchemy as sa

from roq.errors import InvalidRequest, JobNotFound
from roq.jobs.batches import batch_rows
from roq.jobs.database import MICROSECONDS, JobDatabase, Row
from roq.jobs.held import BLOCK, LEFT
from roq.jobs.instances import MECHANISMS, JobInstances, limits_of
from roq.jobs.limits import TypeLimits, fair_share, may_begin, read_changes, texts
from roq.jobs.rows import Deltas, spread
from roq.jobs.schedules import JobSchedules
from roq.jobs.schema import (
    AUDIT,
    COUNT,
    EDGE,
    ERROR,
    INSTANCE,
    JOB,
    PARAMS,
    RESULT,
    SETTING,
    SLOT,
    TYPE,
)
from roq.jobs.search import BADLY, REACH, Condition, awaited, block, newest, number
from roq.jobs.stalls import job_stalls
from roq.jobs.states import JobStatus, Waiting, why_waiting
from roq.jobs.store import JobStore
from roq.jobs.trial import trial_jobs
from roq.jobs.views import (
    COUNTED_MAX,
    ID_MAX,
    Action,
    AuditRow,
    BatchRow,
    ErrorRow,
    FailureRow,
    InstanceRow,
    JobCount,
    JobFilter,
    JobList,
    JobPage,
    JobRow,
    JobSettings,
    JobStall,
    TypeRow,
    body_text,
    conditions,
    job_row,
    rows,
)

PAGE: Final = 100


_MAY: Final[Mapping[Action, frozenset[JobStatus]]] = {
    Action.RESTART: BADLY,
    Action.REQUEUE: frozenset({JobStatus.CREATED}),
    Action.DELETE: frozenset(JobStatus) - {JobStatus.RUNNING},
    Action.INTERRUPT: frozenset({JobStatus.RUNNING}),
}


_MARKS_MAX: Final = 1_000
_ALIKE: Final = (
    # From one fingerprint to the next one by the index: what lies between is not read.
    "WITH RECURSIVE marks(mark, n) AS (SELECT min(fingerprint), 1 FROM job_error UNION ALL"
    " SELECT (SELECT min(e.fingerprint) FROM job_error AS e WHERE e.fingerprint > marks.mark),"
    " n + 1 FROM marks WHERE mark IS NOT NULL AND n < :most)"
    " SELECT mark, (SELECT min(e.at) FROM job_error AS e WHERE e.fingerprint = mark) AS first,"
    " (SELECT e.id FROM job_error AS e WHERE e.fingerprint = mark"
    " ORDER BY e.at DESC, e.id DESC LIMIT 1) AS newest,"
    " (SELECT count(*) FROM (SELECT 1 FROM job_error AS e WHERE e.fingerprint = mark"
    " LIMIT :counted) AS c) AS number FROM marks WHERE mark IS NOT NULL"
)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that something is to be done to: those that fitted when they were counted."""

    action: Action
    filter: JobFilter
    number: int
    last: int
    """None has a higher id."""


class JobOperations:
    """What an operator sees and does; `Jobs.operate` has one.

    Each call raises `Unavailable` if the database cannot be reached.

    Attributes:
        schedules: the same for schedules.
    """

    def __init__(self, store: JobStore, instances: JobInstances) -> None:
        self._store = store
        self._instances = instances
        self._database: JobDatabase = store.database
        self.schedules = JobSchedules(store, instances)

    # --- look -------------------------------------------------------------------------------------

    def now(self) -> int:
        """µs since 1970 by the database's clock."""
        with self._database.read() as connection:
            return self._database.now(connection)

    def counts(self) -> list[JobCount]:
        """Jobs by type, priority and status; cells without a job are left out."""
        number, items, failures = (
            sa.func.sum(COUNT.c[name]).label(name) for name in ("number", "items", "failures")
        )
        cells = (COUNT.c.type, COUNT.c.priority, COUNT.c.status)
        asked = sa.select(*cells, number, items, failures).group_by(*cells)
        with self._database.read() as connection:
            known = set(connection.scalars(sa.select(TYPE.c.name)))
            found = connection.execute(asked.having(number != 0).order_by(*cells)).all()
            return [
                JobCount(
                    type=row.type, priority=row.priority, status=JobStatus(row.status),
                    number=int(row.number), items=int(row.items), failures=int(row.failures),
                    oldest=self._oldest(connection, row), known=row.type in known,
                )
                for row in found
            ]  # fmt: skip

    def stalls(self, counts: Sequence[JobCount] | None = None) -> list[JobStall]:
        """What does not go on, by type and reason.

        Args:
            counts: of `counts`, if they are known.
        """
        waiting: dict[str, int] = {}
        for cell in self.counts() if counts is None else counts:
            if cell.oldest is not None:
                waiting[cell.type] = waiting.get(cell.type, 0) + cell.number
        with self._database.read() as connection:
            look = self._instances.look(connection, 0, whole=False)
            unfired = self.schedules.unfired(connection, look)
            return job_stalls(self._database, connection, look, waiting, unfired)

    def _oldest(self, connection: sa.Connection, cell: Row) -> int | None:
        if cell.status != JobStatus.CREATED:
            return None
        return self._store.oldest(connection, cell.type, cell.priority)

    def jobs(
        self, wanted: JobFilter, *, below: int | None = None, most: int = PAGE
    ) -> list[JobRow]:
        """Jobs that fit, the newest first.

        Args:
            wanted: which.
            below: only ids below that one; for the next page the last one of this page.
            most: rows.
        """
        return self.page(wanted, below=below, most=most, reach=None).jobs

    def page(
        self,
        wanted: JobFilter,
        *,
        below: int | None = None,
        most: int = PAGE,
        reach: int | None = REACH,
    ) -> JobList:
        """Jobs that fit, the newest first, and where the next page begins.

        Args:
            wanted, below, most: as `jobs`.
            reach: if there is no index for the filter, so many jobs are looked at, and those behind
                for the next page; None: all.
        """
        with self._database.read() as connection:
            found = newest(connection, wanted, below=below, most=_most(most), reach=reach)
            asked = rows().where(JOB.c.id.in_(found.ids)).order_by(JOB.c.id.desc())
            jobs = [job_row(row) for row in connection.execute(asked)]
        return JobList(jobs=jobs, below=found.below)

    def running(self, *, most: int = PAGE) -> list[JobRow]:
        """What runs, in the whole cluster, the longest first."""
        asked = (
            rows()
            .where(sa.text("job.status = 'RUNNING'"))
            .order_by(JOB.c.started)
            .limit(_most(most))
        )
        with self._database.read() as connection:
            return [job_row(row) for row in connection.execute(asked)]

    def job(self, id: int) -> JobPage:
        """All about one job.

        Raises:
            JobNotFound: there is none with this id.
        """
        if not 0 < id <= ID_MAX:
            raise JobNotFound("there is no job with such a number")
        with self._database.read() as connection:
            found = connection.execute(rows().where(JOB.c.id == id)).first()
            if found is None:
                raise JobNotFound(f"there is no job {id}")
            job = job_row(found)
            errors = connection.execute(
                sa.select(ERROR).where(ERROR.c.job == id).order_by(ERROR.c.id.desc()).limit(20)
            )
            edges = EDGE.c
            parents = sa.select(edges.parent).where(edges.child == id).order_by(edges.parent)
            children = sa.select(edges.child).where(edges.parent == id, edges.child != LEFT)
            batch = batch_rows(connection, most=1, job=id)
            blocks = connection.scalar(sa.select(JOB.c.id).where(JOB.c.id == id, awaited()))
            return JobPage(
                job=job,
                why=self._why(connection, job) if job.status is JobStatus.CREATED else "",
                params=body_text(connection, PARAMS, id),
                result=body_text(connection, RESULT, id),
                errors=[
                    ErrorRow(
                        at=row.at, token=row.token, end=row.end_kind, text=row.text,
                        fingerprint=row.fingerprint, trace=row.trace, instance=row.instance,
                    )
                    for row in errors
                ],
                parents=list(connection.scalars(parents.limit(PAGE))),
                children=list(connection.scalars(children.order_by(edges.child).limit(PAGE))),
                batch=batch[0] if batch else None,
                actions=[
                    action
                    for action, statuses in _MAY.items()
                    if job.status in statuses and (action is not Action.DELETE or blocks is None)
                ],
            )  # fmt: skip

    def _why(self, connection: sa.Connection, job: JobRow) -> str:
        now = self._database.now(connection)
        look = self._instances.look(connection, 0, whole=False)
        failed = connection.scalars(
            sa.select(JOB.c.id)
            .join(EDGE, EDGE.c.parent == JOB.c.id)
            .where(EDGE.c.child == job.id)
            .where(JOB.c.status.in_([each.value for each in _MAY[Action.RESTART]]))
            .limit(5)
        )
        waits = connection.scalar(sa.select(JOB.c.waits).where(JOB.c.id == job.id))
        slots = connection.scalar(
            sa.select(sa.func.count()).where(SLOT.c.type == job.type, SLOT.c.owner.is_not(None))
        )
        first = connection.scalar(
            sa.select(JOB.c.id)
            .where(JOB.c.type == job.type, JOB.c.status == "CREATED", JOB.c.held == "")
            .order_by(JOB.c.priority, JOB.c.created, JOB.c.batch_sequence, JOB.c.id)
            .limit(1)
        )
        holds = look.limits.get(job.type, TypeLimits())
        full = holds.rate is not None and not may_begin(
            holds.rate, look.rested.get(job.type, 0), now
        )
        return why_waiting(
            Waiting(
                type=job.type, held=job.held, seconds_to_due=(job.due - now) / MICROSECONDS,
                parents=waits or 0, failed_parents=tuple(failed), key=job.key,
                instances=sum(job.type in peer.types for peer in look.peers),
                all_on=look.on, type_on=job.type not in look.off,
                limit=holds.cluster_limit, slots=slots or 0,
                ahead=first != job.id, rate=holds.rate if full else None,
            )
        )  # fmt: skip

    def batches(self, *, most: int = 20) -> list[BatchRow]:
        """Batches and how far they are, the newest first."""
        with self._database.read() as connection:
            return batch_rows(connection, most=_most(most))

    def failures(self, *, most: int = PAGE) -> list[FailureRow]:
        """Runs that ended otherwise than well, those that ended alike together, the most first.

        Of each `COUNTED_MAX` are counted at most.
        """
        with self._database.read() as connection:
            asked = self._database.run(connection, _ALIKE, most=_MARKS_MAX, counted=COUNTED_MAX)
            alike = sorted(asked.all(), key=lambda row: (-row.number, -row.newest))[: _most(most)]
            newest = sa.select(ERROR).where(ERROR.c.id.in_([row.newest for row in alike]))
            last = {row.id: row for row in connection.execute(newest)}
            return [
                FailureRow(
                    fingerprint=row.mark, text=last[row.newest].text, number=row.number,
                    first=row.first, last=last[row.newest].at, type=last[row.newest].type,
                    job=last[row.newest].job,
                )
                for row in alike
                if row.newest in last
            ]  # fmt: skip

    def instance_list(self) -> list[InstanceRow]:
        """The programs that run jobs."""
        run = self._database.run
        with self._database.read() as connection:
            found = connection.execute(sa.select(INSTANCE).order_by(INSTANCE.c.id)).all()
            now = self._database.now(connection)
            running = run(
                connection,
                "SELECT owner, count(*) AS number FROM job WHERE status = 'RUNNING' GROUP BY owner",
            )
            busy = {row.owner: row.number for row in running}
            slots: dict[int, dict[str, int]] = {}
            for row in run(
                connection,
                "SELECT owner, type, count(*) AS number FROM job_slot WHERE owner IS NOT NULL"
                " GROUP BY owner, type",
            ):
                slots.setdefault(row.owner, {})[row.type] = row.number
            users: dict[str, list[int]] = {}
            for row in found:
                if not row.dead and row.expires > now:
                    for kind in msgspec.json.decode(row.types):
                        users.setdefault(kind, []).append(row.id)
            shares: dict[int, dict[str, int]] = {}
            for row in connection.execute(sa.select(TYPE).order_by(TYPE.c.name)):
                limit = limits_of(row).cluster_limit
                if limit is not None:
                    for each in (live := users.get(row.name, [])):
                        share = fair_share(limit, live, each, row.name)
                        shares.setdefault(each, {})[row.name] = share
            return [
                InstanceRow(
                    id=row.id, name=row.name, pid=row.pid, threads=row.threads,
                    running=busy.get(row.id, 0), types=msgspec.json.decode(row.types),
                    wants=msgspec.json.decode(row.wants), slots=slots.get(row.id, {}),
                    shares=shares.get(row.id, {}),
                    started=row.started, expires=row.expires,
                    dead=bool(row.dead) or row.expires <= now,
                )
                for row in found
            ]  # fmt: skip

    def type_list(self) -> list[TypeRow]:
        """The types that programs have declared."""
        with self._database.read() as connection:
            used = {
                row.type: row.number
                for row in self._database.run(
                    connection,
                    "SELECT type, count(*) AS number FROM job_slot WHERE owner IS NOT NULL"
                    " GROUP BY type",
                )
            }
            return [
                TypeRow(
                    name=row.name, version=row.version, restartable=bool(row.restartable),
                    limits=limits_of(row), changes=texts(read_changes(row.changes)),
                    slots_used=used.get(row.name, 0), on=bool(row.enabled),
                )
                for row in connection.execute(sa.select(TYPE).order_by(TYPE.c.name))
            ]  # fmt: skip

    def settings(self) -> JobSettings:
        """What holds for all instances."""
        with self._database.read() as connection:
            found = {row.name: row.value for row in connection.execute(sa.select(SETTING))}
        return JobSettings(
            on=found.get("on", "1") == "1", dispatch=found.get("dispatch", MECHANISMS[0]),
            schema=int(found["schema"]),
        )  # fmt: skip

    def audit(self, *, most: int = PAGE) -> list[AuditRow]:
        """What was done, the newest first."""
        asked = sa.select(AUDIT).order_by(AUDIT.c.id.desc()).limit(_most(most))
        with self._database.read() as connection:
            return [
                AuditRow(
                    at=row.at, who=row.who, action=row.action, subject=row.subject,
                    number=row.number,
                )
                for row in connection.execute(asked)
            ]  # fmt: skip

    # --- act --------------------------------------------------------------------------------------

    def select(self, action: Action, wanted: JobFilter) -> Selection:
        """Count the jobs that something could be done to now.

        Those of another status than the action is for are not counted, nor, for deletion, those
        that others wait for.
        """
        fits = _narrowed(action, wanted)
        with self._database.read() as connection:
            last = connection.scalar(sa.select(sa.func.max(JOB.c.id)))
            many = number(connection, fits) if fits.statuses else 0
            if action is Action.DELETE and many:
                many -= number(connection, fits, awaited())
            if action is Action.REQUEUE and many:
                # Without a status beside that of its index, which is enough for the count then.
                any_status = msgspec.structs.replace(fits, statuses=())
                many = number(connection, any_status, *_also(action))
        return Selection(action=action, filter=wanted, number=many, last=int(last or 0))

    def act(
        self, selection: Selection, *, who: str, progress: Callable[[int], None] | None = None
    ) -> int:
        """Do it to the jobs of a selection that still fit; gives how many that were.

        Args:
            selection: of `select`; never more jobs than it has counted.
            who: for the audit.
            progress: called after each block, with how many it were so far.
        """
        fits, also = _narrowed(selection.action, selection.filter), _also(selection.action)
        told = msgspec.json.encode(selection.filter).decode()
        done, at, entry = 0, 0, None
        while done < selection.number and at < selection.last:
            most = min(BLOCK, selection.number - done)
            with self._database.read() as connection:
                ids, at = block(connection, fits, also, above=at, last=selection.last, most=most)
            if not ids:
                continue
            with self._store.write() as connection:
                still = sa.select(JOB.c.id).where(JOB.c.id.in_(ids), *conditions(fits), *also)
                ids = list(connection.scalars(still.order_by(JOB.c.id)))
                now = done + self._apply(connection, selection.action, ids)
                # With each block: whatever ends this program, what it has done is told.
                entry = self._instances.note(connection, who, selection.action, told, now, entry)
            done = now
            if progress is not None:
                progress(done)
        if entry is None:
            with self._database.write() as connection:
                self._instances.note(connection, who, selection.action, told)
        return done

    def _apply(self, connection: sa.Connection, action: Action, ids: list[int]) -> int:
        if not ids:
            return 0
        match action:
            case Action.RESTART:
                return self._restart(connection, ids)
            case Action.DELETE:
                return self._instances.delete(connection, ids)
            case Action.REQUEUE:
                changed = self._change(
                    connection, "dispatched = 0", "status = 'CREATED' AND held = ''", ids
                )
                self._database.notify(connection)
                return len(changed)
            case Action.INTERRUPT:
                return len(self._change(connection, "stop = 1", "status = 'RUNNING'", ids))

    def _change(
        self, connection: sa.Connection, change: str, condition: str, ids: Sequence[int]
    ) -> Sequence[Row]:
        return self._database.run(
            connection,
            f"UPDATE job SET {change} WHERE {condition} AND id IN (SELECT id FROM"
            f" {self._database.given(('id', 'bigint'))} AS d)"
            " RETURNING id, type, priority, items, key",
            spread(ids),
        ).all()

    def _restart(self, connection: sa.Connection, ids: list[int]) -> int:
        asked = sa.select(JOB).where(JOB.c.id.in_(ids)).order_by(JOB.c.id).with_for_update()
        before = {row.id: row for row in connection.execute(asked)}
        named = [each for each, row in before.items() if row.unique_key is not None]
        plain = [each for each, row in before.items() if row.unique_key is None]
        fresh = (
            "status = 'CREATED', token = token + 1, failures = 0, timeouts = 0, losses = 0,"
            " due = 0, ended = NULL, error = NULL, dispatched = 0,"
            " held = CASE WHEN key IS NULL THEN '' ELSE 'key' END"
        )
        which = "status IN ('FAILED', 'INTERRUPTED', 'TIMED_OUT')"
        alone = (
            " AND NOT EXISTS (SELECT 1 FROM job AS o WHERE o.type = job.type"
            " AND o.unique_key = job.unique_key AND o.status IN ('CREATED', 'RUNNING'))"
        )
        changed = list(self._change(connection, fresh, which, plain)) if plain else []
        for each in named:  # one after the other: two may have the same `unique`
            # … as may one whose submission is committed at this moment, so that it is not seen.
            with suppress(sa.exc.IntegrityError), connection.begin_nested():
                changed += self._change(connection, fresh, which + alone, [each])
        deltas = Deltas()
        for row in changed:
            old = before[row.id]
            status = JobStatus(old.status)
            deltas.add(row.type, row.priority, status, -1, -row.items, -old.failures)
            deltas.add(row.type, row.priority, JobStatus.CREATED, 1, row.items, 0)
        self._store.count(connection, deltas)
        self._store.release_keys(connection, {(row.type, row.key) for row in changed})
        self._database.notify(connection)
        return len(changed)

    def switch(self, on: bool, *, who: str, type: str | None = None) -> None:
        """Have all jobs, or those of a type, be claimed, or not; seen within a second.

        Raises:
            InvalidRequest: no program has declared the type.
        """
        with self._database.write() as connection:
            if type is None:
                self._instances.set(connection, "on", str(int(on)))
            else:
                changed = connection.execute(
                    sa.update(TYPE).where(TYPE.c.name == type).values(enabled=int(on))
                )
                if not changed.rowcount:
                    raise InvalidRequest(f"no program has declared type {type!r}: `roq jobs types`")
            self._instances.note(connection, who, "on" if on else "off", type or "all types")
            self._database.notify(connection)

    def set_limits(self, type: str, given: Mapping[str, str], *, who: str) -> None:
        """Change limits of a type, for all instances within a second.

        Args:
            type: its name.
            given: limit → text, as `roq.jobs.limits.changed` reads it.
            who: for the audit.

        Raises:
            InvalidRequest: no program has declared the type, or a limit cannot be so.
        """
        with self._database.write() as connection:
            if not self._instances.set_limits(connection, type, given):
                raise InvalidRequest(f"no program has declared type {type!r}: `roq jobs types`")
            told = " ".join(f"{name}={text}" for name, text in given.items())
            self._instances.note(connection, who, "set", f"{type}: {told}")
            self._database.notify(connection)

    def submit_trials(
        self, number: int, seconds: float, *, fail: bool, priority: int | str, who: str
    ) -> list[int]:
        """Submit test jobs; gives their ids.

        Args:
            number: of jobs.
            seconds: for which each sleeps.
            fail: whether it raises then.
            priority: of the jobs.
            who: for the audit.

        Raises:
            InvalidRequest: too many, too long, or no such priority.
        """
        jobs = trial_jobs(number, seconds, fail=fail, priority=priority)
        with self._store.write() as connection:
            ids = [each.id for each in self._store.submit(connection, jobs)]
            told = f"{seconds:g} s" + ", then fail" * fail
            self._instances.note(connection, who, "test", told, number)
        return ids

    def dispatch(self, mechanism: str, *, who: str) -> None:
        """How instances hear of jobs: `database` or `queue`; seen within a second.

        Raises:
            InvalidRequest: there is no such mechanism.
        """
        if mechanism not in MECHANISMS:
            raise InvalidRequest(f"dispatch is one of {', '.join(MECHANISMS)}, not {mechanism!r}")
        with self._database.write() as connection:
            self._instances.set(connection, "dispatch", mechanism)
            self._instances.note(connection, who, "dispatch", mechanism)


def _narrowed(action: Action, wanted: JobFilter) -> JobFilter:
    """Only those of a status that the action is for."""
    may = sorted(_MAY[action].intersection(wanted.statuses or _MAY[action]))
    return msgspec.structs.replace(wanted, statuses=tuple(may))


def _also(action: Action) -> list[Condition]:
    match action:
        case Action.REQUEUE:
            return [sa.text("job.status = 'CREATED'"), sa.text("job.held = ''")]
        case Action.DELETE:
            return [sa.not_(awaited())]
        case _:
            return []


def _most(number: int) -> int:
    return max(1, min(number, 10 * PAGE))
