"""Workers beside Redis: what they are told, and that they end before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from roq.benchmarks.contenders import redis_streams
from roq.benchmarks.contenders.redis_streams import PORT, RedisWorkers

told: list[str] = []


class Program:
    def __init__(self, argv: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.name = f"{argv[-1]} at {env[PORT]}, {log.name}"
        told.append(f"start {self.name}")

    def stop(self) -> None:
        told.append(f"stop {self.name}")


def test_workers_are_told_the_port_and_end_before_redis(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workers = RedisWorkers(["library", "one"], ["library", "two"])
    server = redis_streams.RedisServer
    monkeypatch.setattr(redis_streams, "Program", Program)
    monkeypatch.setattr(server, "start", lambda self, _: self._options.update(port="7"))
    monkeypatch.setattr(server, "stop", lambda _: told.append("stop redis"))
    told.clear()
    workers.start(tmp_path)
    assert told == ["start one at 7, library-0.log", "start two at 7, library-1.log"]
    told.clear()
    workers.stop()
    assert told == ["stop two at 7, library-1.log", "stop one at 7, library-0.log", "stop redis"]
    workers.stop()
    assert told[3:] == ["stop redis"]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_streams, "missing", lambda: "no Redis")
    assert redis_streams.worker_missing("nosuchlibrary") == "no Redis"
    monkeypatch.setattr(redis_streams, "missing", lambda: None)
    assert "pip install nosuchlibrary" in str(redis_streams.worker_missing("nosuchlibrary"))
    assert redis_streams.worker_missing("asyncio") is None
