"""The contract of a state machine: decides, and touches nothing.

A machine is fed one event at a time together with the time at which it happened, and returns the
effects that its shell must perform, in order. It opens no socket, reads no clock and draws no
random number, so the same events always give the same effects: daemons, tests and simulations
drive the very same object.

Rules for a shell:

1. Perform the effects in the order given, before the next event is handled.
2. An effect that needs an answer brings its answer back as an event.
3. Call `handle(Tick(), now)` no later than `next_deadline()`.
4. `now` never runs backwards; its origin does not matter, its unit is the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

Event_contra = TypeVar("Event_contra", contravariant=True)
Effect_co = TypeVar("Effect_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; nothing else happened."""


class Machine(Protocol[Event_contra, Effect_co]):
    """What daemons, simulation and tests may expect of a state machine."""

    def handle(self, event: Event_contra, now: float) -> Sequence[Effect_co]:
        """Take one event in and give the effects to perform, in order."""
        ...

    def next_deadline(self) -> float | None:
        """The time at which the machine wants a `Tick`, or None if only events matter."""
        ...

    def check(self) -> None:
        """Assert the invariants; called after every event in tests and simulation only."""
        ...
