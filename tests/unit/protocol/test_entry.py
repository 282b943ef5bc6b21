import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.errors import RemoteProtocolError
from roq.number_ranges import NUMBER_MAX, OFFSET_MAX
from roq.protocol.entry import ENTRY_BYTES, Entry, EntryKind, pack_entry, read_entry

numbers = st.integers(0, NUMBER_MAX)
offsets = st.integers(0, OFFSET_MAX)


@given(
    st.sampled_from(EntryKind), st.integers(0, 2**32 - 1), st.binary(min_size=16, max_size=16),
    numbers, offsets, offsets, numbers,
)  # fmt: skip
def test_what_is_packed_is_read_back(
    kind: EntryKind, exchange: int, queue: bytes, epoch: int, offset: int, previous: int, at: int
) -> None:
    frame = pack_entry(kind, exchange, queue, epoch, offset, previous, at)
    assert len(frame) == ENTRY_BYTES
    assert read_entry(frame) == Entry(kind, exchange, queue, epoch, offset, previous, at)


@given(st.binary(max_size=ENTRY_BYTES + 10))
def test_garbage_raises_a_protocol_error_and_nothing_else(garbage: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_entry(garbage)


def test_an_unknown_kind_is_refused() -> None:
    frame = bytearray(pack_entry(0, 1, b"q" * 16, 1, 2, 3, 4))
    frame[3] = 77
    with pytest.raises(RemoteProtocolError):
        read_entry(bytes(frame))


@pytest.mark.parametrize(
    ("generation", "offset", "previous", "at"),
    [(1 << 63, 0, 0, 0), (0, OFFSET_MAX + 1, 0, 0), (0, 0, OFFSET_MAX + 1, 0), (0, 0, 0, 1 << 63)],
)
def test_what_is_out_of_range_is_refused(
    generation: int, offset: int, previous: int, at: int
) -> None:
    frame = pack_entry(EntryKind.ENTRY, 1, b"q" * 16, generation, offset, previous, at)
    with pytest.raises(RemoteProtocolError, match="out of range"):
        read_entry(frame)
