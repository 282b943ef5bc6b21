"""How far a query has read: one offset per log, planned without any socket.

Logs come (an exchange was added, or started anew) and go (it was removed, or its process has
died); a query goes on with what there is. Of a log that went in order its cluster tells the end, so
a query knows whether it has read all of it. The numbers of exchanges only rise, so it knows which
came and went while it did not look.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from roq.errors import ConfigError
from roq.model import LogId
from roq.number_ranges import CHILD_EPOCH_MAX, OFFSET_MAX

FORMAT: Final = 1
NUMBER_MAX: Final = (1 << 32) - 1
"""Largest number of an exchange."""
AWAY_MAX: Final = 1_000
"""So many logs that cannot be read are remembered, those that began last."""


class Span(NamedTuple):
    """What can be read of a log: offsets from `floor` up to, but without, `end`."""

    floor: int
    end: int


class Departed(NamedTuple):
    """An exchange that went for good."""

    generation: int
    """Of its last log; 0: none, or nobody knows."""
    end: int
    """Of that log; -1: nobody knows."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """How far all logs of a queue are read.

    Attributes:
        queue_id: hexadecimal; a queue that was removed and made anew is another one.
        next: offset of the next batch, by log.
        away: those of the logs that could not be read any more, as was told.
        highest: of all exchanges up to this number it is known whether they have to be read;
            if it is not given, those in `next`.
    """

    queue_id: str
    next: Mapping[LogId, int] = field(default_factory=dict)
    away: frozenset[LogId] = frozenset()
    highest: int = -1

    def __post_init__(self) -> None:
        if self.highest < 0:
            known = max((key.number for key in self.next), default=0)
            object.__setattr__(self, "highest", known)

    def document(self) -> dict[str, object]:
        """As a checkpoint holds it: keys in one order, for Spark compares the text."""
        return {
            "away": [str(key) for key in sorted(self.away)],
            "format": FORMAT,
            "highest": self.highest,
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
    found: dict[LogId, int] = {}
    logs = document["logs"]
    assert isinstance(logs, dict)  # noqa: S101 - narrows the type
    for text, offset in logs.items():
        number, _, generation = str(text).partition(":")
        key = LogId(_number(number, NUMBER_MAX), _number(generation, CHILD_EPOCH_MAX))
        if min(key) < 0 or type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
            raise ConfigError(
                f"the checkpoint holds an offset that is none: {text!s:.60}: {offset!r:.60}"
            )
        found[key] = offset
    away = document.get("away", [])
    told = frozenset(key for key in found if isinstance(away, list) and str(key) in away)
    highest = document.get("highest")
    if type(highest) is not int or not 0 <= highest <= NUMBER_MAX:
        highest = -1
    return Offsets(queue_id, found, told, highest)


def _number(text: str, most: int) -> int:
    """The number that the digits say; -1 if it cannot be one."""
    fits = text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most
    return int(text) if fits else -1


@dataclass(frozen=True, slots=True)
class Step:
    """How far the next micro-batch reads, and what cannot be read any more.

    Attributes:
        end: where it ends.
        gone: logs that cannot be read any more, with the offset up to which they were read; each
            until it stands in a checkpoint as away.
    """

    end: Offsets
    gone: tuple[tuple[LogId, int], ...] = ()


def advance(
    start: Offsets,
    present: Mapping[LogId, Span],
    most: int,
    *,
    silent: Collection[LogId] = (),
    highest: int | None = None,
) -> Step:
    """Plan how far to read, fairly between logs.

    A log that `start` does not know has come since: it is read from its beginning. One that cannot
    be read now is told, and forgotten only when its exchange has a later one: until then it may
    come back, and nothing of it may be read twice.

    Args:
        start: how far everything is read.
        present: the logs that can be read now.
        most: batches in all; 0: no limit.
        silent: logs that cannot be read now, but that the cluster has not given up.
        highest: as `settled` gives it; None: that of `present`.
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
        newest[key.number] = max(key.generation, newest.get(key.number, 0))
    away = [(key, offset) for key, offset in missing if key.generation > newest.get(key.number, 0)]
    kept = dict(sorted(away, key=lambda each: each[0].generation)[-AWAY_MAX:])
    gone = tuple(
        (key, offset) for key, offset in missing if key not in start.away and key not in silent
    )
    if highest is None:
        highest = settled(start, present, (), ())
    told = frozenset(kept).difference(silent)
    return Step(Offsets(start.queue_id, ends | kept, told, highest), gone)


def settled(
    start: Offsets,
    present: Collection[LogId],
    numbers: Collection[int],
    departed: Collection[int],
) -> int:
    """Up to which number it is known of each exchange whether it has to be read.

    Args:
        start: how far everything is read.
        present: the logs that can be read now.
        numbers: of all exchanges that the queue has now, also of those that do not serve yet.
        departed: of those that went last.
    """
    known = {key.number for key in (*present, *start.next)}
    top = max((*known, *departed), default=0)
    awaited = [number for number in numbers if number not in known and number not in departed]
    return max(start.highest, min([top, *(number - 1 for number in awaited)]))


def came_and_went(
    start: Offsets, end: Offsets, numbers: Collection[int], departed: Mapping[int, Departed]
) -> dict[int, int]:
    """Exchanges of which nothing was read, because they came and went between two looks.

    Args:
        start: how far everything was read at the first look.
        end: how far it is to be read, as of the second one.
        numbers: of all exchanges that the queue has now.
        departed: by number, the exchanges that went last.

    Returns:
        By number, how many batches they had (-1: nobody knows); those that had none are left out.
    """
    here = {*numbers, *(key.number for key in end.next)}
    since = range(start.highest + 1, end.highest + 1)
    missed = islice((number for number in since if number not in here), AWAY_MAX)
    ends = {number: departed[number].end if number in departed else -1 for number in missed}
    return {number: count for number, count in ends.items() if count != 0}


def check_ends(wanted: Mapping[LogId, int], present: Mapping[LogId, Span], name: str) -> None:
    """See that no offset lies beyond the end of its log.

    A log only grows, so that is no loss that a query could go on without: the user that gave these
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
                f"(generation {key.generation}), which is {end}: was it taken from another queue "
                "or cluster?"
            )


def within(present: Mapping[LogId, Span], target: Mapping[LogId, int] | None) -> dict[LogId, Span]:
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

    log: LogId
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


def _divided(log: LogId, first: int, until: int, most: int) -> list[Part]:
    size = until - first
    count = min(most, size)
    return [
        Part(log, first + size * index // count, first + size * (index + 1) // count)
        for index in range(count)
    ]


def _shares(backlog: Mapping[LogId, int], most: int) -> dict[LogId, int]:
    """`most` divided in proportion to what is waiting; the smallest first, so nothing is wasted."""
    shares: dict[LogId, int] = {}
    left, waiting = most, sum(backlog.values())
    for key in sorted(backlog, key=lambda key: (backlog[key], key)):
        share = backlog[key] if waiting <= left else -(-left * backlog[key] // waiting)
        shares[key] = min(backlog[key], share, left)
        left -= shares[key]
        waiting -= backlog[key]
    return shares
