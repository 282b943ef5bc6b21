"""Which batches are a group's."""

from __future__ import annotations

from typing import cast

import pytest
import zmq

from roq.log.group_filter import GroupFilter, Lifetimes
from roq.log.log import Record
from roq.log.ring import Ring
from roq.model import PublisherId
from roq.protocol.batch import HEADER_BYTES, Kind, pack, pack_empty
from roq.protocol.columns import (
    KEY_GROUPS,
    LIFETIME,
    pack_column,
    pack_lifetime,
    pack_tags,
    tag_bits,
)
from roq.protocol.consuming import GroupSettings
from roq.protocol.entry import read_entry

AREA = pack_column(KEY_GROUPS, b"\x01\x02") + pack_tags(tag_bits(["eu", "paid"]))


def record(topic: bytes = b"eu.be", area: bytes = b"", *, void: bool = False) -> Record[object]:
    place = {
        "publisher": PublisherId(bytes(16)), "epoch": 0, "link_number": 1, "first_sequence": 0,
        "created_us": 0,
    }  # fmt: skip
    batch = (
        pack_empty(Kind.VOID, count=2, **place)  # type: ignore[arg-type]
        if void
        else pack([b"a", b"b"], extensions=area, **place)  # type: ignore[arg-type]
    )
    log: Ring[object] = Ring(bytes(16), 1, 1, capacity_bytes=1 << 20, topics_max=8)
    log.append(topic, batch, len(batch))
    found = log.record(0)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("settings", "count"),
    [({}, 2), ({"prefixes": (b"eu",)}, 2), ({"prefixes": (b"us",)}, 0), ({"tags": ("paid",)}, 2),
     ({"tags": ("x", "eu")}, 2), ({"tags": ("x",)}, 0),
     ({"tags": ("eu",), "prefixes": (b"us",)}, 0)],
)  # fmt: skip
def test_a_batch_is_the_groups_by_topic_and_tags(settings: dict[str, object], count: int) -> None:
    made = GroupFilter(GroupSettings(**settings))  # type: ignore[arg-type]
    assert made.look_at(record(area=AREA))[0] == count
    assert made.look_at(record(area=AREA, void=True)) == (0, b"")


def test_a_batch_without_tags_is_no_group_of_tags() -> None:
    assert GroupFilter(GroupSettings(tags=("eu",))).look_at(record()) == (0, b"")


def test_a_batch_may_be_a_frame_as_it_was_received() -> None:
    topic, entry, batch, size = record(area=AREA + pack_lifetime(3))
    received: Record[object] = topic, entry, zmq.Frame(cast("bytes", batch)), size
    for settings in (GroupSettings(mode="keyed"), GroupSettings(tags=("eu",))):
        assert GroupFilter(settings).look_at(received) == (2, AREA + pack_lifetime(3))
    lifetimes = Lifetimes()
    assert not lifetimes.over(received)
    lifetimes.now_us = read_entry(entry).appended_us + 3_000
    assert lifetimes.over(received)


def test_what_a_batch_says_is_read() -> None:
    assert GroupFilter(GroupSettings()).look_at(record(area=AREA)) == (2, AREA)
    assert GroupFilter(GroupSettings()).look_at(record()) == (2, b"")


@pytest.mark.parametrize("mode", ["shared", "keyed", "priority"])
def test_a_batch_with_fewer_bytes_than_messages_has_none(mode: str) -> None:
    topic, entry, batch, size = record(area=AREA)
    assert isinstance(batch, bytes)
    body = size - HEADER_BYTES - len(AREA)
    made = GroupFilter(GroupSettings(mode=mode))

    def counted(count: int) -> Record[object]:
        return topic, entry, batch[:8] + count.to_bytes(4, "little") + batch[12:], size

    assert made.look_at(counted(body))[0] == body
    assert made.malformed == 0
    assert made.look_at(counted(body + 1)) == (0, b"")
    assert made.look_at(counted(1 << 20)) == (0, b"")
    assert made.malformed == 2


def test_a_tag_that_has_the_bit_of_another_one_is_let_pass_for_its_member_to_tell() -> None:
    twin = next(
        tag for number in range(10_000)
        if tag_bits([tag := f"t{number}"]) == tag_bits(["paid"])
    )  # fmt: skip
    group = GroupFilter(GroupSettings(tags=(twin,)))
    assert group.look_at(record(area=AREA))[0] == 2
    none = next(
        tag for tag in map(str, range(100)) if not tag_bits([tag]) & tag_bits(["eu", "paid"])
    )
    assert GroupFilter(GroupSettings(tags=(none,))).look_at(record(area=AREA)) == (0, b"")


@pytest.mark.parametrize(
    ("own_ms", "queue_us", "age_us", "over"),
    [
        (0, 0, 1 << 50, False), (5, 0, 4_999, False), (5, 0, 5_000, True), (0, 7_000, 6_999, False),
        (0, 7_000, 7_000, True), (9, 7_000, 7_000, True), (5, 7_000, 5_000, True),
        (9, 7_000, 6_999, False), (1, 1, -1, False),
    ],
)  # fmt: skip
def test_the_shorter_time_to_live_counts(
    own_ms: int, queue_us: int, age_us: int, over: bool
) -> None:
    lifetimes = Lifetimes()
    entry = record(area=pack_column(KEY_GROUPS, b"\x01\x02") + pack_lifetime(own_ms))
    lifetimes.queue_us, lifetimes.now_us = queue_us, read_entry(entry[1]).appended_us + age_us
    assert lifetimes.over(entry) is over


def test_times_to_live_are_looked_at_again_only_where_there_are_any() -> None:
    lifetimes = Lifetimes()
    for area in (b"", pack_column(KEY_GROUPS, bytes((LIFETIME, 1)))):
        assert not lifetimes.over(record(area=area))
        assert not lifetimes.any, "a key group is none, whatever its number"
    lifetimes.over(record(area=pack_lifetime(5)))
    assert lifetimes.any
