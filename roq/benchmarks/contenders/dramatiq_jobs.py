"""Dramatiq with Redis: its own program with two processes, and an actor that does nothing.

Redis keeps nothing on a disk here, as for the other contenders of `roq bench`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any, Final

from roq.benchmarks.case import Case
from roq.benchmarks.contenders.redis_streams import RedisServer
from roq.benchmarks.processes import PYTHON, Program

PORT: Final = "ROQ_BENCH_REDIS_PORT"
MODULE: Final = "roq.benchmarks.contenders.dramatiq_jobs"
_ANY: Final = Case(size=1)


def missing() -> str | None:
    """Why it cannot take part; None: it can."""
    if shutil.which("redis-server") is None:
        return "redis-server is not installed"
    for name in ("dramatiq", "redis"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: pip install {name}"
    return None


def program(port: str) -> tuple[Any, Any]:
    """The broker, and the actor."""
    import dramatiq  # noqa: PLC0415 - only if it is installed
    from dramatiq.brokers.redis import RedisBroker  # noqa: PLC0415

    broker = RedisBroker(url=f"redis://127.0.0.1:{port}/0")
    dramatiq.set_broker(broker)
    return broker, dramatiq.actor(_nothing, actor_name="nothing")


def _nothing(number: int) -> None: ...


class DramatiqJobs:
    """Redis, Dramatiq's workers, and a sender here."""

    def __init__(self) -> None:
        self._server = RedisServer()
        self._program: Program | None = None
        self._broker: Any = None
        self._actor: Any = None

    def start(self, directory: Path, processes: int, threads: int) -> None:
        """Start Redis and the workers."""
        self._server.start(directory)
        port = self._server.options(_ANY)["port"]
        self._broker, self._actor = program(port)
        self._program = Program(
            [*PYTHON, "dramatiq", MODULE, "--processes", str(processes), "--threads",
             str(threads)],
            directory / "dramatiq.log", env={**os.environ, PORT: port},
        )  # fmt: skip

    def submit(self, number: int) -> None:
        """Send so many messages: it has no way to send several at once."""
        for each in range(number):
            self._actor.send(each)

    def left(self) -> int:
        """Messages that are not acknowledged."""
        return int(self._broker.do_qsize("default"))

    def pids(self) -> list[int]:
        """Of its master."""
        return [] if self._program is None else [self._program.pid]

    def stop(self) -> None:
        """End all; idempotent."""
        if self._program is not None:
            self._program.stop()
            self._program = None
        if self._broker is not None:
            self._broker.close()
            self._broker = None
        self._server.stop()


if PORT in os.environ:
    broker, nothing = program(os.environ[PORT])
