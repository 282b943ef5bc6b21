"""The format `roq` as a source: what stands in the logs is what Spark gets."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from waiting import eventually

import roq
from roq.spark import TakenGroup, backlog, measured
from roq.spark.options import read_options
from roq.spark.queue_logs import QueueLogs
from roq.testing.running import RunningCluster

NewQueue = Callable[..., str]

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

DEADLINE_SECONDS = 120.0


@pytest.fixture
def queue(new_queue: NewQueue) -> str:
    return new_queue(exchanges_max=1, batch_messages=100)


def publish(cluster: roq.Cluster, queue: str, topic: str, payloads: list[bytes]) -> None:
    with cluster.publisher(queue) as publisher:
        publisher.publish_many(payloads, topic=topic)


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % index for index in range(start, start + count)]


def source(spark: SparkSession, cluster: RunningCluster, queue: str, **options: str) -> DataFrame:
    return (
        spark.read.format("roq")
        .options(cluster=cluster.address, queue=queue, **options)
        .load()
    )  # fmt: skip


def test_a_batch_query_reads_all_logs_in_order(
    spark: SparkSession, roq_cluster: RunningCluster, cluster: roq.Cluster, queue: str
) -> None:
    cluster.add_exchange(queue)
    publish(cluster, queue, "eu.be", numbered(1_000))
    publish(cluster, queue, "us", numbered(500))
    rows = (
        source(spark, roq_cluster, queue).select("payload", "topic", "sequence", "offset").collect()
    )
    for topic, count in (("eu.be", 1_000), ("us", 500)):
        mine = [(bytes(row.payload), row.sequence) for row in rows if row.topic == topic]
        assert mine == list(zip(numbered(count), range(count), strict=True))
    assert len(rows) == 1_500
    split = source(spark, roq_cluster, queue, partitionsPerExchange="3")
    assert split.count() == 1_500
    pushdown = "spark.sql.python.filterPushdown.enabled"
    try:
        for enabled in ("false", "true"):  # the first is what Spark does if nobody says anything
            spark.conf.set(pushdown, enabled)
            europe = source(spark, roq_cluster, queue).filter(col("topic").startswith("eu."))
            assert europe.count() == 1_000
            some = source(spark, roq_cluster, queue).filter(
                col("exchange").isin(1, 2)
                & (col("offset") >= 2)
                & (col("offset") < 4)
                & (col("appended") > lit(datetime(2020, 1, 1, tzinfo=UTC)))
            )
            kept = [row for row in rows if 2 <= row.offset < 4]
            assert kept
            assert sorted(bytes(row.payload) for row in some.collect()) == sorted(
                bytes(row.payload) for row in kept
            )
            later = col("appended") >= lit(datetime(2100, 1, 1, tzinfo=UTC))
            assert source(spark, roq_cluster, queue).filter(later).count() == 0
    finally:
        spark.conf.unset(pushdown)
    named = {"cluster": roq_cluster.address, "queue": queue, "group": "night"}
    with pytest.raises(roq.GroupNotFound):
        TakenGroup(spark, **named)
    with cluster.consumer(queue, "night", topic="eu.", prefetch=600) as consumer:
        done = [consumer.receive(timeout=DEADLINE_SECONDS) for _ in range(101)]
        for message in done[1:]:  # the first one is given back: what lies above it stays done
            assert message is not None
            message.ack()
        consumer.flush()
        with pytest.raises(roq.InvalidRequest, match="has 1 members"):
            TakenGroup(spark, **named)
    with TakenGroup(spark, **named, partitionsPerExchange="2") as taken:
        publish(cluster, queue, "eu.be", [b"later"])
        left = Counter(bytes(row.payload) for row in taken.df.select("payload").collect())
        acked = Counter(message.payload for message in done[1:] if message is not None)
        assert left == Counter(numbered(1_000)) - acked
        assert source(spark, roq_cluster, queue, group="night").count() == 901
    with cluster.consumer(queue, "night", topic="eu.") as consumer:
        first = consumer.receive(timeout=DEADLINE_SECONDS)
        assert first is not None
        assert first.payload == b"later", "nothing else is left"


def test_a_stream_reads_each_message_once_over_a_restart_and_a_new_exchange(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    cluster: roq.Cluster,
    queue: str,
    tmp_path: Path,
) -> None:
    sink, sent = str(tmp_path / "sink"), Counter(numbered(3_000))

    def start() -> object:
        return (
            spark.readStream.format("roq")
            .options(cluster=roq_cluster.address, queue=queue, startingOffsets="earliest")
            .option("maxBatchesPerTrigger", "5")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start(sink)
        )

    def found() -> int:
        try:
            return spark.read.parquet(sink).count()
        except PySparkException:
            return 0  # nothing is written yet

    publish(cluster, queue, "t", numbered(1_000))
    query = start()
    eventually(lambda: found() >= 1_000, "the first messages arrive", seconds=DEADLINE_SECONDS)
    query.stop()
    publish(cluster, queue, "t", numbered(1_000, 1_000))
    cluster.add_exchange(queue)
    query = start()
    publish(cluster, queue, "u", numbered(1_000, 2_000))
    eventually(lambda: found() >= 3_000, "all messages arrive", seconds=DEADLINE_SECONDS)
    query.stop()
    assert Counter(bytes(row.payload) for row in spark.read.parquet(sink).collect()) == sent


def test_a_query_that_reads_what_there_is_ends_and_its_checkpoint_is_of_this_queue(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    cluster: roq.Cluster,
    queue: str,
    tmp_path: Path,
) -> None:
    sink = str(tmp_path / "sink")

    rows = (
        spark.readStream.format("roq")
        .options(cluster=roq_cluster.address, queue=queue, startingOffsets="earliest")
        .option("maxBatchesPerTrigger", "4")
        .load()
    )

    def catch_up() -> int:
        """How many micro-batches it took; what each of them tells is right."""
        query = (
            measured(rows)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(sink)
        )
        assert query.awaitTermination(120)
        each = [progress for progress in query.recentProgress if progress.numInputRows]
        for progress in each:
            told = progress.observedMetrics["roq"]
            assert (told.rows, told.bytes > told.rows) == (progress.numInputRows, True)
            assert 0 <= told.lag_ms <= told.oldest_ms < 1_000 * DEADLINE_SECONDS
        behind = [sum(backlog(progress).values()) for progress in each]
        assert behind == sorted(behind, reverse=True)
        assert not behind or behind[0] > behind[-1] == 0
        return len(each)

    publish(cluster, queue, "t", numbered(1_000))  # ten batches of the log, or more
    assert catch_up() >= 3
    assert spark.read.parquet(sink).count() == 1_000
    assert catch_up() == 0
    running = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "running"))
        .start()
    )
    running.processAllAvailable()
    cluster.remove_queue(queue)
    # The log goes a moment before the queue: one of the two is named.
    with pytest.raises(PySparkException, match=f"{queue}.* does not exist|is gone: it was read"):
        running.awaitTermination(120)
    cluster.create_queue(queue, limits={"exchanges_max": 1})
    with pytest.raises(PySparkException, match="belongs to another queue"):
        catch_up()


def ends(cluster: RunningCluster, queue: str) -> dict[int, int]:
    """By number of the exchange, where its log ends."""
    with QueueLogs(
        read_options({"cluster": cluster.address, "queue": queue}, streaming=False)
    ) as logs:
        return {key.number: span.end for key, span in logs.spans().items()}


def grown(cluster: RunningCluster, queue: str, before: dict[int, int]) -> int:
    """The number of the exchange whose log has grown most since."""
    now = ends(cluster, queue)
    return max(now, key=lambda number: now[number] - before[number])


def test_what_went_with_an_exchange_while_no_query_ran_is_an_error_and_never_silent(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    cluster: roq.Cluster,
    queue: str,
    tmp_path: Path,
) -> None:
    sink = str(tmp_path / "sink")

    def catch_up(**options: str) -> int:
        query = (
            spark.readStream.format("roq")
            .options(cluster=roq_cluster.address, queue=queue, startingOffsets="earliest")
            .options(**options)
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(sink)
        )
        assert query.awaitTermination(120)
        return spark.read.parquet(sink).count()

    cluster.add_exchange(queue)
    publish(cluster, queue, "t", numbered(300))
    assert catch_up() == 300
    before = ends(roq_cluster, queue)
    publish(cluster, queue, "t", numbered(300, 300))
    publish(cluster, queue, "t", numbered(300, 600))
    cluster.remove_exchange(queue, grown(roq_cluster, queue, before), timeout=120.0)
    with pytest.raises(PySparkException, match="were not read") as told:
        catch_up()
    (accepted,) = set(re.findall("acceptedLoss to '([^']*)'", str(told.value)))
    left = catch_up(acceptedLoss=accepted)
    assert 300 <= left < 900
    publish(cluster, queue, "t", numbered(100, 900))
    assert catch_up(acceptedLoss=accepted) == left + 100


def test_an_exchange_is_not_stopped_before_a_query_has_read_it(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    cluster: roq.Cluster,
    queue: str,
    tmp_path: Path,
) -> None:
    sink = str(tmp_path / "sink")
    cluster.add_exchange(queue)
    publish(cluster, queue, "t", numbered(100))
    query = (
        spark.readStream.format("roq")
        .options(cluster=roq_cluster.address, queue=queue, startingOffsets="earliest")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="4 seconds")
        .start(sink)
    )
    try:
        eventually(
            lambda: bool(query.recentProgress),
            "the first micro-batch is done",
            seconds=DEADLINE_SECONDS,
        )
        before = ends(roq_cluster, queue)
        for index in range(4):
            publish(cluster, queue, "t", numbered(100, 100 + 100 * index))
        cluster.remove_exchange(queue, grown(roq_cluster, queue, before), timeout=120.0)
        publish(cluster, queue, "t", numbered(100, 500))
        eventually(
            lambda: spark.read.parquet(sink).count() >= 600,
            "all messages arrive",
            seconds=DEADLINE_SECONDS,
        )
        assert query.isActive
    finally:
        query.stop()
    found = Counter(bytes(row.payload) for row in spark.read.parquet(sink).collect())
    assert found == Counter(numbered(600))


def test_an_empty_queue_is_an_empty_table_with_nothing_beyond_its_end(
    spark: SparkSession, roq_cluster: RunningCluster, cluster: roq.Cluster, queue: str
) -> None:
    assert source(spark, roq_cluster, queue).count() == 0
    assert source(spark, roq_cluster, queue, topic="eu").filter("topic = 'us'").count() == 0
    (exchange,) = cluster.exchanges(queue)
    beyond = f'{{"{exchange.number}:{exchange.epoch}": 1}}'
    with pytest.raises(PySparkException, match=r"offset 1 is beyond the end .* which is 0"):
        source(spark, roq_cluster, queue, startingOffsets=beyond).count()


def test_what_has_left_the_ring_fails_the_query_or_is_reported(
    spark: SparkSession, roq_cluster: RunningCluster, cluster: roq.Cluster
) -> None:
    name = f"small-{uuid.uuid4().hex[:8]}"
    cluster.create_queue(name, limits={"ring_bytes": 100_000, "exchanges_max": 1})
    try:
        publish(cluster, name, "t", [b"x" * 1_000] * 1_000)
        (exchange,) = cluster.exchanges(name)
        begin = f'{{"{exchange.number}:{exchange.epoch}": 0}}'
        lossy = source(spark, roq_cluster, name, startingOffsets=begin, failOnDataLoss="false")
        assert 0 < lossy.count() < 1_000
        with pytest.raises(PySparkException, match="ring_bytes"):
            source(spark, roq_cluster, name, startingOffsets=begin).count()
    finally:
        cluster.remove_queue(name)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": "there-is-none"}, "does not exist"),
        ({"startingOffsets": "soon"}, "startingOffsets"),
        ({"cluster": "127.0.0.1:9", "timeoutSeconds": "1"}, "Is the cluster up"),
    ],
)
def test_what_cannot_be_read_is_said_at_once(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    queue: str,
    options: dict[str, str],
    text: str,
) -> None:
    given = {"cluster": roq_cluster.address, "queue": queue, **options}
    with pytest.raises(PySparkException, match=text):
        spark.read.format("roq").options(**given).load().count()
