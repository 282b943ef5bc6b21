"""The files of a run's traces: put in place so that a micro-batch counts once, and checked.

    RUN/<table>/run=<id>/minute=<n>/batch-<micro-batch>-<part>.parquet

Files appear at once or not at all. A micro-batch that is done again, because the process that did
it first was ended in the middle, replaces what that one had left.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from roq.errors import RoQError
from roq.simulation.lab.traces.rows import Part
from roq.simulation.lab.traces.tables import SCHEMAS, TABLES

CHECKPOINT: Final = "checkpoint"
"""Of the query, in the folder of the run."""


class TracesError(RoQError):
    """Traces cannot be kept or read; the text says which file and why."""


def put(folder: Path, run: str, batch: int, parts: Iterable[Part]) -> None:
    """Put the files of one micro-batch in place.

    Args:
        folder: of the run.
        run: its id.
        batch: number of the micro-batch.
        parts: its files, in an order that is the same each time.

    Raises:
        TracesError: one cannot be written.
    """
    for index, part in enumerate(parts):
        path = folder / part.table / f"run={run}" / f"minute={part.minute}"
        path = path / f"{_prefix(batch)}{index}.parquet"
        partial = path.with_name(f".{path.name}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(part.data)
            partial.replace(path)
        except OSError as error:
            raise TracesError(f"{path}: cannot be written: {error.strerror}") from None


def remove(folder: Path, batch: int) -> int:
    """Remove what an earlier attempt at a micro-batch has left; gives how many files."""
    found = [
        path
        for table in TABLES
        for path in (folder / table).glob(f"*/*/*{_prefix(batch)}*")
    ]  # fmt: skip
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def files(folder: Path, table: str) -> list[Path]:
    """The files of a table, in order of time."""
    return sorted((folder / table).glob("run=*/minute=*/*.parquet"), key=_place)


def broken(path: Path, table: str) -> str:
    """What is wrong with a file, in a clause; empty if nothing is.

    Everything in it is read, and compared with its checksums.
    """
    if not path.is_file():
        return "it is no file"
    try:
        found = pq.ParquetFile(path, page_checksum_verification=True)
        wanted = SCHEMAS[table]
        for field in wanted:
            index = found.schema_arrow.get_field_index(field.name)
            if index < 0:
                return f"it has no column {field.name}"
            if found.schema_arrow.field(index).type != field.type:
                return f"its column {field.name} is not of type {field.type}"
        for batch in found.iter_batches(columns=wanted.names):
            batch.validate()
    except (OSError, pa.ArrowException, ValueError) as error:
        return f"it is damaged: {str(error).splitlines()[0][:300]}"
    return ""


def sound(folder: Path, table: str, *, leave_out: bool = False) -> tuple[list[Path], list[str]]:
    """The files of a table that can be read, and what is wrong with the others.

    Args:
        folder: of the run.
        table: its name.
        leave_out: go on without files that cannot be read.

    Raises:
        TracesError: there is one, and it is not to be left out; names the first three.
    """
    good, bad = [], []
    for path in files(folder, table):
        why = broken(path, table)
        if why:
            bad.append(f"{path}: {why}")
        else:
            good.append(path)
    if bad and not leave_out:
        more = f" (and {len(bad) - 3} more)" if len(bad) > 3 else ""
        raise TracesError("; ".join(bad[:3]) + more + ". Remove them, or have them left out")
    return good, bad


def _prefix(batch: int) -> str:
    return f"batch-{batch:08}-"


def minute_of(path: Path) -> int:
    """Minutes since 1970 of the events in a file, as its path tells; -1 if it does not."""
    number = path.parent.name.partition("=")[2]
    return int(number) if number.isdecimal() else -1


def _place(path: Path) -> tuple[int, str]:
    return minute_of(path), path.name
