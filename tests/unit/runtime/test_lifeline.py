"""The owner of a socket that connects once is told when that is over, and why."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator

import pytest

from roq.runtime import sockets
from roq.runtime.lifeline import REFUSED, Lifeline, never_connected
from roq.runtime.reactor import Reactor

DEADLINE = 10.0


class Owner:
    """Has one socket with a lifeline, and remembers what he was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.reactor = Reactor()
        self._context = sockets.new_context()
        self._dealer = sockets.dealer(self._context)
        self._lifeline = Lifeline(self.reactor, self._dealer, self._ended)

    def connect(self, endpoint: str) -> list[str]:
        """Connect, and give what was told until the end."""
        late = self.reactor.call_later(DEADLINE, self.reactor.stop)
        self._lifeline.connect(endpoint)
        self.reactor.run()
        late.cancel()
        return self.told

    def close(self) -> None:
        self._lifeline.close()
        self._dealer.close(0)
        self._context.term()
        self.reactor.close()

    def _ended(self, reason: str) -> None:
        self.told.append(reason)
        self.reactor.stop()


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner()
    yield owner
    owner.close()


def test_a_port_that_nobody_has_is_told_at_once(owner: Owner) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert owner.connect(f"tcp://127.0.0.1:{port}") == [REFUSED]


def test_a_machine_that_takes_no_connection_is_not_waited_for(owner: Owner) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        taken = [socket.socket() for _ in range(4)]
        for each in taken:  # the system drops what does not fit, as a machine that is gone does
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        assert owner.connect(f"tcp://127.0.0.1:{port}") == [REFUSED]
        for each in taken:
            each.close()


def test_a_connection_that_the_other_side_closes_is_told(owner: Owner) -> None:
    context = sockets.new_context()
    router = sockets.router(context)
    port = sockets.bind(router, "127.0.0.1")
    owner.reactor.call_later(0.2, lambda: router.close(0))
    (reason,) = owner.connect(f"tcp://127.0.0.1:{port}")
    assert "closed" in reason
    context.term()


def test_what_is_no_server_of_ours_is_told(owner: Owner) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        stranger.setblocking(False)

        def answer() -> None:
            connection, _ = stranger.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        owner.reactor.call_later(0.2, answer)
        assert len(owner.connect(f"tcp://127.0.0.1:{stranger.getsockname()[1]}")) == 1


def test_a_connection_for_which_no_descriptor_is_left_is_told_with_the_figures(
    owner: Owner,
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = os.open(os.devnull, os.O_RDONLY)
    os.close(last)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last, before[1]))
    try:
        (reason,) = owner.connect("tcp://127.0.0.1:9")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert never_connected(reason)
    assert "are open; raise the limit" in reason


def test_a_connection_that_stands_is_not_taken_for_one_that_was_not_begun(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roq.runtime.lifeline.BEGIN_SECONDS", 0.2)
    context = sockets.new_context()
    router = sockets.router(context)
    port = sockets.bind(router, "127.0.0.1")
    owner.reactor.call_later(0.6, owner.reactor.stop)
    assert owner.connect(f"tcp://127.0.0.1:{port}") == []
    router.close(0)
    context.term()
