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
from typing import Final, Generic, Protocol, TypeVar

from roq.exchange.commit import LateLog
from roq.protocol.control import GROUPS_DIGEST_BYTES, OTHER_GROUPS
from roq.timing import SAME_GROUPS_SECONDS

B = TypeVar("B")

REST_SECONDS: Final = 30.0
"""What is younger stays: who reads a little behind the groups finds it. Groups that were made
elsewhere meanwhile are known by then."""
HELD_SECONDS: Final = 60.0
"""What lets nothing go for so long, and is the same all the time, is told."""
GROUP_NAMES_MAX: Final = 50
"""More are not told when they are not the same everywhere."""

_REST_US: Final = int(REST_SECONDS * 1_000_000)
_OTHER: Final = OTHER_GROUPS, -1
_NOBODY: Final = "", -1

assert REST_SECONDS > 3 * SAME_GROUPS_SECONDS  # noqa: S101


def groups_digest(names: Iterable[str]) -> bytes:
    """Which groups these are: equal for equal names, in whatever order; never empty."""
    digest = blake2b(digest_size=GROUPS_DIGEST_BYTES)
    for name in sorted(names):
        digest.update(name.encode() + b"\0")
    return digest.digest()


class ReadingGroup(Protocol):
    """How far a consumer group is: see `ConsumerGroup`."""

    name: str

    @property
    def base(self) -> int:
        """First offset that it has not wholly done."""
        ...

    @property
    def stalled(self) -> str:
        """Why it gives nothing out though there is something to do; empty: it does."""
        ...


class DoneFiles(Generic[B]):
    """What of a log may leave by that.

    Args:
        log: on a disk.
        groups: gives the consumer groups.
    """

    def __init__(self, log: LateLog[B], groups: Callable[[], Iterable[ReadingGroup]]) -> None:
        self._log, self._groups = log, groups
        self._same_at = float("-inf")
        """When the monitor has said last that all exchanges have the same groups."""
        self._apart = False
        """It has said last that they do not."""
        self._written: tuple[int, int] | None = None
        """A snapshot that was wanted, and up to where everything was done before."""
        self._holder: tuple[str, int] | None = None
        """What lets nothing go: a group and where it is, or one of the two below; None: nothing
        does."""
        self._held_since = 0.0
        self.held = ""
        """The same, in words, once it has lasted."""

    def same_groups(self, now: float, *, same: bool) -> None:
        """The monitor says whether all exchanges of the queue have the same groups."""
        self._same_at, self._apart = (now if same else float("-inf")), not same

    @property
    def same(self) -> bool:
        """Whether that is what it has said last."""
        return self._same_at > float("-inf")

    def look(self, now: float) -> None:
        """Have leave what may, or written down what is to be there first."""
        slowest = min(self._groups(), key=lambda group: (group.base, group.name), default=None)
        if now - self._same_at <= SAME_GROUPS_SECONDS:
            self._let_go(0 if slowest is None else slowest.base)
        else:
            self._written = None
        self._look_why(now, slowest)

    def _let_go(self, done: int) -> None:
        log = self._log
        if self._written is not None:
            snapshot, below = self._written
            if log.told < snapshot:
                return
            self._written = None
            log.release(min(below, done))
        below = log.may_leave(done, _REST_US)
        if below > log.floor:
            self._written = log.want_snapshot(), below

    def _look_why(self, now: float, slowest: ReadingGroup | None) -> None:
        """Find out what lets nothing go. A group that goes on does not, however far it is behind,
        nor does a delayed message: that is known, and ends. Nor does a monitor that is silent,
        which is told elsewhere."""
        log, holder = self._log, None
        if self._written is None and log.may_leave(log.committed, _REST_US) > log.floor:
            if self._apart:
                holder = _OTHER
            elif now - self._same_at <= SAME_GROUPS_SECONDS:
                holder = _NOBODY if slowest is None else (slowest.name, slowest.base)
        if holder != self._holder:
            self._holder, self._held_since = holder, now
        lasts = holder is not None and now - self._held_since >= HELD_SECONDS
        self.held = _text(slowest, apart=self._apart) if lasts else ""


def _text(slowest: ReadingGroup | None, *, apart: bool) -> str:
    if apart:
        return OTHER_GROUPS
    if slowest is None:
        return "it has no consumer group"
    why = slowest.stalled or "a message there is held, or waits for its next attempt"
    return f"group {slowest.name!r} does not get beyond offset {slowest.base}: {why}"
