"""A queue as a table: what stands in it now, by topic and by minute, and a result published back.

roq up                        # in another terminal
python examples/spark_batch.py

The cells (# %%) are those of a notebook; Jupyter, VS Code and PyCharm run them one by one.
"""

# %% A session. Workers must run the same Python as we do.
import json
import os
import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import roq
import roq.spark

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.appName("a queue as a table").getOrCreate()
roq.spark.register(spark)  # only where Spark does not find the format by itself
options = {"cluster": os.environ.get("ROQ_CLUSTER", "127.0.0.1:5000")}

# %% Something to look at: 3,000 orders.
with roq.connect(options["cluster"]) as cluster:
    for queue in ("orders", "totals"):
        cluster.create_queue(queue, exists_ok=True)
    with cluster.publisher("orders") as publisher:
        for number in range(3_000):
            order = {"number": number, "euros": number % 50}
            topic = ("eu.be", "eu.fr", "us")[number % 3]
            publisher.publish(json.dumps(order).encode(), topic)

# %% The queue as a table. The filter on the topic is done by the exchanges.
orders = (
    spark.read.format("roq").options(**options, queue="orders").load()
    .filter(f.col("topic").startswith("eu."))
    .withColumn("order", f.from_json(f.col("payload").cast("string"), "number INT, euros INT"))
)  # fmt: skip
totals = (
    orders.groupBy("topic", f.window("timestamp", "1 minute").start.alias("minute"))
    .agg(f.count("*").alias("orders"), f.sum("order.euros").alias("euros"))
    .orderBy("topic", "minute")
)
totals.show(truncate=False)

# %% And the totals as messages: a row is a message, of its topic.
messages = totals.select(f.to_json(f.struct("minute", "orders", "euros")).alias("payload"), "topic")
(
    messages.write.format("roq").mode("append")
    .options(**options, queue="totals", stagingLocation=tempfile.mkdtemp(prefix="roq-staging-"))
    .save()
)  # fmt: skip
print(f"{messages.count()} messages published")
