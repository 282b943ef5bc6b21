"""A folder on a disk that is as bad as disks may be: what was not synced may be lost, or half lost.

Writes are kept apart until their file is synced. A power cut keeps any part of them, torn at any
byte and in any order. New, renamed and removed names count when the folder is synced; before, any
of them may be undone. A sync that fails leaves what it was to keep visible; a part of it may be
on the disk, and no more comes there, even if a later sync succeeds, as systems do that mark such
pages as clean.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

PIECE: Final = 64
"""Bytes that a disk writes as a whole, at most."""


@dataclass
class Inode:
    """One file."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    ghosts: list[tuple[int, bytes]] = field(default_factory=list)
    """Written, and given up by a sync that failed: seen by readers; a power cut keeps any part."""

    def seen(self) -> bytearray:
        """What a reader gets."""
        contents = bytearray(self.synced)
        for at, data in [*self.ghosts, *self.pending]:
            _put(contents, at, data)
        return contents


class LossyFiles:
    """`roq.log.files.Files` in memory, whose power may be cut, and whose calls may fail.

    Attributes:
        fail: called with the name of each call; raises what is to happen to it.
    """

    def __init__(self) -> None:
        self.names_synced: dict[str, Inode] = {}
        self.names_seen: dict[str, Inode] = {}
        self.changes: list[Callable[[dict[str, Inode]], object]] = []
        self.fail: Callable[[str], None] = lambda _: None

    def names(self) -> list[str]:
        """See `Files`, as for all of these."""
        return list(self.names_seen)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        self.fail("size")
        return len(self._of(name).seen())

    def read(self, name: str, at: int, size: int) -> bytes:
        """What is seen there."""
        self.fail("read")
        return bytes(self._of(name).seen()[at : at + size])

    def create(self, name: str) -> None:
        """Make an empty file."""
        self.fail("create")
        inode = Inode()
        self._change(lambda names: names.__setitem__(name, inode))

    def write(self, name: str, at: int, buffers: Sequence[bytes | memoryview]) -> None:
        """Write; half of it if that fails."""
        data = b"".join(map(bytes, buffers))
        try:
            self.fail("write")
        except OSError:
            self._of(name).pending.append((at, data[: len(data) // 2]))
            raise
        self._of(name).pending.append((at, data))

    def sync(self, name: str) -> None:
        """Keep what was written to the file."""
        inode = self._of(name)
        try:
            self.fail("sync")
        except OSError:
            inode.ghosts += inode.pending
            inode.pending = []
            raise
        for at, data in inode.pending:
            _put(inode.synced, at, data)
        inode.pending = []

    def sync_beside(self, name: str) -> None:
        """As `sync`."""
        self.sync(name)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name."""
        self.fail("rename")
        self._of(old)

        def move(names: dict[str, Inode]) -> None:
            if old in names:
                names[new] = names.pop(old)

        self._change(move)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.fail("remove")
        self._change(lambda names: names.pop(name, None))

    def sync_folder(self) -> None:
        """Keep the names as they are now."""
        self.fail("sync_folder")
        self.names_synced = dict(self.names_seen)
        self.changes = []

    def power_cut(self, chance: random.Random) -> Self:
        """What is there when the power is back."""
        names = dict(self.names_synced)
        ordered = chance.random() < 0.5
        until = chance.randrange(len(self.changes) + 1)
        for number, change in enumerate(self.changes):
            if (number < until) if ordered else (chance.random() < 0.5):
                change(names)
        after = type(self)()
        for name, inode in names.items():
            kept = Inode(bytearray(inode.synced))
            if inode.ghosts:
                _keep_some(kept.synced, inode.ghosts, chance)
            _keep_some(kept.synced, inode.pending, chance)
            after.names_synced[name] = kept
        after.names_seen = dict(after.names_synced)
        return after

    def _change(self, change: Callable[[dict[str, Inode]], object]) -> None:
        change(self.names_seen)
        self.changes.append(change)

    def _of(self, name: str) -> Inode:
        if name not in self.names_seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self.names_seen[name]


def _keep_some(contents: bytearray, writes: list[tuple[int, bytes]], chance: random.Random) -> None:
    """Any part of these writes, in any order."""
    pieces = []
    for at, data in writes:
        first = 0
        while first < len(data):
            size = chance.choice([1, 7, PIECE, PIECE, len(data)])
            pieces.append((at + first, data[first : first + size]))
            first += size
    way = chance.choice(["none", "all", "prefix", "any"])
    chance.shuffle(pieces) if way == "any" else None
    until = {"none": 0, "all": len(pieces)}.get(way, chance.randrange(len(pieces) + 1))
    for at, data in pieces[:until]:
        _put(contents, at, data)


def _put(contents: bytearray, at: int, data: bytes) -> None:
    contents.extend(bytes(max(0, at - len(contents))))
    contents[at : at + len(data)] = data


def failing(chance: random.Random, often: float) -> Callable[[str], None]:
    """Let each call fail now and then, for want of room or for good."""

    def fail(_: str) -> None:
        if chance.random() < often:
            number = chance.choice([errno.EIO, errno.ENOSPC])
            raise OSError(number, errno.errorcode[number])

    return fail
