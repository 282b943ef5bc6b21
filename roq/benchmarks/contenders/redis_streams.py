"""Redis streams with redis-py: XADD in pipelines, XREAD or XREADGROUP and XACK in pages; the
server is redis-server (C).

A pipeline holds as many XADDs as RoQ's batch holds messages, a page as many entries. Nothing is
written to disk (`save ""`, no append-only file).
"""

from __future__ import annotations

import importlib.util
import shutil
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roq.benchmarks.case import Run
from roq.benchmarks.clients import age_us, parts, timed
from roq.benchmarks.contender import Contender, ProgramServer, not_installed
from roq.benchmarks.processes import PYTHON, BenchmarkError, Program, free_port

if TYPE_CHECKING:
    from redis import Redis

MODULE: Final = "redis_streams"
BLOCK_MS: Final = 1_000
GROUP: Final = "bench"
PORT: Final = "ROQ_BENCH_REDIS_PORT"
"""The variable that tells workers where Redis is."""


class RedisServer(ProgramServer):
    """A redis-server on a free port.

    Args:
        sync: when its append-only file is synced: `always`, `everysec`; empty: there is none.
    """

    def __init__(self, sync: str = "") -> None:
        super().__init__("redis-server")
        self._sync = sync

    def start(self, directory: Path) -> None:
        """Start it; another port if another program was faster."""
        for left in reversed(range(5)):
            port = free_port()
            self._options = {"port": str(port)}
            self._run(self._command(directory, port), directory / "redis-server.log")
            try:
                self._await(partial(_serves, port))
            except BenchmarkError:
                self.stop()
                if not left:
                    raise
            else:
                return

    def _command(self, directory: Path, port: int) -> list[str]:
        home = directory / f"redis-{self._sync}"
        home.mkdir(exist_ok=True)
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "save": "",
            "appendonly": "yes" if self._sync else "no",
            "appendfsync": self._sync or "no",
            "dir": str(home),
            "logfile": str(directory / "redis.log"),
            # A subscriber that reads slowly must not be cut off in the middle.
            "client-output-buffer-limit": "normal 0 0 0",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [str(shutil.which("redis-server")), *words]


class RedisWorkers(RedisServer):
    """Redis and workers, started and stopped together.

    Args:
        commands: what Python runs, for each program.
    """

    def __init__(self, *commands: Sequence[str]) -> None:
        super().__init__()
        self._commands = commands
        self._programs: list[Program] = []

    @property
    def port(self) -> str:
        """Of Redis, once it was started."""
        return self._options["port"]

    def start(self, directory: Path) -> None:
        """Start Redis, then the workers."""
        super().start(directory)
        for number, command in enumerate(self._commands):
            log = directory / f"{command[0]}-{number}.log"
            self._programs.append(Program([*PYTHON, *command], log, env={PORT: self.port}))

    def stop(self) -> None:
        """End all; idempotent."""
        while self._programs:
            self._programs.pop().stop()
        super().stop()


def _serves(port: int) -> bool:
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=1.0) as client,
    ):
        client.sendall(b"PING\r\n")
        return client.recv(5) == b"+PONG"
    return False


class RedisClient:
    """A connection and the stream of the measurement under way."""

    def __init__(self, port: int) -> None:
        import redis  # noqa: PLC0415 - only in the process that uses it

        self.client: Redis = redis.Redis(port=port)
        self._stream = ""

    def open(self, run: Run) -> None:
        """Connect."""
        self._stream = run.topic
        self.client.ping()

    def close(self) -> None:
        """Let the server forget the stream."""
        self.client.delete(self._stream)


class RedisPublisher(RedisClient):
    """The sending side.

    Attributes:
        ack_us: how long each answer took, when that was measured.
    """

    ack_us: list[float]

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """XADD in pipelines."""
        for part in parts(run, payloads):
            with self.client.pipeline(transaction=False) as pipeline:
                for payload in part:
                    pipeline.xadd(run.topic, {b"p": payload})
                pipeline.execute()

    def pace(self, run: Run) -> None:
        """XADD one at a time."""
        self.ack_us = timed(run, lambda payload: self.client.xadd(run.topic, {b"p": payload}))


class RedisSubscriber(RedisClient):
    """The receiving side."""

    def receive(self, run: Run) -> None:
        """XREAD in pages."""
        received, size, last = 0, 0, b"0"
        while received < run.count:
            entries = self._read(run.topic, last, run.batch)
            for _, fields in entries:
                size += len(fields[b"p"])
            received += len(entries)
            last = entries[-1][0] if entries else last
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    def ages(self, run: Run) -> list[float]:
        """XREAD, each entry's age on arrival."""
        ages, last = list[float](), b"0"
        while len(ages) < run.count:
            entries = self._read(run.topic, last, run.batch)
            ages.extend(age_us(fields[b"p"]) for _, fields in entries)
            last = entries[-1][0] if entries else last
        return ages

    def _read(self, topic: str, last: bytes, count: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
        return _entries(self.client.xread({topic: last}, count=count, block=BLOCK_MS))


class RedisConsumer(RedisClient):
    """A member of a consumer group."""

    def open(self, run: Run) -> None:
        """Make the group, and the stream with it."""
        super().open(run)
        self.client.xgroup_create(run.topic, GROUP, id="0", mkstream=True)

    def receive(self, run: Run) -> None:
        """XREADGROUP in pages, one XACK for each."""
        received, size = 0, 0
        while received < run.count:
            entries = self._take(run.topic, run.batch)
            size += sum(len(fields[b"p"]) for _, fields in entries)
            received += len(entries)
            if entries:
                self.client.xack(run.topic, GROUP, *(identity for identity, _ in entries))
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    def ages(self, run: Run) -> list[float]:
        """XREADGROUP, and how long each XACK takes."""
        took = list[float]()
        while len(took) < run.count:
            for identity, _ in self._take(run.topic, 1):
                began = time.monotonic()
                self.client.xack(run.topic, GROUP, identity)
                took.append((time.monotonic() - began) * 1e6)
        return took

    def _take(self, topic: str, count: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
        answer = self.client.xreadgroup(GROUP, "member", {topic: ">"}, count=count, block=BLOCK_MS)
        return _entries(answer)


def _entries(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    if not answer:
        return []
    # RESP2 answers with a list of pairs, RESP3 with a mapping of lists of pages.
    if isinstance(answer, dict):
        pages = next(iter(answer.values()))
        return [entry for page in pages for entry in page]
    entries: list[tuple[bytes, dict[bytes, bytes]]] = answer[0][1]
    return entries


def publisher(style: str, options: dict[str, str]) -> RedisPublisher:  # noqa: ARG001
    """The sending side."""
    return RedisPublisher(int(options["port"]))


def subscriber(style: str, options: dict[str, str]) -> RedisSubscriber | RedisConsumer:
    """The receiving side; style `group`: a member of a consumer group."""
    kind = RedisConsumer if style == "group" else RedisSubscriber
    return kind(int(options["port"]))


def missing() -> str | None:
    """Why this contender cannot run here."""
    if shutil.which("redis-server") is None:
        return "redis-server is not installed (Debian: apt-get install redis-server)"
    if importlib.util.find_spec("redis") is None:
        return "redis-py is not installed (pip install 'roq-cluster[bench]')"
    return None


def worker_missing(library: str) -> str | None:
    """Why one that works with this library cannot take part; None: it can."""
    return missing() or not_installed(library)


def contenders() -> list[Contender]:
    """The one of this module."""
    return [
        Contender(
            "redis_streams",
            "Redis streams, redis-py",
            kind="redis_streams",
            module=MODULE,
            style="",
            server=RedisServer(),
            missing=missing,
        )
    ]
