"""Where it listens, and that it ends when it is told to."""

from __future__ import annotations

import logging
import socket
import threading
import urllib.request

import pytest

from roq.console.server import ConsoleServer
from roq.console.settings import ConsoleSettings
from roq.errors import ConfigError


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}"):
            ConsoleServer(ConsoleSettings(cluster="127.0.0.1:1", port=port), print)


def test_it_serves_without_a_cluster_until_it_is_told_to_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("roq.console.source.ANSWER_SECONDS", 0.2)
    ready = threading.Event()
    settings = ConsoleSettings(cluster="127.0.0.1:1", port=0)
    server = ConsoleServer(settings, lambda _: ready.set())
    thread = threading.Thread(target=server.serve_until_told)
    thread.start()
    try:
        assert ready.wait(30)
        with urllib.request.urlopen(server.url, timeout=30) as answer:  # noqa: S310
            page = answer.read().decode()
        assert "is away" in page
    finally:
        server.stop()
        thread.join(30)
    assert not thread.is_alive()
    told = [
        each for each in caplog.records if each.name.startswith(("uvicorn", "roq.console.server"))
    ]
    assert [each.getMessage() for each in told] == [f"serving {server.url}"], "nothing of uvicorn's"
