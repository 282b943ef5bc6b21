"""How many processes of a host start at the same time, and whose turn is next."""

from __future__ import annotations

import pytest

from roq.hcm.starts import PATIENT_MAX, SLOT_PATIENT_SECONDS, SLOT_SECONDS, Starts


def entered(starts: Starts, *names: str, now: float = 0.0, patient: bool = False) -> list[bool]:
    return [starts.enter(name, now, patient=patient) for name in names]


def test_so_many_start_at_once_and_the_others_stand_in_a_line() -> None:
    starts = Starts(2)
    assert entered(starts, "a", "b", "c", "d") == [True, True, False, False]
    assert list(starts) == ["c", "d"]


def test_who_runs_makes_room_for_the_first_of_the_line() -> None:
    starts = Starts(1)
    entered(starts, "a", "b", "c")
    assert starts.turns(1.0, patient=False) == []
    starts.leave("a")
    assert starts.turns(1.0, patient=False) == ["b"]
    assert list(starts) == ["c"]


def test_nobody_passes_those_who_wait() -> None:
    starts = Starts(1)
    entered(starts, "a", "b")
    starts.leave("a")
    assert entered(starts, "c") == [False]
    assert starts.turns(1.0, patient=False) == ["b"]


@pytest.mark.parametrize(("patient", "slot"), [(False, SLOT_SECONDS), (True, SLOT_PATIENT_SECONDS)])
def test_one_that_does_not_come_up_holds_others_back_for_so_long(
    patient: bool, slot: float
) -> None:
    starts = Starts(1)
    entered(starts, "a", "b", patient=patient)
    assert starts.next_deadline(patient=patient) == slot
    assert starts.turns(slot - 0.1, patient=patient) == []
    assert starts.turns(slot, patient=patient) == ["b"]


def test_while_the_host_is_short_of_processor_fewer_start() -> None:
    starts = Starts(8)
    names = [f"x{number}" for number in range(4)]
    assert sum(entered(starts, *names, patient=True)) == PATIENT_MAX


def test_who_is_not_wanted_any_more_leaves_the_line() -> None:
    starts = Starts(1)
    entered(starts, "a", "b", "c")
    starts.give_up("b")
    starts.leave("a")
    assert starts.turns(0.0, patient=False) == ["c"]


def test_there_is_nothing_to_wake_up_for_if_nobody_waits() -> None:
    starts = Starts(2)
    entered(starts, "a")
    assert starts.next_deadline(patient=False) is None
