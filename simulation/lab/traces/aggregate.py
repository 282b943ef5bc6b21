"""Batch queries over the traces of one run: whatever is large is made small by Spark.

Windows are those of event time, counted from the beginning of the load, so what came late stands
where it belongs. Rates follow from the growth of totals between two documents of an exchange.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from roq.simulation.lab.traces.files import sound
from roq.simulation.lab.traces.grid import MICROSECONDS, Grid
from roq.simulation.lab.traces.tables import EVENTS, KPI, LATENCY, REJECTED, SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

HOLE_SECONDS: Final = 3.0
"""Two documents further apart than this have a hole between them, or three KPI periods."""
HOLE_PERIODS: Final = 3.0
LATE_SECONDS: Final = 10.0
"""A trace that stands in the queue so long after its time came late."""
OVERLOAD: Final = 1.10
"""Of the limit, as for the policies."""
LIMITS_MAX: Final = 100
"""Changes of a queue's limit that are looked at; the last of them holds from then on."""
ROWS_MAX: Final = 500_000
"""Of lists of what is told one by one: the first ones are taken."""
_TOTALS: Final = ("messages_in", "bytes_in", "messages_out", "bytes_out")
_SUMS: Final = ("messages", "bytes", "late", "failed", "doubled", "reordered", "latency_sum")

Rows = list[dict[str, Any]]


class Wholeness(NamedTuple):
    """How whole the tables are.

    Attributes:
        traces: that are kept, each counted once.
        doubled: rows beyond that (the queue of traces itself had them twice).
        missing: traces that were published and are nowhere, as the numbers of their sources tell.
        late: traces that came into the queue long after their time.
        rejected: messages that were no traces of this run.
        dropped: documents that taps have lost, as far as they know.
    """

    traces: int
    doubled: int
    missing: int
    late: int
    rejected: int
    dropped: int


class Traces:
    """The tables of one run. A context manager: what it keeps in Spark's memory goes at the end.

    Args:
        spark: does the work.
        folder: of the run.
        leave_out: go on without files that are damaged.

    Attributes:
        left_out: those, with what is wrong.
        rows_left_out: by what was asked for: rows beyond `ROWS_MAX`.

    Raises:
        TracesError: a file is damaged; names it.
    """

    def __init__(self, spark: SparkSession, folder: Path, *, leave_out: bool = False) -> None:
        self._spark = spark
        self._folder = folder
        self.left_out: list[str] = []
        self.rows_left_out: dict[str, int] = {}
        self._raw = {table: self._read(table, leave_out) for table in SCHEMAS}
        self._kept: list[DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for kept in self._kept:
            kept.unpersist()

    def table(self, name: str) -> DataFrame:
        """A table, each trace once; with the columns `run` and `minute`."""
        twice = any(row["rows"] > row["traces"] for row in self._sources if row["table"] == name)
        key = ["sender", "sequence", *(["topic"] if name == REJECTED else [])]
        return self._raw[name].dropDuplicates(key) if twice else self._raw[name]

    def wholeness(self) -> Wholeness:
        """How whole the tables are."""
        kept = [row for row in self._sources if row["table"] != REJECTED]
        rejected = [row for row in self._sources if row["table"] == REJECTED]
        taps: dict[str, int] = {}
        sources: dict[tuple[str, str], tuple[int, int]] = {}
        for row in kept:
            name = (row["sender"], row["source"])
            last, count = sources.get(name, (-1, 0))
            sources[name] = (max(last, row["last"]), count + row["traces"])
            taps[row["source"]] = max(taps.get(row["source"], 0), row["dropped"] or 0)
        return Wholeness(
            traces=sum(row["traces"] for row in kept),
            doubled=sum(row["rows"] - row["traces"] for row in kept),
            missing=sum(max(0, last + 1 - count) for last, count in sources.values()),
            late=sum(row["late"] for row in kept),
            rejected=sum(row["traces"] for row in rejected),
            dropped=sum(taps.values()),
        )

    @cached_property
    def _sources(self) -> Rows:
        """Who has told how much: `table`, `sender`, `source`, `rows`, `traces`, `late`, the `last`
        number, and what was `dropped`."""
        late = f.col("appended_us") - f.col("time_us") > LATE_SECONDS * MICROSECONDS
        each: DataFrame | None = None
        for name, raw in self._raw.items():
            dropped = f.col("dropped") if name == KPI else f.lit(None).cast("long")
            # Sequences are those of a topic; other tables hold what came under one.
            topic = f.col("topic") if name == REJECTED else f.lit(None).cast("string")
            part = raw.select(
                f.lit(name).alias("table"), "sender", "source", topic.alias("topic"), "sequence",
                "number",
                late.alias("late"), dropped.alias("dropped"),
            )  # fmt: skip
            each = part if each is None else each.unionAll(part)
        assert each is not None  # noqa: S101 - there are tables
        once = each.groupBy("table", "sender", "source", "topic", "sequence").agg(
            f.count("*").alias("rows"), f.max("number").alias("number"),
            f.max("late").alias("late"), f.max("dropped").alias("dropped"),
        )  # fmt: skip
        return _rows(
            once.groupBy("table", "sender", "source").agg(
                f.sum("rows").alias("rows"), f.count("*").alias("traces"),
                f.count_if("late").alias("late"), f.max("number").alias("last"),
                f.max("dropped").alias("dropped"),
            )
        )  # fmt: skip

    # --- what is told one by one ------------------------------------------------------------------

    @property
    def queue(self) -> Rows:
        """Documents about the queue, in order of time: `time_us`, `exchanges`, and its `limit`."""
        return self._told["queue"]

    @property
    def moves(self) -> Rows:
        """Moves and how they went, in order of time."""
        return self._told["move"]

    @property
    def scalings(self) -> Rows:
        """Exchanges that were added or removed, or could not be, in order of time."""
        return self._told["scale"]

    @property
    def events(self) -> Rows:
        """What the driver and the tap told, in order of time."""
        return self._told["event"]

    @property
    def lives(self) -> Rows:
        """Each process of an exchange: `exchange`, `epoch`, `first_us` and `last_us` that was heard
        of it, `leaving`: whether it was to go then."""
        return self._told["life"]

    @cached_property
    def _told(self) -> dict[str, Rows]:
        """All of these, asked for at once."""
        kpi = self.table(KPI)
        parts = kpi.filter(f.col("kind").isin("queue", "move", "scale")).select(
            "kind", "time_us", "number", "exchange", "exchanges",
            f.col("limit_bytes_per_second").alias("limit"), "state", "sources", "targets",
            "publisher", "reason", "pause_ms", "direction", "seconds",
        )  # fmt: skip
        events = self.table(EVENTS).select(
            f.lit("event").alias("kind"), "time_us", "number", "exchange", "event", "text"
        )
        lives = kpi.filter("kind = 'exchange'").groupBy("exchange", "epoch").agg(
            f.min("time_us").alias("first_us"), f.max("time_us").alias("last_us"),
            f.max_by("leaving", "time_us").alias("leaving"),
        ).withColumn("kind", f.lit("life")).withColumn("time_us", f.col("first_us"))  # fmt: skip
        both = parts.unionByName(events, allowMissingColumns=True)
        each = both.unionByName(lives, allowMissingColumns=True)
        found: dict[str, Rows] = {name: [] for name in ("queue", "move", "scale", "event", "life")}
        rows, self.rows_left_out["told"] = first_rows(each.orderBy("time_us", "number"))
        for row in rows:
            found[row["kind"]].append(row)
        return found

    @cached_property
    def limits(self) -> Rows:
        """Documents of the queue with another limit than the one before."""
        return changes_of_limit(self.queue)

    @property
    def limits_left_out(self) -> int:
        """Changes of the limit that are not looked at."""
        return max(0, len(self.limits) - LIMITS_MAX)

    # --- exchanges --------------------------------------------------------------------------------

    @cached_property
    def hole_seconds(self) -> float:
        """Documents that are further apart have a hole between them."""
        apart = [after["time_us"] - before["time_us"] for before, after in pairwise(self.queue)]
        usual = median(apart) / MICROSECONDS if apart else 0.0
        return max(HOLE_SECONDS, HOLE_PERIODS * usual)

    @cached_property
    def periods(self) -> DataFrame:
        """What each exchange did between two of its documents: `exchange`, `epoch`, `begin_us`,
        `end_us`, growth of the totals, `publishers`, `cpu_percent`, and whether this is a `hole`.

        The first period of an exchange that came while the tap listened begins with the exchange.
        """
        documents = self.table(KPI).filter("kind = 'exchange'").select(
            "time_us", "number", "queue_id", "exchange", "epoch", "uptime_seconds", "publishers",
            "cpu_percent", *_TOTALS,
        )  # fmt: skip
        order = Window.partitionBy("queue_id", "exchange", "epoch").orderBy("time_us", "number")
        listened_us = self.queue[0]["time_us"] if self.queue else 0
        born_us = f.col("time_us") - (f.col("uptime_seconds") * MICROSECONDS).cast("long")
        growth = [
            (f.col(name) - f.lag(name, 1, 0).over(order)).alias(f"d_{name}") for name in _TOTALS
        ]
        rows = documents.select(
            "exchange", "epoch", "publishers", "cpu_percent",
            f.coalesce(
                f.lag("time_us").over(order), f.when(born_us >= listened_us, born_us)
            ).alias("begin_us"),
            f.col("time_us").alias("end_us"), *growth,
        )  # fmt: skip
        for name in _TOTALS:
            rows = rows.filter(f.col(f"d_{name}") >= 0)
        rows = rows.filter(_length() > 0)
        kept = rows.withColumn("hole", _length() > self.hole_seconds * MICROSECONDS).persist()
        self._kept.append(kept)
        return kept

    def exchange_windows(self, grid: Grid) -> Rows:
        """What each exchange did in each window: `window`, `exchange`, the totals, `seconds` of the
        window that its documents cover, `cpu_seconds`, `publishers` at last. Holes are left out.
        """
        part = f.col("overlap_us") / _length()
        spread = _spread(self.periods.filter(~f.col("hole")), grid)
        rows = spread.groupBy("window", "exchange").agg(
            *(f.sum(f.col(f"d_{name}") * part).alias(name) for name in _TOTALS),
            (f.sum("overlap_us") / MICROSECONDS).alias("seconds"),
            (f.sum(f.col("cpu_percent") / 100 * f.col("overlap_us")) / MICROSECONDS).alias(
                "cpu_seconds"
            ),
            f.max_by("publishers", "end_us").alias("publishers"),
        )
        return sorted(_rows(rows), key=itemgetter("window", "exchange"))

    def unusual(self) -> Rows:
        """Periods of an exchange that are a `hole`, or in which it got more than 1.10 of the limit
        that was told last: `exchange`, `begin_us`, `end_us`, in order of time."""
        per_second = f.col("d_bytes_in") * MICROSECONDS / _length()
        found = self.periods.filter(f.col("hole") | (per_second > OVERLOAD * self._limit()))
        ordered = found.select("exchange", "begin_us", "end_us", "hole").orderBy("begin_us")
        rows, self.rows_left_out["unusual"] = first_rows(ordered)
        return rows

    # --- clients ----------------------------------------------------------------------------------

    def clients(self, grid: Grid) -> Rows:
        """What all clients of a role did in each window, summed up: `window`, `role`, the columns
        of the table, and the largest `clock_error`."""
        rows = self._client_windows(grid).groupBy("window", "role").agg(
            *(f.sum(name).alias(name) for name in _SUMS),
            f.max("clock_error").alias("clock_error"),
        )  # fmt: skip
        return _rows(rows)

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

    def rejected(self) -> Rows:
        """Why messages were no traces: `reason`, and how `many`, the most frequent first."""
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
            none = (f.lit(None).cast(each.dataType).alias(each.name) for each in schema.fields)
            return self._spark.range(0).select(*none)
        base = str((self._folder / table).absolute())
        paths = [str(path.absolute()) for path in good] if bad else [base]
        reader = self._spark.read.schema(schema).option("basePath", base)
        return reader.option("pathGlobFilter", "*.parquet").parquet(*paths)

    def _client_windows(self, grid: Grid) -> DataFrame:
        middle = f.col("begin_us") + f.col("seconds") * MICROSECONDS / 2
        window = f.floor((middle - grid.begin_us) / grid.window_us).cast("int")
        rows = self.table(LATENCY).withColumn("window", window)
        return rows.filter((f.col("window") >= 0) & (f.col("window") < grid.count))

    def _limit(self) -> Column:
        """The limit of one exchange at the end of a period; null if no monitor told it."""
        limit = f.lit(None).cast("double")
        for index, change in enumerate(self.limits[:LIMITS_MAX]):
            since = change["time_us"] if index else 0
            limit = f.when(f.col("end_us") >= since, change["limit"]).otherwise(limit)
        return limit


def _length() -> Column:
    return f.col("end_us") - f.col("begin_us")


def _spread(periods: DataFrame, grid: Grid) -> DataFrame:
    """Periods cut at the edges of windows: one row for each of both, with `overlap_us`."""
    begin, end, width = f.lit(grid.begin_us), f.lit(grid.end_us), f.lit(grid.window_us)
    inside = periods.filter((f.col("end_us") > begin) & (f.col("begin_us") < end))
    first = f.floor((f.greatest("begin_us", begin) - begin) / width)
    last = f.floor((f.least("end_us", end) - begin - 1) / width)
    cut = inside.withColumn("window", f.explode(f.sequence(first, last)))
    low = begin + f.col("window") * width
    return cut.withColumn(
        "overlap_us",
        f.least("end_us", low + width, end) - f.greatest("begin_us", low, begin),
    )


def changes_of_limit(queue: Rows) -> Rows:
    """Documents about the queue with another limit than the one before; none if none was told."""
    return [
        after
        for before, after in pairwise([{"limit": None}, *queue])
        if after["limit"] != before["limit"]
    ]


def first_rows(frame: DataFrame, most: int = ROWS_MAX) -> tuple[Rows, int]:
    """So many rows at most, and how many are left out (counted only if there may be any)."""
    rows = _rows(frame.limit(most))
    return rows, frame.count() - most if len(rows) == most else 0


def _rows(frame: DataFrame) -> Rows:
    found: Rows = frame.toArrow().to_pylist()
    return found
