"""Publishers and subscribers: processes that may be killed and replaced at any time."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from roq.local.part import guarded
from roq.runtime.process import Child, spawn
from roq.simulation.chaos.journal import (
    Back,
    Finished,
    Opened,
    Record,
    Refused,
    State,
    Subscribed,
    Tail,
)
from roq.simulation.chaos.judge import Judge
from roq.simulation.chaos.parts import send
from roq.simulation.chaos.worker import Job
from roq.testing.namespaces import NetworkHost

END_SECONDS: Final = 5.0


class Worker:
    """One process.

    Attributes:
        job: what it is for.
        far: it has a bad line.
        opened: when it was connected; None: not yet.
        state: of a publisher, the last one.
        backs: when a publisher was acknowledged for the first time over a new connection.
        finished: it has done everything.
        killed: somebody has killed it.
        trouble: why it cannot connect; empty: it could.
    """

    def __init__(self, job: Job, folder: Path, place: NetworkHost | None) -> None:
        self.job = job
        self.far = place is not None
        self.opened: float | None = None
        self.state: State | None = None
        self.backs: list[Back] = []
        self.finished = False
        self.killed = False
        self.trouble = ""
        self.log = folder / f"{job.name}.log"
        path = folder / f"{job.name}.json"
        path.write_bytes(msgspec.json.encode(job))
        prefix = [] if place is None else place.absolute_prefix
        argv = [*prefix, sys.executable, "-P", "-m", "roq.simulation.chaos.worker", str(path)]
        self._child: Child = spawn(guarded(argv, signal.SIGKILL), log_path=self.log)
        self._tail = Tail(Path(job.journal))

    def __str__(self) -> str:
        return self.job.name

    @property
    def pid(self) -> int:
        """The process."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.code is None

    @property
    def code(self) -> int | None:
        """The exit code, negative: the signal that ended it; None while it runs."""
        return self._child.poll()

    def read(self, judge: Judge) -> None:
        """Hand what it has written down to the judge."""
        for record in self._tail.read():
            self._note(record)
            judge.take(self.job.name, self.job.queue, self.job.topic, record)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        send(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.killed = True
        self._child.kill()
        self._child.wait(END_SECONDS)

    def close(self) -> None:
        """End it whatever it does; idempotent."""
        self._child.stop(grace=0.0)
        self._child.close()
        self._tail.close()

    def _note(self, record: Record) -> None:
        match record:
            case Opened(when=when) | Subscribed(when=when):
                self.opened, self.trouble = when, ""
            case State():
                self.state = record
            case Back():
                self.backs.append(record)
            case Refused(text=text):
                self.opened, self.trouble = None, text
            case Finished():
                self.finished = True
            case _:
                pass


class Crew:
    """All of them.

    Args:
        folder: for their files; made if missing.
        addresses: client addresses of the configuration managers.
        far: the machine with a bad line; None: there is none.

    Attributes:
        judge: knows what they have written.
        workers: those that are to run.
    """

    def __init__(
        self, folder: Path, addresses: Sequence[str], far: NetworkHost | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.judge = Judge()
        self.workers: list[Worker] = []
        self._folder = folder
        self._addresses = list(addresses)
        self._far = far
        self._serial = 0

    @property
    def publishers(self) -> list[Worker]:
        """Those that publish."""
        return [worker for worker in self.workers if worker.job.publishes]

    @property
    def subscribers(self) -> list[Worker]:
        """Those that subscribe."""
        return [worker for worker in self.workers if not worker.job.publishes]

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
        return self._add("publisher", queue, topic, rate=rate, calls=calls, far=far)

    def subscriber(self, queue: str, prefix: str, *, far: bool = False) -> Worker:
        """Start a subscriber."""
        return self._add("subscriber", queue, prefix, far=far)

    def read(self) -> None:
        """Take in what all have written down."""
        for worker in self.workers:
            worker.read(self.judge)

    def kill(self, worker: Worker) -> None:
        """Kill one of them for good."""
        worker.kill()
        worker.read(self.judge)
        self.judge.end(worker.job.name)
        self.workers.remove(worker)
        worker.close()

    def again(self, worker: Worker) -> Worker:
        """Start one that does the same as one that was killed."""
        kind = "publisher" if worker.job.publishes else "subscriber"
        job = worker.job
        return self._add(
            kind, job.queue, job.topic, rate=job.rate, calls=bool(job.calls), far=worker.far
        )

    def troubles(self) -> list[str]:
        """Who is not connected, or has ended, in sentences."""
        found = []
        for worker in self.workers:
            if not worker.running:
                words = worker.log.read_text(errors="replace").strip()[-500:]
                found.append(f"{worker} has ended by itself ({worker.code}): {words or 'no word'}")
            elif worker.opened is None:
                found.append(f"{worker} is not connected: {worker.trouble or 'no word yet'}")
            elif worker.job.publishes and (worker.state is None or not worker.state.exchange):
                found.append(f"{worker} has no exchange")
        return found

    def close(self) -> None:
        """End all of them; idempotent."""
        for worker in self.workers:
            worker.close()
        self.workers = []

    def _add(
        self,
        kind: str,
        queue: str,
        topic: str,
        *,
        rate: float = 1.0,
        calls: bool = False,
        far: bool = False,
    ) -> Worker:
        self._serial += 1
        name = f"{kind}-{self._serial}"
        job = Job(
            name=name,
            addresses=self._addresses,
            queue=queue,
            publishes=kind == "publisher",
            topic=topic,
            journal=str(self._folder / f"{name}.journal"),
            calls=str(self._folder / f"{name}.calls") if calls else "",
            rate=rate,
        )
        worker = Worker(job, self._folder, self._far if far else None)
        self.workers.append(worker)
        return worker
