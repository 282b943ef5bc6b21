"""Where jobs run: threads, and one event loop for coroutines."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import os
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, Protocol

from roq.jobs.rows import Ended
from roq.jobs.run import Job, execute, execute_async, unbegun
from roq.jobs.types import JobKind, JobType

log = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.005
"""So long what has ended waits for what is about to, so that one transaction takes all."""
LOOP_SECONDS: Final = 5.0
"""For the event loop to end."""


class Running:
    """A job that was claimed and whose end is not written down.

    Attributes:
        claimed: when it came here, by the monotonic clock.
        began: when it got a thread; None: it waits for one.
        seconds: how long it took; of one that has ended.
        asked: when it was asked to stop.
        owner: the instance that has claimed it.
    """

    __slots__ = ("asked", "began", "claimed", "job", "kind", "order", "owner", "seconds", "task")

    def __init__(self, job: Job, kind: JobType[Any], owner: int) -> None:
        self.job = job
        self.kind = kind
        self.owner = owner
        self.order = job.run.order
        self.claimed = monotonic()
        self.began: float | None = None
        self.seconds = 0.0
        self.asked: float | None = None
        self.task: asyncio.Task[None] | None = None

    def __lt__(self, other: Running) -> bool:
        return self.order < other.order


Done = Callable[[Running, Ended], None]
"""Called in the thread that has run a job, with its end."""


class Processes(Protocol):
    """Runs handlers in other processes."""

    def run(self, running: Running) -> Ended:
        """Run one; returns when it has ended."""
        ...


class RunThreads:
    """Threads that run jobs, the first in order first.

    Args:
        number: of threads.
        done: takes what has ended.
        processes: for handlers of that kind; None: there are none.
    """

    def __init__(self, number: int, done: Done, processes: Processes | None = None) -> None:
        self._done = done
        self._processes = processes
        self._heap: list[Running] = []
        lock = threading.Lock()
        self._condition = threading.Condition(lock)
        self._begun = threading.Condition(lock)
        """Nothing waits for a thread any more."""
        self._closed = False
        # A handler that never returns must not keep the process from ending.
        self._threads = [
            threading.Thread(target=self._work, name=f"roq-job-{each}", daemon=True)
            for each in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, runs: list[Running]) -> None:
        """Have these run."""
        with self._condition:
            for each in runs:
                heapq.heappush(self._heap, each)
            self._condition.notify(len(runs))

    def wait_begun(self, seconds: float = GATHER_SECONDS) -> None:
        """Wait until each has its thread, or for so long."""
        with self._begun:
            self._begun.wait_for(lambda: not self._heap, seconds)

    def take_back(self, before: float = math.inf) -> list[Running]:
        """Those that were not begun, and are to stop or came before that time; they will not be."""
        with self._condition:
            taken: list[Running] = []
            left: list[Running] = []
            for each in self._heap:
                back = each.claimed < before or each.job.stop is not None
                (taken if back else left).append(each)
            heapq.heapify(left)
            self._heap = left
        return taken

    def close(self) -> None:
        """Let each thread end after its job."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _work(self) -> None:
        process = os.getpid()
        while True:
            with self._condition:
                while not self._heap:
                    if self._closed:
                        return
                    self._condition.wait()
                running = heapq.heappop(self._heap)
                if not self._heap:
                    self._begun.notify()
            if running.kind.kind is JobKind.PROCESS and self._processes is not None:
                ended = self._processes.run(running)
            else:
                running.began = monotonic()
                ended = execute(running.kind, running.job)
            if os.getpid() != process:
                # The handler has forked and the child came out of it: the job is the parent's.
                os._exit(0)
            if running.began is not None:
                running.seconds = monotonic() - running.began
            self._done(running, ended)


class RunLoop:
    """An event loop in a thread of its own, or the program's; jobs are its tasks.

    Args:
        done: takes what has ended, in the loop's thread.
        loop: the program's; None: one of its own.
    """

    def __init__(self, done: Done, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._done = done
        self._ready = threading.Event()
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._end: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        if loop is not None:
            return
        self._thread = threading.Thread(target=self._run, name="roq-jobs-loop", daemon=True)
        self._thread.start()
        self._ready.wait()

    def put(self, running: Running) -> None:
        """Have it run."""
        running.began = monotonic()
        if not self._call(lambda: self._begin(running)):
            self._done(running, unbegun(running.job))

    def cancel(self, running: Running) -> None:
        """Interrupt it."""
        self._call(lambda: None if running.task is None else _cancelled(running.task))

    @property
    def alive(self) -> bool:
        """Whether it takes jobs. A task that a handler has made can end it, by SystemExit."""
        if self._thread is not None:
            return self._thread.is_alive()
        return self._loop is not None and not self._loop.is_closed()

    def close(self) -> None:
        """Begin nothing any more, and end with the last job; that is waited for `LOOP_SECONDS`."""
        if self._end is not None:
            self._call(self._end.set)
        if self._thread is not None:
            self._thread.join(LOOP_SECONDS)

    def _call(self, function: Callable[[], None]) -> bool:
        """Have the loop do it; False: it has ended."""
        try:
            assert self._loop is not None  # noqa: S101 - waited for
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False
        return True

    def _begin(self, running: Running) -> None:
        tasks = self._group or self._loop
        assert tasks is not None  # noqa: S101 - set before anything is put
        running.task = tasks.create_task(self._one(running))
        self._tasks.add(running.task)
        running.task.add_done_callback(lambda task: self._ended(running, task))

    def _ended(self, running: Running, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # before its first step, so that it could not say so itself
            self._done(running, unbegun(running.job))

    async def _one(self, running: Running) -> None:
        self._done(running, await execute_async(running.kind, running.job))

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - SystemExit of a task that a handler has made
            log.warning(
                "the loop of coroutines has ended, and their jobs with it: %r", error,
                extra={"event": "jobs_loop"},
            )  # fmt: skip

    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._ready.set()
            await self._end.wait()


def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
