"""The life of jobs in SQL: submit, claim, finish, release, and what becomes of a dead owner's.

Each function works in the transaction that it is given, with all the jobs that it is given in one
statement. Three rules hold everywhere:

* A run is (id, token, owner). Claiming asks for the token, and makes the next one; finishing asks
  for token and owner. A statement that hits no row was late, and nothing else is done for it.
* What a job's status changes to is decided by `roq.jobs.states`.
* Counters change in the transaction that changes what they count.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from roq.errors import JobExists
from roq.jobs.database import JobDatabase, Row
from roq.jobs.limits import begun, may_begin
from roq.jobs.room import JobPlaces, chosen
from roq.jobs.rows import (
    Body,
    Claimed,
    Claims,
    Deltas,
    Ended,
    NewJob,
    Submitted,
    Trouble,
    Want,
    spread,
)
from roq.jobs.slots import JobSlots
from roq.jobs.states import RETRIES, Attempts, JobStatus, after
from roq.jobs.waiting import WaitingJobs

SHARDS: Final = 8
OWN_SHARD_MIN: Final = 1_000
"""Counters of transactions that are not ours are rows of their own from here on, so that nobody
waits for their end; they are folded into the others later."""
BODIES_BYTES: Final = 16 << 20
"""Params or results that one statement brings, unless a single one is larger."""
CLAIMED: Final = (
    "job.id, job.token, job.type, job.priority, job.created, job.batch_sequence, job.failures,"
    " job.timeouts, job.losses, job.restartable, job.items, job.saved, job.tag"
)
_PARAMS: Final = ", ".join(
    f"(SELECT p.{each} FROM job_params AS p WHERE p.job = job.id) AS {each}"
    for each in Body._fields
)
_GATHERED: Final = "roq_counts"
_STATUS: Final = "(job.status || '')"
"""So written that jobs are found by their ids: in an index of those that wait or run PostgreSQL
would pass all that did so since the beginning of any transaction that is open."""


class JobStore(WaitingJobs):
    """The SQL of a job's life.

    Args:
        database: where jobs are.
        jitter: spreads what is tried again.
    """

    def __init__(self, database: JobDatabase, jitter: Callable[[], float] = random.random) -> None:
        super().__init__(database)
        self.jitter = jitter
        self._slots = JobSlots(database)
        self._shard = 0 if database.sqlite else os.urandom(1)[0] % SHARDS
        given = database.given
        self._insert = (
            "INSERT INTO job (type, priority, status, created, batch_sequence, due, held,"
            " dispatched, token, restartable, items, tag, unique_key, key, waits)"
            " SELECT type, CASE chosen WHEN 1 THEN priority ELSE coalesce((SELECT t.priority FROM"
            " job_type AS t WHERE t.name = d.type), priority) END, 'CREATED', :now, n, due, held,"
            " CASE held WHEN '' THEN :sent ELSE 0 END, 1, restartable, items, tag, unique_key,"
            " key, waits FROM "
            + given(
                ("n", "int"), ("type", "text"), ("priority", "int"), ("due", "bigint"),
                ("held", "text"), ("restartable", "int"), ("items", "bigint"), ("tag", "text"),
                ("unique_key", "text"), ("key", "text"), ("waits", "bigint"), ("chosen", "int"),
            )
            + " AS d WHERE true ORDER BY n ON CONFLICT DO NOTHING"
            " RETURNING id, batch_sequence, held, priority"
        )  # fmt: skip
        self._count = (
            "INSERT INTO job_count (type, priority, status, shard, number, items, failures)"
            " SELECT type, priority, status, shard, number, items, failures FROM "
            + given(
                ("type", "text"), ("priority", "int"), ("status", "text"), ("shard", "bigint"),
                ("number", "bigint"), ("items", "bigint"), ("failures", "bigint"),
            )
            + " AS d WHERE true ON CONFLICT (type, priority, status, shard) DO UPDATE SET"
            " number = job_count.number + excluded.number,"
            " items = job_count.items + excluded.items,"
            " failures = job_count.failures + excluded.failures"
        )  # fmt: skip
        self._claim = (
            "UPDATE job SET status = 'RUNNING', token = job.token + 1, owner = :owner,"
            " started = :now, deadline = :now + 2 * d.span, stop = 0, ended = NULL FROM "
            + given(("id", "bigint"), ("token", "bigint"), ("span", "bigint"), ("type", "text"))
            + " AS d WHERE job.id = d.id AND job.token = d.token AND job.type = d.type"
            f" AND {_STATUS} = 'CREATED' AND job.held = '' RETURNING {CLAIMED}, job.unique_key,"
            f" {_PARAMS}"
        )
        self._finish = (
            "UPDATE job SET status = d.status, token = job.token + d.step, owner = NULL,"
            " deadline = NULL, stop = 0, ended = d.ended, due = d.due, held = CASE"
            " WHEN d.status <> 'CREATED' THEN '' WHEN d.due > 0 THEN 'later'"
            " WHEN job.key IS NOT NULL THEN 'key' ELSE '' END, dispatched = 0,"
            " failures = d.failures, timeouts = d.timeouts, losses = d.losses, saved = d.saved,"
            " error = d.error FROM "
            + given(
                ("id", "bigint"), ("token", "bigint"), ("owner", "bigint"), ("status", "text"),
                ("step", "int"), ("ended", "bigint"), ("due", "bigint"), ("failures", "bigint"),
                ("timeouts", "bigint"), ("losses", "bigint"), ("saved", "bigint"),
                ("error", "text"),
            )
            + " AS d WHERE job.id = d.id AND job.token = d.token AND job.owner = d.owner"
            f" AND {_STATUS} = 'RUNNING' RETURNING job.id, job.token, job.status, job.type,"
            " job.children, job.key"
        )  # fmt: skip

    # --- submit -----------------------------------------------------------------------------------

    def submit(
        self,
        connection: sa.Connection,
        jobs: Sequence[NewJob],
        *,
        foreign: bool = False,
        sent: bool = False,
        fresh: bool = False,
        now: int | None = None,
    ) -> list[Submitted]:
        """Write jobs down, in this order.

        Args:
            connection: the transaction.
            jobs: what to write.
            foreign: the transaction is the user's, and may take long: nobody is to wait for it.
            sent: the caller will send messages of those that may be claimed at once.
            fresh: what they wait for is new in this transaction: nobody else looks at it yet.
            now: the database's time, if it was asked in this transaction.

        Raises:
            JobNotFound: a job that one of them is to wait for does not exist.
        """
        now = self.database.now(connection) if now is None else now
        later = foreign and not fresh
        open_parents = self.open_parents(connection, jobs, foreign=later)
        rows = []
        for n, job in enumerate(jobs):
            held, due, waits = self.held_columns(job, now, open_parents, foreign=later)
            rows.append(
                [
                    n, job.type, job.priority, due, held, int(job.restartable), job.items, job.tag,
                    job.unique, job.key, waits, int(job.chosen),
                ]
            )  # fmt: skip
        found: dict[int, Submitted] = {}
        at = now if sent else 0
        for row in self.database.run(connection, self._insert, rows, now=now, sent=at):
            found[row.batch_sequence] = Submitted(row.id, "new", row.priority, ready=not row.held)
        deltas = Deltas()
        bodies: list[tuple[int, Body]] = []
        edges = []
        for n, told in found.items():
            job = jobs[n]
            deltas.add(job.type, told.priority, JobStatus.CREATED, 1, job.items, 0)
            if job.params is not None:
                bodies.append((told.id, job.params))
            edges += [[each, told.id] for each in set(job.parents) & open_parents]
        self._write_bodies(connection, "job_params", bodies)
        for n, job in enumerate(jobs):  # one of these itself may be replaced by a later one
            if n not in found:
                found[n] = self._there_already(connection, job, deltas)
        self.write_edges(connection, edges)
        if not sent or not all(told.ready for told in found.values()):
            self.database.notify(connection)
        if not foreign:
            keyed = {(job.type, job.key) for job in jobs if job.key is not None}
            self.release_keys(connection, keyed)
        self.count(connection, deltas, foreign=foreign)
        return [found[n] for n in range(len(jobs))]

    def _there_already(self, connection: sa.Connection, job: NewJob, deltas: Deltas) -> Submitted:
        """A job was not inserted because one with the same `unique` waits or runs."""
        # Of two that replace it, the later one is to see what the earlier one has made of it.
        locked = self.database.for_change if job.on_unique == "replace" else ""
        row = self.database.run(
            connection,
            "SELECT id, status, priority, items FROM job WHERE type = :type"
            f" AND unique_key = :name AND status IN ('CREATED', 'RUNNING'){locked}",
            type=job.type,
            name=job.unique,
        ).first()
        if row is None:
            # It has ended since the insert saw it: the caller may submit anew.
            return Submitted(0, "exists")
        if job.on_unique == "skip":
            return Submitted(row.id, "skipped")
        if job.on_unique != "replace" or row.status != JobStatus.CREATED:
            return Submitted(row.id, "exists")
        changed = self.database.run(
            connection,
            "UPDATE job SET items = :items, tag = :tag WHERE id = :id AND status = 'CREATED'"
            " RETURNING id",
            id=row.id,
            items=job.items,
            tag=job.tag,
        ).first()
        if changed is None:
            return Submitted(row.id, "exists")
        self.database.run(connection, "DELETE FROM job_params WHERE job = :id", id=row.id)
        if job.params is not None:
            self._write_bodies(connection, "job_params", [(row.id, job.params)])
        deltas.add(job.type, row.priority, JobStatus.CREATED, 0, job.items - row.items, 0)
        return Submitted(row.id, "replaced")

    # --- claim ------------------------------------------------------------------------------------

    def claim(
        self,
        connection: sa.Connection,
        owner: int,
        wants: Sequence[Want],
        jobs: Sequence[tuple[int, int, str]],
        places: JobPlaces,
    ) -> Claims:
        """Make jobs this instance's; those that are not there any more, or have no place or slot,
        are left out. Slots that are not needed are given back.

        The instance is seen to be alive in this transaction, and cannot be taken for dead before it
        ends.

        Args:
            connection: the transaction.
            owner: the instance.
            wants: the types that it runs, and how much of each.
            jobs: (id, token, type), in the order in which they are to run.
            places: of the instance.
        """
        alive = self._alive(connection, owner)
        if alive is None:
            return Claims(passed=frozenset(each[:2] for each in jobs))
        now = alive.now
        allowed = {want.type: want for want in wants}
        most = {want.type: want.most for want in wants}
        short = set()
        rated = {want.type: want.rate for want in wants if want.rate and want.most}
        rested = self._rested(connection, sorted({kind for _, _, kind in jobs} & rated.keys()))
        now = self.database.now(connection) if rated else now
        for kind, rate in rated.items():
            next_ = rested.get(kind)
            may = 0 if next_ is None else may_begin(rate, next_, now)
            most[kind] = min(most[kind], may)
        slots = {kind: want for kind, want in allowed.items() if want.limited}
        while True:
            picked = chosen(jobs, allowed, most, places)
            asked = {kind: sum(each == kind for _, _, each in picked) for kind in slots}
            # Without slots for a type, its places go to the others.
            lacking = set()
            for kind, number in asked.items():
                if number and kind in slots:
                    most[kind] = self._slots.take(connection, owner, slots[kind], number)
                    lacking |= {kind} if most[kind] < number else set()
            short |= lacking
            slots = {kind: want for kind, want in slots.items() if not asked[kind]}
            if not lacking:
                break
        if alive.slots:
            self._slots.give_back(connection, owner, slots.values())
        rows = [[job, token, allowed[kind].limit, kind] for job, token, kind in picked]
        passed = {each[:2] for each in jobs} - {each[:2] for each in picked}
        if not rows:
            return Claims(passed=frozenset(passed), short=frozenset(short))
        taken = self.database.run(connection, self._claim, rows, owner=owner, now=now).all()
        for kind, next_ in rested.items():
            number = sum(row.type == kind for row in taken)
            if number:
                self.database.run(
                    connection,
                    "UPDATE job_type SET rate_next = :next WHERE name = :name",
                    next=begun(rated[kind], next_, now, number),
                    name=kind,
                )
        params = self._params(connection, taken)
        claimed = [claimed_of(row, params.get(row.id)) for row in taken]
        deltas = Deltas()
        deltas.move(
            JobStatus.CREATED,
            ((run, JobStatus.RUNNING, run.attempts.failures) for run in claimed),
        )
        self.count(connection, deltas)
        return Claims(
            sorted(claimed, key=lambda run: run.order), frozenset(passed), frozenset(short)
        )

    def _alive(self, connection: sa.Connection, owner: int) -> Row | None:
        """Now, by the database's clock, and whether it has slots, if nobody has taken this instance
        for dead, and nobody will in this transaction; else None."""
        shared = "" if self.database.sqlite else " FOR SHARE"
        return self.database.run(
            connection,
            f"SELECT {self.database.time} AS now, EXISTS (SELECT 1 FROM job_slot WHERE"
            f" owner = :owner) AS slots FROM job_instance WHERE id = :owner AND dead = 0{shared}",
            owner=owner,
        ).first()

    def _rested(self, connection: sa.Connection, kinds: Sequence[str]) -> dict[str, int]:
        """What `may_begin` wants of each of these types, for this transaction alone.

        Without those of which another instance just claims some: they are asked for again soon.
        """
        if not kinds:
            return {}
        rows = self.database.run(
            connection,
            "SELECT name, rate_next FROM job_type WHERE name IN (SELECT name FROM"
            f" {self.database.given(('name', 'text'))} AS d) ORDER BY name"
            f"{self.database.skip_locked}",
            [[each] for each in kinds],
        )
        return {row.name: row.rate_next for row in rows}

    def _params(self, connection: sa.Connection, taken: Sequence[Row]) -> dict[int, Body]:
        """Of these jobs, from their rows; what may have been replaced while the claim waited for
        that, and was seen by it as it stood before, is read once more."""
        rows = [row for row in taken if row.unique_key is None and row.codec is not None]
        if again := spread(row.id for row in taken if row.unique_key is not None):
            rows += self.database.run(
                connection,
                "SELECT job AS id, codec, version, body FROM job_params WHERE job IN (SELECT id"
                f" FROM {self.database.given(('id', 'bigint'))} AS d)",
                again,
            )
        return {row.id: Body(row.codec, row.version, bytes(row.body)) for row in rows}

    # --- the end of a run -------------------------------------------------------------------------

    def finish(
        self,
        connection: sa.Connection,
        owner: int,
        ended: Sequence[Ended],
        instance: str = "",
        *,
        foreign: bool = False,
        retries: Mapping[str, int] | None = None,
    ) -> set[tuple[int, int]]:
        """Write down how runs have ended; gives (id, token) of those that were still their owner's.

        What the others did is dropped: another run of the same job is the valid one.

        Args:
            connection: the transaction.
            owner: the instance that they belong to.
            ended: each with how.
            instance: its name, for the record of errors.
            foreign: the transaction is the user's.
            retries: by type, how often a job of it is tried again; `RETRIES` of those left out.
        """
        if not ended:
            return set()
        now = self.database.now(connection)
        # By run and not by job: two runs of one, the outdated and the valid one, may end together.
        verdicts = {
            (each.run.id, each.run.token): after(
                each.end,
                each.run.attempts,
                restartable=each.run.restartable,
                jitter=self.jitter,
                retries=(retries or {}).get(each.run.type, RETRIES),
            )
            for each in ended
        }
        rows = []
        for each in ended:
            verdict = verdicts[each.run.id, each.run.token]
            again = verdict.status is JobStatus.CREATED
            due = now + int(verdict.delay * 1_000_000) if verdict.delay else 0
            rows.append(
                [
                    each.run.id, each.run.token, owner, verdict.status.value,
                    0 if verdict.status is JobStatus.COMPLETE else 1, None if again else now, due,
                    verdict.attempts.failures, verdict.attempts.timeouts, verdict.attempts.losses,
                    each.saved, each.trouble.text if each.trouble is not None else None,
                ]
            )  # fmt: skip
        hit = {
            (row.id, row.token - (row.status != JobStatus.COMPLETE)): row
            for row in self.database.run(connection, self._finish, rows)
        }
        moved: list[tuple[Claimed, JobStatus, int]] = []
        results: list[tuple[int, Body]] = []
        troubles = []
        for each in ended:
            if (each.run.id, each.run.token) not in hit:
                continue
            verdict = verdicts[each.run.id, each.run.token]
            moved.append((each.run, verdict.status, verdict.attempts.failures))
            if each.result is not None and verdict.status is JobStatus.COMPLETE:
                results.append((each.run.id, each.result))
            if each.trouble is not None:
                troubles.append(_trouble_row(each, each.trouble, now, instance))
        self._write_bodies(connection, "job_result", results)
        self.database.run_each(
            connection,
            "INSERT INTO job_error (job, type, token, at, end_kind, fingerprint, text, trace,"
            " instance) VALUES (:job, :type, :token, :now, :ending, :fingerprint, :text, :trace,"
            " :instance)",
            troubles,
        )
        done = [row for row in hit.values() if row.status == JobStatus.COMPLETE]
        if foreign:
            self.leave(connection, [row.id for row in done if row.children or row.key])
        else:
            self.release_children(connection, [row.id for row in done if row.children])
            self.release_keys(connection, {(row.type, row.key) for row in hit.values() if row.key})
        if any(row.status == JobStatus.CREATED for row in hit.values()):
            self.database.notify(connection)
        deltas = Deltas()
        deltas.move(JobStatus.RUNNING, moved)
        self.count(connection, deltas, foreign=foreign)
        return set(hit)

    # --- helpers --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction of ours of several steps: its counters change once, at its end, so that
        two of them never wait for each other's.

        Raises:
            Unavailable: as `JobDatabase.write`.
        """
        with self.database.write() as connection:
            gathered = Deltas()
            connection.execution_options(**{_GATHERED: gathered})
            yield connection
            connection.execution_options(**{_GATHERED: None})
            self.count(connection, gathered)

    def count(self, connection: sa.Connection, deltas: Deltas, *, foreign: bool = False) -> None:
        """Change the counters; the last step of a transaction, so that nobody waits for more."""
        gathered: Deltas | None = connection.get_execution_options().get(_GATHERED)
        if gathered is not None:
            gathered.merge(deltas)
            return
        shard = self._shard
        if foreign:
            shard = OWN_SHARD_MIN + int.from_bytes(os.urandom(7), "big")
        rows = deltas.rows(shard)
        if rows:
            self.database.run(connection, self._count, rows)

    def _write_bodies(
        self, connection: sa.Connection, table: str, bodies: Sequence[tuple[int, Body]]
    ) -> None:
        insert = f"INSERT INTO {table} (job, codec, version, body) "
        also = (
            " ON CONFLICT (job) DO UPDATE SET codec = excluded.codec, version = excluded.version,"
            " body = excluded.body"
        )
        if connection.dialect.driver != "psycopg":  # SQLite, or a user's connection
            rows = [{"job": job, **body._asdict()} for job, body in bodies]
            values = "VALUES (:job, :codec, :version, :body)"
            self.database.run_each(connection, insert + values + also, rows)
            return
        # In binary: a sixth of the work of a statement for each row, and less than COPY.
        arrays = (
            "SELECT * FROM unnest(%(job)b::bigint[], %(codec)b::text[], %(version)b::int[],"
            " %(body)b::bytea[])"
        )
        for some in _portions(bodies):
            columns = {
                "job": [job for job, _ in some],
                **{name: [getattr(body, name) for _, body in some] for name in Body._fields},
            }
            connection.exec_driver_sql(insert + arrays + also, columns)


def _portions(bodies: Sequence[tuple[int, Body]]) -> Iterator[list[tuple[int, Body]]]:
    """As many at a time as one statement may bring."""
    some: list[tuple[int, Body]] = []
    size = 0
    for each in bodies:
        size += len(each[1].body)
        if some and size > BODIES_BYTES:
            yield some
            some, size = [], len(each[1].body)
        some.append(each)
    if some:
        yield some


class Gone(Exception):
    """One with the same `unique` has ended since: the jobs may be submitted anew."""


def refuse(jobs: Sequence[NewJob], told: Sequence[Submitted]) -> None:
    """See that none of these jobs has met one with the same `unique`.

    Raises:
        JobExists: one has.
        Gone: one had.
    """
    for job, each in zip(jobs, told, strict=True):
        if each.outcome == "exists" and each.id:
            raise JobExists(
                f"job {each.id} of type {job.type} has the same `unique`, and waits or runs",
                each.id,
            )
    if any(each.outcome == "exists" for each in told):
        raise Gone


def _trouble_row(ended: Ended, trouble: Trouble, now: int, instance: str) -> dict[str, object]:
    return {
        "job": ended.run.id, "type": ended.run.type, "token": ended.run.token, "now": now,
        "ending": ended.end.value, "fingerprint": trouble.fingerprint, "text": trouble.text,
        "trace": trouble.trace, "instance": instance,
    }  # fmt: skip


def claimed_of(row: Row, params: Body | None = None) -> Claimed:
    """A run, from a row whose first columns are `CLAIMED`."""
    job, token, kind, priority, made, place, *had, restartable, items, saved, tag = row[:13]
    return Claimed(
        job, token, kind, priority, made, place, Attempts(*had), bool(restartable), items, saved,
        tag, params,
    )  # fmt: skip
