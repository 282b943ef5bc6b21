"""Which dead letters are wanted, and in which steps they go.

What the commands do with them is tested by `tests/unit/cli/test_dead_letters.py`.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from roq.client.consume.dead_letters import DeadLetter
from roq.client.letters import CHUNK, Found, Wanted, paced


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
    assert wanted(**fields).admits(letter()) is admitted


def test_letters_go_in_chunks_and_small_ones_if_they_must_be_slow() -> None:
    found = [Found(cast("Any", None), letter())] * (CHUNK + 1)
    assert [len(chunk) for chunk in paced(found, None)] == [CHUNK, 1]
    assert [len(chunk) for chunk in paced(found[:5], 1_000.0)] == [5]
    assert [len(chunk) for chunk in paced(found[:4], 100_000.0)] == [4]
