"""When an exchange is not needed any more, and when it only looks so."""

from typing import Any

import pytest
from queue_views import at, queue

from roq.model import ElasticRules
from roq.policy.growth import BYTES_PER_MB
from roq.policy.memory import Marks
from roq.policy.shrinking import (
    PATIENCE_MAX_SECONDS,
    PATIENCE_SECONDS,
    REGRET_SECONDS,
    regret,
    shrink,
)
from roq.policy.snapshot import ExchangeView, HostView, Memory, QueueView, Shrink


def shrunk(view: QueueView, seconds: float = PATIENCE_SECONDS) -> int:
    """The exchange that goes after so many seconds of the same; 0: none."""
    marks = Marks(Memory(), view.now - seconds)
    assert shrink(marks, view) is None
    found = shrink(Marks(marks.memory(), view.now), view)
    return found.number if found is not None else 0


def idle(*numbers: int, **fields: Any) -> list[ExchangeView]:
    return [at(n, (10 + n, 0.1), removable=n > 1, **fields) for n in numbers]


def test_the_least_busy_one_goes_once_it_has_lasted() -> None:
    view = queue(at(1, (1, 0.4)), at(2, (2, 0.2), removable=True), at(3, (3, 0.1), removable=True))
    assert shrunk(view) == 3
    assert shrunk(view, PATIENCE_SECONDS - 1) == 0


def test_of_equal_ones_the_newest_goes() -> None:
    assert shrunk(queue(*idle(1, 2, 3))) == 3


def test_only_what_scaling_has_made_is_removed() -> None:
    assert shrunk(queue(at(1, (1, 0.3), removable=True), at(2))) == 1
    assert shrunk(queue(at(1, (1, 0.3)), at(2))) == 0


def test_the_last_one_and_the_least_that_the_rules_want_stay() -> None:
    assert shrunk(queue(at(1, (1, 0.1), removable=True))) == 0
    assert shrunk(queue(*idle(1, 2), rules=ElasticRules(exchanges_min=2))) == 0


@pytest.mark.parametrize(
    ("loads", "expected"), [((0.4, 0.29), 2), ((0.4, 0.31), 0), ((0.9, 0.0), 0), ((0.5, 0.6), 0)]
)
def test_the_rest_must_carry_everything_under_70_percent(loads, expected) -> None:
    view = queue(at(1, (1, loads[0])), at(2, (2, loads[1]), removable=True))
    assert shrunk(view) == expected


def test_a_load_that_has_only_just_fallen_is_not_low_yet() -> None:
    assert shrunk(queue(at(1, (1, 0.2), mean=0.5), at(2, removable=True, mean=0.5))) == 0


def test_nobody_may_be_too_big_for_the_others() -> None:
    three = queue(at(1, (1, 0.5)), at(2, (2, 0.5)), at(3, (3, 0.3), removable=True))
    assert shrunk(three) == 0
    small = queue(at(1, (1, 0.5)), at(2, (2, 0.5)), at(3, (3, 0.2), (4, 0.1), removable=True))
    assert shrunk(small) == 3


RULES: list[tuple[dict[str, Any], int]] = [
    ({"queue_publishers_per_exchange": 2}, 0),
    ({"queue_publishers_per_exchange": 3}, 2),
    ({"latency_ms": 20}, 0),
    ({"latency_ms": 30}, 2),
    ({"host_cpu_percent": 50}, 0),
    ({"host_cpu_percent": 60}, 2),
    ({"host_memory_mb": 300}, 0),
    ({"queue_bytes_per_exchange": 15_000_000}, 0),
]


@pytest.mark.parametrize(("rules", "expected"), RULES)
def test_no_rule_may_be_broken_by_it(rules: dict[str, Any], expected: int) -> None:
    view = queue(
        *idle(1, 2),
        rules=ElasticRules(**rules),
        latency_ms=11.0,
        hosts=(HostView("h1", 22.0, 150 * BYTES_PER_MB),),
    )
    assert shrunk(view) == expected


def test_not_while_something_is_going_on() -> None:
    assert shrunk(queue(*idle(1, 2), scaling=True)) == 0
    marks = Marks(Memory(), 1000.0)
    marks.start("changed")
    later = queue(*idle(1, 2), now=1000.0 + PATIENCE_SECONDS)
    shrink(marks, later)
    assert shrink(Marks(marks.memory(), later.now), later) is None
    assert shrink(Marks(Memory({"low": 0.0}), later.now), later, quiet=False) is None


def test_patience_doubles_when_it_was_too_early_and_halves_when_it_was_not() -> None:
    view = queue(*idle(1, 2))
    marks = Marks(Memory({"low": 0.0}), view.now)
    assert shrink(marks, view) == Shrink(2, "the others can carry all of it: 20% of their limit")
    marks.now += REGRET_SECONDS / 2
    regret(marks)
    assert marks.get("patience") == 2 * PATIENCE_SECONDS
    regret(marks)
    assert marks.get("patience") == 2 * PATIENCE_SECONDS
    for _ in range(2):
        marks.put("low", 0.0)
        assert shrink(marks, view) is not None
    assert marks.get("patience") == PATIENCE_SECONDS


def test_patience_has_an_end() -> None:
    marks = Marks(Memory({"patience": PATIENCE_MAX_SECONDS, "shrunk": 0.0}), 1.0)
    regret(marks)
    assert marks.get("patience") == PATIENCE_MAX_SECONDS
