"""What was lost, doubled, invented or put out of order is named, and nothing else is."""

from __future__ import annotations

from roq.model import LogId
from roq.simulation.experiments.chaos_spark.judge import (
    Loss,
    Row,
    back,
    differences,
    disorder,
    distinct,
)


def rows(*sequences: int, publisher: bytes = b"p", topic: str = "t") -> list[Row]:
    return [Row(publisher, topic, number, b"%d" % number) for number in sequences]


def test_equal_multisets_do_not_differ_in_any_order() -> None:
    assert differences("x", [1, 2, 2], [2, 1, 2]) == []


def test_what_is_missing_doubled_or_foreign_is_told_apart() -> None:
    told = differences("files", [1, 2, 3], [2, 2, 3, 9])
    assert told == [
        "files: 1 messages are missing, such as 1",
        "files: 1 doubles, such as 2",
        "files: 1 that nobody sent, such as 9",
    ]


def test_what_went_with_an_exchange_may_be_missing_or_come_again_and_nothing_else() -> None:
    wanted, found = [1, 2, 3, 4], [1, 2, 2, 4, 4]
    assert differences("files", wanted, found, lost={3}, again={2, 4}) == []
    assert differences("files", wanted, found, lost={4}, again={2}) == [
        "files: 1 messages are missing, such as 3",
        "files: 1 doubles, such as 4",
    ]
    assert differences("files", [1], [1, 9], lost={9}, again={9}) == [
        "files: 1 that nobody sent, such as 9"
    ]


def test_what_a_query_has_read_of_a_log_is_not_excused_by_its_end() -> None:
    loss = Loss(LogId(1, 7), {b"a": 0, b"b": 1, b"c": 2}, frozenset({b"late"}))
    assert loss.unread(0) == {b"a", b"b", b"c", b"late"}
    assert loss.unread(2) == {b"c", b"late"}
    assert loss.unread(3) == {b"late"}
    assert loss.sent_again() == {b"a", b"b", b"c", b"late"}


def test_sequences_rise_within_each_stream_of_a_stretch() -> None:
    mixed = [*rows(0, 1), *rows(0, topic="u"), *rows(2), *rows(0, publisher=b"q")]
    assert disorder("files", {"a": mixed, "b": rows(1, 2)}) == []
    (told,) = disorder("files", {"a": rows(0, 2, 1)})
    assert told == "files: in a 't' 1 comes after 2"
    assert disorder("files", {"a": rows(0, 0)}) != []


def test_the_first_of_each_place_is_left() -> None:
    assert distinct([*rows(0, 1), *rows(0, 1, 2)]) == rows(0, 1, 2)


def test_copies_are_named_after_what_they_were_copied_from() -> None:
    first, second = rows(5, 6)
    source = {first.payload: ("1:1", first), second.payload: ("2:1", second)}
    copies = [Row(b"copier", "t", 0, second.payload), Row(b"copier", "t", 1, first.payload)]
    assert back(copies, source) == {
        f"{b'copier'.hex()[:8]} from 2:1": [second],
        f"{b'copier'.hex()[:8]} from 1:1": [first],
    }
    assert back(rows(7), source) == {}
