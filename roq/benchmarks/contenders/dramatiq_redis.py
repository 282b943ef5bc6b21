"""Dramatiq with Redis: its own program, an actor that does nothing, and one with results."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from roq.benchmarks.clients import AnsweredElsewhere, Asking
from roq.benchmarks.contender import RUN_SECONDS
from roq.benchmarks.contenders.redis_streams import PORT, RedisWorkers, worker_missing

MODULE: Final = "dramatiq_redis"


def missing() -> str | None:
    """Why it cannot take part; None: it can."""
    return worker_missing("dramatiq")


def program(port: str) -> tuple[Any, Any, Any]:
    """The broker, the actor that does nothing, and the one that gives back what it gets."""
    import dramatiq  # noqa: PLC0415 - only if it is installed
    from dramatiq.brokers.redis import RedisBroker  # noqa: PLC0415
    from dramatiq.results import Results  # noqa: PLC0415
    from dramatiq.results.backends import RedisBackend  # noqa: PLC0415

    url = f"redis://127.0.0.1:{port}/0"
    broker = RedisBroker(url=url)
    broker.add_middleware(Results(backend=RedisBackend(url=url)))
    dramatiq.set_broker(broker)
    return (
        broker,
        dramatiq.actor(_nothing, actor_name="nothing"),
        dramatiq.actor(_echo, actor_name="echo", store_results=True),
    )


def _nothing(number: int) -> None: ...


def _echo(payload: str) -> str:
    return payload


def workers(processes: int, threads: int) -> RedisWorkers:
    """Redis, and Dramatiq's program."""
    return RedisWorkers(
        ["dramatiq", __name__, "--processes", str(processes), "--threads", str(threads)]
    )


class DramatiqJobs:
    """Redis, Dramatiq's workers, and a sender here."""

    def __init__(self) -> None:
        self._workers = RedisWorkers()
        self._broker: Any = None
        self._actor: Any = None

    def start(self, directory: Path, processes: int, threads: int) -> None:
        """Start Redis and the workers."""
        self._workers = workers(processes, threads)
        self._workers.start(directory)
        self._broker, self._actor, _ = program(self._workers.port)

    def submit(self, number: int) -> None:
        """Send so many messages: it has no way to send several at once."""
        for each in range(number):
            self._actor.send(each)

    def left(self) -> int:
        """Messages that are not acknowledged."""
        return int(self._broker.do_qsize("default"))

    def stop(self) -> None:
        """End all; idempotent."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None
        self._workers.stop()


def publisher(style: str, options: dict[str, str]) -> Asking:  # noqa: ARG001
    """The asking side."""
    _, _, echo = program(options["port"])

    def ask(payload: bytes) -> Callable[[], bytes]:
        # Its messages are JSON, which knows no bytes.
        message = echo.send(b64encode(payload).decode())
        return lambda: b64decode(message.get_result(block=True, timeout=int(RUN_SECONDS * 1000)))

    return Asking(ask)


def subscriber(style: str, options: dict[str, str]) -> AnsweredElsewhere:  # noqa: ARG001
    """The answering side."""
    return AnsweredElsewhere()


if PORT in os.environ:
    broker, nothing, echo = program(os.environ[PORT])
