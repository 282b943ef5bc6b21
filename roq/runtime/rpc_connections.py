"""One connection to each server, for all in this process that ask one.

A thousand publishers that look for their monitor at the same instant are one client to a manager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import zmq

from roq.errors import Unavailable
from roq.protocol.control import Answer, Control
from roq.runtime import descriptors
from roq.runtime.interfaces import Dialer, Loop, Socket, Timer
from roq.runtime.rpc import RpcClient

IDLE_SECONDS: Final = 2.0
"""A connection over which nothing is asked for so long is given back."""

OnAnswer = Callable[[Answer | Unavailable], None]


class NotReached(Unavailable):
    """There is no connection, or no more: nobody is late."""


class RpcConnections:
    """All connections of one kind; loop thread only.

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
        self._clients: dict[str, RpcClient] = {}
        self._idle: dict[str, Timer] = {}
        """Until those over which nothing is asked any more are given back."""

    def ask(self, address: str, message: Control, timeout: float, on_answer: OnAnswer) -> None:
        """Ask this server; `on_answer` is called once, later, unless this is closed before."""
        try:
            client = self._clients.get(address) or self._connect(address)
        except zmq.ZMQError as error:
            failure = NotReached(f"{address[:300]}: {descriptors.reason(error)}")
            self._loop.call_soon(lambda: on_answer(failure))
            return
        self._busy(address)

        def answered(answer: Answer | Unavailable) -> None:
            if not client.waiting and self._clients.get(address) is client:
                self._busy(address)
                self._idle[address] = self._loop.call_later(
                    IDLE_SECONDS, lambda: self._give_back(address)
                )
            on_answer(answer)

        client.request(message, timeout, answered)

    def close(self) -> None:
        """Give all back; nobody is called any more."""
        for address in list(self._clients):
            self._give_back(address)

    def _connect(self, address: str) -> RpcClient:
        def lost(reason: str) -> None:
            waiting = client.waiting
            self._give_back(address)
            for answered in waiting:
                answered(NotReached(f"{address}: {reason}"))
            self._on_lost(address, reason)

        client = RpcClient(self._loop, self._dialer, address, on_lost=lost)
        self._clients[address] = client
        return client

    def _busy(self, address: str) -> None:
        timer = self._idle.pop(address, None)
        if timer is not None:
            timer.cancel()

    def _give_back(self, address: str) -> None:
        self._busy(address)
        self._clients.pop(address).close()
