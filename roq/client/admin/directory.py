"""Asks configuration managers, over one connection to each, for everybody in this process.

A thousand publishers that look for their monitor at the same instant are one client to a manager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import zmq

from roq.errors import Unavailable
from roq.protocol.control import Answer, Control
from roq.runtime import descriptors
from roq.runtime.reactor import Reactor, Timer
from roq.runtime.rpc import RpcClient

IDLE_SECONDS: Final = 2.0
"""A connection over which nothing is asked for so long is given back."""

OnAnswer = Callable[[Answer | Unavailable, bool], None]
"""Called with the answer, and whether there was none in time."""


class Directory:
    """All connections to managers; I/O thread only.

    Args:
        reactor, context: of the client.
    """

    def __init__(self, reactor: Reactor, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._reactor = reactor
        self._context = context
        self._lines: dict[str, _Line] = {}

    def ask(self, address: str, message: Control, timeout: float, on_answer: OnAnswer) -> None:
        """Ask this manager; `on_answer` is called once, later, unless the client ends before."""
        line = self._lines.get(address)
        if line is None:
            try:
                line = _Line(self._reactor, self._context, address, self._ended)
            except zmq.ZMQError as error:
                failure = Unavailable(f"{address}: {descriptors.reason(error)}")
                self._reactor.call_soon(lambda: on_answer(failure, False))
                return
            self._lines[address] = line
        line.ask(message, timeout, on_answer)

    def _ended(self, line: _Line) -> None:
        if self._lines.get(line.address) is line:
            del self._lines[line.address]


class _Line:
    """One connection."""

    def __init__(
        self,
        reactor: Reactor,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        on_ended: Callable[[_Line], None],
    ) -> None:
        self.address = address
        self._reactor = reactor
        self._on_ended = on_ended
        self._open: dict[int, OnAnswer] = {}
        self._asked = 0
        self._idle: Timer | None = None
        self._client = RpcClient(reactor, context, address, on_lost=self._lost)

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
                self._idle = self._reactor.call_later(IDLE_SECONDS, self._end)
            on_answer(answer, isinstance(answer, Unavailable))

        self._client.request(message, timeout, answered)

    def _lost(self, reason: str) -> None:
        waiting, self._open = self._open, {}
        self._end()
        for on_answer in waiting.values():
            on_answer(Unavailable(f"{self.address}: {reason}"), False)

    def _end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._on_ended(self)
        self._client.close()
