"""Topics are picked by exchanges as far as prefixes can say it."""

from __future__ import annotations

import pytest

datasource = pytest.importorskip("pyspark.sql.datasource")

from roq.spark.filters import narrowed  # noqa: E402 - after the check that Spark is there


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
