"""A collector is connected to the exchanges that its queue has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from roq.client.consume.seat import AskExchange
from roq.client.request.machine import NEWER_SECONDS, RequesterMachine
from roq.client.request.request_connections import RequestConnections
from roq.model import ExchangeInfo, LogId
from roq.protocol import requesting
from roq.protocol.control import Topology
from roq.protocol.requesting import Position, ServiceSettings, Want

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


def topology(
    *data: str, logs: list[int] | None = None, number: int = 1, generation: int = 1
) -> Topology:
    exchanges = [
        ExchangeInfo(
            number=number, epoch=generation, generation=generation, host="h", data=each, live="l"
        )
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
    lines.close([])
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
    assert lines.use(topology("a", logs=[1])) == [(LogId(1, 9), Position(4, 0))], "not that one"
    connections.ups[0]()
    lines.perform(machine.say())
    (asked,) = [requesting.decode(each[1], Want) for each in connections.asked]
    assert asked.wanted == [Position(3, 0)]


def test_what_is_newer_than_all_that_was_told_of_is_waited_for_and_what_is_older_is_gone() -> None:
    connections, machine, now = PaperConnections(), RequesterMachine(), [0.0]
    engine: Any = SimpleNamespace(
        exchanges=connections, translate=str, reactor=SimpleNamespace(now=lambda: now[0])
    )
    lines = RequestConnections(engine, machine, threading.RLock(), lambda *_: None)
    lines.use(topology("a", number=2, generation=5))
    at = Position(3, 0)
    for log in (LogId(2, 4), LogId(1, 9)):
        assert not machine.wait("s", log, at, 0.0, ask=False), "it was there before"
    newer, started = LogId(3, 1), LogId(2, 6)
    assert machine.wait("s", newer, at, 0.0, ask=False)
    assert machine.wait_all("s", started, [at], 0.0)
    assert machine.attended("s") is False
    connections.ups[0]()
    machine.attend("s", ServiceSettings(), b"", 0.0)
    machine.places[LogId(2, 5)].attended["s"] = 0
    assert machine.attended("s"), "but for those that nobody has told of"
    assert lines.overdue() is None
    assert lines.use(topology("b", number=2, generation=6)) == [], "it is told of"
    assert connections.open_at == ["b"]
    now[0] = NEWER_SECONDS
    told = lines.overdue()
    assert told is not None
    assert lines.use(told) == [(newer, at)], "nobody has told of it in time"
    assert lines.overdue() is None
    assert list(machine.places) == [started]
