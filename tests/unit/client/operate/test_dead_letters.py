"""Which dead letters are wanted, and in which steps they go.

What the commands do with them is tested by `tests/unit/cli/test_dead_letters.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from roq.client.consume.dead_letters import DeadLetter
from roq.client.operate.dead_letters import CHUNK, HELD_MAX, Found, Wanted, paced

DIED = datetime(2026, 11, 25, tzinfo=UTC)


def letter(
    topic: str = "eu.be", group: str = "billing", reason: str = "it timed out"
) -> DeadLetter:
    return DeadLetter("orders", topic, group, "x1-1-0-0", 3, reason, {})


def wanted(**fields: Any) -> Wanted:
    given = {"letters": None, "reason": "", "topic": "", "group": "", "count": 9, "wait": 1.0}
    return Wanted(**{**given, **fields})


@pytest.mark.parametrize(
    ("fields", "admitted"),
    [
        ({}, True),
        ({"reason": "timed"}, True),
        ({"reason": "refused"}, False),
        ({"topic": "eu."}, True),
        ({"topic": "be"}, False),
        ({"group": "billing"}, True),
        ({"group": "bill"}, False),
    ],
)
def test_letters_are_wanted_by_reason_topic_and_group(
    fields: dict[str, str], admitted: bool
) -> None:
    assert wanted(**fields).admits(letter(), DIED) is admitted


def test_those_that_died_later_are_not_wanted() -> None:
    until = wanted(until=DIED)
    assert until.admits(letter(), DIED)
    assert not until.admits(letter(), DIED + timedelta(microseconds=1))


def test_no_more_letters_are_held_than_must_be_looked_at() -> None:
    assert wanted(count=201).prefetch(1) == 201 + CHUNK
    assert wanted(count=201).prefetch(4) == 4 * 201 + CHUNK, "all may be at one exchange"
    assert wanted(count=10**9).prefetch(4) == HELD_MAX
    for some in ({"reason": "a"}, {"topic": "a"}, {"group": "a"}, {"until": DIED}):
        assert wanted(**some).prefetch(1) == HELD_MAX, "the last one may be the one that is wanted"


def test_letters_go_in_chunks_and_small_ones_if_they_must_be_slow() -> None:
    found = [Found(cast("Any", None), letter())] * (CHUNK + 1)
    assert [len(chunk) for chunk in paced(found, None)] == [CHUNK, 1]
    assert [len(chunk) for chunk in paced(found[:5], 1_000.0)] == [5]
    assert [len(chunk) for chunk in paced(found[:4], 100_000.0)] == [4]
