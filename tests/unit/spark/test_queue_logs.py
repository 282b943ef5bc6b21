"""From where a query reads the logs of a queue, and which losses it goes on after."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pyspark")

from roq.model import LogId
from roq.read.events import BelowFloor
from roq.spark.offsets import Span
from roq.spark.options import Options, read_options
from roq.spark.queue_logs import DataLoss, lose, raised

X1, X2 = LogId(1, 5), LogId(2, 5)


def options(**given: str) -> Options:
    return read_options({"cluster": "a:1", "queue": "q", **given}, streaming=True)


@pytest.mark.parametrize(
    ("policy", "begins"),
    [(BelowFloor.ERROR, 3), (BelowFloor.EARLIEST, 10), (BelowFloor.LATEST, 20)],
)
def test_offsets_that_are_kept_no_more_are_raised_as_is_wanted(
    policy: BelowFloor, begins: int
) -> None:
    low, high, gone = LogId(1, 5), LogId(2, 5), LogId(3, 5)
    spans = {low: Span(10, 20), high: Span(0, 9)}
    found = raised({low: 3, high: 4, gone: 1}, spans, policy)
    assert found == {low: begins, high: 4, gone: 1}


@pytest.mark.parametrize("below", [None, 7])
def test_a_loss_ends_the_query_and_says_how_it_is_accepted(below: int | None) -> None:
    with pytest.raises(DataLoss, match=r"x1 is gone\. To go on without") as met:
        lose(options(), X1, "x1 is gone", below=below)
    found = re.search(r"acceptedLoss to '([^']*)'", str(met.value))
    assert found is not None
    accepted = options(acceptedLoss=found[1])
    lose(accepted, X1, "x1 is gone", below=below)
    with pytest.raises(DataLoss, match=str(X1)):
        lose(accepted, X2, "x2 is gone")


def test_a_loss_up_to_an_offset_is_accepted_and_none_beyond_it() -> None:
    accepted = options(acceptedLoss=f'{{"{X1}": 7}}')
    lose(accepted, X1, "some are gone", below=6)
    for below in (8, None):
        with pytest.raises(DataLoss):
            lose(accepted, X1, "more are gone", below=below)


def test_where_losses_do_not_matter_none_ends_the_query() -> None:
    lose(options(failOnDataLoss="false"), X1, "x1 is gone")
