"""Retrievals are confirmed together, after a moment, or as soon as they are many."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roq.client.request import confirmations
from roq.client.request.confirmations import CONFIRM_SECONDS, Confirmations
from roq.client.request.machine import RequesterMachine
from roq.errors import Closed
from roq.model import ExchangeInfo, LogId
from roq.protocol import requesting
from roq.protocol.requesting import Position, Want
from roq.runtime.interfaces import Timer

ONE = LogId(1, 1)
INFO = ExchangeInfo(number=1, epoch=1, generation=1, host="h", data="d", live="l")


class Scene:
    """Confirmations of one exchange that stands, and timers on paper."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.told = 0
        self.machine = RequesterMachine()
        self.machine.open(INFO, b"q" * 16)
        self.machine.up(ONE, 0.0)

        def later(seconds: float, call: Callable[[], None]) -> Timer:
            self.timers.append((seconds, call))
            return Timer(seconds, call)

        reactor = SimpleNamespace(call_later=later)
        self.engine: Any = SimpleNamespace(reactor=reactor, call_soon=lambda call: call())
        self.made = Confirmations(self.engine, self.machine, self.due)

    def due(self) -> None:
        self.told += 1

    def arrived(self, index: int) -> None:
        endpoint = SimpleNamespace(service="s")
        places = lambda: [(ONE, Position(3, index))]  # noqa: E731
        self.made.add(cast("Any", SimpleNamespace(endpoint=endpoint, places=places)))


def test_what_arrives_within_a_moment_is_confirmed_together() -> None:
    scene = Scene()
    for index in range(3):
        scene.arrived(index)
    assert [seconds for seconds, _ in scene.timers] == [CONFIRM_SECONDS]
    assert not scene.made.press
    scene.timers.pop()[1]()
    assert scene.told == 1
    (ask,) = scene.made.words()
    assert requesting.decode(ask.frames[1], Want).fetched == [(3, 0, 3)]
    assert scene.made.words() == []
    scene.arrived(3)
    assert len(scene.timers) == 1, "and the next ones after another moment"


def test_many_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmations, "CONFIRM_MAX", 2)
    scene = Scene()
    scene.arrived(0)
    assert not scene.made.press
    scene.arrived(1)
    assert scene.made.press
    scene.made.words()
    assert not scene.made.press


def test_what_else_there_is_to_be_said_does_not_wait() -> None:
    scene = Scene()
    scene.machine.fetched("s", ONE, Position(3, 0))
    assert not scene.made.press
    scene.machine.cancel("s", ONE, Position(4, 0), 0.0, late=False)
    assert scene.made.press


def test_after_the_end_nobody_is_told() -> None:
    scene = Scene()

    def refuse(_: object) -> None:
        raise Closed("the client is closed")

    scene.engine.call_soon = refuse
    scene.arrived(0)
    assert scene.timers == []
