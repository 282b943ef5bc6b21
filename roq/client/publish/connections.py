"""The connections of one publisher, one for each link that has any.

Everything here is done with the publisher's lock held; what only the I/O thread may do is handed to
it. A connection that is replaced or given back is not to be touched any more, so a caller that goes
on using one after an event asks `is_current` first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from roq.client.io.engine import Engine
from roq.client.publish.connection import Connection
from roq.client.publish.pending_batch import PendingBatch

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
