"""A client is connected to the exchanges that a queue has, and to no others."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
from paper_connections import PaperConnections, topology

from roq.client.io.queue_connections import AskExchange, QueueConnections
from roq.model import ExchangeInfo, LogId

ONE, TWO = LogId(1, 1), LogId(2, 1)


@dataclass
class Place:
    exchange: ExchangeInfo


class PaperMachine:
    """Notes what it is told, and whether that lock is held then."""

    def __init__(self, lock: threading.Lock) -> None:
        self.places: dict[LogId, Place] = {}
        self.told: list[tuple[str, LogId]] = []
        self._lock = lock

    def open(self, exchange: ExchangeInfo, queue: bytes) -> None:
        assert queue == b"q" * 16
        self.places[exchange.log] = Place(exchange)

    def up(self, log: LogId, now: float) -> list[AskExchange]:
        assert self._lock.locked()
        self.told.append(("up", log))
        return [AskExchange(log, [b"hello", str(now).encode()])]

    def down(self, log: LogId) -> None:
        self.told.append(("down", log))

    def leave(self, log: LogId) -> None:
        self.told.append(("gone", log))
        del self.places[log]


class Scene:
    def __init__(self) -> None:
        lock = threading.Lock()
        self.paper, self.machine = PaperConnections(), PaperMachine(lock)
        self.answers: list[tuple[LogId, list[list[bytes]]]] = []
        self.connections = QueueConnections(
            self.paper.engine, self.machine, self.machine.places,
            on_gone=self.machine.leave, lock=lock,
            on_answers=lambda log, answers: self.answers.append((log, answers)),
        )  # fmt: skip


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_each_exchange_is_greeted_and_heard_under_its_own_log(scene: Scene) -> None:
    scene.connections.use(topology("a", "b"))
    assert scene.paper.open_at == ["a", "b"]
    scene.paper.now = 3.5
    scene.paper.ups[1]()
    assert scene.machine.told == [("up", TWO)]
    assert scene.paper.asked == [[b"hello", b"3.5"]]
    scene.paper.answers[0]([[b"x"]])
    scene.paper.answers[1]([[b"y"], [b"z"]])
    assert scene.answers == [(ONE, [[b"x"]]), (TWO, [[b"y"], [b"z"]])]
    scene.paper.downs[1]()
    assert scene.machine.told[1:] == [("down", TWO)]


def test_what_stays_is_left_alone_and_what_moves_is_connected_anew(scene: Scene) -> None:
    scene.connections.use(topology("a", "b"))
    scene.connections.use(topology("a", "c"))
    assert scene.paper.open_at == ["a", "c"]
    assert scene.machine.told == [("down", TWO)]
    assert scene.machine.places[TWO].exchange.data == "c"


def test_an_exchange_that_comes_back_with_its_log_is_down_and_others_are_gone(
    scene: Scene,
) -> None:
    scene.connections.use(topology("a", "b"))
    scene.connections.use(topology(logs=[2]))
    assert scene.paper.open_at == []
    assert scene.machine.told == [("gone", ONE), ("down", TWO)]
    scene.connections.use(topology("d", number=2))
    assert scene.paper.open_at == ["d"]


def test_an_exchange_that_serves_with_a_new_log_has_lost_its_old_one(scene: Scene) -> None:
    scene.connections.use(topology("a", logs=[1]))
    scene.connections.use(topology("b", logs=[1], generation=2))
    assert scene.paper.open_at == ["b"]
    assert scene.machine.told == [("gone", ONE)]
    assert list(scene.machine.places) == [LogId(1, 2)]


def test_what_is_to_be_kept_keeps_its_connection(scene: Scene) -> None:
    scene.connections.use(topology("a", "b"))
    scene.connections.use(topology(), lambda log: log == ONE)
    assert scene.paper.open_at == ["a"]
    assert scene.machine.told == [("gone", TWO)]


def test_trouble_is_that_of_the_connection(scene: Scene) -> None:
    scene.paper.trouble = "refused by the system"
    scene.connections.use(topology("a"))
    assert scene.connections.trouble(ONE) == "refused by the system"
    assert scene.connections.trouble(TWO) == ""


def test_the_last_words_go_to_whom_they_are_for_and_nothing_after_them(scene: Scene) -> None:
    scene.connections.use(topology("a", "b"))
    scene.connections.close([AskExchange(TWO, [b"bye"]), AskExchange(LogId(3, 1), [b"lost"])])
    assert scene.paper.said_last == [[b"bye"]]
    assert scene.paper.open_at == []
    scene.connections.perform([AskExchange(TWO, [b"late"])])
    assert scene.paper.asked == []
