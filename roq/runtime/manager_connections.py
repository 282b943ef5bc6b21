"""One connection to each configuration manager, for all in this process that ask one.

A thousand publishers that look for their monitor at the same instant are one client to a manager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import zmq

from roq.errors import Unavailable
from roq.protocol.control import Answer, Control
from roq.runtime import descriptors
from roq.runtime.ports import Dialer, Loop, Socket, Timer
from roq.runtime.rpc import RpcClient

IDLE_SECONDS: Final = 2.0
"""A connection over which nothing is asked for so long is given back."""

OnAnswer = Callable[[Answer | Unavailable], None]


class NotReached(Unavailable):
    """There is no connection, or no more: nobody is late."""


class ManagerConnections:
    """All connections to managers; loop thread only.

    Args:
        on_lost: called with the address and the reason when a connection has ended, after those
            that waited for answers were told.
    """

    def __init__(
        self,
        loop: Loop,
        dialer: Dialer[Socket],
        on_lost: Callable[[str, str], None] = lambda _address, _reason: None,
    ) -> None:
        self._loop = loop
        self._dialer = dialer
        self._on_lost = on_lost
        self._connections: dict[str, _Connection] = {}

    def ask(self, address: str, message: Control, timeout: float, on_answer: OnAnswer) -> None:
        """Ask this manager; `on_answer` is called once, later, unless this is closed before."""
        connection = self._connections.get(address)
        if connection is None:
            try:
                connection = _Connection(
                    self._loop, self._dialer, address, self._ended, self._on_lost
                )
            except zmq.ZMQError as error:
                failure = NotReached(f"{address[:300]}: {descriptors.reason(error)}")
                self._loop.call_soon(lambda: on_answer(failure))
                return
            self._connections[address] = connection
        connection.ask(message, timeout, on_answer)

    def close(self) -> None:
        """Give all back; nobody is called any more."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def _ended(self, connection: _Connection) -> None:
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]


class _Connection:
    """To one manager."""

    def __init__(
        self,
        loop: Loop,
        dialer: Dialer[Socket],
        address: str,
        on_ended: Callable[[_Connection], None],
        on_lost: Callable[[str, str], None],
    ) -> None:
        self.address = address
        self._loop = loop
        self._on_ended = on_ended
        self._on_lost = on_lost
        self._open: dict[int, OnAnswer] = {}
        self._asked = 0
        self._idle: Timer | None = None
        self._client = RpcClient(loop, dialer, address, on_lost=self._lost)

    def ask(self, message: Control, timeout: float, on_answer: OnAnswer) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._asked += 1
        number = self._asked
        self._open[number] = on_answer

        def answered(answer: Answer | Unavailable) -> None:
            if self._open.pop(number, None) is None:
                return
            if not self._open:
                self._idle = self._loop.call_later(IDLE_SECONDS, self._end)
            on_answer(answer)

        self._client.request(message, timeout, answered)

    def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._open.clear()
        self._client.close()

    def _end(self) -> None:
        self.close()
        self._on_ended(self)

    def _lost(self, reason: str) -> None:
        waiting = list(self._open.values())
        self._end()
        for on_answer in waiting:
            on_answer(NotReached(f"{self.address}: {reason}"))
        self._on_lost(self.address, reason)
