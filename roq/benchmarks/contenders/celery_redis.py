"""Celery with Redis: its own workers, a task that does nothing, and one whose results are kept.

Workers are processes with threads. What does nothing is acknowledged when it has ended: otherwise
it would be lost with its worker, and nobody could see when all have ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from roq.benchmarks.clients import AnsweredElsewhere, Asking
from roq.benchmarks.contender import RUN_SECONDS
from roq.benchmarks.contenders.redis_streams import PORT, RedisWorkers, worker_missing

MODULE: Final = "celery_redis"


def missing() -> str | None:
    """Why it cannot take part; None: it can."""
    return worker_missing("celery")


def program(port: str) -> tuple[Any, Any, Any]:
    """The application, the task that does nothing, and the one that gives back what it gets."""
    import celery  # noqa: PLC0415 - only if it is installed

    url = f"redis://127.0.0.1:{port}/0"
    made = celery.Celery("bench", broker=url, backend=url)
    return (
        made,
        made.task(_nothing, name="nothing", ignore_result=True, acks_late=True),
        made.task(_echo, name="echo"),
    )


def _nothing(number: int) -> None: ...


def _echo(payload: bytes) -> bytes:
    return payload


def workers(processes: int, threads: int) -> RedisWorkers:
    """Redis, and Celery's workers; they do not talk to each other."""
    return RedisWorkers(
        *(
            ["celery", "--app", __name__, "worker", "--pool", "threads", "--concurrency",
             str(threads), "--hostname", f"{number}@localhost", "--loglevel", "ERROR",
             "--without-gossip", "--without-mingle", "--without-heartbeat"]
            for number in range(processes)
        )
    )  # fmt: skip


class CeleryJobs:
    """Redis, Celery's workers, and a sender here."""

    def __init__(self) -> None:
        self._workers = RedisWorkers()
        self._redis: Any = None
        self._task: Any = None

    def start(self, directory: Path, processes: int, threads: int) -> None:
        """Start Redis and the workers."""
        import redis  # noqa: PLC0415 - only if it is installed

        self._workers = workers(processes, threads)
        self._workers.start(directory)
        _, self._task, _ = program(self._workers.port)
        self._redis = redis.Redis(port=int(self._workers.port))

    def submit(self, number: int) -> None:
        """Send so many messages: it has no way to send several at once."""
        for each in range(number):
            self._task.delay(each)

    def left(self) -> int:
        """Messages that are not acknowledged: in the queue, or with a worker."""
        return int(self._redis.llen("celery") + self._redis.hlen("unacked"))

    def stop(self) -> None:
        """End all; idempotent."""
        if self._redis is not None:
            self._task.app.close()
            self._redis.close()
            self._redis = None
        self._workers.stop()


def publisher(style: str, options: dict[str, str]) -> Asking:  # noqa: ARG001
    """The asking side."""
    _, _, echo = program(options["port"])

    def ask(payload: bytes) -> Callable[[], bytes]:
        return partial(echo.delay(payload).get, RUN_SECONDS)

    return Asking(ask)


def subscriber(style: str, options: dict[str, str]) -> AnsweredElsewhere:  # noqa: ARG001
    """The answering side."""
    return AnsweredElsewhere()


if PORT in os.environ:
    app, nothing, echo = program(os.environ[PORT])
