"""A request, from the side of who has made it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

import roq
from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.client.request.endpoint import endpoint
from roq.client.request.pending import Pending, PendingRun
from roq.errors import NO_RESPONSES
from roq.model import LogId
from roq.protocol.requesting import Position, RequestEnd, RequestState

ECHO = endpoint("s.echo", request=bytes, response=bytes)


class Waits:
    """Notes what a request asks of its collector."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.callbacks: list[Callable[[], object]] = []

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        self.calls.append("wait")
        return condition()

    def check_process(self) -> None: ...

    def later(self, call: Callable[[], object]) -> None:
        self.callbacks.append(call)

    def confirm(self, pending: Pending[Any]) -> None:
        self.calls.append("confirm")

    def cancel(self, pending: Pending[Any], *, late: bool = False) -> None:
        self.calls.append("cancel")

    def ring(self, rings: list[Callable[[], None]]) -> None:
        while rings:
            rings.pop(0)()

    def let_go(self, pending: Pending[Any]) -> None:
        pending.repeat = None
        self.calls.append("let go")


def made() -> tuple[Pending[bytes], Waits]:
    waits = Waits()
    return Pending(waits, "work", ECHO), waits


def end(state: RequestState = RequestState.DONE, value: bytes = b"v", text: str = "") -> RequestEnd:
    return RequestEnd(3, 1, state, value, text, 2)


def test_a_response_is_confirmed_on_receipt_and_given_as_often_as_wanted() -> None:
    pending, waits = made()
    pending.repeat = b"data"
    assert pending.settle(end())
    assert not pending.settle(end(value=b"other")), "once"
    assert [pending.result(), pending.result(0)] == [b"v", b"v"]
    assert (pending.state, pending.attempts, pending.done()) == ("done", 2, True)
    assert waits.calls == ["let go", "confirm"]


def test_its_id_is_known_when_it_is_accepted() -> None:
    pending, _ = made()
    with pytest.raises(roq.Unavailable, match="not accepted yet"):
        _ = pending.id
    pending.place(LogId(1, 5), Position(3, 1))
    assert pending.id == "work/x1-5-3-1"
    assert repr(pending) == "<roq.Pending s.echo work/x1-5-3-1: pending>"


def test_what_was_not_accepted_has_no_id_and_says_why() -> None:
    pending, _ = made()
    receipt = Receipt(None)  # type: ignore[arg-type]
    receipt.settle(SendStatus(outcome=Outcome.REFUSED, reason="too large"))
    pending.accepted = receipt
    with pytest.raises(roq.DeliveryError, match="too large"):
        _ = pending.id


@pytest.mark.parametrize("state", sorted(NO_RESPONSES))
def test_each_end_without_a_response_has_its_error(state: str) -> None:
    pending, _ = made()
    if state == "lost":
        pending.settle(None, roq.ResponseLost("gone"))
    else:
        pending.settle(end(RequestState(state), text="because"))
    with pytest.raises(NO_RESPONSES[state]) as caught:
        pending.result()
    assert caught.value.state == state


def test_a_retrieval_is_confirmed_when_the_last_callback_has_ended() -> None:
    pending, waits = made()
    seen: list[bytes] = []
    future = pending.future()

    def fails(done: Pending[bytes]) -> None:
        seen.append(done.result())
        raise ZeroDivisionError

    pending.on_done(fails)
    pending.on_done(lambda done: seen.append(done.result()))
    pending.settle(end())
    assert future.result(0) == b"v"
    with pytest.raises(ZeroDivisionError):
        waits.callbacks.pop(0)()
    assert waits.calls == [], "not before"
    waits.callbacks.pop()()
    assert (seen, waits.calls) == ([b"v", b"v"], ["confirm"])
    pending.on_done(lambda done: seen.append(done.result()))
    waits.callbacks.pop()()
    assert seen == [b"v"] * 3, "also what comes late"


def test_a_retrieval_of_what_has_not_arrived_is_not_confirmed() -> None:
    pending, waits = made()
    pending.settle(None, roq.Unavailable("its exchange is silent"))
    other: Pending[bytes] = Pending(waits, "work", ECHO)
    other.on_done(lambda done: done)
    other.settle(None, roq.Unavailable("its exchange is silent"))
    waits.callbacks.pop()()
    assert waits.calls == [], "whoever asks by the id may fetch it"


def test_a_callback_that_has_to_be_awaited_is_refused() -> None:
    pending, waits = made()

    async def coroutine(done: Pending[bytes]) -> None: ...

    class Object:
        async def __call__(self, done: Pending[bytes]) -> None: ...

    for each in (coroutine, partial(coroutine), Object()):
        with pytest.raises(roq.InvalidRequest, match=r"use roq\.aio"):
            pending.on_done(each)
    pending.on_done(lambda done: (coroutine(done), None)[0])
    pending.settle(end())
    with pytest.raises(roq.InvalidRequest, match=r"use roq\.aio"):
        waits.callbacks.pop()()


def test_futures_have_the_response_or_the_error() -> None:
    pending, waits = made()
    good: Future[bytes] = pending.future()
    pending.settle(end())
    assert good.result(0) == b"v"
    assert waits.calls == ["confirm"]
    bad, _ = made()
    future = bad.future()
    bad.settle(end(RequestState.FAILED, text="no"))
    assert isinstance(future.exception(0), roq.RequestFailed)


@pytest.mark.parametrize("base", [Exception, SystemExit])
def test_a_codec_that_raises_anything_ends_nothing_but_its_future(
    base: type[BaseException],
) -> None:
    class Wordless(base):  # type: ignore[misc, valid-type]
        def __str__(self) -> str:
            raise ZeroDivisionError

    class Codec:
        def encode(self, value: str) -> bytes:
            return value.encode()

        def decode(self, data: bytes, kind: object) -> str:
            raise Wordless

    pending: Pending[str] = Pending(Waits(), "work", endpoint(
        "s.odd", request=str, response=str, codec=Codec()
    ))  # fmt: skip
    future = pending.future()
    pending.settle(end())
    assert isinstance(future.exception(0), ZeroDivisionError | Wordless)


def test_it_is_cancelled_by_who_looks_after_it() -> None:
    pending, waits = made()
    pending.cancel()
    assert waits.calls == ["cancel"]


def test_no_response_in_time() -> None:
    pending, _ = made()
    with pytest.raises(roq.Unavailable, match=r"no response of s\.echo within"):
        pending.result(0.1)


def test_those_that_stand_side_by_side_end_as_each_alone() -> None:
    one, waits = made()
    two, three = Pending(waits, "work", ECHO), Pending(waits, "work", ECHO)
    run, called = PendingRun([one, two, three], LogId(1, 1), 3, 1), list[str]()
    two.on_done(lambda done: called.append(done.state))
    end = RequestEnd(3, 1, RequestState.DONE, b"a", more=[b"b"])
    for _ in range(2):  # whoever did this was interrupted
        assert run.settle(end) == ([one, two], [one])
        assert (one.result(0), two.result(0), run.open()) == (b"a", b"b", [three])
    for _ in range(2):
        run.drop(end)
        assert (run.pendings, run.left, run.done()) == ([None, None, three], 1, False)
    assert (run.settle(end), run.places()) == (([], []), [(LogId(1, 1), Position(3, 3))])
    waits.callbacks.pop()()
    assert (called, waits.calls) == (["done"], ["confirm"]), "when the callback has ended"
    late = RequestEnd(3, 3, RequestState.LATE, text="slow")
    run.settle(late)
    run.drop(late)
    assert run.done()
    with pytest.raises(roq.RequestLate, match="slow"):
        three.result(0)


def test_one_of_a_run_that_has_ended_is_not_settled_twice() -> None:
    one, waits = made()
    two = Pending(waits, "work", ECHO)
    run = PendingRun([one, two], LogId(1, 1), 3, 0)
    one.settle(None, roq.Unavailable("gone"))
    end = RequestEnd(3, 0, RequestState.DONE, b"a", more=[b"b"])
    told = run.settle(end)
    run.drop(end)
    assert (told, run.left) == (([two], [two]), 0)
    assert (one.state, two.state) == ("unavailable", "done")
