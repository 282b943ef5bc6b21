"""What happened to one queue, counted; and the clock that calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

EVENTS_MAX: Final = 2_000
"""Of one queue; later ones are only counted."""


class Clock(Protocol):
    """Calls what is due."""

    def call(self, when: float, what: Callable[[float], None]) -> None:
        """Call this at that time."""
        ...


class Tally:
    """What happened to one queue, counted."""

    def __init__(self) -> None:
        self.moves = self.moves_failed = 0
        self.scale_outs = self.scale_ins = self.scale_failed = 0
        self.rounds = self.asked = self.policy_errors = 0
        self.deaths = 0
        self.serve_seconds: list[float] = []
        self.events: list[tuple[float, str, int]] = []
        """(when, what, number): bounded by `EVENTS_MAX`."""
        self.events_left_out = 0

    def note(self, now: float, what: str, number: int) -> None:
        """Keep what has happened, as long as there is room."""
        if len(self.events) < EVENTS_MAX:
            self.events.append((now, what, number))
        else:
            self.events_left_out += 1
