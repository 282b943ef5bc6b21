"""The log of a durable exchange: opened, handed to its writer, and what is told when that fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final, Protocol, TypeVar

from roq.exchange.disk_room import Room
from roq.exchange.disk_worker import CLOSE_SECONDS, DiskWorker
from roq.exchange.group_commit import GroupCommit
from roq.log.disk import DiskFiles
from roq.log.disk_groups import Group, Sync, perform_sync, remove, settle, sync_indexes, write
from roq.log.files import LogRefused
from roq.log.log import NotAtHand
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SEGMENT_BYTES
from roq.log.streams import spare_of
from roq.protocol.spec import ExchangeSpec

T = TypeVar("T")


class _Load:
    """Something that is read from the disk, in the thread that reads ahead."""

    def __init__(self, miss: NotAtHand) -> None:
        self._miss = miss
        self._found: object = None

    def run(self) -> None:
        """Read it."""
        self._found = self._miss.load()

    def keep(self) -> None:
        """Have the log know it."""
        self._miss.keep(self._found)


INDEX_PAUSE_SECONDS: Final = 0.002
"""Whoever makes an index gives way so long, every few batches: the loop waits for the interpreter
no longer than these take, and of a core at most about a sixth is used."""
SEGMENTS_LEAST: Final = 8
"""A small log has so many files, as whole ones go."""
LOOK_BYTES: Final = 64 * 1024 * 1024
"""While the disk has plenty of room it is looked how much behind so much; and each second."""
SYNC_SECONDS: Final = 0.1
"""A log that runs ahead of its disk is synced so long after something was written,"""
SYNC_BYTES: Final = 16 * 1024 * 1024
"""or when so much is not synced."""


class Timers(Protocol):
    """What is wanted of the loop."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Have a function called in the loop, from any thread."""
        ...

    def call_here(self, function: Callable[[], None]) -> None:
        """The same, or in its place while it sleeps: it may touch no ZeroMQ socket."""
        ...

    def call_later(self, delay: float, function: Callable[[], None]) -> object:
        """Have it called after so many seconds."""
        ...


class DiskLog:
    """Loop thread only, or who runs something in its place.

    Args:
        spec: of an exchange that has a folder.
        now_us: wall clock, µs UTC.
        loop: has functions called.
        committed: called when more of the log is committed; in place of the loop while it sleeps.
        failed: called, with why in a sentence, when nothing can be committed any more.

    Attributes:
        readable: what is committed can be read, also when nothing can be written any more.

    Raises:
        LogRefused: there is a log that is not this exchange's to go on with, or none can be made.
    """

    def __init__(
        self,
        spec: ExchangeSpec,
        now_us: int,
        loop: Timers,
        committed: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self._folder = spec.log
        self._committed = committed
        self._told_failed = failed
        self._files = DiskFiles(Path(spec.log))
        try:
            # What is read back is bytes; what is appended may be a frame as well.
            self.log = open_log(self._files, _settings(spec, now_us))
        except LogRefused as error:
            self._files.close()
            raise LogRefused(f"{spec.log}: {error}") from None
        self.measured: Callable[[Room], None] = lambda _: None
        """Called when it was looked how much room the disk has."""
        self.changes_kept: Callable[[], None] = lambda: None
        """Called when the changes that were gathered last are written."""
        self.readable = True
        self.failure = ""
        """Why nothing can be written any more; empty: all is well."""
        self._writer: GroupCommit[Group[bytes]] = GroupCommit(
            partial(write, self._files),
            self._settle,
            loop.call_soon,
            loop.call_here,
            self._written,
            self._failed,
        )
        self._reader: DiskWorker[_Load] = DiskWorker(
            _Load.run, loop.call_soon, self._was_read, self._unreadable, "log reader"
        )
        self._indexer: DiskWorker[_Load] | None = None
        """Makes indexes of keys, from when there is one to make; without it readers ask on."""
        self._remover: DiskWorker[list[str]] | None = None
        """Removes files, from when there is one to remove."""
        self._index_syncer: DiskWorker[list[str]] | None = None
        """Syncs index files, from when there is one. Not the remover, for which writing waits."""
        self._complete = self.log.recovered.indexes.copy()
        """Index files that wait for it; of segments that are there."""
        self._leaving: list[str] = []
        """What waits for the remover; nothing more is written meanwhile."""
        self._then: Callable[[], None] | None = None
        """Of those that wait until something is read."""
        self._limits = spec.limits
        self._room: Room | None = None
        """Measured last; behind a group, or files that have left, by the thread that is at it."""
        self._room_told: Room | None = None
        self._unlooked = 0
        """Bytes that were written since the thread that writes has looked."""
        self._call_later, self._call_soon = loop.call_later, loop.call_soon
        self._closing = Event()
        self._timed = False
        """Whether the next sync has its time."""
        self._syncer: DiskWorker[Sync] | None = None
        """None: what is written is synced."""
        if spec.ahead:
            self._syncer = DiskWorker(
                partial(perform_sync, self._files), loop.call_soon, self._synced, self._failed
            )

    @property
    def settled(self) -> bool:
        """Whether nothing waits for the disk, or nothing more can come of that."""
        log = self.log
        return bool(self.failure) or (log.synced >= log.end and not log.sync_due)

    def write_on(self, snapshot: Callable[[], bytes], changes: Callable[[], bytes]) -> None:
        """Have written what has gathered, unless the disk is still at what was before.

        Args:
            snapshot, changes: as `SegmentLog.gather` says.
        """
        if self._writer.busy or self.failure or self._leaving:
            return
        group = self.log.gather(snapshot, changes)
        if group is not None:
            self._writer.write(group)
        elif self.log.sync_wanted:
            self._sync()

    def at_hand(self, ask: Callable[[], T], then: Callable[[], None]) -> T | None:
        """Ask for something, unless the disk would have to be waited for: then it is read.

        One thing is read at a time, in a thread of its own; who comes meanwhile asks again.

        Args:
            ask: asks it of the log; None is no answer of its own.
            then: called when something was read: ask again.

        Returns:
            the answer; None: not yet.
        """
        self.log.patient = False
        try:
            return ask()
        except NotAtHand as miss:
            self._then = then
            if not self._reader.busy:
                self._reader.begin(_Load(miss))
            return None
        finally:
            self.log.patient = True

    def look(self) -> None:
        """Have it looked how much room the disk has; the disk may take its time for that."""
        if not self._reader.busy:
            self._reader.begin(_Load(NotAtHand(self._measure, self._keep_room)))

    def look_now(self) -> None:
        """The same, at once."""
        self._keep_room(self._measure())

    def close(self) -> bool:
        """Write no more; whether the disk has come to an end with what it was given.

        It takes `CLOSE_SECONDS` at most.
        """
        self._closing.set()
        until = monotonic() + CLOSE_SECONDS
        maybe = (
            self._writer, self._reader, self._syncer, self._remover, self._indexer,
            self._index_syncer,
        )  # fmt: skip
        workers = [worker for worker in maybe if worker is not None]
        for worker in workers:
            worker.end()
        ended = [worker.close(max(0.0, until - monotonic())) for worker in workers]
        if all(ended):
            self._files.close()
        return all(ended)

    def _settle(self, groups: list[Group[bytes]]) -> None:
        settle(self._files, groups)
        # Publishers wait for this, so where there is plenty it is not looked behind each group.
        room = self._room
        self._unlooked += sum(size for group in groups for *_, size in group.records)
        plenty = room is not None and room.is_plenty(self._limits)
        if not plenty or self._unlooked >= LOOK_BYTES:
            self._room, self._unlooked = self._measure(), 0

    def _measure(self) -> Room | None:
        try:
            return Room(*self._files.room())
        except OSError:  # what the system does not tell is not looked at; writes tell it then
            return None

    def _keep_room(self, room: object) -> None:
        if isinstance(room, Room):
            self._room = self._room_told = room
            self.measured(room)

    def _tell_room(self) -> None:
        if (room := self._room) is not self._room_told:
            self._keep_room(room)

    def _was_read(self, load: _Load) -> None:
        load.keep()
        then, self._then = self._then, None
        if then is not None:
            then()

    def _written(self, groups: list[Group[bytes]]) -> None:
        if self.failure and self._syncer is not None:
            return  # see `_synced`
        for group in groups:
            self.log.commit(group.end)
            if group.changes is not None or group.anew:  # then they stand in its snapshot
                self.changes_kept()
            self._leaving += group.removed
            self._complete += [name for name, _ in group.indexes]
        self._tell_room()
        self._remove_on()  # first: what is written next waits for what is left
        self._committed()
        self._pace()
        self._index_on()
        self._sync_indexes()

    def _remove_on(self) -> None:
        """Have removed what has left, unless the disk is still at what was before."""
        if not self._leaving:
            return
        if self._remover is None:
            self._remover = DiskWorker(
                self._remove, self._call_soon, self._were_removed,
                partial(self._failed, what="remove files of"), "log remover",
            )  # fmt: skip
        if not self._remover.busy:
            names, self._leaving = self._leaving, []
            self._remover.begin(names)

    def _remove(self, names: list[str]) -> None:
        """In its thread."""
        remove(self._files, names)
        self._room = self._measure()

    def _were_removed(self, _: list[str]) -> None:
        waited = bool(self._leaving)
        self._tell_room()
        self._remove_on()
        if waited:
            self._committed()  # so that what waits is written

    def _sync_indexes(self) -> None:
        """Have the indexes of complete segments synced: nobody waits for that."""
        if not self._complete:
            return
        if self._index_syncer is None:
            self._index_syncer = DiskWorker(
                partial(sync_indexes, self._files), self._call_soon,
                lambda _: self._sync_indexes(), lambda _: None, "index syncer",
            )  # fmt: skip
        if not self._index_syncer.busy:
            names, self._complete = self._complete, []
            self._index_syncer.begin(names)

    def _index_on(self) -> None:
        """Have the next index of keys made, if one is missing."""
        if self._indexer is not None and self._indexer.busy:
            return
        due = self.log.keys.due(self._give_way)
        if due is None:
            return
        if self._indexer is None:
            self._indexer = DiskWorker(
                _Load.run, self._call_soon, self._was_indexed, lambda _: None, "key indexer"
            )
        self._indexer.begin(_Load(due))

    def _give_way(self) -> None:
        if self._closing.wait(INDEX_PAUSE_SECONDS):
            raise InterruptedError(f"the log in {self._folder} is closed")

    def _was_indexed(self, load: _Load) -> None:
        load.keep()
        self._index_on()

    def _pace(self) -> None:
        """Have what is written synced: now, if it is much, or in a moment."""
        log = self.log
        if self._syncer is None or not log.sync_due:
            return
        if log.unsynced_bytes >= SYNC_BYTES:
            self._sync()
        elif not self._timed and not self._syncer.busy:
            self._timed = True
            self._call_later(SYNC_SECONDS, self._sync_in_time)

    def _sync_in_time(self) -> None:
        self._timed = False
        self._sync()

    def _sync(self) -> None:
        if self._syncer is not None and not self._syncer.busy:
            sync = self.log.gather_sync()
            if sync is not None:
                self._syncer.begin(sync)

    def _synced(self, sync: Sync) -> None:
        if self.failure:  # it was told to the other thread, and the system tells each one once
            return
        self.log.commit_sync(sync.end)
        self._committed()
        self._pace()

    def _failed(self, error: Exception, what: str = "write") -> None:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        self.failure = f"cannot {what} its log in {self._folder}: {why}"
        self._told_failed(self.failure)

    def _unreadable(self, error: Exception) -> None:
        self.readable = False
        self._failed(error, "read")


def _settings(spec: ExchangeSpec, now_us: int) -> LogSettings:
    limits = spec.limits
    return LogSettings(
        queue=spec.queue_id,
        exchange=spec.number,
        epoch=spec.epoch,
        cluster=spec.cluster,
        host=spec.host,
        ring_bytes=limits.ring_bytes,
        topics_max=limits.topics,
        topics_spare=spare_of(limits.topics),
        capacity_bytes=limits.log_bytes,
        segment_bytes=min(SEGMENT_BYTES, limits.log_bytes // SEGMENTS_LEAST),
        keep_us=limits.log_seconds * 1_000_000,
        now_us=now_us,
        ahead=spec.ahead,
        has_log=spec.has_log,
    )
