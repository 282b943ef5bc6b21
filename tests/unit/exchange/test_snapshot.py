"""What an exchange writes down of who publishes and consumes; test_late_log.py uses it."""

from __future__ import annotations

import msgspec
import pytest

from roq.errors import RemoteProtocolError
from roq.exchange.snapshot import FORMAT, PublisherState, decode_snapshot, encode_snapshot

STATE = PublisherState(
    publisher=b"p" * 16, epoch=4, expected=8, left=True, addresses=("tcp://a:1",),
    streams=[(b"t", 12)], incarnation=2, places=[(1, 5, 7)],
)  # fmt: skip


def test_it_is_read_as_it_was_written() -> None:
    written = encode_snapshot([STATE], later=b"later", ended=b"ended")
    assert decode_snapshot(written) == ([STATE], [], b"later", b"ended")
    assert decode_snapshot(encode_snapshot([])) == ([], [], b"", b"")


def test_one_of_a_newer_format_is_named() -> None:
    newer = msgspec.msgpack.encode({"format": FORMAT + 1, "publishers": []})
    with pytest.raises(RemoteProtocolError, match=f"format {FORMAT + 1}.* reads format {FORMAT}"):
        decode_snapshot(newer)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", encode_snapshot([STATE])[:-1]])
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="no snapshot of an exchange"):
        decode_snapshot(data)


@pytest.mark.parametrize("changes", [{"publisher": b"p"}, {"epoch": -2}, {"expected": 0}])
def test_a_publisher_that_cannot_be_one_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_snapshot(encode_snapshot([msgspec.structs.replace(STATE, **changes)]))
