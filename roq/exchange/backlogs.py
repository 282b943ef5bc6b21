"""One bound for the old batches that wait for all slow subscribers of an exchange together.

    log  |------- gone -------|------------- ring -------------|
              ^ the oldest that waits for a subscriber
              |-- occupied -->|-------- shared with the ring --->

What is still in the ring waits as one copy for all connections, as large as the ring at most; that
is not counted here. What has left it is memory that only subscribers occupy. One that several wait
for is counted for each of them.

When that is too much for all of them together, who occupies most is cut off. Its memory is free at
once; when it reads again it connects anew, and fetches what it missed as after any loss (decision
11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from operator import itemgetter
from typing import Final, Generic, TypeVar

from roq.log.log import Log
from roq.model import Limits

B = TypeVar("B")
C = TypeVar("C", bound=Hashable)

ANNOUNCE_ABOVE_BYTES: Final = 256 * 1024
"""Larger batches are announced on the live socket and fetched by those who want them."""
LOOK_PARTS: Final = 64
"""Between two looks so large a part of the ring may pass."""


def live_high_water_mark(limits: Limits) -> int:
    """Batches that may wait for one subscriber: about a ring full of the largest that are sent."""
    return max(64, min(1_000, limits.ring_bytes // ANNOUNCE_ABOVE_BYTES))


class Backlogs(Generic[B]):
    """What the connections of the fan-out occupy beside the ring.

    Args:
        ring: the log.
        most: bytes that all of them may occupy together.

    Attributes:
        occupied: bytes that they occupied at the last look, or a little less: for each, what was
            sent to it between two looks may be too much.
        cut_off: how many were cut off so far.
    """

    def __init__(self, log: Log[B], most: int) -> None:
        self.occupied = 0
        self.cut_off = 0
        self._log = log
        self._most = most
        self._step = max(1, log.capacity // LOOK_PARTS)
        self._seen = 0
        """Bytes that had come to the log at the last look."""
        self._sent: dict[Hashable, deque[tuple[int, int]]] = {}
        """Of each connection for which something waits, for each look: where the log was at the
        look before, and the bytes that were sent to it since it stands."""

    @property
    def due(self) -> bool:
        """Whether it is time for a look."""
        return self._log.gone + self._log.kept >= self._seen + self._step

    def look(self, waiting: Mapping[C, tuple[int, int]]) -> list[C]:
        """Find out what they occupy. Call it as soon as it is due, after what can be sent is.

        Args:
            waiting: connections for which something waits: bytes that were taken since it stands,
                and bytes that wait.

        Returns:
            Those that are to be cut off at once.
        """
        gone = self._log.gone
        since, self._seen = self._seen, gone + self._log.kept
        before, self._sent = self._sent, {}
        held: list[tuple[int, C]] = []
        for connection, (taken, waits) in waiting.items():
            sent = self._sent[connection] = before.get(connection) or deque()
            sent.append((since, taken + waits))
            while len(sent) > 1 and sent[1][0] < gone:
                sent.popleft()
            place, until = sent[0]
            if place < gone and until > taken:
                held.append((until - taken, connection))
        self.occupied = sum(size for size, _ in held)
        held.sort(key=itemgetter(0))
        cut = []
        while self.occupied > self._most:
            size, connection = held.pop()
            self.occupied -= size
            cut.append(connection)
        self.cut_off += len(cut)
        return cut

    def check(self) -> None:
        """Assert the invariants."""
        assert 0 <= self.occupied <= self._most  # noqa: S101
