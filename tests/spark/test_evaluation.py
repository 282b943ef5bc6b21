"""Thirty thousand traces: plain pandas finds each figure of the report as well."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from roq.demo.latency import middle_of
from roq.simulation.experiments.evaluation import BEGAN_US, LIMIT, RUN, SECOND_US, story
from roq.simulation.lab.archive.document import Run
from roq.simulation.lab.traces.collect import merge
from roq.simulation.lab.traces.place import Part, Place
from roq.simulation.lab.traces.summary import summarise
from roq.simulation.lab.traces.tables import EVENTS, KPI, LATENCY, TABLE
from roq.simulation.scenario.offered import offered

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

SECONDS = 120
ROWS = 30_000
PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9, "max": 100.0}


def frame(place: Place, table: str) -> pd.DataFrame:
    parts = []
    for path in place.files():
        if f"/{TABLE}={table}/" in path:
            with place.opened(path) as source:
                parts.append(pq.ParquetFile(source).read().to_pandas())
    return pd.concat(parts, ignore_index=True)


def percentiles(clients: pd.DataFrame) -> dict[str, float]:
    """Milliseconds, of merged histograms."""
    counts = clients[["buckets", "counts"]].explode(["buckets", "counts"]).astype("int64")
    merged = counts.groupby("buckets")["counts"].sum().sort_index()
    seen, total = merged.cumsum(), int(merged.sum())
    found = {
        name: 1_000 * middle_of(int(seen.index[(seen >= ceil(total * percent / 100)).argmax()]))
        for name, percent in PERCENTS.items()
    }
    return {"mean": 1_000 * clients["latency_sum"].sum() / total, **found}


def of_clients(place: Place, run: Run) -> dict[str, float]:
    rows = frame(place, LATENCY)
    sender, receiver = (rows[rows["role"] == role] for role in ("publisher", "subscriber"))
    latency, publish = percentiles(receiver), percentiles(sender)
    sent = float(sender["messages"].sum())
    return {
        "sent": sent, "failed": sender["failed"].sum(), "messages_per_second": sent / run.seconds,
        "bytes_per_second": sender["bytes"].sum() / run.seconds,
        "generator_late_share": sender["late"].sum() / sent,
        "load_reached": sent / offered(run.scenario, 0.0, run.seconds).messages,
        "received": receiver["messages"].sum(), "lost": receiver["failed"].sum(),
        "doubled": receiver["doubled"].sum(), "reordered": receiver["reordered"].sum(),
        "clock_error_ms": 1_000 * rows["clock_error"].max(),
        **{f"latency_{name}_ms": value for name, value in latency.items()},
        "publish_mean_ms": publish["mean"], "publish_p99_ms": publish["p99"],
    }  # fmt: skip


def of_exchanges(place: Place, run: Run) -> dict[str, float]:
    told = frame(place, KPI)
    rows = told[told["kind"] == "exchange"].sort_values(["exchange", "time_us"])
    names = ["messages_in", "bytes_in", "messages_out", "bytes_out"]
    each = rows.groupby("exchange")
    grown = rows[names] - each[names].shift()
    begin, end = each["time_us"].shift(), rows["time_us"]
    length = end - begin
    over_us = end.clip(upper=BEGAN_US + run.seconds * SECOND_US) - begin.clip(lower=BEGAN_US)
    share = (over_us / length).where(over_us > 0)
    # Loads of whole windows, out of the two periods that have a part in each of them.
    windows: dict[tuple[int, int], float] = {}
    for exchange, since, until, size in zip(
        rows["exchange"], begin, end, grown["bytes_in"], strict=True
    ):
        for window in range(-1, SECONDS + 1) if since == since else ():  # noqa: PLR0124 - no NaN
            low = BEGAN_US + window * SECOND_US
            part = min(until, low + SECOND_US) - max(since, low)
            if part > 0 and 0 <= window < SECONDS:
                key = (window, int(exchange))
                windows[key] = windows.get(key, 0.0) + size * part / (until - since)
    loads = pd.Series(windows).unstack()
    last = loads.iloc[-ceil(0.1 * SECONDS) :].sum()
    over = grown["bytes_in"] * SECOND_US / length > 1.1 * LIMIT
    over_begin = begin.where(over & share.notna()).clip(lower=BEGAN_US)
    messages = (grown["messages_in"] * share).sum()
    served = over_us.where(over_us > 0).sum() / SECOND_US
    moved = told[told["kind"] == "move"]["time_us"].min()
    return {
        **{f"exchange_{name}": (grown[name] * share).sum() for name in names},
        "exchange_hours": served / 3_600, "cpu_seconds": 0.25 * served,
        "cpu_seconds_per_million": 0.25 * served / messages * 1e6,
        "imbalance_mean": (loads.max(axis=1) / loads.mean(axis=1)).mean(),
        "imbalance_last": last.max() / last.mean(),
        "overload_minutes": over_us.where(over & (over_us > 0)).sum() / SECOND_US / 60,
        "reaction_seconds": (moved - over_begin.min()) / SECOND_US,
        "reaction_max_seconds": (moved - over_begin.min()) / SECOND_US,
    }  # fmt: skip


def of_the_rest(place: Place) -> dict[str, float]:
    told = frame(place, KPI)
    queue, moves = (told[told["kind"] == kind] for kind in ("queue", "move"))
    found = {
        "exchanges_most": queue["exchanges"].max(), "exchanges_last": queue["exchanges"].iloc[-1],
        "moves": (moves["state"] == "accepted").sum(),
        "move_pause_mean_ms": moves["pause_ms"].mean(),
        "move_pause_max_ms": moves["pause_ms"].max(),
        "traces": sum(len(frame(place, table)) for table in (KPI, LATENCY, EVENTS)),
    }  # fmt: skip
    nothing = (
        "moves_failed", "scale_outs", "scale_ins", "scale_failed", "traces_missing",
        "traces_doubled", "traces_late", "traces_rejected", "documents_dropped", "silent_seconds",
        "limits_left_out", "files_left_out",
    )  # fmt: skip
    return {**found, **dict.fromkeys(nothing, 0.0)}


def test_pandas_finds_each_figure_and_merging_changes_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(str(tmp_path), RUN)
    run = story(place, ROWS, SECONDS)
    expected: dict[str, Any] = {
        **of_clients(place, run), **of_exchanges(place, run), **of_the_rest(place),
    }  # fmt: skip
    assert expected["traces"] > ROWS
    figures, series = summarise(spark, place, run)
    assert figures == pytest.approx(expected, rel=1e-6)
    receivers = frame(place, LATENCY).query("role == 'subscriber'")
    for number in (0, 77, SECONDS - 1):
        latency = series.windows[number].latency
        assert latency is not None
        begin_us = BEGAN_US + number * SECOND_US
        wanted = percentiles(receivers[receivers["begin_us"] == begin_us])
        found = (latency.mean, latency.p50, latency.p99, latency.most)
        assert found == pytest.approx([wanted[name] for name in ("mean", "p50", "p99", "max")])

    parts = place.parts
    merge(spark, place, Part(0, parts[-1].last))
    assert place.parts == [Part(0, parts[-1].last)]
    assert len(place.files()) <= len(("kpi", "latency", "events"))
    assert summarise(spark, place, run) == (pytest.approx(figures), series)
