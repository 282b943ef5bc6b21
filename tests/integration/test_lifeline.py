"""The end of a connection is told once, with its reason."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import zmq

from roq.protocol.control import ClusterInfoRequest
from roq.runtime import sockets
from roq.runtime.lifeline import NEVER_CONNECTED, Lifeline
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import RpcClient

pytestmark = pytest.mark.integration

SECONDS = 5.0


class Loop:
    """A reactor that runs until something was told."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.context = sockets.new_context()
        self.told: list[str] = []

    def tell(self, reason: str) -> None:
        self.told.append(reason)
        self.reactor.stop()

    def run(self) -> None:
        self.reactor.call_later(SECONDS, self.reactor.stop)
        self.reactor.run()

    def close(self) -> None:
        self.reactor.close()
        self.context.destroy(linger=0)


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def test_nobody_listens(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    client = sockets.dealer(loop.context)
    lifeline = Lifeline(loop.reactor, client, loop.tell)
    client.connect(f"tcp://127.0.0.1:{port}")
    loop.run()
    assert loop.told == ["connection refused"]
    lifeline.close()
    lifeline.close()
    client.close(0)


def test_the_other_side_goes_before_it_has_said_who_it_is(loop: Loop) -> None:
    """As a manager that is killed just now: nothing has reached it, so another one may be asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = sockets.dealer(loop.context)
        lifeline = Lifeline(loop.reactor, client, loop.tell)
        client.connect(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        client.send(b"command")

        def accept() -> None:
            loop.reactor.remove(server.fileno())
            server.accept()[0].close()

        loop.reactor.add(server.fileno(), accept)
        loop.run()
        assert loop.told
        assert set(loop.told) <= NEVER_CONNECTED
        lifeline.close()
        client.close(0)


def test_the_other_side_goes(loop: Loop) -> None:
    server = sockets.router(loop.context)
    port = sockets.bind_port(server, "127.0.0.1", 0)
    client = RpcClient(loop.reactor, loop.context, f"tcp://127.0.0.1:{port}", on_lost=loop.tell)
    client.send(ClusterInfoRequest())
    loop.reactor.add(server, lambda: (loop.reactor.remove(server), server.close(0)))
    loop.run()
    assert loop.told == ["connection closed by the other side"]
    client.close()


def test_what_can_be_no_address_leaves_nothing_behind(loop: Loop) -> None:
    with pytest.raises(zmq.ZMQError):
        RpcClient(loop.reactor, loop.context, "nonsense", on_lost=loop.tell)
    loop.reactor.call_soon(loop.reactor.stop)
    loop.reactor.run()
    assert loop.told == []
