"""Connections to the exchanges of a queue, for what waits for requests there. I/O thread only."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager

from roq.client.io.engine import Engine
from roq.client.io.queue_connections import QueueConnections
from roq.client.request.machine import RequesterMachine
from roq.model import LogId
from roq.protocol.control import Topology
from roq.protocol.requesting import Position


class RequestConnections:
    """Those of one collector. All of it is called with its lock.

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
        self._lost: list[tuple[LogId, Position]] = []
        self._topology: Topology | None = None
        self._connections = QueueConnections(
            engine, machine, machine.places,
            on_gone=self._gone, on_answers=on_answers, lock=lock,
        )  # fmt: skip
        self.perform = self._connections.perform
        self.close = self._connections.close

    def use(self, topology: Topology) -> list[tuple[LogId, Position]]:
        """Be connected to exactly these exchanges; gives what was open at those that are gone."""
        serving = [exchange.log for exchange in topology.exchanges]
        away = set(topology.logs) - {log.number for log in serving}
        self._topology = topology
        self._machine.are(serving, away, topology.queue_id)
        self._connections.use(topology, lambda log: log.number in away or self._is_awaited(log))
        lost, self._lost = self._lost, []
        return lost

    def overdue(self) -> Topology | None:
        """What is to be used again, as something was not told of in time; None: nothing."""
        overdue = self._machine.overdue(self._engine.reactor.now())
        return self._topology if overdue else None

    def _is_awaited(self, log: LogId) -> bool:
        """Whether the news of this exchange is perhaps on its way."""
        told_by = self._machine.places[log].told_by
        return self._engine.reactor.now() < told_by < math.inf and self._machine.is_newer(log)

    def _gone(self, log: LogId) -> None:
        self._lost += [(log, position) for _, position in self._machine.leave(log)]
