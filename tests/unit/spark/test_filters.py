"""Topics are picked by exchanges as far as prefixes can say it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

datasource = pytest.importorskip("pyspark.sql.datasource")

from roq.model import LogId  # noqa: E402 - after the check that Spark is there
from roq.spark.filters import Bounds, bounded, narrowed  # noqa: E402


def begins(value: str) -> object:
    return datasource.StringStartsWith(("topic",), value)


def test_begins_with_is_done_for_good() -> None:
    assert narrowed((b"",), [begins("eu.")]) == ((b"eu.",), [])


def test_equality_makes_it_less_and_is_looked_at_again() -> None:
    equal = datasource.EqualTo(("topic",), "eu.be")
    assert narrowed((b"eu.", b"us."), [equal]) == ((b"eu.be",), [equal])


def test_a_list_of_topics() -> None:
    among = datasource.In(("topic",), ("eu.be", "us", "eu.nl"))
    assert narrowed((b"eu.",), [among]) == ((b"eu.be", b"eu.nl"), [among])


def test_what_cannot_be_reads_nothing() -> None:
    assert narrowed((b"eu.",), [begins("us.")]) == ((), [])


def test_the_longer_prefix_counts_and_a_prefix_of_another_says_it_all() -> None:
    assert narrowed((b"e", b"eu.b"), [begins("eu.")])[0] == (b"eu.",)


@pytest.mark.parametrize(
    "other",
    [
        datasource.EqualTo(("payload",), "eu."),
        datasource.GreaterThan(("topic",), "eu."),
        datasource.StringContains(("topic",), "eu."),
        datasource.Not(datasource.EqualTo(("topic",), "eu.")),
        datasource.EqualTo(("topic",), None),
        datasource.EqualTo(("topic", "field"), "eu."),
    ],
)
def test_other_filters_are_left_to_spark(other: object) -> None:
    assert narrowed((b"",), [other]) == ((b"",), [other])


ONE, TWO = LogId(1, 65_537), LogId(2, 65_538)
START, END = {ONE: 10, TWO: 0}, {ONE: 100, TWO: 50}


def compared(kind: str, column: str, value: object) -> object:
    return getattr(datasource, kind)((column,), value)


def left_of(*filters: object, since: int = 0, before: int = 1_000) -> dict[LogId, range]:
    """What is read: the offsets, by log; those of the times at which a test looks are given."""
    bounds = bounded(filters)  # type: ignore[arg-type]
    from_, to = {ONE: since, TWO: since}, {ONE: before, TWO: before}
    first, until = bounds.within(
        START, END, from_ if bounds.since_us is not None else {},
        to if bounds.before_us is not None else {},
    )  # fmt: skip
    return {log: range(first[log], until[log]) for log in first if until[log] > first[log]}


def test_without_filters_all_is_read() -> None:
    assert bounded([begins("eu.")]) == Bounds()  # type: ignore[list-item]
    assert left_of() == {ONE: range(10, 100), TWO: range(50)}


def test_logs_are_left_out_by_exchange_and_generation() -> None:
    assert left_of(compared("EqualTo", "exchange", 2)) == {TWO: range(50)}
    assert left_of(compared("In", "exchange", (1, 3))) == {ONE: range(10, 100)}
    assert left_of(compared("EqualTo", "generation", 65_537)) == {ONE: range(10, 100)}
    both = compared("EqualTo", "exchange", 2), compared("EqualTo", "generation", 65_537)
    assert left_of(*both) == {}
    assert left_of(compared("GreaterThan", "exchange", 1)) == left_of()


def test_offsets_bound_what_is_read() -> None:
    assert left_of(
        compared("GreaterThan", "offset", 19), compared("LessThanOrEqual", "offset", 29)
    ) == {ONE: range(20, 30), TWO: range(20, 30)}
    assert left_of(compared("EqualTo", "offset", 60)) == {ONE: range(60, 61)}
    assert left_of(compared("LessThan", "offset", 5)) == {TWO: range(5)}
    assert left_of(compared("GreaterThanOrEqual", "offset", 500)) == {}
    assert left_of(datasource.Not(compared("EqualTo", "offset", 3))) == left_of()


def test_times_bound_what_is_read_and_end_exactly() -> None:
    moment = datetime(2026, 11, 25, 12, 0, 0, 5, tzinfo=UTC)
    us = int(datetime(2026, 11, 25, 12, tzinfo=UTC).timestamp()) * 1_000_000 + 5
    bounds = bounded([
        compared("GreaterThan", "appended", moment),  # type: ignore[list-item]
        compared("LessThanOrEqual", "appended", moment + timedelta(seconds=1)),  # type: ignore[list-item]
    ])  # fmt: skip
    assert (bounds.since_us, bounds.before_us) == (us + 1, us + 1_000_001)
    span = compared("GreaterThan", "appended", moment), compared("LessThan", "appended", moment)
    assert left_of(*span, since=30, before=40) == {ONE: range(30, 40), TWO: range(30, 40)}
    naive = compared("LessThan", "appended", moment.replace(tzinfo=None))
    assert bounded([naive]) == Bounds()  # type: ignore[list-item]
