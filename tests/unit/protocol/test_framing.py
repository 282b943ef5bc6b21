"""One frame holds the parts of a message, whatever they contain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.protocol.channel import (
    ACK,
    END_TOPIC,
    FETCHED_ENTRY,
    HEADS,
    NUMBER,
    PRESENCE_TOPIC,
    READY,
)
from roq.protocol.entry import EntryKind, pack_entry
from roq.protocol.framing import (
    Answers,
    join_answer,
    join_large,
    join_live,
    split_answer,
    split_live,
)

TOPICS = st.text(max_size=40).map(str.encode)
NONCES = st.binary(min_size=16, max_size=16)


def entry(kind: EntryKind = EntryKind.ENTRY) -> bytes:
    return pack_entry(kind, 0xFFFFFFFF, b"\xff" * 16, 255, 0xFFFF, 0xFF, 0xFF00FF)


@given(topic=TOPICS, batch=st.binary(min_size=1))
def test_a_batch_of_the_fan_out_is_found_again(topic: bytes, batch: bytes) -> None:
    assert split_live(join_live(topic, entry(), batch)) == [topic, entry(), batch]
    assert split_live(join_live(topic, entry(), memoryview(batch))) == [topic, entry(), batch]


@given(nonce=NONCES)
def test_entries_without_a_batch_are_found_again(nonce: bytes) -> None:
    for topic in (b"", b"t", END_TOPIC, PRESENCE_TOPIC + nonce):
        end = entry(EntryKind.END)
        assert split_live(join_live(topic, end)) == [topic, end]


@given(number=st.integers(0, (1 << 64) - 1), topic=TOPICS, batch=st.binary(min_size=1))
def test_what_a_fetch_brings_is_found_again(number: int, topic: bytes, batch: bytes) -> None:
    parts = [FETCHED_ENTRY, NUMBER.pack(number), topic, entry()]
    assert split_answer(join_answer(parts, batch)) == [*parts, batch]


@given(body=st.binary())
def test_a_letter_and_its_body_are_found_again(body: bytes) -> None:
    for letter in (ACK, READY):
        assert split_answer(join_answer((letter, body))) == [letter, body]


@given(st.binary() | st.binary().map(b"\xff".__add__) | st.binary().map(FETCHED_ENTRY.__add__))
def test_of_garbage_nothing_is_lost_and_nothing_raises(frame: bytes) -> None:
    for parts in (split_live(frame), split_answer(frame)):
        assert sum(map(len, parts)) in {len(frame), len(frame) - 1}


@pytest.mark.parametrize("prefix", [b"", b"o", b"orders", b"orders."])
def test_a_prefix_matches_a_frame_as_it_matches_its_topic(prefix: bytes) -> None:
    for topic in (b"", b"o", b"order", b"orders", b"orders.eu", b"oR", b"R", b"RX"):
        frame = join_live(topic, entry(), b"batch")
        assert frame.startswith(prefix) is topic.startswith(prefix), topic
    assert not join_live(b"", entry()).startswith((END_TOPIC, PRESENCE_TOPIC))


@given(number=st.integers(0, (1 << 64) - 1), topic=TOPICS, batch=st.binary().map(b"RQ".__add__))
def test_a_large_batch_is_put_to_its_entry(number: int, topic: bytes, batch: bytes) -> None:
    parts = [FETCHED_ENTRY, NUMBER.pack(number), topic, entry()]
    answers = Answers()
    assert answers.take(join_large(parts)) is None
    assert answers.take(batch) == [*parts, batch]
    assert answers.take(batch) == [batch]


def test_an_entry_whose_batch_did_not_come_is_dropped() -> None:
    parts = [FETCHED_ENTRY, NUMBER.pack(7), b"t", entry()]
    answers = Answers()
    assert answers.take(join_large(parts)) is None
    assert answers.take(join_answer((ACK, NUMBER.pack(1)))) == [ACK, NUMBER.pack(1)]
    assert answers.take(b"RQ a batch") == [b"RQ a batch"]
    assert answers.take(join_large(parts)) is None
    assert answers.take(join_large(parts)) is None
    assert answers.take(b"RQ a batch") == [*parts, b"RQ a batch"]


@pytest.mark.parametrize("tag", [b"", b"\xff\x00d\xff"])
def test_of_several_readers_each_gets_its_own(tag: bytes) -> None:
    answers = Answers(len(tag))
    parts = [FETCHED_ENTRY + tag, NUMBER.pack(7), b"t", entry()]
    whole = [FETCHED_ENTRY, *parts[1:]]
    assert answers.take(join_answer((HEADS + tag, b"document"))) == [HEADS, b"document"]
    assert answers.tag == tag
    assert answers.take(join_answer(parts, b"RQ")) == [*whole, b"RQ"]
    assert answers.tag == tag
    assert answers.take(join_large(parts)) is None
    assert answers.take(b"RQ a batch") == [*whole, b"RQ a batch"]
    assert answers.tag == tag


def test_between_an_entry_and_its_batch_another_reader_may_be_answered() -> None:
    answers = Answers(4)
    one = [FETCHED_ENTRY + b"one!", NUMBER.pack(1), b"t", entry()]
    two = [FETCHED_ENTRY + b"two!", NUMBER.pack(1), b"t", entry()]
    assert answers.take(join_large(one)) is None
    assert answers.take(join_answer((HEADS + b"two!", b"document"))) == [HEADS, b"document"]
    assert answers.tag == b"two!"
    assert answers.take(join_large(one)) is None
    assert answers.take(join_large(two)) is None
    assert answers.take(b"RQ two") == [FETCHED_ENTRY, *two[1:], b"RQ two"]
    assert answers.tag == b"two!"
    assert answers.take(join_large(one)) is None
    assert answers.take(b"RQ one") == [FETCHED_ENTRY, *one[1:], b"RQ one"]
    assert answers.tag == b"one!"
