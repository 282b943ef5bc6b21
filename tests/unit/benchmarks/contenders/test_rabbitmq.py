"""Why RabbitMQ cannot run here, in the order in which one would mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from roq.benchmarks.contenders import rabbitmq


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rabbitmq, "PROGRAM", tmp_path / "rabbitmq-server")
    assert "apt-get install rabbitmq-server" in str(rabbitmq.missing())
    rabbitmq.PROGRAM.touch()
    monkeypatch.setattr(rabbitmq.shutil, "which", lambda _: "/usr/bin/epmd")
    monkeypatch.setattr(rabbitmq.importlib.util, "find_spec", lambda _: None)
    assert "aio-pika is not installed" in str(rabbitmq.missing())
    monkeypatch.setattr(rabbitmq.importlib.util, "find_spec", lambda _: object())
    assert rabbitmq.missing() is None
