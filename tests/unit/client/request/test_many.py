"""Requests that were made together, from the side of who has made them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

import roq
from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.client.request import many
from roq.client.request.endpoint import endpoint
from roq.client.request.many import KeptRequests, ManyPart, PendingMany
from roq.client.request.pending import Pending
from roq.model import LogId
from roq.protocol.requesting import Position, RequestEnd, RequestState

ECHO = endpoint("s.echo", request=bytes, response=bytes)
LOG = LogId(1, 1)


class Waits:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.callbacks: list[Callable[[], object]] = []

    def wait_for(self, condition: Callable[[], bool], _timeout: float | None) -> bool:
        return condition()

    def check_process(self) -> None: ...

    def later(self, call: Callable[[], object]) -> None:
        self.callbacks.append(call)

    def confirm(self, pending: object) -> None:
        self.calls.append(("confirm", pending))

    def cancel(self, pending: object, *, late: bool = False) -> None:
        self.calls.append(("cancel", pending))

    def ring(self, rings: list[Callable[[], None]]) -> None:
        while rings:
            rings.pop(0)()

    def let_go(self, pending: Any) -> None:
        pending.repeat = None
        self.calls.append(("let go", pending))


def accepted(offset: int) -> Receipt:
    receipt = Receipt(cast("Any", None))
    receipt.settle(SendStatus(outcome=Outcome.OK, log=LOG, offset=offset, exchange="x1"))
    return receipt


class Scene:
    """Three requests: two in one batch, as its messages 4 and 5, and one in the next."""

    def __init__(self) -> None:
        self.waits = Waits()
        self.many: PendingMany[bytes] = PendingMany(self.waits, "work", ECHO, 3)
        members = range(3)
        self.parts = [
            ManyPart(self.many, accepted(7), 4, members[0:2]),
            ManyPart(self.many, accepted(8), 0, members[2:3]),
        ]
        self.many.parts += self.parts

    def end(self, member: int, state: RequestState = RequestState.DONE) -> None:
        part, index = (self.parts[0], 4 + member) if member < 2 else (self.parts[1], 0)
        outcome = RequestEnd(part.at[1] if part.at else 0, index, state, b"%d" % member, "why")
        part.settle(outcome)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_each_has_its_result_and_one_without_a_response_says_why(scene: Scene) -> None:
    with pytest.raises(roq.Unavailable, match=r"no response of s\.echo to 3 of 3 requests"):
        scene.many.results(0)
    for member, state in ((1, RequestState.FAILED), (2, RequestState.DONE), (0, RequestState.DONE)):
        assert not scene.many.done()
        scene.end(member, state)
    first, failed, last = scene.many.results(0)
    assert (first, last, scene.many.done()) == (b"0", b"2", True)
    assert isinstance(failed, roq.RequestFailed)
    with pytest.raises(roq.RequestFailed, match="why"):
        scene.many.result(0)
    assert scene.many.future().result(0)[2] == b"2"


def test_one_that_ends_twice_ends_as_it_did_first(scene: Scene) -> None:
    scene.end(0)
    scene.end(0, RequestState.LATE)
    assert (scene.parts[0].left, scene.many[0].state) == (1, "done")


def test_it_is_a_sequence_of_requests(scene: Scene) -> None:
    early = scene.many[1]
    assert (len(scene.many), early.id, early.state) == (3, "work/x1-1-7-5", "pending")
    scene.end(1)
    assert (early.result(0), scene.many[1] is early) == (b"1", True)
    assert [each.id for each in scene.many[1:]] == ["work/x1-1-7-5", "work/x1-1-8-0"]
    assert scene.many[-1].state == "pending"
    with pytest.raises(IndexError):
        scene.many[3]
    assert scene.waits.calls == [], "who has all of them confirms"


def test_what_was_sent_once_more_stands_where_it_went(scene: Scene) -> None:
    scene.many.parts.append(ManyPart(scene.many, accepted(9), 1, [1]))
    assert scene.many[1].id == "work/x1-1-9-1"


def test_parts_know_what_is_open(scene: Scene) -> None:
    part = scene.parts[0]
    assert part.positions() == [Position(7, 4), Position(7, 5)]
    scene.end(0)
    assert (part.open(), part.open_members()) == ([Position(7, 5)], [1])
    refused = ManyPart(scene.many, Receipt(cast("Any", None)), 0, [0])
    assert (refused.place(), refused.positions()) == (None, [])


def test_callbacks_are_called_once_and_confirm(scene: Scene) -> None:
    called: list[int] = []
    scene.many.on_done(lambda done: called.append(len(done)))
    assert scene.many.held
    for member in range(3):
        assert scene.waits.callbacks == []
        scene.end(member)
    (call,) = scene.waits.callbacks
    assert scene.waits.calls == []
    call()
    assert called == [3]
    assert scene.waits.calls == [("confirm", scene.many)]
    assert not scene.many.held
    scene.many.on_done(lambda done: called.append(7))
    assert len(scene.waits.callbacks) == 2, "and at once if all have ended"

    async def wrong(_done: object) -> None: ...

    with pytest.raises(roq.InvalidRequest, match="is async"):
        scene.many.on_done(wrong)


def test_those_of_which_nothing_has_arrived_are_not_confirmed(scene: Scene) -> None:
    scene.end(1)
    scene.many.settle(0, None, roq.Unavailable("its exchange is silent"))
    assert scene.many.places() == [(LOG, Position(7, 5)), (LOG, Position(8, 0))]


def test_what_is_kept_for_another_exchange_is_let_go_with_the_last(scene: Scene) -> None:
    scene.many.repeat = [b"a", b"b", b"c"]
    for member in range(3):
        assert scene.many.repeat is not None
        scene.end(member)
    assert scene.waits.calls == [("let go", scene.many)]


def test_what_was_not_made_says_so() -> None:
    many: PendingMany[bytes] = PendingMany(Waits(), "work", ECHO, 1)
    many.settle(0, None, roq.MessageTooLarge("too large"))
    assert isinstance(many.results(0)[0], roq.MessageTooLarge)
    assert many[0].state == "unavailable"
    assert repr(many) == "<roq.PendingMany s.echo: 1 of 1 have ended>"


def test_none_have_ended_at_once() -> None:
    many: PendingMany[bytes] = PendingMany(Waits(), "work", ECHO, 0)
    assert (many.results(0), many.done(), many.future().result(0)) == ([], True, [])


def test_one_that_is_sent_once_more_has_another_id(scene: Scene) -> None:
    one, other = scene.many[0], scene.many[1]
    assert (one.id, other.id) == ("work/x1-1-7-4", "work/x1-1-7-5")
    scene.many.went(ManyPart(scene.many, accepted(9), 2, [1]))
    assert (one.id, other.id) == ("work/x1-1-7-4", "work/x1-1-9-2")
    assert scene.many[1] is other


def together(scene: Scene, state: RequestState = RequestState.DONE) -> None:
    scene.parts[0].place()
    scene.parts[0].settle(RequestEnd(7, 4, state, b"0", "why", more=[b"1"]))


def test_those_that_have_ended_together_are_settled_in_one_go(scene: Scene) -> None:
    together(scene)
    assert (scene.parts[0].left, scene.many.done()) == (0, False)
    together(scene)
    assert (scene.parts[0].left, scene.many.done()) == (0, False), "once"
    scene.end(2)
    assert scene.many.results(0) == [b"0", b"1", b"2"]
    assert scene.many[1].result(0) == b"1"


def test_each_of_those_that_have_failed_together_says_why(scene: Scene) -> None:
    second = scene.many[1]
    together(scene, RequestState.FAILED)
    assert second.state == "failed", "it was looked at before"
    scene.end(2)
    assert [type(each) for each in scene.many.results(0)[:2]] == [roq.RequestFailed] * 2


def test_one_that_is_looked_at_while_all_end_together_ends_as_well(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread is in between when the one that settles has the lock for the first time."""
    scene.parts[0].place()
    looked: list[Pending[bytes]] = []

    class Between:
        def __enter__(self) -> None:
            if not looked:
                looked.append(Pending(scene.waits, "work", ECHO))
                looked[0] = scene.many[1]

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(many, "REGISTERING", Between())
    scene.parts[0].settle(RequestEnd(7, 4, RequestState.DONE, b"0", more=[b"1"]))
    assert looked[0].result(0) == b"1"
    assert scene.parts[0].left == 0


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "REPEAT_BYTES", 25)


@pytest.mark.usefixtures("small")
def test_the_allowance_is_given_back_whoever_takes_and_gives() -> None:
    kept = KeptRequests()
    pendings: list[Pending[bytes]] = [Pending(cast("Any", None), "work", ECHO) for _ in range(3)]
    for each in pendings:
        kept.keep(each, b"x" * 10)
    assert [each.repeat is None for each in pendings] == [False, False, True]
    assert (kept.bytes, kept.left_out) == (20, 1)
    threads = [threading.Thread(target=kept.let_go, args=[each]) for each in pendings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.bytes == 0


@pytest.mark.usefixtures("small")
def test_the_allowance_of_many_is_given_back() -> None:
    kept = KeptRequests()
    many: PendingMany[bytes] = PendingMany(cast("Any", None), "work", ECHO, 2)
    others: PendingMany[bytes] = PendingMany(cast("Any", None), "work", ECHO, 1)
    kept.keep_many(many, [b"x" * 10] * 2)
    kept.keep_many(others, [b"x" * 10])
    assert (others.repeat, kept.bytes, kept.left_out) == (None, 20, 1)
    kept.let_go(many)
    assert kept.bytes == 0


def test_the_allowance_follows_what_is_kept_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "REPEAT_BYTES", 60)
    kept = KeptRequests()
    pending: Pending[bytes] = Pending(cast("Any", None), "work", ECHO)
    several: PendingMany[bytes] = PendingMany(cast("Any", None), "work", ECHO, 2)
    kept.renew(pending, b"x")
    kept.renew_some(several, {0: b"x"})
    assert (pending.repeat, several.repeat, kept.bytes) == (None, None, 0), "they have ended"
    kept.keep(pending, b"x" * 10)
    kept.keep_many(several, [b"x" * 10, b"y" * 10])
    kept.renew(pending, b"x" * 15)
    kept.renew_some(several, {1: b"z" * 20})
    assert several.repeat == [b"x" * 10, b"z" * 20]
    assert kept.bytes == 45
    kept.renew(pending, b"x" * 100)
    assert (pending.repeat, kept.bytes) == (b"x" * 15, 45), "what was kept stays"
    kept.let_go(pending, several)
    assert kept.bytes == 0
