"""From the I/O thread to the user's thread: bursts of batches through a bounded queue.

The I/O thread puts one list per burst, so both threads are woken once per burst and not per batch.
When the user falls behind, `put` tells the I/O thread to stop reading; `resume` is called once
enough was taken.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from roq.client.message import Batch, Gap
from roq.errors import RoQError

BUFFER_BYTES: Final = 32 * 1024 * 1024
BUFFER_BATCHES: Final = 20_000
_GAPS_MAX: Final = 1_000

Item = list[Batch] | Gap | RoQError


class Handoff:
    """A queue with one writer (the I/O thread) and one reader (the user's thread).

    Args:
        resume: called in the reader's thread when enough was taken after a `put` gave False.
        bytes_max: what may wait in the queue.

    Attributes:
        on_ready: called in the writer's thread after each put; for event loops.
    """

    def __init__(
        self,
        resume: Callable[[], None],
        *,
        bytes_max: int = BUFFER_BYTES,
        batches_max: int = BUFFER_BATCHES,
    ) -> None:
        self.on_ready: Callable[[], None] | None = None
        self._resume = resume
        self._bytes_max = bytes_max
        self._batches_max = batches_max
        self._queue: SimpleQueue[Item] = SimpleQueue()
        # Each counter has one writer, so neither needs a lock.
        self._put_bytes = self._taken_bytes = 0
        self._put_batches = self._taken_batches = 0
        self._put_gaps = self._taken_gaps = 0
        self._held_back = False

    # --- the I/O thread ---------------------------------------------------------------------------

    def put(self, batches: list[Batch]) -> bool:
        """Hand over; False if the reader has fallen behind: stop until `resume` is called."""
        self._put_batches += len(batches)
        self._put_bytes += sum([batch.size for batch in batches])
        self._queue.put(batches)
        if self.on_ready is not None:
            self.on_ready()
        if not self._full(1.0):
            return True
        self._held_back = True
        # The reader may have taken everything just now, and seen no need to resume.
        if self._full(0.5):
            return False
        self._held_back = False
        return True

    def put_gap(self, gap: Gap) -> None:
        """Hand over a report; beyond a bound it is dropped, as the counters have it anyway."""
        if self._put_gaps - self._taken_gaps < _GAPS_MAX:
            self._put_gaps += 1
            self._end(gap)

    def end(self, error: RoQError) -> None:
        """Let the reader raise this after what is already there; from any thread."""
        self._end(error)

    def _end(self, item: Gap | RoQError) -> None:
        self._queue.put(item)
        if self.on_ready is not None:
            self.on_ready()

    def _full(self, share: float) -> bool:
        return (
            self._put_bytes - self._taken_bytes > self._bytes_max * share
            or self._put_batches - self._taken_batches > self._batches_max * share
        )

    # --- the user's thread ------------------------------------------------------------------------

    def take(self, timeout: float | None = None) -> Item | None:
        """The next burst, report or end; None if `timeout` seconds have passed.

        Args:
            timeout: None waits for ever; 0 does not wait.
        """
        try:
            item = self._queue.get(timeout != 0, timeout)
        except Empty:
            return None
        if isinstance(item, list):
            self._taken_batches += len(item)
            self._taken_bytes += sum([batch.size for batch in item])
            if self._held_back and not self._full(0.5):
                self._held_back = False
                self._resume()
        elif isinstance(item, Gap):
            self._taken_gaps += 1
        return item
