"""One connection to an exchange, against real ZeroMQ sockets and whoever else may answer."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext, suppress

import pytest
import zmq

from roq.protocol import zmtp
from roq.runtime import sockets
from roq.runtime.lifeline import CLOSED, NOT_BEGUN, NOT_GREETED, REFUSED
from roq.runtime.reactor import Reactor
from roq.runtime.zmtp_client import EXCHANGES, FAN_OUTS, ZmtpClient

SECONDS = 10.0
MOST = 50


class Scene:
    """A client's loop, and what it is told."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.context = sockets.new_context()
        self.stands = 0
        self.ended: list[str] = []
        self.clients: list[ZmtpClient] = []

    def client(
        self, kind: bytes = b"DEALER", accepts: frozenset[bytes] = EXCHANGES, silent_ms: int = 0,
        lock: AbstractContextManager[object] | None = None,
    ) -> ZmtpClient:  # fmt: skip
        def stands() -> None:
            self.stands += 1

        client = ZmtpClient(
            self.reactor, kind, accepts, lock=lock or nullcontext(), on_stands=stands,
            on_ended=self.ended.append, silent_ms=silent_ms,
        )  # fmt: skip
        self.clients.append(client)
        return client

    def run_until(self, done: Callable[[], object]) -> None:
        def look() -> None:
            if done():
                self.reactor.stop()
            else:
                self.reactor.call_later(0.002, look)

        self.reactor._stopping = False
        late = self.reactor.call_later(SECONDS, self.reactor.stop)
        self.reactor.call_soon(look)
        self.reactor.run()
        late.cancel()
        assert done()

    def received(self, client: ZmtpClient, count: int) -> list[list[bytes]]:
        """So many messages, as they come."""
        got: list[list[bytes]] = []

        def all_there() -> bool:
            got.extend(client.receive(MOST))
            return len(got) >= count

        self.run_until(all_there)
        return got


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    for client in scene.clients:
        client.close()
    scene.reactor.close()
    scene.context.destroy(linger=0)


@pytest.fixture
def router(scene: Scene) -> tuple[zmq.Socket[bytes], str]:
    router = sockets.router(scene.context)
    return router, f"tcp://127.0.0.1:{sockets.bind_port(router, '127.0.0.1', 0)}"


def standing(scene: Scene, address: str) -> ZmtpClient:
    client = scene.client()
    client.connect(address)
    scene.run_until(lambda: scene.stands)
    return client


def test_what_was_told_of_another_one_with_its_descriptor_does_not_count(
    scene: Scene, router: tuple[zmq.Socket[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that a thread has made may close one and connect another in the middle of a turn."""
    client = scene.client()
    client.connect(router[1])
    with monkeypatch.context() as patched:
        patched.setattr(client, "_has", lambda _: False)
        client._connected()
    assert client._peer is not None
    assert not client._peer.out
    assert not client._peer.taken
    scene.run_until(lambda: scene.stands)


def test_it_speaks_with_a_router(scene: Scene, router: tuple[zmq.Socket[bytes], str]) -> None:
    server, address = router
    client = scene.client()
    assert client.send([b"before it", b"stands"])
    client.connect(address)
    scene.run_until(lambda: server.poll(0))
    route, *frames = server.recv_multipart()
    assert frames == [b"before it", b"stands"]
    large = bytes(range(256)) * 40_000
    assert client.send([b"", large])
    scene.run_until(lambda: server.poll(0))
    assert server.recv_multipart() == [route, b"", large]
    for answer in ([b"one"], [b"two", b"", b"parts"], [large]):
        server.send_multipart([route, *answer])
    assert scene.received(client, 3) == [[b"one"], [b"two", b"", b"parts"], [large]]
    assert not scene.ended


def test_it_subscribes_at_a_fan_out_and_cancels(scene: Scene) -> None:
    server = sockets.publisher(scene.context)
    port = sockets.bind_port(server, "127.0.0.1", 0)
    client = scene.client(b"SUB", FAN_OUTS)
    client.send([zmtp.SUBSCRIBED + b"a"])
    client.connect(f"tcp://127.0.0.1:{port}")
    scene.run_until(lambda: server.poll(0))
    assert server.recv() == b"\x01a"
    server.send(b"b: not wanted")
    server.send(b"a: wanted")
    assert scene.received(client, 1) == [[b"a: wanted"]]
    client.send([zmtp.CANCELLED + b"a"])
    scene.run_until(lambda: server.poll(0))
    assert server.recv() == b"\x00a"


def test_no_more_is_given_than_is_asked_for_and_nothing_is_lost(
    scene: Scene, router: tuple[zmq.Socket[bytes], str]
) -> None:
    server, address = router
    client = standing(scene, address)
    client.send([b"hello"])
    scene.run_until(lambda: server.poll(0))
    route = server.recv_multipart()[0]
    expected = [[b"%d" % number] for number in range(500)]
    for frames in expected:
        server.send_multipart([route, *frames])
    got: list[list[bytes]] = []

    def read_all() -> bool:
        messages = client.receive(7)
        assert len(messages) <= 7
        got.extend(messages)
        return len(got) == len(expected)

    scene.run_until(read_all)
    assert got == expected


def test_what_the_system_does_not_take_leaves_when_it_does(scene: Scene) -> None:
    """The server reads nothing before everything is sent: far more than the system holds."""
    server = sockets.router(scene.context)
    server.setsockopt(zmq.RCVHWM, 1)  # counts for what is bound later
    client = standing(scene, f"tcp://127.0.0.1:{sockets.bind_port(server, '127.0.0.1', 0)}")
    count, body = 200, bytes(256 * 1024)
    for number in range(count):
        assert client.send([b"%d" % number, body])
    assert client._peer is not None
    assert client._peer.out
    got: list[bytes] = []

    def all_there() -> bool:
        while server.poll(0):
            got.append(server.recv_multipart()[1])
        return len(got) == count

    scene.run_until(all_there)
    assert got == [b"%d" % number for number in range(count)]
    assert not scene.reactor._writers


def test_a_goodbye_has_a_moment_to_leave(
    scene: Scene, router: tuple[zmq.Socket[bytes], str]
) -> None:
    server, address = router
    client = standing(scene, address)
    client.send([b"bye"])
    client.close(200)
    scene.run_until(lambda: server.poll(0))
    assert server.recv_multipart()[1] == b"bye"
    assert client.fd == -1
    assert not client.send([b"after it"]) or not client.receive(MOST)
    assert not scene.ended


def test_that_it_has_ended_is_told_once_and_what_came_before_is_given(
    scene: Scene, router: tuple[zmq.Socket[bytes], str]
) -> None:
    server, address = router
    client = standing(scene, address)
    client.send([b"hello"])
    scene.run_until(lambda: server.poll(0))
    server.send_multipart([server.recv_multipart()[0], b"last words"])
    server.close(200)
    assert scene.received(client, 1) == [[b"last words"]]
    scene.run_until(lambda: client.receive(MOST) or scene.ended)
    assert scene.ended == [CLOSED]
    assert client.fd == -1
    assert not client.send([b"to nobody"])


def listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def address_of(server: socket.socket) -> str:
    return f"tcp://127.0.0.1:{server.getsockname()[1]}"


def test_why_it_could_not_be_made(scene: Scene) -> None:
    with listener() as server:
        address = address_of(server)
    scene.client().connect(address)
    scene.run_until(lambda: scene.ended)
    assert scene.ended.pop().startswith(REFUSED)
    scene.client().connect("tcp://no-such-host.invalid:1")
    scene.run_until(lambda: scene.ended)
    assert scene.ended.pop().startswith(NOT_BEGUN)
    for nonsense in (
        "ipc:///tmp/x",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:http",
        "tcp://[::1]:70000",
    ):
        with pytest.raises(OSError, match="no address"):
            scene.client().connect(nonsense)


def test_a_name_is_looked_up(scene: Scene, router: tuple[zmq.Socket[bytes], str]) -> None:
    _, address = router
    scene.client().connect(address.replace("127.0.0.1", "localhost"))
    scene.run_until(lambda: scene.stands)


@pytest.mark.parametrize(
    "greeting",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        zmtp.GREETING.replace(b"NULL", b"CURV"),
        zmtp.GREETING + zmtp.ready(b"PUB"),
        zmtp.GREETING + zmtp.head(5) + b"early",
        zmtp.GREETING + b"\x06" + struct.pack(">Q", 1 << 40),
        b"",
    ],
)
def test_a_stranger_is_left(scene: Scene, greeting: bytes) -> None:
    with listener() as server:
        scene.client().connect(address_of(server))
        server.settimeout(SECONDS)
        stranger, _ = server.accept()
        with closing(stranger):
            stranger.sendall(greeting)
            if not greeting:
                stranger.close()
            scene.run_until(lambda: scene.ended)
    assert scene.ended == [NOT_GREETED]


def greeted(scene: Scene, server: socket.socket, client: ZmtpClient) -> socket.socket:
    client.connect(address_of(server))
    server.settimeout(SECONDS)
    exchange, _ = server.accept()
    exchange.sendall(zmtp.GREETING + zmtp.ready(b"ROUTER"))
    scene.run_until(lambda: scene.stands)
    return exchange


def test_one_that_gives_no_sign_of_life_is_gone(scene: Scene) -> None:
    with listener() as server:
        client = scene.client(silent_ms=50)
        with closing(greeted(scene, server, client)):
            scene.run_until(lambda: scene.ended)
    assert scene.ended == [CLOSED]


def test_a_heartbeat_is_answered_by_who_reads(scene: Scene) -> None:
    with listener() as server:
        client = scene.client()
        with closing(greeted(scene, server, client)) as exchange:
            exchange.settimeout(SECONDS)
            hello = zmtp.GREETING + zmtp.ready(b"DEALER")
            assert exchange.recv(len(hello), socket.MSG_WAITALL) == hello
            exchange.sendall(zmtp.command(b"PING", struct.pack(">H", 20) + b"context"))
            pong = zmtp.command(b"PONG", b"context")
            exchange.setblocking(False)
            answer = bytearray()

            def answered() -> bool:
                assert client.receive(MOST) == []
                with suppress(BlockingIOError):
                    answer.extend(exchange.recv(1_000))
                return len(answer) >= len(pong)

            scene.run_until(answered)
            assert answer == pong
            # What the exchange has told of itself: silent for two seconds, it is gone.
            scene.run_until(lambda: scene.ended)
    assert scene.ended == [CLOSED]


def test_what_breaks_the_protocol_ends_it(scene: Scene) -> None:
    with listener() as server:
        client = scene.client()
        with closing(greeted(scene, server, client)) as exchange:
            exchange.sendall(zmtp.head(2) + b"ok" + b"\xf9\x00")

            def ended() -> bool:
                client.receive(MOST)
                return bool(scene.ended)

            scene.run_until(ended)
    assert scene.ended == [CLOSED]


def test_one_that_was_interrupted_while_bytes_moved_is_ended(
    scene: Scene, router: tuple[zmq.Socket[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows where the next frame begins."""
    _, address = router
    client = standing(scene, address)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("roq.runtime.zmtp_client.ZmtpPeer.read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.receive(MOST)
    assert client.receive(MOST) == []
    scene.run_until(lambda: scene.ended)
    assert "interrupted" in scene.ended[0]


def test_one_that_was_interrupted_while_a_message_was_put_is_ended(
    scene: Scene, router: tuple[zmq.Socket[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it may be there."""
    _, address = router
    client = standing(scene, address)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("roq.runtime.zmtp_client.ZmtpPeer.put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.send([b"one", b"two"])
    assert not client.send([b"three"])
    scene.run_until(lambda: scene.ended)
    assert "interrupted" in scene.ended[0]


def test_one_that_ended_within_a_large_message_gives_no_more(scene: Scene) -> None:
    """Who reads as long as there is more would read for ever."""
    with listener() as server:
        client = scene.client()
        with closing(greeted(scene, server, client)) as exchange:
            exchange.sendall(zmtp.head(200_000) + bytes(100_000))
        more: list[bool] = []

        def ended() -> bool:
            assert client.receive(MOST) == []
            if client.fd < 0:
                more.append(client.more)  # before the loop tells the owner
            return bool(more)

        scene.run_until(ended)
    assert more[0] is False
    assert scene.ended == [CLOSED]


class Lock:
    """Lets another thread in at once when it is given back."""

    def __init__(self) -> None:
        self.on_free: Callable[[], None] = lambda: None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.on_free()


def test_what_is_put_as_soon_as_all_has_left_is_sent_on_too(scene: Scene) -> None:
    lock, size, count = Lock(), 8_000_000, 2
    with listener() as server:
        client = scene.client(lock=lock)
        with closing(greeted(scene, server, client)) as exchange:
            exchange.setblocking(False)
            client.send([bytes(size)])
            more, got = [bytes(size)], 0

            def freed() -> None:
                if more and client._peer is not None and not client._peer.out:
                    client.send([more.pop()])

            def all_there() -> bool:
                nonlocal got
                lock.on_free = freed
                with suppress(BlockingIOError):
                    got += len(exchange.recv(1 << 20))
                return got >= size * count

            scene.run_until(all_there)


def test_an_address_that_does_not_work_here_leaves_the_others(
    scene: Scene, router: tuple[zmq.Socket[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = router
    port = int(address.rpartition(":")[2])
    found = [(socket.AF_INET6, 0, 0, "", ("::1", port)), (0, 0, 0, "", ("127.0.0.1", port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    def made(family: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no such family here")
        return socket.socket(family, socket.SOCK_STREAM)

    monkeypatch.setattr("roq.runtime.zmtp_client.new_socket", made)
    client = scene.client()
    client.connect(f"tcp://somewhere:{port}")
    scene.run_until(lambda: scene.stands or scene.ended)
    assert not scene.ended


def test_the_end_of_the_loop_ends_it(scene: Scene, router: tuple[zmq.Socket[bytes], str]) -> None:
    client = standing(scene, router[1])
    scene.reactor.close()
    assert client.fd == -1
    assert not scene.reactor.at_close


def test_a_connection_is_used_though_this_thread_was_late(scene: Scene) -> None:
    with listener() as server:
        client = scene.client()
        client.connect(address_of(server))
        server.settimeout(SECONDS)
        exchange, _ = server.accept()
        with exchange:
            assert client._timer is not None
            assert client._timer.call is not None
            client._timer.call()
            exchange.sendall(zmtp.GREETING + zmtp.ready(b"ROUTER"))
            scene.run_until(lambda: scene.stands or scene.ended)
    assert not scene.ended
