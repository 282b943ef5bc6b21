"""Which configuration manager is asked next, for all that look for the one that leads. Pure.

    ask --found--> it is asked first the next time
      \\--refused--> the one that it names, else the next one that was not asked in this round
      \\--silent--> the next one; for a second it is left out, even if others name it

When all were asked the round is over, and the user of this waits before the next one. No manager
that has refused is asked twice in a round, so those that name each other are left at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from roq.model import is_address

HOPS_MAX: Final = 3
"""So many are asked in one round because others name them."""
LEARNT_MAX: Final = 16
"""Addresses that are remembered beside those that were given."""
SHUNNED_SECONDS: Final = 1.0
"""A manager that did not answer is left out for so long, from when it was asked."""
SEARCH_MOST_SECONDS: Final = 5.0
"""The longest wait between two rounds, for those that are many."""


class LeaderFinder:
    """The search of one party. It asks one manager at a time.

    Args:
        managers: addresses of configuration managers; may be empty where others tell who leads.

    Attributes:
        address: the manager that is asked, now or next; empty: none is known.
        rounds: how many are over.
    """

    def __init__(self, managers: Iterable[str]) -> None:
        self._known = list(dict.fromkeys(managers))
        self._most = len(self._known) + LEARNT_MAX
        self._good = ""
        """The last one that led."""
        self._told = ""
        self.rounds = 0
        self.address = self._known[0] if self._known else ""
        self.begin()

    def begin(self) -> None:
        """A round begins, in which all may be asked."""
        self._since: float | None = None
        """When this manager was asked for the first time since it has said something."""
        self._asked: set[str] = set()
        self._refused: set[str] = set()
        self._hops = 0
        self._shunned: dict[str, float] = {}
        """Until when."""

    @property
    def known(self) -> list[str]:
        """All managers that may be asked, in this order."""
        named = (each for each in (self._good, self._told) if each)
        return list(dict.fromkeys([*named, *self._known]))

    def ask(self, now: float) -> str:
        """This manager is asked now."""
        if self._since is None:
            self._since = now
        return self.address

    def found(self) -> None:
        """It leads."""
        self._good = self.address
        self.learn([self.address])
        self.begin()

    def learn(self, managers: Iterable[str]) -> None:
        """There are these, too."""
        for each in managers:
            if len(self._known) < self._most and is_address(each) and each not in self._known:
                self._known.append(each)

    def exclude(self, address: str) -> None:
        """This one is not asked in this round."""
        self._asked.add(address)
        self._refused.add(address)

    def told(self, leader: str) -> bool:
        """Another party says which one leads: it is asked next. False if that is nothing new."""
        if leader == self._told or not is_address(leader):
            return False
        self._told = self.address = leader
        self.begin()
        return True

    def refused(self, now: float, named: str = "") -> bool:
        """It does not lead, and names the one that does; False: the round is over."""
        self.exclude(self.address)
        return self._go_on(now, named)

    def silent(self, now: float) -> bool:
        """It has not answered, or cannot be reached; False: the round is over."""
        since = now if self._since is None else self._since
        self._shunned[self.address] = since + SHUNNED_SECONDS
        return self._go_on(now, "")

    def _go_on(self, now: float, named: str) -> bool:
        self._asked.add(self.address)
        self._since = None
        self._shunned = {each: until for each, until in self._shunned.items() if now < until}
        if self._may_follow(named):
            self._hops += 1
            self.address = named
            return True
        for each in self.known:
            if each not in self._asked and each not in self._shunned:
                self.address = each
                return True
        self.rounds += 1
        shunned = self._shunned
        self.begin()
        self._shunned = shunned
        # If all are shunned, the one that is so for the longest time.
        self.address = min(self.known, key=lambda each: shunned.get(each, now), default="")
        return False

    def _may_follow(self, named: str) -> bool:
        return (
            self._hops < HOPS_MAX
            and is_address(named)
            and named not in self._refused
            and named not in self._shunned
        )
