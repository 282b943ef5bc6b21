"""The program of a process that runs handlers of an instance.

It belongs to one instance, and ends with it: the kernel ends it, and all of its group, when the
instance's end of a pipe is closed, and it ends itself when that of the socket is.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing import spawn
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from roq.jobs.child_messages import (
    BYTES_MAX,
    BeginRun,
    ChildOrder,
    ChildReady,
    ChildReport,
    ChildSetup,
    EndSaid,
    FinishSaid,
    PlaceSaid,
)
from roq.jobs.jobs import Jobs
from roq.jobs.rows import Body, Claimed, Ended, Trouble
from roq.jobs.run import Job, execute, told
from roq.jobs.schedules import JobSchedules
from roq.jobs.states import RunEnd
from roq.jobs.types import JobType, Unreadable

_orders: Final[msgspec.msgpack.Decoder[ChildOrder]] = msgspec.msgpack.Decoder(ChildOrder)
PLACE_SECONDS: Final = 0.2
"""Between two looks at how far a run is."""


class _ChildJob(Job):
    """Tells the instance before its row becomes a transaction's of the handler."""

    def __init__(self, *args: Any, tell: Callable[[ChildReport], None]) -> None:
        super().__init__(*args)
        self._tell = tell

    def finish(self, result: object = None, *, connection: sa.Connection) -> None:
        """As in `Job`."""
        key = (self.id, self.token)
        self._tell(FinishSaid(key, True))
        try:
            super().finish(result, connection=connection)
        finally:
            self._tell(FinishSaid(key, self.finished))


class ChildRunner:
    """Runs what it is told to, one after the other, in the process's main thread.

    Args:
        connection: to the instance.
        gone: called when the instance is; does not return in a process.
    """

    def __init__(self, connection: Connection, gone: Callable[[], None]) -> None:
        self._connection = connection
        self._gone = gone
        self._sending = threading.Lock()
        self._begins: queue.SimpleQueue[BeginRun | None] = queue.SimpleQueue()
        self._job: Job | None = None
        self._busy = False
        self._stop: RunEnd | None = None
        self._place = 0
        self._process = os.getpid()

    def run(self) -> None:
        """Run handlers until the instance is gone."""
        self._tell(ChildReady())
        threading.Thread(target=self._listen, name="roq-job-orders", daemon=True).start()
        while (begin := self._begins.get()) is not None:
            self._one(begin)

    def _one(self, begin: BeginRun) -> None:
        run = begin.run
        try:
            kind, jobs = found(begin.module, begin.name, run.type)
        except Unreadable as error:
            ended = Ended(run, RunEnd.REFUSED, run.saved, trouble=told(error))
        else:
            job = _ChildJob(
                run, kind, _finisher(jobs, begin.owner, begin.instance),
                JobSchedules(jobs.store, jobs.instances).time_of, tell=self._tell,
            )  # fmt: skip
            self._place = run.saved
            self._job = job
            # An order to stop that came before has found no job.
            job.stop = self._stop
            ended = execute(kind, job)
            self._job = None
        self._stop, self._busy = None, False
        key, copy = (run.id, run.token), os.getpid() != self._process
        trouble = _FORKED if copy else ended.trouble
        end = RunEnd.RAISED if copy else ended.end
        if copy:
            self._sending = threading.Lock()  # whoever held it is not in the copy
        self._tell(EndSaid(key, end, ended.saved, None if copy else ended.result, trouble, copy))
        if copy:
            os._exit(0)

    def _tell(self, report: ChildReport) -> None:
        try:
            with self._sending:
                self._connection.send_bytes(msgspec.msgpack.encode(report))
        except OSError:
            self._gone()

    def _listen(self) -> None:
        try:
            while True:
                while not self._connection.poll(PLACE_SECONDS if self._busy else None):
                    self._say_place()
                order = _orders.decode(self._connection.recv_bytes(BYTES_MAX))
                if isinstance(order, BeginRun):
                    self._stop, self._busy = None, True
                    self._begins.put(order)
                else:
                    self._stop = order.why
                    if self._job is not None:
                        self._job.stop = order.why
        except (OSError, EOFError, msgspec.MsgspecError):
            self._begins.put(None)
            self._gone()

    def _say_place(self) -> None:
        job = self._job
        if job is not None and job.place != self._place:
            self._place = job.place
            self._tell(PlaceSaid((job.id, job.token), self._place))


_FORKED: Final = Trouble(
    "its handler has forked, and the copy came out of it: let a copy end by os._exit, or use"
    " subprocess",
    fingerprint="forked",
)


def found(module: str, name: str, kind: str) -> tuple[JobType[Any], Jobs]:
    """The type and the `Jobs` that it belongs to.

    Raises:
        Unreadable: it cannot be found; says why.
    """
    try:
        at: Any = importlib.import_module(module)
        for part in name.split("."):
            at = getattr(at, part)
    except BaseException as error:  # noqa: BLE001 - a module may raise anything
        said = f"{type(error).__name__}: {error}"
        raise Unreadable(f"its process finds no handler {module}:{name}: {said}") from None
    at = getattr(at, "sync", at)  # of `roq.aio`
    if not isinstance(at, JobType) or at.name != kind or not isinstance(at.jobs, Jobs):
        raise Unreadable(
            f"its process finds at {module}:{name} no handler of type {kind}: it is to be what"
            " `@jobs.type(…)` has made there"
        )
    return at, at.jobs


def _finisher(jobs: Jobs, owner: int, instance: str) -> Callable[..., bool]:
    def finish(run: Claimed, saved: int, result: Body | None, connection: sa.Connection) -> bool:
        ended = Ended(run, RunEnd.DONE, saved, result)
        return bool(jobs.store.finish(connection, owner, [ended], instance, foreign=True))

    return finish


def main(text: str) -> None:
    """The program of the process.

    Args:
        text: `ChildSetup` as JSON.
    """
    setup = msgspec.json.decode(text, type=ChildSetup)
    die_with(setup.parent, setup.lifeline)
    os.set_inheritable(setup.descriptor, False)
    # A Ctrl-C and a service manager reach it as well; what becomes of a run the instance decides.
    # Not ignored: that would go on to the programs that handlers start.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: None)
    Jobs.may_work = False
    sys.argv = list(setup.argv)
    if setup.main:
        prepare(setup.main)
    ChildRunner(Connection(setup.descriptor), leave).run()


def prepare(program: Mapping[str, str]) -> None:
    """Import the main program under another name, so that it does not begin anew."""
    spawn.prepare(dict(program))


def leave() -> None:
    """EndSaid this process and what its handlers have started."""
    os.killpg(0, signal.SIGKILL)


def die_with(parent: int, lifeline: int) -> None:
    """Have the kernel end this process, and what its handlers start, when the instance is gone.

    Args:
        parent: process id of the instance.
        lifeline: a pipe into which nobody writes; the instance has its other end.
    """
    os.set_inheritable(lifeline, False)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    if os.getppid() != parent:
        os._exit(1)
