"""The bytes of segment heads and records: what is not whole is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from xxhash import xxh3_64_intdigest

from roq.log.records import (
    ALIGN,
    FORMAT,
    HEAD_BYTES,
    RECORD_BYTES,
    RecordKind,
    SegmentHead,
    claimed_bytes,
    other_format,
    pack_head,
    pack_record,
    read_head,
    read_record,
    record_bytes,
)
from roq.protocol.entry import NONE, EntryKind, pack_entry

HEAD = SegmentHead(b"q" * 16, 3, 7, 9, 1 << 40, 1_234, left_out=(5 << 32) + 6)
FRAME = pack_entry(EntryKind.ENTRY, 3, b"q" * 16, 7, 42, NONE, 5)


def record(body: bytes, topic: bytes = b"eu.be", kind: RecordKind = RecordKind.BATCH) -> bytes:
    before, padding = pack_record(kind, topic, FRAME, body, len(body), 40)
    return before + body + padding


def flips(data: bytes) -> list[bytes]:
    """The same bytes, with one bit of each turned."""
    return [data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in range(len(data))]


def test_a_head_says_what_it_was_given() -> None:
    packed = pack_head(HEAD)
    assert len(packed) == HEAD_BYTES
    assert read_head(packed + b"records") == HEAD
    assert read_head(pack_head(replace(HEAD, left_out=0))) == replace(HEAD, left_out=0)


def test_a_head_that_is_not_whole_is_none() -> None:
    packed = pack_head(HEAD)
    assert [each for each in flips(packed) if read_head(each) is not None] == []
    assert read_head(packed[:-1]) is None


def test_a_head_of_another_format_is_named() -> None:
    packed = bytearray(pack_head(HEAD))
    assert other_format(bytes(packed)) is None
    packed[4] = FORMAT + 1
    assert other_format(bytes(packed)) is None, "a bit has changed, and the sum says so"
    packed[64:] = xxh3_64_intdigest(packed[:64]).to_bytes(8, "little")
    assert (other_format(bytes(packed)), read_head(bytes(packed))) == (FORMAT + 1, None)
    assert other_format(b"X" + packed[1:]) is None
    assert other_format(bytes(packed[:-1])) is None


@pytest.mark.parametrize("size", range(2 * ALIGN))
@pytest.mark.parametrize("kind", RecordKind)
def test_a_record_says_what_it_was_given_wherever_it_begins(kind: RecordKind, size: int) -> None:
    body, topic = bytes(range(size)), b"t" * (size % 3)
    packed = record(body, topic, kind)
    assert len(packed) == record_bytes(topic, size)
    assert len(packed) % ALIGN == 0
    found = read_record(b"\0" * ALIGN + packed + packed, ALIGN)
    assert found is not None
    assert (found.at, found.size, found.kind) == (ALIGN, len(packed), kind)
    assert (found.offset, found.synced) == (42, 40)
    assert (found.topic, found.frame, found.body) == (topic, FRAME, body)
    assert claimed_bytes(packed, 0) == len(packed)


def test_a_record_that_is_torn_or_of_which_a_bit_has_flipped_is_none() -> None:
    packed = record(b"some body")
    assert [each for each in flips(packed) if read_record(each) is not None] == []
    assert [end for end in range(len(packed)) if read_record(packed[:end]) is not None] == []


def test_what_no_record_can_claim_is_no_size() -> None:
    packed = record(b"some body")
    for size in (0, RECORD_BYTES - ALIGN, len(packed) + 1):
        assert claimed_bytes(size.to_bytes(4, "little") + packed[4:], 0) == 0
    assert claimed_bytes(packed[:6] + b"\x09" + packed[7:], 0) == 0, "no such kind"
    assert claimed_bytes(packed[: RECORD_BYTES - 1], 0) == 0
