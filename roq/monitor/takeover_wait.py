"""How long a new monitor of an old queue waits before it shows a list of exchanges.

    nobody has told the exchanges --Elasticity--> some are missing --all have reported--> over
                                                        \\--in time or not--> over

An exchange that is missing in the list counts as gone for good. Exchanges learn where the new
monitor is from the same configuration managers as clients do, so until one of these has spoken
there is nobody who could be told anything.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Final

from roq.model import exchange_name
from roq.timing import TAKEOVER_MOST_SECONDS, TAKEOVER_SECONDS

NUMBERS_MAX: Final = 4_096
NAMES_MAX: Final = 10


class TakeoverWait:
    """The wait; see the module."""

    def __init__(self) -> None:
        self._since = inf
        self._wanted: frozenset[int] | None = None

    def told(self, numbers: Collection[int] | None, now: float) -> None:
        """A configuration manager that leads has spoken.

        Args:
            numbers: of all exchanges that the queue has; None if it has not said that.
            now: the present time.
        """
        self._since = min(self._since, now)
        if numbers is not None:
            self._wanted = frozenset(list(numbers)[:NUMBERS_MAX])

    def over(self, reported: Collection[int], now: float) -> bool:
        """Whether the list may be shown, with these exchanges in it."""
        if not self._wanted:
            return now >= self._since + TAKEOVER_SECONDS
        return self._wanted <= set(reported) or now >= self._since + TAKEOVER_MOST_SECONDS

    def missing(self, reported: Collection[int]) -> list[int]:
        """Numbers of the exchanges that the queue has and that have not reported."""
        return sorted((self._wanted or frozenset()) - set(reported))

    def outcome(self, reported: Collection[int]) -> str:
        """In a few words, who has reported and who has not."""
        missing = self.missing(reported)
        names = ", ".join(exchange_name(number) for number in missing[:NAMES_MAX])
        text = f"{len(reported)} exchanges have reported"
        return f"{text}, not {names}" if names else text

    def next_deadline(self) -> float | None:
        """When it is over at the latest; None before a leading manager has told of the queue."""
        if self._since == inf:
            return None
        return self._since + (TAKEOVER_MOST_SECONDS if self._wanted else TAKEOVER_SECONDS)
