"""Connections to the exchanges of a queue, for what waits for requests there. I/O thread only."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager

from roq.client.consume.seat import AskExchange
from roq.client.io.engine import Engine
from roq.client.io.exchange_connections import ExchangeConnection
from roq.client.request.machine import RequesterMachine
from roq.model import LogId
from roq.protocol.control import Topology
from roq.protocol.requesting import Position


class RequestConnections:
    """Those of one collector. All but what its connections call is called with its lock.

    Args:
        engine: the client's threads.
        machine: what decides.
        lock: the collector's.
        on_answers: called without it, with what has come.
    """

    def __init__(
        self, engine: Engine, machine: RequesterMachine,
        lock: AbstractContextManager[object],
        on_answers: Callable[[LogId, list[list[bytes]]], None],
    ) -> None:  # fmt: skip
        self._engine = engine
        self._machine = machine
        self._lock = lock
        self._on_answers = on_answers
        self._connections: dict[LogId, ExchangeConnection] = {}
        self._topology: Topology | None = None

    def use(self, topology: Topology) -> list[tuple[LogId, Position]]:
        """Be connected to exactly these exchanges; gives what was open at those that are gone."""
        lost: list[tuple[LogId, Position]] = []
        wanted = {exchange.log: exchange for exchange in topology.exchanges}
        numbers = {log.number for log in wanted}
        self._topology, now = topology, self._engine.reactor.now()
        self._machine.are(list(wanted), set(topology.logs) - numbers, topology.queue_id)
        for name in [name for name in self._machine.places if name not in wanted]:
            if name.number in topology.logs and name.number not in numbers:
                continue  # it comes back with its log
            if now < self._machine.places[name].told_by < math.inf and self._machine.is_newer(name):
                continue
            self._cut(name, [])
            lost += [(name, position) for _, position in self._machine.leave(name)]
        for name, exchange in wanted.items():
            place = self._machine.places.get(name)
            moved = place is not None and place.exchange.data != exchange.data
            self._machine.open(exchange, topology.queue_id)
            if moved and name in self._connections:
                self._cut(name, [])
                self._machine.down(name)
            if name not in self._connections:
                self._connect(name, exchange.data)
        return lost

    def overdue(self) -> Topology | None:
        """What is to be used again, as something was not told of in time; None: nothing."""
        overdue = self._machine.overdue(self._engine.reactor.now())
        return self._topology if overdue else None

    def perform(self, asks: list[AskExchange]) -> None:
        """Send these."""
        for ask in asks:
            connection = self._connections.get(ask.log)
            if connection is not None:
                connection.ask(ask.frames)

    def close(self, last: list[AskExchange]) -> None:
        """Use none any more; this is what is said before."""
        for name in list(self._connections):
            self._cut(name, [ask.frames for ask in last if ask.log == name])

    def _cut(self, name: LogId, farewells: list[list[bytes]]) -> None:
        connection = self._connections.pop(name, None)
        if connection is not None:
            connection.close(farewells)

    def _connect(self, name: LogId, address: str) -> None:
        self._connections[name] = self._engine.exchanges.open(
            self._engine.translate(address),
            on_up=lambda: self._stands(name),
            on_down=lambda: self._ended(name),
            on_answers=lambda answers: self._on_answers(name, answers),
        )

    def _stands(self, name: LogId) -> None:
        with self._lock:
            self.perform(self._machine.up(name, self._engine.reactor.now()))

    def _ended(self, name: LogId) -> None:
        with self._lock:
            self._machine.down(name)
