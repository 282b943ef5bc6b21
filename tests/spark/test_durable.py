"""Spark on durable queues: offsets and times outlive the processes, and the whole cluster."""

from __future__ import annotations

import os
import signal
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from waiting import eventually

import roq
from roq.testing.running import RunningCluster, cluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

DEADLINE_SECONDS = 120.0


def publish(client: roq.Cluster, start: int, count: int) -> None:
    with client.publisher("orders") as publisher:
        publisher.publish_many([b"%d" % each for each in range(start, start + count)], topic="t")


def kill_exchange(client: roq.Cluster) -> None:
    (exchange,) = client.exchanges("orders")
    assert exchange.pid > 0
    os.kill(exchange.pid, signal.SIGKILL)


def test_a_stream_and_a_range_of_time_outlive_the_exchange_and_the_whole_cluster(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = str(tmp_path / "sink")

    def catch_up(running: RunningCluster) -> Counter[bytes]:
        query = (
            spark.readStream.format("roq")
            .options(cluster=running.address, queue="orders", startingOffsets="earliest")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(sink)
        )
        assert query.awaitTermination(int(DEADLINE_SECONDS))
        return Counter(bytes(row.payload) for row in spark.read.parquet(sink).collect())

    def wanted(count: int) -> Counter[bytes]:
        return Counter(b"%d" % each for each in range(count))

    with cluster(data_dir=tmp_path / "data") as running, running.connect() as client:
        client.create_queue("orders", durability="flush")
        publish(client, 0, 500)
        assert catch_up(running) == wanted(500)
        between = datetime.now(UTC)
        kill_exchange(client)
        publish(client, 500, 500)
        assert catch_up(running) == wanted(1_000)
    with cluster(data_dir=tmp_path / "data") as running, running.connect() as client:
        eventually(
            lambda: [each.state for each in client.exchanges("orders")] == ["running"],
            "the exchange is back",
            seconds=DEADLINE_SECONDS,
        )
        publish(client, 1_000, 100)
        assert catch_up(running) == wanted(1_100)

        def read(**options: str) -> DataFrame:
            found = spark.read.format("roq").options(cluster=running.address, queue="orders")
            return found.options(**options).load()

        later = read(startingTime=between.isoformat())
        assert Counter(bytes(row.payload) for row in later.collect()) == wanted(1_100) - wanted(500)
        earlier = read().filter(col("appended") < lit(between))
        assert Counter(bytes(row.payload) for row in earlier.collect()) == wanted(500)
