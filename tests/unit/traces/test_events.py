"""What happened, in words."""

from __future__ import annotations

from traces import BEGAN_US, us

from roq.simulation.lab.archive.document import EventKind
from roq.simulation.lab.traces.events import (
    births_and_deaths,
    gaps,
    in_order,
    told,
)
from roq.simulation.lab.traces.grid import grid

LOAD = grid(BEGAN_US, 60.0)


def moved(at: float, state: str, source: int = 1) -> dict[str, object]:
    return {
        "kind": "move", "time_us": us(at), "state": state, "sources": [source], "targets": [2],
        "publisher": "ab" * 16, "reason": "too much", "pause_ms": 1.0,
    }  # fmt: skip


def life(exchange: int, epoch: int, first: float, last: float, **more: bool) -> dict[str, object]:
    return {
        "exchange": exchange, "epoch": epoch, "first_us": us(first), "last_us": us(last),
        "leaving": more.get("leaving", False),
    }  # fmt: skip


def above(exchange: int, begin: float, end: float) -> dict[str, object]:
    return {"exchange": exchange, "begin_us": us(begin), "end_us": us(end)}


def test_the_end_of_a_move_is_an_event() -> None:
    rows = [moved(2, "accepted"), moved(3, "failed"), moved(4, "given_up")]
    found = told(rows, LOAD)
    assert [(event.at, event.kind) for event in found] == [
        (2.0, EventKind.MOVE), (3.0, EventKind.MOVE_FAILED), (4.0, EventKind.MOVE_FAILED),
    ]  # fmt: skip
    assert found[0].text == "publisher abababab x1 → x2: too much"


def test_scaling_says_what_came_what_went_and_what_could_not() -> None:
    def row(direction: str, state: str, number: int | None) -> dict[str, object]:
        return {
            "kind": "scale", "time_us": us(1), "direction": direction, "state": state,
            "exchange": number, "reason": "because",
        }  # fmt: skip

    rows = [row("out", "started", None), row("out", "done", 2), row("in", "done", 2),
            row("out", "failed", None)]  # fmt: skip
    assert [(event.kind, event.text) for event in told(rows, LOAD)] == [
        (EventKind.SCALE_OUT, "x2 came: because"),
        (EventKind.SCALE_IN, "x2 went: because"),
        (EventKind.SCALE_FAILED, "an exchange could not come: because"),
    ]


def test_births_and_deaths_are_told_and_farewells_are_none() -> None:
    rows = [
        life(1, 1, -5, 20),
        life(1, 2, 22, 60),
        life(2, 1, 10, 40, leaving=True),
        life(3, 1, 12, 30),
        life(4, 1, -5, 60),
    ]
    found = [(event.at, event.kind, event.exchange)
             for event in births_and_deaths(rows, LOAD, us(60), 3.0)]  # fmt: skip
    assert sorted(found) == [
        (10.0, EventKind.SERVES, 2), (12.0, EventKind.SERVES, 3), (20.0, EventKind.DEATH, 1),
        (22.0, EventKind.SERVES, 1), (30.0, EventKind.DEATH, 3),
    ]  # fmt: skip
    assert births_and_deaths([], LOAD, 0, 3.0) == []


def test_a_hole_of_one_exchange_is_told_unless_all_were_silent() -> None:
    found = gaps([above(1, 5, 10), above(2, 30, 40), above(3, 70, 80)], [(us(4), us(9))], LOAD)
    assert [(event.at, event.exchange) for event in found] == [(4.0, 0), (30.0, 2)]
    assert found[0].text == "no statistics for 5.0 s"


def test_events_stand_in_order_of_time() -> None:
    one, two, three = told([moved(9, "failed"), moved(2, "accepted"), moved(3, "failed")], LOAD)
    assert in_order([one, two, three]) == ([two, three, one], 0)
