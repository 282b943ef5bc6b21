"""A few jobs and instances, and everything that can happen to them in whatever order.

The SQL is the real one, on SQLite in memory: `JobStore` and `JobInstances` work on a connection
that goes back to each state by a savepoint. Beside it stands what ought to be so: which run of each
job is the valid one, what each instance knows, and which messages are under way. A state that was
reached before is not gone into again; the time is written into the rows (a lease, a time limit, a
due time that is over), so that states are few. Each transaction happens at once here: how two of
PostgreSQL's come between each other is what `test_jobs_postgres.py` is about.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import sqlalchemy as sa
from job_lab import SPAN, TROUBLE, new

from roq.jobs.database import JobDatabase
from roq.jobs.instances import JobInstances, TypeFacts
from roq.jobs.limits import TypeLimits, lent
from roq.jobs.room import JobPlaces
from roq.jobs.rows import Claimed, Deltas, Ended, ReadyJob, Want
from roq.jobs.schema import METADATA
from roq.jobs.states import DEFAULT, JobStatus, RunEnd
from roq.jobs.store import JobStore
from roq.jobs.worker import JobWorker

NOW = 1_800_000_000_000_000
KIND = "A"
OPEN = (JobStatus.CREATED, JobStatus.RUNNING)
DEPTH_MAX = 2_000


class Broken(Exception):
    """A promise does not hold; told with all that led there."""


@dataclass(frozen=True)
class Plan:
    """What is explored.

    Attributes:
        jobs: what they have in common, each.
        instances: how many run them.
        threads: of each.
        troubles: so many happen at most.
        kinds: which may.
        limit: of the type in the cluster.
        queue: messages tell of jobs, and not the database.
    """

    jobs: tuple[Mapping[str, Any], ...] = ({}, {})
    instances: int = 2
    threads: int = 1
    troubles: int = 2
    kinds: frozenset[str] = frozenset()
    limit: int | None = None
    queue: bool = False


class Instance(NamedTuple):
    """A process, as it sees itself."""

    id: int
    runs: tuple[Claimed, ...] = ()
    unsure: bool = False
    """A commit of its has been made, and it does not know."""
    late: bool = False
    """It has not renewed itself in time."""
    short: bool = False
    """It lacks slots."""


class World(NamedTuple):
    """What is not in the database."""

    instances: tuple[Instance, ...]
    gone: frozenset[int]
    """Ids of processes that were killed."""
    messages: tuple[tuple[int, int], ...]
    """(job, token), in any order and number."""
    valid: tuple[tuple[int, int, int], ...]
    """(job, token, owner) of the valid run of each job that runs."""
    highest: tuple[tuple[int, int], ...]
    """(job, token) of the last run of each."""
    troubles: int


class Step(NamedTuple):
    """Something that can happen."""

    name: str
    do: Callable[[], World]
    trouble: bool = False


Trouble = tuple[str, str, Callable[[], World]]
"""Its kind, its name, and how it happens."""


class _Connection:
    """As much of SQLAlchemy's as the SQL of jobs needs, at a tenth of the time.

    Args:
        breaks: text of SQL → what stands there instead.
    """

    def __init__(self, breaks: Mapping[str, str]) -> None:
        engine = sa.create_engine("sqlite://")
        METADATA.create_all(engine)
        driver = engine.raw_connection().driver_connection
        assert isinstance(driver, sqlite3.Connection)
        self.raw = driver
        self.raw.isolation_level = None
        self._engine = engine
        self.dialect = engine.dialect
        self._breaks = breaks
        self._known: dict[str, str] = {}
        self._rows: dict[str, Callable[[Any], Any]] = {}

    def exec_driver_sql(self, statement: str, values: Any = ()) -> _Result:
        """Run a statement, or a broken one in its place."""
        told = self._known.get(statement)
        if told is None:
            told = statement
            for old, other in self._breaks.items():
                if old in told:
                    told = told.replace(old, other)
            self._known[statement] = told
        if isinstance(values, list):
            self.raw.executemany(told, values)
            return _Result([])
        cursor = self.raw.execute(told, values)
        if cursor.description is None:
            return _Result([])
        make = self._rows.get(told)
        if make is None:
            names = [each[0].rpartition(".")[2] for each in cursor.description]
            make = self._rows[told] = namedtuple("Row", names, rename=True)._make
        return _Result(map(make, cursor))

    def get_execution_options(self) -> Mapping[str, Any]:
        """Counters are gathered, and looked at by other tests."""
        return {"roq_counts": Deltas()}


class _Result(list[Any]):
    """Rows, as SQLAlchemy gives them."""

    def all(self) -> _Result:
        return self

    def first(self) -> Any:
        return self[0] if self else None

    def one(self) -> Any:
        (row,) = self
        return row

    def scalar(self) -> Any:
        return self[0][0] if self else None

    def scalar_one(self) -> Any:
        return self.one()[0]


@dataclass
class Explored:
    """What there is."""

    states: int = 0
    steps: int = 0


class JobModel:
    """Explores a plan.

    Args:
        plan: what.
        breaks: text of SQL → what stands there instead: a rule that is left out.
    """

    def __init__(self, plan: Plan, breaks: Mapping[str, str] | None = None) -> None:
        self.plan = plan
        self.found = Explored()
        self._link = _Connection(breaks or {})
        self._database = JobDatabase("model.db", clock=lambda: NOW)
        self._store = JobStore(self._database, jitter=lambda: 0.0)
        self._instances = JobInstances(self._store)
        self._at: Any = self._link
        self._numbers: dict[object, int] = {}
        self._next: list[list[int]] = []
        self._done: set[int] = set()
        self._way: list[str] = []
        self._ways: list[str] = []

    def explore(self) -> Explored:
        """Go everywhere.

        Raises:
            Broken: a promise does not hold.
        """
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + 10 * DEPTH_MAX)
        try:
            self._visit(self._begin())
            self._nobody_is_stuck()
        finally:
            sys.setrecursionlimit(limit)
            self._link.raw.close()
        return self.found

    def _begin(self) -> World:
        at, plan = self._at, self.plan
        facts = TypeFacts(KIND, 1, True, TypeLimits(cluster_limit=plan.limit))
        self._instances.declare(at, [facts])
        ids = [self._register() for _ in range(plan.instances)]
        told = [self._store.submit(at, [new(KIND, **each)], sent=plan.queue)[0]
                for each in plan.jobs]  # fmt: skip
        messages = [(each.id, 1) for each in told if each.ready] if plan.queue else []
        return World(
            tuple(map(Instance, ids)), frozenset(), tuple(sorted(messages)), (), (), plan.troubles
        )

    def _register(self) -> int:
        return self._instances.register(self._at, "i", 1, self.plan.threads, [KIND])

    # --- everywhere -------------------------------------------------------------------------------

    def _visit(self, world: World) -> int:
        rows = self._rows()
        self._check(world, rows)
        key = self._key(world, rows)
        number = self._numbers.get(key)
        if number is not None:
            return number
        number = self._numbers[key] = len(self._next)
        self._next.append([])
        self._ways.append(" → ".join(self._way[-30:]))
        self.found.states += 1
        if all(row[1] not in OPEN for row in rows[0]):
            self._done.add(number)
            if not any(each.runs for each in world.instances):
                return number
        if len(self._way) > DEPTH_MAX:
            raise Broken("it has no end")
        for step in list(self._steps(world, rows)):
            raw = self._link.raw
            raw.execute(f"SAVEPOINT s{len(self._way)}")
            self._way.append(step.name)
            self.found.steps += 1
            try:
                after = step.do()
                if step.trouble:
                    after = after._replace(troubles=after.troubles - 1)
                follows = self._visit(after)
            except Broken as broken:
                if broken.args and broken.args[0].startswith("after "):
                    raise
                raise Broken(f"after {' → '.join(self._way)}: {broken}") from None
            finally:
                self._way.pop()
                raw.execute(f"ROLLBACK TO s{len(self._way)}")
                raw.execute(f"RELEASE s{len(self._way)}")
            if not step.trouble:
                self._next[number].append(follows)
        return number

    def _nobody_is_stuck(self) -> None:
        """From each state all jobs can end, if there is no more trouble."""
        before: list[list[int]] = [[] for _ in self._next]
        for one, others in enumerate(self._next):
            for each in others:
                before[each].append(one)
        fine, todo = set(self._done), list(self._done)
        while todo:
            for each in before[todo.pop()]:
                if each not in fine:
                    fine.add(each)
                    todo.append(each)
        for number, way in enumerate(self._ways):
            if number not in fine:
                raise Broken(f"after {way}: a job is stuck")

    def _rows(self) -> tuple[list[Any], list[Any], list[Any]]:
        raw = self._link.raw
        return (
            raw.execute(
                "SELECT id, status, held, token, owner, dispatched > 0, failures, timeouts, losses,"
                " key FROM job ORDER BY id"
            ).fetchall(),
            raw.execute(
                "SELECT id, expires <= ?, dead, wants FROM job_instance ORDER BY id", (NOW,)
            ).fetchall(),
            raw.execute("SELECT number, owner FROM job_slot ORDER BY number").fetchall(),
        )

    def _key(self, world: World, rows: tuple[list[Any], list[Any], list[Any]]) -> object:
        """The state, in which instances have no numbers of their own."""
        jobs, instances, slots = rows
        ids = {row[0] for row in instances} | {each.id for each in world.instances}
        ids |= {row[4] for row in jobs} | {row[1] for row in slots} | {v[2] for v in world.valid}
        order: dict[int | None, int] = {
            each: at for at, each in enumerate(sorted(ids - {None}), start=1)
        }
        order[None] = 0
        return (
            tuple((*row[:4], order[row[4]], *row[5:9]) for row in jobs),
            tuple((order[row[0]], *row[1:]) for row in instances),
            tuple(order[owner] for _, owner in slots),
            # Which of the processes is which makes no difference.
            tuple(
                sorted(
                    (
                        order[each.id], each.unsure, each.late, each.short,
                        tuple(sorted((run.id, run.token) for run in each.runs)),
                    )
                    for each in world.instances
                )
            ),
            tuple(sorted(order[each] for each in world.gone if each in order)),
            world.messages,
            world.highest,
            world.troubles,
        )  # fmt: skip

    def _check(self, world: World, rows: tuple[list[Any], list[Any], list[Any]]) -> None:
        runs = {(row[0], row[3], row[4]) for row in rows[0] if row[1] == JobStatus.RUNNING}
        if runs != set(world.valid):
            raise Broken(f"{runs} run, and {set(world.valid)} ought to")
        if self.plan.limit is not None and len(world.valid) > self.plan.limit:
            raise Broken(f"{len(world.valid)} jobs run, the limit is {self.plan.limit}")
        keys = {row[0]: row[9] for row in rows[0] if row[9] is not None}
        running = [keys[job] for job, _, _ in world.valid if job in keys]
        if len(set(running)) < len(running):
            raise Broken("two jobs of one key run")

    # --- what can happen --------------------------------------------------------------------------

    def _steps(self, world: World, rows: tuple[list[Any], ...]) -> Iterator[Step]:
        jobs, instances, _ = rows
        waiting = any(row[1] == JobStatus.CREATED and not row[2] for row in jobs)
        told = {row[0]: row[3] for row in instances}
        for at, each in enumerate(world.instances):
            yield from self._of_instance(world, at, waiting=waiting)
            if each.late or each.short != (told.get(each.id) not in {None, "[]"}):
                yield Step(f"{at} renews itself", lambda at=at: self._renew(world, at))
        if any(row[1] or row[2] for row in instances):
            yield Step("the dead are buried", lambda: self._reap(world))
        if any(row[2] == "later" for row in jobs):
            yield Step("what is due is let go", lambda: self._due(world))
        if self.plan.queue:
            if any(row[1] == JobStatus.CREATED and not row[2] and not row[5] for row in jobs):
                yield Step("what is unsent is sent", lambda: self._send(world, before=1))
            if not world.messages and waiting:
                yield Step("what is lost is sent again", lambda: self._send(world, before=NOW + 1))
        if world.troubles:
            yield from self._troubles(world)

    def _of_instance(self, world: World, at: int, *, waiting: bool) -> Iterator[Step]:
        me = world.instances[at]
        if me.unsure:
            # It claims nothing before (`JobWorker._commit`).
            yield Step(f"{at} gives back", lambda: self._give_back(world, at))
        room = len(me.runs) < self.plan.threads and not me.unsure
        if self.plan.queue:
            for message in sorted(set(world.messages)):
                if room:
                    yield Step(f"{at} gets {message}", lambda m=message: self._claim(world, at, m))
        elif not me.unsure and ((waiting and room) or self.plan.limit is not None):
            yield Step(f"{at} claims", lambda: self._claim(world, at))
        for run in me.runs:
            done = f"{at} ends run {run.token} of {run.id}"
            yield Step(done, lambda run=run: self._finish(world, at, run, RunEnd.DONE))

    def _troubles(self, world: World) -> Iterator[Step]:
        """Those of the plan's kinds."""
        for at in range(len(world.instances)):
            for kind, name, do in (*self._of_process(world, at), *self._of_runs(world, at)):
                if kind in self.plan.kinds:
                    yield Step(name, do, trouble=True)
        for kind, name, do in self._of_all(world):
            if kind in self.plan.kinds:
                yield Step(name, do, trouble=True)

    def _of_process(self, world: World, at: int) -> Iterator[Trouble]:
        me = world.instances[at]
        yield "crash", f"{at} is killed", lambda: self._crash(world, at)
        yield "leave", f"{at} leaves", lambda: self._leave(world, at)
        if not me.late:
            yield "pause", f"{at} stands still", lambda: self._pause(world, at)
        if len(me.runs) < self.plan.threads and not me.unsure and not self.plan.queue:
            unheard = f"{at} claims, and is not told"
            yield "unknown", unheard, lambda: self._claim(world, at, told=False)

    def _of_runs(self, world: World, at: int) -> Iterator[Trouble]:
        for run in world.instances[at].runs:
            name = f"{at} ends run {run.token} of {run.id}"
            for kind, end in (("raise", RunEnd.RAISED), ("stop", RunEnd.STOPPED)):
                yield (
                    kind, f"{name} as {end}",
                    lambda run=run, end=end: self._finish(world, at, run, end),
                )  # fmt: skip
            yield (
                "unknown", f"{name}, and is not told",
                lambda run=run: self._finish(world, at, run, RunEnd.DONE, told=False),
            )  # fmt: skip

    def _of_all(self, world: World) -> Iterator[Trouble]:
        for job, _, _ in world.valid:
            yield "late", f"{job} is late", lambda job=job: self._late(world, job)
        for message in sorted(set(world.messages)):
            both = tuple(sorted((*world.messages, message)))
            yield "loss", f"{message} is lost", lambda m=message: _without(world, m)
            yield "double", f"{message} comes twice", lambda m=both: world._replace(messages=m)

    def _claim(
        self, world: World, at: int, message: tuple[int, int] | None = None, *, told: bool = True
    ) -> World:
        me, store, link = world.instances[at], self._store, self._at
        most = self.plan.threads - len(me.runs)
        limit = self.plan.limit
        if limit is not None:
            peers = self._instances.look(link, me.id).peers
            users, hungry = ([each.id for each in peers if each.types],
                             [each.id for each in peers if each.wants])  # fmt: skip
            most = max(0, min(most, lent(limit, users, hungry, me.id, KIND) - len(me.runs)))
        wants = [Want(KIND, most, SPAN, limited=limit is not None, running=len(me.runs))]
        looked: list[ReadyJob] = []
        if message is None:
            jobs = store.candidates(link, wants, most)
        else:
            named = [ReadyJob(DEFAULT, *message, KIND)]
            looked, jobs = JobWorker._chosen(SimpleNamespace(_store=store), link, named, wants)  # type: ignore[arg-type]
        claims = store.claim(link, me.id, wants, jobs, JobPlaces(most))
        asked = {job: token for job, token, _ in jobs}
        valid, highest = {each[0]: each for each in world.valid}, dict(world.highest)
        for run in claims.runs:
            if run.id in valid:
                raise Broken(f"two valid runs of {run.id}")
            if run.token != asked[run.id] + 1:
                raise Broken(f"a message about {asked[run.id]} has begun run {run.token}")
            if run.token <= highest.get(run.id, 0):
                raise Broken(f"the token of {run.id} does not rise")
            valid[run.id] = (run.id, run.token, me.id)
            highest[run.id] = run.token
        settled = [job for job in looked if job[1:3] not in claims.passed]
        if message is not None and settled:
            world = _without(world, message)
        runs = (*me.runs, *claims.runs) if told else me.runs
        me = me._replace(runs=runs, unsure=me.unsure or not told, short=bool(claims.short))
        return _with(world, at, me)._replace(
            valid=tuple(sorted(valid.values())), highest=tuple(sorted(highest.items()))
        )

    def _finish(
        self, world: World, at: int, run: Claimed, end: RunEnd, *, told: bool = True
    ) -> World:
        me = world.instances[at]
        trouble = TROUBLE if end is RunEnd.RAISED else None
        ended = [Ended(run, end, 0, trouble=trouble)]
        hit = bool(self._store.finish(self._at, me.id, ended, "i"))
        this = [each for each in world.valid if each == (run.id, run.token, me.id)]
        if hit and not this:
            raise Broken(f"the end of run {run.token} of {run.id}, which is outdated, was taken")
        if this and not hit:
            raise Broken(f"the end of run {run.token} of {run.id}, which is valid, was refused")
        world = world._replace(valid=tuple(each for each in world.valid if each not in this))
        if told:
            me = me._replace(runs=tuple(each for each in me.runs if each != run))
        return _with(world, at, me)

    def _give_back(self, world: World, at: int) -> World:
        me = world.instances[at]
        known = {(run.id, run.token) for run in me.runs}
        self._instances.give_back(self._at, me.id, known)
        world = _with(world, at, me._replace(unsure=False))
        return self._ended(world, lambda each: each[2] == me.id and each[:2] not in known)

    def _renew(self, world: World, at: int) -> World:
        me = world.instances[at]
        alive = self._instances.renew(self._at, me.id, [KIND] * me.short)
        dead = self._link.raw.execute(
            "SELECT 1 FROM job_instance WHERE id = ? AND dead = 0", (me.id,)
        ).fetchone()
        if alive != (dead is not None):
            raise Broken(f"{at} takes itself for alive, and is dead")
        if alive:
            return _with(world, at, me._replace(late=False))
        # It is another one from now on; its threads go on for a while.
        return _with(
            world, at, Instance(self._register(), me.runs)
        )._replace(gone=world.gone | {me.id})  # fmt: skip

    def _reap(self, world: World) -> World:
        self._instances.reap(self._at)
        late = {each.id for each in world.instances if each.late} | world.gone
        return self._ended(world, lambda each: each[2] in late)

    def _late(self, world: World, job: int) -> World:
        self._link.raw.execute("UPDATE job SET started = 1, deadline = 1 WHERE id = ?", (job,))
        self._instances.end_late(self._at)
        return self._ended(world, lambda each: each[0] == job)

    def _ended(self, world: World, may: Callable[[tuple[int, int, int]], bool]) -> World:
        """Others have ended runs: those that they may."""
        runs = {(row[0], row[3], row[4]) for row in self._rows()[0] if row[1] == JobStatus.RUNNING}
        for each in world.valid:
            if each not in runs and not may(each):
                raise Broken(f"run {each[1]} of {each[0]} was ended, whose owner lives")
        return world._replace(valid=tuple(each for each in world.valid if each in runs))

    def _crash(self, world: World, at: int) -> World:
        me = world.instances[at]
        self._expire(me.id)
        return _with(world, at, Instance(self._register()))._replace(gone=world.gone | {me.id})

    def _pause(self, world: World, at: int) -> World:
        me = world.instances[at]
        self._expire(me.id)
        return _with(world, at, me._replace(late=True))

    def _leave(self, world: World, at: int) -> World:
        """It ends in order, though a thread of it may not."""
        me = world.instances[at]
        self._instances.leave(self._at, me.id)
        self._expire(me.id)
        return _with(world, at, Instance(self._register()))._replace(gone=world.gone | {me.id})

    def _expire(self, id_: int) -> None:
        self._link.raw.execute("UPDATE job_instance SET expires = 1 WHERE id = ?", (id_,))

    def _due(self, world: World) -> World:
        self._link.raw.execute("UPDATE job SET due = 1 WHERE held = 'later'")
        self._store.release_due(self._at)
        return world

    def _send(self, world: World, *, before: int) -> World:
        ready = self._store.unsent(self._at, KIND, DEFAULT, before=before)
        told = [(each.id, each.token) for each in ready]
        return world._replace(messages=tuple(sorted((*world.messages, *told))))


def _with(world: World, at: int, me: Instance) -> World:
    instances = list(world.instances)
    instances[at] = me
    return world._replace(instances=tuple(instances))


def _without(world: World, message: tuple[int, int]) -> World:
    left = list(world.messages)
    left.remove(message)
    return world._replace(messages=tuple(left))


def plan(**given: Any) -> Plan:
    """A plan that differs from the usual one."""
    kinds = given.pop("kinds", "").split()
    return replace(Plan(**given), kinds=frozenset(kinds))
