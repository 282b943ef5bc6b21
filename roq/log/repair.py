"""Repairs the log in a folder that no process has: cuts off and sets aside, and guesses nothing.

A start of the exchange passes over what it cannot read, so a log seldom needs this. It helps where
a start refuses a log for a file that does not belong there, and where an index says otherwise than
its segment. `plan` says what is to be done, `repair` does it; what goes is copied elsewhere first.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Final

from roq.log.files import (
    NEW_SUFFIX,
    Files,
    LogRefused,
    index_name,
    is_index,
    is_partial,
    keys_name,
    parse_name,
)
from roq.log.index import LOST, SegmentIndex
from roq.log.key_index import is_whole
from roq.log.meta import Meta, read_meta
from roq.log.records import FRAME_AT, HEAD_BYTES
from roq.log.segment_reader import (
    Segment,
    scan,
    scan_index,
)
from roq.log.valid_segments import SegmentPlace, Whose, sort_out
from roq.protocol.entry import ENTRY_BYTES, IDENTITY, EntryKind, pack_entry, read_entry

_PIECE: Final = 1024 * 1024
"""What is copied at once."""
_PART: Final = ".part"
"""Of a copy that is not complete: no file of a log is called so, thus none of those set aside."""


class Way(StrEnum):
    """What is done to a file."""

    CUT = "cut"
    """Its end goes."""
    ASIDE = "set aside"
    """All of it goes."""
    SKIP = "skip"
    """Nothing goes: its index is made to say what of it cannot be read."""
    INDEX = "index"
    """Its index is made again."""


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One thing that is to be done.

    Attributes:
        name: the segment, or another file.
        at: where the end begins that is cut off; of an index, the offset behind its segment.
        text: why, and what is lost by it.
    """

    way: Way
    name: str
    text: str
    at: int = 0


def plan(files: Files) -> list[RepairStep]:
    """What is to be done; nothing is changed.

    Raises:
        LogRefused: the folder does not say whose log it is, and nobody can know; or something is
            of a newer format.
        OSError: a file cannot be read.
    """
    meta = read_meta(files)
    names = sorted(files.names())
    found = sort_out(files, names, Whose(bytes.fromhex(meta.queue), meta.exchange, meta.generation))
    if found.newer:
        raise LogRefused(found.refused()[0])
    steps = [
        RepairStep(Way.ASIDE, name, "it was never completed: nothing counts on it")
        for name in names
        if is_partial(name)
    ]
    steps += [
        RepairStep(Way.ASIDE, name, text)
        for name, text in sorted([*found.foreign, *found.denied, *found.strange])
    ]
    steps += [
        RepairStep(
            Way.ASIDE, place.name, "a later process has begun before it: it does not count"
        )
        for place, _, _ in found.displaced
    ]  # fmt: skip
    counted = found.count
    kept = {place.name for place in counted}
    ends = [place.follows for place in counted[1:]]
    for place, until in zip(counted, [*ends, None], strict=False):  # none, if there is no segment
        steps += _segment(files, place, until, meta)
    steps += [
        RepairStep(Way.ASIDE, name, "there is no segment that it is an index of")
        for name in names
        if is_index(name)
        and name not in {of(each) for each in kept for of in (index_name, keys_name)}
    ]
    for place, until in zip(counted, ends, strict=False):
        steps += _keys(files, place, until, names)
    return steps


def _keys(files: Files, place: SegmentPlace, until: int, names: list[str]) -> list[RepairStep]:
    name = keys_name(place.name)
    if name not in names or is_whole(
        files.read(name, 0, files.size(name)), place.base, until - place.base
    ):
        return []
    text = "this index of keys is not whole; the exchange makes it again"
    return [RepairStep(Way.ASIDE, name, text)]


def repair(files: Files, aside: Files, steps: list[RepairStep]) -> None:
    """Do what was planned. What goes is in the folder `aside`, synced, before it goes.

    Raises:
        OSError: it cannot be done; what was done stays done, and `plan` tells the rest.
    """
    for step in steps:
        if step.way is Way.ASIDE:
            _keep(files, step.name, 0, files.size(step.name), aside, step.name)
            files.remove(step.name)
        elif step.way is Way.CUT:
            size = files.size(step.name)
            _keep(files, step.name, step.at, size, aside, f"{step.name}.from-{step.at}")
            _copy(files, step.name, 0, step.at, files, step.name + NEW_SUFFIX)
            files.rename(step.name + NEW_SUFFIX, step.name)
        else:
            _make_index(files, step)
        files.sync_folder()


def _segment(files: Files, place: SegmentPlace, until: int | None, meta: Meta) -> list[RepairStep]:
    identity = pack_entry(
        EntryKind.ENTRY, meta.exchange, bytes.fromhex(meta.queue), meta.generation, 0, 0, 0
    )[IDENTITY]
    records = [
        found
        for found in scan(files, place.name, HEAD_BYTES)
        if found.frame[IDENTITY] == identity
    ]  # fmt: skip
    size = files.size(place.name)
    if until is None:
        end = max((found.at + found.size for found in records), default=min(size, HEAD_BYTES))
        if end >= size:
            return []
        text = f"its last {size - end} bytes are no whole record: they were never acknowledged"
        return [RepairStep(Way.CUT, place.name, f"{text}, or are damaged", end)]
    truth, brief = _index(files, place, until)
    name = index_name(place.name)
    if name in files.names() and files.read(name, 0, files.size(name)) == brief + truth.pack():
        return []
    lost = truth.lost()
    if lost:
        text = f"{len(lost)} of its entries cannot be read, the first at offset {lost[0]}"
        return [RepairStep(Way.SKIP, place.name, f"{text}: readers pass over them", until)]
    text = "its index is missing, of an earlier version, or says otherwise; nothing is lost"
    return [RepairStep(Way.INDEX, place.name, text, until)]


def _index(files: Files, place: SegmentPlace, until: int) -> tuple[SegmentIndex, bytes]:
    """What a closed segment holds, and what its index has to say at its beginning."""
    index = scan_index(files, Segment(place.name, place.base, until, files.size(place.name)))
    readable = [offset for offset in range(place.base, until) if index.position(offset) != LOST]
    times = [_time(files, place.name, index.position(at)) for at in readable[:1] + readable[-1:]]
    first_us, last_us = (times[0], times[-1]) if times else (0, 0)
    return index, index.brief(first_us, last_us, index.kept).pack()


def _time(files: Files, name: str, position: int) -> int:
    return read_entry(files.read(name, position + FRAME_AT, ENTRY_BYTES)).appended_us


def _make_index(files: Files, step: RepairStep) -> None:
    parsed = parse_name(step.name)
    assert parsed is not None  # noqa: S101 - `plan` has made it of a segment
    index, brief = _index(files, SegmentPlace(step.name, *parsed), step.at)
    partial = index_name(step.name) + NEW_SUFFIX
    files.create(partial)
    files.write(partial, 0, [brief + index.pack()])
    files.sync(partial)
    files.rename(partial, index_name(step.name))


def _keep(source: Files, name: str, at: int, end: int, aside: Files, to: str) -> None:
    """Copy what goes. What an earlier repair has left there, of this log or another, stays."""
    there = set(aside.names())
    names = (to if number == 1 else f"{to}.{number}" for number in count(1))
    for kept in names:
        if kept not in there:
            _copy(source, name, at, end, aside, kept + _PART)
            aside.rename(kept + _PART, kept)
            aside.sync_folder()
            return
        if _is_copy(source, name, at, end, aside, kept):  # it was interrupted behind that
            return


def _is_copy(source: Files, name: str, at: int, end: int, aside: Files, kept: str) -> bool:
    size = end - at
    return aside.size(kept) == size and all(
        source.read(name, at + done, min(_PIECE, size - done))
        == aside.read(kept, done, min(_PIECE, size - done))
        for done in range(0, size, _PIECE)
    )


def _copy(source: Files, name: str, at: int, end: int, target: Files, to: str) -> None:
    """A part of a file as another file, synced."""
    target.create(to)
    written = 0
    while at < end:
        data = source.read(name, at, min(_PIECE, end - at))
        if not data:
            raise OSError(errno.EIO, "a file has become shorter", name)
        target.write(to, written, [data])
        at += len(data)
        written += len(data)
    target.sync(to)
    target.sync_folder()
