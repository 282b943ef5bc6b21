"""Tables of transitions: a machine goes by its own, and each of them can be walked."""

from __future__ import annotations

import runpy
from enum import Enum, auto
from pathlib import Path
from typing import Any

import pytest

from roq.errors import LocalProtocolError
from roq.machine import Transitions

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
