"""Streaming queries on a real Spark cluster whose driver and executors are killed again and again.

A standalone Spark cluster of local processes runs two queries on one RoQ queue, one into another
queue and one into Parquet files. Processes are killed at random moments; in the end log, queue and
files must hold the same messages. See docs/spark.md for what is promised, and `make chaos-spark`.
"""
