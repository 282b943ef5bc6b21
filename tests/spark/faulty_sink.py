"""A Spark program whose publishing tasks die, hang and are slow: `faulty_sink.py JOB.json`.

The first attempt at part 0 dies when half of its rows are published, the one at part 1 hangs there
for good, the one at part 2 goes on when a speculative copy is at work. The driver is this process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from itertools import islice
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

import roq
from roq.spark import TaskSink, register
from roq.spark.sink import publish_rows, publisher_id
from roq.spark.staging import Staging
from roq.spark.task_sink import Publishing

DIES, HANGS, SLOW = range(3)
SLOW_SECONDS = 8.0


class Faulty(Publishing):
    """Publishes half of it before something goes wrong."""

    def publish(self, staging: Staging, part: int) -> None:
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and part in {DIES, HANGS, SLOW}:
            self._half(staging, part)
        super().publish(staging, part)

    def _half(self, staging: Staging, part: int) -> None:
        identity = publisher_id(self._writer, self._number, part)
        with (
            roq.connect(list(self._options.cluster)) as cluster,
            cluster.publisher(self._options.queue, publisher_id=identity) as publisher,
        ):
            for batch in islice(staging.read(self._decided[part]), 1):
                publish_rows(publisher, batch.slice(0, batch.num_rows // 2))
            publisher.flush(timeout=30)
            if part == DIES:
                os._exit(9)
            threading.Event().wait(SLOW_SECONDS if part == SLOW else None)


def main(path: str) -> None:
    """Publish the numbers below `rows`, in four parts."""
    job = json.loads(Path(path).read_text())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = job["home"]
    spark = (
        SparkSession.builder.master(job["master"])
        .appName("roq faults")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.speculation", "true")
        .config("spark.speculation.quantile", "0.25")
        .config("spark.speculation.minTaskRuntime", "1s")
        .config("spark.sql.warehouse.dir", job["warehouse"])
        .getOrCreate()
    )
    register(spark)
    TaskSink.publishing = Faulty
    rows = spark.range(0, job["rows"], 1, 4).selectExpr(
        "cast(id as string) as payload", "cast(spark_partition_id() as string) as topic"
    )
    options = {name: job[name] for name in ("cluster", "queue", "stagingLocation")}
    sys.stdout.write(json.dumps({"published": TaskSink(**options).write(rows)}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
