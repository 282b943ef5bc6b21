"""What runs on Spark, and what is kept and told of a run: load, traces, archive, report."""
