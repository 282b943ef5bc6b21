"""What is done with an end when it has come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.client.request.endpoint import endpoint
from roq.client.request.ends import Ends
from roq.client.request.machine import RequesterMachine
from roq.client.request.many import KeptRequests, ManyPart, PendingMany
from roq.client.request.pending import Pending, PendingRun
from roq.client.request.waiting_requests import ENDLESS, GRACE_SECONDS, Sent, WaitingRequests
from roq.errors import Unavailable
from roq.model import ExchangeInfo, LogId
from roq.protocol import requesting
from roq.protocol.delayed import MESSAGE_ID_BYTES
from roq.protocol.requesting import (
    DELAYED_FROM,
    OUTCOMES,
    Position,
    RequestEnd,
    RequestEnds,
    RequestState,
    Want,
    delayed_position,
)

ECHO = endpoint("s.echo", request=bytes, response=bytes)
ONE = LogId(1, 1)
INFO = ExchangeInfo(number=1, epoch=1, generation=1, host="h", data="d", live="l")
END = RequestEnd(3, 0, RequestState.DONE, b"a", more=[b"b", b"c"])


class Scene:
    """One collector's books, and what is to be confirmed."""

    def __init__(self) -> None:
        self.confirmed: list[Any] = []
        waits = SimpleNamespace(confirm=self.confirmed.append, ring=lambda rings: rings.clear(),
                                check_process=lambda: None)  # fmt: skip
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


class Left:
    """Requests of one batch that no exchange has accepted yet."""

    def __init__(self, scene: Scene, *seconds: float) -> None:
        self.ends, self.machine = scene.ends, scene.machine
        self.sent = Sent(Receipt(cast("Any", None)))
        self.many = PendingMany(cast("Any", scene.pendings[0]._waits), "work", ECHO, 2)
        self.many.due = seconds[0]
        part = ManyPart(self.many, self.sent.receipt, 3, range(2))
        self.many.went(part)
        for index, (pending, due) in enumerate(zip(scene.pendings, seconds, strict=True)):
            pending.due = due
            pending.sent(self.sent.receipt, index)
        self.sent.pendings = [*scene.pendings, part, part]
        self.ends.left(self.sent)

    def look(self, now: float) -> None:
        self.ends.give_up(now, lambda: "x1: its disk is full")

    def settle(self, outcome: Outcome = Outcome.OK, log: LogId = ONE) -> SendStatus:
        status = SendStatus(outcome=outcome, log=log, offset=7)
        self.sent.receipt.settle(status)
        self.ends.accepted(self.sent, status, 20.0)
        return status

    @property
    def unwanted(self) -> dict[Position, bool]:
        return {
            position: late
            for words in self.machine.places[ONE].words.values()
            for position, late in words.unwanted.items()
        }


def test_what_no_exchange_accepts_ends_when_its_time_is_over_for_long_and_the_rest_waits() -> None:
    scene = Scene()
    left = Left(scene, 1.0, 3.0, ENDLESS)
    first, second, third = scene.pendings
    for now in (0.0, 1.0, GRACE_SECONDS + 0.75):
        left.look(now)
        assert not first.done()
    left.look(GRACE_SECONDS + 1.0)
    with pytest.raises(Unavailable, match=r"time is over, and no exchange .*its disk is full"):
        first.result(0)
    assert left.many.done()
    assert (second.done(), scene.ends.changed) == (False, True)
    left.look(GRACE_SECONDS + 3.0)
    assert (second.state, third.state) == ("unavailable", "pending")
    left.settle()
    assert left.unwanted == dict.fromkeys([Position(7, at) for at in (0, 1, 3, 4)], True)
    assert left.sent.pendings == [None, None, third, None, None]


def given_up(log: LogId) -> RequesterMachine:
    """Three requests that were, and are accepted by this log afterwards."""
    scene = Scene()
    left = Left(scene, 1.0, 1.0, 1.0)
    scene.machine.are([ONE], set(), b"q")
    for now in (0.0, 2 * GRACE_SECONDS):
        left.look(now)
    left.settle(log=log)
    return scene.machine


def late_said(machine: RequesterMachine) -> list[Position]:
    told = [requesting.decode(each.frames[1], Want) for each in machine.say()]
    return sorted({position for each in told for position in each.late})


def test_an_exchange_that_is_not_told_of_yet_hears_that_it_is_too_late_when_it_is() -> None:
    new = LogId(2, 1)
    machine = given_up(new)
    where = ExchangeInfo(number=2, epoch=1, generation=1, host="h", data="d", live="l")
    machine.open(where, b"q")
    machine.up(new, 21.0)
    assert late_said(machine) == [Position(7, at) for at in range(5)]


def test_that_it_is_too_late_is_said_again_when_the_connection_has_ended_meanwhile() -> None:
    machine = given_up(ONE)
    machine.up(ONE, 20.0)
    positions = [Position(7, at) for at in range(5)]
    assert late_said(machine) == positions
    machine.down(ONE)
    machine.up(ONE, 22.0)
    machine.ask_all(22.0)
    assert late_said(machine) == positions
    ended = [RequestEnd(7, at, RequestState.EXPIRED) for at in range(5)]
    ends = RequestEnds(ECHO.service, ended)
    machine.take(ONE, [OUTCOMES, requesting.encode(ends)], 23.0)
    assert machine.open_count == 0


def test_what_is_accepted_in_time_is_not_looked_at_again() -> None:
    scene = Scene()
    left = Left(scene, 1.0, 1.0, 1.0)
    left.look(0.0)
    left.settle()
    left.look(2 * GRACE_SECONDS)
    assert {each.done() for each in scene.pendings} == {False}
    assert (len(left.ends._left), left.unwanted) == (0, {})


def test_what_was_given_up_and_is_refused_then_is_nowhere_to_be_cancelled() -> None:
    scene = Scene()
    left = Left(scene, 1.0, 1.0, 1.0)
    for now in (0.0, 2 * GRACE_SECONDS):
        left.look(now)
    left.settle(Outcome.FAILED)
    assert left.unwanted == {}
    assert left.sent.pendings == [None] * 5
    assert {each.state for each in scene.pendings} == {"unavailable"}


def test_a_delayed_request_that_was_given_up_is_cancelled_where_it_waits() -> None:
    scene = Scene()
    left = Left(scene, 1.0, ENDLESS, ENDLESS)
    scene.pendings[0].delayed = 1, (DELAYED_FROM + 5).to_bytes(MESSAGE_ID_BYTES, "big")
    for now in (0.0, 2 * GRACE_SECONDS):
        left.look(now)
    left.settle()
    assert delayed_position(scene.pendings[0].delayed[1]) in left.unwanted
    assert Position(7, 0) not in left.unwanted
