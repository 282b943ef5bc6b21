"""What is too much to be looked at is counted."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from roq.simulation.lab.traces.aggregate import changes_of_limit, first_rows
from roq.simulation.lab.traces.summary import remarks


class Frame:
    """As much of a DataFrame as is needed, without Spark."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.counted = 0

    def limit(self, most: int) -> Frame:
        return Frame(min(most, self._rows))

    def count(self) -> int:
        self.counted += 1
        return self._rows

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return pa.table({"number": list(range(self._rows))})


@pytest.mark.parametrize(("there", "left"), [(0, 0), (9, 0), (10, 0), (11, 1), (25, 15)])
def test_rows_that_are_too_many_are_counted(there: int, left: int) -> None:
    frame = Frame(there)
    rows, left_out = first_rows(cast("DataFrame", frame), most=10)
    assert [row["number"] for row in rows] == list(range(min(10, there)))
    assert left_out == left
    assert frame.counted == (there >= 10)


def test_a_limit_that_was_never_told_has_no_changes() -> None:
    told = [None, None, 5.0, 5.0, None, 7.0]
    rows = [{"time_us": at, "limit": limit} for at, limit in enumerate(told)]
    assert changes_of_limit(rows[:2]) == changes_of_limit([]) == []
    assert [row["time_us"] for row in changes_of_limit(rows)] == [2, 4, 5]


def test_what_was_left_out_is_remarked() -> None:
    assert remarks({"rows_left_out": 0.0, "limits_left_out": 0.0}) == []
    rows, limits = remarks({"rows_left_out": 7.0, "limits_left_out": 3.0})
    assert ": 7. " in rows
    assert ": 3. " in limits
