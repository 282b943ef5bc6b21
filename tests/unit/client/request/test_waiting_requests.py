"""Who waits for what, and until when."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

import roq
from roq.client.publish.receipt import Receipt
from roq.client.request import waiting_requests
from roq.client.request.context import RequestContext
from roq.client.request.endpoint import endpoint
from roq.client.request.many import ManyPart, PendingMany
from roq.client.request.pending import Pending, PendingRun
from roq.client.request.waiting_requests import EARLY_SECONDS, InnerRequests, Sent, WaitingRequests
from roq.model import LogId
from roq.protocol.requesting import Position, RequestEnd, RequestState

ECHO = endpoint("s.echo", request=bytes, response=bytes)
ONE = LogId(1, 1)
AT = Position(3, 0)
END = RequestEnd(3, 0, RequestState.DONE)


def pending(due: float = float("inf")) -> Pending[bytes]:
    made = Pending(cast("Any", None), "work", ECHO)
    made.due = due
    return made


def test_several_wait_for_the_same() -> None:
    requests, one, other = WaitingRequests(), pending(), pending()
    requests.add(ONE, [AT], one)
    requests.add(ONE, [AT, Position(3, 1)], other)
    assert requests.count == 3
    assert requests.close((ONE, AT)) == (one, other)
    assert requests.close((ONE, AT)) == ()
    assert requests.clear() == [other]
    assert requests.count == 0


def test_each_is_overdue_once_and_not_before() -> None:
    requests, one, other, endless = WaitingRequests(), pending(10.0), pending(10.0), pending()
    for each in (one, other, endless):
        requests.add(ONE, [AT], each)
    requests.not_due(other)
    assert requests.overdue(9.9) == []
    assert requests.overdue(10.3) == [one]
    assert requests.overdue(99.0) == []
    requests.due_again(one, 15.0)
    assert requests.overdue(15.3) == [one]


def test_of_many_that_are_overdue_some_are_looked_at_in_one_go_the_first_ones_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting_requests, "OVERDUE_MAX", 3)
    requests, made = WaitingRequests(), [pending(20.0 - number) for number in range(8)]
    for each in made:
        requests.add(ONE, [AT], each)
    run = PendingRun([pending(5.0), pending(5.0)], ONE, 3, 4)
    requests.add(ONE, run.positions, run)
    assert requests.overdue(30.0) == [run, made[7]], "a run counts as many as it has"
    assert requests.overdue(30.0) == made[6:3:-1]
    requests.due_again(made[7], 25.0)
    assert requests.overdue(17.3) == [made[3]]
    assert requests.overdue(30.0) == made[2::-1]
    assert requests.overdue(30.0) == [made[7]]
    assert requests.overdue(30.0) == []
    assert not requests.due


def test_what_came_early_is_kept_for_a_while() -> None:
    requests = WaitingRequests()
    requests.came_early(ONE, END, 5.0)
    requests.overdue(5.0 + EARLY_SECONDS)
    assert requests.early
    requests.overdue(5.1 + EARLY_SECONDS)
    assert not requests.early


def test_what_was_interrupted_is_counted_again() -> None:
    many: PendingMany[bytes] = PendingMany(cast("Any", None), "work", ECHO, 2)
    part = ManyPart(many, Receipt(cast("Any", None)), 0, range(2))
    requests = WaitingRequests()
    requests.add(ONE, [Position(3, 0), Position(3, 1)], part)
    many.ends[0] = END  # and nothing was counted
    requests.count = 7
    requests.recount()
    assert (requests.count, part.left, many.done()) == (2, 1, False)
    many.settle(1, END, None)
    assert many.done()


def test_those_that_were_made_one_by_one_and_end_by_the_same_time_are_taken_together() -> None:
    sent = Sent(Receipt(cast("Any", None)))
    delayed, later = pending(10.0), pending(20.0)
    delayed.delayed = 1, b"m" * 8
    first, second, third = pending(10.0), pending(10.1), pending(10.0)
    sent.pendings += [first, second, later, third, delayed, None, pending()]
    taken: list[list[Pending[bytes]]] = []
    while sent.taken < len(sent.pendings):
        taken.append(sent.singles())
        sent.took(max(1, len(taken[-1])))
    assert taken[:3] == [[first, second], [later], [third]]
    assert (taken[3:5], len(taken[5])) == ([[], []], 1)
    assert sent.pendings == [None] * 7


def test_a_run_is_overdue_as_one_and_counted_again_with_the_others() -> None:
    run = PendingRun([pending(10.0), pending(10.0)], ONE, 3, 4)
    requests = WaitingRequests()
    requests.add(ONE, run.positions, run)
    assert (requests.count, run.positions) == (2, [Position(3, 4), Position(3, 5)])
    assert requests.overdue(10.3) == [run]
    run.pendings[0]._end(END)  # and nothing was counted
    requests.recount()
    assert (run.left, run.places()) == (2, [(ONE, Position(3, 5))])
    run.drop(RequestEnd(3, 4, RequestState.DONE))
    requests.recount()
    assert (run.left, run.done(), run.places()) == (1, False, [(ONE, Position(3, 5))])


def test_who_looks_for_the_next_ones_does_not_copy_what_is_left() -> None:
    class Watched(list[Any]):
        def __getitem__(self, at: Any) -> Any:
            assert not isinstance(at, slice), "all of a large batch, for each request of it"
            return super().__getitem__(at)

    sent = Sent(Receipt(cast("Any", None)))
    many: PendingMany[bytes] = PendingMany(cast("Any", None), "work", ECHO, 3)
    sent.pendings = Watched([ManyPart(many, sent.receipt, 0, range(3))] * 3)
    assert sent.singles() == []


# --- inside handlers ------------------------------------------------------------------------------


def outer(now: float = 10.0) -> tuple[SimpleNamespace, RequestContext]:
    """A request that a handler runs until 12, and who holds it."""
    held = SimpleNamespace(id="work/x1-1-0-0", headers={}, lost=False)
    return held, RequestContext(held, "s.e", 1, 12.0, lambda: now)


def ended() -> Pending[bytes]:
    made = pending()
    made.settle(None, roq.Unavailable("known"))
    return made


def test_what_a_handler_requests_is_unwanted_once_when_its_own_request_is_taken_from_it() -> None:
    inner, (held, context), (_, other) = InnerRequests(nullcontext()), outer(), outer()
    mine, theirs = [pending(), pending()], pending()
    for each in mine:
        inner.add(context, each)
    inner.add(other, theirs)
    assert inner.unwanted() == []
    held.lost = True
    assert inner.unwanted() == [(each, False) for each in mine]
    assert inner.unwanted() == []
    assert len(inner) == 1


def test_what_is_unwanted_as_the_time_is_over_is_late() -> None:
    inner, (held, context), one = InnerRequests(nullcontext()), outer(now=12.5), pending()
    inner.add(context, one)
    assert inner.unwanted() == [], "it ends by itself"
    held.lost = True
    assert inner.unwanted() == [(one, True)]


def test_what_has_ended_is_not_unwanted_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    inner, (held, context) = InnerRequests(nullcontext()), outer()
    inner.add(context, ended())
    assert inner.unwanted() == []
    assert len(inner) == 0
    monkeypatch.setattr(waiting_requests, "INNER_LOOK", 10)
    inner = InnerRequests(nullcontext())
    left = [pending() for _ in range(5)]
    for each in left:
        inner.add(context, each)
    for _ in range(1_000):
        inner.add(context, ended())
        assert len(inner) <= 11, "they do not pile up until somebody looks"
    held.lost = True
    assert [each for each, _ in inner.unwanted()] == left
