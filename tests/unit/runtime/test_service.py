"""A daemon tells systemd that it serves, that it lives, that it stops; and nobody else anything."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from roq.runtime.reactor import Reactor
from roq.runtime.service import SystemdService


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(10.0)
        yield receiver


def environ(receiver: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": receiver.getsockname(), **more}


def test_readiness_and_the_end_are_told(systemd: socket.socket) -> None:
    service = SystemdService(environ(systemd))
    service.ready()
    assert systemd.recv(100) == b"READY=1"
    stopped: list[bool] = []
    service.before(lambda: stopped.append(True))()
    assert systemd.recv(100) == b"STOPPING=1"
    assert stopped == [True]


def test_a_loop_that_turns_is_told_twice_in_each_period(systemd: socket.socket) -> None:
    reactor = Reactor()
    SystemdService(environ(systemd, WATCHDOG_USEC="200000")).watch(reactor)
    reactor.call_later(0.25, reactor.stop)
    reactor.run()
    reactor.close()
    assert systemd.recv(100) == b"WATCHDOG=1"
    assert systemd.recv(100) == b"WATCHDOG=1"


def test_an_abstract_address_has_no_file() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0roq-test-{os.getpid()}")
        receiver.settimeout(10.0)
        SystemdService({"NOTIFY_SOCKET": f"@roq-test-{os.getpid()}"}).ready()
        assert receiver.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    "environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}, {"NOTIFY_SOCKET": "x"}]
)
def test_without_systemd_nothing_is_told(environ: dict[str, str]) -> None:
    service = SystemdService({**environ, "WATCHDOG_USEC": "1000000"})
    service.ready()
    assert not service.watched


@pytest.mark.parametrize("text", ["", "0", "-5", "x", "1e3", "²"])
def test_a_period_that_is_none_watches_nothing(systemd: socket.socket, text: str) -> None:
    assert not SystemdService(environ(systemd, WATCHDOG_USEC=text)).watched


def test_a_watchdog_for_another_process_is_not_ours(systemd: socket.socket) -> None:
    given = environ(systemd, WATCHDOG_USEC="1000000", WATCHDOG_PID="1")
    assert not SystemdService(given).watched


def test_a_systemd_that_is_gone_is_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    SystemdService({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    assert "READY=1" in caplog.text
