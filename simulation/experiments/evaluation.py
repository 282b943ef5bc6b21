"""How fast the traces of a long run are evaluated, and in how much memory of the driver.

    python -m roq.simulation.experiments.evaluation --rows 10000000

writes the traces of a run that never was, an hour of publishers and subscribers, and evaluates them
on executors of one core each, of a standalone Spark cluster, in turn one of them and several.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from roq.demo.latency import middle_of
from roq.simulation.experiments.chaos_spark.standalone import Standalone
from roq.simulation.lab.archive.document import Run, RunKind, RunState
from roq.simulation.lab.masters import SparkWish
from roq.simulation.lab.session import Session
from roq.simulation.lab.traces.place import Part, Place
from roq.simulation.lab.traces.summary import summarise
from roq.simulation.lab.traces.tables import EVENTS, KPI, LATENCY, TABLE, WIDE
from roq.simulation.real.results import Machine, measured, write
from roq.simulation.scenario.scenario import Phase, PublisherGroup, Scenario

RUN: Final = "never-was"
BEGAN_US: Final = 1_700_000_000_000_000
SECOND_US: Final = 1_000_000
EXCHANGES: Final = 4
BUCKETS: Final = 5
"""Of the histogram of one client and second."""
SECONDS_EACH: Final = 180
"""Of one file."""
LIMIT: Final = 1_000.0
RESULTS: Final = Path(__file__).parents[1] / "results"


class Evaluations(msgspec.Struct, frozen=True, kw_only=True):
    """What came out: one of the runs for each number of executors."""

    rows: int
    seconds: int
    runs: list[dict[str, float]]
    machine: Machine


def story(place: Place, rows: int, seconds: int, seed: int = 1) -> Run:
    """Write the traces of a run; gives what was asked of it.

    Args:
        place: of the table, on this machine.
        rows: of clients, about so many; half of them publish.
        seconds: that the load lasts.
        seed: of all that is drawn.
    """
    clients = max(2, rows // seconds // 2 * 2)
    random = np.random.default_rng(seed)
    folder = Path(place.uri.removeprefix("file://"))
    for number, begin in enumerate(range(0, seconds, SECONDS_EACH)):
        some = _clients(random, clients, begin, min(seconds, begin + SECONDS_EACH))
        _write(folder / Part(number, number).name, LATENCY, some)
    rest = Part(number + 1, number + 1).name
    told = _documents(random, seconds)
    for kind in (KPI, EVENTS):
        _write(folder / rest, kind, pa.Table.from_pylist(told[kind], _schema()))
    publishers = [PublisherGroup(count=clients // 2, rate=60.0, size=100)]
    phases = [Phase(name="load", seconds=float(seconds), publishers=publishers)]
    return Run(
        id=RUN, kind=RunKind.LIVE, state=RunState.COMPLETE, began_us=BEGAN_US,
        seconds=float(seconds), scenario=Scenario(name=RUN, title=RUN, phases=phases),
        machine=_machine(), settings={"traces": place.uri},
    )  # fmt: skip


def _machine() -> Machine:
    with measured() as machine:
        return machine


def _clients(random: np.random.Generator, clients: int, begin: int, end: int) -> pa.Table:
    """A row for each client and second; the sources are tasks of 100 clients."""
    count = clients * (end - begin)
    second = np.repeat(np.arange(begin, end), clients)
    client = np.tile(np.arange(clients), end - begin)
    task = client // 100
    sizes = np.bincount(np.arange(clients) // 100)
    number = second * sizes[task] + client % 100
    low = random.integers(300, 420, (count, 1))
    buckets = low + np.cumsum(random.integers(1, 30, (count, BUCKETS)), axis=1)
    counts = random.integers(1, 25, (count, BUCKETS))
    messages = counts.sum(axis=1)
    middles = np.array([middle_of(bucket) for bucket in range(int(buckets.max()) + 1)])
    subscriber = client % 2
    names = pa.array([f"client-{each}" for each in range(clients)])
    tasks = pa.array([f"task-{each}" for each in range(len(sizes))])
    senders = pa.array([f"{each:032x}" for each in range(len(sizes))])
    ends = pa.array(np.arange(0, count * BUCKETS + 1, BUCKETS, dtype=np.int32))
    time_us = BEGAN_US + (second + 1) * SECOND_US
    columns = {
        "time_us": time_us, "source": tasks.take(pa.array(task)), "number": number,
        "sender": senders.take(pa.array(task)), "sequence": number, "appended_us": time_us + 900,
        "client": names.take(pa.array(client)),
        "role": pa.array(["publisher", "subscriber"]).take(pa.array(subscriber)),
        "begin_us": BEGAN_US + second * SECOND_US, "seconds": np.ones(count),
        "messages": messages, "bytes": 100 * messages,
        "late": np.where(subscriber, 0, random.integers(0, 3, count)),
        "failed": (random.random(count) < 1e-4).astype(np.int64),
        "doubled": np.zeros(count, np.int64), "reordered": np.zeros(count, np.int64),
        "buckets": pa.ListArray.from_arrays(ends, pa.array(buckets.ravel(), pa.int32())),
        "counts": pa.ListArray.from_arrays(ends, pa.array(counts.ravel())),
        "latency_sum": (counts * middles[buckets]).sum(axis=1), "clock_error": np.zeros(count),
    }  # fmt: skip
    return _table(columns, count)


def _documents(random: np.random.Generator, seconds: int) -> dict[str, list[dict[str, Any]]]:
    """What monitor and driver tell: the first exchange gets too much until the middle."""
    found: dict[str, list[dict[str, Any]]] = {KPI: [], EVENTS: []}
    totals = np.zeros(EXCHANGES + 1, np.int64)

    def tell(table: str, source: str, at: float, **values: Any) -> None:
        number, time_us = len(found[table]), BEGAN_US + round(at * SECOND_US)
        found[table].append({
            "time_us": time_us, "source": source, "number": number, "sender": source,
            "sequence": number, "appended_us": time_us, **values,
        })  # fmt: skip

    tell(EVENTS, "driver", 0.0, event="phase", exchange=0, text="load")
    for second in range(-1, seconds + 1):
        at = second + 0.25
        for exchange in range(1, EXCHANGES + 1):
            much = 1_200 if exchange == 1 and second < seconds // 2 else 400
            totals[exchange] += random.integers(much, much + 50) if second >= 0 else 0
            size = int(totals[exchange])
            tell(
                KPI, "tap", at, kind="exchange", queue="q", queue_id="q", exchange=exchange,
                epoch=1, uptime_seconds=second + 100.0, messages_in=size // 10, bytes_in=size,
                messages_out=size // 5, bytes_out=2 * size, publishers=3, cpu_percent=25.0,
                leaving=False, dropped=0,
            )  # fmt: skip
        tell(
            KPI, "tap", at, kind="queue", queue="q", queue_id="q", exchanges=EXCHANGES,
            limit_bytes_per_second=LIMIT, dropped=0,
        )  # fmt: skip
        if second == seconds // 2:
            tell(
                KPI, "tap", at + 0.1, kind="move", queue="q", queue_id="q", state="accepted",
                publisher="ab" * 16, sources=[1], targets=[2], reason="too much", pause_ms=3.0,
                dropped=0,
            )  # fmt: skip
    return found


def _schema() -> pa.Schema:
    return pa.schema([field for field in WIDE if field.name != TABLE])


def _table(columns: dict[str, Any], count: int) -> pa.Table:
    return pa.table(
        [
            pa.array(columns[field.name]).cast(field.type)
            if field.name in columns
            else pa.nulls(count, field.type)
            for field in _schema()
        ],
        schema=_schema(),
    )


def _write(part: Path, kind: str, rows: pa.Table) -> None:
    folder = part / f"{TABLE}={kind}"
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "rows.parquet", compression="zstd")
    (part / "_SUCCESS").touch()


# --- the measurement ------------------------------------------------------------------------------


def once(folder: Path, place: Place, run: Run, executors: int) -> dict[str, float]:
    """Evaluate on so many executors of one core; seconds, and memory of the driver."""
    with Standalone(folder, cores=1, memory="1g", workers=executors) as standalone:
        os.environ["SPARK_HOME"], os.environ["SPARK_LOCAL_IP"] = str(standalone.home), "127.0.0.1"
        session = Session()
        wish = SparkWish(
            executors=executors, executor_cores=1, executor_memory="1g",
            conf={"spark.driver.memory": "512m"},
        )  # fmt: skip
        try:
            session.start(standalone.master, folder / "spark.log", None, wish)
            session.spark.range(1_000).count()
            began = time.monotonic()
            figures, series = summarise(session.spark, place, run)
            took = time.monotonic() - began
        finally:
            session.stop()
    return {
        "executors": executors, "seconds": round(took, 2), "traces": figures["traces"],
        "windows": len(series.windows), "latency_p99_ms": round(figures["latency_p99_ms"], 3),
        "driver_python_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }  # fmt: skip


def main() -> int:
    """The program; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=int, default=3_600)
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--write", action="store_true", help="keep the result")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roq-evaluation-") as name, measured() as machine:
        folder = Path(name)
        place = Place(str(folder / "traces"), RUN)
        run = story(place, given.rows, given.seconds)
        found = []
        for executors in given.executors:
            each = folder / str(executors)
            each.mkdir()
            found.append(once(each, place, run, executors))
            sys.stdout.write(json.dumps(found[-1]) + "\n")
            sys.stdout.flush()
    if given.write:
        kept = Evaluations(rows=given.rows, seconds=given.seconds, runs=found, machine=machine)
        write(kept, "evaluation", RESULTS)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
