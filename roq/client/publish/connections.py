"""The connections of one publisher, one for each link that has any.

Everything here is done with the publisher's lock held; what only the I/O thread may do is handed to
it. A connection that is replaced or given back is not to be touched any more, so a caller that goes
on using one after an event asks `is_current` first.

None comes back by itself: one that did would resume in the middle, and what was lost in between
would go unnoticed. Opening, closing and watching a descriptor belong to the I/O thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import Final

from roq.client.io.engine import Engine
from roq.client.publish.pending_batch import PendingBatch
from roq.protocol import documents, zmtp
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.framing import split_answer
from roq.protocol.version import FIRST, other_version
from roq.runtime.zmtp_client import EXCHANGES, ZmtpClient
from roq.timing import HEARTBEAT_TIMEOUT_MS

GOODBYE_MS: Final = 200
HOLD_BYTES: Final = 32 * 1024
"""What a caller sends on and on leaves in pieces of this size: a small batch costs the processor
more than its bytes do, here and at the exchange. Only behind as much that is not acknowledged,"""
HOLD_SECONDS: Final = 0.0002
"""and only of a caller who was here so little time ago that he may well come again."""
HERE_SECONDS: Final = 0.001
"""Who has sent within this comes again, and reads what has arrived."""
ATTENDED_SECONDS: Final = 0.02
"""Between two looks of somebody else all the same."""
_OTHER_VERSION: Final = [
    REFUSED,
    documents.encode(Refused(code="version", text=other_version("the exchange", FIRST))),
]
"""What an exchange means that sends several frames, as those of version 1 did."""


class Connection:
    """A connection, and whether the I/O thread reads it. Made and closed in the I/O thread.

    Args:
        engine: whose reactor watches.
        link: whose connection it is.
        endpoint: address of the exchange.
        lock: the publisher's.
        on_readable: called in the I/O thread when something may have arrived.
        on_lost: called in the I/O thread with the reason, once, when the connection has ended.

    Raises:
        OSError: there can be no such address, or no descriptor is left.

    Attributes:
        watched: whether the I/O thread looks after the descriptor.
    """

    def __init__(
        self,
        engine: Engine,
        link: int,
        endpoint: str,
        *,
        lock: AbstractContextManager[object],
        on_readable: Callable[[Connection], None],
        on_lost: Callable[[Connection, str], None],
    ) -> None:
        self.link = link
        self.endpoint = endpoint
        self.watched = True
        self._engine = engine
        self._on_readable = on_readable
        self._on_lost = on_lost
        self._fd = -1
        """What the I/O thread watches."""
        self._client = ZmtpClient(
            engine.reactor, b"DEALER", EXCHANGES, lock=lock, on_stands=self._stands,
            on_ended=self._ended,
            silent_ms=HEARTBEAT_TIMEOUT_MS,
        )  # fmt: skip
        self._client.connect(endpoint)

    @property
    def fd(self) -> int:
        """Readable when something has arrived; -1: the connection does not stand."""
        return self._client.fd

    def watch(self, *, wanted: bool) -> None:
        """Let the I/O thread look after the descriptor, or not. I/O thread only."""
        self.watched = wanted
        fd = self._client.fd if wanted else -1
        if fd == self._fd:
            return
        if self._fd >= 0:
            self._engine.reactor.remove(self._fd)
        if fd >= 0:
            self._engine.reactor.add(fd, lambda: self._on_readable(self))
        self._fd = fd

    def send(self, frames: Sequence[bytes]) -> bool:
        """Send one message without waiting; False if the connection has ended."""
        return self._client.send(frames)

    def put_batch(self, topic: bytes, batch: bytes) -> None:
        """Have one batch sent with the next `flush`."""
        start = zmtp.head(len(topic), zmtp.MORE) + topic + zmtp.head(len(batch))
        self._client.put((start, batch))

    @property
    def unsent(self) -> int:
        """Bytes that were put and have not left."""
        return self._client.unsent

    def flush(self) -> bool:
        """Send what was put, as far as the system takes it; False if the connection has ended."""
        return self._client.flush()

    def receive(self, most: int) -> list[list[bytes]]:
        """What has arrived, up to `most` messages: the parts of each."""
        return [
            split_answer(frames[0]) if len(frames) == 1 else _OTHER_VERSION
            for frames in self._client.receive(most)
        ]

    @property
    def more(self) -> bool:
        """Whether `receive` may give more at once."""
        return self._client.more

    def close(self, linger_ms: int = 0) -> None:
        """Close; I/O thread only."""
        self.watch(wanted=False)
        self._client.close(linger_ms)

    def _ended(self, reason: str) -> None:
        self.watch(wanted=False)
        self._on_lost(self, f"{self.endpoint}: {reason}")

    def _stands(self) -> None:
        self.watch(wanted=self.watched)
        self._on_readable(self)  # who waits does not know this descriptor yet


class Connections:
    """By link.

    Args:
        prompt: exchanges are judged by how soon their acknowledgements are read: nothing is held,
            and who sends is not left alone.

    Attributes:
        all: those that are there now.
        holds: whether anything may be held; not if more than an acknowledgement is waited for.
        holding: something that was to be sent waits for `flush`.
        on_outcomes: called with the number of a link, and what its exchange tells of requests.
        on_cut: called when one is given up: what was on its way here may be lost.
    """

    def __init__(self, engine: Engine, *, prompt: bool = False) -> None:
        self.all: tuple[Connection, ...] = ()
        self.holds, self.holding = not prompt, False
        self._prompt = prompt
        self.on_outcomes: Callable[[int, list[bytes]], None] = lambda *_: None
        self.on_cut: Callable[[], None] = lambda: None
        self._engine = engine
        self._by_link: dict[int, Connection] = {}
        self._awaited: dict[int, int] = {}
        self._serial = 0
        self._dealt_at = self._looked_at = -inf

    @property
    def watched(self) -> bool:
        """Whether the I/O thread looks after all of them."""
        for connection in self.all:  # noqa: SIM110 - the hot path, where a generator costs more
            if not connection.watched:
                return False
        return True

    @property
    def fds(self) -> list[int]:
        """The descriptors to wait for."""
        return [connection.fd for connection in self.all if connection.fd >= 0]

    def is_current(self, connection: Connection) -> bool:
        """Whether it is still the one of its link."""
        return self._by_link.get(connection.link) is connection

    def open(self, link: int, connect: Callable[[int], None]) -> None:
        """Have the I/O thread call `connect` with a number for `add`; the present one is closed."""
        self.retire(link)
        self._serial += 1
        serial = self._awaited[link] = self._serial
        self._engine.call_soon(lambda: connect(serial))

    def is_awaited(self, link: int, serial: int) -> bool:
        """Whether the connection with this number is still wanted."""
        return self._awaited.get(link) == serial

    def add(self, connection: Connection) -> None:
        """It is there."""
        self._awaited.pop(connection.link, None)
        self._by_link[connection.link] = connection
        self.all = tuple(self._by_link.values())

    def retire(self, link: int, bye: Sequence[bytes] = ()) -> None:
        """Close the link's connection, after sending this if it is anything."""
        self._awaited.pop(link, None)
        connection = self._by_link.get(link)
        if connection is None:
            return
        if bye:
            connection.send(bye)
        # Handed over before it is forgotten: a signal handler that raises must leave none open.
        self._engine.call_soon(lambda: connection.close(GOODBYE_MS if bye else 0))
        del self._by_link[link]
        self.all = tuple(self._by_link.values())
        self.on_cut()

    def retire_all(self) -> None:
        """Close whatever there is: no connection is wanted any more."""
        for link in {*self._awaited, *self._by_link}:
            self.retire(link)

    def say(self, link: int, frames: Sequence[bytes]) -> None:
        """Send a message that is no batch."""
        connection = self._by_link.get(link)
        if connection is not None:
            connection.send(frames)

    def transmit(
        self, link: int, batches: Sequence[PendingBatch], now: float, under_way: int = 0
    ) -> bool:
        """Send batches; False if the connection has ended, or there is none.

        Args:
            under_way: bytes that are not acknowledged, these included: small batches of a caller
                who may come again at once may be held then; 0: they may not.
        """
        connection = self._by_link.get(link)
        if connection is None:
            return False
        for sealed in batches:
            connection.put_batch(sealed.stream.data, sealed.data)
        soon, self._dealt_at = now - self._dealt_at < HOLD_SECONDS, now
        busy = soon and self.holds and under_way >= HOLD_BYTES
        if busy and connection.unsent < HOLD_BYTES:
            self.holding = True
            return True
        return connection.flush()

    def attended(self, now: float) -> bool:
        """Whether a caller sends and reads so often that nobody else need look; sends what is held.

        Now and then the answer is no.
        """
        away = now > self._dealt_at + HERE_SECONDS
        if away or self._prompt or now > self._looked_at + ATTENDED_SECONDS:
            self._looked_at = now
            return False
        self.flush()
        return True

    def flush(self) -> None:
        """Send what is held."""
        if self.holding:
            for connection in self.all:
                connection.flush()
            self.holding = False  # last: a signal handler that raises must leave none forgotten

    def watch(self, *, wanted: bool) -> None:
        """Let the I/O thread look after all of them, or none. I/O thread only."""
        for connection in self.all:
            connection.watch(wanted=wanted)
