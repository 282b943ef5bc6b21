"""Tables of transitions: a machine goes by its own, and each of them can be walked.

And the clock of machines that judge others by their silence.
"""

from __future__ import annotations

import runpy
from enum import Enum, auto
from pathlib import Path
from typing import Any

import pytest

from roq.errors import LocalProtocolError
from roq.machine import ROUNDING_SECONDS, ObservedClock, Transitions

ROOT = Path(__file__).resolve().parents[2]
DRAWINGS = runpy.run_path(str(ROOT / "scripts" / "states_reference.py"))["DRAWINGS"]


class Lamp(Enum):
    OFF = auto()
    ON = auto()
    BROKEN = auto()


LAMPS = Transitions(
    begin={Lamp.OFF: "made"},
    follow={Lamp.OFF: {Lamp.ON: "pressed"}, Lamp.ON: {Lamp.OFF: "pressed", Lamp.BROKEN: "age"}},
    end={Lamp.BROKEN: "thrown away"},
)


def test_a_step_of_the_table_is_taken() -> None:
    assert LAMPS.step(Lamp.OFF, Lamp.ON) is Lamp.ON
    assert LAMPS.step(Lamp.ON, Lamp.BROKEN) is Lamp.BROKEN


@pytest.mark.parametrize("state", Lamp)
def test_to_stay_is_always_allowed(state: Lamp) -> None:
    assert LAMPS.step(state, state) is state


@pytest.mark.parametrize(
    ("before", "after"),
    [(Lamp.OFF, Lamp.BROKEN), (Lamp.BROKEN, Lamp.OFF), (Lamp.BROKEN, Lamp.ON)],
)
def test_any_other_step_is_a_bug_that_names_both(before: Lamp, after: Lamp) -> None:
    with pytest.raises(LocalProtocolError, match=f"Lamp: {after.name} .* {before.name}"):
        LAMPS.step(before, after)


def test_nothing_is_forgotten_but_at_an_end() -> None:
    LAMPS.leave(Lamp.BROKEN)
    with pytest.raises(LocalProtocolError, match="Lamp: nothing is forgotten while it is ON"):
        LAMPS.leave(Lamp.ON)


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda each: each.title)
def test_every_state_can_be_reached_and_none_is_a_trap(drawing: Any) -> None:
    table = drawing.table
    found, heads = set(), list(table.begin)
    while heads:
        head = heads.pop()
        if head not in found:
            found.add(head)
            heads += table.follow.get(head, ())
    states = set(type(next(iter(table.begin))))
    assert found == states
    assert {state for state in states if not table.follow.get(state)} <= set(table.end)


def test_it_goes_as_time_does_while_events_come() -> None:
    clock = ObservedClock(100.0, stall_seconds=1.5)
    assert [clock.read(now) for now in (100.5, 101.9, 103.4)] == [100.5, 101.9, 103.4]


def test_of_a_longer_gap_only_so_much_counts() -> None:
    clock = ObservedClock(100.0, stall_seconds=1.5)
    assert clock.read(160.0) == 101.5
    assert clock.read(161.0) == 102.5


def test_every_stall_is_taken_off_by_itself() -> None:
    clock = ObservedClock(0.0, stall_seconds=1.0)
    assert clock.read(11.0) == 1.0
    assert clock.read(22.0) == 2.0


def test_a_wake_up_for_an_observed_time_comes_late_enough() -> None:
    clock = ObservedClock(0.0, stall_seconds=1.0)
    clock.read(50.0)
    due = clock.read(50.0) + 1.0
    when = clock.outside(due)
    assert when == 51.0 + ROUNDING_SECONDS
    assert clock.read(when) >= due


def test_another_bound_holds_for_the_next_gap() -> None:
    clock = ObservedClock(0.0, stall_seconds=1.0)
    clock.stall_seconds = 10.0
    assert clock.read(9.0) == 9.0
