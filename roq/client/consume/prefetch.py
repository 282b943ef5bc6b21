"""How many messages a member holds: more if it is quick, so that it and its exchange do not wait
for each other; few if it is slow, so that others have the rest. Pure."""

from __future__ import annotations

from typing import Final

LOOK_SECONDS: Final = 0.05
HOLD_SECONDS: Final = 0.1
"""A member holds what it settles within this, between the two bounds."""


class Prefetch:
    """Of one member.

    Args:
        least: it holds so many in any case.
        most: and at most so many.

    Attributes:
        messages: that it may hold now.
    """

    def __init__(self, least: int, most: int) -> None:
        self.messages = least
        self._least = least
        self._most = max(least, most)
        self._settled = 0
        self._looked = 0.0

    def look(self, settled: int, now: float) -> None:
        """So many messages were settled by now, since the beginning."""
        seconds = now - self._looked
        if seconds < LOOK_SECONDS:
            return
        quick = int((settled - self._settled) / seconds * HOLD_SECONDS)
        self.messages = max(self._least, min(self._most, quick))
        self._settled, self._looked = settled, now
