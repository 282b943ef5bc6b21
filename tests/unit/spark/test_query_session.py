"""How far a query is behind, by what Spark tells of it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from roq.model import LogId
from roq.spark.offsets import Offsets
from roq.spark.query_session import backlog

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

QUEUE = "ab" * 16
X1, X2 = LogId(1, 65537), LogId(2, 65538)


def progress(*sources: tuple[str | None, str | None]) -> StreamingQueryProgress:
    told = [SimpleNamespace(endOffset=end, latestOffset=latest) for end, latest in sources]
    return cast("StreamingQueryProgress", SimpleNamespace(sources=told))


def offsets(queue: str = QUEUE, **logs: int) -> str:
    names = {"x1": X1, "x2": X2}
    return json.dumps(Offsets(queue, {names[key]: at for key, at in logs.items()}).document())


def test_what_stands_in_each_log_and_is_not_read_is_told() -> None:
    told = progress((offsets(x1=7, x2=5), offsets(x1=7, x2=30)))
    assert backlog(told) == {str(X1): 0, str(X2): 25}
    new = progress((offsets(x1=7), offsets(x1=9, x2=4)))
    assert backlog(new) == {str(X1): 2, str(X2): 4}, "a log that has just come is unread"
    gone = progress((offsets(x1=7, x2=5), offsets(x1=7)))
    assert backlog(gone) == {str(X1): 0}


@pytest.mark.parametrize(
    "source",
    [
        (None, None),
        (offsets(x1=7), None),  # Spark before 4.2
        ("17", "20"),  # another format
        ('{"logOffset": 3}', '{"logOffset": 4}'),
        ("no JSON", "[]"),
        (offsets(x1=7), offsets("cd" * 16, x1=9)),  # it was made anew
    ],
)
def test_other_sources_are_passed_over(source: tuple[str | None, str | None]) -> None:
    assert backlog(progress(source, (offsets(x1=1), offsets(x1=2)))) == {str(X1): 1}
