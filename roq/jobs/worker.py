"""An instance: claims jobs, has them run, and writes down how they end.

One thread does all that is SQL. What its jobs have ended meanwhile, and what it claims anew, goes
into one transaction: idle that is one job at once, under load as many as came during the commit
before, and in the few milliseconds until each has had its thread. So the disk syncs once for all.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from time import monotonic
from typing import Any, Final, Protocol

import msgspec
import sqlalchemy as sa

from roq.client.io.naming import client_name
from roq.errors import Unavailable
from roq.jobs.database import JobDatabase
from roq.jobs.held import BLOCK
from roq.jobs.instances import DOUBT_SECONDS, RENEW_SECONDS, TIDY_MAX, JobInstances
from roq.jobs.limits import lent
from roq.jobs.pool import RunLoop, Running, RunThreads
from roq.jobs.processes import START_SECONDS, JobProcesses
from roq.jobs.room import JobPlaces, JobRoom, RunTimes
from roq.jobs.rows import Body, Claimed, Claims, Ended, Look, ReadyJob, Trouble, Want
from roq.jobs.run import Job, unbegun
from roq.jobs.schedules import JobSchedules, NewSchedule
from roq.jobs.states import JobStatus, RunEnd, StaleReason
from roq.jobs.store import JobStore
from roq.jobs.types import JobKind, JobType
from roq.jobs.watch import ChangeWatch, Ticker
from roq.runtime.backoff import Backoff
from roq.runtime.signals import SignalEvent

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""Between two looks at switches, orders, due times and other instances."""
TIDY_SECONDS: Final = 60.0
GRACE_SECONDS: Final = 30.0
"""For jobs to stop, when the instance ends."""
HEAP_SECONDS: Final = 1.0
"""So long may a run that was claimed wait for a thread: then another instance may have it."""
_START_MICROSECONDS: Final = int(START_SECONDS * 1_000_000) // 2
"""Half of what a process may take to start until others end its run."""
_WAIT_MICROSECONDS: Final = int((HEAP_SECONDS + LOOK_SECONDS) * 1_000_000)


class Messages(Protocol):
    """Where an instance hears of jobs beside the database: a queue."""

    @property
    def connected(self) -> bool:
        """Whether it does so now."""
        ...

    def take(self, wants: Iterable[Want]) -> list[ReadyJob]:
        """Jobs of each type that might be claimed, by priority; never waits."""
        ...

    def settle(self, jobs: Iterable[ReadyJob]) -> None:
        """These were claimed, or are not to be claimed, and that is committed: acknowledge them."""
        ...

    def look(self, look: Look) -> None:
        """Twice a second: send what was not sent, or is lost."""
        ...

    def close(self) -> None:
        """Give back what was not looked at."""
        ...


class WorkerStats(msgspec.Struct):
    """What an instance has done so far."""

    claimed: int = 0
    complete: int = 0
    other: int = 0
    """Runs that ended otherwise, and were written down."""
    outdated: int = 0
    """Runs whose end was refused: they were not the valid ones any more."""
    stale: Counter[StaleReason] = msgspec.field(default_factory=Counter)
    """Messages of a queue about jobs that were not to be claimed any more, by why."""


class JobWorker:
    """One instance. `run` works until `stop`; made by `Jobs.worker`.

    Args:
        store, instances: the SQL, with connections of the instance's own; closed in the end.
        types: those that it runs, by name.
        threads: jobs that it runs at once.
        name: by which people find it; None: program, host and process id.
        grace: seconds for jobs to stop when it ends.
        changed: told when runs have ended.
        messages: makes what hears of jobs by a queue, from what it calls when there may be some.
        schedules: that it declares when it begins. It fires all that there are.
        fired: tells handlers for which time of a schedule a run was submitted, over connections
            that are theirs; None: over the instance's own.
        loop: the event loop of the program, in which coroutines run; None: one of its own.
    """

    def __init__(
        self,
        store: JobStore,
        instances: JobInstances,
        types: Mapping[str, JobType[Any]],
        *,
        threads: int = 8,
        name: str | None = None,
        grace: float = GRACE_SECONDS,
        changed: Callable[[], None] | None = None,
        messages: Callable[[Callable[[], None]], Messages] | None = None,
        schedules: Sequence[NewSchedule] = (),
        fired: Callable[[Claimed], int | None] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.name = client_name(name)
        self.stats = WorkerStats()
        self.times = RunTimes()
        self.id = 0
        self._store = store
        self._database = store.database
        self._instances = instances
        self._schedules = JobSchedules(store, instances)
        self._declared = schedules
        self._fired = fired or self._schedules.time_of
        self._types = dict(types)
        self._number = threads
        self._grace = grace
        self._changed = changed
        self._messages = None if messages is None else messages(self.hint)
        self._running: dict[tuple[int, int], Running] = {}
        self._ended: deque[tuple[Running, Ended]] = deque()
        self._wake = SignalEvent()
        self._more = True
        """There may be something to claim."""
        self._stopping = False
        self._look: Look | None = None
        self._looked = self._renewed = self._tidied = float("-inf")
        self._unsure = False
        """A commit has failed, and may have claimed something nevertheless."""
        self._room = JobRoom(threads)
        self._short = self._told_short = frozenset[str]()
        self._written_places: dict[tuple[int, int], int] = {}
        self._loop: RunLoop | None = None
        self._programs_loop = loop
        self._away = Backoff(store.jitter, most=2.0, first=0.2)
        self._stuck = False

    # --- life -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until `stop` is called.

        Raises:
            ConfigError: SQLite, and another host uses the file.
            Unavailable: the database cannot be reached in the beginning; or so many jobs do not end
                at their time limits that the process has to be started again.
        """
        with ExitStack() as open_:
            open_.callback(self._database.close)
            if not self.id:
                self.enter()
            self._processes = self._process_pool()
            self._threads = RunThreads(self._number, self._done, self._processes)
            open_.callback(self._threads.close)
            if self._processes is not None:
                open_.callback(self._processes.close)
            watch = ChangeWatch(self._database, self._committed)
            open_.callback(watch.close)
            # Its own thread waits for the database, and that may be what does not answer.
            open_.callback(Ticker(LOOK_SECONDS, self._doubt).close)
            if self._messages is not None:
                open_.callback(self._messages.close)
            while not self._stopping:
                self._wake.take(self._turn())
                self._threads.wait_begun()
            self._drain()
            if self._loop is not None:
                self._loop.close()
        if self._stuck:
            raise Unavailable(
                f"instance {self.name} has too many jobs that do not stop at their time limits: "
                "start the process again"
            )

    def _process_pool(self) -> JobProcesses | None:
        """Processes, if a handler wants some."""
        theirs = [each for each in self._types.values() if each.kind is JobKind.PROCESS]
        if not theirs:
            return None
        return JobProcesses(self.name, main=any(each.address[0] == "__main__" for each in theirs))

    def enter(self) -> None:
        """Enter the instance into the database; `run` does, if nobody has.

        Raises:
            ConfigError, Unavailable: as `run`.
        """
        try:
            self._enter()
        except BaseException:
            self._database.close()
            raise

    def stop(self) -> None:
        """End: interrupt what runs, and give back what was not begun. From any thread."""
        self._stopping = True
        self._wake.set()

    @property
    def running(self) -> int:
        """Runs that it has."""
        return len(self._running)

    @property
    def threads(self) -> int:
        """Jobs that it runs at once."""
        return self._number

    @property
    def sure(self) -> bool:
        """Whether it has renewed itself lately, so that others know that it lives."""
        return monotonic() - self._renewed <= DOUBT_SECONDS

    @property
    def _by_queue(self) -> bool:
        """Whether it hears of jobs by the queue now."""
        look, messages = self._look, self._messages
        return bool(look and look.dispatch == "queue" and messages and messages.connected)

    def hint(self) -> None:
        """There may be something to claim; from any thread."""
        self._more = True
        self._wake.set()

    def _committed(self) -> None:
        """Somebody has committed something; by a queue this instance will hear of what it was."""
        if not self._by_queue:
            self.hint()

    def _done(self, running: Running, ended: Ended) -> None:
        """A run has ended, in the thread that has run it."""
        self._ended.append((running, ended))
        self._wake.set()

    def _enter(self) -> None:
        with self._database.write() as connection:
            self._instances.declare(connection, (each.facts for each in self._types.values()))
            entered = self._instances.register(
                connection, self.name, os.getpid(), self._number, sorted(self._types)
            )
            self._schedules.declare(connection, self._declared, self.name)
        self.id = entered  # not before it is committed: SQLite gives it to another one else
        self._renewed = monotonic()
        log.info("instance %s runs jobs", self.name, extra={"event": "jobs_instance"})

    def _drain(self) -> None:
        """The ordered end: what was not begun goes back, what runs is interrupted and awaited."""
        self._take_back()
        self._interrupt(self._running.values(), RunEnd.STOPPED)
        until = monotonic() + self._grace
        while self._running and monotonic() < until:
            self._wake.take(self._turn())
            self._wake.take(0 if self._ended else min(LOOK_SECONDS, max(0.0, until - monotonic())))
        if self._processes is not None and self._running:
            self._processes.close()
            until = monotonic() + LOOK_SECONDS
            while self._running and monotonic() < until:
                self._wake.take(min(LOOK_SECONDS, self._turn()))
        try:
            with self._database.write() as connection:
                self._instances.leave(connection, self.id)
        except Unavailable as error:
            # Others take it for dead when it has not renewed itself.
            log.warning("instance %s: %s", self.name, error, extra={"event": "jobs_away"})
        left = len(self._running)
        if left:
            log.warning(
                "instance %s ends with %s jobs that did not stop in %s s",
                self.name, left, self._grace, extra={"event": "jobs_left"},
            )  # fmt: skip

    # --- one turn ---------------------------------------------------------------------------------

    def _turn(self) -> float:
        """Do what there is to do; gives the seconds after which it is done again at the latest."""
        try:
            try:
                if monotonic() - self._looked >= LOOK_SECONDS:
                    self._see()
            finally:
                # Whatever keeps others' jobs from being released is no reason to keep these.
                self._commit()
        except Unavailable as error:
            log.warning("instance %s: %s", self.name, error, extra={"event": "jobs_away"})
            return max(0.05, self._away.wait())
        self._away.reset()
        return 0.0 if self._ended else LOOK_SECONDS

    def _doubt(self) -> None:
        """The database is away: before others take this instance for dead, its jobs stop.

        In a thread of its own.
        """
        if monotonic() - self._renewed > DOUBT_SECONDS:
            self._interrupt(self._running.copy().values(), RunEnd.LOST)

    def _commit(self) -> None:
        """One transaction: what has ended, and what is claimed."""
        ended = self._take_ended()
        # What has ended has no place any more: others are claimed with its end.
        over = {(each.run.id, each.run.token) for _, each in ended}
        going = [each for key, each in self._running.items() if key not in over]
        places = self._places(going)
        wants = self._wants(places, going)
        most = max((want.most for want in wants), default=0)
        look, messages, by_queue = self._look, self._messages, self._by_queue
        named = messages.take(wants) if messages is not None and by_queue else []
        more = self._more and not by_queue and most > 0
        # Slots that are not needed are given back.
        freed = bool(ended or self._more) and any(each.limited for each in wants)
        # What may have been claimed unheard is given back first: it has slots, too.
        claim = (bool(named) or more or freed) and not self._unsure
        if not ended and not claim:
            return
        self._more = False
        claims = Claims()
        jobs: list[tuple[int, int, str]] = []
        looked: list[ReadyJob] = []
        stale: Mapping[StaleReason, int] = {}
        try:
            with self._store.write() as connection:
                checked = [
                    checked_end(self._database, connection, running.job, end)
                    for running, end in ended
                ]
                hit = self._store.finish(
                    connection, self.id, checked, self.name,
                    retries={
                        name: each.retries for name, each in (look.limits if look else {}).items()
                    },
                )  # fmt: skip
                if any(running.job.finished for running, _ in ended):
                    self._store.release_left(connection)
                if claim and by_queue:
                    looked, jobs = self._chosen(connection, named, wants)
                elif claim:
                    jobs = self._store.candidates(connection, wants, most)
                if claim:
                    claims = self._store.claim(connection, self.id, wants, jobs, places)
                    looked = [job for job in looked if job[1:3] not in claims.passed]
                    stale = self._store.why_stale(connection, looked, claims.runs)
        except Unavailable:
            self._ended.extendleft(reversed(ended))
            self._more = True
            self._unsure = self._unsure or claim
            raise
        self._more = self._more or len(claims.runs) < len(jobs) or len(jobs) >= most > 0
        if messages is not None and looked:
            messages.settle(looked)
            self.stats.stale.update(stale)
        self._short = claims.short
        self._written(ended, hit)
        self._begin(claims.runs)

    def _chosen(
        self, connection: sa.Connection, named: list[ReadyJob], wants: list[Want]
    ) -> tuple[list[ReadyJob], list[tuple[int, int, str]]]:
        """Which messages are acted upon, and the jobs (id, token, type) to claim.

        A message waits while a job of a higher priority does, of any type that is wanted, whose own
        message may not have come here: that job is taken from the database.
        """
        lowest = max((job.priority for job in named), default=0)
        first = {
            want.type: self._store.first_priority(connection, want.type, lowest)
            for want in wants
            if want.most > 0
        }
        best = min((each for each in first.values() if each is not None), default=lowest)
        looked = [job for job in named if job.priority <= best]
        jobs = [(job.id, job.token, job.type) for job in looked]
        if len(looked) < len(named):
            found = self._store.candidates(connection, wants, max(want.most for want in wants))
            jobs += [each for each in found if each not in jobs]
        return looked, jobs

    def _take_ended(self) -> list[tuple[Running, Ended]]:
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def _written(self, ended: list[tuple[Running, Ended]], hit: set[tuple[int, int]]) -> None:
        """The ends are committed: threads and slots of these runs are free."""
        for running, each in ended:
            self._running.pop((each.run.id, each.run.token), None)
            self._written_places.pop((each.run.id, each.run.token), None)
            if running.began is not None and not running.kind.is_async:
                self._room.ran(running.kind.name, running.seconds)
            seconds = None if running.began is None else running.seconds
            self.times.ended(running.kind.name, each.end, seconds)
            if (each.run.id, each.run.token) not in hit and not running.job.finished:
                self.stats.outdated += 1
            elif each.end is RunEnd.DONE:
                self.stats.complete += 1
            else:
                self.stats.other += 1
        if ended and self._changed is not None:
            self._changed()

    def _begin(self, claimed: Sequence[Claimed]) -> None:
        self.stats.claimed += len(claimed)
        threaded = []
        for run in claimed:
            kind = self._types[run.type]
            running = Running(Job(run, kind, self._finish_in, self._fired), kind, self.id)
            self._running[run.id, run.token] = running
            if kind.is_async:
                if self._loop is None or not self._loop.alive:
                    if self._loop is not None and self._programs_loop is not None:
                        self.stop()  # the program has ended it: nothing runs there any more
                    else:
                        self._loop = RunLoop(self._done, self._programs_loop)
                self._loop.put(running)
            else:
                threaded.append(running)
        self._threads.put(threaded)

    def _finish_in(
        self, run: Claimed, saved: int, result: Body | None, connection: sa.Connection
    ) -> bool:
        """Complete a run in a transaction of the user's."""
        ended = Ended(run, RunEnd.DONE, saved, result)
        return bool(self._store.finish(connection, self.id, [ended], self.name, foreign=True))

    # --- how much is claimed ----------------------------------------------------------------------

    def _places(self, going: Iterable[Running]) -> JobPlaces:
        """What there is room for beside these."""
        if self._stopping or monotonic() - self._renewed > DOUBT_SECONDS:
            return JobPlaces(0)
        now = monotonic()
        return self._room.places(
            (each.kind.name, 0.0 if each.began is None else now - each.began) for each in going
        )

    def _wants(self, places: JobPlaces, going: Iterable[Running]) -> list[Want]:
        look = self._look
        if look is None or not look.on:
            return []
        running = Counter(each.kind.name for each in going)
        return [
            self._want(kind, places, running[kind.name], look)
            for kind in self._types.values()
            if kind.name not in look.off
        ]

    def _want(self, kind: JobType[Any], places: JobPlaces, running: int, look: Look) -> Want:
        ahead = self._room.ahead(kind.name, places)
        most = places.free + ahead - places.short if ahead else places.free
        holds = look.limits.get(kind.name, kind.limits)
        if holds.threads is not None:
            most = min(most, holds.threads - running)
        limit = holds.cluster_limit
        if limit is not None:
            users = [peer.id for peer in look.peers if kind.name in peer.types]
            hungry = [peer.id for peer in look.peers if kind.name in peer.wants]
            most = min(most, lent(limit, users, hungry, self.id, kind.name) - running)
        # Its time begins with the claim, and so do the seconds that it may wait for a thread.
        span = int(holds.time_limit * 1_000_000) + _WAIT_MICROSECONDS // 2
        if kind.kind is JobKind.PROCESS:
            span += _START_MICROSECONDS
        return Want(
            kind.name, max(0, most), span, limited=limit is not None, running=running, ahead=ahead,
            rate=holds.rate,
        )  # fmt: skip

    # --- twice a second ---------------------------------------------------------------------------

    def _see(self) -> None:
        """Look at the database, and do what is due there."""
        with self._database.read() as connection:
            tidy = monotonic() - self._tidied >= TIDY_SECONDS
            look = self._look = self._instances.look(connection, self.id, whole=tidy)
        now = self._looked = monotonic()
        self._more = True
        # Before any dead is buried: it might be this one, whose clock was set forward.
        # What it lacks others learn at once: they are to give it back.
        soon = look.dead or not self._short <= self._told_short
        if (now - self._renewed >= RENEW_SECONDS or soon) and not self._renew():
            return
        for running in list(self._running.values()):
            key = (running.job.id, running.job.token)
            if key in look.interrupt:
                self._interrupt([running], RunEnd.INTERRUPTED)
            elif running.began is not None and now - running.began > self._time_limit(running):
                self._interrupt([running], RunEnd.LIMIT)
        self._take_back(now - HEAP_SECONDS)
        places = self._moved()
        if tidy or places or look.due or look.dead or look.late or self._unsure:
            self._act(look, places, tidy=tidy)
        if look.on and look.fires:
            # Apart from all else: no schedule may keep an instance from renewing itself.
            with self._database.write() as connection:
                self._schedules.fire_due(connection)
        if self._messages is not None:
            self._messages.look(look)
        stuck = sum(_is_stuck(each, now, self._time_limit(each)) for each in self._running.values())
        if stuck > self._number // 2:
            self._stuck = True
            self.stop()

    def _time_limit(self, running: Running) -> float:
        """Seconds that a run may take by now."""
        name = running.kind.name
        known = None if self._look is None else self._look.limits.get(name)
        return (known or running.kind.limits).time_limit

    def _renew(self) -> bool:
        """Say that this instance lives, in a transaction that waits for nobody."""
        began, short = monotonic(), self._short
        with self._database.write() as connection:
            alive = self._instances.renew(connection, self.id, short)
        self._told_short = short
        if alive:
            # From before it was asked: the database's time began no earlier.
            self._renewed = began
        else:
            self._born_again()
        return alive

    def _act(self, look: Look, places: list[tuple[Claimed, int]], *, tidy: bool) -> None:
        began, old = monotonic(), 0
        with self._store.write() as connection:
            if self._unsure or tidy:
                self._instances.give_back(connection, self.id, self._running.keys())
            self._instances.save(connection, self.id, places)
            if look.due and self._store.release_due(connection) >= BLOCK:
                self._looked = -math.inf  # there are more of them: nobody waits for the next look
                self._wake.set()
            if look.dead:
                self._instances.reap(connection)
            if look.late:
                self._instances.end_late(connection)
            if tidy:
                old = self._instances.tidy(connection)
                self._schedules.tidy(connection)
        self._unsure = False
        if tidy and old < TIDY_MAX:
            self._tidied = began

    def _born_again(self) -> None:
        """Others took this instance for dead: its runs are not valid, and it is another one now."""
        log.warning(
            "instance %s was taken for dead: its %s jobs are dropped",
            self.name, len(self._running), extra={"event": "jobs_dead"},
        )  # fmt: skip
        self._interrupt(self._running.values(), RunEnd.LOST)
        self._enter()

    def _take_back(self, before: float = math.inf) -> None:
        """What is not begun, and is to stop or came before that time, is not begun here."""
        for running in self._threads.take_back(before):
            self._done(running, unbegun(running.job))

    def _moved(self) -> list[tuple[Claimed, int]]:
        """Runs that are further than when it was written down last."""
        moved = []
        for key, running in self._running.items():
            place = running.job.place
            if running.job.finished:
                continue  # its row is changed by a transaction of the handler's
            if place != self._written_places.get(key, running.job.run.saved):
                self._written_places[key] = place
                moved.append((running.job.run, place))
        return moved

    def _interrupt(self, runs: Iterable[Running], why: RunEnd) -> None:
        now = monotonic()
        for running in list(runs):
            if running.job.stop is None:
                running.job.stop = why
                running.asked = now
                if self._loop is not None and running.kind.is_async:
                    self._loop.cancel(running)


def _is_stuck(running: Running, now: float, limit: float) -> bool:
    """Whether a run goes on though it was to stop, for as long again as it might take in all."""
    return (
        running.kind.kind is not JobKind.PROCESS
        and running.job.stop not in {None, RunEnd.STOPPED}
        and running.asked is not None
        and now - running.asked > limit
    )


def checked_end(database: JobDatabase, connection: sa.Connection, job: Job, ended: Ended) -> Ended:
    """The end of a run; a handler that has completed its job by itself must have committed that."""
    if not job.finished or ended.end is not RunEnd.DONE:
        return ended
    row = database.run(
        connection,
        "SELECT status, token FROM job WHERE id = :id",
        id=job.id,
    ).first()
    if row is None or row.status != JobStatus.RUNNING or row.token != job.token:
        return ended
    text = "finish() was called, and its transaction was not committed"
    return Ended(
        ended.run, RunEnd.RAISED, ended.saved, trouble=Trouble(text, fingerprint="no commit")
    )
