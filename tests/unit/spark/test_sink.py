"""What tasks stage is decided once, and published under an id that can be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType  # noqa: E402 - after the check that Spark is there

from roq.errors import ConfigError  # noqa: E402
from roq.spark import sink  # noqa: E402
from roq.spark.options import FLUSH_SECONDS_MAX, write_options  # noqa: E402
from roq.spark.staging import SCHEMA, Staging  # noqa: E402

GIVEN = {"cluster": "a:1", "queue": "q", "checkpointLocation": "/never-made"}


def rows(*pairs: tuple[str, bytes]) -> object:
    given = [{"topic": topic, "payload": payload} for topic, payload in pairs]
    return pa.RecordBatch.from_pylist(given, schema=SCHEMA)


def test_the_id_of_a_micro_batch_is_the_same_each_time_and_no_others() -> None:
    assert sink.publisher_id("w", 7) == sink.publisher_id("w", 7)
    ids = {sink.publisher_id(writer, number) for writer in ("w", "v", "w\n1") for number in (1, 2)}
    assert len(ids) == 6
    assert all(len(each) == 16 for each in ids)


def test_runs_of_one_topic_keep_their_order() -> None:
    batch = rows(("a", b"1"), ("a", b"2"), ("b", b"3"), ("a", b"4"))
    assert list(sink.runs(batch)) == [("a", [b"1", b"2"]), ("b", [b"3"]), ("a", [b"4"])]
    assert list(sink.runs(rows(("a", b"1")))) == [("a", [b"1"])]
    assert list(sink.runs(rows())) == []


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("topic STRING", "payload"),
        ("payload INTEGER", "payload int"),
        ("payload BINARY, topic INTEGER", "topic"),
        ("payload BINARY, colour STRING", "colour"),
        ("payload BINARY, key BINARY", "key binary"),
        ("payload BINARY, tags STRING", "tags string"),
    ],
)
def test_columns_that_make_no_message_are_named(columns: str, text: str) -> None:
    schema = StructType()
    for column in columns.split(", "):
        name, kind = column.split()
        schema = schema.add(name, kind.lower())
    with pytest.raises(ConfigError, match=f"(?i){text}"):
        sink.StreamWriter(write_options(GIVEN, streaming=True), schema)


def test_a_stream_stages_beside_its_checkpoint_and_is_named_by_it() -> None:
    options = write_options(GIVEN, streaming=True)
    assert options.staging == "/never-made/roq"
    assert (options.checkpoint, options.writer) == ("/never-made", "")
    named = write_options({**GIVEN, "writerId": "w", "stagingLocation": "/s"}, streaming=True)
    assert (named.writer, named.staging) == ("w", "/s")


def test_a_folder_of_another_query_is_refused_for_its_micro_batches_count_as_done(
    tmp_path: Path,
) -> None:
    staging, checkpoint = tmp_path / "staging", tmp_path / "checkpoint"
    Staging(str(staging)).writer("q1")
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"q2"}')
    given = {**GIVEN, "checkpointLocation": str(checkpoint), "stagingLocation": str(staging)}
    with pytest.raises(ConfigError, match="of another query"):
        sink.check(write_options(given, streaming=True))


def test_time_is_up_before_the_publisher_gives_anything_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is given up is passed over by subscribers, so the next try would come to nothing."""
    asked: dict[str, float] = {}

    class Fake:
        @contextmanager
        def publisher(self, _queue: str, **given: float) -> Iterator[Fake]:
            asked.update(given)
            yield self

        def flush(self, timeout: float) -> None:
            asked["flush"] = timeout

    @contextmanager
    def connect(*_: object, **__: object) -> Iterator[Fake]:
        yield Fake()

    monkeypatch.setattr(sink.roq, "connect", connect)
    options = write_options({**GIVEN, "flushSeconds": f"{FLUSH_SECONDS_MAX}"}, streaming=True)
    sink.publish(Staging(str(tmp_path)), [], options, b"i" * 16)
    assert asked["flush"] <= asked["delivery_timeout"] / 2
    with pytest.raises(ConfigError, match="flushSeconds"):
        write_options({**GIVEN, "flushSeconds": "301"}, streaming=True)


def test_a_sink_without_a_place_for_staging_is_refused() -> None:
    with pytest.raises(ConfigError, match="stagingLocation"):
        write_options({"cluster": "a:1", "queue": "q"}, streaming=True)
    with pytest.raises(ConfigError, match="staginglocaton"):
        write_options({**GIVEN, "stagingLocaton": "/s"}, streaming=True)


def staged(tmp_path: Path, *given: dict[str, object]) -> list[dict[str, object]]:
    """What a task stages of these rows."""
    options = write_options(
        {**GIVEN, "stagingLocation": str(tmp_path), "topic": "t"}, streaming=True
    )
    names = {name for row in given for name in row}
    schema = pa.schema([field for field in SCHEMA if field.name in names])
    batch = pa.RecordBatch.from_pylist(list(given), schema=schema)
    attempt = sink.StreamWriter(options, StructType().add("payload", "binary")).write(iter([batch]))
    return [
        row
        for batch in Staging(str(tmp_path)).read(attempt.attempt)
        for row in batch.to_pylist(maps_as_pydicts="strict")
    ]


def test_a_row_may_have_a_key_tags_and_properties(tmp_path: Path) -> None:
    first = {"payload": b"1", "key": "k", "tags": ["a", "b"], "properties": {"n": "v"}}
    none = {"key": None, "tags": None, "properties": None}
    assert staged(tmp_path, first, {"payload": b"2"}) == [
        {**first, "topic": "t"},
        {**none, "payload": b"2", "topic": "t"},
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"key": "k" * 2_000}, "a key has at most"),
        ({"tags": ["a", None]}, "a tag is text"),
        ({"properties": {"roq.due": "1"}}, "roq"),
        ({"properties": {"n": None}}, "property 'n' is text"),
        ({"properties": [("n", "1"), ("n", "2")]}, "n"),
    ],
)
def test_an_attribute_that_no_message_can_have_ends_the_task(
    tmp_path: Path, given: dict[str, object], text: str
) -> None:
    with pytest.raises(ConfigError, match=f"columns key, tags and properties: .*{text}"):
        staged(tmp_path, {"payload": b"1", **given})


class Recorder:
    """A publisher that notes what it is called with."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def publish_many(self, payloads: list[bytes], topic: str) -> None:
        self.calls.append((topic, payloads))

    def publish(self, **given: object) -> None:
        self.calls.append(given)


def test_rows_without_attributes_are_published_together(tmp_path: Path) -> None:
    recorder, plain = Recorder(), rows(("t", b"1"), ("t", b"2"))
    sink.publish_rows(recorder, plain)
    sink.publish_rows(recorder, plain.select(["topic", "payload"]))
    assert recorder.calls == [("t", [b"1", b"2"])] * 2


def test_rows_with_attributes_are_published_with_them_and_in_order(tmp_path: Path) -> None:
    recorder = Recorder()
    given = [
        {"topic": "t", "payload": b"1", "key": None, "tags": None, "properties": None},
        {"topic": "u", "payload": b"2", "key": "k", "tags": ["a"], "properties": {"n": "v"}},
    ]
    sink.publish_rows(recorder, pa.RecordBatch.from_pylist(given, schema=SCHEMA))
    assert recorder.calls == given
