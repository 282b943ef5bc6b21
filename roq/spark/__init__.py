"""RoQ as a source of Apache Spark (4.0 or later), in batch and streaming queries.

    df = (
        spark.readStream.format("roq")
        .option("cluster", "127.0.0.1:5000")
        .option("queue", "orders")
        .load()
    )

Spark finds the format by itself where the package is installed; elsewhere call `register(spark)`
first. `TaskSink` publishes from the tasks of a query; `measured` and `backlog` tell how a
streaming query gets on; `TakenGroup` does the work of a consumer group. `docs/spark.md` tells
options, columns and what is promised. Needs `pip install 'roq-cluster[spark]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roq.spark.query_session import backlog, measured
from roq.spark.source import RoqDataSource
from roq.spark.taken_group import TakenGroup
from roq.spark.task_sink import TaskSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RoqDataSource", "TakenGroup", "TaskSink", "backlog", "measured", "register"]


def register(spark: SparkSession) -> None:
    """Make the format `roq` known to a session that does not find it by itself."""
    spark.dataSource.register(RoqDataSource)
