"""What is killed follows from the seed, and all kinds have their turn."""

from __future__ import annotations

from collections import Counter

from roq.simulation.experiments.chaos_spark.player import DRIVER, EXCHANGE, EXECUTOR, WORKER, plan


def test_the_same_seed_kills_the_same() -> None:
    assert list(plan(4, 17)) == list(plan(4, 17))
    assert any(list(plan(seed, 17)) != list(plan(4, 17)) for seed in range(5, 9))


def test_four_kills_are_one_of_each() -> None:
    assert Counter(plan(1, 4)) == {DRIVER: 1, EXECUTOR: 1, WORKER: 1, EXCHANGE: 1}
    assert len(list(plan(1, 1))) == 1


def test_half_of_sixty_kills_are_of_executors() -> None:
    assert Counter(plan(1, 60)) == {DRIVER: 10, EXECUTOR: 30, WORKER: 10, EXCHANGE: 10}
