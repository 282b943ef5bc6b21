"""Holds publishers back for the slowest subscriber, before the ring forgets what it has not read.

    place of the slowest          mark        limit
    floor |--------- capacity - reserve --------|--- half of the reserve ---|    bytes of the log

Subscribers report how far they have read. While the log ends below the mark nothing is done. From
there on acknowledgements wait, so that windows fill and publishers stop; what comes all the same is
taken up to the limit, and asked for again later if there is no room for it. A batch that is larger
than what is left waits below the mark, too. When the slowest reader has read on, all of that ends.

A reader is waited for as long as it reads: once in `hold_seconds` it has to get on by a 64th of the
ring. One that does not is left *behind*: it holds nobody any more until it has caught up, or has
read for as long as it has held others up; and before that it is not given as long again. One that
says nothing for three seconds, or whose fan-out is gone, is not waited for either, and one that
says that it leaves is forgotten at once.

A consumer group is waited for without an end, whether it has members or not: what it has not done
is not dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import Enum
from typing import Final, Generic, TypeVar

from roq.log.log import Log
from roq.log.ring import ENTRY_OVERHEAD
from roq.protocol.channel import PRESENCE_TOPIC, READER_BYTES
from roq.timing import END_SILENT_SECONDS, READER_GONE_SECONDS

B = TypeVar("B")

HOLD_SECONDS: Final = 10.0
READERS_MAX: Final = 4_096
"""Who comes on top is not waited for."""
LEFT_SECONDS: Final = 1.5
"""Whose fan-out is gone has so long for another one."""
FORGET_SECONDS: Final = 60.0
"""So long after that, what it has cost the others is forgotten."""
assert END_SILENT_SECONDS < LEFT_SECONDS  # noqa: S101 - by then it reads the log instead, and says so
STEP_SECONDS_MAX: Final = 1.0
"""A process that was stopped does not take its readers for silent."""
RESERVE_PARTS: Final = 8
"""The reserve is this part of the ring."""
OWN_PARTS: Final = 16
"""This part of it is for what the exchange writes itself: markers and fences of those who come."""
PLACE_PARTS: Final = 64
"""Places are known as well as this part of the ring."""
END_PARTS: Final = 16
"""Readers hear of the end of the log each time that it has grown by this part of the ring."""
TURN_BATCHES: Final = 50
"""Batches that may come between two looks."""
NEVER: Final = 1 << 62
TAKE_NONE: Final = -1


class Standing(Enum):
    """What a reader means to publishers."""

    JOINING = "joining"
    """It begins with old batches, and is not waited for until it has read most of them."""
    READING = "reading"
    BEHIND = "behind"
    GONE = "gone"


class ReadingPeer:
    """One subscriber as this exchange knows it.

    Attributes:
        name: id of the subscriber.
        read: everything below this offset it has.
        place: bytes of the log, since its beginning, below that.
        standing: whether it is waited for.
        waited: for how long it has been waited for without getting on.
        owes: how long it has stood still while it was waited for, less the time it has read since.
        patient: it is a consumer group, for which everybody waits without an end.
    """

    __slots__ = (
        "_at",
        "_passed",
        "left",
        "name",
        "owes",
        "patient",
        "place",
        "read",
        "silent",
        "standing",
        "waited",
    )

    def __init__(self, name: bytes, standing: Standing) -> None:
        self.name = name
        self.read = 0
        self.place = 0
        self.standing = standing
        self.waited = 0.0
        self.owes = 0.0
        self.silent = 0.0
        self.patient = False
        self.left = False
        """Its fan-out is gone."""
        self._passed = 0
        self._at = 0

    def has_moved(self) -> tuple[bool, bool]:
        """Whether it has read anything, and much, since this was asked for the last time."""
        before, self._passed = self._passed, self.read
        was_at, self._at = self._at, self.place
        return self.read > before, self.place > was_at


class Backpressure(Generic[B]):
    """Who is waited for, and until where batches are taken meanwhile.

    Args:
        ring: the log.

    Attributes:
        look_at: when the log has grown to so many bytes, `look` is to be called.
        near: acknowledgements wait.
        end_due: readers should hear of the end of the log; reset by the machine when it tells them.
        left_behind: how often a reader was left behind.
        held_seconds: for how long acknowledgements have waited, all in all.
    """

    def __init__(self, log: Log[B]) -> None:
        self.look_at = NEVER
        self.near = False
        self.end_due = False
        self.left_behind = 0
        self.held_seconds = 0.0
        self._log = log
        self._seconds = HOLD_SECONDS
        self._reserve = log.capacity // RESERVE_PARTS
        self._readers: dict[bytes, ReadingPeer] = {}
        self._slowest: ReadingPeer | None = None
        self._wanted = 0
        """The slowest reader has to get this far for what there was no room for."""
        self._offsets: list[int] = []
        self._places: list[int] = []
        self._next_place = 0
        self._next_end = 0
        self._ticked_at: float | None = None

    @property
    def slowest(self) -> ReadingPeer | None:
        """Who holds the others, or would be the first to."""
        return self._slowest

    @property
    def seconds(self) -> float:
        """For how long one reader is waited for; 0: for none."""
        return self._seconds

    @property
    def behind(self) -> list[ReadingPeer]:
        """Those that were left behind and have not caught up."""
        return [each for each in self._readers.values() if each.standing is Standing.BEHIND]

    @property
    def fast_bytes(self) -> int:
        """Batches up to this size need not ask for `room` until the next look."""
        if self.near:
            return TAKE_NONE
        if self._slowest is None:
            return NEVER
        return max(0, self._reserve // TURN_BATCHES - ENTRY_OVERHEAD)

    def rule(self, seconds: float) -> None:
        """Wait for so long for one reader; 0: for none."""
        if seconds != self._seconds:
            self._seconds = seconds
            self.look()

    def room(self, size: int) -> bool:
        """Whether a batch can be taken without dropping what the slowest reader has to read."""
        slowest = self._slowest
        if slowest is None:
            return True
        end = self._end()
        capacity = self._log.capacity - self._log.capacity // OWN_PARTS
        # Who has everything lets through what is larger than the ring.
        wanted = min(end, end + size + ENTRY_OVERHEAD - capacity)
        if slowest.place >= wanted:
            return True
        self._wanted = max(self._wanted, wanted)  # also where the mark is far: it was a large one
        return False

    def nothing_waits(self) -> None:
        """There is nobody any more who had no room."""
        self._wanted = 0

    # --- readers ----------------------------------------------------------------------------------

    def report(self, reader: bytes, name: bytes, read: int, *, patient: bool = False) -> bool:
        """A subscriber says how far it has read, or a group how far it is; whether it is behind."""
        peer = self._readers.get(reader)
        if peer is None:
            full = len(self._readers) >= READERS_MAX and not patient
            if full or len(reader) != READER_BYTES:
                return False
            standing = Standing.READING if patient else Standing.JOINING
            peer = self._readers[reader] = ReadingPeer(name, standing)
            peer.patient = patient
        if peer.standing is Standing.GONE:
            peer.standing = Standing.BEHIND
        peer.silent = 0.0
        peer.left = False
        peer.read = read
        place = self._place(read)
        if place > peer.place:
            peer.waited = 0.0
        peer.place = place
        if peer.standing is not Standing.READING and self._end() - place <= self._log.capacity // 2:
            peer.standing = Standing.READING
            self.look()
        elif self._slowest in {peer, None} or place < self._slowest.place:
            self.look()
        return peer.standing is Standing.BEHIND

    def leave(self, reader: bytes) -> None:
        """A subscriber has said that it reads no more."""
        if self._readers.pop(reader, None) is not None:
            self.look()

    def presence_ended(self, topic: bytes) -> None:
        """A subscriber has closed its fan-out, or it has died."""
        peer = self._readers.get(topic[len(PRESENCE_TOPIC) + 1 :])
        if peer is not None:
            peer.left = True
            peer.silent = max(peer.silent, READER_GONE_SECONDS - LEFT_SECONDS)

    def tick(self, now: float) -> None:
        """Time has passed; call it about twice a second."""
        before, self._ticked_at = self._ticked_at, now
        if before is None or not self._readers:
            return
        step = min(now - before, STEP_SECONDS_MAX)
        mark = max(self._end() - self._log.capacity + self._reserve, self._wanted - 1)
        if self.near:
            self.held_seconds += step
        for reader, peer in list(self._readers.items()):
            if peer.patient:
                held = self.near and peer.place <= mark
                peer.waited = peer.waited + step if held else 0.0
                continue
            moved, much = peer.has_moved()
            if peer.left or peer.read < self._log.committed or peer.standing is Standing.GONE:
                peer.silent += step
            if peer.silent > FORGET_SECONDS:
                del self._readers[reader]
            elif peer.silent > READER_GONE_SECONDS:
                peer.standing = Standing.GONE
            elif peer.standing is Standing.READING:
                self._charge(peer, step, moved=moved, holds=self.near and peer.place <= mark)
            elif peer.standing is Standing.BEHIND and much:
                peer.owes -= step
                if peer.owes <= 0:
                    peer.owes = peer.waited = 0.0
                    peer.standing = Standing.READING
        self.look()

    def _charge(self, peer: ReadingPeer, step: float, *, moved: bool, holds: bool) -> None:
        if not holds:
            peer.waited = 0.0
        if not holds or moved:
            if moved or peer.read >= self._log.committed:
                peer.owes = max(0.0, peer.owes - step)
        else:
            peer.owes += step
        if holds:
            peer.waited += step
            if max(peer.waited, peer.owes) >= self._seconds > 0:
                peer.standing = Standing.BEHIND
                peer.owes = self._seconds
                self.left_behind += 1

    # --- the log ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Find out how far batches may be taken."""
        log, end = self._log, self._end()
        if end >= self._next_place:
            self._remember(end)
        everybody = self._seconds > 0
        waited_for = [
            each
            for each in self._readers.values()
            if each.patient or (everybody and each.standing is Standing.READING)
        ]
        self._slowest = min(waited_for, key=_place_of, default=None)
        if self._slowest is None or self._slowest.place >= self._wanted:
            self._wanted = 0
        if self._slowest is None:
            self.near = False
            self.look_at = self._next_place if self._readers else NEVER
            return
        mark = self._slowest.place + log.capacity - self._reserve
        near, self.near = (
            self.near,
            (end >= mark or self._wanted > 0) and self._slowest.read < log.committed,
        )
        if self.near and not near:
            self.end_due = True  # so that it tells at once how far it is, and then each step
        self.look_at = min(self._next_place, max(mark, end + 1))

    def check(self) -> None:
        """Assert the invariants."""
        impatient = sum(not each.patient for each in self._readers.values())
        assert impatient <= READERS_MAX  # noqa: S101 - groups have a bound of their own
        assert len(self._offsets) == len(self._places) <= 4 * PLACE_PARTS  # noqa: S101
        assert not self.near or self._slowest is not None  # noqa: S101

    def _end(self) -> int:
        return self._log.gone + self._log.kept

    def _remember(self, end: int) -> None:
        """Note where in bytes the log is at this offset."""
        log = self._log
        self._offsets.append(log.end)
        self._places.append(end)
        self._next_place = end + max(1, log.capacity // PLACE_PARTS)
        old = bisect_right(self._offsets, log.floor) - 1
        if old > PLACE_PARTS:
            del self._offsets[:old], self._places[:old]
        if end >= self._next_end:
            self._next_end = end + max(1, log.capacity // END_PARTS)
            self.end_due = True

    def _place(self, offset: int) -> int:
        """Bytes of the log that end at this offset or, as far as is known, before."""
        if offset >= self._log.end:
            return self._end()
        index = bisect_right(self._offsets, offset) - 1
        place = self._places[index] if index >= 0 else 0
        if offset < self._log.floor:
            return min(place, self._log.gone - 1)
        return max(place, self._log.gone)


def _place_of(peer: ReadingPeer) -> int:
    return peer.place
