"""What a stream does about logs that are gone: nothing is lost without a word."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, cast

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo
from pyspark.sql.streaming.datasource import ReadMaxRows

from roq.client.consume.takeover import LogPosition
from roq.errors import ConfigError, InvalidRequest, RoQError, Unavailable
from roq.log.group_changes import GroupDelta, encode_deltas
from roq.model import LogId
from roq.protocol.consuming import GroupSettings
from roq.spark import source
from roq.spark.offsets import Departed, Offsets, Part, Span, read_offsets
from roq.spark.options import read_options
from roq.spark.query_session import QuerySession
from roq.spark.queue_logs import DataLoss, QueueLogs, lose
from roq.spark.source import BatchReader, LogPartition, StreamReader

Document = dict[str, Any]
QUEUE = "ab" * 16
X1, X2, X3 = LogId(1, 65537), LogId(2, 65538), LogId(1, 65539)


class FakeLogs:
    """QueueLogs that a test lets come and go."""

    queue_id = QUEUE

    def __init__(self, spans: Mapping[LogId, Span]) -> None:
        self.now = dict(spans)
        self.went: dict[int, Departed] = {}
        self.silent: set[LogId] = set()
        """The cluster has not given them up, but they cannot be read."""
        self.left_out = 0

    def spans(self) -> Mapping[LogId, Span]:
        return self.now

    def listed(self) -> frozenset[LogId]:
        return frozenset(self.now) | self.silent

    def numbers(self) -> frozenset[int]:
        return frozenset(key.number for key in self.listed())

    def departed(self) -> Mapping[int, Departed]:
        return self.went

    def waiting(
        self, spans: Mapping[LogId, Span], read: Mapping[LogId, int], most: int
    ) -> dict[LogId, Span]:
        """As `QueueLogs.waiting`: what lies below `left_out` belongs to no batch."""
        return {key: Span(max(span.floor, self.left_out), span.end) for key, span in spans.items()}

    def address(self, key: LogId) -> str:
        return "tcp://a:1" if key in self.now else ""

    def look_again(self) -> None:
        pass


class FakeQuerySession:
    """What the monitor was told."""

    def __init__(self) -> None:
        self.told: list[dict[LogId, int]] = []

    def read(self, offsets: Mapping[LogId, int]) -> None:
        self.told.append(dict(offsets))


def reader(logs: FakeLogs, **options: str) -> StreamReader:
    given = {"cluster": "a:1", "queue": "q", **options}
    made = StreamReader(read_options(given, streaming=True))
    made._logs = cast("QueueLogs", logs)
    made._attendance = cast("QuerySession", FakeQuerySession())
    return made


def parts_of(stream: StreamReader, start: Document, end: Document) -> list[LogPartition]:
    return cast("list[LogPartition]", list(stream.partitions(start, end)))


def ends(document: dict[str, Any]) -> dict[LogId, int]:
    return dict(read_offsets(document, QUEUE).next)


def test_a_log_that_is_gone_before_it_was_read_fails_the_query_or_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = Offsets(QUEUE, {X2: 5}).document()
    for options in ({}, {"failOnDataLoss": "false"}):
        logs = FakeLogs({X2: Span(0, 5)})
        stream = reader(logs, **options)
        stream.latestOffset(start)
        # It gets more after the last look, and is taken out of the queue before the next one.
        logs.now, logs.went = {X1: Span(0, 0)}, {2: Departed(X2.generation, 9)}
        if options:
            assert ends(stream.latestOffset(start)) == {X1: 0, X2: 5}
        else:
            with pytest.raises(DataLoss, match=r"x2 .* offsets 5 to 8 were not read"):
                stream.latestOffset(start)
    assert "offsets 5 to 8 were not read" in caplog.text


def test_a_limit_is_not_spent_on_offsets_that_belong_to_no_batch() -> None:
    logs = FakeLogs({X1: Span(0, 1_000_100)})
    logs.left_out = 1_000_000
    stream, start = reader(logs), Offsets(QUEUE, {X1: 9}).document()
    end = stream.latestOffset(start, ReadMaxRows(40))
    assert ends(end) == {X1: 1_000_040}
    (part,) = parts_of(stream, start, end)
    assert part.part == Part(X1, 9, 1_000_040)


def test_a_log_that_was_read_to_its_end_may_go() -> None:
    logs = FakeLogs({X1: Span(0, 9), X2: Span(0, 3)})
    stream = reader(logs)
    start = stream.latestOffset(Offsets(QUEUE).document())
    logs.now, logs.went = {X2: Span(0, 4)}, {1: Departed(X1.generation, 9)}
    end = stream.latestOffset(start)
    assert ends(end) == {X1: 9, X2: 4}
    assert ends(reader(logs).latestOffset(end)) == {X1: 9, X2: 4}  # also for the next driver


def test_an_end_that_nobody_knows_is_no_end_however_much_was_read() -> None:
    for went in ({}, {1: Departed(X1.generation, -1)}, {1: Departed(X3.generation, 9)}):
        logs = FakeLogs({X1: Span(0, 9), X2: Span(0, 3)})
        stream = reader(logs)
        start = stream.latestOffset(Offsets(QUEUE).document())
        logs.now, logs.went = {X2: Span(0, 3)}, went
        with pytest.raises(DataLoss, match=r"x1 .* up to offset 9, and it is not known"):
            stream.latestOffset(start)


def test_what_left_with_a_log_while_no_driver_was_there_is_not_passed_over_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = Offsets(QUEUE, {X1: 5, X2: 3}).document()
    logs = FakeLogs({X2: Span(0, 4)})
    with pytest.raises(DataLoss, match=r"x1 .* up to offset 5, and it is not known"):
        reader(logs).latestOffset(start)
    stream = reader(logs, failOnDataLoss="false")
    for _ in range(3):
        assert ends(stream.latestOffset(start)) == {X1: 5, X2: 4}
    assert caplog.text.count("it is not known whether more came") == 1


def test_a_log_that_came_and_went_between_two_lives_of_a_driver_is_not_passed_over() -> None:
    start = reader(FakeLogs({X1: Span(0, 5)})).initialOffset()
    for went, words in (
        ({2: Departed(X2.generation, 7)}, "x2 came and went .* 7 batches"),
        ({2: Departed(X2.generation, -1)}, "an unknown number of batches"),
        ({3: Departed(4, 0)}, "x2 came and went .* an unknown number"),
    ):
        logs = FakeLogs({X1: Span(0, 5)})
        logs.went = dict(went)
        with pytest.raises(DataLoss, match=words):
            reader(logs).latestOffset(start)
        forgiving = reader(logs, failOnDataLoss="false")
        end = forgiving.latestOffset(start)
        assert reader(logs).latestOffset(end) == end  # told once, it is known
    empty = FakeLogs({X1: Span(0, 5)})
    empty.went = {2: Departed(X2.generation, 0)}
    assert ends(reader(empty).latestOffset(start)) == {X1: 5}


def test_a_loss_that_is_accepted_stays_so_and_no_other_one_is() -> None:
    dead = Offsets(QUEUE, {X1: 5, X2: 3}).document()
    logs = FakeLogs({X3: Span(0, 2), X2: Span(0, 4)})
    with pytest.raises(DataLoss) as told:
        reader(logs).latestOffset(dead)
    (accepted,) = re.findall("acceptedLoss to '([^']*)'", str(told.value))
    assert json.loads(accepted) == {str(X1): "all"}
    end = reader(logs, acceptedLoss=accepted).latestOffset(dead)
    assert ends(end) == {X2: 4, X3: 2}
    # The next driver begins where this one did, for its micro-batch was not done.
    again = reader(logs, acceptedLoss=accepted)
    assert [part.part.log for part in parts_of(again, dead, end)] == [X3, X2]
    assert again.latestOffset(end) == end
    logs.now = {X3: Span(0, 2)}
    with pytest.raises(DataLoss, match=r"x2 .* it is not known") as told:
        reader(logs, acceptedLoss=accepted).latestOffset(end)
    (accepted,) = re.findall("acceptedLoss to '([^']*)'", str(told.value))
    assert json.loads(accepted) == {str(X1): "all", str(X2): "all"}
    assert ends(reader(logs, acceptedLoss=accepted).latestOffset(end)) == {X2: 4, X3: 2}


def test_a_micro_batch_that_was_planned_in_a_log_that_is_gone_is_accepted_with_it() -> None:
    start, end = Offsets(QUEUE, {X1: 0}), Offsets(QUEUE, {X1: 5, X2: 1})
    logs = FakeLogs({X3: Span(0, 2), X2: Span(0, 4)})
    with pytest.raises(DataLoss, match="offsets 0 to 4 were not read"):
        parts_of(reader(logs), start.document(), end.document())
    stream = reader(logs, acceptedLoss=f'{{"{X1}": "all"}}')
    found = parts_of(stream, start.document(), end.document())
    assert [part.part for part in found] == [Part(X2, 0, 1)]


def test_an_exchange_that_came_and_went_is_accepted_by_its_number() -> None:
    start = reader(FakeLogs({X1: Span(0, 5)})).initialOffset()
    logs = FakeLogs({X1: Span(0, 5)})
    logs.went = {2: Departed(X2.generation, 7)}
    with pytest.raises(DataLoss, match=r'acceptedLoss to \'{"2:0": "all"}\''):
        reader(logs).latestOffset(start)
    assert ends(reader(logs, acceptedLoss='{"2:0": "all"}').latestOffset(start)) == {X1: 5}


def test_what_left_a_log_that_lives_is_accepted_up_to_an_offset() -> None:
    given = {"cluster": "a:1", "queue": "q", "acceptedLoss": f'{{"{X1}": 7}}'}
    options = read_options(given, streaming=True)
    lose(options, X1, "a batch", below=7)
    for below in (8, None):
        with pytest.raises(DataLoss, match="a batch"):
            lose(options, X1, "a batch", below=below)
    with pytest.raises(DataLoss) as told:
        lose(options, X2, "a batch", below=3)
    assert f"""'{{"{X1}": 7, "{X2}": 3}}'""" in str(told.value)


def test_a_spark_that_says_only_when_it_plans_where_it_stands_learns_it_then() -> None:
    start = Offsets(QUEUE, {X1: 5}, highest=1).document()
    logs = FakeLogs({X1: Span(0, 5)})
    logs.went = {2: Departed(X2.generation, 7)}
    stream = reader(logs)
    end = stream.latestOffset()
    with pytest.raises(DataLoss, match=r"x2 came and went"):
        stream.partitions(start, end)
    logs = FakeLogs({X2: Span(0, 1)})
    stream = reader(logs)
    with pytest.raises(DataLoss, match=r"x1 .* it is not known"):
        stream.partitions(start, stream.latestOffset())


def test_what_went_before_a_query_began_is_nothing_to_it() -> None:
    logs = FakeLogs({X1: Span(0, 5)})
    logs.went = {2: Departed(X2.generation, 7)}
    for place in ("earliest", "latest"):
        stream = reader(logs, startingOffsets=place)
        assert ends(stream.latestOffset(stream.initialOffset())) == {X1: 5}


def test_a_log_that_is_only_silent_is_neither_lost_nor_forgotten() -> None:
    logs = FakeLogs({X1: Span(0, 5), X2: Span(0, 3)})
    stream = reader(logs)
    start = stream.latestOffset(Offsets(QUEUE).document())
    logs.now, logs.silent = {X1: Span(0, 5)}, {X2}
    again = stream.latestOffset(start)
    assert ends(again) == {X1: 5, X2: 3}
    logs.silent = set()
    with pytest.raises(DataLoss, match=r"x2 .* it is not known"):
        stream.latestOffset(again)


def test_an_exchange_that_does_not_serve_yet_did_not_come_and_go() -> None:
    logs = FakeLogs({X1: Span(0, 5)})
    logs.silent = {X2}
    logs.now[LogId(3, 7)] = Span(0, 1)
    start = reader(FakeLogs({X1: Span(0, 5)})).initialOffset()
    end = reader(logs).latestOffset(start)
    assert ends(end) == {X1: 5, LogId(3, 7): 1}
    logs.silent, logs.went = set(), {2: Departed(X2.generation, 4)}
    with pytest.raises(DataLoss, match=r"x2 came and went"):
        reader(logs).latestOffset(end)


def test_the_monitor_is_told_what_was_read_and_not_what_is_planned() -> None:
    logs = FakeLogs({X1: Span(0, 9)})
    stream = reader(logs, startingOffsets="earliest")
    told = cast("FakeQuerySession", stream._attendance).told
    start = stream.initialOffset()
    end = stream.latestOffset(start)
    assert told[-1] == {X1: 0}
    stream.latestOffset(end)
    assert told[-1] == {X1: 9}


def test_a_spark_that_does_not_say_where_it_stands_reads_nothing_twice() -> None:
    logs = FakeLogs({X1: Span(0, 9), X2: Span(0, 3)})
    stream = reader(logs, startingOffsets="earliest")
    stream.initialOffset()
    assert ends(stream.latestOffset()) == {X1: 9, X2: 3}
    logs.now, logs.silent = {X2: Span(0, 4)}, {X1}
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


# --- the work of a consumer group -----------------------------------------------------------------

SETTINGS = GroupSettings(prefixes=(b"eu.",), tags=("paid",))


class GroupLogs(FakeLogs):
    """Logs with a consumer group, which notes how far it is moved."""

    def __init__(self, spans: Mapping[LogId, Span], base: Mapping[LogId, int]) -> None:
        super().__init__(spans)
        self.base = base
        self.moved: list[dict[LogId, tuple[int, int, int]]] = []
        self.refusal: RoQError | None = None

    def __enter__(self) -> GroupLogs:
        return self

    def __exit__(self, *_: object) -> None: ...

    def take(self) -> dict[LogId, bytes]:
        if self.refusal is not None:
            raise self.refusal
        return {
            key: encode_deltas(
                [
                    GroupDelta(
                        "g", base, [(base + 2, 1)], settings=SETTINGS, created_us=7, sought_us=3
                    )
                ]
            )
            for key, base in self.base.items()
        }

    def move(self, position: Mapping[LogId, LogPosition], until: Mapping[LogId, int]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.moved.append(
            {key: (each.created_us, each.base, until[key]) for key, each in position.items()}
        )


def batch_parts(
    logs: GroupLogs, monkeypatch: pytest.MonkeyPatch, **options: str
) -> list[LogPartition]:
    monkeypatch.setattr(source, "QueueLogs", lambda _: logs)
    given = {"cluster": "a:1", "queue": "q", "group": "g", **options}
    made = BatchReader(read_options(given, streaming=False))
    assert list(made.pushFilters([EqualTo(("topic",), "x")])) == [EqualTo(("topic",), "x")]
    return cast("list[LogPartition]", list(made.partitions()))


def test_a_batch_query_for_a_group_reads_what_that_has_not_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = GroupLogs({X1: Span(0, 9), X2: Span(2, 6)}, {X1: 4, X2: 6})
    (part,) = batch_parts(logs, monkeypatch)
    assert part.part == Part(X1, 4, 9)
    assert part.position is not None
    assert (part.position.settings, part.position.done(6)) == (SETTINGS, -1)
    logs.refusal = InvalidRequest("group g has 1 members")
    with pytest.raises(InvalidRequest):
        batch_parts(logs, monkeypatch)


def test_what_was_taken_over_is_read_whatever_the_group_has_done_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = GroupLogs({X1: Span(0, 20), X2: Span(3, 6)}, {X1: 4})
    said = {str(key): b64encode(each).decode() for key, each in logs.take().items()}
    fixed = {"groupPosition": json.dumps(said), "endingOffsets": f'{{"{X1}": 9}}'}
    logs.refusal = InvalidRequest("group g has 1 members")
    (part,) = batch_parts(logs, monkeypatch, **fixed)
    assert part.part == Part(X1, 4, 9), "and nothing of a log that has come since"
    with pytest.raises(ConfigError, match="offset 21 is beyond the end"):
        batch_parts(logs, monkeypatch, **{**fixed, "endingOffsets": f'{{"{X1}": 21}}'})
    logs.now = {X2: Span(3, 6)}
    with pytest.raises(DataLoss, match="a log that is gone"):
        batch_parts(logs, monkeypatch, **fixed)


def test_a_stream_moves_its_group_behind_each_micro_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logs = GroupLogs({X1: Span(0, 9)}, {X1: 4})
    stream = reader(logs, group="g")
    start = stream.initialOffset()
    assert ends(start) == {X1: 4}
    logs.now = {X1: Span(0, 9), X2: Span(0, 3)}
    end = stream.latestOffset(start)
    one, two = parts_of(stream, start, end)
    assert (one.part, two.part) == (Part(X1, 4, 9), Part(X2, 0, 3))
    for part in (one, two):
        assert part.position is not None
        assert part.position.settings == SETTINGS
        assert part.position.done(6) == 0, "what is read again is the same"
        assert part.position.sought_us == (3 if part is one else 0), "who seeks now is noticed"
    stream.commit(end)
    assert logs.moved == [{X1: (7, 0, 9), X2: (0, 0, 3)}]
    logs.refusal = Unavailable("exchange x1 has not answered")
    stream.commit(end)
    assert "x1 has not answered" in caplog.text
    logs.refusal = InvalidRequest("group g has 1 members")
    with pytest.raises(InvalidRequest):
        stream.commit(end)
    reader(logs).commit(end)  # works for no group


def test_a_stream_that_is_started_again_takes_its_group_over_again() -> None:
    logs = GroupLogs({X1: Span(0, 9)}, {X1: 4})
    end = Offsets(QUEUE, {X1: 9}).document()
    stream = reader(logs, group="g")
    stream.commit(end)
    assert logs.moved == [{X1: (7, 0, 9)}]
    logs.refusal = InvalidRequest("group g has 1 members")
    stream = reader(logs, group="g")
    with pytest.raises(InvalidRequest):
        stream.partitions(end, end)
