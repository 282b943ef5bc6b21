"""Delayed messages as they travel."""

import pytest

from roq.errors import RemoteProtocolError
from roq.protocol.batch import pack_floor, read_floor
from roq.protocol.delayed import (
    Delayed,
    decode_delayed,
    encode_delayed,
    pack_settled,
    read_settled,
)

MESSAGE = Delayed(5, b"t", b"payload", b"i" * 8)


def test_a_message_comes_back_as_it_was() -> None:
    assert decode_delayed(encode_delayed(MESSAGE)) == MESSAGE


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", encode_delayed(MESSAGE)[:-12], encode_delayed(Delayed(5, b"t", b"", b"short")),
     encode_delayed(Delayed(-1, b"t", b"", b"i" * 8)),
     encode_delayed(Delayed(5, b"t" * 256, b"", b"i" * 8))],
)  # fmt: skip
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_delayed(data)


@pytest.mark.parametrize("count", [0, 1, 21, 22, 500])
def test_places_come_back_beside_other_extensions(count: int) -> None:
    places = [(offset * 3, offset % 5) for offset in range(count)]
    area = pack_floor(7) + pack_settled(places)
    assert read_settled(area) == places
    assert read_floor(area) == 7


def test_a_damaged_area_ends_it() -> None:
    area = pack_settled([(1, 2), (3, 4)])
    assert read_settled(area[:-1]) == []
    assert read_settled(area + b"\x10") == [(1, 2), (3, 4)]
