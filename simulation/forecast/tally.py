"""What happened to one queue, counted; how that is added up; and the clock that calls a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, Self

import msgspec

EVENTS_MAX: Final = 2_000
"""Of one queue; later ones are only counted."""


class Clock(Protocol):
    """Calls what is due."""

    def call(self, when: float, what: Callable[[float], None]) -> None:
        """Call this at that time."""
        ...


class Summed(msgspec.Struct, kw_only=True):
    """Numbers and lists; those of several queues, cells or windows together make another one."""

    def add(self, other: Self) -> None:
        """Put another one to this: numbers are added, lists go on."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Tally(Summed, kw_only=True):
    """What happened to one queue, counted.

    Attributes:
        moves: publishers that moved.
        scale_failed: exchanges for which no host had room, or that would be one too many.
        rounds: KPI periods that were looked at.
        asked: how often a policy was asked.
        asked_ahead: how often it was asked about the future, to know when to ask again.
        serve_seconds: from each decision until the new exchange served.
        events: (when, what, number of the exchange).
        events_left_out: those that were too many to be kept.
    """

    moves: int = 0
    moves_failed: int = 0
    scale_outs: int = 0
    scale_ins: int = 0
    scale_failed: int = 0
    deaths: int = 0
    rounds: int = 0
    asked: int = 0
    asked_ahead: int = 0
    policy_errors: int = 0
    serve_seconds: list[float] = []
    events: list[tuple[float, str, int]] = []
    events_left_out: int = 0

    def note(self, now: float, what: str, number: int) -> None:
        """Keep what has happened, as long as there is room."""
        if len(self.events) < EVENTS_MAX:
            self.events.append((now, what, number))
        else:
            self.events_left_out += 1

    def keep_first(self, most: int) -> None:
        """Bring the events in order of time, and count those beyond so many as left out."""
        events = sorted(self.events)[:most]
        self.events_left_out += len(self.events) - len(events)
        self.events = events
