"""The positions of all streams: paged, capped, and longer-lived than links."""

from roq.log.streams import StreamTable
from roq.model import PublisherId

A, B = PublisherId(b"a" * 16), PublisherId(b"b" * 16)


def test_pages_go_through_all_streams_once_and_filter_by_prefix() -> None:
    table = StreamTable(100)
    for name in (b"x1", b"y1", b"x2", b"x3"):
        assert table.add(A, name) is not None
    first, after = table.page((b"x",), 0, 2)
    assert [topic for _, topic, _ in first] == [b"x1", b"x2"]
    second, end = table.page((b"x",), after, 2)
    assert [topic for _, topic, _ in second] == [b"x3"]
    assert end == 0
    assert table.page((), 0, 2) == ([], 0)


def test_a_stream_keeps_its_position_when_its_publisher_leaves_and_returns() -> None:
    table = StreamTable(100)
    stream = table.add(A, b"t")
    assert stream is not None
    stream.next = 5
    table.left(A)
    assert table.of(A)[b"t"] is stream
    table.check()


def test_a_full_table_gives_up_the_streams_of_who_left_first() -> None:
    table = StreamTable(2)
    table.add(A, b"t")
    table.add(B, b"t")
    table.left(A)
    table.left(B)
    assert table.add(PublisherId(b"c" * 16), b"t") is not None
    table.check()
    assert [publisher for publisher, _, _ in table.page((b"",), 0, 9)[0]] == [B, b"c" * 16]


def test_a_table_full_of_present_publishers_takes_no_more() -> None:
    table = StreamTable(1)
    table.of(A)
    table.add(A, b"t")
    assert table.add(B, b"t") is None
    table.check()


def test_the_last_part_of_a_table_is_kept_for_publishers_with_few_streams() -> None:
    table = StreamTable(640)
    taken = [table.add(A, b"%d" % number) for number in range(640)]
    assert len([stream for stream in taken if stream]) == 560
    for number in range(10):
        assert table.add(B, b"%d" % number) is not None
    assert table.add(B, b"more") is None, "it has many itself now"
    assert table.add(PublisherId(b"c" * 16), b"t") is not None
    assert table.add(A, b"more") is None
    table.check()


def test_what_was_left_gives_way_before_a_publisher_with_many_streams_is_refused() -> None:
    table = StreamTable(64)
    for number in range(8):
        table.add(PublisherId(b"%016d" % number), b"t")
    for number in range(56):
        table.add(A, b"%d" % number)
    table.left(PublisherId(b"%016d" % 3))
    assert len(table) == 56
    assert table.add(A, b"new") is not None
    assert table.add(A, b"newer") is None
    table.check()


def test_a_page_that_only_passed_over_the_forgotten_says_where_to_go_on() -> None:
    table = StreamTable(30_000)
    for number in range(25_000):
        table.add(A, b"%d" % number)
    table.add(B, b"wanted")
    found, after = table.page((b"wanted",), 0, 10)
    assert found == []
    assert after > 0
    found, after = table.page((b"wanted",), after, 10)
    assert [topic for _, topic, _ in found] == [b"wanted"]
    assert after == 0


def test_who_had_no_stream_leaves_nothing_behind() -> None:
    table = StreamTable(10)
    table.of(A)
    table.left(A)
    table.check()
    assert len(table) == 0
