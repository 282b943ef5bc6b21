"""The runs of a sweep as a table at a URI: written while they come, and read column by column.

    URI/part-00000.parquet, part-00001.parquet, …    a row for each run, in any order

`spark.read.parquet(URI)` and `pyarrow.parquet.read_table(URI)` read it as it is.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import isnan
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

import pyarrow as pa
from pyarrow import fs, parquet

from roq.simulation.forecast.grid import Value, in_order
from roq.simulation.lab.archive.folder import RunError
from roq.simulation.lab.traces.place import located
from roq.spark.staging import place_of

Row: TypeAlias = dict[str, Value]
"""One run: what is varied, and its figures."""
PREFIX: Final = "vary_"
"""Before the names of what is varied: it may have the name of a figure."""
SEED: Final = "seed"
ROWS_MAX: Final = 10_000
"""Of a file, and so in memory at most while they are written."""
_PART: Final = re.compile(r"part-\d{5,}\.parquet")
_FILE: Final = re.compile(r"\Afile:/{0,2}(?=/)")
_WRONG: Final = (OSError, ValueError, pa.ArrowException)


class Combination(NamedTuple):
    """What is varied, and the figures of all its runs that have them, by seed."""

    values: Row
    runs: int
    figures: dict[str, array[float]]


class Results:
    """The table of one sweep; a context manager, within which it is written.

    Args:
        location: a folder (path or URI) of this table alone.
        vary: what is varied, and its values: so the columns are the same in all files.

    Attributes:
        uri: as Spark takes it.
        rows: how many were added.

    Raises:
        RunError: there is no such place.
    """

    def __init__(self, location: str | Path, vary: dict[str, list[Value]]) -> None:
        self.uri = located(str(location))
        self.rows = 0
        self._vary = {name: _type_of(values) for name, values in vary.items()}
        self._schema: pa.Schema | None = None
        self._waiting: list[Row] = []
        self._parts = 0
        try:
            self._files, self._root = place_of(_FILE.sub("", self.uri))
        except _WRONG as error:
            raise RunError(f"{location}: results cannot be kept there: {error}") from None

    def __enter__(self) -> Self:
        """See that one can write there.

        Raises:
            RunError: one cannot, or there is a table already.
        """
        try:
            self._files.create_dir(self._root)
            there = self._names()
        except _WRONG as error:
            raise RunError(f"{self.uri}: cannot be made: {error}") from None
        if there:
            raise RunError(f"{self.uri}: has results of another sweep ({there[0]})")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What was added is written, also after an interruption; if nothing was, nothing stays."""
        self._write()
        if not self.rows:
            with suppress(*_WRONG):
                self._files.delete_dir(self._root)

    def add(self, row: Row) -> None:
        """One run more.

        Raises:
            RunError: it cannot be written.
        """
        self._waiting.append(row)
        self.rows += 1
        if len(self._waiting) >= ROWS_MAX:
            self._write()

    def combinations(self, metrics: Sequence[str]) -> list[Combination]:
        """These figures of all runs, in the order of what is varied.

        Raises:
            RunError: a file cannot be read, or is none of a sweep.
        """
        found: dict[tuple[Value, ...], list[tuple[int, list[float]]]] = {}
        for part in self._read(list(dict.fromkeys([*self._vary, SEED, *metrics]))):
            columns = [part[name].to_pylist() for name in (SEED, *metrics)]
            keys = zip(*(part[name].to_pylist() for name in self._vary), strict=True)
            for key, seed, *figures in zip(keys, *columns, strict=True):
                found.setdefault(key, []).append((seed, figures))
        return [
            _combination(dict(zip(self._vary, key, strict=True)), sorted(found[key]), metrics)
            for key in sorted(found, key=lambda key: [in_order(each) for each in key])
        ]

    def _read(self, columns: list[str]) -> Iterator[pa.Table]:
        try:
            names = self._names()
        except _WRONG as error:
            raise RunError(f"{self.uri}: cannot be read: {error}") from None
        for name in names:
            path = f"{self._root}/{name}"
            try:
                with self._files.open_input_file(path) as source:
                    yield parquet.read_table(source, columns=columns).select(columns)
            except (*_WRONG, KeyError) as error:
                raise RunError(f"{self.uri}/{name}: is damaged or no results: {error}") from None

    def _names(self) -> list[str]:
        selector = fs.FileSelector(self._root, allow_not_found=True)
        names = [info.base_name for info in self._files.get_file_info(selector)]
        return sorted(name for name in names if _PART.fullmatch(name))

    def _write(self) -> None:
        if not self._waiting:
            return
        if self._schema is None:
            types = {name: _type_of([each]) for name, each in self._waiting[0].items()}
            self._schema = pa.schema(list((types | self._vary).items()))
        rows = [
            {name: _told(each, self._vary.get(name)) for name, each in row.items()}
            for row in self._waiting
        ]
        path = f"{self._root}/part-{self._parts:05d}.parquet"
        try:
            with self._files.open_output_stream(path) as sink:
                parquet.write_table(pa.Table.from_pylist(rows, self._schema), sink)
        except _WRONG as error:
            raise RunError(f"{path}: cannot be written: {error}") from None
        self._parts += 1
        self._waiting.clear()


def _combination(
    values: Row, runs: list[tuple[int, list[float]]], metrics: Sequence[str]
) -> Combination:
    """What did not happen took no time at all, so it does not count."""
    figures = {
        name: array("d", (each for _, row in runs if not isnan(each := float(row[index]))))
        for index, name in enumerate(metrics)
    }
    return Combination(values, len(runs), figures)


def _type_of(values: Sequence[Value]) -> pa.DataType:
    """Of a column that holds all of these."""
    kinds = {type(each) for each in values}
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds <= {int, float} else pa.string()


def _told(value: Value, kind: pa.DataType | None) -> Value:
    return str(value) if kind == pa.string() else value
