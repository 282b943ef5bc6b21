"""The epochs of publishers: given out rising, and those of another monitor noticed."""

from __future__ import annotations

from typing import Final

from roq.model import monitor_epoch, publisher_epoch

EPOCH_END: Final = 1 << 62
SUPERSEDED_SECONDS: Final = 30.0
"""A monitor that has met the epoch of a newer one holds still until it has met none for so long."""


class Epochs:
    """A higher epoch of a publisher always wins, and a newer monitor gives out higher ones.

    Two monitors of one queue may both believe that they are the one, for a while. The older of them
    meets publishers that the newer one has placed, and then decides nothing but what publishers ask
    it for.
    """

    def __init__(self, own: int) -> None:
        self._own = own
        self._counter = 0
        self._superseded_until = float("-inf")

    def next(self, above: int = 0) -> int:
        """Higher than any that this monitor or an earlier one has given out, and than `above`."""
        self._counter += 1
        return max(publisher_epoch(self._own, self._counter), above + 1)

    def plausible(self, epoch: int) -> bool:
        """Whether some monitor can have given this epoch out."""
        if not 0 < epoch < EPOCH_END:
            return False
        given = publisher_epoch(self._own, self._counter)
        return monitor_epoch(epoch) != self._own or epoch <= given

    def told(self, epoch: int, now: float) -> bool:
        """A publisher that is served publishes under this epoch; True if that is bad news.

        Bad news is the epoch of a newer monitor, told for the first time for a while.
        """
        if monitor_epoch(epoch) <= self._own:
            return False
        news = not self.superseded(now)
        self._superseded_until = now + SUPERSEDED_SECONDS
        return news

    def superseded(self, now: float) -> bool:
        """Whether there seems to be a newer monitor of this queue."""
        return now < self._superseded_until
