"""Each rule of growth: evaluated when it is set, counted when it is exceeded."""

from typing import Any

import msgspec
import pytest
from queue_model import LIMIT
from queue_views import at, queue

from roq.model import ElasticRules
from roq.policy.growth import BYTES_PER_MB, may_grow, needed, reason_to_grow, watch_exchanges
from roq.policy.memory import Marks
from roq.policy.snapshot import HostView, Memory, QueueView

HALF = [(1, 0.25), (2, 0.25)]


def reasons(count: int, view: QueueView, overloaded: dict[int, float] | None = None) -> list[str]:
    memory = Memory()
    found = []
    for _ in range(count):
        marks = Marks(memory, view.now)
        found.append(reason_to_grow(marks, view, overloaded or {}))
        memory = marks.memory()
    return found


RULES = [
    (
        {"queue_bytes_per_exchange": int(0.4 * LIMIT)},
        {"queue_bytes_per_exchange": int(0.6 * LIMIT)},
        3,
        "bytes per minute and exchange",
    ),
    ({"queue_publishers_per_exchange": 1}, {"queue_publishers_per_exchange": 2}, 2, "publishers"),
    ({"latency_ms": 20}, {"latency_ms": 30}, 3, "latency of 25.0 ms"),
    ({"host_cpu_percent": 80}, {"host_cpu_percent": 95}, 3, "host h1 uses 90 %"),
    ({"host_memory_mb": 400}, {"host_memory_mb": 600}, 3, "host h1 uses 500 MB"),
]


@pytest.mark.parametrize(("broken", "kept", "hits", "text"), RULES, ids=[row[3] for row in RULES])
def test_a_rule_counts_when_it_is_broken_for_some_rounds(
    broken: dict[str, Any], kept: dict[str, Any], hits: int, text: str
) -> None:
    def view(given: dict[str, Any]) -> QueueView:
        hosts = (HostView("h1", 90.0, 500 * BYTES_PER_MB),)
        rules = ElasticRules(**given)
        return queue(at(1, *HALF), rules=rules, hosts=hosts, latency_ms=25.0)

    told = reasons(hits, view(broken))
    assert told[:-1] == [""] * (hits - 1)
    assert text in told[-1]
    assert reasons(10, view(kept)) == [""] * 10
    assert reasons(10, view({})) == [""] * 10


def test_an_unrelieved_exchange_is_a_reason_at_once_if_it_is_clear() -> None:
    view = queue(at(1, *HALF))
    assert "x1 carries 130%" in reasons(1, view, {1: 1.3 * LIMIT})[0]
    assert [bool(reason) for reason in reasons(2, view, {1: 1.15 * LIMIT})] == [False, True]


def test_fewer_than_the_rules_want_is_a_reason() -> None:
    assert "at least 2" in reasons(1, queue(at(1), rules=ElasticRules(exchanges_min=2)))[0]


def test_exchanges_that_failed_count_for_how_many_there_may_be() -> None:
    view = msgspec.structs.replace(
        queue(at(1), rules=ElasticRules(exchanges_min=3, exchanges_max=3)), missing=2
    )
    assert reasons(1, view) == [""]
    assert not may_grow(Marks(Memory(), 100.0), view)


def test_marks_of_hosts_that_are_gone_are_forgotten() -> None:
    marks = Marks(Memory(), 0.0)
    rules = ElasticRules(host_cpu_percent=50)
    reason_to_grow(marks, queue(at(1), rules=rules, hosts=(HostView("h1", 90.0),)), {})
    assert len(marks.memory().marks) == 1
    reason_to_grow(marks, queue(at(1), rules=rules), {})
    assert marks.memory().marks == {}


def test_may_grow_only_below_the_cap_with_nothing_under_way_and_cooled_down() -> None:
    rules = ElasticRules(exchanges_max=3, cooldown_seconds=10)
    marks = Marks(Memory(), 1000.0)
    two = queue(at(1), at(2), rules=rules)
    assert may_grow(marks, two)
    assert not may_grow(marks, queue(at(1), at(2), at(3), rules=rules))
    assert not may_grow(marks, queue(at(1), at(2), rules=rules, scaling=True))
    watch_exchanges(marks, queue(at(1), rules=rules))
    watch_exchanges(marks, two)
    assert not may_grow(Marks(marks.memory(), 1009.0), two)
    assert may_grow(Marks(marks.memory(), 1010.0), two)


def test_the_first_exchanges_are_news_but_no_change() -> None:
    marks = Marks(Memory(), 1000.0)
    assert watch_exchanges(marks, queue(at(1)))
    assert marks.since("changed") == float("inf")
    assert not watch_exchanges(marks, queue(at(1)))
    assert watch_exchanges(marks, queue(at(1), at(2)))
    assert marks.since("changed") == 0.0


def test_an_exchange_that_takes_nobody_for_a_while_is_no_change_of_their_number() -> None:
    marks = Marks(Memory(), 1000.0)
    both, one = queue(at(1), at(2)), queue(at(1), at(2, accepting=False))
    assert [watch_exchanges(marks, view) for view in (both, one, one, both)] == [
        True,
        True,
        False,
        True,
    ]
    assert marks.since("changed") == float("inf")


@pytest.mark.parametrize(
    ("load", "most", "count"),
    [(0.5, 4, 1), (1.3, 4, 1), (1.7, 4, 2), (3.2, 4, 3), (3.2, 3, 2), (9.0, 32, 4)],
)
def test_as_many_are_added_at_once_as_the_load_needs_and_the_rules_allow(
    load: float, most: int, count: int
) -> None:
    assert needed(queue(at(1, (1, load)), rules=ElasticRules(exchanges_max=most))) == count
