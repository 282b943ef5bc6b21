"""The owner of a socket that connects once is told when that is over, and why."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Iterator

import pytest
import zmq

from roq.runtime import procfs, sockets
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


def test_a_lifeline_that_rests_takes_no_descriptors_and_its_owner_sees_the_end() -> None:
    reactor, context = Reactor(), sockets.new_context()
    told: list[str] = []
    router = sockets.router(context)
    port = sockets.bind(router, "127.0.0.1")
    dealer = sockets.dealer(context)
    before = procfs.open_files(os.getpid())
    assert before is not None
    lifeline = Lifeline(reactor, dealer, told.append, on_stands=reactor.stop, rests=True)
    lifeline.connect(f"tcp://127.0.0.1:{port}")
    late = reactor.call_later(DEADLINE, reactor.stop)
    reactor.run()
    late.cancel()
    deadline = time.monotonic() + DEADLINE
    # The two ends of the connection, which are both in this process; the rest is given back.
    while procfs.open_files(os.getpid()) != before + 2 and time.monotonic() < deadline:
        dealer.poll(10)
    assert procfs.open_files(os.getpid()) == before + 2
    router.close(0)
    while dealer.getsockopt(zmq.EVENTS) & zmq.POLLOUT and time.monotonic() < deadline:
        dealer.poll(10)
    assert not dealer.getsockopt(zmq.EVENTS) & zmq.POLLOUT
    lifeline.ended()
    lifeline.ended()
    assert told == ["connection closed by the other side"]
    lifeline.close()
    dealer.close(0)
    context.term()
    reactor.close()


@pytest.mark.parametrize("seen_first", [True, False])
def test_an_end_is_told_whether_it_is_seen_before_or_after_the_connection_stood(
    seen_first: bool,
) -> None:
    reactor, context = Reactor(), sockets.new_context()
    told: list[str] = []
    router = sockets.router(context)
    port = sockets.bind(router, "127.0.0.1")
    dealer = sockets.dealer(context)
    lifeline = Lifeline(reactor, dealer, told.append, on_stands=reactor.stop, rests=True)
    lifeline.connect(f"tcp://127.0.0.1:{port}")
    dealer.send(b"")
    assert router.poll(int(DEADLINE * 1_000))
    router.close(0)
    deadline = time.monotonic() + DEADLINE
    while dealer.getsockopt(zmq.EVENTS) & zmq.POLLOUT and time.monotonic() < deadline:
        dealer.poll(10)
    if seen_first:
        lifeline.ended()
    late = reactor.call_later(DEADLINE, reactor.stop)
    reactor.run()
    late.cancel()
    if not seen_first:
        lifeline.ended()
    assert told == ["connection closed by the other side"]
    lifeline.close()
    dealer.close(0)
    context.term()
    reactor.close()


def test_where_the_end_would_not_show_the_lifeline_does_not_rest() -> None:
    reactor, context = Reactor(), sockets.new_context()
    told: list[str] = []
    router = sockets.router(context)
    port = sockets.bind(router, "127.0.0.1")
    dealer = sockets.dealer(context)

    def tell(reason: str) -> None:
        told.append(reason)
        reactor.stop()

    lifeline = Lifeline(reactor, dealer, tell, on_stands=lambda: router.close(0), rests=True)
    lifeline.connect(f"tcp://localhost:{port}")
    late = reactor.call_later(DEADLINE, reactor.stop)
    reactor.run()
    late.cancel()
    assert told == ["connection closed by the other side"]
    lifeline.close()
    dealer.close(0)
    context.term()
    reactor.close()
