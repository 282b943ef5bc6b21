"""Publishers move all the time, on a virtual clock: nothing is lost, doubled or out of order."""

from __future__ import annotations

import pytest

from roq.client.publish import relocation
from roq.simulation.experiments.relocations import run
from roq.simulation.virtual.relocation_case import CALM, ROUGH, Case
from roq.simulation.virtual.relocation_trial import Result, Trial


def total(count: int, **options: bool) -> Result:
    whole = Result()
    parts, _ = run(count, seed=0, **options)
    for part in parts:
        whole.add(part.result)
    return whole


def test_hundreds_of_relocations_lose_double_and_reorder_nothing() -> None:
    result = total(400)
    assert result.ok, result
    assert result.accepted >= 400
    assert result.striped > 20
    assert result.sent == result.received > 50_000
    assert {"kills", "pauses", "drops", "cuts", "stalls", "deaf"} <= set(result.faults)


def test_the_same_seed_is_the_same_history() -> None:
    case = Case.draw(3, 20)
    first, second = Trial(case).run(), Trial(case).run()
    assert first == second
    assert first.faults
    assert Trial(Case.draw(5, 20)).run() != first


def test_every_second_case_is_one_with_faults() -> None:
    assert [Case.draw(seed, 1).faults for seed in range(3)] == [CALM, ROUGH, CALM]


# --- and it would be noticed if they did ----------------------------------------------------------


def test_the_naive_hand_off_is_seen_to_lose() -> None:
    result = total(100, naive=True)
    assert result.lost > 0
    assert not result.ok


def test_without_the_duplicate_check_doubles_are_seen() -> None:
    result = total(100, check_duplicates=False, faults=True)
    assert result.duplicated > 0
    assert not result.ok


def test_without_draining_it_is_seen_that_batches_are_sent_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relocation, "DRAIN_SECONDS", 0.0)
    result = total(100, faults=False)
    assert result.needless > 0
    assert not result.ok
