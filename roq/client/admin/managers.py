"""Which configuration manager is asked next: all in turn, and whom a follower points to. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

HOPS_MAX: Final = 3
"""Followers may point at each other for a moment between two leaders."""
MANAGERS_MOST_SECONDS: Final = 5.0
"""The longest wait between two searches."""
REMOVED_SECONDS: Final = 3.0
"""A queue that was there counts as removed when managers have not known it for so long: a registry
that was lost may be restored."""
KNOWN_MAX: Final = 16
"""Addresses of leaders that are remembered beside those that were given."""


class Managers:
    """The configuration managers that one client knows.

    Args:
        addresses: at least one.

    Attributes:
        address: who is asked now.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._addresses = list(addresses)
        self._most = len(self._addresses) + KNOWN_MAX
        self._turn = 0
        self._asked = 0
        self._hops = 0
        self._missing_since: float | None = None
        self.address = self._addresses[0]

    def __len__(self) -> int:
        return len(self._addresses)

    def begin(self) -> None:
        """A new search: everybody may be asked, the one that answered last comes first."""
        self._asked = self._hops = 0

    def follow(self, leader: str) -> bool:
        """The one that was asked points to this one; False if that leads nowhere."""
        if not leader or self._hops >= HOPS_MAX:
            return False
        self._hops += 1
        self.address = leader
        return True

    def advance(self) -> bool:
        """It was of no help: take the next one; False if all have been asked in this search."""
        self._hops = 0
        self._asked += 1
        self._turn = (self._turn + 1) % len(self._addresses)
        self.address = self._addresses[self._turn]
        return self._asked < len(self._addresses)

    def answered(self) -> None:
        """It is the right one, and will be asked first the next time."""
        if self.address not in self._addresses and len(self._addresses) < self._most:
            self._addresses.append(self.address)
        if self.address in self._addresses:
            self._turn = self._addresses.index(self.address)
        self.begin()

    def found(self) -> None:
        """They know the queue."""
        self._missing_since = None

    def not_found(self, now: float) -> float:
        """They do not know the queue; for how many seconds they have not."""
        if self._missing_since is None:
            self._missing_since = now
        return now - self._missing_since
