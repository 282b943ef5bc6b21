"""A collector is connected to the exchanges that its queue has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from roq.client.consume.seat import AskExchange
from roq.client.request.machine import RequesterMachine
from roq.client.request.request_connections import RequestConnections
from roq.model import ExchangeInfo, LogId
from roq.protocol import requesting
from roq.protocol.control import Topology
from roq.protocol.requesting import Position, Want

ONE = LogId(1, 1)


class PaperConnections:
    """Of one engine; by address what is open, and what was asked there."""

    def __init__(self) -> None:
        self.open_at: list[str] = []
        self.asked: list[list[bytes]] = []
        self.ups: list[Callable[[], None]] = []
        self.downs: list[Callable[[], None]] = []

    def open(
        self, address: str, *, on_up: Callable[[], None], on_down: Callable[[], None], **_: Any
    ) -> Any:
        self.open_at.append(address)
        self.ups.append(on_up)
        self.downs.append(on_down)
        close = lambda _: self.open_at.remove(address)  # noqa: E731
        return SimpleNamespace(ask=self.asked.append, close=close)


def topology(*data: str, logs: list[int] | None = None) -> Topology:
    exchanges = [
        ExchangeInfo(number=1, epoch=1, generation=1, host="h", data=each, live="l")
        for each in data
    ]
    return Topology(queue_id=b"q" * 16, epoch=1, version=1, exchanges=exchanges, logs=logs or [])


def test_it_follows_an_exchange_and_keeps_what_is_open_at_a_log_that_comes_back() -> None:
    connections, machine = PaperConnections(), RequesterMachine()
    engine: Any = SimpleNamespace(
        exchanges=connections, translate=str, reactor=SimpleNamespace(now=lambda: 0.0)
    )
    lines = RequestConnections(engine, machine, threading.RLock(), lambda *_: None)
    assert lines.use(topology("a")) == []
    connections.ups[0]()
    assert machine.places[ONE].up
    machine.wait("s", ONE, Position(3, 0), 0.0, ask=False)
    lines.perform([AskExchange(ONE, [b"w"]), AskExchange(LogId(2, 1), [b"x"])])
    assert connections.asked == [[b"w"]]
    assert lines.use(topology("b")) == []
    assert connections.open_at == ["b"]
    assert not machine.places[ONE].up
    assert lines.use(topology(logs=[1])) == [], "it comes back with its log"
    assert lines.use(topology()) == [(ONE, Position(3, 0))]
    assert connections.open_at == []
    lines.use(cast("Topology", topology("c")))
    lines.close()
    assert connections.open_at == []


def test_what_is_asked_of_an_exchange_that_was_away_from_the_beginning_waits_for_it() -> None:
    connections, machine = PaperConnections(), RequesterMachine()
    engine: Any = SimpleNamespace(
        exchanges=connections, translate=str, reactor=SimpleNamespace(now=lambda: 0.0)
    )
    lines = RequestConnections(engine, machine, threading.RLock(), lambda *_: None)
    assert lines.use(topology(logs=[1])) == []
    assert machine.wait("s", ONE, Position(3, 0), 0.0, ask=True), "it comes back with its log"
    assert machine.wait_all("s", LogId(1, 9), [Position(4, 0)], 0.0)
    assert not machine.wait("s", LogId(2, 1), Position(3, 0), 0.0, ask=True), "it is gone"
    assert lines.use(topology("a", logs=[1])) == [(LogId(1, 9), Position(4, 0))], "not that one"
    connections.ups[0]()
    lines.perform(machine.say())
    (asked,) = [requesting.decode(each[1], Want) for each in connections.asked]
    assert asked.wanted == [Position(3, 0)]
