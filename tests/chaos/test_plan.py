"""A plan of faults is the same again for the same seed."""

from __future__ import annotations

from itertools import islice

import pytest

from roq.simulation.experiments.chaos.faults import FAULTS
from roq.simulation.experiments.chaos.plan import chosen, plan

KINDS = [fault.kind for fault in FAULTS.values()]


def test_the_same_seed_is_the_same_plan_and_another_one_is_not() -> None:
    one, again, other = (list(islice(plan(seed, KINDS), 50)) for seed in (7, 7, 8))
    assert one == again
    assert one != other


def test_every_kind_comes_before_one_comes_by_its_weight() -> None:
    steps = list(islice(plan(3, KINDS), len(KINDS)))
    assert {step.draws[0].kind for step in steps} == set(FAULTS)


def test_two_faults_of_one_step_are_of_different_kinds_and_keep_to_their_bounds() -> None:
    steps = list(islice(plan(5, KINDS), 500))
    assert 100 < sum(len(step.draws) == 2 for step in steps) < 200
    for step in steps:
        kinds = [draw.kind for draw in step.draws]
        assert len(set(kinds)) == len(kinds)
        for draw in step.draws:
            low, high = FAULTS[draw.kind].kind.seconds
            assert low <= draw.seconds <= high


def test_more_faults_come_one_after_the_other() -> None:
    steps = list(islice(plan(5, KINDS, 4), 50))
    kinds = [draw.kind for step in steps[:10] for draw in step.draws]
    assert set(kinds) == set(FAULTS), "each comes before one comes by its weight"
    for step in steps:
        alone = FAULTS[step.draws[0].kind].kind.alone
        assert len(step.draws) in ((1,) if alone else (5, 6))
        assert not any(FAULTS[draw.kind].kind.alone for draw in step.draws[1:])


def test_kinds_are_chosen_by_the_beginnings_of_their_names() -> None:
    kinds = {kind.name: kind for kind in KINDS}
    assert [kind.name for kind in chosen(kinds, ["gcm"])] == ["gcm-kill", "gcm-pause"]
    assert chosen(kinds, []) == KINDS
    with pytest.raises(KeyError):
        chosen(kinds, ["nothing"])
