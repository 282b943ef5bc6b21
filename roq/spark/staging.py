"""Rows that tasks have written and no driver has published yet: files in a folder that all share.

    attempts/<random>.arrow     what one attempt of one task has written
    batches/<number>.json       which attempts make up a micro-batch: decided once, by the driver
    batches/<number>.<part>     one of these attempts was published (where tasks publish)
    batches/<number>.done       all were published, every message acknowledged
    writer.json                 which query writes here, the name under which it publishes, and
                                whether its tasks publish, or its driver

A task that is repeated writes another attempt; only what the driver names counts. A driver that
dies between deciding and publishing finds its decision again and publishes the same, in the same
order.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs, ipc

from roq.errors import ConfigError, RoQError

SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("key", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("properties", pa.map_(pa.string(), pa.string())),
    ]
)
_S3A: Final = re.compile(r"\As3[an]://")
KEEP_BATCHES: Final = 100
"""Spark repeats the newest micro-batch at most; older decisions are kept for people."""
KEEP_ATTEMPTS: Final = timedelta(days=1)
"""What an attempt has left behind that nobody named is removed after so long."""


class StagingBroken(RoQError):
    """The staging folder does not hold what it must."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt of one task has written.

    Attributes:
        name: of its file; empty if there were no rows.
        rows: how many.
    """

    name: str
    rows: int


class Staging:
    """The staging folder of one writer.

    Args:
        location: a path or URI that driver and tasks reach alike (file, HDFS, S3, …).

    Raises:
        ConfigError: it cannot be used; the text says why.
    """

    def __init__(self, location: str) -> None:
        try:
            self._files, self._root = place_of(location)
            for folder in ("attempts", "batches"):
                self._files.create_dir(f"{self._root}/{folder}", recursive=True)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ConfigError(f"stagingLocation: {location!r} cannot be used: {error}") from None

    @property
    def begun(self) -> bool:
        """Whether anything was decided here before."""
        return bool(self._files.get_file_info(fs.FileSelector(f"{self._root}/batches")))

    def write(self, batches: Iterable[pa.RecordBatch]) -> Attempt:
        """Write one attempt of one task."""
        some = (batch for batch in batches if batch.num_rows)
        first = next(some, None)
        if first is None:
            return Attempt("", 0)
        name, rows = uuid.uuid4().hex, 0
        with (
            self._files.open_output_stream(self._attempt(name)) as out,
            ipc.new_stream(out, SCHEMA) as writer,
        ):
            for batch in chain([first], some):
                writer.write_batch(batch)
                rows += batch.num_rows
        return Attempt(name, rows)

    def read(self, attempt: Attempt) -> Iterator[pa.RecordBatch]:
        """What an attempt has written.

        Raises:
            StagingBroken: its file is missing, or not whole.
        """
        rows = 0
        try:
            with self._files.open_input_stream(self._attempt(attempt.name)) as source:
                for batch in ipc.open_stream(source):
                    rows += batch.num_rows
                    yield batch
        except (OSError, pa.ArrowException) as error:
            raise StagingBroken(
                f"{self._attempt(attempt.name)} cannot be read (do driver and executors share "
                f"stagingLocation?): {error}"
            ) from None
        if rows != attempt.rows:
            raise StagingBroken(
                f"{self._attempt(attempt.name)} has {rows} rows instead of {attempt.rows}"
            )

    def remove(self, attempts: Iterable[Attempt]) -> None:
        """These count no more."""
        for attempt in attempts:
            self._delete(self._attempt(attempt.name) if attempt.name else "")

    def decide(self, number: int, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Say once which attempts make up a micro-batch; gives what was said first.

        By whom does not matter: when a driver is started anew, a commit of the one before may still
        be at work.

        Raises:
            StagingBroken: what was said before cannot be read.
        """
        path = f"{self._root}/batches/{number}.json"
        said = [[attempt.name, attempt.rows] for attempt in attempts if attempt.name]
        try:
            found = self._said_first(path, said)
            return [Attempt(str(name), int(rows)) for name, rows in found]
        except (OSError, ValueError, TypeError) as error:
            raise StagingBroken(f"{path} cannot be read: {error}") from None

    def decided(self, number: int) -> bool:
        """Whether it was said which attempts make up this micro-batch."""
        return self._exists(f"{self._root}/batches/{number}.json")

    def writer(self, query: str, *, tasks: bool = False) -> str:
        """The name under which the query publishes that writes here; drawn when it first asks.

        A query that begins anew in an empty folder has another one: what it publishes must not be
        taken for what the one before has published.

        Args:
            query: id of Spark's; empty if nobody knows it.
            tasks: its tasks publish, not its driver.

        Raises:
            ConfigError: another query writes here, whose micro-batches count as done, or it has
                begun to publish in the other way, under other ids.
            StagingBroken: what was said before cannot be read.
        """
        path = f"{self._root}/writer.json"
        try:
            said = {"name": uuid.uuid4().hex, "query": query, "tasks": tasks}
            found = self._said_first(path, said)
            name, first, by_tasks = str(found["name"]), str(found["query"]), found.get("tasks")
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StagingBroken(f"{path} cannot be read: {error}") from None
        if query and first and query != first:
            raise ConfigError(
                f"stagingLocation: {self._root} is of another query (id {first}, this one is "
                f"{query}): was the checkpoint removed? Use another folder, or remove this one"
            )
        if bool(by_tasks) is not tasks:
            raise ConfigError(
                f"stagingLocation: {self._root} belongs to a query whose "
                f"{'tasks publish' if by_tasks else 'driver publishes'}. A query cannot change "
                "that: use the same sink as before, or begin anew with another checkpoint and "
                "another folder"
            )
        return name

    def done(self, number: int) -> bool:
        """Whether this micro-batch was published."""
        return self._exists(f"{self._root}/batches/{number}.done")

    def part_done(self, number: int, part: int) -> bool:
        """Whether this part of a micro-batch was published, perhaps with all the others."""
        # In this order: what tells of parts goes when it is noted that all is done.
        return self._exists(f"{self._root}/batches/{number}.{part}") or self.done(number)

    def finish_part(self, number: int, part: int) -> None:
        """This part of a micro-batch was published, every message acknowledged."""
        if self.done(number):
            return  # a copy of a task was slower than all others
        with self._files.open_output_stream(f"{self._root}/batches/{number}.{part}") as out:
            out.write(b"")

    def finish(self, number: int, attempts: Iterable[Attempt], parts: int = 0) -> None:
        """This micro-batch was published, every message acknowledged; idempotent.

        Args:
            number: of the micro-batch.
            attempts: those that are not needed any more.
            parts: how many there are, where tasks publish.
        """
        with self._files.open_output_stream(f"{self._root}/batches/{number}.done") as out:
            out.write(b"")
        for part in range(parts):
            self._delete(f"{self._root}/batches/{number}.{part}")
        self.remove(attempts)
        old = number - KEEP_BATCHES
        if old >= 0:
            self._delete(f"{self._root}/batches/{old}.json")
            self._delete(f"{self._root}/batches/{old}.done")

    def sweep(self) -> None:
        """Remove what attempts have left behind that came to nothing."""
        before = datetime.now(UTC) - KEEP_ATTEMPTS
        selector = fs.FileSelector(f"{self._root}/attempts")
        for info in self._files.get_file_info(selector):
            if info.mtime is not None and info.mtime < before:
                self._delete(info.path)

    def discard(self) -> None:
        """Remove all of it: the writer is done for good."""
        self._files.delete_dir(self._root)

    def _said_first(self, path: str, said: object) -> Any:
        """What is written in a file, by us if nobody was there before."""
        if not self._exists(path):
            partial = f"{path}.{uuid.uuid4().hex}"
            with self._files.open_output_stream(partial) as out:
                out.write(json.dumps(said).encode())
            self._place(partial, path)
        with self._files.open_input_stream(path) as source:
            return json.loads(source.read())

    def _place(self, partial: str, path: str) -> None:
        """Give a file its name, unless another one has it: what a driver that was thought dead has
        decided meanwhile stands."""
        if isinstance(self._files, fs.LocalFileSystem):
            with contextlib.suppress(FileExistsError):
                os.link(partial, path)
        else:
            # HDFS refuses to replace a file; an object store replaces it, see docs/spark.md.
            with contextlib.suppress(OSError):
                self._files.move(partial, path)
        self._delete(partial)

    def _attempt(self, name: str) -> str:
        return f"{self._root}/attempts/{name}.arrow"

    def _exists(self, path: str) -> bool:
        return bool(self._files.get_file_info(path).type == fs.FileType.File)

    def _delete(self, path: str) -> None:
        if path and self._exists(path):
            self._files.delete_file(path)


def query_of(checkpoint: str) -> str:
    """Spark's id of the query that has this checkpoint; empty if nobody can say.

    Args:
        checkpoint: path or URI of its folder; empty if nobody knows it.
    """
    if not checkpoint:
        return ""
    try:
        files, root = place_of(checkpoint)
        with files.open_input_stream(f"{root}/metadata") as source:
            return str(json.loads(source.read())["id"])
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException):
        return ""


def place_of(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path in there.

    Args:
        location: as Spark takes it; what Hadoop calls `s3a:` is `s3:` to pyarrow.

    Raises:
        OSError, ValueError, pa.ArrowException: there is no such file system, or it is out of reach.
    """
    if "://" in location or location.startswith("file:"):
        files, root = fs.FileSystem.from_uri(_S3A.sub("s3://", location))
        return files, root
    return fs.LocalFileSystem(), location
