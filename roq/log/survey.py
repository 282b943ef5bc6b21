"""Goes over the log in a folder without changing it: what is there, and what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from roq.log.files import META, Files, LogRefused, is_index, is_partial, keys_name, parse_name
from roq.log.key_index import is_whole
from roq.log.meta import Meta, read_meta
from roq.log.records import HEAD_BYTES, Found, RecordKind, read_head, read_record
from roq.log.segment_reader import scan
from roq.log.valid_segments import SegmentPlace, Whose, sort_out
from roq.protocol.entry import IDENTITY, read_entry


class SegmentSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """What one segment holds."""

    name: str
    first: int
    """Its first offset."""
    entries: int
    """That can be read."""
    bytes: int
    appended_us: tuple[int, int]
    """Append times of its first and last entry, µs UTC; 0: it has none."""
    lost: list[tuple[int, int]]
    """Offsets [first, behind the last) that cannot be read."""
    problems: list[str]
    """What else is wrong, in sentences."""


EMPTY_BYTES_MAX: Final = 1024 * 1024
"""A log that holds more has held something."""


def holds_nothing(files: Files) -> bool:
    """Whether a log has certainly never had an entry; what cannot be read may be one, and so may
    a file that is none of a log."""
    try:
        names = files.names()
        segments = [
            (place[0], files.size(name), files.read(name, 0, EMPTY_BYTES_MAX))
            for name in names
            if (place := parse_name(name)) is not None
        ]
    except OSError:
        return False
    others = [name for name in names if parse_name(name) is None and name != META]
    if not all(is_index(name) or is_partial(name) for name in others):
        return False
    for base, size, data in segments:
        if base or size != len(data):
            return False
        at = HEAD_BYTES
        while at < len(data) and (found := read_record(data, at)) is not None:
            if found.kind == RecordKind.BATCH:
                return False
            at += found.size
        if any(data[at:]):
            return False
    return True


class LogSurvey:
    """One log in a folder.

    Attributes:
        meta: whose log it is.
        refused: why a start of the exchange refuses it, in sentences: segments that are none of
            this log, of a newer format, or that do not count and may be needed.
        strange: files that are called like segments, and do not count for a start; in sentences.

    Raises:
        LogRefused: it is no log, or all of it is of a newer format.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        try:
            self.meta: Meta = read_meta(files)
        except OSError as error:
            raise LogRefused(
                f"this folder holds no log of RoQ: {META}: {error.strerror or error}. Name the "
                "folder of one exchange, logs/QUEUE-ID/xNUMBER in the data directory of its host"
            ) from error
        self._names = set(files.names())
        whose = Whose(bytes.fromhex(self.meta.queue), self.meta.exchange, self.meta.generation)
        self._identity = whose.identity
        found = sort_out(files, self._names, whose)
        self.refused = found.refused()
        self.strange = [f"{name}: {text}" for name, text in found.strange]
        self._segments = found.count

    def __len__(self) -> int:
        return len(self._segments)

    def segments(self) -> Iterator[SegmentSurvey]:
        """One segment after the other, each read as a whole; not those that leave meanwhile.

        Raises:
            OSError: a file cannot be read.
        """
        for number, place in enumerate(self._segments):
            try:
                survey = self._survey(place, self._until(number))
            except FileNotFoundError:
                continue
            yield survey

    def _survey(self, place: SegmentPlace, until: int | None) -> SegmentSurvey:
        entries = list(self._entries(place, until))
        lost = []
        following = place.base
        for found in entries:
            if found.offset > following:
                lost.append((following, found.offset))
            following = found.offset + 1
        if until is not None and following < until:
            lost.append((following, until))
        times = [read_entry(found.frame).appended_us for found in entries[:1] + entries[-1:]]
        size = self._files.size(place.name)
        return SegmentSurvey(
            name=place.name, first=place.base, entries=len(entries), bytes=size,
            appended_us=(times[0], times[-1]) if times else (0, 0), lost=lost,
            problems=[
                *self._problems(place, entries, size, last=until is None),
                *self._keys(place, until),
            ],
        )  # fmt: skip

    def _keys(self, place: SegmentPlace, until: int | None) -> list[str]:
        """What is wrong with the index of the keys of a segment; one that is missing is made."""
        name = keys_name(place.name)
        if until is None or name not in self._names or until <= place.base:
            return []
        try:
            data = self._files.read(name, 0, self._files.size(name))
        except FileNotFoundError:  # it has left with its segment
            return []
        if is_whole(data, place.base, until - place.base):
            return []
        return ["its index of keys is not whole; the exchange makes it again"]

    def entries(self, first: int = 0) -> Iterator[Found]:
        """All entries from an offset on that can be read, in order; not those that leave meanwhile.

        Raises:
            OSError: a file cannot be read.
        """
        for number, place in enumerate(self._segments):
            until = self._until(number)
            if until is None or until > first:
                try:
                    entries = list(self._entries(place, until))
                except FileNotFoundError:
                    continue
                yield from (found for found in entries if found.offset >= first)

    def _until(self, number: int) -> int | None:
        """Where the entries of a segment end for those of the next one; None: it is the last."""
        return self._segments[number + 1].follows if number + 1 < len(self._segments) else None

    def _entries(self, place: SegmentPlace, until: int | None) -> Iterator[Found]:
        following = place.base
        for found in scan(self._files, place.name, HEAD_BYTES):
            of_this_log = found.frame[IDENTITY] == self._identity
            if found.kind == RecordKind.BATCH and of_this_log and found.offset >= following:
                if until is not None and found.offset >= until:
                    return
                following = found.offset + 1
                yield found

    def _problems(
        self, place: SegmentPlace, entries: list[Found], size: int, *, last: bool
    ) -> list[str]:
        problems = []
        head = read_head(self._files.read(place.name, 0, HEAD_BYTES))
        if head is None:
            problems.append("its head cannot be read")
        end = entries[-1].at + entries[-1].size if entries else HEAD_BYTES
        if last and end < size and not scan(self._files, place.name, end):
            problems.append(
                f"the last {size - end} bytes are no whole record: what was being written; the "
                "next start cuts it off"
            )
        return problems
