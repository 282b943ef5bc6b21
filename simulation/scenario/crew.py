"""The workers of a scenario, seen by the process that started them."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import msgspec

from roq.local.part import guarded
from roq.simulation.scenario.job import (
    Broken,
    Command,
    Finish,
    Finished,
    Job,
    Open,
    Progress,
    Rate,
    Ready,
    line,
    report,
)
from roq.testing.history import History, Verdict

OPEN_SECONDS: Final = 60.0
FINISH_SECONDS: Final = 120.0
STALL_SECONDS: Final = 8.0
"""So long nothing has come any more: what is missing then is missing."""
END_SECONDS: Final = 10.0
_READ_BYTES: Final = 65_536


class ScenarioError(Exception):
    """A scenario cannot be run or has not gone to its end; the text says why."""


class Worker:
    """One worker process.

    Attributes:
        job: what it is for.
        id: of its publisher or subscriber, hexadecimal; empty until it has connected.
        messages, bytes, latency_ms: as it has said last.
        finished: its last word.
        opened: when it has connected; seconds on the monotonic clock.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self.job = job
        self.id = ""
        self.messages = 0
        self.bytes = 0
        self.latency_ms = 0.0
        self.finished: Finished | None = None
        self.opened = 0.0
        self.log = folder / f"{job.name}.log"
        self._buffer = b""
        path = folder / f"{job.name}.json"
        path.write_bytes(msgspec.json.encode(job))
        argv = [sys.executable, "-P", "-m", "roq.simulation.scenario.worker", str(path)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                guarded(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def fileno(self) -> int:
        """Readable when it says something."""
        return _pipe(self._process.stdout).fileno()

    def tell(self, command: Command) -> None:
        """Give a command.

        Raises:
            ScenarioError: it has ended.
        """
        try:
            _pipe(self._process.stdin).write(line(command))
            _pipe(self._process.stdin).flush()
        except (BrokenPipeError, ValueError):
            raise self._ended() from None

    def read(self) -> None:
        """Take in what it says.

        Raises:
            ScenarioError: it cannot go on, or has ended.
        """
        data = os.read(self.fileno(), _READ_BYTES)
        if not data:
            raise self._ended()
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for each in lines:
            self._take(each)

    def close(self) -> None:
        """End it whatever it does; idempotent."""
        for pipe in (self._process.stdin, self._process.stdout):
            # What was not read by a worker that is gone cannot be written.
            with contextlib.suppress(BrokenPipeError):
                _pipe(pipe).close()
        if self.finished is None:
            self._process.kill()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _take(self, data: bytes) -> None:
        said = report(data)
        match said:
            case Ready():
                self.id, self.opened = said.id, time.monotonic()
            case Progress():
                self.messages, self.bytes = said.messages, said.bytes
                self.latency_ms = said.latency_ms
            case Finished():
                self.messages, self.bytes, self.finished = said.messages, said.bytes, said
            case Broken():
                raise ScenarioError(f"{self.job.name}: {said.reason}")

    def _ended(self) -> ScenarioError:
        words = self.log.read_text(errors="replace").strip()[-2_000:]
        return ScenarioError(f"{self.job.name} has ended" + (f":\n{words}" if words else ""))


class Crew:
    """All workers; a context manager that leaves none behind.

    Args:
        folder: for their files.
        address: client address of the cluster.
        queue: where they publish and subscribe.
    """

    def __init__(self, folder: Path, address: str, queue: str) -> None:
        self.workers: list[Worker] = []
        self._folder = folder
        self._address = address
        self._queue = queue

    @property
    def publishers(self) -> list[Worker]:
        """Those that publish, in the order in which they were added."""
        return [worker for worker in self.workers if worker.job.publishes]

    @property
    def subscribers(self) -> list[Worker]:
        """Those that subscribe."""
        return [worker for worker in self.workers if not worker.job.publishes]

    def add(
        self,
        count: int,
        *,
        publishes: bool,
        payload: int = 500,
        burst: int = 1,
        timings: bool = False,
        history: bool = True,
        naive: bool = False,
    ) -> list[Worker]:
        """Start so many workers; they connect when they are opened."""
        kind = "publisher" if publishes else "subscriber"
        first = 1 + len(self.publishers if publishes else self.subscribers)
        added = []
        for number in range(first, first + count):
            name = f"{kind}-{number}"
            job = Job(
                name=name,
                address=self._address,
                queue=self._queue,
                publishes=publishes,
                payload=payload,
                burst=burst,
                history=str(self._folder / f"{name}.history") if history else "",
                timings=str(self._folder / f"{name}.timings") if timings else "",
                naive=naive,
            )
            added.append(Worker(job, self._folder))
            self.workers.append(added[-1])
        return added

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
        """Take in what they say; returns after `timeout` seconds.

        Raises:
            ScenarioError: one of them cannot go on.
        """
        deadline = time.monotonic() + timeout
        while True:
            open_ones = [worker for worker in self.workers if worker.finished is None]
            left = max(0.0, deadline - time.monotonic())
            readable = select.select(open_ones, [], [], left)[0]
            for worker in readable:
                worker.read()
            if time.monotonic() >= deadline:
                return

    def wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Until something holds.

        Raises:
            ScenarioError: it did not in time.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise ScenarioError(f"not all workers have {what} within {seconds:g} s")
            self.poll(0.02)

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

    def verdict(self) -> Verdict:
        """What was lost, doubled or came out of order, by what the workers have written."""
        paths = [Path(worker.job.history) for worker in self.workers if worker.job.history]
        return History().load(*(path for path in paths if path.exists())).check()

    def close(self) -> None:
        """End all of them; idempotent."""
        for worker in self.workers:
            worker.close()
        self.workers = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ScenarioError("the process was started without pipes")
    return stream
