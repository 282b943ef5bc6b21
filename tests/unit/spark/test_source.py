"""What a stream does about logs that are gone: nothing is lost without a word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from roq.errors import ConfigError
from roq.spark.logs import Logs
from roq.spark.offsets import LogKey, Offsets, Span, read_offsets
from roq.spark.options import read_options
from roq.spark.source import DataLoss, StreamReader

QUEUE = "ab" * 16
X1, X2, X3 = LogKey(1, 65537), LogKey(2, 65538), LogKey(1, 65539)


class FakeLogs:
    """Logs that a test lets come and go."""

    queue_id = QUEUE

    def __init__(self, spans: Mapping[LogKey, Span]) -> None:
        self.now = dict(spans)

    def spans(self) -> Mapping[LogKey, Span]:
        return self.now


def reader(logs: FakeLogs, **options: str) -> StreamReader:
    given = {"cluster": "a:1", "queue": "q", **options}
    made = StreamReader(read_options(given, streaming=True))
    made._logs = cast("Logs", logs)
    return made


def ends(document: dict[str, Any]) -> dict[LogKey, int]:
    return dict(read_offsets(document, QUEUE).next)


def test_a_log_that_is_gone_before_it_was_read_fails_the_query_or_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = Offsets(QUEUE, {X1: 5}).document()
    for options in ({}, {"failOnDataLoss": "false"}):
        logs = FakeLogs({X1: Span(0, 9)})
        stream = reader(logs, **options)
        stream.latestOffset(start)
        logs.now = {X3: Span(0, 0)}
        if options:
            assert ends(stream.latestOffset(start)) == {X3: 0}
        else:
            with pytest.raises(DataLoss, match="offsets 5 to 8 were not read"):
                stream.latestOffset(start)
    assert "offsets 5 to 8 were not read" in caplog.text


def test_a_log_that_was_read_to_its_end_may_go() -> None:
    logs = FakeLogs({X1: Span(0, 9), X2: Span(0, 3)})
    stream = reader(logs)
    start = stream.latestOffset(Offsets(QUEUE).document())
    logs.now = {X2: Span(0, 4)}
    end = stream.latestOffset(start)
    assert ends(end) == {X1: 9, X2: 4}
    assert ends(reader(logs).latestOffset(end)) == {X1: 9, X2: 4}  # also for the next driver


def test_what_left_with_a_log_while_no_driver_was_there_is_not_passed_over_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = Offsets(QUEUE, {X1: 5, X2: 3}).document()
    logs = FakeLogs({X2: Span(0, 4)})
    with pytest.raises(DataLoss, match=r"x1 .* up to offset 5, and nobody knows"):
        reader(logs).latestOffset(start)
    stream = reader(logs, failOnDataLoss="false")
    for _ in range(3):
        assert ends(stream.latestOffset(start)) == {X1: 5, X2: 4}
    assert caplog.text.count("nobody knows whether more came") == 1


def test_a_spark_that_does_not_say_where_it_stands_reads_nothing_twice() -> None:
    logs = FakeLogs({X1: Span(0, 9), X2: Span(0, 3)})
    stream = reader(logs, startingOffsets="earliest")
    stream.initialOffset()
    assert ends(stream.latestOffset()) == {X1: 9, X2: 3}
    logs.now = {X2: Span(0, 4)}
    assert ends(stream.latestOffset()) == {X1: 9, X2: 4}
    logs.now = {X1: Span(0, 9), X2: Span(0, 4)}
    assert ends(stream.latestOffset()) == {X1: 9, X2: 4}


@pytest.mark.parametrize("loss", ["true", "false"])
def test_offsets_beyond_the_end_are_no_loss_but_an_error(loss: str) -> None:
    logs = FakeLogs({X1: Span(2, 9)})
    for offset in (0, 9):
        given = f'{{"{X1}": {offset}}}'
        assert ends(reader(logs, startingOffsets=given).initialOffset()) == {X1: offset}
    beyond = reader(logs, startingOffsets=f'{{"{X1}": 10}}', failOnDataLoss=loss)
    with pytest.raises(ConfigError, match=r"startingOffsets: offset 10 .* x1 .* which is 9"):
        beyond.initialOffset()
    with pytest.raises(ConfigError, match="the checkpoint: offset 10"):
        reader(logs, failOnDataLoss=loss).latestOffset(Offsets(QUEUE, {X1: 10}).document())
