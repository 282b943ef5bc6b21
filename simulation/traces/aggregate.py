"""Batch queries over the traces of one run: whatever is large is made small by Spark.

Windows are those of event time, counted from the beginning of the load, so what came late stands
where it belongs. Rates follow from the growth of totals between two documents of an exchange.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from simulation.traces.files import sound
from simulation.traces.grid import MICROSECONDS, Grid
from simulation.traces.tables import EVENTS, KPI, LATENCY, REJECTED, SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

HOLE_SECONDS: Final = 3.0
"""Two documents further apart than this have a hole between them, or three KPI periods."""
HOLE_PERIODS: Final = 3.0
LATE_SECONDS: Final = 10.0
"""A trace that stands in the queue so long after its time came late."""
OVERLOAD: Final = 1.10
"""Of the limit, as for the policies."""
ROWS_MAX: Final = 100_000
"""Of lists of single events; what is beyond that is counted and not listed."""
_TOTALS: Final = ("messages_in", "bytes_in", "messages_out", "bytes_out")
_SUMS: Final = ("messages", "bytes", "late", "failed", "doubled", "reordered", "latency_sum")

Rows = list[dict[str, Any]]


class Source(NamedTuple):
    """How whole a table is.

    Attributes:
        traces: rows, each trace once.
        doubled: rows that were there once more (the queue itself had them twice).
        late: rows that came into the queue long after their time.
    """

    traces: int = 0
    doubled: int = 0
    late: int = 0


class Traces:
    """The tables of one run.

    Args:
        spark: does the work.
        folder: of the run.
        leave_out: go on without files that are damaged.

    Attributes:
        left_out: those, with what is wrong.

    Raises:
        TracesError: a file is damaged; names it.
    """

    def __init__(self, spark: SparkSession, folder: Path, *, leave_out: bool = False) -> None:
        self._spark = spark
        self._folder = folder
        self.left_out: list[str] = []
        self._raw = {table: self._read(table, leave_out) for table in SCHEMAS}
        self._tables: dict[str, DataFrame] = {}
        self._sources: dict[str, Source] = {}

    def table(self, name: str) -> DataFrame:
        """A table, each trace once; with the columns `run` and `minute`."""
        if name not in self._tables:
            raw = self._raw[name]
            twice = self.source(name).doubled > 0
            self._tables[name] = raw.dropDuplicates(["sender", "sequence"]) if twice else raw
        return self._tables[name]

    def source(self, name: str) -> Source:
        """How whole a table is."""
        if name not in self._sources:
            late = f.col("appended_us") - f.col("time_us") > LATE_SECONDS * MICROSECONDS
            (row,) = _rows(
                self._raw[name].agg(
                    f.count("*").alias("rows"),
                    f.count_distinct("sender", "sequence").alias("traces"),
                    f.count_if(late).alias("late"),
                )
            )
            twice = row["rows"] - row["traces"]
            self._sources[name] = Source(row["traces"], twice, row["late"])
        return self._sources[name]

    @cached_property
    def missing(self) -> int:
        """Traces that were published and are nowhere, as the numbers of their sources tell."""
        numbers = self._raw[KPI].select("sender", "source", "number")
        for name in (LATENCY, EVENTS):
            numbers = numbers.unionAll(self._raw[name].select("sender", "source", "number"))
        each = numbers.groupBy("sender", "source").agg(
            (f.max("number") + 1 - f.count_distinct("number")).alias("missing")
        )
        (row,) = _rows(each.agg(f.sum("missing").alias("missing")))
        return int(row["missing"] or 0)

    # --- the statistics stream --------------------------------------------------------------------

    def queue(self) -> Rows:
        """Documents about the queue, in order of time: `time_us`, `exchanges`, `publishers`,
        `waiting`, `limit`."""
        rows = self._of_kind("queue").select(
            "time_us", "exchanges", "publishers", "waiting",
            f.col("limit_bytes_per_second").alias("limit"),
        )  # fmt: skip
        return _rows(rows.orderBy("time_us"))

    def dropped(self) -> int:
        """Documents that taps have lost, as far as they know."""
        each = self.table(KPI).groupBy("source").agg(f.max("dropped").alias("dropped"))
        (row,) = _rows(each.agg(f.sum("dropped").alias("dropped")))
        return int(row["dropped"] or 0)

    def periods(self) -> DataFrame:
        """What each exchange did between two of its documents: `exchange`, `epoch`, `begin_us`,
        `end_us`, growth of the totals, `publishers`, `cpu_percent`, and whether this is a `hole`.

        The first period of an exchange that came while somebody listened begins with the exchange.
        """
        documents = self._of_kind("exchange").select(
            "time_us", "number", "queue_id", "exchange", "epoch", "uptime_seconds", "publishers",
            "cpu_percent", "leaving", *_TOTALS,
        )  # fmt: skip
        order = Window.partitionBy("queue_id", "exchange", "epoch").orderBy("time_us", "number")
        first_us = f.min("time_us").over(Window.partitionBy())
        born_us = f.col("time_us") - (f.col("uptime_seconds") * MICROSECONDS).cast("long")
        born = f.when(born_us >= first_us, born_us)
        growth = [
            (f.col(name) - f.lag(name, 1, 0).over(order)).alias(f"d_{name}") for name in _TOTALS
        ]
        rows = documents.select(
            "exchange", "epoch", "publishers", "cpu_percent", "leaving",
            f.coalesce(f.lag("time_us").over(order), born).alias("begin_us"),
            f.col("time_us").alias("end_us"), *growth,
        )  # fmt: skip
        grown = f.lit(True)
        for name in _TOTALS:
            grown = grown & (f.col(f"d_{name}") >= 0)
        rows = rows.filter(f.col("begin_us").isNotNull() & (f.col("end_us") > f.col("begin_us")))
        return rows.filter(grown).withColumn("hole", _length() > self._hole_seconds * MICROSECONDS)

    def exchange_windows(self, grid: Grid) -> Rows:
        """What each exchange did in each window: `window`, `exchange`, the totals, `seconds` of the
        window that its documents cover, `cpu_seconds`, `publishers` at last. Holes are left out.
        """
        part = f.col("overlap_us") / _length()
        spread = _spread(self.periods().filter(~f.col("hole")), grid)
        rows = spread.groupBy("window", "exchange").agg(
            *(f.sum(f.col(f"d_{name}") * part).alias(name) for name in _TOTALS),
            (f.sum("overlap_us") / MICROSECONDS).alias("seconds"),
            (f.sum(f.col("cpu_percent") / 100 * f.col("overlap_us")) / MICROSECONDS).alias(
                "cpu_seconds"
            ),
            f.max_by("publishers", "end_us").alias("publishers"),
        )
        return _rows(rows.orderBy("window", "exchange"))

    def holes(self) -> Rows:
        """Periods in which an exchange said nothing: `exchange`, `begin_us`, `end_us`."""
        rows = self.periods().filter("hole").select("exchange", "begin_us", "end_us")
        return _rows(rows.orderBy("begin_us").limit(ROWS_MAX))

    def lives(self) -> Rows:
        """Each process of an exchange: `exchange`, `epoch`, `first_us` and `last_us` that was heard
        of it, `leaving`: whether it was to go then."""
        rows = self._of_kind("exchange").groupBy("exchange", "epoch").agg(
            f.min("time_us").alias("first_us"), f.max("time_us").alias("last_us"),
            f.max_by("leaving", "time_us").alias("leaving"),
        )  # fmt: skip
        return _rows(rows.orderBy("first_us"))

    def overloads(self) -> Rows:
        """Periods in which an exchange got more than 1.10 of its limit: `exchange`, `begin_us`,
        `end_us`. The limit is the one that was told last."""
        limits = self._of_kind("queue").select(
            "time_us", f.col("limit_bytes_per_second").alias("limit")
        )
        periods = self.periods().filter(~f.col("hole")).select(
            "exchange", "begin_us", f.col("end_us").alias("time_us"), "d_bytes_in",
        )  # fmt: skip
        both = periods.unionByName(limits, allowMissingColumns=True)
        past = Window.partitionBy().orderBy("time_us").rowsBetween(Window.unboundedPreceding, 0)
        coming = Window.partitionBy().orderBy("time_us").rowsBetween(0, Window.unboundedFollowing)
        limit = f.coalesce(
            f.last("limit", ignorenulls=True).over(past),
            f.first("limit", ignorenulls=True).over(coming),
        )
        per_second = f.col("d_bytes_in") * MICROSECONDS / (f.col("time_us") - f.col("begin_us"))
        above = both.withColumn("above", per_second > OVERLOAD * limit).filter("above")
        rows = above.select("exchange", "begin_us", f.col("time_us").alias("end_us"))
        return _rows(rows.orderBy("begin_us").limit(ROWS_MAX))

    def moves(self) -> Rows:
        """Moves and how they went, in order of time."""
        rows = self._of_kind("move").select(
            "time_us", "state", "sources", "targets", "publisher", "reason", "pause_ms"
        )
        return _rows(rows.orderBy("time_us", "number").limit(ROWS_MAX))

    def scalings(self) -> Rows:
        """Exchanges that were added or removed, or could not be, in order of time."""
        rows = self._of_kind("scale").select(
            "time_us", "direction", "state", "exchange", "reason", "seconds"
        )
        return _rows(rows.orderBy("time_us", "number").limit(ROWS_MAX))

    # --- clients and driver -----------------------------------------------------------------------

    def clients(self, grid: Grid) -> Rows:
        """What all clients of a role did in each window, summed up: `window`, `role`, the columns
        of the table, and the largest `clock_error`."""
        rows = self._client_windows(grid).groupBy("window", "role").agg(
            *(f.sum(name).alias(name) for name in _SUMS),
            f.max("clock_error").alias("clock_error"),
        )  # fmt: skip
        return _rows(rows.orderBy("window", "role"))

    def latencies(self, grid: Grid) -> Rows:
        """Merged histograms: `window`, `role`, `buckets` and `counts`, side by side."""
        pairs = f.explode(f.arrays_zip("buckets", "counts")).alias("pair")
        each = self._client_windows(grid).select("window", "role", pairs)
        merged = each.groupBy("window", "role", f.col("pair.buckets").alias("bucket")).agg(
            f.sum("pair.counts").alias("count")
        )
        rows = merged.groupBy("window", "role").agg(
            f.collect_list("bucket").alias("buckets"), f.collect_list("count").alias("counts")
        )
        return _rows(rows)

    def events(self) -> Rows:
        """What the driver and the tap told: `time_us`, `event`, `exchange`, `text`."""
        rows = self.table(EVENTS).select("time_us", "event", "exchange", "text", "number")
        return _rows(rows.orderBy("time_us", "number").limit(ROWS_MAX))

    def rejected(self) -> Rows:
        """Why messages were no traces: `reason`, how `many`."""
        rows = self.table(REJECTED).groupBy("reason").agg(f.count("*").alias("many"))
        return _rows(rows.orderBy(f.desc("many"), "reason").limit(1_000))

    # --- parts ------------------------------------------------------------------------------------

    def _read(self, table: str, leave_out: bool) -> DataFrame:
        good, bad = sound(self._folder, table, leave_out=leave_out)
        self.left_out += bad
        schema = StructType(
            [
                *from_arrow_schema(SCHEMAS[table]).fields,
                StructField("run", StringType()),
                StructField("minute", IntegerType()),
            ]
        )
        if not good:
            return self._spark.createDataFrame([], schema)
        base = str((self._folder / table).absolute())
        paths = [str(path.absolute()) for path in good] if bad else [base]
        reader = self._spark.read.schema(schema).option("basePath", base)
        return reader.option("pathGlobFilter", "*.parquet").parquet(*paths)

    def _of_kind(self, kind: str) -> DataFrame:
        return self.table(KPI).filter(f.col("kind") == kind)

    def _client_windows(self, grid: Grid) -> DataFrame:
        middle = f.col("begin_us") + f.col("seconds") * MICROSECONDS / 2
        window = f.floor((middle - grid.begin_us) / grid.window_us).cast("int")
        rows = self.table(LATENCY).withColumn("window", window)
        return rows.filter((f.col("window") >= 0) & (f.col("window") < grid.count))

    @cached_property
    def _hole_seconds(self) -> float:
        """How far two documents may be apart, by the usual distance between those of the queue."""
        order = Window.partitionBy().orderBy("time_us")
        apart = (f.col("time_us") - f.lag("time_us").over(order)).alias("apart")
        documents = self._of_kind("queue").select(apart)
        (row,) = _rows(documents.agg(f.median("apart").alias("usual")))
        usual = (row["usual"] or 0.0) / MICROSECONDS
        return max(HOLE_SECONDS, HOLE_PERIODS * usual)

    @property
    def hole_seconds(self) -> float:
        """Documents that are further apart have a hole between them."""
        return self._hole_seconds


def _length() -> Column:
    return f.col("end_us") - f.col("begin_us")


def _spread(periods: DataFrame, grid: Grid) -> DataFrame:
    """Periods cut at the edges of windows: one row for each of both, with `overlap_us`."""
    begin, end, width = f.lit(grid.begin_us), f.lit(grid.end_us), f.lit(grid.window_us)
    inside = periods.filter((f.col("end_us") > begin) & (f.col("begin_us") < end))
    first = f.floor((f.greatest("begin_us", begin) - begin) / width)
    last = f.floor((f.least("end_us", end) - begin - 1) / width)
    cut = inside.withColumn("window", f.explode(f.sequence(first, last)).cast("int"))
    low = begin + f.col("window").cast("long") * width
    return cut.withColumn(
        "overlap_us",
        f.least("end_us", low + width, end) - f.greatest("begin_us", low, begin),
    )


def _rows(frame: DataFrame) -> Rows:
    found: Rows = frame.toArrow().to_pylist()
    return found
