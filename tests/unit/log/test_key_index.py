"""The index of the keys of a segment: what it finds, and that nothing false is taken for one."""

from __future__ import annotations

import random

import pytest
from keyed_batch import batch_of
from memory_files import MemoryFiles

from roq.log.files import index_name, keys_name, segment_name
from roq.log.index import SegmentIndex
from roq.log.key_index import (
    ENTRIES_MAX,
    KeyIndex,
    hashes_in,
    is_whole,
    keys_in,
    look_up,
    make_keys,
)
from roq.log.records import HEAD_BYTES, RecordKind, pack_record
from roq.log.segment_reader import Segment
from roq.model import PublisherId
from roq.protocol.batch import HEADER_BYTES, Kind, pack_empty, read_header
from roq.protocol.columns import KEYS_MAX, key_hash, read_keys
from roq.protocol.delayed import DELAYED_TOPIC
from roq.protocol.entry import EntryKind, pack_entry

BASE = 1_000


def segment_of(batches: list[bytes], topic: bytes = b"t") -> tuple[MemoryFiles, Segment]:
    """A complete segment of these, with its index."""
    files, name = MemoryFiles(), segment_name(BASE, 1)
    index, at = SegmentIndex(BASE), HEAD_BYTES
    files.create(name)
    for offset, batch in enumerate(batches, BASE):
        frame = pack_entry(EntryKind.ENTRY, 1, b"q" * 16, 1, offset, 0, 7)
        before, behind = pack_record(RecordKind.BATCH, topic, frame, batch, len(batch), 0)
        files.write(name, at, [before, batch, behind])
        index.add(topic, at)
        at += len(before) + len(batch) + len(behind)
    files.create(index_name(name))
    files.write(index_name(name), 0, [index.pack()])
    return files, Segment(name, BASE, BASE + len(batches), at)


def indexed(files: MemoryFiles, segment: Segment) -> bytes:
    made = make_keys(files, segment, lambda: None)
    assert made is not None
    files.create(keys_name(segment.name))
    files.write(keys_name(segment.name), 0, [made])
    return made


@pytest.mark.parametrize("messages", [0, 1, 7, 200, 3_000])
def test_every_batch_of_a_key_is_found_and_few_others(messages: int) -> None:
    chance = random.Random(messages)
    keys = [f"k{chance.randrange(2_000)}" for _ in range(messages)]
    batches = [keys[at : at + 10] for at in range(0, messages, 10)] or [[]]
    files, segment = segment_of(
        [batch_of(list(each)) if each else batch_of([None]) for each in batches]
    )
    indexed(files, segment)
    wrong = 0
    for key in [*set(keys), *(f"stranger-{number}" for number in range(1_000))]:
        found = look_up(files, segment, key_hash(key))
        assert found is not None
        assert found == sorted(set(found))
        true = {BASE + at for at, each in enumerate(batches) if key in each}
        assert true <= set(found)
        wrong += len(found) - len(true)
    assert wrong <= 25  # of 3,000 questions


def test_a_key_takes_four_bytes_for_each_batch_that_has_it() -> None:
    files, segment = segment_of(
        [batch_of([f"{at}-{n}" for n in range(100)] * 2) for at in range(100)]
    )
    assert len(indexed(files, segment)) <= 1.1 * 4 * 10_000


def test_what_has_no_keys_costs_a_head() -> None:
    files, segment = segment_of([batch_of([None, None]), b"no batch at all", batch_of([None])])
    assert len(indexed(files, segment)) <= 40
    assert look_up(files, segment, key_hash("k")) == []


def test_what_nobody_is_shown_and_what_cannot_be_read_is_not_in_it() -> None:
    files, segment = segment_of([batch_of(["k"])], DELAYED_TOPIC)
    indexed(files, segment)
    assert look_up(files, segment, key_hash("k")) == []
    torn = batch_of(["k"])[: HEADER_BYTES + 4]
    files, segment = segment_of([torn, batch_of(["k"]), batch_of(["k"])])
    data = bytearray(files.read(segment.name, 0, segment.size))
    data[-20] ^= 1  # the last record
    files.write(segment.name, 0, [bytes(data)])
    indexed(files, segment)
    assert look_up(files, segment, key_hash("k")) == [BASE + 1]


def test_large_records_are_read_and_others_have_their_turn_meanwhile() -> None:
    files, segment = segment_of([batch_of(["k"], b"x" * (1 << 19)) for _ in range(100)])
    turns: list[None] = []
    made = make_keys(files, segment, lambda: turns.append(None))
    assert made is not None
    assert len(turns) >= 3
    files.create(keys_name(segment.name))
    files.write(keys_name(segment.name), 0, [made])
    assert look_up(files, segment, key_hash("k")) == list(range(BASE, BASE + 100))


def test_a_segment_with_too_many_entries_has_none() -> None:
    segment = Segment(segment_name(BASE, 1), BASE, BASE + ENTRIES_MAX + 1, 100)
    assert make_keys(MemoryFiles(), segment, lambda: None) is None


@pytest.mark.parametrize("seed", range(30))
def test_what_is_torn_or_flipped_is_noticed_or_does_not_matter(seed: int) -> None:
    chance = random.Random(seed)
    keys = [f"k{number}" for number in range(400)]
    files, segment = segment_of(
        [batch_of(list(keys[at : at + 20])) for at in range(0, len(keys), 20)]
    )
    whole = indexed(files, segment)
    assert is_whole(whole, BASE, 20)
    assert not is_whole(whole, BASE + 1, 20)
    assert not is_whole(whole, BASE, 21)
    data = bytearray(whole)
    if seed % 2:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    else:
        del data[chance.randrange(len(data)) :]
    assert not is_whole(bytes(data), BASE, 20)
    files.create(keys_name(segment.name))
    files.write(keys_name(segment.name), 0, [bytes(data)])
    unnoticed = 0
    for at, key in enumerate(keys):
        found = look_up(files, segment, key_hash(key))
        assert found is None or BASE + at // 20 in found
        unnoticed += found is not None
    if seed % 2 == 0:
        assert unnoticed < len(keys)


def test_of_another_segment_or_missing_it_is_none() -> None:
    files, segment = segment_of([batch_of(["k"])])
    assert look_up(files, segment, key_hash("k")) is None
    made = indexed(files, segment)
    other = Segment(segment_name(BASE + 5, 1), BASE + 5, BASE + 6, 100)
    files.create(keys_name(other.name))
    files.write(keys_name(other.name), 0, [made])
    assert look_up(files, other, key_hash("k")) is None


def test_places_that_point_behind_the_segment_are_none() -> None:
    index = KeyIndex(BASE, 1)
    index.add([key_hash("k")], BASE + 7)  # as nobody writes it, with right sums
    files, segment = segment_of([batch_of(["k"])])
    files.create(keys_name(segment.name))
    files.write(keys_name(segment.name), 0, [index.pack()])
    assert look_up(files, segment, key_hash("k")) is None


def test_keys_of_a_batch() -> None:
    two = {key_hash("a"), key_hash("b")}
    assert set(hashes_in(batch_of(["a", None, "b", "a"]))) == two
    assert keys_in(batch_of(["a", None, "b", "a"])) == {"a", "b"}
    assert keys_in(batch_of([None])) == keys_in(b"") == keys_in(b"x" * 200) == set()
    assert keys_in(batch_of(["a"])[:-8]) == set()
    assert not any(map(hashes_in, (batch_of([None]), b"", b"x" * 200)))


def test_keys_of_a_batch_that_does_not_say_them() -> None:
    keys = [str(number) for number in range(KEYS_MAX + 1)]
    many = batch_of(keys)
    assert not read_keys(area_of(many))
    assert hashes_in(many) == set(map(key_hash, keys))
    assert not hashes_in(many[:-8]), "which nobody can read"


def test_what_a_batch_says_of_its_keys_is_believed_without_a_look_at_them() -> None:
    batch = batch_of(["a", "b"])
    assert set(hashes_in(batch[:-8])) == {key_hash("a"), key_hash("b")}
    marker = pack_empty(
        Kind.MARKER, publisher=PublisherId(b"p" * 16), epoch=1, link_number=1, first_sequence=0,
        extensions=area_of(batch),
    )  # fmt: skip
    assert not hashes_in(marker)


def area_of(batch: bytes) -> bytes:
    return batch[HEADER_BYTES : HEADER_BYTES + read_header(batch).ext_bytes]
