"""Which exchanges acknowledge so slowly that they are left alone for now. Pure.

    used --slow--> avoided --its time is over--> probed --slow--> avoided, twice as long
      ^                                            | quick
      +--------------------------------------------+

An exchange is never avoided for ever, and where all would be, the one whose time is over first is
used all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

SLOW_IN_A_ROW: Final = 3
"""So many acknowledgements that are too slow, one after the other: one alone may be bad luck."""
FAR_TOO_SLOW: Final = 10.0
"""One that takes so many times what is allowed is enough."""
AVOID_SECONDS: Final = 5.0
"""For so long an exchange is left alone at first,"""
AVOID_SECONDS_MAX: Final = 300.0
"""and at most."""
EXCHANGES_MAX: Final = 64

Process = tuple[int, int]
"""Number and epoch of an exchange."""


@dataclass(slots=True)
class _Standing:
    """What is known of one exchange.

    Attributes:
        slow: acknowledgements in a row that were too slow.
        until: it is avoided until then.
        times: how often it was avoided since it was quick.
        since: of the last one that was too slow: since when it was waited for.
    """

    slow: int = 0
    until: float = -math.inf
    times: int = 0
    since: float | None = None


class LatencyBook:
    """Remembers how quickly exchanges acknowledge.

    Args:
        most: an acknowledgement that takes longer is too slow, seconds.
    """

    def __init__(self, most: float) -> None:
        self.most = most
        self.serving: tuple[Process, ...] = ()
        """The exchanges of the queue that serve at present."""
        self._standings: dict[Process, _Standing] = {}

    def took(
        self, process: Process, seconds: float, now: float, since: float | None = None
    ) -> bool:
        """An acknowledgement took so long, or has not come for so long.

        Args:
            process: of which exchange.
            seconds: how long.
            now: the present time.
            since: since when it was waited for; told again with the same time it is the same one.

        Returns:
            Whether its exchange is to be left now.
        """
        standing = self._standings.get(process)
        if seconds <= self.most:
            if standing is not None and now >= standing.until:
                del self._standings[process]
            return False
        if standing is None:
            if len(self._standings) >= EXCHANGES_MAX:
                del self._standings[min(self._standings, key=lambda p: self._standings[p].until)]
            standing = self._standings[process] = _Standing()
        if now < standing.until:
            return False
        standing.slow += since is None or since != standing.since
        standing.since = since
        probed = standing.times > 0
        if not (probed or standing.slow >= SLOW_IN_A_ROW or seconds >= FAR_TOO_SLOW * self.most):
            return False
        standing.until = now + min(AVOID_SECONDS_MAX, AVOID_SECONDS * 2.0**standing.times)
        standing.times = min(standing.times + 1, 30)
        standing.slow = 0
        others = any(not self.avoids(each, now) for each in self.serving)
        return others and process in self.serving

    def avoids(self, process: Process, now: float) -> bool:
        """Whether it is to be left alone at this moment."""
        standing = self._standings.get(process)
        return standing is not None and now < standing.until

    def avoided(self, now: float) -> list[Process]:
        """Those that serve and are to be left alone; never all that serve."""
        avoided = [process for process in self.serving if self.avoids(process, now)]
        if avoided and len(avoided) == len(self.serving):
            avoided.remove(min(avoided, key=lambda process: self._standings[process].until))
        return avoided
