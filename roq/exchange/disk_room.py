"""Whether the disk of a durable exchange has room for more. Pure: it is told what was measured.

    room --(less is free than is to stay free)--> full --(a quarter more than that is free)--> room

While it is full nothing is accepted; readers and retention go on, and what leaves makes room. So do
delayed messages: what is due is published, and what waits in the oldest segment is appended again,
as it could not leave otherwise. What
is accepted and not yet written fits into what was free, so the disk is not full when it is written.

    room, full --(a write or sync has failed)--> sealed

A sealed log takes nothing more in this process, and is read on: what the system has dropped after
a failed sync nobody knows, so only another process, which reads what is certain, may go on with it.

An exchange that is to go with what it holds is retired: it accepts nothing either, whatever room it
has. So is one without a disk, which always has room otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roq.model import Limits

SHARE_MAX: Final = 0.1
"""Of a small disk no more than this share is to stay free."""
AGAIN: Final = 1.25
"""So much more than has to stay free has to be free before anything is accepted again."""
SEALED_SECONDS: Final = 20.0
"""So long a sealed log is only read, before another process tries whether it can be written: often
enough to be back soon, and too seldom for the host manager to give the exchange up."""
WRITTEN_SHARE: Final = 0.5
"""Of what is to stay free this may be taken by what is accepted already, by indexes, and by what
the exchange writes by itself."""

PLENTY_BYTES: Final = 1 << 30
PLENTY_FILES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Room:
    """What a file system says of itself; of no files at all: it counts none."""

    bytes_free: int
    bytes_total: int
    files_free: int
    files_total: int

    def is_plenty(self, limits: Limits) -> bool:
        """Whether more is free, beyond what is to stay free, than anybody takes in a moment."""
        files = self.files_free - limits.disk_free_files >= PLENTY_FILES or not self.files_total
        return self.bytes_free - limits.disk_free_bytes >= PLENTY_BYTES and files


class DiskRoom:
    """One disk.

    Args:
        limits: what is to stay free of it; 0: it is not looked at.
        place: which one it is: its folder and host.

    Attributes:
        full: nothing is accepted.
        retired: as the exchange is to go.
        spare: bytes that may be accepted and not written.
        text: why nothing is accepted, or why what is larger than `spare` is not.
    """

    def __init__(self, limits: Limits, place: str) -> None:
        self.full = self.retired = False
        self.spare = float("inf")
        self.text = ""
        self._limits = limits
        self._place = place
        self._short = False
        """Less is free than has to be."""
        self._files = True
        """Whether the exchange may make files by itself."""
        self._sealed_at: float | None = None

    def measured(self, room: Room) -> None:
        """It is like this now."""
        limits = self._limits
        least_bytes = min(limits.disk_free_bytes, int(SHARE_MAX * room.bytes_total))
        least_files = min(limits.disk_free_files, int(SHARE_MAX * room.files_total))
        more = AGAIN if self._short else 1.0
        short_of_bytes = room.bytes_free < more * least_bytes
        short_of_files = room.files_free < more * least_files
        self._short = short_of_bytes or short_of_files
        self._files = room.files_free >= WRITTEN_SHARE * least_files
        if self._sealed_at is not None:
            return
        self.full = self._short or self.retired
        self.spare = (
            max(0.0, room.bytes_free - WRITTEN_SHARE * least_bytes) if least_bytes else float("inf")
        )
        if short_of_files and not short_of_bytes:
            what = f"{room.files_free:,} files can be made"
            kept = f"{least_files:,} are to stay free (limit disk_free_files)"
        else:
            what = f"{_megabytes(room.bytes_free)} MB are free"
            kept = f"{_megabytes(least_bytes)} are to stay free (limit disk_free_bytes)"
        self.text = (
            f"disk_full: {what} in {self._place}, and {kept}: make room there, or give the queue "
            "less to keep"
        )

    def retire(self, *, retired: bool) -> None:
        """Accept nothing from now on, or again as far as there is room."""
        self.retired = retired
        if self._sealed_at is None:
            self.full = self._short or retired

    def takes_own(self, size: int) -> bool:
        """Whether the exchange may write something by itself, if so much is not written by then."""
        writable = self._sealed_at is None and not self.retired
        return writable and self._files and size <= self.spare

    def seal(self, why: str, now: float) -> None:
        """The log cannot be written any more, for this reason: nothing is accepted from now on."""
        self.full, self.spare = True, 0.0
        self.text = f"sealed: {why}; what is committed can be read"
        self._sealed_at = now

    def is_to_be_tried(self, now: float) -> bool:
        """Whether another process should try to write a sealed log: a while later, with room."""
        if self._sealed_at is None or self._short:
            return False
        return now - self._sealed_at >= SEALED_SECONDS


def _megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f}"
