"""What of a group stands in a log."""

from __future__ import annotations

import pytest

from roq.errors import RemoteProtocolError
from roq.log.group_changes import (
    GroupDelta,
    Mask,
    Tried,
    decode_deltas,
    encode_deltas,
    mask_of,
    stretches_of,
)
from roq.protocol.consuming import GroupSettings


def test_changes_come_back_as_they_were() -> None:
    deltas = [
        GroupDelta(
            "g", 3, [(4, 2)], [Mask(7, b"\x05")], [Tried(8, 0, 1, 2, "no")], GroupSettings(), 9,
            True,
        ),
        GroupDelta("h", 0, deleted=True),
    ]  # fmt: skip
    assert decode_deltas(encode_deltas(deltas)) == deltas


@pytest.mark.parametrize(
    "data", [b"", b"\x91\x91\xa1g", encode_deltas([GroupDelta("g", 1)])[:-1],
             encode_deltas([GroupDelta("", 1)]), encode_deltas([GroupDelta("g", -1)])]
)  # fmt: skip
def test_what_is_no_change_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="no changes of consumer groups"):
        decode_deltas(data)


def test_stretches_and_masks_are_short() -> None:
    assert stretches_of([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 1), (9, 2)]
    assert stretches_of([]) == []
    assert mask_of(4, 0b1_0000_0001) == Mask(4, b"\x01\x01")
