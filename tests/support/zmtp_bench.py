"""Servers of `roq.runtime.zmtp_server` in one loop, and who connects to them; no test in here."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import zmq

from roq.protocol import zmtp
from roq.runtime.reactor import Reactor
from roq.runtime.zmtp_server import FanOut, Heartbeats, Router

PATIENCE_SECONDS = 60.0
HOST = "127.0.0.1"
RESET = struct.pack("ii", 1, 0)


class Raw:
    """A peer that sends the bytes that it is told to send."""

    def __init__(self, port: int, kind: bytes = b"", receive_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect((HOST, port))
        self.inbound = zmtp.Inbound(frozenset({b"ROUTER", b"XPUB"}), 1 << 30)
        if kind:
            self.send(zmtp.GREETING + zmtp.ready(kind))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, *frames: bytes) -> None:
        """A message."""
        self.send(
            b"".join(
                zmtp.head(len(body), zmtp.MORE if number < len(frames) else 0) + body
                for number, body in enumerate(frames, 1)
            )
        )

    def fill(self) -> int:
        """Say tiny messages until the system takes no more; gives how many bytes."""
        self.socket.settimeout(0)
        sent = 0
        with suppress(BlockingIOError):
            while True:
                sent += self.socket.send(b"\x00\x01x" * 5_000)
        self.socket.settimeout(PATIENCE_SECONDS)
        return sent

    def heard(self) -> list[list[bytes]]:
        """What has come by now; raises if that is none of ZeroMQ."""
        messages: list[list[bytes]] = []
        while select.select([self.socket], [], [], 0)[0]:
            data = self.socket.recv(1 << 16)
            if not data:
                break
            messages += self.take(data)
        return messages

    def take(self, data: bytes) -> list[list[bytes]]:
        messages: list[list[bytes]] = []
        while data:
            large = self.inbound.large
            if large is None:
                return messages + self.inbound.take(memoryview(self.inbound.rest + data), 1 << 20)
            size = min(len(large) - self.inbound.filled, len(data))
            large[self.inbound.filled : self.inbound.filled + size] = data[:size]
            messages += self.inbound.grew(size)
            data = data[size:]
        return messages

    def ended(self) -> bool:
        """Whether the other end has closed the connection; what came before is passed over."""
        try:
            while select.select([self.socket], [], [], 0)[0]:
                if not self.socket.recv(1 << 16):
                    return True
        except ConnectionResetError:
            return True
        return False

    def reset(self) -> None:
        """Vanish."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.socket.close()


class Bench:
    """Servers, their loop, and clients.

    Attributes:
        got: what the routers have received: route and frames.
        ended: routes of their connections that have ended.
        told: what the fan-outs have been told of subscriptions.
    """

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.got: list[tuple[bytes, list[bytes]]] = []
        self.ended: list[bytes] = []
        self.told: list[tuple[bool, bytes]] = []
        self._servers: list[Router | FanOut] = []
        self._raw: list[Raw] = []
        self._sockets: list[zmq.Socket[bytes]] = []

    def close(self) -> None:
        for each in self._servers:
            each.close()
        for made in self._sockets:
            made.close(0)
        for raw in self._raw:
            raw.socket.close()
        self.context.term()
        self.reactor.close()

    def router(
        self, *, largest: int = 1 << 24, mark: int = 512, patience_ms: int = 0, host: str = HOST,
        calm: Callable[[bytes], bool] = lambda _: False,
    ) -> tuple[Router, int]:  # fmt: skip
        """A new one that receives as the loop runs, and its port."""
        made = Router(
            self.reactor, largest=largest, mark=mark,
            on_readable=lambda: self.got.extend(made.receive(50)), on_ended=self.ended.extend,
            heartbeats=Heartbeats(patience_ms, calm) if patience_ms else None,
        )  # fmt: skip
        self._servers.append(made)
        return made, made.bind(host, (0, 0), ())

    def fan_out(self, *, mark: int = 512, largest: int = 512) -> tuple[FanOut, int]:
        """Likewise."""
        made = FanOut(
            self.reactor, largest=largest, mark=mark,
            on_readable=lambda: self.told.extend(made.receive(50)),
            untaken_ms=10_000,
        )  # fmt: skip
        self._servers.append(made)
        return made, made.bind(HOST, (0, 0), ())

    def socket(self, kind: int, **options: int | bytes) -> zmq.Socket[bytes]:
        """A socket of libzmq."""
        made = self.context.socket(kind)
        self._sockets.append(made)
        for name, value in options.items():
            made.setsockopt(getattr(zmq, name), value)
        return made

    def client(self, kind: int, port: int, **options: int | bytes) -> zmq.Socket[bytes]:
        """A socket of libzmq that is connected."""
        made = self.socket(kind, **options)
        made.connect(f"tcp://{HOST}:{port}")
        return made

    def raw(self, port: int, kind: bytes = b"", receive_bytes: int = 0) -> Raw:
        made = Raw(port, kind, receive_bytes)
        self._raw.append(made)
        return made

    def until(self, done: Callable[[], object]) -> None:
        """Run the loop until this holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS

        def look() -> None:
            if done() or time.monotonic() > deadline:
                self.reactor.stop()
            else:
                timers.append(self.reactor.call_later(0.001, look))

        timers = [self.reactor.call_later(0, look)]
        self.reactor._stopping = False
        self.reactor.run()
        timers[-1].cancel()
        assert done()

    def receive(self, socket: zmq.Socket[bytes]) -> list[bytes]:
        """The next message of a client."""
        self.until(lambda: socket.poll(0))
        return socket.recv_multipart()

    def hear(self, raw: Raw, count: int) -> list[list[bytes]]:
        """So many messages of a raw peer."""
        messages: list[list[bytes]] = []
        self.until(lambda: messages.extend(raw.heard()) or len(messages) >= count)
        return messages

    def standing(self, server: Router | FanOut, count: int) -> None:
        """Wait until so many peers have finished the handshake."""
        self.until(lambda: sum(peer.inbound.stands for peer in server.peers) == count)


def arrived(*sockets: socket.socket) -> None:
    """Wait until each has something to read."""
    for each in sockets:
        assert select.select([each], [], [], PATIENCE_SECONDS)[0]


def bench() -> Iterator[Bench]:
    """A fixture."""
    made = Bench()
    yield made
    made.close()


def ready(bench: Bench, server: Router | FanOut, *raws: Raw) -> None:
    """They stand, and nothing that they were sent is unread."""
    bench.standing(server, len(raws))
    for raw in raws:
        raw.heard()


def unread(server: Router | FanOut) -> list[socket.socket]:
    """Connections on this side."""
    return [peer.socket for peer in server.peers]
