"""Which configuration manager a management command goes to next: pure.

    searching --one answers--> asking --it names the leader--> asking …
        ^                         | nobody leads at the moment: again after a while
        +-------------------------+
                                  | its registry is away, so nothing was begun
                                  v
                               in turn --none of them makes the change--> refused

A manager that is cut off from the registry cannot know that another one leads by now. So a client
that gets its refusal, or an answer from its memory, asks each other manager that it knows, once and
without waiting: either one of them leads, or the registry is away for all of them, and the first
word holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from roq.client.backoff import Backoff
from roq.errors import NotLeader, RegistryAway, RequestError, RoQError
from roq.protocol.control import ClusterInfo

HOPS_MAX: Final = 5
"""Followers may point at each other for a moment between two leaders."""


@dataclass(frozen=True, slots=True)
class Search:
    """Look for any manager that answers, the one that was found before coming last."""

    after: float
    """Seconds."""
    why: RoQError
    """What went wrong; the answer, if there is no time for another search."""


@dataclass(frozen=True, slots=True)
class Visit:
    """Ask the manager at this client address where it takes commands."""

    address: str


@dataclass(frozen=True, slots=True)
class Send:
    """Give the command to the manager that takes commands here."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nobody else is to be asked."""

    error: RoQError


Step: TypeAlias = Search | Visit | Send | GiveUp


class Errand:
    """One command on its way.

    Args:
        known: client addresses of the managers; may become more meanwhile.
        backoff: how long it is waited between two searches.
    """

    def __init__(self, known: Sequence[str], backoff: Backoff) -> None:
        self._known = known
        self._backoff = backoff
        self._hops = 0
        self._sent: set[str] = set()
        self._visited: set[str] = set()
        self._refusal: RegistryAway | None = None

    def found(self, address: str, info: ClusterInfo) -> Step:
        """The manager that was asked at this address has answered."""
        self._visited |= {address, info.client}
        if self._refusal is not None and info.management in self._sent:
            return self._next(self._refusal)
        return self._send(info.management)

    def silent(self, why: RoQError) -> Step:
        """A manager cannot be reached, or does not answer a visit: nothing was begun."""
        return self._search(why) if self._refusal is None else self._next(self._refusal)

    def refused(self, error: RequestError) -> Step:
        """The manager that got the command does not carry it out."""
        if type(error) is RegistryAway:  # an `Interrupted` may have been begun
            self._refusal = self._refusal or error
            return self._next(self._refusal)
        if not isinstance(error, NotLeader):
            return GiveUp(error)
        self._hops += 1
        new = self._refusal is None or error.endpoint not in self._sent
        if error.endpoint and new and self._hops <= HOPS_MAX:
            return self._send(error.endpoint)
        return self.silent(error)

    def from_memory(self) -> Step:
        """The manager that got the command has told what it remembers."""
        return self.refused(RegistryAway("told from memory"))

    def _send(self, endpoint: str) -> Send:
        self._sent.add(endpoint)
        return Send(endpoint)

    def _search(self, why: RoQError) -> Search:
        self._hops = 0
        self._sent.clear()
        self._visited.clear()
        return Search(self._backoff.wait(), why)

    def _next(self, refusal: RegistryAway) -> Step:
        """The turn of the next one."""
        self._hops = 0
        address = next((each for each in self._known if each not in self._visited), None)
        if address is None:
            return GiveUp(refusal)
        self._visited.add(address)
        return Visit(address)
