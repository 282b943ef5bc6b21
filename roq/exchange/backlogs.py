"""One bound for the old batches that wait for all slow subscribers of an exchange together.

    log  |------- gone -------|------------- ring -------------|
              ^ since: up to here the subscriber has taken everything
              |-- what it --->|
                 may occupy

ZeroMQ bounds what waits for one connection by a number of batches, keeps them for as long as it
stands, and tells nobody how many there are; that bound cannot be changed while it stands, or the
connection goes silent for good (decision 11). So this goes by what the system tells: a connection
that cannot take more has had nothing for certain since it last could. What of that has left the
ring is memory that it alone occupies, up to its own bound; the real figure is never higher. What is
still in the ring waits as one copy for all connections, as large as the ring at most; that is not
counted here.

When that is too much for all of them together, who occupies most is cut off. Its memory is free at
once; when it reads again it connects anew, and fetches what it missed as after any loss.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Generic, TypeVar

from roq.log.log import Log
from roq.model import Limits

B = TypeVar("B")

ANNOUNCE_ABOVE_BYTES: Final = 256 * 1024
"""Larger batches are announced on the live socket and fetched by those who want them."""
LOOK_PARTS: Final = 64
"""Between two looks so large a part of the ring may leave it."""


def live_high_water_mark(limits: Limits) -> int:
    """Batches that may wait for one subscriber: about a ring full of the largest that are sent."""
    return max(64, min(1_000, limits.ring_bytes // ANNOUNCE_ABOVE_BYTES))


class _Connection:
    """One connection of the fan-out."""

    __slots__ = ("cut", "free_at", "since")

    def __init__(self, place: int) -> None:
        self.since = place
        """Everything below this place of the log it has taken."""
        self.free_at: int | None = place
        """It could take more when the log ended here, at the last look; None: it could not."""
        self.cut = False


class Backlogs(Generic[B]):
    """What the connections of the fan-out occupy beside the ring.

    Args:
        ring: the log.
        most: bytes that all of them may occupy together.
        each: bytes that may wait for one of them.

    Attributes:
        look_at: when so many bytes have left the ring, `look` is to be called.
        occupied: bytes that they occupied at the last look, at most.
        cut_off: how many were cut off so far.
    """

    def __init__(self, log: Log[B], most: int, each: int) -> None:
        self.look_at = 1
        self.occupied = 0
        self.cut_off = 0
        self._log = log
        self._most = most
        self._each = each
        self._step = max(1, log.capacity // LOOK_PARTS)
        self._connections: dict[int, _Connection] = {}

    def accepted(self, number: int) -> None:
        """There is a new connection; numbers are used again when one has ended."""
        self._connections[number] = _Connection(self._end())

    def ended(self, number: int) -> None:
        """A connection is gone, and what waited for it."""
        self._connections.pop(number, None)

    def look(self, free: Collection[int]) -> list[int]:
        """Find out what they occupy.

        Args:
            free: the connections that could take more at this moment.

        Returns:
            Those to cut off.
        """
        end, gone = self._end(), self._log.gone
        self.look_at = gone + self._step
        free = frozenset(free)
        held: list[tuple[int, int]] = []
        for number, each in self._connections.items():
            # Free once is not enough: that is also who has just taken a little.
            if number not in free:
                each.free_at = None
            else:
                if each.free_at is not None:
                    each.since = each.free_at
                each.free_at = end
            if each.since < gone and not each.cut:
                held.append((min(self._each, gone - each.since), number))
        self.occupied = sum(size for size, _ in held)
        held.sort()
        cut = []
        while self.occupied > self._most:
            size, number = held.pop()
            self.occupied -= size
            self._connections[number].cut = True
            cut.append(number)
        self.cut_off += len(cut)
        return cut

    def check(self) -> None:
        """Assert the invariants."""
        assert 0 <= self.occupied <= self._most  # noqa: S101
        end = self._end()
        assert all(each.since <= end for each in self._connections.values())  # noqa: S101

    def _end(self) -> int:
        return self._log.gone + self._log.kept
