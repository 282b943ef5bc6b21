"""What a message carries beside its payload comes back as it was given, or is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.errors import InvalidName, RemoteProtocolError
from roq.protocol.attributes import (
    KEY_BYTES_MAX,
    NO_ATTRIBUTES,
    PROPERTIES_MAX,
    TAGS_MAX,
    VALUE_BYTES_MAX,
    Attributes,
    BatchAttributes,
    attributes_of,
    pack_attributes,
    packed_size,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
NAMES = TEXT.filter(lambda name: name and not name.startswith("roq."))
GIVEN = st.builds(
    attributes_of,
    st.none() | TEXT,
    st.lists(TEXT, max_size=5),
    st.dictionaries(NAMES, TEXT, max_size=5),
)


@given(
    st.dictionaries(st.integers(0, 500), GIVEN.filter(bool), max_size=20), st.integers(0, 1 << 62)
)
def test_what_was_given_is_found_by_its_sequence(messages: dict, first: int) -> None:
    packed = pack_attributes(messages)
    assert len(packed) <= sum(map(packed_size, messages.values())) + 8
    batch = BatchAttributes(packed, first, 501)
    for index in range(502):
        assert batch.of(first + index) == messages.get(index, NO_ATTRIBUTES)


def test_nothing_given_is_nothing_sent() -> None:
    assert attributes_of(None, None, None) is None
    assert attributes_of(None, [], {}) is None
    assert attributes_of("", None, None) == Attributes("")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("k" * (KEY_BYTES_MAX + 1), None, None), "a key has at most 1024 bytes"),
        (("\ud800", None, None), "no valid text"),
        ((None, ["t"] * (TAGS_MAX + 1), None), "at most 32 tags"),
        ((None, ["t" * 256], None), "a tag has at most 255 bytes"),
        ((None, None, {str(n): "" for n in range(PROPERTIES_MAX + 1)}), "at most 128 properties"),
        ((None, None, {"n" * 256: ""}), "the name of a property has at most 255"),
        ((None, None, {"a": "x" * (VALUE_BYTES_MAX + 1)}), "property 'a' has at most 32768"),
        ((None, None, {"roq.due": "1"}), "are RoQ's"),
        ((None, None, {"": "1"}), "has a name"),
    ],
)
def test_what_is_too_much_is_refused_and_named(given: tuple, why: str) -> None:
    with pytest.raises(InvalidName, match=why):
        attributes_of(*given)


@pytest.mark.parametrize(
    "given",
    [
        (4711, None, None),
        (None, [b"t"], None),
        (None, "paid", None),
        (None, None, {"a": 1}),
        (None, None, ["ab"]),
        (None, None, "abc"),
    ],
)
def test_what_is_no_text_is_refused(given: tuple) -> None:
    with pytest.raises(TypeError, match="text"):
        attributes_of(*given)


@pytest.mark.parametrize(
    "packed",
    [b"", b"\x80\x00", b"\x81\x00", b"\x91\x00", b"\xc0", b"\x81\x00\x93\x01\x90\x80",
     b"\x81\xa1x\x90", b"\x91" * 100_000, b"\x81\x00\x93\xa1\xff\x90\x80", b"\xdf\xff\xff\xff\xff"],
)  # fmt: skip
def test_garbage_is_one_error_when_it_is_asked_for(packed: bytes) -> None:
    batch = BatchAttributes(packed, 0, 9)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="attributes of a batch cannot be read"):
            batch.of(0)


def test_more_entries_than_messages_are_refused_before_they_are_made() -> None:
    packed = pack_attributes({index: Attributes() for index in range(70_000)})
    for count in (1, 15, 69_999):
        with pytest.raises(RemoteProtocolError, match="more than there are messages"):
            BatchAttributes(packed, 0, count).of(0)
    assert BatchAttributes(packed, 0, 70_000).of(7) == NO_ATTRIBUTES
    for few in (3, 16, 300):
        packed = pack_attributes({index: Attributes("k") for index in range(few)})
        assert BatchAttributes(packed, 0, few).of(few - 1).key == "k"
        with pytest.raises(RemoteProtocolError, match="more than there are messages"):
            BatchAttributes(packed, 0, few - 1).of(0)
