"""`TaskSink`: subscribers get each row once, whatever becomes of tasks and driver."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import roq
from roq.errors import ConfigError, QueueNotFound
from roq.spark import TaskSink
from roq.spark.staging import Staging
from roq.spark.task_sink import Publishing
from roq.testing.running import RunningCluster

NewQueue = Callable[..., str]

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

ROWS = 4_000
PARTS = 4


@pytest.fixture
def queue(new_queue: NewQueue) -> str:
    return new_queue(exchanges_max=2)


def numbers(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(0, rows, 1, 4).selectExpr(
        "cast(id as string) as payload", "cast(id % 10 as string) as key"
    )


def take(subscriber: roq.Subscriber, count: int) -> list[roq.Message]:
    found: list[roq.Message] = []
    while len(found) < count:
        message = subscriber.receive(timeout=60)
        assert message is not None, f"only {len(found)} of {count} messages came"
        found.append(message)
    assert subscriber.receive(timeout=0.3) is None
    return found


def values(messages: list[roq.Message]) -> list[int]:
    return sorted(int(message.payload) for message in messages)


def test_rows_of_one_key_stay_in_order(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    cluster: roq.Cluster,
    queue: str,
    tmp_path: Path,
) -> None:
    sink = TaskSink(
        cluster=roq_cluster.address, queue=queue, stagingLocation=tmp_path.as_uri(),
        orderBy="key", publishTasks=3,
    )  # fmt: skip
    with cluster.subscriber(queue) as subscriber:
        assert sink.write(numbers(spark).coalesce(1)) == ROWS
        messages = take(subscriber, ROWS)
    assert values(messages) == list(range(ROWS))
    by_key: dict[str | None, list[int]] = defaultdict(list)
    publishers: dict[str | None, set[bytes]] = defaultdict(set)
    for message in messages:
        by_key[message.key].append(int(message.payload))
        publishers[message.key].add(bytes(message.publisher))
    assert all(found == sorted(found) for found in by_key.values())
    assert {len(found) for found in publishers.values()} == {1}
    assert 1 < len(set.union(*publishers.values())) <= 3
    assert list(tmp_path.iterdir()) == []


def test_a_micro_batch_that_was_published_in_part_is_completed_and_comes_once(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    cluster: roq.Cluster,
    queue: str,
    tmp_path: Path,
) -> None:
    source, checkpoint, staging = (tmp_path / name for name in ("source", "checkpoint", "staging"))
    numbers(spark).write.parquet(str(source))

    def run(publishing: type[Publishing] = Publishing) -> None:
        sink = TaskSink(cluster=roq_cluster.address, queue=queue, stagingLocation=str(staging))
        sink.publishing = publishing
        query = (
            spark.readStream.schema("payload STRING, key STRING").parquet(str(source))
            .writeStream.foreachBatch(lambda df, number: sink(df.repartition(PARTS), number))
            .trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()
        )  # fmt: skip
        assert query.awaitTermination(120)

    with cluster.subscriber(queue) as subscriber:
        with pytest.raises(StreamingQueryException, match="no more than two parts"):
            run(two_parts())
        (path,) = (staging / "batches").glob("*.json")
        decision = path.read_text()
        number, rows = path.stem, [rows for _, rows in json.loads(decision)]
        assert len(rows) == PARTS
        assert sum(rows) == ROWS
        parts = {each.name for each in path.parent.iterdir()} - {path.name}
        assert parts == {f"{number}.0", f"{number}.1"}
        staged = {each: each.read_bytes() for each in (staging / "attempts").iterdir()}
        first = take(subscriber, sum(rows[:2]))
        run()
        rest = take(subscriber, sum(rows[2:]))
        assert values(first + rest) == list(range(ROWS))
        assert path.read_text() == decision
        assert subscriber.stats().counts.duplicates == 0
        # A driver dies before Spark knows of it: there is nothing to do.
        forget(checkpoint / "commits", number)
        run()
        assert subscriber.receive(timeout=0.3) is None
        assert subscriber.stats().counts.duplicates == 0
        # It dies before the staging folder knows of it: all is published again, and dropped.
        forget(checkpoint / "commits", number)
        for each, content in staged.items():
            each.write_bytes(content)
        (staging / "batches" / f"{number}.done").unlink()
        run()
        assert subscriber.receive(timeout=0.3) is None
        assert subscriber.stats().counts.duplicates == ROWS
    assert list((staging / "attempts").iterdir()) == []


def two_parts() -> type[Publishing]:
    """What tasks do of which those of the first two parts succeed; Spark sends it along."""

    class TwoParts(Publishing):
        def publish(self, staging: Staging, part: int) -> None:
            if part < 2:
                super().publish(staging, part)
                return
            # The first failure ends the others.
            until = time.monotonic() + 60
            while not all(staging.part_done(self._number, other) for other in (0, 1)):
                assert time.monotonic() < until
                threading.Event().wait(0.05)
            raise RuntimeError("no more than two parts")

    return TwoParts


def forget(commits: Path, number: str) -> None:
    """Have Spark repeat a micro-batch."""
    (commits / number).unlink()
    (commits / f".{number}.crc").unlink(missing_ok=True)


def test_what_cannot_be_written_is_said_before_any_task_has_worked(
    spark: SparkSession, roq_cluster: RunningCluster, queue: str, tmp_path: Path
) -> None:
    options = {
        "cluster": roq_cluster.address, "queue": queue, "stagingLocation": str(tmp_path)
    }  # fmt: skip
    with pytest.raises(QueueNotFound, match="does not exist"):
        TaskSink(**{**options, "queue": "none"}).write(numbers(spark))
    with pytest.raises(ConfigError, match="columns that a message does not have: id"):
        TaskSink(**options).write(spark.range(3).selectExpr("id", "'a' as payload"))
    with pytest.raises(ConfigError, match="orderBy: the rows have no column topic"):
        TaskSink(**options, orderBy="topic").write(numbers(spark))
    assert list(tmp_path.iterdir()) == []
