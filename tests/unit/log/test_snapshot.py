"""What a log writes down of itself."""

from __future__ import annotations

import msgspec
import pytest

from roq.errors import RemoteProtocolError
from roq.log.snapshot import FORMAT, LogSnapshot, decode_snapshot, encode_snapshot

SNAPSHOT = LogSnapshot(
    topics=[(b"eu.be", 7), (b"us", 9)], forgotten_below=3, exchange=b"what an exchange knows"
)


def test_it_is_read_as_it_was_written() -> None:
    assert decode_snapshot(encode_snapshot(SNAPSHOT)) == SNAPSHOT


def test_one_of_a_newer_format_is_named() -> None:
    newer = encode_snapshot(msgspec.structs.replace(SNAPSHOT, format=FORMAT + 1))
    with pytest.raises(RemoteProtocolError, match=f"format {FORMAT + 1}.* reads format {FORMAT}"):
        decode_snapshot(newer)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", encode_snapshot(SNAPSHOT)[:-1]])
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="no snapshot of a log"):
        decode_snapshot(data)


def test_offsets_that_cannot_be_are_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_snapshot(encode_snapshot(msgspec.structs.replace(SNAPSHOT, forgotten_below=-1)))
