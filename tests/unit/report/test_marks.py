"""What happened, as marks that can be told apart."""

from __future__ import annotations

from roq.simulation.lab.archive.document import Event, EventKind
from roq.simulation.lab.report.marks import Lane, marks, room, said


def moves(*times: float) -> list[Event]:
    return [Event(at=at, kind=EventKind.MOVE, exchange=2, text="x1 → x2") for at in times]


def test_near_events_of_a_kind_are_one_mark_and_far_ones_are_not() -> None:
    row = marks(moves(1.0, 1.5, 2.0, 50.0), 100.0)[Lane.MOVES]
    assert [(mark.first, mark.last, mark.label) for mark in row] == [
        (1.0, 2.0, "3"),
        (50.0, 50.0, ""),
    ]


def test_a_thousand_moves_are_at_most_some_dozens_of_marks() -> None:
    row = marks(moves(*(number / 10 for number in range(1_000))), 100.0)[Lane.MOVES]
    assert len(row) <= 84
    assert sum(len(mark.events) for mark in row) == 1_000


def test_what_went_wrong_is_not_hidden_among_what_went_well() -> None:
    failed = Event(at=1.1, kind=EventKind.MOVE_FAILED, text="no answer")
    row = marks([*moves(1.0, 1.2), failed], 100.0)[Lane.MOVES]
    assert [mark.bad for mark in row] == [False, True]


def test_an_added_exchange_that_serves_is_one_mark_and_a_restarted_one_is_shown() -> None:
    events = [
        Event(at=1.0, kind=EventKind.SCALE_OUT, exchange=2),
        Event(at=5.0, kind=EventKind.SERVES, exchange=2),
        Event(at=50.0, kind=EventKind.DEATH, exchange=2),
        Event(at=55.0, kind=EventKind.SERVES, exchange=2),
    ]
    row = marks(events, 100.0)[Lane.SCALING]
    assert [(mark.kind, mark.label) for mark in row] == [("scale-out", "+x2"), ("serves", "")]


def test_a_mark_tells_its_first_events_and_how_many_more_there_are() -> None:
    (mark,) = marks(moves(*(1 + number / 1_000 for number in range(20))), 100.0)[Lane.MOVES]
    assert mark.summary == "20 moves"
    assert mark.told.splitlines() == [*["move: x1 → x2"] * 8, "and 12 more"]


def test_the_room_behind_a_mark_ends_at_the_next_one() -> None:
    assert room(marks(moves(10.0, 30.0), 100.0)[Lane.MOVES], 100.0) == [0.2, 0.7]
    assert room([], 100.0) == []


def test_events_are_told_in_a_clause() -> None:
    assert said(Event(at=0, kind=EventKind.DEATH, exchange=3)) == "death x3"
    assert said(Event(at=0, kind=EventKind.GAP, exchange=3, text="2 s")) == "gap x3: 2 s"
    assert said(Event(at=0, kind=EventKind.MOVE, text="a\x1b")) == "move: a\ufffd"
