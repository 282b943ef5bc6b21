"""A collector is connected to the exchanges that its queue has."""

from __future__ import annotations

import threading

from paper_connections import PaperConnections, topology

from roq.client.io.queue_connections import AskExchange
from roq.client.request.machine import NEWER_SECONDS, RequesterMachine
from roq.client.request.request_connections import RequestConnections
from roq.model import LogId
from roq.protocol import requesting
from roq.protocol.requesting import Position, ServiceSettings, Want

ONE = LogId(1, 1)


def test_it_follows_an_exchange_and_keeps_what_is_open_at_a_log_that_comes_back() -> None:
    connections, machine = PaperConnections(), RequesterMachine()
    lines = RequestConnections(connections.engine, machine, threading.RLock(), lambda *_: None)
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
    lines.use(topology("c"))
    lines.close([])
    assert connections.open_at == []


def test_what_is_asked_of_an_exchange_that_was_away_from_the_beginning_waits_for_it() -> None:
    connections, machine = PaperConnections(), RequesterMachine()
    lines = RequestConnections(connections.engine, machine, threading.RLock(), lambda *_: None)
    assert lines.use(topology(logs=[1])) == []
    assert machine.wait("s", ONE, Position(3, 0), 0.0, ask=True), "it comes back with its log"
    assert machine.wait_all("s", LogId(1, 9), [Position(4, 0)], 0.0)
    assert lines.use(topology("a", logs=[1])) == [(LogId(1, 9), Position(4, 0))], "not that one"
    connections.ups[0]()
    lines.perform(machine.say())
    (asked,) = [requesting.decode(each[1], Want) for each in connections.asked]
    assert asked.wanted == [Position(3, 0)]


def test_what_is_newer_than_all_that_was_told_of_is_waited_for_and_what_is_older_is_gone() -> None:
    connections, machine = PaperConnections(), RequesterMachine()
    lines = RequestConnections(connections.engine, machine, threading.RLock(), lambda *_: None)
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
    connections.now = NEWER_SECONDS
    told = lines.overdue()
    assert told is not None
    assert lines.use(told) == [(newer, at)], "nobody has told of it in time"
    assert lines.overdue() is None
    assert list(machine.places) == [started]
