"""The oldest open message of each topic and priority, of batches in the order of their log."""

from __future__ import annotations

import random

import pytest
from memory_files import MemoryFiles
from paper_group import Group, OnDisk, refuse

from roq.log import group_progress
from roq.log.groups import ConsumerGroup
from roq.log.oldest_messages import AREA_MAX, Glimpse, OldestMessages, glimpse_of
from roq.log.ring import TopicLog
from roq.protocol.columns import (
    PRIORITIES,
    PRIORITY_MAX,
    pack_column,
    pack_keys,
    pack_lifetime,
    pack_tags,
    tag_bits,
)
from roq.protocol.consuming import MODES, OLDEST_TOPICS_MAX, GroupSettings
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


# --- of a group -----------------------------------------------------------------------------------


def oldest(made: Group) -> list[tuple[int, int]]:
    """Priority and time."""
    rows, _ = made.group.oldest()
    assert [each.topic for each in rows] == [b"t"] * len(rows)
    return [(each.priority, each.appended_us) for each in rows]


def timed(made: Group, time_us: int, ranks: bytes) -> None:
    made.log.advance_clock(time_us)
    made.append(len(ranks), area=pack_column(PRIORITIES, ranks))


@pytest.mark.parametrize("mode", MODES)
def test_the_oldest_message_of_each_priority_is_known_whatever_the_mode(mode: str) -> None:
    made = Group(mode=mode)
    for time_us, ranks in ((10, b"\x00\x05"), (20, b"\x00"), (30, b"\x05\x05")):
        timed(made, time_us, ranks)
    assert oldest(made) == [(0, 10), (5, 10)], "also of what no member was handed"
    assert made.group.next == 0, "which costs the group nothing"
    member = made.join()
    leases = made.leases()
    assert oldest(made) == [(0, 10), (5, 10)], "also of what a member holds"
    (first, *_) = [each for each in leases if (each.offset, each.first) == (0, 0)]
    assert made.group.acknowledge(member, first.number, 0, 1)
    assert oldest(made) == [(5, 10), (0, 20)]
    assert made.group.oldest_us == 10
    while leases or (leases := made.leases()):
        for lease in leases:
            made.group.acknowledge(member, lease.number)
        member.granted += 100
        leases = []
    assert (oldest(made), made.group.oldest_us) == ([], 0)


def test_what_is_the_oldest_is_known_after_a_restart_without_what_is_done() -> None:
    made = Group()
    for time_us in (10, 20, 30):
        timed(made, time_us, b"\x00\x04")
    member = made.join()
    first, second, _ = made.leases()
    made.group.acknowledge(member, first.number, 1, 1)
    made.group.acknowledge(member, second.number)
    heir: ConsumerGroup[bytes] = ConsumerGroup("g", made.log, GroupSettings(), 1, 0, 0.0)
    heir.apply(made.group.snapshot())
    made.group = heir
    assert oldest(made) == [(0, 10), (4, 30)]


def test_who_asks_has_so_much_looked_at_and_is_told_what_was_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_progress, "PEEK_MAX", 2)
    made = Group()
    every = [(rank, 10 * rank) for rank in range(1, 7)]
    for rank, time_us in every:
        timed(made, time_us, bytes([rank]))
    assert (oldest(made), made.group.oldest()[1]) == (every[:2], 30)
    made.join(credit=1)
    made.leases()
    assert made.group.next == 2
    assert (oldest(made), made.group.oldest()[1]) == (every[:4], 50)
    monkeypatch.setattr(group_progress, "PEEK_BYTES", 1)
    assert (oldest(made), made.group.oldest()[1]) == (every[:3], 40)


def test_what_is_over_or_of_others_is_not_the_oldest() -> None:
    made = Group(tags=("eu",))
    made.group.lifetimes.now_us = 2_000_000
    made.append(area=pack_tags(tag_bits(["us"])))
    made.append(area=pack_tags(tag_bits(["eu"])) + pack_lifetime(1))
    made.log.advance_clock(1_000_000)
    made.append(area=pack_tags(tag_bits(["eu"])))
    assert oldest(made) == [(0, 1_000_000)]


def test_who_asks_for_the_oldest_does_not_wait_again_and_again_for_a_disk_that_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = OnDisk()
    for time_us in range(10, 22):
        made.log.advance_clock(time_us)
        made.append()
    asked: list[str] = []

    def refuse_all(_: MemoryFiles, name: str, *__: object) -> bytes:
        asked.append(name)
        return refuse()

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFiles, "read", refuse_all)
        for _ in range(9):
            assert made.group.oldest_us == 0
        assert len(asked) == 1, "a report each second asks once"
        rows, unseen_us = made.group.oldest()
        assert (rows, unseen_us) == ([], 1), "nothing is known"
        assert len(asked) == 2
    assert oldest(made) == [(0, 10)]
    assert made.group.oldest()[1] == 0
