"""Exchanges that report here although the queue does not have them: how they go.

    told --still told a while later--> being emptied --empty and read, or too late--> dismissed

The leading configuration manager says which ones they are. Such an exchange is left where nobody
could stop it: its host manager died before it had told that the exchange runs, or while it was to
be removed. It is emptied as any other, so that nothing in it is lost; the last one that takes
publishers stays as long as it is that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from roq.timing import ORPHAN_FORGOTTEN_SECONDS

CERTAIN_SECONDS: Final = 2.0
"""The manager must say it for so long."""
EMPTY_SECONDS: Final = 20.0
"""An unwanted exchange that may go has so long to become empty."""
NUMBERS_MAX: Final = 1_024


@dataclass(slots=True)
class _Told:
    since: float
    last: float


class Orphans:
    """What the configuration manager has said of exchanges that nobody wants."""

    def __init__(self) -> None:
        self._told: dict[int, _Told] = {}

    def told(self, numbers: Collection[int], now: float) -> list[int]:
        """Take in what it says now; gives those of which it has said so for long enough."""
        for number, known in list(self._told.items()):
            if now - known.last >= ORPHAN_FORGOTTEN_SECONDS:
                del self._told[number]
        for number in list(numbers)[:NUMBERS_MAX]:
            known = self._told.setdefault(number, _Told(now, now))
            known.last = now
        return sorted(
            number
            for number in numbers
            if number in self._told and now - self._told[number].since >= CERTAIN_SECONDS
        )
