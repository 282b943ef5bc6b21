"""Which configuration manager a management command goes to next: pure.

    visit --answers--> send --names the leader--> send …
      ^ \\--silent--> the next one; after a wait when all were visited
      |                 | none leads at the moment: the next one, likewise
      +-----------------+
                        | its registry is away, so nothing was begun
                        v
                     visit each other one, once --none of them makes the change--> refused

A manager that is cut off from the registry cannot know that another one leads by now. So a client
that gets its refusal, or an answer from its memory, asks each other manager that it knows, once and
without waiting: either one of them leads, or the registry is away for all of them, and the first
word holds. What may have been begun is asked of no other manager.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from roq.errors import NotLeader, RegistryAway, RequestError, RoQError
from roq.model import is_address
from roq.protocol.control import ClusterInfo
from roq.runtime.backoff import Backoff
from roq.runtime.leader_finder import HOPS_MAX, LeaderFinder


@dataclass(frozen=True, slots=True)
class Visit:
    """Ask the manager at this client address where it takes commands."""

    address: str
    why: RoQError
    """What went wrong before; the answer, if there is no time for this visit."""
    after: float = 0.0
    """Seconds."""


@dataclass(frozen=True, slots=True)
class SendCommand:
    """Give the command to the manager that takes commands here."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No other manager is to be asked."""

    error: RoQError


Step: TypeAlias = Visit | SendCommand | GiveUp


class CommandRoute:
    """The way of one command.

    Args:
        managers: client addresses of those that are known.
        backoff: how long it is waited when all were asked.
    """

    def __init__(self, managers: Iterable[str], backoff: Backoff) -> None:
        self._finder = LeaderFinder(managers)
        self._backoff = backoff
        self._hops = 0
        self._sent: set[str] = set()
        """Where it was sent since a visit began, or from the one on that led to a refusal."""
        self._refusal: RegistryAway | None = None
        self._alias = ""
        """How the manager that was visited calls itself."""

    def begin(self, now: float) -> str:
        """The address of the manager that is visited first."""
        return self._finder.ask(now)

    def found(self, info: ClusterInfo, now: float) -> Step:
        """The manager that was visited has answered."""
        self._finder.learn(info.managers)
        self._alias = info.client
        self._finder.exclude(self._alias)
        if self._refusal is not None and info.management in self._sent:
            return self._next(self._refusal, now, more=self._finder.refused(now))
        return self._send(info.management)

    def silent(self, why: RoQError, now: float) -> Step:
        """A manager cannot be reached, or does not answer a visit: nothing was begun."""
        return self._next(why, now, more=self._finder.silent(now))

    def refused(self, error: RequestError, now: float) -> Step:
        """The manager that got the command does not carry it out."""
        if type(error) is RegistryAway:  # an `Interrupted` may have been begun
            if self._refusal is None:
                self._refusal = error
                self._finder.begin()
                self._finder.exclude(self._alias)
        elif not isinstance(error, NotLeader):
            return GiveUp(error)
        elif self._may_follow(error.endpoint):
            self._hops += 1
            return self._send(error.endpoint)
        return self._next(error, now, more=self._finder.refused(now))

    def from_memory(self, now: float) -> Step:
        """The manager that got the command has told what it remembers."""
        return self.refused(RegistryAway("told from memory"), now)

    def _may_follow(self, endpoint: str) -> bool:
        again = self._refusal is not None and endpoint in self._sent
        return is_address(endpoint) and not again and self._hops < HOPS_MAX

    def _send(self, endpoint: str) -> SendCommand:
        self._sent.add(endpoint)
        return SendCommand(endpoint)

    def _next(self, why: RoQError, now: float, *, more: bool) -> Step:
        self._hops = 0
        if self._refusal is None:
            self._sent.clear()
        elif not more:
            return GiveUp(self._refusal)
        after = 0.0 if more else self._backoff.wait()
        return Visit(self._finder.ask(now), self._refusal or why, after)
