"""When a message that waits for its acknowledgement is tried at another exchange. Pure.

One budget of time for all tries of a message, and each try has an equal part of what is left of it:
so an exchange that is dead, or does not answer, takes its own part and no other one's. To try
elsewhere means to leave the exchange, for all that is not acknowledged there: a message never goes
two ways of its own.
"""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import Final

from roq.client.publish.receipt import Receipt

SENDS_MAX: Final = 10_000
"""Messages that are watched at once; those that come on top share the tries of the others."""
_ENTRIES_MAX: Final = 2 * SENDS_MAX
"""Likewise with those that are acknowledged before their first try is due: they stay for a while,
so that looking for them costs little for each message."""


class Tries:
    """The tries of one message.

    Args:
        began: when it was published.
        seconds: for all tries.
        retries: tries beyond the first one.

    Attributes:
        left: retries that have not been used.
        next_at: when the next one is due; infinite: there is none.
    """

    __slots__ = ("deadline", "left", "next_at")

    def __init__(self, began: float, seconds: float, retries: int) -> None:
        self.deadline = began + seconds
        self.left = max(0, retries)
        self.next_at = math.inf
        self._plan(began)

    def again(self, now: float) -> None:
        """It is tried once more."""
        self.left = max(0, self.left - 1)
        self._plan(now)

    def _plan(self, now: float) -> None:
        left = max(0.0, self.deadline - now)
        self.next_at = now + left / (self.left + 1) if self.left and left else math.inf


class Sends:
    """The messages of one publisher for which somebody waits."""

    def __init__(self) -> None:
        self._order = count()
        self._waiting: list[tuple[float, int, Receipt, Tries]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def watch(self, receipt: Receipt, tries: Tries) -> None:
        """Try this one elsewhere when it is due."""
        if len(self._waiting) >= _ENTRIES_MAX:
            # Sorted, so that it is a heap.
            self._waiting = sorted(each for each in self._waiting if not each[2].done())[:SENDS_MAX]
        self._push(receipt, tries)

    def next_deadline(self) -> float | None:
        """When `take_due` is wanted."""
        return self._waiting[0][0] if self._waiting else None

    def take_due(self, now: float) -> bool:
        """Whether any of them is to be tried elsewhere now; all that are due have had a try then.

        What is acknowledged, or has no try left, is watched no more.
        """
        due = False
        while self._waiting and self._waiting[0][0] <= now:
            _, _, receipt, tries = heapq.heappop(self._waiting)
            if not receipt.done():
                due = True
                tries.again(now)
                self._push(receipt, tries)
        return due

    def _push(self, receipt: Receipt, tries: Tries) -> None:
        if tries.next_at < math.inf and not receipt.done():
            heapq.heappush(self._waiting, (tries.next_at, next(self._order), receipt, tries))
