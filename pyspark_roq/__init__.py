"""Where Spark looks for the format `roq`: it takes `DefaultSource` of each `pyspark_…` package."""

from roq.spark import RoqDataSource as DefaultSource

__all__ = ["DefaultSource"]
