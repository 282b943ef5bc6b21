"""Figures and series of a run once more, from its table; also of one whose driver is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from roq.errors import RoQError
from roq.simulation.lab.archive.document import Run, RunState
from roq.simulation.lab.archive.folder import read_run, write_run, write_series
from roq.simulation.lab.archive.verdicts import judge
from roq.simulation.lab.session import Session, connected
from roq.simulation.lab.traces.place import Place, TracesError, place_of
from roq.simulation.lab.traces.summary import remarks, summarise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG: Final = "spark.log"


def evaluate(folder: Path, *, remote: str = "", leave_out: bool = False) -> Run:
    """Work out figures and series of a run, and write them down.

    What the tasks of the load have counted themselves stays as it is; what is lacking beside that
    comes from the table.

    Args:
        folder: of the run.
        remote: of a Spark Connect server that reaches the table; empty: a local Spark.
        leave_out: go on without files that are damaged.

    Raises:
        TracesError: there are no traces, or a file is damaged; names it.
        ConfigError, Unavailable: Spark cannot be used.
    """
    run = read_run(folder)
    place = place_of(run)
    if place is None or not place.files():
        raise TracesError(f"{folder} has no traces: only live runs keep them, without --no-traces")
    with _spark(remote, folder) as spark:
        run = _timed(spark, place, run)
        figures, series = summarise(spark, place, run, leave_out=leave_out)
    figures |= run.figures
    told = [each for each in remarks(figures) if each not in run.remarks]
    found = msgspec.structs.replace(
        run,
        figures=figures,
        verdicts=judge(run.scenario.expect, figures),
        remarks=[*run.remarks, *told],
    )
    write_series(folder, series)
    write_run(folder, found)
    return found


@contextmanager
def _spark(remote: str, folder: Path) -> Iterator[SparkSession]:
    if remote:
        session = connected(remote)
        try:
            yield session
        finally:
            session.stop()
        return
    own = Session()
    try:
        own.start("local[*]", folder / LOG, None)
        yield own.spark
    finally:
        own.stop()


def _timed(spark: SparkSession, place: Place, run: Run) -> Run:
    """A run whose driver was killed did not write down when its load began: its traces say so."""
    if run.began_us:
        return run
    if run.state is RunState.RUNNING:
        raise RoQError(f"{run.id} goes on: when it has ended it can be evaluated")
    begin_us, end_us = first_and_last(spark, place)
    if not begin_us:
        raise TracesError(f"{place.uri}: its traces do not say when the load began")
    seconds = min(run.scenario.seconds, (end_us - begin_us) / 1_000_000)
    return msgspec.structs.replace(run, began_us=begin_us, seconds=seconds)


def first_and_last(spark: SparkSession, place: Place) -> tuple[int, int]:
    """When the load began, and the newest trace, in µs since 1970; 0: that is not known."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    from roq.simulation.lab.traces.collect import read  # noqa: PLC0415 - the same

    began = f.min(f.when(f.col("event") == "phase", f.col("time_us")))
    rows = read(spark, place, place.files()).agg(
        f.coalesce(began, f.lit(0)), f.coalesce(f.max("time_us"), f.lit(0))
    )
    begin_us, end_us = rows.collect()[0]
    return begin_us, end_us
