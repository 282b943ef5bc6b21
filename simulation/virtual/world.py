"""A virtual clock, and everything that is still to happen on it: no threads, no real time.

    world = World(seed=7)
    world.call_later(0.5, bell.ring)
    world.run(1.0)                      # the bell has rung at half past zero

Whatever a simulation does at random it draws from `random`, so the same seed always gives the same
history. Actors (`actors/`) run machines of the real system on this clock, and talk over a network
(`network.py`) that does what networks do; `cluster.py` runs all of them, with their shells.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Final, Protocol

import msgspec

from roq.read.message import MICROSECONDS

START_SECONDS: Final = 100.0
AT_ONCE_MAX: Final = 100_000
"""So many calls at one time are a machine that asks for the same again and again."""
WALL_CLOCK_AT_START: Final = 1_700_000_000.0


class Call(msgspec.Struct, eq=False):
    """Something that will be done at a time, unless it is cancelled.

    Attributes:
        action: what is to be done; None: it will not be (any more).
    """

    at: float
    action: Callable[[], None] | None

    @property
    def cancelled(self) -> bool:
        """Whether it will not be done (any more)."""
        return self.action is None

    def cancel(self) -> None:
        """Do not do it; idempotent."""
        self.action = None


class Time(Protocol):
    """The clock as an actor sees it: its own, which may differ from that of others."""

    @property
    def now(self) -> float:
        """Seconds."""
        ...

    @property
    def time_us(self) -> int:
        """What a wall clock shows, in microseconds since 1970."""
        ...

    @property
    def random(self) -> Random:
        """The only source of chance."""
        ...

    def call_at(self, at: float, action: Callable[[], None]) -> Call:
        """Have this done at a time."""
        ...

    def call_later(self, delay: float, action: Callable[[], None]) -> Call:
        """Have this done in so many seconds."""
        ...


class World:
    """The clock and the queue of what is to happen.

    Attributes:
        now: virtual seconds.
        random: the only source of chance.
        happened: how many calls were made.
        crashes: exceptions that have ended processes.
        trace: what has happened, for people; None: it is not wanted.
    """

    def __init__(self, seed: int) -> None:
        self.now = START_SECONDS
        self.random = Random(seed)
        self.happened = 0
        self.crashes: list[str] = []
        self.trace: list[tuple[float, str, str]] | None = None
        self._checksum = 0
        self._calls: list[tuple[float, int, Call]] = []
        self._serial = 0
        self._at_once = 0

    @property
    def time_us(self) -> int:
        """What a wall clock shows, in microseconds since 1970."""
        return int((WALL_CLOCK_AT_START + self.now) * MICROSECONDS)

    @property
    def checksum(self) -> str:
        """Of the times of all calls: two runs that give the same were the same."""
        return f"{self._checksum & 0xFFFFFFFFFFFFFFFF:016x}"

    def note(self, who: str, what: str) -> None:
        """A process does something worth telling."""
        if self.trace is not None:
            self.trace.append((self.now, who, what))

    def call_at(self, at: float, action: Callable[[], None]) -> Call:
        """Have this done at a time, after what is to be done at the same time already."""
        at = max(at, self.now)
        call = Call(at, action)
        self._serial += 1
        heappush(self._calls, (at, self._serial, call))
        return call

    def call_later(self, delay: float, action: Callable[[], None]) -> Call:
        """Have this done in so many seconds."""
        return self.call_at(self.now + delay, action)

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        self._run(self.now + seconds, None)

    def run_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Let time pass until `condition()`; False if it is still not so after `seconds`."""
        return self._run(self.now + seconds, condition) or condition()

    def _run(self, end: float, condition: Callable[[], bool] | None) -> bool:
        """Make the calls until `end`; True: the condition came true before."""
        calls = self._calls
        while condition is None or not condition():
            if not calls or calls[0][0] > end:
                self.now = end
                return False
            at, _, call = heappop(calls)
            action, call.action = call.action, None  # it is done only once
            if action is None:
                continue
            if at != self.now:
                self.now = at
                self._at_once = 0
            else:
                self._at_once += 1
                if self._at_once > AT_ONCE_MAX:
                    raise AssertionError(f"time stands still at {at:.6f}: {action}")
            self.happened += 1
            self._checksum = hash((self._checksum, at))
            action()
        return True


class Alarm:
    """A timer that is set anew often, and rings once for its latest setting.

    Args:
        action: what to do when it rings.
    """

    def __init__(self, world: Time, action: Callable[[], None]) -> None:
        self._world = world
        self._action = action
        self._call: Call | None = None
        self._at = 0.0

    def set(self, at: float | None) -> None:
        """Ring at this time and not before; None: do not ring."""
        if self._call is not None:
            if self._at == at and not self._call.cancelled:
                return
            self._call.cancel()
            self._call = None
        if at is not None:
            self._at = at
            self._call = self._world.call_at(at, self._action)

    def set_earlier(self, at: float) -> None:
        """Ring at this time, or earlier if it was set so."""
        if self._call is None or self._call.action is None or self._at > at:
            self.set(at)
