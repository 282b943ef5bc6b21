"""How far a query has read: one offset per log, planned without any socket.

A log is one life of an exchange: its number and its epoch. Logs come (an exchange was added, or
started anew) and go (it was removed, or its process has died); a query goes on with what there is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from roq.errors import ConfigError

FORMAT: Final = 1
AWAY_MAX: Final = 1_000
"""So many logs that cannot be read are remembered, those that began last."""


class LogKey(NamedTuple):
    """One log of a queue."""

    number: int
    """Of the exchange."""
    epoch: int
    """Of its process; a higher one of the same number is another log."""

    def __str__(self) -> str:
        return f"{self.number}:{self.epoch}"


class Span(NamedTuple):
    """What can be read of a log: offsets from `floor` up to, but without, `end`."""

    floor: int
    end: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """How far all logs of a queue are read.

    Attributes:
        queue_id: hexadecimal; a queue that was removed and made anew is another one.
        next: offset of the next batch, by log.
        away: those of the logs that could not be read any more, as was told.
    """

    queue_id: str
    next: Mapping[LogKey, int] = field(default_factory=dict)
    away: frozenset[LogKey] = frozenset()

    def document(self) -> dict[str, object]:
        """As a checkpoint holds it: keys in one order, for Spark compares the text."""
        return {
            "away": [str(key) for key in sorted(self.away)],
            "format": FORMAT,
            "logs": {str(key): self.next[key] for key in sorted(self.next)},
            "queue": self.queue_id,
        }


def read_offsets(document: Mapping[str, object], queue_id: str) -> Offsets:
    """What a checkpoint holds.

    Args:
        document: what `Offsets.document` gave once.
        queue_id: of the queue that is read now.

    Raises:
        ConfigError: it was written by something else, or for another queue.
    """
    if document.get("format") != FORMAT or not isinstance(document.get("logs"), dict):
        raise ConfigError(
            f"the checkpoint holds offsets that this version cannot read: "
            f"{json.dumps(document)[:200]}"
        )
    if document.get("queue") != queue_id:
        raise ConfigError(
            f"the checkpoint belongs to another queue (id {document.get('queue')}, this one has "
            f"{queue_id}): was it removed and created again? Begin with a new checkpoint"
        )
    found: dict[LogKey, int] = {}
    logs = document["logs"]
    assert isinstance(logs, dict)  # noqa: S101 - narrows the type
    for text, offset in logs.items():
        number, _, epoch = str(text).partition(":")
        if not (number.isdecimal() and epoch.isdecimal() and type(offset) is int and offset >= 0):
            raise ConfigError(f"the checkpoint holds an offset that is none: {text}: {offset!r}")
        found[LogKey(int(number), int(epoch))] = offset
    away = document.get("away", [])
    told = frozenset(key for key in found if isinstance(away, list) and str(key) in away)
    return Offsets(queue_id, found, told)


@dataclass(frozen=True, slots=True)
class Step:
    """How far the next micro-batch reads, and what cannot be read any more.

    Attributes:
        end: where it ends.
        gone: logs that cannot be read any more, with the offset up to which they were read; each
            until it stands in a checkpoint as away.
    """

    end: Offsets
    gone: tuple[tuple[LogKey, int], ...] = ()


def advance(start: Offsets, present: Mapping[LogKey, Span], most: int) -> Step:
    """Plan how far to read, fairly between logs.

    A log that `start` does not know has come since: it is read from its beginning. One that cannot
    be read now is told, and forgotten only when its exchange has a later one: until then it may
    come back, and nothing of it may be read twice.

    Args:
        start: how far everything is read.
        present: the logs that can be read now.
        most: batches in all; 0: no limit.
    """
    backlog = {
        key: max(0, span.end - max(start.next.get(key, 0), span.floor))
        for key, span in present.items()
    }
    shares = _shares(backlog, most) if most else backlog
    # What has left a log before it was read lies in the plan, too, so that its loss is noticed.
    ends = {
        key: max(start.next.get(key, 0), span.floor) + shares[key] for key, span in present.items()
    }
    missing = [(key, offset) for key, offset in sorted(start.next.items()) if key not in present]
    newest: dict[int, int] = {}
    for key in present:
        newest[key.number] = max(key.epoch, newest.get(key.number, 0))
    away = [(key, offset) for key, offset in missing if key.epoch > newest.get(key.number, 0)]
    kept = dict(sorted(away, key=lambda each: each[0].epoch)[-AWAY_MAX:])
    gone = tuple((key, offset) for key, offset in missing if key not in start.away)
    return Step(Offsets(start.queue_id, ends | kept, frozenset(kept)), gone)


def check_ends(wanted: Mapping[LogKey, int], present: Mapping[LogKey, Span], name: str) -> None:
    """See that no offset lies beyond the end of its log.

    A log only grows, so that is no loss that a query could go on without: whoever has given these
    offsets meant another queue, or mistyped them.

    Args:
        wanted: offset by log; logs that cannot be read now are passed over.
        present: the logs that can be read now.
        name: who has given the offsets, for the error.

    Raises:
        ConfigError: names the log, the offset and the end.
    """
    for key, offset in sorted(wanted.items()):
        end = present[key].end if key in present else offset
        if offset > end:
            raise ConfigError(
                f"{name}: offset {offset} is beyond the end of the log of exchange x{key.number} "
                f"(epoch {key.epoch}), which is {end}: was it taken from another queue or cluster?"
            )


def within(
    present: Mapping[LogKey, Span], target: Mapping[LogKey, int] | None
) -> dict[LogKey, Span]:
    """What can be read of the logs without what has come since.

    Args:
        present: the logs that can be read now.
        target: where they ended then; None: take all.
    """
    if target is None:
        return dict(present)
    return {
        key: Span(span.floor, min(span.end, target[key]))
        for key, span in present.items()
        if key in target
    }


class Part(NamedTuple):
    """Offsets of one log that one task reads: from `first` up to, but without, `until`."""

    log: LogKey
    first: int
    until: int


def parts(start: Offsets, end: Offsets, most: int) -> list[Part]:
    """Divide what lies between two offsets among tasks.

    Args:
        start: read up to here.
        end: to be read up to here.
        most: tasks for one log.
    """
    return [
        part
        for log in sorted(end.next)
        for part in _divided(log, start.next.get(log, 0), end.next[log], most)
    ]


def _divided(log: LogKey, first: int, until: int, most: int) -> list[Part]:
    size = until - first
    count = min(most, size)
    return [
        Part(log, first + size * index // count, first + size * (index + 1) // count)
        for index in range(count)
    ]


def _shares(backlog: Mapping[LogKey, int], most: int) -> dict[LogKey, int]:
    """`most` divided in proportion to what is waiting; the smallest first, so nothing is wasted."""
    shares: dict[LogKey, int] = {}
    left, waiting = most, sum(backlog.values())
    for key in sorted(backlog, key=lambda key: (backlog[key], key)):
        share = backlog[key] if waiting <= left else -(-left * backlog[key] // waiting)
        shares[key] = min(backlog[key], share, left)
        left -= shares[key]
        waiting -= backlog[key]
    return shares
