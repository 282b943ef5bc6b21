"""What was read and is not taken yet: batches, reports and the end, in order.

The reading thread adds with the shell's lock held; the user's thread takes from the left and needs
no lock for it. It looks at an item before it removes it, so that a signal handler that raises in
between (Ctrl-C) drops nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from roq.errors import RoQError
from roq.read.message import Batch, Gap

BUFFER_BYTES: Final = 32 * 1024 * 1024
BUFFER_BATCHES: Final = 20_000
EASED_SHARE: Final = 0.875
"""Exchanges wait for who reads on, and not for who stands still while much is taken."""
MESSAGE_BYTES: Final = 50
"""What a message takes in memory besides its payload, about: Python's object and a pointer."""
BATCH_BYTES: Final = 300
"""Likewise a batch."""
_GAPS_MAX: Final = 1_000

Item = Batch | Gap | RoQError


class ReceiveQueue:
    """The items between who reads and the user.

    Args:
        bytes_max: memory of what may come before the user has emptied it once.

    Attributes:
        items: the user's to take from the left; an error is never taken, it is the end.
        on_ready: called by who adds; for event loops.
    """

    def __init__(self, *, bytes_max: int = BUFFER_BYTES, batches_max: int = BUFFER_BATCHES) -> None:
        self.items: deque[Item] = deque()
        self.on_ready: Callable[[], None] | None = None
        self._bytes_max = bytes_max
        self._batches_max = batches_max
        self._bytes = 0
        self._gaps = 0
        self._full_at = 0
        """Items that were there when `stop` was called."""
        self._first: Item | None = None
        self._first_at = 0.0

    @property
    def full(self) -> bool:
        """Whether the user has fallen behind: read no more until much of it was taken."""
        return self._bytes > self._bytes_max or len(self.items) > self._batches_max

    @property
    def eased(self) -> bool:
        """Whether the user has taken enough of what was full for reading to go on."""
        left = len(self.items)
        share = left / self._full_at if self._full_at else 0.0
        if share > EASED_SHARE:
            return False
        self._bytes = int(self._bytes * share)
        self._full_at = 0
        return True

    def untaken(self, now: float) -> float:
        """For how many seconds the first item has been the first, as seen by calls of this."""
        try:
            first = self.items[0]
        except IndexError:
            first = None
        if first is None or first is not self._first:
            self._first, self._first_at = first, now
        return now - self._first_at

    def stop(self) -> None:
        """It is full, and nobody reads on until it has `eased`."""
        self._full_at = len(self.items)

    def put(self, batches: list[Batch]) -> None:
        """Add batches."""
        if not self.items:
            self._bytes = self._gaps = 0
        self._bytes += sum([_memory(batch) for batch in batches])
        self.items.extend(batches)
        if self.on_ready is not None:
            self.on_ready()

    def put_gap(self, gap: Gap) -> None:
        """Add a report; beyond a bound it is dropped, as the counters have it anyway."""
        if self._gaps < _GAPS_MAX:
            self._gaps += 1
            self.end(gap)

    def end(self, item: Gap | RoQError) -> None:
        """Add what comes after everything that is there; from any thread."""
        self.items.append(item)
        if self.on_ready is not None:
            self.on_ready()


def _memory(batch: Batch) -> int:
    """What it takes in memory, about; many times what it took on the wire if messages are small."""
    return batch.size + BATCH_BYTES + MESSAGE_BYTES * len(batch.payloads)
