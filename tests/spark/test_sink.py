"""The format `roq` as a sink: what Spark writes, subscribers get once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import roq
from roq.spark.options import write_options
from roq.spark.sink import NotPublished, publish, publisher_id
from roq.spark.staging import SCHEMA, Staging
from roq.testing.running import RunningCluster

NewQueue = Callable[..., str]

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

ROWS = 2_000


@pytest.fixture
def queue(new_queue: NewQueue) -> str:
    return new_queue(exchanges_max=1)


def numbers(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(rows).selectExpr(
        "cast(id as string) as payload", "if(id % 2 = 0, 'even', 'odd') as topic"
    )


def staged_rows(payloads: list[bytes]) -> pa.RecordBatch:
    rows = [{"topic": "t", "payload": payload} for payload in payloads]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def take(subscriber: roq.Subscriber, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        message = subscriber.receive(timeout=60)
        assert message is not None, f"only {len(found)} of {count} messages came"
        found.append(message.payload.decode())
    return found


def test_a_batch_query_publishes_all_rows_once(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    cluster: roq.Cluster,
    queue: str,
    tmp_path: Path,
) -> None:
    with cluster.subscriber(queue, topic="even") as subscriber:
        (
            numbers(spark).write.format("roq").mode("append")
            .options(cluster=roq_cluster.address, queue=queue, stagingLocation=str(tmp_path))
            .save()
        )  # fmt: skip
        assert take(subscriber, ROWS // 2) == [str(number) for number in range(0, ROWS, 2)]
        assert subscriber.receive(timeout=0.3) is None
    assert list(tmp_path.iterdir()) == []


def test_key_tags_and_properties_of_a_row_arrive_with_its_message(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    cluster: roq.Cluster,
    queue: str,
    tmp_path: Path,
) -> None:
    rows = spark.createDataFrame(
        [("1", "k", ["a", "b"], {"n": "v"}), ("2", None, None, None)],
        "payload STRING, key STRING, tags ARRAY<STRING>, properties MAP<STRING,STRING>",
    ).coalesce(1)
    with cluster.subscriber(queue) as subscriber:
        (
            rows.write.format("roq").mode("append")
            .options(cluster=roq_cluster.address, queue=queue, stagingLocation=str(tmp_path))
            .save()
        )  # fmt: skip
        first, second = subscriber.receive(timeout=60), subscriber.receive(timeout=60)
    assert first is not None
    assert second is not None
    assert (first.payload, first.key, first.tags) == (b"1", "k", ("a", "b"))
    assert first.properties == {"n": "v"}
    assert (second.payload, second.key, second.tags, second.properties) == (b"2", None, (), {})


def test_a_micro_batch_that_is_repeated_comes_once(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    cluster: roq.Cluster,
    queue: str,
    tmp_path: Path,
) -> None:
    source, checkpoint = str(tmp_path / "source"), tmp_path / "checkpoint"
    numbers(spark).write.parquet(source)

    def run() -> None:
        query = (
            spark.readStream.schema("payload STRING, topic STRING").parquet(source)
            .writeStream.format("roq").trigger(availableNow=True)
            .options(
                cluster=roq_cluster.address, queue=queue, checkpointLocation=str(checkpoint)
            )
            .start()
        )  # fmt: skip
        assert query.awaitTermination(120)

    with cluster.subscriber(queue) as subscriber:
        run()
        assert sorted(take(subscriber, ROWS)) == sorted(str(number) for number in range(ROWS))
        # The driver dies after it has published, before Spark has noted it: the commit is repeated.
        newest = max(
            int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()
        )
        (checkpoint / "commits" / str(newest)).unlink()
        (checkpoint / "commits" / f".{newest}.crc").unlink(missing_ok=True)
        done = checkpoint / "roq" / "batches" / f"{newest}.done"
        assert done.exists()
        run()
        assert subscriber.receive(timeout=0.3) is None
        # A query that begins anew is another one, and is not taken for the first.
        shutil.rmtree(checkpoint)
        run()
        assert sorted(take(subscriber, ROWS)) == sorted(str(number) for number in range(ROWS))
        assert subscriber.stats().counts.duplicates == 0


def test_what_a_driver_had_published_in_part_is_completed_by_the_next_one(
    roq_cluster: RunningCluster, cluster: roq.Cluster, queue: str, tmp_path: Path
) -> None:
    staging = Staging(str(tmp_path))
    payloads = [f"{number}".encode() for number in range(ROWS)]
    halves = [
        staging.write([staged_rows(part)])
        for part in (payloads[: ROWS // 2], payloads[ROWS // 2 :])
    ]
    decided = staging.decide(7, halves)
    options = write_options(
        {"cluster": roq_cluster.address, "queue": queue, "stagingLocation": str(tmp_path)},
        streaming=True,
    )
    identity = publisher_id("writer", 7)
    with cluster.subscriber(queue) as subscriber:
        publish(staging, decided[:1], options, identity)  # and then it dies
        publish(staging, decided, options, identity)
        assert [text.encode() for text in take(subscriber, ROWS)] == payloads
        assert subscriber.receive(timeout=0.3) is None
        assert subscriber.stats().counts.duplicates == ROWS // 2


def test_a_driver_that_was_thought_dead_does_no_harm(
    roq_cluster: RunningCluster, cluster: roq.Cluster, queue: str, tmp_path: Path
) -> None:
    staging = Staging(str(tmp_path))
    payloads = [f"{number}".encode() for number in range(50 * ROWS)]
    decided = staging.decide(3, [staging.write([staged_rows(payloads)])])
    options = write_options(
        {"cluster": roq_cluster.address, "queue": queue, "stagingLocation": str(tmp_path)},
        streaming=True,
    )
    identity = publisher_id("writer", 3)

    def commit(_: int) -> bool:
        try:
            publish(staging, decided, options, identity)
        except NotPublished:
            return False  # Spark's query fails, and goes on when it is started again
        return True

    with cluster.subscriber(queue) as subscriber, ThreadPoolExecutor(2) as drivers:
        assert any(drivers.map(commit, range(2)))
        assert [text.encode() for text in take(subscriber, len(payloads))] == payloads
        assert subscriber.receive(timeout=0.3) is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": "none"}, "does not exist"),
        ({"cluster": "127.0.0.1:9", "timeoutSeconds": "1"}, "Is the cluster up"),
        ({"stagingLocation": "/proc/none"}, "stagingLocation"),
        ({"colour": "red"}, "unknown option"),
    ],
)
def test_what_cannot_be_written_is_said_before_any_task_has_worked(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    queue: str,
    tmp_path: Path,
    options: dict[str, str],
    text: str,
) -> None:
    given = {
        "cluster": roq_cluster.address,
        "queue": queue,
        "stagingLocation": str(tmp_path),
        **options,
    }
    with pytest.raises(AnalysisException, match=text):
        numbers(spark, 5).write.format("roq").mode("append").options(**given).save()
