"""Traces as the CSV lines that tools for the first implementation read. Needs no Spark.

    EXCH,<time>,Minute,TotalProcessed,Processed,TotalThroughput,Throughput,Producers,X_ID
    LIST,<time>,Minute,TotalReceived,Received,SubsriberID,MeanLat
    PROD,<time>,STAT,<publisher>,<messages>,<messages by then>
    PROD,<time>,FINISH,<publisher>,<messages in all>
    SUB,<time>,STAT,<subscriber>,<messages by then>

`EXCH` and `LIST` come out of the statistics stream, `PROD` and `SUB` from the clients of the load.
The name of the exchange is at the end, where the old tools wrote nothing. Times are UTC.

    python -m roq.simulation.lab.traces.export RUN > kpi.csv
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from roq.errors import RoQError
from roq.model import exchange_name
from roq.protocol.kpi import text
from roq.simulation.lab.archive.folder import find, read_run
from roq.simulation.lab.traces.place import Place, TracesError, place_of
from roq.simulation.lab.traces.tables import KPI, LATENCY, SCHEMAS, TABLE

Line = list[str]
T = TypeVar("T")
_MINUTE_US: Final = 60_000_000
_STAMP: Final = "%Y-%m-%d_%H:%M:%S"


def lines(folder: Path, *, leave_out: bool = False) -> Iterator[Line]:
    """All lines of a run in order of time; one minute is in memory at a time.

    Args:
        folder: of the run.
        leave_out: go on without files that are damaged.

    Raises:
        TracesError: there are no traces, or a file is damaged; names it.
    """
    place = place_of(read_run(folder))
    paths = [path for path in place.files() if _table(path)] if place is not None else []
    if place is None or not paths:
        raise TracesError(f"{folder} has no traces: only live runs keep them, without --no-traces")
    spans = dict(_each(paths, partial(_minutes, place), leave_out=leave_out))
    writer = _Writer()
    for minute in sorted({minute for span in spans.values() for minute in span}):
        within = [path for path in spans if minute in spans[path]]
        found = _each(within, partial(_rows, place, minute=minute), leave_out=leave_out)
        rows = [row for _, some in found for row in some]
        for row in sorted(_once(rows), key=itemgetter("time_us", "source", "number")):
            yield from writer.line(row)
    yield from writer.end()


class _Writer:
    """What has been counted so far."""

    def __init__(self) -> None:
        self._published: Counter[str] = Counter()
        self._received: Counter[str] = Counter()
        self._exchanges: dict[tuple[int, int], tuple[int, int]] = {}
        self._subscribers: dict[str, tuple[int, int]] = {}
        self._last_us: dict[str, int] = {}

    def line(self, row: dict[str, Any]) -> Iterator[Line]:
        """The line of a row, if it has one."""
        match row.get("kind") or row.get("role"):
            case "exchange":
                yield self._exchange(row)
            case "subscriber" if "kind" in row:
                yield self._listener(row)
            case "publisher":
                name = row["client"]
                self._published[name] += row["messages"]
                self._last_us[name] = row["time_us"]
                counts = [text(row["messages"]), text(self._published[name])]
                yield ["PROD", _stamp(row["time_us"]), "STAT", name, *counts]
            case "subscriber":
                name = row["client"]
                self._received[name] += row["messages"]
                yield ["SUB", _stamp(row["time_us"]), "STAT", name, text(self._received[name])]
            case _:
                pass

    def end(self) -> Iterator[Line]:
        """What is known when all is over."""
        for name, total in sorted(self._published.items()):
            yield ["PROD", _stamp(self._last_us[name]), "FINISH", name, text(total)]

    def _exchange(self, row: dict[str, Any]) -> Line:
        key = (row["exchange"], row["epoch"])
        messages, size = self._exchanges.get(key, (0, 0))
        self._exchanges[key] = (row["messages_in"], row["bytes_in"])
        figures = (
            int(row["uptime_seconds"] // 60),
            row["messages_in"],
            max(0, row["messages_in"] - messages),
            row["bytes_in"],
            max(0, row["bytes_in"] - size),
            row["publishers"],
        )
        return ["EXCH", _stamp(row["time_us"]), *map(text, figures), exchange_name(row["exchange"])]

    def _listener(self, row: dict[str, Any]) -> Line:
        name = row["subscriber"]
        since_us, received = self._subscribers.get(name, (row["time_us"], 0))
        self._subscribers[name] = (since_us, row["received"])
        minute = (row["time_us"] - since_us) // 60_000_000
        counts = (minute, row["received"], max(0, row["received"] - received))
        latency = text(float(row["latency_ms"]))
        return ["LIST", _stamp(row["time_us"]), *map(text, counts), name, latency]


_COLUMNS: Final = {
    KPI: [
        "time_us", "source", "number", "sender", "sequence", "kind", "exchange", "epoch",
        "uptime_seconds", "messages_in", "bytes_in", "publishers", "subscriber", "received",
        "latency_ms",
    ],
    LATENCY: [
        "time_us", "source", "number", "sender", "sequence", "client", "role", "messages",
    ],
}  # fmt: skip


def _table(path: str) -> str:
    """Which rows a file has; empty: none that have lines."""
    return next((table for table in _COLUMNS if f"/{TABLE}={table}/" in path), "")


def _each(
    paths: Iterable[str], look: Callable[[str], T], *, leave_out: bool
) -> Iterator[tuple[str, T]]:
    """What a look at each of these files gives."""
    for path in paths:
        try:
            yield path, look(path)
        except (OSError, pa.ArrowException) as error:
            if not leave_out:
                why = str(error).splitlines()[0][:300]
                raise TracesError(f"{path}: it is damaged: {why}") from None


def _minutes(place: Place, path: str) -> range:
    """Those of which a file may tell, as its statistics say."""
    with place.opened(path) as source:
        found = pq.ParquetFile(source)
        column = found.schema_arrow.get_field_index("time_us")
        groups = [found.metadata.row_group(at) for at in range(found.num_row_groups)]
    times = [group.column(column).statistics for group in groups]
    if not times:
        return range(0)
    first, last = min(each.min for each in times), max(each.max for each in times)
    return range(first // _MINUTE_US, last // _MINUTE_US + 1)


def _rows(place: Place, path: str, minute: int) -> list[dict[str, Any]]:
    begin, table = minute * _MINUTE_US, _table(path)
    inside = (ds.field("time_us") >= begin) & (ds.field("time_us") < begin + _MINUTE_US)
    with place.opened(path) as source:
        options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        files = ds.ParquetFileFormat(default_fragment_scan_options=options)
        content = files.make_fragment(source).to_table(
            schema=SCHEMAS[table], columns=_COLUMNS[table], filter=inside
        )
    rows: list[dict[str, Any]] = content.to_pylist()
    return rows


def _once(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each trace once; those that stood in the queue twice have the same time."""
    seen: set[tuple[bool, str, int]] = set()
    for row in rows:
        key = ("kind" in row, row["sender"], row["sequence"])
        if key not in seen:
            seen.add(key)
            yield row


def _stamp(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime(_STAMP)


def main(arguments: list[str] | None = None) -> int:
    """The program; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m roq.simulation.lab.traces.export", description="Traces as CSV lines"
    )
    parser.add_argument("run", help="its folder, its id, or latest")
    parser.add_argument("--leave-out", action="store_true", help="go on without damaged files")
    given = parser.parse_args(arguments)
    try:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows(lines(find(given.run), leave_out=given.leave_out))
    except BrokenPipeError:
        sys.stderr.close()  # the reader has had enough
        return 0
    except RoQError as error:
        sys.stderr.write(f"export: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
