"""How far a streaming query is, as its checkpoint says: also while its driver is dead."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from roq.model import LogId
from roq.spark.offsets import Offsets, read_offsets

NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Progress:
    """Numbers of micro-batches; -1: none yet.

    Attributes:
        planned: the newest one for which offsets are decided.
        committed: the newest one that is done as far as Spark knows.
        publishing: whether the sink `roq` has begun to publish the planned one, and has not ended.
    """

    planned: int
    committed: int
    publishing: bool

    @property
    def phase(self) -> str:
        """What the query is doing, in a word or two."""
        if self.planned <= self.committed:
            return "between"
        return "publishing" if self.publishing else "reading"


def progress(checkpoint: Path) -> Progress:
    """How far the query with this checkpoint is."""
    planned = _newest(checkpoint / "offsets")
    batches = checkpoint / "roq" / "batches"
    return Progress(
        planned,
        _newest(checkpoint / "commits"),
        (batches / f"{planned}.json").exists() and not (batches / f"{planned}.done").exists(),
    )


def reached(checkpoint: Path, queue_id: str) -> dict[LogId, int]:
    """How far each log is read for good; empty if nothing is committed.

    Raises:
        ConfigError: the checkpoint is another queue's.
    """
    committed = _newest(checkpoint / "commits")
    if committed == NONE:
        return {}
    try:
        # A line for the version, one for Spark itself, and one for each source.
        lines = (checkpoint / "offsets" / str(committed)).read_text().splitlines()
    except FileNotFoundError:
        return {}
    return dict(read_offsets(json.loads(lines[2]), queue_id).next)


def covers(read: dict[LogId, int], wanted: Offsets) -> bool:
    """Whether everything up to these offsets is read."""
    return all(read.get(log, 0) >= offset for log, offset in wanted.next.items())


def _newest(folder: Path) -> int:
    try:
        numbers = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return NONE
    return max(numbers, default=NONE)
