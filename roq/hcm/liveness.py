"""Which running children have hung, by their silence and by what the system says of them.

A child reports four times a second. One that is silent is looked at, and looked at again:

    stopped (T, t)                                        hung
    asleep (S, D), and has not run since the first look   hung
    anything else                                         busy, or starved: it is given more time

Silence is measured by a clock that stands still while the host manager does: one that was paused,
or did not get a turn, has heard nobody for its own reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roq.clock import ObservedClock
from roq.hcm.children import Child, Children, State
from roq.hcm.events import Probe, Probed

BUSY_SECONDS: Final = 10.0
"""A child that works, or would if it could, may be silent for so long."""
LOOKS: Final = 4
"""In the time of silence that makes a child suspicious."""
STOPPED: Final = frozenset("Tt")
ASLEEP: Final = frozenset("SD")
_ROUNDING: Final = 1e-3


@dataclass(slots=True)
class Pulse:
    """What is known of a child's being alive.

    Attributes:
        heard: observed time of its last report.
        still_since: observed time since which it has not run; None: not looked at since `heard`.
        ran_ns: how long it had run then.
    """

    heard: float
    still_since: float | None = None
    ran_ns: int = 0


class Liveness:
    """Keeps the pulses of all running children.

    Args:
        hung_seconds: silence after which a child that does nothing has hung; 0: none ever has.
    """

    def __init__(self, hung_seconds: float) -> None:
        self._hung = hung_seconds
        self._period = hung_seconds / LOOKS
        self._clock: ObservedClock | None = None
        self._look_at: float | None = None
        self._pulses: dict[str, Pulse] = {}

    def heard(self, child: Child, now: float) -> None:
        """It has reported."""
        if not self._hung:
            return
        observed = self._observed(now)
        pulse = self._pulses.get(child.name)
        if pulse is None:
            self._pulses[child.name] = Pulse(observed)
            if self._look_at is None:
                self._look_at = now + self._period
        else:
            pulse.heard = observed
            pulse.still_since = None

    def forget(self, child: Child) -> None:
        """It runs no more."""
        self._pulses.pop(child.name, None)
        if not self._pulses:
            self._look_at = None

    def next_deadline(self) -> float | None:
        """When to look again; None if nothing runs."""
        return self._look_at

    def look(self, children: Children, now: float) -> list[Probe]:
        """Whom to look at, if it is time: those that have been silent for half of the time."""
        if self._look_at is None:
            return []
        observed = self._observed(now)
        if now < self._look_at:
            return []
        self._look_at = now + self._period
        silent = [
            children.get(name)
            for name, pulse in self._pulses.items()
            if observed - pulse.heard >= self._hung / 2
        ]
        if silent:
            self._look_at = now + self._period / 2
        return [
            Probe(child.name, child.epoch)
            for child in silent
            if child is not None and child.state is State.RUNNING
        ]

    def verdict(self, child: Child, probed: Probed, now: float, patience: float = 0.0) -> str:
        """Why this child has hung; empty: it has not, or has until the next look.

        Args:
            patience: seconds for which it may be silent and not run on top, because it may just
                not get a processor. One that is stopped needs none.
        """
        pulse = self._pulses.get(child.name)
        if pulse is None:
            return ""
        observed = self._observed(now)
        silence = observed - pulse.heard
        if pulse.still_since is None or probed.ran_ns != pulse.ran_ns:
            pulse.still_since, pulse.ran_ns = observed, probed.ran_ns
        if silence < self._hung:
            return ""
        said = f"said nothing for {silence:.1f} s and "
        if probed.state in STOPPED:
            return said + "is stopped"
        still = observed - pulse.still_since
        if probed.state in ASLEEP and still >= self._hung / 2 + patience - _ROUNDING:
            return said + "has not run since"
        return said + "goes on working" if silence >= BUSY_SECONDS + patience else ""

    def _observed(self, now: float) -> float:
        if self._clock is None:
            self._clock = ObservedClock(now, stall_seconds=2 * self._period)
        return self._clock.read(now)
