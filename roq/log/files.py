"""The files of a log on disk: what they are called, and what a log asks of their folder.

The adapter for real disks is `roq.log.disk`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from roq.errors import RoQError

SEGMENT_SUFFIX: Final = ".seg"
INDEX_SUFFIX: Final = ".idx"
KEYS_SUFFIX: Final = ".keys"
INDEXES: Final = (INDEX_SUFFIX, KEYS_SUFFIX)
"""What files beside segments end with."""
META: Final = "log.json"
"""Says whose log it is."""
NEW_SUFFIX: Final = ".new"
"""Of a file that gets its name when it is complete and synced."""
NUMBERS_END: Final = (1 << 64) - 1
"""Offsets and epochs are lower; who names more is no segment."""


class LogRefused(RoQError):
    """A folder cannot be used as the log of this exchange; says why and what to do."""


class Files(Protocol):
    """The files of one folder, which one process has to itself.

    What was written counts as kept only when `sync` of its file has returned, and a new, renamed or
    removed file only when `sync_folder` has. Every method may raise OSError; after a `sync` that
    failed nobody knows what of the file is on the disk.
    """

    def names(self) -> list[str]:
        """All files that are there."""
        ...

    def size(self, name: str) -> int:
        """Bytes of a file."""
        ...

    def read(self, name: str, at: int, size: int) -> bytes:
        """Up to `size` bytes from here on; fewer at the end of the file."""
        ...

    def create(self, name: str) -> None:
        """Make an empty file, in the place of one that has this name."""
        ...

    def write(self, name: str, at: int, buffers: Sequence[bytes | memoryview]) -> None:
        """Write all of these, one behind the other, from here on."""
        ...

    def sync(self, name: str) -> None:
        """Wait until everything that was written to the file before is on the disk."""
        ...

    def sync_beside(self, name: str) -> None:
        """As `sync`, whatever files are made, renamed or removed meanwhile."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in the place of one that has it."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, whatever other files are made, renamed, written or synced meanwhile."""
        ...

    def sync_folder(self) -> None:
        """Wait until the names of all files are on the disk."""
        ...


def segment_name(base: int, epoch: int) -> str:
    """The file of a segment; of two with the same base the one with the later epoch counts."""
    return f"{base:020d}-{epoch:020d}{SEGMENT_SUFFIX}"


def parse_name(name: str) -> tuple[int, int] | None:
    """Base and epoch of a segment by the name of its file; None if it is none."""
    base, dash, epoch = name.removesuffix(SEGMENT_SUFFIX).partition("-")
    numbers = base + epoch
    if not (dash and len(base) == len(epoch) == 20 and numbers.isascii() and numbers.isdecimal()):
        return None
    if not name.endswith(SEGMENT_SUFFIX) or max(int(base), int(epoch)) >= NUMBERS_END:
        return None
    return int(base), int(epoch)


def is_index(name: str) -> bool:
    """Whether a file is called like an index of a segment, whether that is there or not."""
    stem, dot, suffix = name.rpartition(".")
    return dot + suffix in INDEXES and parse_name(stem + SEGMENT_SUFFIX) is not None


def is_partial(name: str) -> bool:
    """Whether a file is called like one of a log that was never completed."""
    whole = name.removesuffix(NEW_SUFFIX)
    return whole != name and (whole == META or parse_name(whole) is not None or is_index(whole))


def index_name(segment: str) -> str:
    """The file of a segment's index."""
    return segment.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX


def keys_name(segment: str) -> str:
    """The file of the index of keys of a segment."""
    return segment.removesuffix(SEGMENT_SUFFIX) + KEYS_SUFFIX


def put_whole(files: Files, name: str, buffers: Sequence[bytes | memoryview]) -> None:
    """Write a whole file, which has its name when all of it is on the disk."""
    files.create(name + NEW_SUFFIX)
    files.write(name + NEW_SUFFIX, 0, buffers)
    files.sync(name + NEW_SUFFIX)
    files.rename(name + NEW_SUFFIX, name)
    files.sync_folder()


def put_help(files: Files, name: str, data: bytes) -> bool:
    """Write a file that the log can do without; False: that has failed, and it is not there.

    Half of one would take the room of what the log needs, and might be believed.
    """
    try:
        files.create(name)
        files.write(name, 0, [data])
    except OSError:
        with suppress(OSError):
            files.create(name)  # who writes has it open: a removal alone gives no room back
        with suppress(OSError):
            files.remove(name)
        return False
    return True
