"""Where the traces of a run are: a table at a URI, in parts that appear at once or not at all.

    URI/run=<id>/batches=<first>-<last>/table=<kind>/*.parquet     one part: these micro-batches
    URI/run=<id>/batches=<first>-<last>/_SUCCESS                   it is whole
    URI/run=<id>/checkpoint/                                       of the query that writes them

Spark writes and reads what is large; this looks at names and sizes. A micro-batch that is done
again replaces its part. Parts are merged now and then: the larger one counts as soon as it is
whole, and those within it are removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import fs

from roq.errors import RoQError
from roq.simulation.lab.archive.document import Run
from roq.spark.staging import place_of as file_system_of

CHECKPOINT: Final = "checkpoint"
SETTING: Final = "traces"
"""Of a run: the URI of its table, or that there is none."""
_WHOLE: Final = "_SUCCESS"
"""Spark writes it when all tasks of a job have."""
_PART: Final = re.compile(r"\Abatches=(\d{1,18})-(\d{1,18})\Z")
_RUN: Final = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_FILE: Final = re.compile(r"\Afile:/{0,2}(?=/)")


class TracesError(RoQError):
    """Traces cannot be kept or read; the text says which file and why."""


class Damaged(TracesError):
    """A file of traces cannot be read.

    Attributes:
        file: its path, as `Place.files` gives it.
    """

    def __init__(self, file: str, text: str) -> None:
        super().__init__(text)
        self.file = file


class Part(NamedTuple):
    """Some micro-batches, one after the other."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"batches={self.first}-{self.last}"


def standing(parts: Iterable[Part]) -> list[Part]:
    """Those that count, in order: what lies within a larger one does not."""
    found: list[Part] = []
    for part in sorted(parts, key=lambda each: (each.first, -each.last)):
        if not found or part.last > found[-1].last:
            found.append(part)
    return found


class Place:
    """The table of one run.

    Args:
        location: a folder (path or URI) that Spark's driver and executors reach alike.
        run: id of the run.

    Attributes:
        uri: of the table, as Spark takes it.

    Raises:
        TracesError: there is no such place, or a run cannot be called so.
    """

    def __init__(self, location: str, run: str) -> None:
        if not _RUN.match(run):
            raise TracesError(f"a run cannot be called {run!r}: letters, digits, . _ -")
        self.uri = f"{located(location)}/run={run}"
        try:
            # Hadoop takes a path as it is, pyarrow wants the signs of a URI escaped.
            self._files, self._root = file_system_of(_FILE.sub("", self.uri))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise TracesError(f"{location}: traces cannot be kept there: {error}") from None

    @property
    def parts(self) -> list[Part]:
        """Those that are whole and count, in order."""
        return standing(self._whole())

    def files(self, parts: Iterable[Part] | None = None) -> dict[str, int]:
        """Bytes of each file of some parts, by its path below `uri`; None: of those that count."""
        names = {part.name for part in (self.parts if parts is None else parts)}
        return {
            path: info.size
            for path, info in self._below().items()
            if path.partition("/")[0] in names and path.endswith(".parquet")
        }

    def clear(self) -> None:
        """Remove parts that lie within larger ones.

        Raises:
            TracesError: one cannot be removed.
        """
        whole = self._whole()
        for part in set(whole) - set(standing(whole)):
            self.remove(part.name)

    def remove(self, name: str) -> None:
        """Remove a folder of the table.

        Raises:
            TracesError: it cannot be removed.
        """
        try:
            self._files.delete_dir(f"{self._root}/{name}")
        except (OSError, pa.ArrowException) as error:
            raise TracesError(f"{self.uri}/{name}: cannot be removed: {error}") from None

    def names(self, folder: str) -> list[str]:
        """What stands in a folder of the table; nothing if there is none."""
        return [path for path in self._below(folder) if "/" not in path]

    def text(self, path: str) -> str:
        """What a small file holds.

        Raises:
            TracesError: it cannot be read.
        """
        try:
            with self.opened(path) as source:
                return bytes(source.read()).decode()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise TracesError(f"{self.uri}/{path}: cannot be read: {error}") from None

    def opened(self, path: str) -> pa.NativeFile:
        """One of the `files`, open.

        Raises:
            OSError, pa.ArrowException: it cannot be read.
        """
        return self._files.open_input_file(f"{self._root}/{path}")

    def _whole(self) -> list[Part]:
        found = (path.split("/") for path in self._below())
        names = {first for first, *rest in found if rest == [_WHOLE]}
        matches = (_PART.match(name) for name in names)
        return [Part(int(match[1]), int(match[2])) for match in matches if match]

    def _below(self, folder: str = "") -> dict[str, fs.FileInfo]:
        root = f"{self._root}/{folder}" if folder else self._root
        try:
            found = self._files.get_file_info(
                fs.FileSelector(root, allow_not_found=True, recursive=True)
            )
        except (OSError, pa.ArrowException) as error:
            raise TracesError(f"{self.uri}/{folder}: cannot be read: {error}") from None
        return {info.path.removeprefix(root).lstrip("/"): info for info in found}


def located(location: str) -> str:
    """A location as Spark takes it, whatever its own default file system is."""
    if re.match(r"[a-z][a-z0-9]*:/", location):
        return location.rstrip("/")
    return f"file://{Path(location).absolute()}".rstrip("/")


def place_of(run: Run) -> Place | None:
    """Where the traces of a run are; None: it has none.

    Raises:
        TracesError: there is no such place.
    """
    location, _, name = str(run.settings.get(SETTING, "")).rpartition("/run=")
    return Place(location, name) if location else None
