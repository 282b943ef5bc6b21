"""The hand-off that any programmer would write first, on bare ZeroMQ sockets, for comparison.

A publisher is a PUSH socket, an exchange a relay (PULL to PUB), a subscriber a SUB connected to
all relays. To move, a publisher closes its socket with linger 0 and connects to the next relay.
All high-water marks of relays and subscribers are off, so whatever is lost is lost by moving.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from types import TracebackType
from typing import Final, NamedTuple, Self

import zmq

from roq.model import PublisherId
from roq.read.message import Batch
from roq.runtime.sockets import new_context

HEAD: Final = struct.Struct("<16sQQ")
"""Publisher, sequence, microseconds since 1970."""
DRAIN_MS: Final = 10_000
POLL_MS: Final = 100
SEPARATOR: Final = "+"
"""Between the two addresses of a relay: where it pulls, and where it publishes."""


class Stats(NamedTuple):
    """As of RoQ's publisher; a bare socket knows next to nothing."""

    acked_messages: int
    failed_messages: int = 0
    unknown_messages: int = 0
    replayed_batches: int = 0
    connections: int = 1
    exchange: str = "relay"
    ready: bool = True


class Publisher:
    """Pushes to one relay, until it is moved to the next."""

    def __init__(self, relays: list[str]) -> None:
        self.id = os.urandom(16)
        self._sequence = 0
        self._context = new_context()
        self._relays = cycle([relay.split(SEPARATOR)[0] for relay in relays])
        self._socket = self._connect()

    def publish(self, payload: bytes, topic: str = "") -> None:
        """Send one message."""
        head = HEAD.pack(self.id, self._sequence, time.time_ns() // 1_000)
        self._socket.send_multipart([topic.encode(), head, payload])
        self._sequence += 1

    def stats(self) -> Stats:
        """How far it is, as far as it knows."""
        return Stats(self._sequence)

    def move(self) -> None:
        """The naive hand-off."""
        self._socket.close(linger=0)
        self._socket = self._connect()

    def drain(self) -> None:
        """Let the last messages leave: the end is not what is to be measured."""
        self._socket.close(linger=DRAIN_MS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close(linger=DRAIN_MS if kind is None else 0)
        self._context.term()

    def _connect(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.PUSH)
        socket.connect(next(self._relays))
        return socket


class Subscriber:
    """Reads all relays."""

    def __init__(self, relays: list[str], topic: str) -> None:
        self.id = os.urandom(16)
        self._context = new_context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
        for relay in relays:
            self._socket.connect(relay.split(SEPARATOR)[1])
        self._stopped = threading.Event()

    def batches(self) -> Iterator[Batch]:
        """Each message as a batch of one, until stopped."""
        while not self._stopped.is_set():
            if not self._socket.poll(POLL_MS):
                continue
            topic, head, payload = self._socket.recv_multipart()
            publisher, sequence, created_us = HEAD.unpack(head)
            yield Batch(
                [payload],
                topic.decode(),
                PublisherId(publisher),
                sequence,
                created_us,
                len(payload),
            )

    def stop(self) -> None:
        """Let `batches` end; from any thread."""
        self._stopped.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()
        self._context.term()


@contextmanager
def relays(count: int) -> Iterator[list[str]]:
    """So many relays until the block ends, each a thread in libzmq; gives their addresses."""
    context = new_context()
    addresses = []
    try:
        for _ in range(count):
            inside, outside = context.socket(zmq.PULL), context.socket(zmq.PUB)
            ports = []
            for socket, mark in ((inside, zmq.RCVHWM), (outside, zmq.SNDHWM)):
                socket.setsockopt(zmq.LINGER, 0)
                socket.setsockopt(mark, 0)
                ports.append(socket.bind_to_random_port("tcp://127.0.0.1"))
            threading.Thread(target=_relay, args=(inside, outside), daemon=True).start()
            addresses.append(SEPARATOR.join(f"tcp://127.0.0.1:{port}" for port in ports))
        yield addresses
    finally:
        context.term()


def _relay(inside: zmq.Socket[bytes], outside: zmq.Socket[bytes]) -> None:
    with inside, outside, suppress(zmq.ContextTerminated):
        zmq.proxy(inside, outside)
