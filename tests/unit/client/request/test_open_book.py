"""Who waits for what, and until when."""

from __future__ import annotations

from typing import Any, cast

from roq.client.publish.receipt import Receipt
from roq.client.request.endpoint import endpoint
from roq.client.request.many import ManyPart, PendingMany
from roq.client.request.open_book import EARLY_SECONDS, OpenBook
from roq.client.request.pending import Pending
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
    book, one, other = OpenBook(), pending(), pending()
    book.add(ONE, [AT], one)
    book.add(ONE, [AT, Position(3, 1)], other)
    assert book.count == 3
    assert book.close((ONE, AT)) == (one, other)
    assert book.close((ONE, AT)) == ()
    assert book.clear() == [other]
    assert book.count == 0


def test_each_is_overdue_once_and_not_before() -> None:
    book, one, other, endless = OpenBook(), pending(10.0), pending(10.0), pending()
    for each in (one, other, endless):
        book.add(ONE, [AT], each)
    book.not_due(other)
    assert book.overdue(9.9) == []
    assert book.overdue(10.3) == [one]
    assert book.overdue(99.0) == []
    book.due_again(one, 15.0)
    assert book.overdue(15.3) == [one]


def test_what_came_early_is_kept_for_a_while() -> None:
    book = OpenBook()
    book.came_early((ONE, AT), END, 5.0)
    book.overdue(5.0 + EARLY_SECONDS)
    assert book.early
    book.overdue(5.1 + EARLY_SECONDS)
    assert not book.early


def test_what_was_interrupted_is_counted_again() -> None:
    many: PendingMany[bytes] = PendingMany(cast("Any", None), "work", ECHO, 2)
    part = ManyPart(many, Receipt(cast("Any", None)), 0, range(2))
    book = OpenBook()
    book.add(ONE, [Position(3, 0), Position(3, 1)], part)
    many.ends[0] = END  # and nothing was counted
    book.count = 7
    book.recount()
    assert (book.count, part.left, many.done()) == (2, 1, False)
    many.settle(1, END, None)
    assert many.done()
