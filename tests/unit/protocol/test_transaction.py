"""How transactions travel."""

from __future__ import annotations

import pytest

from roq.errors import RemoteProtocolError
from roq.protocol import documents
from roq.protocol.attributes import Attributes, pack_attributes
from roq.protocol.delayed import DELAYED_TOPIC, pack_settled, read_settled
from roq.protocol.transaction import (
    MESSAGES_MAX,
    Half,
    attributes_of_half,
    decode_half,
    encode_half,
    pack_ended,
    read_ended,
    split_document,
)


def test_a_half_message_is_what_it_was() -> None:
    given = Attributes("key", ("tag",))
    half = Half("g", [(b"t", b"1"), (b"", b"")], pack_attributes({1: given}), 2.0, 3, 4.0, "keep")
    assert decode_half(encode_half(half)) == half
    assert attributes_of_half(half) == [Attributes(), given]


@pytest.mark.parametrize(
    "half",
    [Half("", [(b"t", b"1")]), Half("g", []), Half("g", [(b"t", b"1")] * (MESSAGES_MAX + 1)),
     Half("g", [(DELAYED_TOPIC, b"1")]),
     Half("g", [(b"\xfft", b"1")]), Half("g", [(b"\xc3", b"1")]),
     Half("g", [(b"t", b"1")], b"garbage"), Half("g", [(b"t", b"1")], check_seconds=0.0),
     Half("g", [(b"t", b"1")], attempts=0), Half("g", [(b"t", b"1")], patience_seconds=-1.0),
     Half("g", [(b"t", b"1")], otherwise="maybe"), Half("g" * 129, [(b"t", b"1")])],
)  # fmt: skip
def test_what_cannot_be_one_is_refused(half: Half) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_half(encode_half(half))


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x91\xa1g", encode_half(Half("g", []))[:-1]])
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_half(data)


def test_ends_stand_beside_what_they_settle() -> None:
    ended = [(bytes([each]) * 8, each % 2 == 0) for each in range(60)]
    area = pack_ended(ended) + pack_settled([(1, 2)])
    assert read_ended(area) == ended
    assert read_settled(area) == [(1, 2)]
    assert read_ended(area[:5]) == []


def test_a_document_ends_where_it_says() -> None:
    document = documents.encode_raw({"a": 1})
    assert split_document(document + b"rest") == (document, b"rest")
    assert split_document(document) == (document, b"")
    for data in (b"", document[:-1], b"\0" * 9, b"\4\0\0\0"):
        with pytest.raises(RemoteProtocolError):
            split_document(data)
