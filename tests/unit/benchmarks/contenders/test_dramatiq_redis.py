"""What goes through Dramatiq's messages, which are JSON."""

from __future__ import annotations

import json

import pytest

from roq.benchmarks.case import Run
from roq.benchmarks.contenders import dramatiq_redis


class Echo:
    """An actor and its message."""

    def send(self, payload: str) -> Echo:
        self.stored = json.dumps(payload)
        return self

    def get_result(self, *, block: bool, timeout: int) -> object:
        assert block
        assert timeout >= 1_000, "milliseconds"
        return json.loads(self.stored)


def test_bytes_come_back_as_they_were_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dramatiq_redis, "program", lambda _: (None, None, Echo()))
    asking = dramatiq_redis.publisher("", {"port": "7"})
    payload = bytes(range(256))
    assert asking._ask(payload)() == payload
    asking.publish(Run(topic="", size=256, batch=1, count=3), [payload])


def test_its_program_has_so_many_processes_and_threads() -> None:
    (command,) = dramatiq_redis.workers(2, 8)._commands
    assert command[-4:] == ["--processes", "2", "--threads", "8"]
