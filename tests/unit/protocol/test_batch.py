from itertools import product
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.errors import LocalProtocolError, RemoteProtocolError
from roq.model import LogId, PublisherId
from roq.protocol.batch import (
    HEADER_BYTES,
    LOGS_MAX,
    SCRATCH_BYTES_MAX,
    SEQUENCE_MAX,
    Kind,
    pack,
    pack_empty,
    pack_floor,
    pack_logs,
    read_floor,
    read_header,
    read_logs,
    read_payloads,
    renumber,
)

WHO = PublisherId(b"p" * 16)


def data(payloads: list[bytes], first: int = 0) -> bytes:
    return pack(payloads, publisher=WHO, epoch=3, link_number=9, first_sequence=first, created_us=7)


@given(
    st.lists(st.binary(max_size=50), min_size=1, max_size=20),
    st.integers(0, SEQUENCE_MAX - 20),
)
def test_what_is_packed_is_read_back(payloads: list[bytes], first: int) -> None:
    batch = data(payloads, first)
    header = read_header(batch)
    assert read_payloads(batch, header) == payloads
    assert (header.publisher, header.epoch, header.link_number) == (WHO, 3, 9)
    assert header.next_sequence == first + len(payloads)


@pytest.mark.parametrize("kind", [Kind.VOID, Kind.MARKER, Kind.FENCE])
def test_kinds_without_a_body_are_one_header_long(kind: Kind) -> None:
    count = 4 if kind is Kind.VOID else 0
    batch = pack_empty(kind, publisher=WHO, epoch=1, link_number=2, first_sequence=5, count=count)
    assert len(batch) == HEADER_BYTES
    header = read_header(batch)
    assert (header.kind, header.count, header.first_sequence) == (kind, count, 5)


def test_a_data_batch_cannot_be_empty_by_mistake() -> None:
    with pytest.raises(LocalProtocolError):
        pack_empty(Kind.DATA, publisher=WHO, epoch=1, link_number=1, first_sequence=0)


def test_renumbering_changes_link_and_epoch_alone() -> None:
    before = data([b"a", b"bc"], first=11)
    after = renumber(before, epoch=8, link_number=1)
    header = read_header(after)
    assert (header.epoch, header.link_number, header.first_sequence) == (8, 1, 11)
    assert read_payloads(after, header) == [b"a", b"bc"]
    assert renumber(after, epoch=3, link_number=9) == before


@given(st.binary(max_size=200))
def test_garbage_raises_a_protocol_error_and_nothing_else(garbage: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_header(garbage)


@given(st.integers(0, 120), st.integers(0, 255))
def test_a_flipped_byte_is_an_error_or_changes_no_payload(at: int, value: int) -> None:
    payloads = [b"abc"] * 20
    batch = bytearray(data(payloads))
    batch[at % len(batch)] = value
    try:
        header = read_header(bytes(batch))
        assert read_payloads(bytes(batch), header) == payloads
    except RemoteProtocolError:
        pass


def test_a_truncated_body_is_refused() -> None:
    batch = data([b"abc"] * 5)
    with pytest.raises(RemoteProtocolError, match="checksum"):
        read_payloads(batch[:-1], read_header(batch[:-1]))


def test_a_body_with_more_or_fewer_messages_than_the_header_says_is_refused() -> None:
    batch = data([b"a", b"b"])
    for count in (1, 3):
        wrong = batch[:8] + count.to_bytes(4, "little") + batch[12:]
        with pytest.raises(RemoteProtocolError, match=f"batch of {count} messages holds 2"):
            read_payloads(wrong, read_header(wrong))


def test_sequences_beyond_the_last_one_that_there_is_are_refused() -> None:
    assert read_header(data([b"a"], first=SEQUENCE_MAX - 1)).next_sequence == SEQUENCE_MAX
    with pytest.raises(RemoteProtocolError, match="from sequence"):
        read_header(data([b"a"], first=SEQUENCE_MAX))


def test_another_version_is_named_in_the_refusal() -> None:
    batch = bytearray(data([b"a"]))
    batch[2] = 9
    with pytest.raises(RemoteProtocolError, match="format 9"):
        read_header(bytes(batch))


def test_a_floor_comes_out_as_it_went_in() -> None:
    assert read_floor(pack_floor(2**63 - 1)) == 2**63 - 1


def test_kinds_that_are_not_known_are_skipped() -> None:
    assert read_floor(bytes([9, 3, 1, 2, 3]) + pack_floor(7)) == 7


@pytest.mark.parametrize("area", [b"", b"\x01", b"\x01\x08abc", b"\x01\x02ab", b"\x09\xff"])
def test_an_area_without_a_whole_floor_has_none(area: bytes) -> None:
    assert read_floor(area) is None


def test_a_batch_with_extensions_is_read_like_any_other() -> None:
    batch = pack(
        [b"a", b"b"],
        publisher=PublisherId(b"p" * 16),
        epoch=1,
        link_number=2,
        first_sequence=3,
        created_us=4,
        extensions=pack_floor(3),
    )
    header = read_header(batch)
    assert read_payloads(batch, header) == [b"a", b"b"]
    assert read_floor(batch[HEADER_BYTES : HEADER_BYTES + header.ext_bytes]) == 3


def test_a_fence_says_where_its_publisher_was_before() -> None:
    logs = [LogId(2, 1 << 35), LogId(3, 4)]
    for kind in (Kind.FENCE, Kind.MARKER):
        data = pack_empty(
            kind, publisher=PublisherId(bytes(16)), epoch=2, link_number=0, first_sequence=7,
            extensions=pack_logs(logs),
        )  # fmt: skip
        assert read_header(data).first_sequence == 7
        assert read_logs(data[HEADER_BYTES:]) == logs
        for damaged in (data[:-1], data + b"x"):
            with pytest.raises(RemoteProtocolError):
                read_header(damaged)
    void = pack_empty(
        Kind.VOID, publisher=PublisherId(bytes(16)), epoch=2, link_number=1, first_sequence=7,
        count=1, extensions=pack_logs(logs),
    )  # fmt: skip
    with pytest.raises(RemoteProtocolError):
        read_header(void)


def test_no_more_logs_are_named_than_fit_and_damaged_names_are_none() -> None:
    assert pack_logs([]) == b""
    area = pack_logs(LogId(number, 1) for number in range(1, 99))
    assert len(read_logs(area)) == LOGS_MAX
    for damaged in (b"", b"\x05", area[:-1], area + b"x", b"\x01" + area[1:], b"\x05\x01x"):
        assert read_logs(damaged) == []


def test_memory_that_is_used_again_is_given_back_after_a_large_batch() -> None:
    scratch = bytearray(HEADER_BYTES)
    for size in (SCRATCH_BYTES_MAX, 10):
        made = pack(
            [bytes(size)], publisher=PublisherId(bytes(16)), epoch=1, link_number=2,
            first_sequence=3, created_us=4, scratch=scratch,
        )  # fmt: skip
        assert len(made) > HEADER_BYTES + size
        assert getsizeof(scratch) < 1_000


def test_memory_that_is_used_again_leaves_nothing_of_what_was_in_it() -> None:
    scratch = bytearray(HEADER_BYTES)
    floors = (pack_floor(7), b"", pack_floor(9) * 3)
    for payloads, area in product(([b"long" * 100] * 9, [b"x"], [b""]), floors):
        own, again = (
            pack(
                payloads, publisher=PublisherId(bytes(16)), epoch=1, link_number=2,
                first_sequence=3, created_us=4, extensions=area, scratch=where,
            )
            for where in (None, scratch)
        )  # fmt: skip
        assert own == again
