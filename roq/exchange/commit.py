"""What an exchange may show and acknowledge: what its log has committed. Pure.

    accepted in a turn --the log has committed it--> published and acknowledged

A log in memory commits what it accepts, and nothing waits here. One that commits later leaves a
mark for each turn: the end of the log, and up to which number each link that has brought something
is acknowledged when that end is committed. Nobody is shown what is not committed either: what a
power cut takes back, nobody has seen, and its offsets may be used again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from roq.exchange.disk_room import DiskRoom
from roq.exchange.events import Send
from roq.exchange.links import Link
from roq.exchange.readers import RefusedRequest
from roq.log.files import LogRefused
from roq.log.log import Log, Record

B = TypeVar("B")

ENTRIES_MAX: Final = 10_000
"""Of all marks together; beyond, the newest mark takes in what comes, and is due later."""
UNCOMMITTED_BYTES_MAX: Final = 64 * 1024 * 1024
"""What is accepted and not synced takes so much at most, and half of the log's memory."""
UNCOMMITTED_ENTRIES_MAX: Final = 25_000
"""Likewise of entries: the next process has to look at each one of them before it serves."""
OWED_MAX: Final = 4_096
"""Answers that wait until what they say is committed."""
NO_PIN: Final = 1 << 62
"""As `LateLog.pinned_from`: anything may leave."""
TURN_BATCHES: Final = 50
"""Batches that may come between two looks."""


class LateLog(Log[B], Protocol[B]):
    """A log that commits later than it accepts.

    Attributes:
        epoch: of the process, higher than that of any that has written here before it: that of
            a registry which was restored from a copy may come again.
        pinned_from: what is at or above this offset does not leave.
        pressed_below: what is below it was kept by that alone, and is to leave.
    """

    epoch: int
    pinned_from: int
    pressed_below: int

    @property
    def unreadable(self) -> int:
        """Entries that were found lost: since the start, and at it, as long as they would stay."""
        ...

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of what was accepted and is not known to be on the disk."""
        ...

    @property
    def synced(self) -> int:
        """Below it everything is on the disk; lower than `committed` if it runs ahead of it."""
        ...

    def tell_time(self, now: float, wall_us: int) -> None:
        """It is so late: monotonic seconds, and the wall clock, µs UTC. Age counts by this."""
        ...

    def want_snapshot(self) -> int:
        """What the exchange knows has changed by more than what is appended: write it down soon.

        It is on the disk when `told` has come to the number that this gives.
        """
        ...

    @property
    def told(self) -> int:
        """The snapshots up to this one of `want_snapshot` are on the disk."""
        ...

    @property
    def hot(self) -> Log[B]:
        """What of it is in memory."""
        ...

    def may_leave(self, below: int, rest_us: int) -> int:
        """Where its oldest files end that are complete, not pinned, have rested for longer than
        this, whatever the wall clock says, and lie wholly below this offset; the floor: there is
        none."""
        ...

    def release(self, below: int) -> None:
        """Have complete files leave that lie wholly below this offset, but for what is pinned."""
        ...


@dataclass(slots=True)
class _Mark:
    """What was accepted when the log ended here.

    Attributes:
        numbers: by link: which of its stays, and the link number up to which it was accepted.
    """

    end: int
    numbers: dict[Link, tuple[int, int]]


def left_since(log: Log[B], since: int) -> Iterator[tuple[int, Record[B] | None]]:
    """What an earlier process has left in the log behind an offset; None: it is lost.

    Raises:
        LogRefused: the system does not read it now, and nobody may go on without it.
    """
    following = max(since, log.floor)
    while (offset := log.following(following)) < log.end:
        following = offset + 1
        record = log.record(offset)
        if record is None and not log.is_lost(offset):
            raise LogRefused(
                f"offset {offset} of the log cannot be read at the moment: look at the disk, and "
                "at how many files are open; the log stays as it is"
            )
        yield offset, record


class CommitGate(Generic[B]):
    """Holds acknowledgements back until what they stand for is committed."""

    def __init__(self, log: Log[B]) -> None:
        self._log = log
        self._marks: deque[_Mark] = deque()
        self._entries = 0

    def release(self, links: list[Link]) -> list[Link]:
        """The links that are due an acknowledgement now, up to their `committed`.

        Args:
            links: those that have brought something since the last call, or want to hear again
                what is committed.
        """
        if not self._marks and self._log.committed >= self._log.end:
            for link in links:
                link.committed = link.expected - 1
            return links
        if links:
            self._mark({link: (link.stay, link.expected - 1) for link in links})
        due: dict[Link, None] = {}
        while self._marks and self._marks[0].end <= self._log.committed:
            mark = self._marks.popleft()
            self._entries -= len(mark.numbers)
            for link, (stay, number) in mark.numbers.items():
                if link.stay == stay:
                    link.committed = max(link.committed, number)
                    due[link] = None
        return list(due)

    def reached(self, link: Link) -> int:
        """The link number up to which all is kept, as the publisher may be told; it never falls."""
        if self._log.committed >= self._log.end:
            link.committed = link.expected - 1
        return link.committed

    def check(self) -> None:
        """Assert the invariants."""
        ends = [mark.end for mark in self._marks]
        assert ends == sorted(ends)  # noqa: S101
        assert self._entries == sum(len(mark.numbers) for mark in self._marks)  # noqa: S101

    def _mark(self, numbers: dict[Link, tuple[int, int]]) -> None:
        if not self._marks or self._entries + len(numbers) <= ENTRIES_MAX:
            self._marks.append(_Mark(self._log.end, numbers))
            self._entries += len(numbers)
            return
        last = self._marks[-1]
        self._entries -= len(last.numbers)
        last.end = self._log.end
        last.numbers.update(numbers)
        self._entries += len(last.numbers)


def check_owed(answers: int) -> None:
    """Whether one more may wait until the log has written what it says.

    Raises:
        RefusedRequest: so many wait that it may not.
    """
    if answers >= OWED_MAX:
        raise RefusedRequest("full", "too many answers wait for the disk here; try again")


class OwedAnswers(Generic[B]):
    """Answers that wait until what they say is committed."""

    def __init__(self, log: Log[B]) -> None:
        self._log = log
        self._waiting: list[tuple[int, Send]] = []
        """With where the log ended when each was given."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def check_room(self) -> None:
        """Whether one more may be promised.

        Raises:
            RefusedRequest: so many wait that it may not.
        """
        check_owed(len(self._waiting))

    def add(self, answer: Send) -> None:
        """It says what has happened so far."""
        self._waiting.append((self._log.end, answer))

    def take(self) -> list[Send]:
        """Those whose time has come."""
        committed = self._log.committed
        if not self._waiting or self._waiting[0][0] > committed:
            return []
        taken = [each for end, each in self._waiting if end <= committed]
        self._waiting = [each for each in self._waiting if each[0] > committed]
        return taken

    def gone(self, route: bytes) -> None:
        """A reader is not there any more: nothing is owed to it."""
        self._waiting = [each for each in self._waiting if each[1].route != route]


class SyncGate(Generic[B]):
    """Tells publishers what of that which they were acknowledged is on the disk.

    Only of a log that runs ahead of its disk. What is told is cumulative, so one that does not
    arrive is made good by the next one.
    """

    def __init__(self, log: LateLog[B]) -> None:
        self._log = log
        self._marks: deque[_Mark] = deque()
        self._entries = 0

    def acknowledged(self, links: list[Link]) -> None:
        """These are acknowledged up to their `committed`, which the log has committed by now."""
        if not links:
            return
        numbers = {link: (link.stay, link.committed) for link in links}
        if self._marks and self._entries + len(numbers) > ENTRIES_MAX:
            last = self._marks[-1]
            self._entries -= len(last.numbers)
            last.end = self._log.committed
            last.numbers.update(numbers)
            self._entries += len(last.numbers)
            return
        self._marks.append(_Mark(self._log.committed, numbers))
        self._entries += len(numbers)

    def release(self) -> dict[Link, int]:
        """Up to which link number each is synced that has come further since the last call."""
        due: dict[Link, int] = {}
        while self._marks and self._marks[0].end <= self._log.synced:
            mark = self._marks.popleft()
            self._entries -= len(mark.numbers)
            for link, (stay, number) in mark.numbers.items():
                if link.stay == stay and number > 0:
                    due[link] = number
        return due

    def check(self) -> None:
        """Assert the invariants."""
        ends = [mark.end for mark in self._marks]
        assert ends == sorted(ends)  # noqa: S101
        assert self._entries == sum(len(mark.numbers) for mark in self._marks)  # noqa: S101


class Uncommitted(Generic[B]):
    """What a log has accepted and not committed: bounded, and shown to nobody.

    Attributes:
        waiting_since: since when there has been no room; None: there is.
        shown: everything below this offset was given out to be published.
        disk: where it is to be written.
    """

    def __init__(self, log: LateLog[B], disk: DiskRoom) -> None:
        self.waiting_since: float | None = None
        self.disk = disk
        self._log = log
        self._most = min(UNCOMMITTED_BYTES_MAX, log.hot.capacity // 2)
        self.shown = log.committed

    @property
    def fast_bytes(self) -> int:
        """Batches up to this size need not ask for `room` until the next look."""
        if self.disk.full or self._entries + TURN_BATCHES > UNCOMMITTED_ENTRIES_MAX:
            return 0
        most = min(self._most, self.disk.spare)
        return int(most - self._log.unsynced_bytes) // TURN_BATCHES

    def room(self, size: int, now: float) -> bool:
        """Whether a batch can be taken; what is larger than the bound is taken alone.

        Nothing is that has no room on the disk.
        """
        held = self._log.unsynced_bytes
        few = self._entries < UNCOMMITTED_ENTRIES_MAX
        fits = few and not self.disk.full and held + size <= self.disk.spare
        if fits and (not held or held + size <= self._most):
            return True
        if self.waiting_since is None:
            self.waiting_since = now
        return False

    def relieved(self) -> bool:
        """Whether there is room, also for large batches: half of it at least."""
        if (
            self.waiting_since is not None
            and not self.disk.full
            and 2 * self._log.unsynced_bytes <= min(self._most, self.disk.spare)
            and 2 * self._entries <= UNCOMMITTED_ENTRIES_MAX
        ):
            self.waiting_since = None
        return self.waiting_since is None

    @property
    def why_full(self) -> str:
        """Why the disk has no room for what waits; empty: it has, and is at work."""
        if self.disk.retired:
            return "the exchange is to go, and accepts nothing more"
        waits = self.waiting_since is not None and not self._log.unsynced_bytes
        return self.disk.text if self.disk.full or waits else ""

    @property
    def _entries(self) -> int:
        return self._log.end - self._log.synced

    def take(self, most: int) -> list[Record[B]]:
        """Up to so many entries that are committed and not shown, in order: to be published."""
        offsets = range(self.shown, min(self.shown + most, self._log.committed))
        self.shown = offsets.stop
        records = map(self._log.record, offsets)
        return [record for record in records if record is not None]

    def check(self) -> None:
        """Assert the invariants."""
        assert self.shown <= self._log.committed  # noqa: S101
