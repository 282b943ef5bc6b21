"""The disks of hosts: what a power cut leaves of them, and the logs that exchanges write there.

The log is the real one (`roq.log`). What its writer calls is done one call after the other, each a
while later, so an exchange may be killed, and the power be cut, between any two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from roq.errors import LocalProtocolError
from roq.exchange.disk_log import SYNC_SECONDS
from roq.log.disk_groups import Group, Sync, perform_sync, remove, settle, write
from roq.log.files import LogRefused
from roq.log.log import Log
from roq.log.meta import is_there
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.log.streams import spare_of
from roq.log.survey import holds_nothing
from roq.protocol.batch import read_header
from roq.protocol.spec import ExchangeSpec
from roq.simulation.virtual.lossy_files import LossyFiles
from roq.simulation.virtual.process import Process

SEGMENT_BYTES: Final = 6_000
SEGMENT_ENTRIES: Final = 60
"""Small, so that these few messages fill several segments and snapshots are needed."""
FOLLOWS_BYTES: Final = 200
"""Likewise, so that groups are written while others are synced."""

Call = Callable[[LossyFiles], object]
Messages = dict[tuple[bytes, str], set[int]]
"""Sequences, by publisher and topic."""


def add_messages(there: Messages, log: Log[bytes], first: int) -> None:
    """Add what a log has from an offset on."""
    for record in map(log.record, range(first, log.committed)):
        if record is not None:
            header = read_header(bytes(record[2]))
            key = (bytes(header.publisher), record[0].name.decode())
            sequences = range(header.first_sequence, header.next_sequence)
            there.setdefault(key, set()).update(sequences)


class Disk:
    """The disk of one host: a folder for each log.

    Attributes:
        seconds: what a write, a new name or a sync takes, between these two.
        erased: logs that were removed, by folder.
        taken_back: what logs had committed ahead of the disk when the power was cut: sequences,
            by publisher and topic.
        fails: the next call of this name fails; empty: none does.
    """

    def __init__(self, seconds: tuple[float, float]) -> None:
        self.seconds = seconds
        self.erased: set[str] = set()
        self.taken_back: Messages = {}
        self.fails = ""
        self._open: dict[str, SegmentLog[bytes]] = {}
        self._folders: dict[str, LossyFiles] = {}
        self._holders: dict[str, Process] = {}

    def take(self, path: str, process: Process) -> LossyFiles:
        """The folder of a log, which one process has to itself.

        Raises:
            LogRefused: another one has it.
        """
        holder = self._holders.get(path)
        if holder is not None and holder.alive and holder is not process:
            raise LogRefused(f"{path} is in use by {holder}")
        self._holders[path] = process
        folder = self._folders.setdefault(path, LossyFiles())
        folder.fail = self._fail
        return folder

    def opened(self, path: str, log: SegmentLog[bytes]) -> None:
        """A process goes on with a log."""
        self._open[path] = log

    def lacks(self, path: str) -> bool:
        """Whether there is no log in a folder."""
        return path not in self._folders or not is_there(self._folders[path].names())

    @property
    def logs(self) -> list[str]:
        """The folders that there are."""
        return list(self._folders)

    def erase(self, path: str, *, empty: bool = False) -> bool:
        """The log is removed, if there is one; `path` may be the folder of several.

        Args:
            empty: only if it has never held anything.

        Returns:
            Whether there was one.
        """
        found = [name for name in self._folders if f"{name}/".startswith(f"{path}/")]
        for each in found:
            if empty and not holds_nothing(self._folders[each]):
                continue
            del self._folders[each]
            self._open.pop(each, None)
            self.erased.add(each)
        return bool(found)

    def cut_power(self, chance: Random) -> None:
        """All of its processes are gone, and so is any part of what was not synced."""
        self.fails = ""
        for log in self._open.values():
            add_messages(self.taken_back, log, log.synced)
        self._open.clear()
        for path, folder in self._folders.items():
            self._folders[path] = folder.power_cut(chance)

    def _fail(self, call: str) -> None:
        if call == self.fails:
            self.fails = ""
            raise OSError(5, "Input/output error")


class _Calls:
    """Takes down what a writer calls, to be done later; see `roq.log.files.Files`."""

    def __init__(self) -> None:
        self.made: list[Call] = []

    def names(self) -> list[str]:
        raise LocalProtocolError("who writes a log asks for the names of its files")

    def size(self, name: str) -> int:
        raise LocalProtocolError(f"who writes a log asks for the size of {name}")

    def read(self, name: str, at: int, size: int) -> bytes:
        raise LocalProtocolError(f"who writes a log reads {size} bytes of {name} at {at}")

    def create(self, name: str) -> None:
        self.made.append(lambda files: files.create(name))

    def write(self, name: str, at: int, buffers: Sequence[bytes | memoryview]) -> None:
        copied = [bytes(each) for each in buffers]
        self.made.append(lambda files: files.write(name, at, copied))

    def sync(self, name: str) -> None:
        self.made.append(lambda files: files.sync(name))

    def sync_beside(self, name: str) -> None:
        self.sync(name)

    def rename(self, old: str, new: str) -> None:
        self.made.append(lambda files: files.rename(old, new))

    def remove(self, name: str) -> None:
        self.made.append(lambda files: files.remove(name))

    def sync_folder(self) -> None:
        self.made.append(lambda files: files.sync_folder())


class DiskLog:
    """The log of an exchange and its writer: see `roq.exchange.disk_log` and `group_commit`.

    Args:
        committed: called when more of the log is committed.
        failed: called, with why, when nothing can be committed any more.

    Attributes:
        changes_kept: called when changes of consumer groups are committed.

    Raises:
        LogRefused: there is a log that cannot be gone on with, or none can be made.
    """

    def __init__(
        self,
        process: Process,
        disk: Disk,
        spec: ExchangeSpec,
        now_us: int,
        committed: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self.failure = ""
        self._process = process
        self._disk = disk
        self._committed = committed
        self._failed = failed
        self.changes_kept: Callable[[], None] = lambda: None
        self._writing = self._settling = self._removing = False
        self._timed = False
        """Whether the next sync has its time."""
        self._written: list[Group[bytes]] = []
        """And not settled."""
        self._leaving: list[str] = []
        """To be removed."""
        self._files = disk.take(spec.log, process)
        limits = spec.limits
        self.log: SegmentLog[bytes] = open_log(
            self._files,
            LogSettings(
                queue=spec.queue_id, exchange=spec.number, epoch=spec.epoch, cluster=spec.cluster,
                host=spec.host, ring_bytes=limits.ring_bytes, topics_max=limits.topics,
                topics_spare=spare_of(limits.topics), capacity_bytes=limits.log_bytes,
                keep_us=limits.log_seconds * 1_000_000, now_us=now_us, has_log=spec.has_log,
                segment_bytes=SEGMENT_BYTES, segment_entries=SEGMENT_ENTRIES, ahead=spec.ahead,
            ),
        )  # fmt: skip
        self.log.follows_bytes = FOLLOWS_BYTES
        disk.opened(spec.log, self.log)

    @property
    def settled(self) -> bool:
        """Whether nothing waits for the disk, or nothing more can come of that."""
        log = self.log
        return bool(self.failure) or (log.synced >= log.end and not log.sync_due)

    def write_on(self, snapshot: Callable[[], bytes], changes: Callable[[], bytes]) -> None:
        """Have written what has gathered, unless the disk is still at what was before."""
        if self._writing or self.failure:
            return
        group = self.log.gather(snapshot, changes)
        if group is not None:
            self._writing = True
            calls = _Calls()
            write(calls, group)
            self._later(calls.made, partial(self._wrote, group))
        elif self.log.sync_wanted:
            self._sync()

    def _wrote(self, group: Group[bytes]) -> None:
        self._writing = False
        self._written.append(group)
        if not self._settling and not self.failure:
            self._settle_on()

    def _settle_on(self) -> None:
        groups, self._written = self._written, []
        self._settling = bool(groups)
        if groups:
            calls = _Calls()
            settle(calls, groups)
            self._later(calls.made, partial(self._settled, groups))

    def _settled(self, groups: list[Group[bytes]]) -> None:
        self._settle_on()
        for group in groups:
            self.log.commit(group.end)
            if group.changes is not None or group.anew:
                self.changes_kept()
            self._leaving += group.removed
        self._committed()
        if not self._removing:
            self._remove_on()
        self._pace()

    def _pace(self) -> None:
        if not self._timed and self.log.sync_due:
            self._timed = True
            self._process.call_later(SYNC_SECONDS, self._sync_in_time)

    def _sync_in_time(self) -> None:
        self._timed = False
        self._sync()

    def _sync(self) -> None:
        sync = None if self.failure else self.log.gather_sync()
        if sync is not None:
            calls = _Calls()
            perform_sync(calls, sync)
            self._later(calls.made, partial(self._synced, sync))

    def _synced(self, sync: Sync) -> None:
        if not self.failure:
            self.log.commit_sync(sync.end)
            self._committed()
            self._pace()

    def _remove_on(self) -> None:
        names, self._leaving = self._leaving, []
        self._removing = bool(names)
        if names and not self.failure:
            calls = _Calls()
            remove(calls, names)
            self._later(calls.made, self._remove_on)

    def _later(self, calls: list[Call], then: Callable[[], None]) -> None:
        seconds = self._process.world.random.uniform(*self._disk.seconds)
        self._process.call_later(seconds, partial(self._go_on, calls, then))

    def _go_on(self, calls: list[Call], then: Callable[[], None]) -> None:
        if calls:
            try:
                calls.pop(0)(self._files)
            except OSError as error:
                first, self.failure = not self.failure, error.strerror or str(error)
                if first:
                    self._failed(self.failure)
                return
            self._later(calls, then)
            return
        then()
