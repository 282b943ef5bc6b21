"""Files of a log on disk that leave because all consumer groups have done what is in them. Pure.

    complete, and old enough --every group has done it--> written down --on the disk--> leaves

That a group has done something counts when the disk has it: a snapshot of the exchange is wanted
first, and the files leave behind it. So whatever a crash takes back, no group is behind what has
left. A group that was made since, or sent back, counts at once.

A group lives at each exchange by itself. One whose members were not there since this exchange has
begun is not here yet, and will begin with what is: so nothing leaves unless the monitor has said a
moment ago that all exchanges of the queue have the same groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final, Generic, TypeVar

from roq.exchange.commit import LateLog
from roq.protocol.control import GROUPS_DIGEST_BYTES
from roq.timing import SAME_GROUPS_SECONDS

B = TypeVar("B")

REST_SECONDS: Final = 30.0
"""What is younger stays: who reads a little behind the groups finds it. Groups that were made
elsewhere meanwhile are known by then."""

assert REST_SECONDS > 3 * SAME_GROUPS_SECONDS  # noqa: S101


def groups_digest(names: Iterable[str]) -> bytes:
    """Which groups these are: equal for equal names, in whatever order; never empty."""
    digest = blake2b(digest_size=GROUPS_DIGEST_BYTES)
    for name in sorted(names):
        digest.update(name.encode() + b"\0")
    return digest.digest()


class DoneFiles(Generic[B]):
    """What of a log may leave by that.

    Args:
        log: on a disk.
        bases: gives of each consumer group the first offset that it has not wholly done.
    """

    def __init__(self, log: LateLog[B], bases: Callable[[], Iterable[int]]) -> None:
        self._log, self._bases = log, bases
        self._same_at = float("-inf")
        """When the monitor has said last that all exchanges have the same groups."""
        self._written: tuple[int, int] | None = None
        """A snapshot that was wanted, and up to where everything was done before."""

    def same_groups(self, now: float, *, same: bool) -> None:
        """The monitor says whether all exchanges of the queue have the same groups."""
        self._same_at = now if same else float("-inf")

    def look(self, now: float) -> None:
        """Have leave what may, or written down what is to be there first."""
        if now - self._same_at > SAME_GROUPS_SECONDS:
            self._written = None
            return
        log = self._log
        done = min(self._bases(), default=0)
        if self._written is not None:
            snapshot, below = self._written
            if log.told < snapshot:
                return
            self._written = None
            log.release(min(below, done))
        below = log.may_leave(done, int(REST_SECONDS * 1_000_000))
        if below > log.floor:
            self._written = log.want_snapshot(), below
