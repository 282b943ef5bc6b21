"""What is written to a log on disk together, and synced together.

    Group --write--> in the file --settle--> on the disk --remove--> files that have left are gone

`roq.log.segments` makes groups and is told when they are settled. A group may be written while what
is before it is synced; all that is written by then is settled by the next sync. Files may be
removed beside that: nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from roq.log.files import NEW_SUFFIX, SEGMENT_SUFFIX, Files, put_help
from roq.log.log import Record
from roq.log.records import RecordKind, pack_record

B = TypeVar("B")


@dataclass(slots=True)
class Group(Generic[B]):
    """What is written and synced together; made by `SegmentLog.gather`.

    Attributes:
        segment: name of the file; empty: nothing is written, only files are removed.
        head: of a segment that is new; None: the file is there.
        at: where in the file it is written.
        changes: of consumer groups, behind the entries: the body of a record, and its frame.
        snapshot: likewise of a snapshot, behind those.
        records: the entries.
        synced: below it everything was on the disk when this was made.
        end: what may be committed when it is on the disk.
        indexes: of segments that are complete: name of the file and what stands in it.
        removed: names of files that have left.
        told: `SegmentLog.told` when it is on the disk.
        sync: it is committed when it is synced, and not before.
        anew: it takes the place of all that stands in the segment.
    """

    segment: str = ""
    head: bytes | None = None
    at: int = 0
    changes: tuple[bytes, bytes] | None = None
    snapshot: tuple[bytes, bytes] | None = None
    records: list[Record[B]] = field(default_factory=list)
    synced: int = 0
    end: int = 0
    indexes: list[tuple[str, bytes]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    told: int = 0
    sync: bool = True
    anew: bool = False

    @property
    def follows(self) -> bool:
        """Whether another one may be written behind it before it is on the disk: it makes no file,
        and does nothing but add entries, and changes, to one that is there."""
        more = self.indexes or self.snapshot is not None
        return bool(self.records) and self.head is None and not more


@dataclass(frozen=True, slots=True)
class Sync:
    """What is synced beside the groups; made by `SegmentLog.gather_sync`, for `perform_sync`.

    Attributes:
        segment: name of the file.
        end: below it everything is on the disk afterwards.
    """

    segment: str
    end: int


def perform(files: Files, group: Group[B]) -> None:
    """Write a group, wait until it is on the disk if it says so, and remove what has left.

    Raises:
        OSError: it is not known to be there, and never will be: nothing more may be written.
    """
    write(files, group)
    settle(files, [group])
    remove(files, group.removed)


def write(files: Files, group: Group[B]) -> None:
    """Write a group, which counts when it is settled.

    Raises:
        OSError: as `perform`.
    """
    if not group.segment:
        return
    buffers: list[bytes | memoryview] = []
    name = group.segment + NEW_SUFFIX * group.anew
    if group.head is not None:
        files.create(name)
        buffers.append(group.head)
    for topic, frame, batch, size in group.records:
        before, behind = pack_record(RecordKind.BATCH, topic.name, frame, batch, size, group.synced)
        buffers += (before, cast("bytes", batch), behind) if behind else (before, batch)  # type: ignore[arg-type]
    for kind, record in (
        (RecordKind.GROUPS, group.changes),
        (RecordKind.SNAPSHOT, group.snapshot),
    ):
        if record is not None:
            body, frame = record
            before, behind = pack_record(kind, b"", frame, body, len(body), group.synced)
            buffers += (before, body, behind)
    files.write(name, group.at, buffers)


def settle(files: Files, groups: Sequence[Group[B]]) -> None:
    """Wait until these, which were written, are on the disk, if they say so; one sync for all.

    Args:
        groups: the newest ones that are under way, in order. Several are of one segment.

    Raises:
        OSError: as `perform`.
    """
    group = groups[-1]
    if group.segment:
        name = group.segment + NEW_SUFFIX * group.anew
        if any(each.sync for each in groups):
            files.sync(name)
        if group.anew:
            files.rename(name, group.segment)
        if group.head is not None:
            files.sync_folder()
    for name, data in group.indexes:
        put_help(files, name, data)  # and no truth: it is made again from the segment


def remove(files: Files, names: Sequence[str]) -> None:
    """Remove the files that have left with groups which are settled, in order.

    A large file takes the system a while, so it may be done beside other groups; from one thread.

    Raises:
        OSError: some may still be there.
    """
    for name in names:
        files.remove(name)
        if name.endswith(SEGMENT_SUFFIX):
            # One after the other, or a power cut might bring back an old one behind a hole.
            files.sync_folder()


def sync_indexes(files: Files, names: Sequence[str]) -> None:
    """Have the index files of settled groups on the disk; beside other groups, from any thread.

    Else a power cut takes all that the system has kept in memory, of half a minute, and the next
    start goes over their segments instead. The name of the newest one counts when the next segment
    is made; nothing else is synced for it, as acknowledgements would wait for that.
    """
    for name in names:
        with suppress(OSError):  # as it may have left; and it is a help and no truth
            files.sync_beside(name)


def perform_sync(files: Files, sync: Sync) -> None:
    """Wait until what was written is on the disk; in a thread of its own, beside `perform`.

    Raises:
        OSError: as `perform`.
    """
    files.sync_beside(sync.segment)
