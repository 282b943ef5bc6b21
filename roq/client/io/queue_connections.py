"""Connections to all exchanges of a queue, around a machine that decides what is said there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from roq.model import ExchangeInfo, LogId
from roq.protocol.control import Topology
from roq.runtime.addresses import Translate
from roq.runtime.interfaces import Loop


@dataclass(frozen=True, slots=True)
class AskExchange:
    """Send this to an exchange."""

    log: LogId
    frames: list[bytes]


class KnownExchange(Protocol):
    """An exchange, as a machine knows it."""

    @property
    def exchange(self) -> ExchangeInfo:
        """Where it is."""
        ...


class QueueMachine(Protocol):
    """What decides what is said at each exchange."""

    def open(self, exchange: ExchangeInfo, queue: bytes) -> None:
        """The queue has this exchange, or has it at another address."""
        ...

    def up(self, log: LogId, now: float) -> Sequence[AskExchange]:
        """Its connection stands: this is said first."""
        ...

    def down(self, log: LogId) -> None:
        """Its connection has ended."""
        ...


class Line(Protocol):
    """A connection to one exchange: see `ExchangeConnection`."""

    @property
    def trouble(self) -> str:
        """Why it does not stand."""
        ...

    def ask(self, frames: list[bytes]) -> None:
        """Send, if it stands."""
        ...

    def close(self, farewells: list[list[bytes]]) -> None:
        """Use it no more, when these are sent."""
        ...


class Lines(Protocol):
    """What makes connections: see `ExchangeConnections`."""

    def open(
        self,
        address: str,
        *,
        on_up: Callable[[], None],
        on_down: Callable[[], None],
        on_answers: Callable[[list[list[bytes]]], None],
        on_heard: Callable[[], None] | None = None,
    ) -> Line:
        """Connect, and again whenever that ends."""
        ...


class Connecting(Protocol):
    """What of a client's I/O thread makes connections: see `Engine`."""

    translate: Translate

    @property
    def reactor(self) -> Loop:
        """The loop of that thread."""
        ...

    @property
    def exchanges(self) -> Lines:
        """Connections to exchanges."""
        ...


class QueueConnections:
    """One for each exchange of a queue. I/O thread only.

    Args:
        engine: the client's I/O thread.
        machine: what decides.
        places: the exchanges that it knows.
        on_gone: called when an exchange is gone with its log; the machine has it still.
        on_answers: called with what has come from an exchange.
        on_heard: called when anything has, as of `ExchangeConnections.open`.
        lock: held while the machine is told of a connection. Who calls from elsewhere holds it.
    """

    def __init__(
        self,
        engine: Connecting,
        machine: QueueMachine,
        places: Mapping[LogId, KnownExchange],
        *,
        on_gone: Callable[[LogId], object],
        on_answers: Callable[[LogId, list[list[bytes]]], None],
        on_heard: Callable[[LogId], None] | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._engine = engine
        self._machine = machine
        self._places = places
        self._on_gone = on_gone
        self._on_answers = on_answers
        self._on_heard = on_heard
        self._lock = nullcontext() if lock is None else lock
        self._connections: dict[LogId, Line] = {}

    def use(self, topology: Topology, keep: Callable[[LogId], bool] = lambda _: False) -> None:
        """Be connected to exactly these exchanges, and know those that come back with their logs.

        Args:
            topology: of the queue.
            keep: whether an exchange that is not there any more is left as it is.
        """
        wanted = {exchange.log: exchange for exchange in topology.exchanges}
        away = set(topology.logs) - {log.number for log in wanted}
        for log in [log for log in self._places if log not in wanted and not keep(log)]:
            self._cut(log, [])
            if log.number in away:
                self._machine.down(log)
            else:
                self._on_gone(log)
        for log, exchange in wanted.items():
            place = self._places.get(log)
            moved = place is not None and place.exchange.data != exchange.data
            self._machine.open(exchange, topology.queue_id)
            if moved and log in self._connections:
                self._cut(log, [])
                self._machine.down(log)
            if log not in self._connections:
                self._connect(log, exchange.data)

    def perform(self, asks: Iterable[AskExchange]) -> None:
        """Send these."""
        for ask in asks:
            connection = self._connections.get(ask.log)
            if connection is not None:
                connection.ask(ask.frames)

    def trouble(self, log: LogId) -> str:
        """Why there is no connection to this exchange; empty: nothing is in the way."""
        connection = self._connections.get(log)
        return "" if connection is None else connection.trouble

    def close(self, last: Iterable[AskExchange]) -> None:
        """Use none any more; this is said before."""
        farewells: dict[LogId, list[list[bytes]]] = {}
        for ask in last:
            farewells.setdefault(ask.log, []).append(ask.frames)
        for log in list(self._connections):
            self._cut(log, farewells.get(log, []))

    def _cut(self, log: LogId, farewells: list[list[bytes]]) -> None:
        connection = self._connections.pop(log, None)
        if connection is not None:
            connection.close(farewells)

    def _connect(self, log: LogId, address: str) -> None:
        def up() -> None:
            with self._lock:
                self.perform(self._machine.up(log, self._engine.reactor.now()))

        def down() -> None:
            with self._lock:
                self._machine.down(log)

        self._connections[log] = self._engine.exchanges.open(
            self._engine.translate(address),
            on_up=up,
            on_down=down,
            on_answers=lambda answers: self._on_answers(log, answers),
            on_heard=None if self._on_heard is None else partial(self._on_heard, log),
        )
