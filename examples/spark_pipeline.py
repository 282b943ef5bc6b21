"""A pipeline: from a queue through Spark into a queue; subscribers get each result once.

roq up                        # in another terminal
python examples/spark_pipeline.py

The cells (# %%) are those of a notebook; Jupyter, VS Code and PyCharm run them one by one.
"""

# %% A session. Workers must run the same Python as we do.
import os
import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import roq
import roq.spark

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.appName("from queue to queue").getOrCreate()
roq.spark.register(spark)  # only where Spark does not find the format by itself
options = {"cluster": os.environ.get("ROQ_CLUSTER", "127.0.0.1:5000")}
cluster = roq.connect(options["cluster"])
for queue in ("lines", "words"):
    cluster.create_queue(queue, exists_ok=True)

# %% Each word of a line becomes a message whose topic is its first letter. The query goes on for
# ever; its checkpoint must be where driver and executors reach it.
words = (
    spark.readStream.format("roq")
    .options(**options, queue="lines", startingOffsets="earliest")
    .load()
    .select(f.explode(f.split(f.col("payload").cast("string"), " ")).alias("payload"))
    .withColumn("topic", f.substring("payload", 1, 1))
)
query = (
    words.writeStream.format("roq")
    .options(**options, queue="words")
    .option("checkpointLocation", tempfile.mkdtemp(prefix="roq-checkpoint-"))
    .start()
)

# %% Whoever wants words with q subscribes to them.
with cluster.subscriber("words", topic="q") as subscriber:
    with cluster.publisher("lines") as publisher:
        for line in ("a queue that is quick", "to be quiet", "and never in question"):
            publisher.publish(line.encode())
    found: list[str] = []
    while len(found) < 4:
        message = subscriber.receive(timeout=60)
        assert message is not None, "no word has come"
        found.append(message.payload.decode())
print(f"found {', '.join(found)}")

# %% The end.
query.stop()
cluster.close()
