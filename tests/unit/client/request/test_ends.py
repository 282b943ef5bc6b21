"""What is done with an end when it has come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from roq.client.request.endpoint import endpoint
from roq.client.request.ends import Ends
from roq.client.request.machine import RequesterMachine
from roq.client.request.many import KeptRequests
from roq.client.request.pending import Pending, PendingRun
from roq.client.request.waiting_requests import WaitingRequests
from roq.errors import Unavailable
from roq.model import ExchangeInfo, LogId
from roq.protocol.requesting import Position, RequestEnd, RequestState

ECHO = endpoint("s.echo", request=bytes, response=bytes)
ONE = LogId(1, 1)
INFO = ExchangeInfo(number=1, epoch=1, generation=1, host="h", data="d", live="l")
END = RequestEnd(3, 0, RequestState.DONE, b"a", more=[b"b", b"c"])


class Scene:
    """One collector's books, and what is to be confirmed."""

    def __init__(self) -> None:
        self.confirmed: list[Any] = []
        waits = SimpleNamespace(confirm=self.confirmed.append, ring=lambda rings: rings.clear())
        words = SimpleNamespace(soon=lambda: None, add=self.confirmed.append)
        self.pendings = [Pending(cast("Any", waits), "work", ECHO) for _ in range(3)]
        self.requests, self.machine = WaitingRequests(), RequesterMachine()
        self.machine.open(INFO, b"q")
        self.kept = KeptRequests()
        self.ends = Ends(self.requests, self.machine, cast("Any", words), self.kept)

    @property
    def fetched(self) -> list[tuple[int, int, int]]:
        return [run for words in self.machine.places[ONE].words.values() for run in words.fetched]


def test_a_run_is_told_and_confirmed_as_one() -> None:
    scene = Scene()
    run = PendingRun(scene.pendings, ONE, 3, 0)
    scene.requests.add(ONE, run.positions, run)
    scene.ends.take(ONE, END, 1.0)
    assert [each.result(0) for each in scene.pendings] == [b"a", b"b", b"c"]
    assert (scene.fetched, scene.confirmed, scene.ends.changed) == ([(3, 0, 3)], [], True)
    assert (scene.requests.count, scene.requests.early) == (0, {})
    assert run.pendings == [None] * 3, "what they were told goes when they do"


def test_who_is_interrupted_leaves_nothing_of_a_run_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    run = PendingRun(scene.pendings, ONE, 3, 0)
    scene.requests.add(ONE, run.positions, run)
    for pending in scene.pendings:
        scene.kept.keep(pending, b"data")
    with monkeypatch.context() as patched:
        patched.setattr(scene.kept, "let_go", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            scene.ends.take(ONE, END, 1.0)
    scene.requests.recount()
    scene.ends.take(ONE, END, 1.0)
    assert (scene.kept.bytes, scene.fetched, run.done()) == (0, [(3, 0, 3)], True)


def test_neighbours_that_wait_alone_are_told_and_confirmed_each() -> None:
    scene = Scene()
    for at, pending in enumerate(scene.pendings):
        scene.requests.add(ONE, [Position(3, at)], pending)
    scene.ends.take(ONE, END, 1.0)
    assert [each.result(0) for each in scene.pendings] == [b"a", b"b", b"c"]
    assert (scene.confirmed, scene.fetched) == (scene.pendings, [])


def test_ends_of_what_is_not_known_wait_for_it() -> None:
    scene = Scene()
    scene.ends.take(ONE, END, 1.0)
    assert [position.at for _, position in scene.requests.early] == [0, 1, 2]
    assert not scene.ends.changed


def test_of_a_run_that_is_given_up_those_that_have_ended_stay_as_they_are() -> None:
    scene = Scene()
    run = PendingRun(scene.pendings, ONE, 3, 0)
    scene.requests.add(ONE, run.positions, run)
    scene.ends.take(ONE, END.some(1), 1.0)
    scene.ends.settle_all(run, None, Unavailable("gone"))
    assert [each.state for each in scene.pendings] == ["unavailable", "done", "unavailable"]
    assert run.done()
