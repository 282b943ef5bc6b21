"""Batch queries over the traces of one run: whatever is large is made small by Spark.

Windows are those of event time, counted from the beginning of the load, so what came late stands
where it belongs. Rates follow from the growth of totals between two documents of an exchange.
What comes back to the driver is a row for each window and exchange, and what is listed for people.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cached_property
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pyspark.sql import Window
from pyspark.sql import functions as f

from roq.demo.latency import middle_of
from roq.simulation.lab.archive.document import RATES, LatencyWindow
from roq.simulation.lab.traces.collect import read, reason
from roq.simulation.lab.traces.grid import MICROSECONDS, Grid
from roq.simulation.lab.traces.place import Damaged, Place
from roq.simulation.lab.traces.tables import EVENTS, KPI, LATENCY, REJECTED, SCHEMAS, TABLE

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
ROWS_MAX: Final = 20_000
"""Of lists of what is told one by one: the first ones are taken. Figures know all of them."""
MOVED: Final = "accepted"
NOT_MOVED: Final = ("failed", "given_up")
GRACE_US: Final = 2 * MICROSECONDS
"""A move is told so much later than it relieves the exchange."""
WHOLE: Final = -1
"""The window that stands for all of them."""
_PERCENTILES: Final = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9, "most": 100}
_SUMS: Final = ("messages", "bytes", "late", "failed", "doubled", "reordered", "latency_sum")
_FILE: Final = re.compile(r"/(batches=\d+-\d+/[^\s:'\"]+\.parquet)")

Row = dict[str, Any]
Rows = list[Row]
Latencies = dict[tuple[str, int], LatencyWindow]
"""By role and window."""


class Wholeness(NamedTuple):
    """How whole the table is.

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
    """The table of one run. A context manager: what it keeps in Spark's memory goes at the end.

    Args:
        spark: does the work.
        place: of the table.
        without: files that are left out.

    Attributes:
        left_out: by what was asked for: rows beyond `ROWS_MAX`.

    Raises:
        Damaged: a file cannot be read, or holds something else; any query finds that.
    """

    def __init__(self, spark: SparkSession, place: Place, *, without: Collection[str] = ()) -> None:
        self.left_out: dict[str, int] = {}
        self._place = place
        self._raw = read(spark, place, [each for each in place.files() if each not in without])
        self._persisted: list[DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for kept in self._persisted:
            kept.unpersist()

    def table(self, name: str) -> DataFrame:
        """All rows of a kind, each trace once."""
        twice = any(row["rows"] > row["traces"] for row in self._sources if row[TABLE] == name)
        rows = self._raw.filter(f.col(TABLE) == name).select(*SCHEMAS[name].names)
        key = ["sender", "sequence", *(["topic"] if name == REJECTED else [])]
        return rows.dropDuplicates(key) if twice else rows

    def wholeness(self) -> Wholeness:
        """How whole the table is."""
        kept = [row for row in self._sources if row[TABLE] != REJECTED]
        rejected = [row for row in self._sources if row[TABLE] == REJECTED]
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
        number, and what was `dropped`. A row without a sender is none of ours: its `file`."""
        late = f.col("appended_us") - f.col("time_us") > LATE_SECONDS * MICROSECONDS
        foreign = f.when(f.col("sender").isNull(), f.col("file"))
        # Sequences are those of a topic; other kinds hold what came under one.
        key = (TABLE, "sender", "source", "topic", "sequence")
        once = self._raw.groupBy(*key).agg(
            f.count("*").alias("rows"), f.max("number").alias("number"),
            f.max(late).alias("late"), f.max("dropped").alias("dropped"),
            f.min(foreign).alias("file"),
        )  # fmt: skip
        found = self._rows(
            once.groupBy(TABLE, "sender", "source").agg(
                f.sum("rows").alias("rows"), f.count("*").alias("traces"),
                f.count_if("late").alias("late"), f.max("number").alias("last"),
                f.max("dropped").alias("dropped"), f.min("file").alias("file"),
            )
        )  # fmt: skip
        for row in found:
            if row["file"]:
                raise self._damaged(row["file"], "it holds rows that are no traces")
        return found

    # --- the queue --------------------------------------------------------------------------------

    @cached_property
    def _queue(self) -> DataFrame:
        """Documents of the queue, each with when and with which limit the one before it came."""
        rows = self.table(KPI).filter("kind = 'queue'").select(
            "queue", "time_us", "exchanges", f.col("limit_bytes_per_second").alias("limit"),
            "number",
        )  # fmt: skip
        order = Window.partitionBy("queue").orderBy("time_us", "number")
        before = (f.lag(name).over(order).alias(f"{name}_before") for name in ("time_us", "limit"))
        return self._keep(rows.select("*", *before))

    @cached_property
    def heard(self) -> Row:
        """Of the queue: `first_us` and `last_us` that it was heard, and the `usual` microseconds
        between two documents."""
        apart = f.col("time_us") - f.col("time_us_before")
        return self._row(self._queue, {
            "first_us": f.min("time_us"), "last_us": f.max("time_us"), "usual": f.median(apart),
        })  # fmt: skip

    def exchanges(self, grid: Grid) -> Row:
        """How many exchanges the queue had under load: `most`, and `last`."""
        number, inside = f.col("exchanges"), _within(grid)
        newest = f.max_by(number, "time_us")
        return self._row(self._queue, {
            "most": f.coalesce(f.max(f.when(inside, number)), newest),
            "last": f.coalesce(f.max_by(number, f.when(inside, f.col("time_us"))), newest),
        })  # fmt: skip

    def silences(self) -> Rows:
        """Documents of the queue with a hole before them: `begin_us`, `end_us`, in order."""
        begin, end = f.col("time_us_before"), f.col("time_us")
        holes = self._queue.filter(end - begin > self.hole_seconds * MICROSECONDS)
        rows = holes.select(begin.alias("begin_us"), end.alias("end_us"))
        return self._first(rows.orderBy("begin_us"), "silences")

    @cached_property
    def limits(self) -> Rows:
        """Documents of the queue with another limit than the one before: `time_us`, `limit`."""
        changes = self._queue.filter(~f.col("limit").eqNullSafe(f.col("limit_before")))
        rows = changes.select("time_us", "limit").orderBy("time_us", "number")
        return self._first(rows, "limits", LIMITS_MAX)

    @cached_property
    def hole_seconds(self) -> float:
        """Documents that are further apart have a hole between them."""
        return max(HOLE_SECONDS, HOLE_PERIODS * (self.heard["usual"] or 0.0) / MICROSECONDS)

    # --- what is told one by one ------------------------------------------------------------------

    def told(self) -> Rows:
        """Moves and scalings that have ended, and what driver and tap told, in order of time;
        `kind` is `move`, `scale` or `event`."""
        ended = f.col("state").isin("done", MOVED, *NOT_MOVED)
        parts = self.table(KPI).filter(f.col("kind").isin("move", "scale") & ended).select(
            "kind", "time_us", "number", "exchange", "state", "sources", "targets", "publisher",
            "reason", "direction",
        )  # fmt: skip
        events = self.table(EVENTS).select(
            f.lit("event").alias("kind"), "time_us", "number", "exchange", "event", "text"
        )
        each = parts.unionByName(events, allowMissingColumns=True)
        return self._first(each.orderBy("time_us", "number"), "told")

    def lives(self) -> Rows:
        """Each process of an exchange: `exchange`, `epoch`, `first_us` and `last_us` that was heard
        of it, `leaving`: whether it was to go then."""
        documents = self.table(KPI).filter("kind = 'exchange'").groupBy("exchange", "epoch")
        rows = documents.agg(
            f.min("time_us").alias("first_us"), f.max("time_us").alias("last_us"),
            f.max_by("leaving", "time_us").alias("leaving"),
        )  # fmt: skip
        return self._first(rows.orderBy("first_us"), "lives")

    def elasticity(self, grid: Grid) -> Row:
        """Moves and scalings under load, counted; null where there was none to measure."""
        move, scale = f.col("kind") == "move", f.col("kind") == "scale"
        moved, state = move & (f.col("state") == MOVED), f.col("state")

        def scaled(direction: str) -> Column:
            return scale & (f.col("direction") == direction) & (state == "done")

        rows = self.table(KPI).filter(f.col("kind").isin("move", "scale") & _within(grid))
        return self._row(rows, {
            "moves": f.count_if(moved),
            "moves_failed": f.count_if(move & state.isin(*NOT_MOVED)),
            "scale_outs": f.count_if(scaled("out")),
            "scale_ins": f.count_if(scaled("in")),
            "scale_failed": f.count_if(scale & (state == "failed")),
            "move_pause_mean_ms": f.avg(f.when(moved, f.col("pause_ms"))),
            "move_pause_max_ms": f.max(f.when(moved, f.col("pause_ms"))),
            "scale_out_seconds": f.avg(f.when(scaled("out"), f.col("seconds"))),
        })  # fmt: skip

    # --- exchanges --------------------------------------------------------------------------------

    @cached_property
    def periods(self) -> DataFrame:
        """What each exchange did between two of its documents: `exchange`, `epoch`, `begin_us`,
        `end_us`, growth of the totals, `publishers`, `cpu_percent`, and whether this is a `hole`.

        The first period of an exchange that came while the tap listened begins with the exchange.
        """
        documents = self.table(KPI).filter("kind = 'exchange'")
        order = Window.partitionBy("queue_id", "exchange", "epoch").orderBy("time_us", "number")
        listened_us = self.heard["first_us"] or 0
        born_us = f.col("time_us") - (f.col("uptime_seconds") * MICROSECONDS).cast("long")
        growth = [
            (f.col(name) - f.lag(name, 1, 0).over(order)).alias(f"d_{name}") for name in RATES
        ]
        rows = documents.select(
            "exchange", "epoch", "publishers", "cpu_percent",
            f.coalesce(
                f.lag("time_us").over(order), f.when(born_us >= listened_us, born_us)
            ).alias("begin_us"),
            f.col("time_us").alias("end_us"), *growth,
        )  # fmt: skip
        for name in RATES:
            rows = rows.filter(f.col(f"d_{name}") >= 0)
        rows = rows.filter(_length() > 0)
        return self._keep(rows.withColumn("hole", _length() > self.hole_seconds * MICROSECONDS))

    def exchange_windows(self, grid: Grid) -> Rows:
        """What each exchange did in each window: `window`, `exchange`, the totals, `seconds` of the
        window that its documents cover, `cpu_seconds`, `publishers` at last. Holes are left out.
        """
        part = f.col("overlap_us") / _length()
        spread = _spread(self.periods.filter(~f.col("hole")), grid)
        rows = spread.groupBy("window", "exchange").agg(
            *(f.sum(f.col(f"d_{name}") * part).alias(name) for name in RATES),
            (f.sum("overlap_us") / MICROSECONDS).alias("seconds"),
            (f.sum(f.col("cpu_percent") / 100 * f.col("overlap_us")) / MICROSECONDS).alias(
                "cpu_seconds"
            ),
            f.max_by("publishers", "end_us").alias("publishers"),
        )
        return sorted(self._rows(rows), key=itemgetter("window", "exchange"))

    def holes(self) -> Rows:
        """When nothing was heard of one exchange that serves: `exchange`, `begin_us`, `end_us`."""
        rows = self.periods.filter("hole").select("exchange", "begin_us", "end_us")
        return self._first(rows.orderBy("begin_us"), "holes")

    def overloads(self, grid: Grid) -> Row:
        """Overloads under load, periods that touch being one: the sum of their `seconds`; of those
        that were answered, `mean` and `most` seconds until a publisher had moved away."""
        found = self._spans(grid)
        moves = self.table(KPI).filter((f.col("kind") == "move") & (f.col("state") == MOVED))
        away = moves.select(
            f.explode("sources").alias("source"), f.col("time_us").alias("moved_us")
        )
        answered = (f.col("exchange") == f.col("source")) & f.col("moved_us").between(
            f.col("begin_us"), f.col("end_us") + GRACE_US
        )
        each = found.join(away, answered, "left").groupBy("exchange", "begin_us", "end_us")
        first = each.agg((f.min("moved_us") - f.col("begin_us")).alias("waited_us"))
        return self._row(first, {
            "seconds": f.sum(_length()) / MICROSECONDS,
            "mean": f.avg("waited_us") / MICROSECONDS,
            "most": f.max("waited_us") / MICROSECONDS,
        })  # fmt: skip

    def _spans(self, grid: Grid) -> DataFrame:
        """Overloads: `exchange`, `begin_us`, `end_us`."""
        per_second = f.col("d_bytes_in") * MICROSECONDS / _length()
        over = self.periods.filter(~f.col("hole") & (per_second > OVERLOAD * self._limit())).select(
            "exchange", f.greatest("begin_us", f.lit(grid.begin_us)).alias("begin_us"),
            f.least("end_us", f.lit(grid.end_us)).alias("end_us"),
        )  # fmt: skip
        order = Window.partitionBy("exchange").orderBy("begin_us", "end_us")
        until = f.max("end_us").over(order.rowsBetween(Window.unboundedPreceding, -1))
        begins = f.coalesce(f.col("begin_us") > until, f.lit(True)).cast("int")
        marked = over.filter(_length() > 0).withColumn("begins", begins)
        spans = marked.withColumn("span", f.sum("begins").over(order)).groupBy("exchange", "span")
        return spans.agg(f.min("begin_us").alias("begin_us"), f.max("end_us").alias("end_us"))

    def _limit(self) -> Column:
        """The limit of one exchange at the end of a period; null if no monitor told it."""
        limit = f.lit(None).cast("double")
        for index, change in enumerate(self.limits):
            since = change["time_us"] if index else 0
            limit = f.when(f.col("end_us") >= since, change["limit"]).otherwise(limit)
        return limit

    # --- clients ----------------------------------------------------------------------------------

    def clients(self, grid: Grid) -> Rows:
        """What all clients of a role did in each window, summed up: `window`, `role`, the columns
        of the table, and the largest `clock_error`."""
        rows = self._client_windows(grid).groupBy("window", "role").agg(
            *(f.sum(name).alias(name) for name in _SUMS),
            f.max("clock_error").alias("clock_error"),
        )  # fmt: skip
        return self._rows(rows)

    def latencies(self, grid: Grid, sums: Rows) -> Latencies:
        """What the merged histograms of all clients say, of each window and of all (`WHOLE`).

        Args:
            grid: the windows.
            sums: of `clients`.
        """
        seconds: dict[tuple[str, int], float] = {}
        for row in sums:
            for window in (row["window"], WHOLE):
                key = row["role"], window
                seconds[key] = seconds.get(key, 0.0) + row["latency_sum"]
        each = self._keep(merged(self._client_windows(grid), "role", "window"))
        all_ = each.groupBy("role", "bucket").agg(f.sum("count").alias("count"))
        both = each.unionByName(all_.withColumn("window", f.lit(WHOLE)))
        return {
            (row["role"], row["window"]): latency(row, seconds[row["role"], row["window"]])
            for row in self._rows(percentiles(both, "role", "window"))
        }

    def rejected(self) -> Rows:
        """Why messages were no traces: `reason`, and how `many`, the most frequent first."""
        rows = self.table(REJECTED).groupBy("reason").agg(f.count("*").alias("many"))
        return self._rows(rows.orderBy(f.desc("many"), "reason").limit(1_000))

    def _client_windows(self, grid: Grid) -> DataFrame:
        middle = f.col("begin_us") + f.col("seconds") * MICROSECONDS / 2
        window = f.floor((middle - grid.begin_us) / grid.window_us).cast("int")
        rows = self.table(LATENCY).withColumn("window", window)
        return rows.filter((f.col("window") >= 0) & (f.col("window") < grid.count))

    # --- parts ------------------------------------------------------------------------------------

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._persisted.append(kept)
        return kept

    def _row(self, frame: DataFrame, figures: dict[str, Column]) -> Row:
        """One row of figures."""
        (row,) = self._rows(frame.agg(*(figure.alias(name) for name, figure in figures.items())))
        return row

    def _first(self, frame: DataFrame, name: str, most: int = ROWS_MAX) -> Rows:
        """So many rows at most; what is left out is counted, if there may be any."""
        rows = self._rows(frame.limit(most))
        self.left_out[name] = frame.count() - most if len(rows) == most else 0
        return rows

    def _rows(self, frame: DataFrame) -> Rows:
        try:
            found: Rows = frame.toArrow().to_pylist()
        except Exception as error:
            if (file := _FILE.search(str(error))) is None:
                raise
            raise self._damaged(file[1], reason(str(error))) from None
        return found

    def _damaged(self, path: str, why: str) -> Damaged:
        found = _FILE.search(f"/{path}")
        file = found[1] if found else path
        return Damaged(file, f"{self._place.uri}/{file}: cannot be read: {why}")


def merged(rows: DataFrame, *by: str) -> DataFrame:
    """Histograms of clients as one: `bucket` and `count`.

    Args:
        rows: of the kind `latency`.
        by: columns whose values are told apart.
    """
    pairs = rows.select(*by, f.explode(f.arrays_zip("buckets", "counts")).alias("pair"))
    each = pairs.groupBy(*by, f.col("pair.buckets").alias("bucket"))
    return each.agg(f.sum("pair.counts").alias("count"))


def percentiles(histograms: DataFrame, *by: str) -> DataFrame:
    """The buckets at which percentiles lie, and the `total`.

    Args:
        histograms: as `merged` gives them.
        by: the columns that it was given.
    """
    each = Window.partitionBy(*by)
    counted = histograms.select(
        *by, "bucket", f.sum("count").over(each.orderBy("bucket")).alias("seen"),
        f.sum("count").over(each).alias("total"),
    )  # fmt: skip
    return counted.groupBy(*by).agg(
        f.max("total").alias("total"),
        *(
            f.min(f.when(f.col("seen") >= f.ceil(f.col("total") * percent / 100), f.col("bucket")))
            .alias(name)
            for name, percent in _PERCENTILES.items()
        ),
    )  # fmt: skip


def latency(row: Row, seconds: float) -> LatencyWindow:
    """A row of `percentiles` in milliseconds.

    Args:
        row: with a total.
        seconds: the sum of all latencies.
    """
    return LatencyWindow(
        count=row["total"],
        mean=1_000 * seconds / row["total"],
        **{name: 1_000 * middle_of(row[name]) for name in _PERCENTILES},
    )


def _within(grid: Grid) -> Column:
    return f.col("time_us").between(grid.begin_us, grid.end_us)


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
