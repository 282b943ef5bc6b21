"""What the harness asks of a contender: start, stop, and one measurement at a time."""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from roq.benchmarks.case import Case, CaseSample, Run
from roq.benchmarks.processes import (
    Answer,
    BenchmarkError,
    Program,
    Worker,
    cpu_seconds,
    rss_bytes,
    tail,
)
from roq.errors import RoQError

OPEN_SECONDS: Final = 60.0
RUN_SECONDS: Final = 60.0

_topics = itertools.count(1)


class Startable(Protocol):
    """What has processes."""

    def start(self, directory: Path) -> None:
        """Start its processes; returns when they serve.

        Raises:
            BenchmarkError: it does not start.
        """

    def stop(self) -> None:
        """Stop them; idempotent."""


class Server(Startable, Protocol):
    """The server side of a contender; several contenders (styles of one client) may share it."""

    def options(self, case: Case) -> dict[str, str]:
        """What its clients must know: addresses."""

    def processes(self, case: Case) -> dict[str, int]:
        """Role → process id, for the processes whose cost counts."""


S = TypeVar("S", bound=Startable)


def start(server: S, started: list[S], directory: Path) -> str:
    """Start a server, if it is not among those that are; gives why it cannot be, or nothing."""
    if server in started:
        return ""
    try:
        server.start(directory)
    except (BenchmarkError, RoQError) as error:
        server.stop()
        return str(error)
    started.append(server)
    return ""


def measured(worker: Worker, run: Run) -> Answer:
    """One whole measurement of a client process that needs no other.

    Raises:
        BenchmarkError: it did not come to its end.
    """
    worker.ask("open", run)
    worker.answer(OPEN_SECONDS)
    worker.ask("go")
    answer = worker.answer(2 * RUN_SECONDS)
    worker.ask("close")
    worker.answer(OPEN_SECONDS)
    return answer


def not_installed(*names: str) -> str | None:
    """Which of these libraries is missing; None: none is."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: pip install {name}"
    return None


class ProgramServer:
    """A server that is one process.

    Args:
        name: of the program, for people.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._program: Program | None = None
        self._options: dict[str, str] = {}

    def stop(self) -> None:
        """Stop it; idempotent."""
        if self._program is not None:
            self._program.stop()
            self._program = None

    def options(self, case: Case) -> dict[str, str]:  # noqa: ARG002 - the same for all
        """Its address."""
        return self._options

    def processes(self, case: Case) -> dict[str, int]:  # noqa: ARG002 - the same for all
        """The server."""
        return {"exchange": self._program.pid} if self._program else {}

    def _run(self, argv: Sequence[str], log: Path) -> Program:
        self._program = Program(argv, log)
        return self._program

    def _await(self, serves: Callable[[], bool]) -> None:
        """Wait until it serves.

        Raises:
            BenchmarkError: it ends, or that takes too long.
        """
        assert self._program is not None  # noqa: S101 - it was started just now
        until_serves(self._name, self._program, serves)


def until_serves(name: str, program: Program, serves: Callable[[], bool]) -> None:
    """Wait until a program of this name serves.

    Raises:
        BenchmarkError: it ends, or that takes too long.
    """
    deadline = time.monotonic() + OPEN_SECONDS
    while not serves():
        if time.monotonic() > deadline or not program.alive():
            raise BenchmarkError(f"{name} does not start: {tail(program.log, 3)}")
        program.wait(0.02)


class Contender:
    """One way to get messages from a publisher to subscribers.

    Attributes:
        key: short name without spaces, unique.
        title: name for people.
        kind: what is shared by all that have the same server.
    """

    def __init__(
        self,
        key: str,
        title: str,
        *,
        kind: str,
        module: str,
        style: str,
        server: Server,
        missing: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.key = key
        self.title = title
        self.kind = kind
        self.missing = missing
        """Says why this contender cannot run here; None if it can."""
        self.server = server
        self._module = module
        self._style = style
        self._directory = Path()
        self._publisher: Worker | None = None
        self._subscribers: list[Worker] = []
        self._options: dict[str, str] = {}

    def start(self, directory: Path) -> None:
        """Remember where logs go; the server is started apart, clients when they are needed."""
        self._directory = directory

    def stop(self) -> None:
        """End the client processes; idempotent."""
        workers = [*self._subscribers, *([self._publisher] if self._publisher else [])]
        self._publisher, self._subscribers = None, []
        for worker in workers:
            worker.close()

    def run(self, case: Case, count: int, number: int) -> CaseSample:
        """Measure one case with `count` messages in round `number`.

        Raises:
            BenchmarkError: it did not come to its end; the client processes are gone then.
        """
        try:
            return self._run(case, count, number)
        except BenchmarkError:
            for worker in [*self._subscribers, *([self._publisher] if self._publisher else [])]:
                worker.kill()
            self._publisher, self._subscribers = None, []
            raise

    def _run(self, case: Case, count: int, number: int) -> CaseSample:
        publisher, subscribers = self._clients(case)
        run = Run(
            topic=f"bench.{next(_topics)}.",
            size=case.size,
            batch=case.per_batch,
            count=count,
            rate=case.rate,
        )
        _all(subscribers, "open", run)
        _all([publisher], "open", run)
        servers = self.server.processes(case)
        before = {role: cpu_seconds(pid) for role, pid in servers.items()}
        for worker in [*subscribers, publisher]:
            worker.ask("go")
        sent = publisher.answer(RUN_SECONDS)
        received = [worker.answer(RUN_SECONDS) for worker in subscribers]
        cpu = {role: cpu_seconds(pid) - before[role] for role, pid in servers.items()}
        rss = {role: rss_bytes(pid) for role, pid in servers.items()}
        rss["publisher"] = rss_bytes(publisher.pid)
        rss["subscriber"] = max(rss_bytes(worker.pid) for worker in subscribers)
        _all([*subscribers, publisher], "close")
        return CaseSample(
            contender=self.key,
            case=case,
            round=number,
            messages=count,
            seconds=max(answer.finished for answer in received) - sent.started,
            cpu={
                "publisher": sent.cpu,
                "subscriber": sum(answer.cpu for answer in received),
                **cpu,
            },
            rss=rss,
            latencies_us=[age for answer in received for age in answer.latencies_us],
            acks_us=sent.latencies_us,
        )

    def _clients(self, case: Case) -> tuple[Worker, list[Worker]]:
        options = self.server.options(case)
        if options != self._options or len(self._subscribers) > case.subscribers:
            self.stop()
            self._options = options
        if self._publisher is None:
            self._publisher = self._worker("publisher", options)
        while len(self._subscribers) < case.subscribers:
            self._subscribers.append(self._worker("subscriber", options))
        return self._publisher, self._subscribers

    def _worker(self, role: str, options: dict[str, str]) -> Worker:
        return Worker(self._module, role, self._style, options, self._directory)


def _all(workers: list[Worker], command: str, run: Run | None = None) -> list[Answer]:
    for worker in workers:
        worker.ask(command, run)
    return [worker.answer(OPEN_SECONDS) for worker in workers]
