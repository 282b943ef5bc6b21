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

A machine that judges others by their silence reads an `ObservedClock`: time as far as its own
process has lived through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from roq.errors import LocalProtocolError

Event_contra = TypeVar("Event_contra", contravariant=True)
Effect_co = TypeVar("Effect_co", covariant=True)
State = TypeVar("State", bound=Enum)

STALL_SECONDS: Final = 1.5
"""For whom events come every second: a longer silence means that this process did not run."""
ROUNDING_SECONDS: Final = 1e-6
"""A wake-up that comes too early by a rounding error would be followed by another, and another."""


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


class Transitions(Generic[State]):
    """Which named state may follow which; anything else is a bug of ours.

    To stay in a state is always allowed. `docs/states.md` is printed from these tables.

    Args:
        begin: state in which something may begin, and when it does.
        follow: from a state to the next one, and what brings that about.
        end: state in which something may be forgotten, and what brings that about.
    """

    __slots__ = ("begin", "end", "follow")

    def __init__(
        self,
        begin: Mapping[State, str],
        follow: Mapping[State, Mapping[State, str]],
        end: Mapping[State, str],
    ) -> None:
        self.begin = begin
        self.follow = follow
        self.end = end

    def step(self, before: State, after: State) -> State:
        """Give `after` back if it may follow.

        Raises:
            LocalProtocolError: it may not.
        """
        if after is not before and after not in self.follow.get(before, ()):
            kind = type(before).__qualname__
            raise LocalProtocolError(f"{kind}: {after.name} does not follow {before.name}")
        return after

    def leave(self, state: State) -> None:
        """What stands in this state is forgotten.

        Raises:
            LocalProtocolError: it may not be.
        """
        if state not in self.end:
            kind = type(state).__qualname__
            raise LocalProtocolError(f"{kind}: nothing is forgotten while it is {state.name}")


class ObservedClock:
    """A clock that stands still while its process does.

    A process that was stopped for a while has heard from nobody, which says nothing about them: on
    this clock it was a short moment, so nobody is declared lost for it.

    Args:
        now: the present time.
        stall_seconds: events come more often than this; of a longer gap only so much counts.

    Attributes:
        stall_seconds: the same, for the next gap.
    """

    __slots__ = ("_last", "_skipped", "stall_seconds")

    def __init__(self, now: float, stall_seconds: float = STALL_SECONDS) -> None:
        self._last = now
        self._skipped = 0.0
        self.stall_seconds = stall_seconds

    def read(self, now: float) -> float:
        """Observed time at the time `now`, which never runs backwards."""
        gap = now - self._last
        if gap > self.stall_seconds:
            self._skipped += gap - self.stall_seconds
        self._last = now
        return now - self._skipped

    def outside(self, observed: float) -> float:
        """The time at which `observed` will have been reached if nothing stalls."""
        return observed + self._skipped + ROUNDING_SECONDS
