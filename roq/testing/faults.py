"""Faults between processes: links that are slow or break, fan-outs that drop.

    [subscriber] --TCP--> [Relay: delay, cuts] --TCP--> [LossyLive: drops] --TCP--> [exchange]

Nothing in RoQ knows of this: a client is told other addresses (`roq.connect(translate=…)`), which
`FaultyNetwork` makes up.
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import socket
import struct
import threading
import time
from collections import deque
from typing import Final, Self

import zmq

from roq.model import ExchangeInfo
from roq.protocol.channel import CONTROL
from roq.runtime import sockets

BUFFER_BYTES: Final = 4 * 1024 * 1024
CHUNK_BYTES: Final = 256 * 1024
MARK: Final = 0x526F
"""On packets of connections that a relay without a target has opened."""
_SO_ORIGINAL_DST: Final = 80
_SOCKADDR: Final = struct.Struct("!2xH4s8x")
_POLL_MS: Final = 50
_CONTROL: Final = bytes([CONTROL])


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of `tcp://host:port`; the host may be an IPv6 address in brackets."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port)


def _wanted(client: socket.socket) -> tuple[str, int]:
    """Where a connection was going before it was redirected."""
    address = client.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, _SOCKADDR.size)
    port, host = _SOCKADDR.unpack(address)
    return socket.inet_ntoa(host), port


class _Pipe:
    """One direction of a connection: what was read and is not due or not written yet."""

    def __init__(self, source: socket.socket, sink: socket.socket, delay: float) -> None:
        self.source = source
        self.sink = sink
        self.delay = delay
        self.chunks: deque[tuple[float, memoryview]] = deque()
        self.size = 0
        self.ended = False

    def read(self, now: float) -> None:
        try:
            data = self.source.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            self.chunks.append((now + self.delay, memoryview(data)))
            self.size += len(data)
        else:
            self.ended = True

    def write(self, now: float) -> None:
        while self.chunks and self.chunks[0][0] <= now:
            due, data = self.chunks[0]
            try:
                written = self.sink.send(data)
            except BlockingIOError:
                return
            self.size -= written
            if written < len(data):
                self.chunks[0] = (due, data[written:])
                return
            self.chunks.popleft()


class _Relayed:
    """A client's connection and the one that the relay has opened for it."""

    def __init__(self, client: socket.socket, server: socket.socket, relay: Relay) -> None:
        self.up = _Pipe(client, server, relay.upstream_delay_seconds)
        self.down = _Pipe(server, client, relay.delay_seconds)

    @property
    def over(self) -> bool:
        return any(pipe.ended and not pipe.chunks for pipe in (self.up, self.down))

    def close(self) -> None:
        self.up.source.close()
        self.up.sink.close()


class Relay:
    """A TCP relay in a thread; what passes is exact to the byte, in order, and bounded in memory.

    Args:
        target: `tcp://host:port` to pass on to; None: wherever the client wanted to go before
            `iptables -j REDIRECT` sent it here. What the relay itself opens is marked with `MARK`,
            so that a rule can let it pass; that needs root.
        delay_seconds: what the target sends arrives so much later.
        upstream_delay_seconds: what the client sends arrives so much later.
        cut_every_seconds: all connections are broken at this interval; None: never.

    Attributes:
        cuts: how many connections were broken on purpose.
    """

    def __init__(
        self,
        target: str | None,
        *,
        delay_seconds: float = 0.0,
        upstream_delay_seconds: float = 0.0,
        cut_every_seconds: float | None = None,
    ) -> None:
        self.delay_seconds = delay_seconds
        self.upstream_delay_seconds = upstream_delay_seconds
        self.cut_every_seconds = cut_every_seconds
        self.cuts = 0
        self._target = None if target is None else parse_endpoint(target)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.setblocking(False)
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._connections: list[_Relayed] = []
        self._cut_wanted = False
        self._paused = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def set_delay(self, seconds: float) -> None:
        """Whatever comes from now on, in both directions, takes so long; any thread."""
        self.delay_seconds = self.upstream_delay_seconds = seconds
        for connection in list(self._connections):
            connection.up.delay = connection.down.delay = seconds

    def cut_now(self) -> None:
        """Break all connections; what is under way is lost. New ones are accepted at once."""
        self._cut_wanted = True
        self._wake()

    def pause(self) -> None:
        """Let nothing through, without breaking anything."""
        self._paused = True
        self._wake()

    def resume(self) -> None:
        """Let everything through again, also what came meanwhile."""
        self._paused = False
        self._wake()

    def close(self) -> None:
        """Break all connections for good."""
        if self._closing:
            return
        self._closing = True
        self._wake()
        self._thread.join()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    def _run(self) -> None:
        every = self.cut_every_seconds
        next_cut = time.monotonic() + every if every else float("inf")
        while not self._closing:
            now = time.monotonic()
            if self._cut_wanted or now >= next_cut:
                self._cut_wanted = False
                next_cut = now + every if every else float("inf")
                self.cuts += len(self._connections)
                self._close_all()
            ready = self._wait(now, next_cut)
            self._serve(ready)
        self._close_all()
        self._listener.close()

    def _wait(self, now: float, next_cut: float) -> dict[int, int]:
        """What can be read (1) and written (2), by descriptor."""
        wake = next_cut
        wanted: dict[socket.socket | int, int] = {
            self._listener: selectors.EVENT_READ,
            self._wake_read: selectors.EVENT_READ,
        }
        for connection in self._connections if not self._paused else ():
            for pipe in (connection.up, connection.down):
                if pipe.size < BUFFER_BYTES and not pipe.ended:
                    wanted[pipe.source] = wanted.get(pipe.source, 0) | selectors.EVENT_READ
                if pipe.chunks:
                    wake = min(wake, pipe.chunks[0][0])
                    if pipe.chunks[0][0] <= now:
                        wanted[pipe.sink] = wanted.get(pipe.sink, 0) | selectors.EVENT_WRITE
        # A due chunk is waited for as writable, so it must not shorten the wait.
        timeout = None if wake == float("inf") else max(wake - now, 0.0)
        if any(events & selectors.EVENT_WRITE for events in wanted.values()):
            timeout = 0.05 if timeout is None else max(timeout, 0.001)
        with selectors.PollSelector() as selector:
            for source, events in wanted.items():
                selector.register(source, events)
            return {key.fd: events for key, events in selector.select(timeout)}

    def _serve(self, ready: dict[int, int]) -> None:
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if self._listener.fileno() in ready:
            self._accept()
        if self._paused:
            return
        now = time.monotonic()
        for connection in list(self._connections):
            try:
                for pipe in (connection.up, connection.down):
                    if ready.get(pipe.source.fileno(), 0) & selectors.EVENT_READ:
                        pipe.read(now)
                    pipe.write(now)
            except OSError:
                self._drop(connection)
                continue
            if connection.over:
                self._drop(connection)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        try:
            server = self._connect(client)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections.append(_Relayed(client, server, self))

    def _connect(self, client: socket.socket) -> socket.socket:
        if self._target is not None:
            return socket.create_connection(self._target, timeout=1.0)
        server = socket.socket()
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
            server.setblocking(False)
            # Others must not wait for a host that does not answer: an error shows at the first use.
            server.connect_ex(_wanted(client))
        except OSError:
            server.close()
            raise
        return server

    def _drop(self, connection: _Relayed) -> None:
        connection.close()
        self._connections.remove(connection)

    def _close_all(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()


class LossyLive:
    """A fan-out relay (XSUB to XPUB) that drops a share of the batches, never control topics.

    Args:
        target: address of an exchange's fan-out.
        drop: share of the batches that is dropped, 0 to 1.
        seed: the same seed drops the same batches of the same sequence.

    Attributes:
        dropped, passed: batches so far.
    """

    def __init__(self, target: str, *, drop: float = 0.01, seed: int = 0) -> None:
        self.dropped = 0
        self.passed = 0
        self._drop = drop
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._context = sockets.new_context()
        self._sub = self._context.socket(zmq.XSUB)
        self._pub = self._context.socket(zmq.XPUB)
        self._pub.setsockopt(zmq.XPUB_VERBOSER, 1)
        for end in (self._sub, self._pub):
            end.setsockopt(zmq.LINGER, 0)
            end.setsockopt(zmq.SNDHWM, 1_000)
            end.setsockopt(zmq.RCVHWM, 1_000)
        self._pub.bind("tcp://127.0.0.1:*")
        self.address = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
        self._sub.connect(target)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="lossy-live", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop passing on."""
        if not self._closing:
            self._closing = True
            self._thread.join()
            self._context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._sub, zmq.POLLIN)
        poller.register(self._pub, zmq.POLLIN)
        while not self._closing:
            ready = dict(poller.poll(_POLL_MS))
            if self._pub in ready:
                self._sub.send(self._pub.recv())
            if self._sub in ready:
                frame = self._sub.recv()
                if frame[:1] != _CONTROL and self._random.random() < self._drop:
                    self.dropped += 1
                else:
                    self.passed += 1
                    self._pub.send(frame)


class FaultyNetwork:
    """The network between one client and the exchanges of a queue.

    `translate` is handed to `roq.connect`; addresses that are not part of it stay as they are.
    """

    def __init__(self) -> None:
        self.relays: list[Relay] = []
        self.lossy: list[LossyLive] = []
        self._addresses: dict[str, str] = {}

    def add(
        self,
        exchange: ExchangeInfo,
        *,
        drop: float = 0.0,
        seed: int = 0,
        delay_seconds: float = 0.0,
        cut_every_seconds: float | None = None,
    ) -> None:
        """Put faults between the client and this exchange."""
        live = exchange.live
        if drop:
            self.lossy.append(LossyLive(live, drop=drop, seed=seed))
            live = self.lossy[-1].address
        for real, target in ((exchange.live, live), (exchange.data, exchange.data)):
            relay = Relay(target, delay_seconds=delay_seconds, cut_every_seconds=cut_every_seconds)
            self.relays.append(relay)
            self._addresses[real] = relay.address

    def translate(self, address: str) -> str:
        """The address to connect to instead of `address`."""
        return self._addresses.get(address, address)

    def close(self) -> None:
        """End all relays."""
        for relay in self.relays:
            relay.close()
        for lossy in self.lossy:
            lossy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
