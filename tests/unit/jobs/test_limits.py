"""What holds for a type, what a rate lets begin, and how slots are shared."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis import strategies as st
from msgspec import UNSET

from roq.errors import InvalidRequest
from roq.jobs.limits import (
    AT_ONCE,
    LIMITS,
    LimitChanges,
    TypeLimits,
    begun,
    changed,
    checked,
    fair_share,
    in_force,
    lent,
    may_begin,
    read_changes,
    read_limits,
    text_of,
    texts,
    written,
)
from roq.jobs.states import DEFAULT, LOW


@pytest.mark.parametrize(
    "wrong",
    [
        {"cluster_limit": -1}, {"cluster_limit": 0}, {"threads": True}, {"threads": 10**9},
        {"time_limit": 0}, {"time_limit": float("nan")}, {"time_limit": float("inf")},
        {"time_limit": "1"}, {"retries": -1}, {"retries": None}, {"rate": 0}, {"rate": -1},
        {"rate": float("nan")}, {"rate": 1e9}, {"rate": 1e-12}, {"priority": 7},
        {"priority": "high"},
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidRequest, match=name):
        checked(TypeLimits(**wrong))


def test_an_operator_sets_limits_and_takes_them_back() -> None:
    declared = TypeLimits(cluster_limit=5, rate=2.0)
    changes = changed(LimitChanges(), {"cluster_limit": "none", "rate": "100/60", "threads": " 3 "})
    holds = in_force(declared, changes)
    assert (holds.cluster_limit, holds.rate, holds.threads) == (None, 100 / 60, 3)
    changes = changed(changes, {"cluster_limit": "declared", "priority": "LOW", "retries": "0"})
    holds = in_force(declared, changes)
    assert (holds.cluster_limit, holds.threads, holds.priority) == (5, 3, LOW)
    assert texts(changes) == {
        "threads": "3", "cluster_limit": "declared", "retries": "0", "time_limit": "declared",
        "rate": "1.66667", "priority": "low",
    }  # fmt: skip
    assert changed(changes, dict.fromkeys(LIMITS, "declared")) == LimitChanges()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("threads", "-1"), ("threads", "many"), ("threads", ""), ("retries", "none"),
        ("time_limit", "none"), ("time_limit", "nan"), ("rate", "1/0"), ("rate", "1/2/3"),
        ("rate", "-5"), ("rate", "inf"), ("priority", "none"), ("priority", "100"),
        ("colour", "red"), ("cluster_limit", "9" * 5000),
    ],
)  # fmt: skip
def test_nothing_is_set_that_cannot_be(name: str, text: str) -> None:
    with pytest.raises(InvalidRequest):
        changed(LimitChanges(), {name: text})


def test_what_is_written_is_read() -> None:
    limits = TypeLimits(threads=2, rate=0.5)
    changes = changed(LimitChanges(), {"rate": "none", "time_limit": "5"})
    assert read_limits(written(limits)) == limits
    assert read_changes(written(changes)) == changes
    assert changes.rate is None
    assert changes.threads is UNSET
    for rubbish in ("", "[]", '{"rate": "x"}', '{"rate": -1}', "[" * 100_000):
        assert read_limits(rubbish) == TypeLimits()
        assert read_changes(rubbish) == LimitChanges()


def test_a_limit_as_text() -> None:
    assert [text_of("rate", 0.25), text_of("threads", None)] == ["0.25", "none"]
    assert [text_of("priority", DEFAULT), text_of("priority", 7)] == ["default", "7"]


RATES = some.floats(0.001, 10_000.0)


@given(
    rate=RATES,
    steps=some.lists(some.tuples(some.integers(0, 5_000_000), some.integers(0, 100)), max_size=50),
)
def test_a_rate_holds_in_every_span(rate: float, steps: list[tuple[int, int]]) -> None:
    next_, now, starts = 0, 1_000_000_000, list[tuple[int, int]]()
    for pause, wanted in steps:
        now += pause
        number = min(wanted, may_begin(rate, next_, now))
        if number:
            next_ = begun(rate, next_, now, number)
            starts.append((now, number))
    for at, (first, _) in enumerate(starts):
        number = 0
        for last, many in starts[at:]:
            number += many
            assert number <= rate * ((last - first) / 1e6 + 1) + 1 + 1e-6


@given(rate=some.floats(0.01, 1_000.0), late=some.integers(0, 400_000))
def test_whoever_looks_twice_a_second_uses_all_of_a_rate(rate: float, late: int) -> None:
    next_, now, number = 0, 1_000_000_000, 0
    while now < 1_000_000_000 + 200 * 1_000_000:
        now += 500_000 + late
        may = may_begin(rate, next_, now)
        if may:
            next_ = begun(rate, next_, now, may)
            number += may
    assert number >= 0.95 * min(rate * 199, 10**9) - 1


@given(rate=RATES, before=RATES, step=some.integers(0, 10**13), now=some.integers(10**14, 10**15))
def test_neither_another_rate_nor_a_clock_that_was_wrong_is_waited_for(
    rate: float, before: float, step: int, now: int
) -> None:
    next_ = begun(before, 0, now + step, may_begin(before, 0, now + step))
    for _ in range(2):
        now += AT_ONCE + int(1_000_000 / rate) + 1  # as long as this rate ever makes one wait
        may = may_begin(rate, next_, now)
        next_ = begun(rate, next_, now, may) if may else next_
        if may:
            break
    assert may
    assert next_ <= now + AT_ONCE + 1_000_000 / rate + 1


IDS = st.sets(st.integers(1, 1_000), min_size=1, max_size=12)


@given(st.integers(0, 100), IDS, st.text(max_size=5))
def test_shares_add_up_and_differ_by_one_at_most(limit: int, ids: set[int], name: str) -> None:
    shares = [fair_share(limit, ids, me, name) for me in ids]
    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1


def test_the_rest_goes_to_others_for_another_type() -> None:
    ids = range(8)
    first = {next(me for me in ids if fair_share(1, ids, me, f"type {n}")) for n in range(40)}
    assert len(first) > 4


@given(st.integers(1, 100), IDS, st.data())
def test_what_others_do_not_want_is_lent(limit: int, ids: set[int], data: st.DataObject) -> None:
    me = data.draw(st.sampled_from(sorted(ids)))
    assert lent(limit, ids, [], me, "A") == lent(limit, ids, [me], me, "A") == limit
    hungry = ids - {me}
    if hungry:
        assert lent(limit, ids, hungry, me, "A") == fair_share(limit, ids, me, "A")
