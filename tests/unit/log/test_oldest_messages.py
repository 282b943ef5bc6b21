"""The oldest open message of each topic and priority, of batches in the order of their log."""

from __future__ import annotations

import random

import pytest

from roq.log.oldest_messages import AREA_MAX, Glimpse, OldestMessages, glimpse_of
from roq.log.ring import TopicLog
from roq.protocol.columns import PRIORITIES, PRIORITY_MAX, pack_column, pack_keys
from roq.protocol.consuming import OLDEST_TOPICS_MAX
from roq.protocol.entry import pack_entry


def glimpse(topic: bytes, time_us: int, area: bytes, count: int) -> Glimpse:
    frame = pack_entry(0, 1, bytes(16), 1, 0, 0, time_us)
    return glimpse_of((TopicLog(topic), frame, b"", 0), area, count)


def rows(*seen: tuple[bytes, int, bytes, int]) -> list[tuple[bytes | None, int, int]]:
    found = OldestMessages()
    for topic, time_us, priorities, bits in seen:
        count = len(priorities)
        found.add(glimpse(topic, time_us, pack_column(PRIORITIES, priorities), count), count, bits)
    return [
        (None if each.others else each.topic, each.priority, each.appended_us)
        for each in found.rows()
    ]


def test_each_topic_and_priority_has_its_oldest_message_that_is_open() -> None:
    assert rows(
        (b"a", 10, b"\x00", 0b1),
        (b"b", 11, b"\x00\x05\x05", 0b101),
        (b"b", 12, b"\x05\x09", 0b01),
        (b"a", 13, b"\x09", 0b1),
        (b"b", 14, b"\x09", 0b10),
    ) == [(b"a", 0, 10), (b"b", 0, 11), (b"b", 5, 11), (b"a", 9, 13), (b"b", 9, 14)]


def test_a_priority_counts_only_where_one_of_its_messages_is_open() -> None:
    assert rows((b"a", 10, b"\x00\x05", 0b01), (b"a", 11, b"\x05", 0b1)) == [
        (b"a", 0, 10), (b"a", 5, 11),
    ]  # fmt: skip


def test_topics_without_number_are_told_as_one() -> None:
    many = [(b"%03d" % index, index, b"\x00", 1) for index in range(OLDEST_TOPICS_MAX + 20)]
    found = rows(*many, (b"000", 999, b"\x03", 1))
    assert len(found) == OLDEST_TOPICS_MAX + 2
    assert found[OLDEST_TOPICS_MAX] == (None, 0, OLDEST_TOPICS_MAX), "the oldest of the others"
    assert found[-1] == (b"000", 3, 999), "one that is named stays so"


def test_a_priority_that_there_is_not_counts_as_the_highest() -> None:
    assert rows((b"a", 1, b"\xff", 1)) == [(b"a", PRIORITY_MAX, 1)]


def test_of_a_large_extension_area_only_priorities_are_kept() -> None:
    column = pack_column(PRIORITIES, b"\x00\x05" * 150)
    kept = glimpse(b"a", 1, pack_keys(set(range(99))) + column, 300)
    assert kept == glimpse(b"a", 1, column, 300)
    assert len(column) > AREA_MAX
    found = OldestMessages()
    found.add(kept, 300, 0b10)
    assert [(each.priority, each.appended_us) for each in found.rows()] == [(5, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_found_is_the_oldest_of_all_that_is_open(seed: int) -> None:
    chance = random.Random(seed)
    expected: dict[tuple[bytes | None, int], int] = {}
    seen: list[tuple[bytes, int, bytes, int]] = []
    for time_us in range(1, 60):
        topic = chance.choice([b"a", b"b"])
        column = bytes(chance.choices([0, 1, 5, 9, 10, 255], k=chance.randint(1, 5)))
        bits = chance.randrange(1, 1 << len(column))
        seen.append((topic, time_us, column, bits))
        for index, value in enumerate(column):
            if bits >> index & 1:
                expected.setdefault((topic, min(value, PRIORITY_MAX)), time_us)
    found = {(topic, priority): at for topic, priority, at in rows(*seen)}
    assert found == expected
