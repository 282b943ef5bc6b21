"""Celery's workers, and when all messages have ended."""

from __future__ import annotations

import pytest

from roq.benchmarks.contenders import celery_redis
from roq.benchmarks.contenders.celery_redis import CeleryJobs


class Redis:
    def llen(self, name: str) -> int:
        return {"celery": 5}[name]

    def hlen(self, name: str) -> int:
        return {"unacked": 2}[name]


def test_what_a_worker_has_taken_has_not_ended() -> None:
    jobs = CeleryJobs()
    jobs._redis = Redis()
    assert jobs.left() == 7


def test_each_worker_has_a_name_of_its_own() -> None:
    commands = celery_redis.workers(2, 8)._commands
    assert len({command[command.index("--hostname") + 1] for command in commands}) == 2
    assert {command[command.index("--concurrency") + 1] for command in commands} == {"8"}


def test_a_response_is_waited_for_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    class Result:
        def __init__(self, payload: bytes) -> None:
            self.payload = payload

        def get(self, timeout: float) -> bytes:
            assert timeout > 1
            return self.payload

    class Echo:
        delay = Result

    monkeypatch.setattr(celery_redis, "program", lambda _: (None, None, Echo()))
    assert celery_redis.publisher("", {"port": "7"})._ask(b"one")() == b"one"
