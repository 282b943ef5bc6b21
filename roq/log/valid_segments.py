"""Which files of a folder are segments of its log, and which of these count.

One rule for a start, for `roq log verify` and `dump`, and for `roq log repair`. It reads, and
changes nothing. By its name alone one file can have all others not count, and what does not count
is removed by a start: so first it is asked what each file says of itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from roq.log.files import Files, parse_name, segment_name
from roq.log.records import (
    HEAD_BYTES,
    RECORD_BYTES,
    Found,
    RecordKind,
    SegmentHead,
    other_format,
    read_head,
)
from roq.log.segment_reader import scan
from roq.number_ranges import CHILD_EPOCH_MAX
from roq.protocol.entry import IDENTITY, EntryKind, pack_entry

EPOCHS_END: Final = CHILD_EPOCH_MAX + (1 << 20)
"""Epochs of segments are lower: each start has one above those that it finds, also with a registry
that was restored, and no log has so many starts."""


class Whose(NamedTuple):
    """Of which log the segments are to be."""

    queue: bytes
    exchange: int
    generation: int

    @property
    def identity(self) -> bytes:
        """Part `IDENTITY` of its entry frames."""
        return pack_entry(
            EntryKind.ENTRY, self.exchange, self.queue, self.generation, 0, 0, 0
        )[IDENTITY]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """A segment, by its name; `head` is None if that cannot be read."""

    name: str
    base: int
    epoch: int
    size: int = 0
    head: SegmentHead | None = None

    @property
    def left_out(self) -> int:
        """Offsets before its base that belong to no entry."""
        return 0 if self.head is None else min(self.head.left_out, self.base)

    @property
    def follows(self) -> int:
        """Where what stands before it ends."""
        return self.base - self.left_out


class FileProblem(NamedTuple):
    """What is wrong with a file, in a sentence."""

    name: str
    text: str


class Displaced(NamedTuple):
    """A segment that does not count, as one of a later process has begun there or before.

    Attributes:
        by: that one.
        more: it was made later than that one, and holds what that one does not.
    """

    place: SegmentPlace
    by: SegmentPlace
    more: bool


@dataclass(slots=True)
class SortedFiles:
    """The files of a folder that are called like segments.

    Attributes:
        count: those that count, in order.
        newer: of a format that this RoQ does not know.
        foreign: those that are none of this log: a start refuses them.
        denied: likewise; they do not count, and what was acknowledged may stand in them alone.
        strange: they say nothing, and stand where none of this log can: they do not count.
        displaced: of this log; they do not count, and are not needed.
    """

    count: list[SegmentPlace] = field(default_factory=list)
    newer: list[FileProblem] = field(default_factory=list)
    foreign: list[FileProblem] = field(default_factory=list)
    denied: list[FileProblem] = field(default_factory=list)
    strange: list[FileProblem] = field(default_factory=list)
    displaced: list[Displaced] = field(default_factory=list)

    def refused(self) -> list[str]:
        """Why a start refuses the log, a sentence for each file."""
        remedies = (
            (self.newer, "install the version of RoQ that wrote it"),
            (self.foreign, "move it away"),
            (self.denied, "`roq log repair` says what it would do, and keeps a copy"),
        )
        return [
            f"{name}: {text}: {remedy}" for told, remedy in remedies for name, text in told
        ]  # fmt: skip


def sort_out(files: Files, names: Iterable[str], whose: Whose) -> SortedFiles:
    """What each file is that is called like a segment. One that has gone meanwhile is passed over.

    Raises:
        OSError: a file cannot be read.
    """
    result = SortedFiles()
    places: list[SegmentPlace] = []
    for name in sorted(names):
        parsed = parse_name(name)
        if parsed is None:
            continue
        try:
            data, size = files.read(name, 0, HEAD_BYTES), files.size(name)
        except FileNotFoundError:
            continue
        newer = other_format(data)
        if newer is not None:
            result.newer.append(FileProblem(name, f"it has format {newer}"))
            continue
        place = SegmentPlace(name, *parsed, size, read_head(data))
        why = _foreign(place, whose)
        if why:
            result.foreign.append(FileProblem(name, why))
        else:
            places.append(place)
    empty = {place: _records(files, place) for place in places if place.head is None}
    known = [each for each in places if each.head is not None or _mine(empty[each], whose)]
    names_known = {each.name for each in known}
    ours = []
    for place in places:
        why = "" if place.name in names_known else _strange(place, empty[place], known)
        if why:
            result.strange.append(FileProblem(place.name, why))
        else:
            ours.append(place)
    result.count, displaced = counting(ours)
    for place, by in sorted(displaced, key=lambda each: each[0].name):
        found = _mine(_records(files, place), whose)
        claim = max((each.synced for each in found if _believed(each, place)), default=0)
        if claim > by.base:
            result.denied.append(FileProblem(place.name, (
                f"it does not count, as {by.name} of a later process begins at offset {by.base}, "
                f"but it says that all below {claim} was on the disk: what only it holds may have "
                "been acknowledged"
            )))  # fmt: skip
        else:
            result.displaced.append(Displaced(place, by, _has_more(files, place, found, by)))
    return result


def counting(
    found: Iterable[SegmentPlace],
) -> tuple[list[SegmentPlace], list[tuple[SegmentPlace, SegmentPlace]]]:
    """Those that count, in order, and the others, each with what displaces it: a later process
    decides."""
    segments: list[SegmentPlace] = []
    displaced: list[tuple[SegmentPlace, SegmentPlace]] = []
    for place in sorted(found, key=lambda each: (each.epoch, each.base)):
        while segments and segments[-1].base >= place.base:
            displaced.append((segments.pop(), place))
        segments.append(place)
    return segments, displaced


def _foreign(place: SegmentPlace, whose: Whose) -> str:
    """Why a segment is none of this log; empty: it is, or nobody can say otherwise."""
    if place.epoch >= EPOCHS_END:
        return f"it names an epoch that no process has had, {place.epoch}"
    head = place.head
    if head is None:
        return ""
    if (head.queue, head.exchange, head.generation) != whose:
        return (
            f"it is a segment of another log (exchange {head.exchange}, generation "
            f"{head.generation})"
        )
    if (head.base, head.epoch) != (place.base, place.epoch):
        return f"it is a copy of {segment_name(head.base, head.epoch)} under another name"
    return ""


def _strange(place: SegmentPlace, found: list[Found], known: list[SegmentPlace]) -> str:
    """Why a file that has neither a head nor a record of this log is none of it; empty: it may be
    one that was being made.

    Args:
        found: records of other logs.
        known: segments that say that they are of this log; without one nobody can tell.
    """
    if found:
        return "its head cannot be read, and its records are of another log: it does not count"
    room = max((each.base + each.size // RECORD_BYTES for each in known), default=place.base)
    if place.base <= room and all(each.base < place.base for each in known):
        return ""
    later = [each for each in known if each.epoch > place.epoch]
    if any(each.follows <= place.base <= max(each.base, room) for each in later):
        return ""  # what a start has passed over or removed, and a power cut has brought back
    return (
        "its head cannot be read, nor a record of this log, and none of its segments can begin "
        "there: it does not count"
    )


def _has_more(files: Files, place: SegmentPlace, found: list[Found], by: SegmentPlace) -> bool:
    if place.head is None or by.head is None or place.head.created_us <= by.head.created_us:
        return False
    there = {each.frame for each in _records(files, by)}
    return any(each.kind == RecordKind.BATCH and each.frame not in there for each in found)


def _believed(found: Found, place: SegmentPlace) -> bool:
    """Whatever is written there: a file holds no more than it has room for."""
    return found.synced <= found.offset <= place.base + place.size // RECORD_BYTES


def _mine(found: list[Found], whose: Whose) -> list[Found]:
    identity = whose.identity
    return [each for each in found if each.frame[IDENTITY] == identity]


def _records(files: Files, place: SegmentPlace) -> list[Found]:
    try:
        return scan(files, place.name, HEAD_BYTES)
    except FileNotFoundError:
        return []
