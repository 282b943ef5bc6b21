"""Traces on Spark: collected exactly once, and turned into the figures that they hold."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from runs import run_of
from traces import RUN, Story, exchange, move, queue, scale
from waiting import eventually

import roq
from roq.errors import ConfigError, QueueNotFound
from roq.simulation.lab.archive.document import EventKind
from roq.simulation.lab.traces import collect
from roq.simulation.lab.traces.collect import Collector
from roq.simulation.lab.traces.messages import CLIENT_TOPIC, ClientTrace, encode
from roq.simulation.lab.traces.place import CHECKPOINT, Part, Place, TracesError
from roq.simulation.lab.traces.summary import remarks, summarise
from roq.simulation.lab.traces.tables import LATENCY, REJECTED
from roq.testing.running import RunningCluster

NewQueue = Callable[..., str]

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

DRAIN_SECONDS = 120.0
LOADED = msgspec.structs.replace(run_of(RUN), seconds=20.0)
"""Four publishers of 100 messages a second."""


def told(*, silent: tuple[float, float] = (99.0, 99.0)) -> Story:
    """Exchange 1 gets 1,200 bytes a second, more than its limit allows; from 10.25 s on it shares
    them with exchange 2, which came at 8 s. Documents come at a quarter past each second."""
    story = Story()
    first = second = 0
    for number in range(-1, 21):
        at = number + 0.25
        first += 1_200 if at <= 10.25 else 600
        second += 600 if at > 10.25 else 0
        if silent[0] < at < silent[1]:
            continue
        story.document(at, exchange(1, first))
        if at > 8:
            story.document(at, exchange(2, second, uptime=at - 8))
        story.document(at, queue(1 if at < 8 else 2))
    return story


def test_figures_and_windows_say_what_the_traces_hold(spark: SparkSession, tmp_path: Path) -> None:
    story = told()
    story.document(-3.0, move("accepted"))  # before the load: none of it
    for at, state in ((9.0, "started"), (9.5, "accepted"), (11.0, "given_up")):
        story.document(at, move(state))
    for at, direction, state in (
        (7.5, "out", "started"),
        (8.5, "out", "done"),
        (30.0, "in", "done"),
    ):
        story.document(at, scale(direction, state))
    story.event(0.0, EventKind.PHASE, "load")
    for at in range(20):
        story.client("publisher-0", at, [0.0001] * 3, messages=300, bytes=3_000, late=3)
        slow = [0.5] if at == 4 else [0.002]
        story.client("subscriber-0", at, [0.002] * 99 + slow, messages=300, failed=int(at == 7))
        if at != 12:
            story.client("subscriber-1", at, [0.002] * 100, messages=300, doubled=int(at == 7),
                         behind=60.0 if at == 19 else 0.0)  # fmt: skip
        else:
            story.number("subscriber-1")  # published, and never seen again
    story.messages += [story.messages[3], story.messages[-1]]  # an exchange died: sent again
    # Two messages of a stranger, each the first one under its topic.
    stranger = story.messages[0]._replace(payload=b"x", sender=b"s" * 16, sequence=0)
    story.messages += [stranger, stranger._replace(topic="another")]
    place = story.write(tmp_path, now=20.0)
    figures, series = summarise(spark, place, LOADED)

    expected = {
        "sent": 6_000, "received": 11_700, "lost": 1, "doubled": 1, "reordered": 0, "failed": 0,
        "messages_per_second": 300, "bytes_per_second": 3_000, "load_reached": 0.75,
        "latency_p50_ms": 2.0, "latency_p99_ms": 2.0, "latency_max_ms": 500.0,
        "latency_mean_ms": (3_899 * 2.0 + 500.0) / 3_900,
        "exchanges_most": 2, "exchanges_last": 2, "moves": 1, "moves_failed": 1, "scale_outs": 1,
        "scale_ins": 0, "imbalance_last": 1.0, "overload_minutes": 10.25 / 60,
        "reaction_seconds": 9.5, "exchange_messages_in": 2_400, "cpu_seconds": 16.0,
        "cpu_seconds_per_million": 16.0 / 2_400 * 1e6, "exchange_hours": 32 / 3_600,
        "generator_late_share": 0.01, "scale_out_seconds": 0.5, "move_pause_max_ms": 4.0,
        "traces_missing": 1, "traces_doubled": 2, "traces_late": 1, "traces_rejected": 2,
        "silent_seconds": 0, "files_left_out": 0, "documents_dropped": 0,
    }  # fmt: skip
    found = {name: figures[name] for name in expected}
    assert found == pytest.approx(expected, rel=0.011)
    docs = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
    assert [name for name in figures if f"`{name}`" not in docs] == []
    assert remarks(figures) == [
        "Traces that were published and never collected: 1.",
        "Traces that stood in the queue twice: 2; each was counted once.",
        "Messages that were no traces of this run: 2.",
        "Traces that came late: 1; they were counted where they belong.",
    ]

    assert [window.at for window in series.windows] == [float(at) for at in range(1, 21)]
    assert {window.covered for window in series.windows} == {1.0}
    assert [window.serving for window in series.windows] == [1] * 8 + [2] * 12
    one = series.windows[5].exchanges[0]
    assert (one.bytes_in, one.messages_out, one.cpu_percent) == pytest.approx((1_200, 240, 50))
    assert series.windows[10].exchanges[0].bytes_in == pytest.approx(750)
    assert [series.windows[at].imbalance for at in (3, 9, 15)] == [None, 2.0, 1.0]
    four, late = series.windows[4].latency, series.windows[19].latency
    assert four is not None
    assert late is not None
    assert (four.count, four.most) == (200, pytest.approx(500.0, rel=0.011))
    assert late.count == 200
    assert [(event.at, event.kind) for event in series.events if event.at >= 0] == [
        (0.0, EventKind.PHASE), (8.25, EventKind.SERVES), (8.5, EventKind.SCALE_OUT),
        (9.5, EventKind.MOVE), (11.0, EventKind.MOVE_FAILED), (30.0, EventKind.SCALE_IN),
    ]  # fmt: skip


def test_a_hole_in_the_statistics_is_told_and_damaged_files_are_named_or_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    story = told(silent=(2.5, 6.0))
    for at in range(20):
        story.client("subscriber-0", at, [0.002], messages=1)
    place = story.write(tmp_path, now=20.0)
    (path,) = tmp_path.glob(f"run={RUN}/*/table={LATENCY}/*.parquet")
    data = bytearray(path.read_bytes())
    data[100:200] = bytes(100)
    path.write_bytes(data)
    (path.parent / "notes.txt").write_text("somebody's")
    pq.write_table(pa.table({"a": [1]}), path.with_name("foreign.parquet"))
    half = tmp_path / f"run={RUN}" / "batches=1-1" / f"table={LATENCY}" / "half.parquet"
    half.parent.mkdir(parents=True)
    half.write_bytes(path.read_bytes()[:100])  # and there its driver was ended
    with pytest.raises(TracesError, match=f"{path.name}|foreign"):
        summarise(spark, place, LOADED)

    figures, series = summarise(spark, place, LOADED, leave_out=True)
    assert (figures["files_left_out"], figures["exchanges_most"]) == (2, 2)
    assert [window.covered for window in series.windows[1:8]] == [1, 0.25, 0, 0, 0, 0.75, 1]
    assert figures["silent_seconds"] == pytest.approx(4.0)
    assert [window.serving for window in series.windows[1:7]] == [1, 0, 0, 0, 0, 1]
    assert series.windows[6].exchanges[0].bytes_in == pytest.approx(1_200)
    (gap,) = [event for event in series.events if event.kind is EventKind.GAP]
    assert (gap.at, gap.text) == (2.25, "no statistics for 4.0 s")


def test_a_run_without_any_traces_has_windows_of_which_nothing_is_known(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(str(tmp_path), RUN)
    figures, series = summarise(spark, place, LOADED)
    assert figures["traces"] == 0
    assert not {"sent", "lost", "moves", "latency_p50_ms", "exchanges_most"} & set(figures)
    assert {window.covered for window in series.windows} == {0.0}
    assert summarise(spark, place, msgspec.structs.replace(LOADED, seconds=0.0))[1].windows == []


# --- collected ------------------------------------------------------------------------------------


@pytest.fixture
def traces_queue(new_queue: NewQueue, cluster: roq.Cluster) -> str:
    name = new_queue()
    cluster.add_exchange(name)
    return name


def now_us() -> int:
    return time.time_ns() // 1_000


def client_traces(source: str, count: int) -> list[bytes]:
    """Traces of three minutes."""
    begin = now_us()
    return [
        encode(
            ClientTrace(
                run=RUN, time_us=begin - 60_000_000 * (number % 3), source=source, number=number,
                client=source, role="publisher", begin_us=begin, seconds=1.0, messages=1,
            )
        )
        for number in range(count)
    ]  # fmt: skip


def rows(place: Place, table: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for path in place.files():
        if f"table={table}/" in path:
            with place.opened(path) as source:
                found += pq.ParquetFile(source).read().to_pylist()
    return found


def test_each_trace_is_kept_once_although_the_collector_is_ended_in_the_middle(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    cluster: roq.Cluster,
    traces_queue: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(str(tmp_path), RUN)

    def collector() -> Collector:
        return Collector(spark, roq_cluster.address, traces_queue, place, RUN, seconds=0.2)

    def fails(rows: DataFrame, place: Place, part: Part) -> None:
        keep(rows, place, part)
        raise OSError("no space left")

    keep = collect.keep
    monkeypatch.setattr(collect, "MERGED", 2)

    with cluster.publisher(traces_queue) as one, cluster.publisher(traces_queue) as two:
        first = collector()
        first.start()
        eventually(lambda: first.batches, seconds=DRAIN_SECONDS)  # with nothing in it
        assert not first.kept
        one.publish_many(client_traces("one", 40), CLIENT_TOPIC)
        two.publish(b"not a trace", CLIENT_TOPIC)
        one.flush()
        two.flush()
        assert first.drain(DRAIN_SECONDS), first.failure
        assert first.kept
        assert len(rows(place, LATENCY)) == 40
        monkeypatch.setattr(collect, "keep", fails)
        two.publish_many(client_traces("two", 50), CLIENT_TOPIC)
        two.flush()
        assert not first.drain(DRAIN_SECONDS)
        assert first.failure == "traces are not collected any more: no space left"
        first.stop()

        monkeypatch.setattr(collect, "keep", keep)
        second = collector()
        second.start()
        one.publish_many(client_traces("three", 30), CLIENT_TOPIC)
        one.flush()
        assert second.drain(DRAIN_SECONDS), second.failure
        second.stop()
        second.stop()
    kept = Counter((row["source"], row["number"]) for row in rows(place, LATENCY))
    wanted = (("one", 40), ("two", 50), ("three", 30))
    assert kept == Counter((name, number) for name, count in wanted for number in range(count))
    (rejected,) = rows(place, REJECTED)
    assert rejected["payload"] == b"not a trace"
    cluster.remove_queue(traces_queue)
    cluster.create_queue(traces_queue)
    with pytest.raises(ConfigError, match="belongs to another queue"):
        collector().start()


def test_what_cannot_be_collected_is_said_at_once(
    spark: SparkSession, roq_cluster: RunningCluster, traces_queue: str, tmp_path: Path
) -> None:
    with pytest.raises(QueueNotFound, match="there-is-none"):
        Collector(
            spark, roq_cluster.address, "there-is-none", Place(str(tmp_path), RUN), RUN
        ).start()
    place = told().write(tmp_path, now=20.0)
    with pytest.raises(TracesError, match=f"{CHECKPOINT} is gone"):
        Collector(spark, roq_cluster.address, traces_queue, place, RUN).start()
