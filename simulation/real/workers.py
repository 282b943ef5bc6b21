"""Publishers, subscribers and consumers: processes that may be killed and replaced at any time."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from roq.local.part import guarded
from roq.runtime.process import Child, spawn
from roq.simulation.real.commands import Command, Finish, Open, Rate, line
from roq.simulation.real.journal import (
    Back,
    Entered,
    Finished,
    Got,
    Opened,
    Present,
    Record,
    Refused,
    State,
    Subscribed,
    Tail,
)
from roq.simulation.real.judge import Judge
from roq.simulation.real.waiting import rest
from roq.simulation.real.worker import Job
from roq.testing.namespaces import NetworkHost

OPEN_SECONDS: Final = 60.0
FINISH_SECONDS: Final = 120.0
STALL_SECONDS: Final = 8.0
"""So long nothing has come any more: what is missing then is missing."""
END_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.02
WORDS_MAX: Final = 2_000


class ScenarioError(Exception):
    """A scenario cannot be run or has not gone to its end; the text says why."""


class Worker:
    """One process.

    Attributes:
        job: what it is for.
        place: the machine on which it is; None: it is with us.
        id: of its publisher or subscriber, hexadecimal; empty until it has connected.
        opened: when it was connected; None: it is not.
        messages: published, or received.
        state: of a publisher, the last one.
        backs: when a publisher was acknowledged for the first time over a new connection.
        finished: its last record, when it has done everything.
        trouble: why it is not connected; empty: it is.
        failed: why it could not go on when it was at work; empty: it could.
    """

    def __init__(self, job: Job, folder: Path, place: NetworkHost | None) -> None:
        self.job = job
        self.place = place
        self.id = ""
        self.opened: float | None = None
        self.messages = 0
        self.state: State | None = None
        self.backs: list[Back] = []
        self.finished: Finished | None = None
        self.trouble = self.failed = ""
        self.log = folder / f"{job.name}.log"
        path = folder / f"{job.name}.json"
        path.write_bytes(msgspec.json.encode(job))
        prefix = [] if place is None else place.absolute_prefix
        argv = [*prefix, sys.executable, "-P", "-m", "roq.simulation.real.worker", str(path)]
        commands, self._commands = os.pipe2(os.O_CLOEXEC)
        try:
            self._child: Child = spawn(
                guarded([*argv, str(commands)], signal.SIGKILL),
                log_path=self.log, pass_fds=[commands],
            )  # fmt: skip
        finally:
            os.close(commands)
        self._tail = Tail(Path(job.journal))

    def __str__(self) -> str:
        return self.job.name

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.code is None

    @property
    def code(self) -> int | None:
        """The exit code, negative: the signal that ended it; None while it runs."""
        return self._child.poll()

    def tell(self, command: Command) -> None:
        """Give a command.

        Raises:
            ScenarioError: it has ended.
        """
        try:
            os.write(self._commands, line(command))
        except BrokenPipeError:
            raise ScenarioError(f"{self} has ended{self.words()}") from None

    def read(self, judge: Judge) -> None:
        """Hand what it has written down to the judge."""
        for record in self._tail.read():
            self._note(record)
            judge.take(self.job.name, self.job.queue, self.job.topic, record)

    def words(self) -> str:
        """What it has said last, behind a colon."""
        found = self.log.read_text(errors="replace").strip()[-WORDS_MAX:]
        return f":\n{found}" if found else ""

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._child.send(number)

    def kill(self) -> None:
        """SIGKILL."""
        self._child.kill()
        self._child.wait(END_SECONDS)

    def close(self) -> None:
        """End it whatever it does; idempotent."""
        if self._commands >= 0:
            self._child.kill()
            self._child.wait(END_SECONDS)
            self._child.close()
            self._tail.close()
            with suppress(OSError):
                os.close(self._commands)
            self._commands = -1

    def _note(self, record: Record) -> None:
        match record:
            case (
                Opened(when=when, stream=name)
                | Subscribed(when=when, subscriber=name)
                | Entered(when=when, member=name)
                | Present(when=when, name=name)
            ):
                self.id, self.opened, self.trouble = name, when, ""
            case State():
                self.state, self.messages = record, record.published
            case Got(count=count):
                self.messages += count
            case Back():
                self.backs.append(record)
            case Refused(text=text, working=working):
                self.opened, self.trouble = None, text
                self.failed = text if working else self.failed
            case Finished():
                self.finished = record
            case _:
                pass


class Workers:
    """All of them; a context manager that leaves none behind.

    Args:
        folder: for their files; made if missing.
        addresses: client addresses of the configuration managers.
        queue: where those of `add` publish and subscribe.
        far: the machine with a bad line; None: there is none.

    Attributes:
        judge: knows what they have written.
        all: those that are to run.
    """

    def __init__(
        self,
        folder: Path,
        addresses: Sequence[str],
        queue: str = "",
        far: NetworkHost | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.judge = Judge()
        self.all: list[Worker] = []
        self._folder = folder
        self._addresses = list(addresses)
        self._queue = queue
        self._far = far
        self._serial = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def publishers(self) -> list[Worker]:
        """Those that publish, in the order in which they were added."""
        return [worker for worker in self.all if worker.job.publishes]

    @property
    def subscribers(self) -> list[Worker]:
        """Those that subscribe."""
        return [
            each
            for each in self.all
            if not each.job.publishes and not each.job.mode and not each.job.role
        ]

    @property
    def members(self) -> list[Worker]:
        """Those that are members of a consumer group."""
        return [worker for worker in self.all if worker.job.mode]

    @property
    def instances(self) -> list[Worker]:
        """Those that are instances of a service."""
        return [worker for worker in self.all if worker.job.role == "instance"]

    @property
    def requesters(self) -> list[Worker]:
        """Those that make requests."""
        return [worker for worker in self.all if worker.job.role == "requester"]

    # --- one by one -------------------------------------------------------------------------------

    def publisher(
        self,
        queue: str,
        topic: str,
        *,
        rate: float = 50.0,
        calls: bool = False,
        far: bool = False,
    ) -> Worker:
        """Start a publisher.

        Args:
            rate: messages a second.
            calls: write down how long each `publish()` takes.
            far: with a bad line, if there is one.
        """
        job = Job(queue=queue, topic=topic, publishes=True, rate=rate, size=200)
        return self._start(job, calls=calls, place=self._far if far else None)

    def subscriber(self, queue: str, prefix: str, *, far: bool = False) -> Worker:
        """Start a subscriber."""
        job = Job(queue=queue, topic=prefix, size=200)
        return self._start(job, place=self._far if far else None)

    def member(self, queue: str, mode: str) -> Worker:
        """Start a member of the queue's consumer group.

        Args:
            mode: of the group.
        """
        return self._start(Job(queue=queue, mode=mode))

    def instance(self, queue: str, place: NetworkHost | None = None) -> Worker:
        """Start an instance of the queue's service, on a machine, or with us."""
        return self._start(Job(queue=queue, role="instance"), place=place)

    def requester(self, queue: str, rate: float, place: NetworkHost | None = None) -> Worker:
        """Start a requester.

        Args:
            rate: calls of `request` or `request_many` a second.
            place: as of `instance`.
        """
        return self._start(Job(queue=queue, role="requester", rate=rate), place=place)

    def kill(self, worker: Worker) -> None:
        """Kill one of them for good."""
        worker.kill()
        worker.read(self.judge)
        self.judge.end(worker.job.name)
        self.all.remove(worker)
        worker.close()

    def again(self, worker: Worker) -> Worker:
        """Start one that does the same as one that was killed; a requester also asks for what that
        one has left."""
        if worker.job.role != "requester":
            return self._start(worker.job, calls=bool(worker.job.calls), place=worker.place)
        requests = self.judge.requests[worker.job.queue]
        left = requests.left()
        made = self._start(msgspec.structs.replace(worker.job, left=left), place=worker.place)
        requests.hand_over(left, made.job.name)
        return made

    def read(self) -> None:
        """Take in what all have written down."""
        for worker in self.all:
            worker.read(self.judge)

    def troubles(self) -> list[str]:
        """Who is not connected, or has ended, in sentences."""
        found = []
        for worker in self.all:
            if not worker.running:
                found.append(f"{worker} has ended by itself ({worker.code}){worker.words()}")
            elif worker.opened is None:
                found.append(f"{worker} is not connected: {worker.trouble or 'no word yet'}")
            elif worker.job.publishes and (worker.state is None or not worker.state.exchange):
                found.append(f"{worker} has no exchange")
        return found

    # --- all together, until the work is done -----------------------------------------------------

    def add(
        self,
        count: int,
        *,
        publishes: bool,
        payload: int = 500,
        burst: int = 1,
        timings: bool = False,
        naive: bool = False,
    ) -> list[Worker]:
        """Start so many workers; they connect when they are opened."""
        job = Job(
            queue=self._queue, publishes=publishes, size=payload, burst=burst, naive=naive,
            waits=True,
        )  # fmt: skip
        return [self._start(job, calls=timings) for _ in range(count)]

    def open(self, workers: Sequence[Worker]) -> None:
        """Have them connect, and wait until they have."""
        self.start(workers)
        self.wait(lambda: all(each.id for each in workers), OPEN_SECONDS, "connected")

    def start(self, workers: Sequence[Worker]) -> None:
        """Have them connect, without waiting."""
        for worker in workers:
            worker.tell(Open())

    def rate(self, workers: Sequence[Worker], per_second: float) -> None:
        """Have each of them publish so many messages a second."""
        for worker in workers:
            worker.tell(Rate(per_second=per_second))

    def poll(self, timeout: float) -> None:
        """Take in what they write down; returns after `timeout` seconds.

        Raises:
            ScenarioError: one of them cannot go on, or has ended.
        """
        deadline = time.monotonic() + timeout
        while True:
            ended = [worker for worker in self.all if not worker.running]
            self.read()
            for worker in self.all:
                if worker.failed or (worker in ended and worker.finished is None):
                    raise ScenarioError(f"{worker}: {worker.failed or f'ended{worker.words()}'}")
            left = deadline - time.monotonic()
            if left <= 0:
                return
            rest(min(POLL_SECONDS, left))

    def wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Until something holds.

        Raises:
            ScenarioError: it did not in time.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                why = next((f" ({each.trouble})" for each in self.all if each.trouble), "")
                raise ScenarioError(f"not all workers have {what} within {seconds:g} s{why}")
            self.poll(POLL_SECONDS)

    def finish(self, each: Callable[[], None] = lambda: None) -> None:
        """Bring the work to its end: publishers first, subscribers when all that was sent is there.

        Args:
            each: called all the time meanwhile.
        """
        publishers = [worker for worker in self.publishers if worker.id]
        for worker in publishers:
            worker.tell(Finish())

        def done(workers: Sequence[Worker]) -> bool:
            each()
            return all(worker.finished is not None for worker in workers)

        self.wait(lambda: done(publishers), FINISH_SECONDS, "flushed")
        self._wait_arrived(sum(worker.messages for worker in publishers), each)
        subscribers = [worker for worker in self.subscribers if worker.id]
        for worker in subscribers:
            worker.tell(Finish())
        self.wait(lambda: done(subscribers), FINISH_SECONDS, "finished")

    def close(self) -> None:
        """End all of them; idempotent."""
        for worker in self.all:
            worker.close()
        self.all = []

    def _wait_arrived(self, sent: int, each: Callable[[], None]) -> None:
        before, since = -1, time.monotonic()
        while time.monotonic() - since < STALL_SECONDS:
            self.poll(0.05)
            each()
            arrived = [worker.messages for worker in self.subscribers if worker.id]
            if all(count >= sent for count in arrived):
                return
            if sum(arrived) != before:
                before, since = sum(arrived), time.monotonic()

    def _start(self, job: Job, *, calls: bool = False, place: NetworkHost | None = None) -> Worker:
        """Start one with a name and files of its own."""
        self._serial += 1
        kind = "publisher" if job.publishes else "member" if job.mode else job.role or "subscriber"
        name = f"{kind}-{self._serial}"
        files = self._folder / name
        own = msgspec.structs.replace(
            job, name=name, addresses=self._addresses, journal=f"{files}.journal",
            calls=f"{files}.calls" if calls else "",
        )  # fmt: skip
        worker = Worker(own, self._folder, place)
        self.all.append(worker)
        return worker
