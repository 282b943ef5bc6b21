"""The connections of one publisher, one for each lane that has any.

Everything here is done with the publisher's lock held; what only the I/O thread may do is handed to
it. A connection that is replaced or given back is not to be touched any more, so whoever goes on
using one after an event asks `is_current` first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from roq.client.connection import Connection
from roq.client.engine import Engine
from roq.client.outbox import Sealed

GOODBYE_MS: Final = 200


class Connections:
    """By lane.

    Attributes:
        all: those that are there now.
    """

    def __init__(self, engine: Engine) -> None:
        self.all: tuple[Connection, ...] = ()
        self._engine = engine
        self._by_lane: dict[int, Connection] = {}
        self._awaited: dict[int, int] = {}
        self._serial = 0

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
        return [connection.fd for connection in self.all]

    def is_current(self, connection: Connection) -> bool:
        """Whether it is still the one of its lane."""
        return self._by_lane.get(connection.lane) is connection

    def open(self, lane: int, connect: Callable[[int], None]) -> None:
        """Have the I/O thread call `connect` with a number for `add`; the present one is closed."""
        self.retire(lane)
        self._serial += 1
        serial = self._awaited[lane] = self._serial
        self._engine.call_soon(lambda: connect(serial))

    def is_awaited(self, lane: int, serial: int) -> bool:
        """Whether the connection with this number is still wanted."""
        return self._awaited.get(lane) == serial

    def add(self, connection: Connection) -> None:
        """It is there."""
        self._awaited.pop(connection.lane, None)
        self._by_lane[connection.lane] = connection
        self.all = tuple(self._by_lane.values())

    def retire(self, lane: int, bye: Sequence[bytes] = ()) -> None:
        """Close the lane's connection, after sending this if it is anything."""
        self._awaited.pop(lane, None)
        connection = self._by_lane.pop(lane, None)
        if connection is None:
            return
        self.all = tuple(self._by_lane.values())
        if bye:
            connection.send(bye)
        self._engine.call_soon(lambda: connection.close(GOODBYE_MS if bye else 0))

    def say(self, lane: int, frames: Sequence[bytes]) -> None:
        """Send a message that is no batch."""
        connection = self._by_lane.get(lane)
        if connection is not None:
            connection.send(frames)

    def transmit(self, lane: int, batches: Sequence[Sealed]) -> bool:
        """Send batches; False if the connection does not take one, or there is none."""
        connection = self._by_lane.get(lane)
        if connection is None:
            return False
        for sealed in batches:  # noqa: SIM110 - as above
            if not connection.send_batch(sealed.stream.data, sealed.data):
                return False
        return True

    def watch(self, *, wanted: bool) -> None:
        """Let the I/O thread look after all of them, or none. I/O thread only."""
        for connection in self.all:
            connection.watch(wanted=wanted)
