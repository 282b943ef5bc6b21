"""The traces of a live run as a table: questions that its report does not ask.

roq sim run short                     # a run that keeps them; its run.json names the table
python examples/spark_traces.py

The cells (# %%) are those of a notebook; Jupyter, VS Code and PyCharm run them one by one.
"""

# %% A session, and the table. ROQ_TRACES is its URI; else that of the last run here.
import json
import os
from pathlib import Path

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

spark = SparkSession.builder.appName("what happened in a run").getOrCreate()
uri = os.environ.get("ROQ_TRACES")
if uri is None:
    last = max(Path("simulation/runs").glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    uri = json.loads(last.read_text())["settings"]["traces"]
# What stood in the queue of traces twice, after an exchange had died, counts once.
traces = (
    spark.read.option("mergeSchema", "true").option("basePath", uri).parquet(f"{uri}/batches=*")
    .dropDuplicates(["table", "sender", "topic", "sequence"])
)  # fmt: skip

# %% Which clients had the worst seconds, and when? Histograms are merged, never percentiles.
each = traces.filter("table = 'latency' and role = 'subscriber'").select(
    "client",
    f.timestamp_micros("begin_us").alias("second"),
    f.explode(f.arrays_zip("buckets", "counts")).alias("pair"),
)
order = Window.partitionBy("client", "second").orderBy("pair.buckets")
seen = f.sum("pair.counts").over(order)
total = f.sum("pair.counts").over(Window.partitionBy("client", "second"))
worst = (
    each.withColumn("reached", seen >= f.ceil(total * 0.99))
    .filter("reached")
    .groupBy("client", "second")
    .agg((f.pow(f.lit(1.02), f.min("pair.buckets")) / 1_000).alias("p99_ms"))
    .orderBy(f.desc("p99_ms"))
)
worst.show(5, truncate=False)

# %% What did moves cost, by what they were for?
moves = traces.filter("table = 'kpi' and kind = 'move' and state = 'accepted'")
moves.groupBy("reason").agg(
    f.count("*").alias("moves"), f.max("pause_ms").alias("longest_ms")
).orderBy(f.desc("moves")).show(5, truncate=80)

# %% For how long did exchanges have their publishers wait for a slow subscriber?
held = (
    traces.filter("table = 'kpi' and kind = 'exchange'")
    .groupBy("exchange")
    .agg(f.max("held_seconds").alias("held_seconds"), f.max("lag_ms").alias("longest_turn_ms"))
    .orderBy("exchange")
)
held.show()
print(f"{traces.count()} traces of {worst.select('client').distinct().count()} subscribers asked")
