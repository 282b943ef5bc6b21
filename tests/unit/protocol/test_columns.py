"""What a batch says of its messages to exchanges."""

from __future__ import annotations

import pytest
import xxhash

from roq.protocol.batch import pack_floor, read_floor
from roq.protocol.columns import (
    COLUMN_MAX,
    KEY_GROUP_COUNT,
    KEY_GROUPS,
    KEYS,
    KEYS_MAX,
    LIFETIME,
    LIFETIME_MS_MAX,
    PRIORITIES,
    key_group,
    key_hash,
    pack_column,
    pack_keys,
    pack_lifetime,
    pack_sent_again,
    pack_tags,
    read_column,
    read_keys,
    read_lifetime,
    read_sent_again,
    read_tags,
    tag_bits,
    value_at,
)


def test_a_key_has_the_same_group_for_ever() -> None:
    assert [key_group(key) for key in ("", "4711", "münchen")] == [29, 187, 115]
    assert key_group(None) == 0
    assert {key_group(str(number)) for number in range(5_000)} == set(range(1, KEY_GROUP_COUNT + 1))


@pytest.mark.parametrize("count", [1, 2, 255, 256, 511, COLUMN_MAX])
def test_columns_come_back_as_they_went(count: int) -> None:
    groups = bytes(index % 7 for index in range(count))
    one = b"\x05" * count
    area = pack_floor(3) + pack_column(KEY_GROUPS, groups) + pack_column(PRIORITIES, one)
    area += pack_tags(tag_bits(["eu"]))
    assert len(area) < 1 << 16
    assert read_column(area, KEY_GROUPS, count) == groups
    assert read_column(area, PRIORITIES, count) == b"\x05"
    assert pack_column(PRIORITIES, one) == pack_column(PRIORITIES, b"\x05")
    assert read_tags(area) == tag_bits(["eu"])
    assert read_floor(area) == 3


@pytest.mark.parametrize("count", [1, 63, 64, 100, KEYS_MAX])
def test_keys_come_back_as_they_went(count: int) -> None:
    hashes = {key_hash(str(number)) for number in range(count)}
    area = pack_column(KEY_GROUPS, b"\x01\x02") + pack_keys(hashes) + pack_lifetime(7)
    assert set(read_keys(area)) == hashes
    assert len(read_keys(area)) == len(hashes)
    assert (read_lifetime(area), read_column(area, KEY_GROUPS, 2)) == (7, b"\x01\x02")


def test_too_many_keys_are_not_said_and_what_is_damaged_says_nothing() -> None:
    assert pack_keys(set(range(KEYS_MAX + 1))) == pack_keys(set()) == b""
    assert read_keys(b"") == read_keys(pack_keys({7})[:-1]) == ()
    assert read_keys(bytes((KEYS, 3, 1, 2, 3))) == ()
    columns = 2 * pack_column(KEY_GROUPS, bytes(range(250)) * (COLUMN_MAX // 250))
    area = columns + pack_keys(set(range(KEYS_MAX))) + pack_tags(1) + pack_lifetime(1)
    assert len(pack_floor(1) + area) < 1 << 16, "all of it fits into an extension area"


def test_what_no_message_has_takes_nothing() -> None:
    assert pack_column(KEY_GROUPS, bytes(9)) == pack_tags(0) == b""
    assert read_column(b"", KEY_GROUPS, 3) == b"\x00"
    assert read_tags(b"") == 0
    assert pack_column(PRIORITIES, b"\x02" * 500) == bytes((PRIORITIES, 1, 2))


@pytest.mark.parametrize(
    "area", [b"\x02\x03\x01\x01", b"\x02\x02\x01\x01", b"\x02", b"\x02\x04\x01\x01\x01\x01"]
)
def test_a_column_that_does_not_fit_is_none(area: bytes) -> None:
    assert read_column(area, KEY_GROUPS, 3) == b"\x00"


@pytest.mark.parametrize("area", [b"", pack_column(KEY_GROUPS, b"\x07")])
def test_a_column_costs_no_more_than_was_sent(area: bytes) -> None:
    column = read_column(area, KEY_GROUPS, 1 << 20)
    assert len(column) == 1
    assert value_at(column, 0) == value_at(column, 1_000_000) == (7 if area else 0)


def test_all_tags_of_a_batch_are_found_in_its_bits() -> None:
    bits = tag_bits(["eu", "us"])
    assert bits & tag_bits(["eu"])
    assert bits & tag_bits(["us"])
    assert tag_bits([]) == 0


def test_a_time_to_live_is_eight_bytes_or_none() -> None:
    assert pack_lifetime(0) == b""
    for milliseconds in (1, 500, LIFETIME_MS_MAX):
        assert read_lifetime(pack_column(KEY_GROUPS, b"\1\2") + pack_lifetime(milliseconds)) == (
            milliseconds
        )
    assert read_lifetime(b"") == 0
    assert read_lifetime(pack_lifetime(LIFETIME_MS_MAX + 1)) == 0
    assert read_lifetime(bytes((LIFETIME, 4)) + b"\1" * 4) == 0
    assert read_lifetime(pack_lifetime(7)[:-1]) == 0


def test_the_hash_of_a_key_has_32_bits_and_stays() -> None:
    assert key_hash("order-17") == xxhash.xxh3_64_intdigest(b"order-17") & 0xFFFFFFFF


def test_that_requests_were_sent_once_more_takes_two_bytes() -> None:
    assert len(pack_sent_again()) == 2
    for area, says in (
        (pack_column(PRIORITIES, b"\1\2") + pack_sent_again(), True),
        (pack_column(PRIORITIES, b"\1\2"), False),
        (pack_column(PRIORITIES, pack_sent_again()), False),
        (pack_sent_again() + pack_column(PRIORITIES, b"\1\2"), False),
        (b"\3" + pack_sent_again(), False),
    ):
        assert read_sent_again(b"head" + area + b"body", 4, 4 + len(area)) is says
