"""A streaming query: a queue into Parquet files, each message once, however often it is stopped.

roq up                        # in another terminal
python examples/spark_stream.py

The cells (# %%) are those of a notebook; Jupyter, VS Code and PyCharm run them one by one.
"""

# %% A session. Workers must run the same Python as we do.
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import roq
import roq.spark

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.appName("a queue into files").getOrCreate()
roq.spark.register(spark)  # only where Spark does not find the format by itself
cluster_address = os.environ.get("ROQ_CLUSTER", "127.0.0.1:5000")
folder = Path(tempfile.mkdtemp(prefix="roq-example-"))


# %% Some messages.
def publish(count: int) -> None:
    """So many readings of two meters."""
    with roq.connect(cluster_address) as cluster:
        cluster.create_queue("readings", exists_ok=True)
        with cluster.publisher("readings") as publisher:
            for number in range(count):
                publisher.publish(b"%d" % (number % 7), topic=f"meter.{number % 2}")


# %% The query. Where it is stands in its checkpoint; Spark reads what is new and ends.
def catch_up() -> None:
    """Take what has come since the last time; without `availableNow` it would go on for ever."""
    query = (
        spark.readStream.format("roq")
        .options(cluster=cluster_address, queue="readings", startingOffsets="earliest")
        .load()
        .select("topic", f.col("payload").cast("string").cast("int").alias("value"), "timestamp")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "readings"))
    )
    query.awaitTermination()


# %% Twice; each message is in the files once.
publish(1_000)
catch_up()
publish(500)
catch_up()
readings = spark.read.parquet(str(folder / "readings"))
means = readings.groupBy("topic").agg(f.count("*").alias("readings"), f.avg("value"))
means.orderBy("topic").show()
print(f"{readings.count()} readings in {folder / 'readings'}")
