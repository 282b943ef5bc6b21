"""Which processes of children have hung, by their silence and by what the system says of them.

A process reports twice a second, for one child or another; less often while it is idle. One that is
silent is looked at, and looked at again:

    stopped (T, t)                                        hung
    asleep (S), and has not run since the first look      hung
    anything else                                         busy, or starved: it is given more time

So is one that waits in the system and cannot be interrupted (D), as for a slow disk: that is no
fault of its own, nobody can end it there, and its successor would wait for the same.

Silence is measured by a clock that stands still while the host manager does: one that was paused,
or did not get a turn, has heard nobody for its own reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roq.hcm.children import Child, Children, State
from roq.hcm.events import Probe, Probed
from roq.machine import ObservedClock
from roq.timing import CHILD_LIVES_SECONDS, IDLE_CHILD_FACTOR

BUSY_SECONDS: Final = 10.0
"""A child that works, or would if it could, or waits for a disk, may be silent for so long."""
LOOKS: Final = 4
"""In the time of silence that makes a child suspicious."""
STOPPED: Final = frozenset("Tt")
ASLEEP: Final = "S"
WAITING: Final = "D"
_ROUNDING: Final = 1e-3


@dataclass(slots=True)
class Pulse:
    """What is known of a process's being alive.

    Attributes:
        heard: observed time of its last report.
        idle: it serves nobody, and reports less often.
        still_since: observed time since which it has not run; None: not looked at since `heard`.
        ran_ns: how long it had run then.
    """

    heard: float
    idle: bool = False
    still_since: float | None = None
    ran_ns: int = 0


class Liveness:
    """Keeps the pulses of the processes of all running children.

    Args:
        hung_seconds: silence after which a child that does nothing has hung; 0: none ever has.
    """

    def __init__(self, hung_seconds: float) -> None:
        self._hung = hung_seconds
        self._period = (hung_seconds or CHILD_LIVES_SECONDS) / LOOKS
        self._clock: ObservedClock | None = None
        self._look_at: float | None = None
        self._pulses: dict[int, Pulse] = {}
        """By process id."""

    def heard(self, child: Child, now: float, *, idle: bool = False) -> None:
        """It has reported, so its process lives; idle: and will do so less often."""
        observed = self._observed(now)
        pulse = self._pulses.get(child.pid)
        if pulse is None:
            self._pulses[child.pid] = Pulse(observed, idle)
            if self._look_at is None and self._hung:
                self._look_at = now + self._period
        else:
            pulse.heard = observed
            pulse.idle = idle
            pulse.still_since = None

    def lives(self, pid: int, now: float) -> bool:
        """Whether this process has said something of late."""
        pulse = self._pulses.get(pid)
        if pulse is None:
            return False
        return self._observed(now) - pulse.heard < max(self._limit(pulse), CHILD_LIVES_SECONDS)

    def forget(self, pid: int) -> None:
        """Nothing runs in this process any more."""
        self._pulses.pop(pid, None)
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
            pid
            for pid, pulse in self._pulses.items()
            if observed - pulse.heard >= self._limit(pulse) / 2
        ]
        if silent:
            self._look_at = now + self._period / 2
        running = [
            [each for each in children.of_process(pid) if each.state is State.RUNNING]
            for pid in silent
        ]
        return [Probe(each[0].name, each[0].epoch) for each in running if each]

    def verdict(self, child: Child, probed: Probed, now: float, patience: float = 0.0) -> str:
        """Why its process has hung; empty: it has not, or not until the next look.

        Args:
            patience: seconds for which it may be silent and not run on top, because it may just
                not get a processor. One that is stopped needs none.
        """
        pulse = self._pulses.get(child.pid)
        if pulse is None:
            return ""
        observed = self._observed(now)
        silence = observed - pulse.heard
        if pulse.still_since is None or probed.ran_ns != pulse.ran_ns:
            pulse.still_since, pulse.ran_ns = observed, probed.ran_ns
        if silence < self._limit(pulse):
            return ""
        said = f"said nothing for {silence:.1f} s and "
        if probed.state in STOPPED:
            return said + "is stopped"
        still = observed - pulse.still_since
        if probed.state == ASLEEP and still >= self._hung / 2 + patience - _ROUNDING:
            return said + "has not run since"
        if silence < BUSY_SECONDS + patience:
            return ""
        return said + ("waits for the system" if probed.state == WAITING else "goes on working")

    def _limit(self, pulse: Pulse) -> float:
        return self._hung * IDLE_CHILD_FACTOR if pulse.idle else self._hung

    def _observed(self, now: float) -> float:
        if self._clock is None:
            self._clock = ObservedClock(now, stall_seconds=2 * self._period)
        return self._clock.read(now)
