"""Batches of a log as Arrow record batches."""

from __future__ import annotations

import pytest
import xxhash

pa = pytest.importorskip("pyarrow")

from roq.errors import RemoteProtocolError  # noqa: E402
from roq.model import LogId, PublisherId  # noqa: E402
from roq.protocol import batch as wire  # noqa: E402
from roq.protocol.attributes import Attributes, pack_attributes  # noqa: E402
from roq.read.range_reader import LogBatch  # noqa: E402 - after the check that Arrow is there
from roq.spark import rows  # noqa: E402

PUBLISHER = PublisherId(b"p" * 16)


def log_batch(offset: int, payloads: list[bytes], topic: str = "t", first: int = 0) -> LogBatch:
    data = wire.pack(
        payloads, publisher=PUBLISHER, epoch=1, link_number=1, first_sequence=first, created_us=5
    )
    return LogBatch(offset, 7, topic.encode(), wire.read_header(data), data)


def void(offset: int) -> LogBatch:
    data = wire.pack_empty(
        wire.Kind.VOID, publisher=PUBLISHER, epoch=1, link_number=1, first_sequence=3, count=2
    )
    return LogBatch(offset, 7, b"t", wire.read_header(data), data)


def test_each_message_is_a_row_with_its_place() -> None:
    batches = [log_batch(4, [b"a", b""]), log_batch(5, [b"c"], "é", 2)]
    (table,) = rows.record_batches(batches, LogId(3, 65537))
    assert table.schema == rows.SCHEMA
    columns = table.to_pydict()
    assert columns["payload"] == [b"a", b"", b"c"]
    assert columns["topic"] == ["t", "t", "é"]
    assert columns["publisher"] == [PUBLISHER] * 3
    assert columns["sequence"] == [0, 1, 2]
    assert columns["offset"] == [4, 4, 5]
    assert (columns["exchange"], columns["generation"]) == ([3] * 3, [65537] * 3)
    assert [moment.microsecond for moment in columns["timestamp"]] == [5] * 3
    assert [moment.microsecond for moment in columns["appended"]] == [7] * 3


def test_attributes_stand_in_the_row_of_their_message() -> None:
    packed = pack_attributes(
        {1: Attributes("4711", ("paid", "eu"), {"a": "b"}), 2: Attributes("x")}
    )
    data = wire.pack(
        [b"a", b"b", b"c"], publisher=PUBLISHER, epoch=1, link_number=1, first_sequence=7,
        created_us=5, attributes=packed,
    )  # fmt: skip
    given = LogBatch(4, 7, b"t", wire.read_header(data), data)
    (table,) = rows.record_batches([log_batch(3, [b"z"]), given], LogId(3, 65537))
    assert table.schema == rows.SCHEMA
    columns = table.to_pydict()
    assert columns["key"] == [None, None, "4711", "x"]
    assert columns["tags"] == [None, None, ["paid", "eu"], None]
    assert columns["properties"] == [None, None, [("a", "b")], None]


def test_what_was_given_up_is_no_row() -> None:
    assert list(rows.record_batches([void(1)], LogId(1, 1))) == []
    (table,) = rows.record_batches(
        [log_batch(0, [b"a"]), void(1), log_batch(2, [b"b"])], LogId(1, 1)
    )
    assert table.column("offset").to_pylist() == [0, 2]


def test_record_batches_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ROWS_MAX", 10)
    batches = [log_batch(offset, [b"x"] * 4, first=4 * offset) for offset in range(6)]
    tables = list(rows.record_batches(batches, LogId(1, 1)))
    assert [table.num_rows for table in tables] == [12, 12]
    assert [n for table in tables for n in table.column("sequence").to_pylist()] == list(range(24))


def test_a_damaged_batch_is_an_error_and_not_a_row() -> None:
    good = log_batch(0, [b"abc"])
    data = good.data[:-1] + b"?"
    damaged = LogBatch(0, 7, b"t", good.header, data)
    with pytest.raises(RemoteProtocolError, match="checksum"):
        list(rows.record_batches([damaged], LogId(1, 1)))


def test_columns_are_those_that_spark_is_told() -> None:
    told = [part.split()[0] for part in rows.SPARK_SCHEMA.split(", ")]
    assert told == rows.SCHEMA.names


def test_a_time_that_no_calendar_has_is_shown_as_the_last_one() -> None:
    data = wire.pack(
        [b"x"], publisher=PUBLISHER, epoch=1, link_number=1, first_sequence=0,
        created_us=(1 << 64) - 1,
    )  # fmt: skip
    (table,) = rows.record_batches(
        [LogBatch(0, 1, b"t", wire.read_header(data), data)], LogId(1, 1)
    )
    assert table.column("timestamp").to_pylist()[0].year == 9999


def test_a_batch_that_cannot_be_read_is_an_error_that_names_its_offset_or_passed_over() -> None:
    body = b"\x92\x91\xc4\x01x" + b"\x91" * 100_000 + b"\xc0"
    good = log_batch(0, [b"a"])
    checksum = xxhash.xxh3_64_intdigest(body) & 0xFFFFFFFF
    data = good.data[:12] + checksum.to_bytes(4, "little") + good.data[16:64] + body
    poisoned = LogBatch(1, 7, b"t", wire.read_header(data), data)
    batches = [good, poisoned, log_batch(2, [b"c"])]
    with pytest.raises(RemoteProtocolError, match="offset 1 of exchange x3"):
        list(rows.record_batches(batches, LogId(3, 1)))
    told: list[int] = []
    (table,) = rows.record_batches(batches, LogId(3, 1), lambda offset, _text: told.append(offset))
    assert table.column("offset").to_pylist() == [0, 2]
    assert told == [1]


def test_messages_that_are_left_out_are_no_rows() -> None:
    batches = [
        log_batch(4, [b"a", b"b", b"c"]),
        log_batch(5, [b"d"], first=3),
        log_batch(6, [b"e"]),
    ]
    (table,) = rows.record_batches(
        batches, LogId(3, 65537), done=lambda offset: {4: 0b101, 5: -1}.get(offset, 0)
    )
    columns = table.to_pydict()
    assert (columns["payload"], columns["sequence"]) == ([b"b", b"e"], [1, 0])


def test_messages_without_a_tag_that_is_wanted_are_no_rows() -> None:
    packed = pack_attributes({1: Attributes("k", ("paid", "eu")), 2: Attributes("k", ("us",))})
    data = wire.pack(
        [b"a", b"b", b"c"], publisher=PUBLISHER, epoch=1, link_number=1, first_sequence=7,
        created_us=5, attributes=packed,
    )  # fmt: skip
    given = LogBatch(4, 7, b"t", wire.read_header(data), data)
    tags = frozenset({"eu", "de"})
    (table,) = rows.record_batches([log_batch(3, [b"z"]), given], LogId(3, 65537), tags=tags)
    assert table.to_pydict()["payload"] == [b"b"]


SIZES = [[0], [1], [255], [256], [65_535], [65_536], [3, 4], [255, 256]]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("count", [rows.TABLE_ROWS_MIN - 1, rows.TABLE_ROWS_MIN])
def test_payloads_of_one_size_and_of_several_are_the_same_rows(
    sizes: list[int], count: int
) -> None:
    payloads = [bytes([n % 251]) * sizes[n % len(sizes)] for n in range(count)]
    given = [log_batch(0, payloads), log_batch(1, [b"x"]), log_batch(2, payloads[::-1])]
    tables = list(rows.record_batches(given, LogId(1, 1)))
    found = [each for table in tables for each in table.column("payload").to_pylist()]
    assert found == [*payloads, b"x", *payloads[::-1]]
    for table in tables:
        table.validate(full=True)


def test_more_payloads_than_two_bytes_can_count_are_rows_too() -> None:
    payloads = [bytes([n % 251]) for n in range(1 << 16)]
    (table,) = rows.record_batches([log_batch(0, payloads)], LogId(1, 1))
    assert table.column("payload").to_pylist() == payloads


@pytest.mark.parametrize("at", [0, 1, 4, 5, -2, -1])
def test_a_body_that_only_looks_like_payloads_of_one_size_is_refused(at: int) -> None:
    whole = log_batch(0, [b""] * 200)
    broken = bytearray(whole.data)
    broken[(wire.HEADER_BYTES if at >= 0 else 0) + at] ^= 0x40
    checksum = xxhash.xxh3_64_intdigest(broken[wire.HEADER_BYTES :]) & 0xFFFFFFFF
    broken[12:16] = checksum.to_bytes(4, "little")
    given = LogBatch(0, 7, b"t", wire.read_header(broken), bytes(broken))
    with pytest.raises(RemoteProtocolError, match="offset 0"):
        list(rows.record_batches([given], LogId(1, 1)))
