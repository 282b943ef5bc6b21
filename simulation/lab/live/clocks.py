"""The clock of the driver, on every machine: the wall clock that it had when the run was set up,
going on by CLOCK_MONOTONIC, so that a clock that is set disturbs no run.

Processes of one machine share CLOCK_MONOTONIC: no error. Others ask the driver many times what time
it is; the quickest round trip bounds how wrong the answer can be.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

DRIFT: Final = 100e-6
"""Two monotonic clocks go apart by at most so much; crystals keep within 50 ppm each."""
MICROSECONDS: Final = 1_000_000
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """A moment on both clocks of the driver's machine.

    Attributes:
        machine: which machine that is, for as long as it is not started again.
        wall_us: microseconds since 1970.
        monotonic_us: CLOCK_MONOTONIC.
    """

    machine: str
    wall_us: int
    monotonic_us: int


class RoundTrip(NamedTuple):
    """A question and its answer; microseconds."""

    asked: int
    """When it was asked, by the own monotonic clock."""
    answer: int
    """The driver's clock."""
    came: int
    """When the answer came, by the own monotonic clock."""


class Estimate(NamedTuple):
    """How the driver's clock follows from the own one."""

    offset_us: int
    """To be added to the own monotonic clock."""
    error_us: int
    """By which it may be wrong."""


def estimate(trips: Sequence[RoundTrip]) -> Estimate:
    """What the quickest round trip says; the answer was given some time between its ends.

    Args:
        trips: at least one.
    """
    best = min(trips, key=lambda trip: trip.came - trip.asked)
    half = (best.came - best.asked + 1) // 2
    return Estimate(best.answer - best.asked - half, half)


class Clock:
    """The driver's clock, on this machine.

    Args:
        offset_us: to be added to CLOCK_MONOTONIC of this machine.
        error_us: by which that may be wrong now.
    """

    def __init__(self, offset_us: int, error_us: int = 0) -> None:
        self._offset_us = offset_us
        self._error_us = error_us
        self._since_us = monotonic_us()

    def now_us(self) -> int:
        """Microseconds since 1970."""
        return time.monotonic_ns() // 1_000 + self._offset_us

    def error_seconds(self) -> float:
        """By how much it may be wrong by now."""
        if not self._error_us:
            return 0.0
        drifted = DRIFT * (monotonic_us() - self._since_us)
        return (self._error_us + drifted) / MICROSECONDS


def anchor() -> Anchor:
    """This moment."""
    return Anchor(machine=machine(), wall_us=time.time_ns() // 1_000, monotonic_us=monotonic_us())


def clock_here(given: Anchor, this: str) -> Clock | None:
    """The driver's clock if this is its machine, else None.

    Args:
        given: of the driver.
        this: `machine()` of the caller.
    """
    if not given.machine or this != given.machine:
        return None
    return Clock(given.wall_us - given.monotonic_us)


def machine() -> str:
    """Which machine this is, until it is started again; empty if that is not known.

    Containers of one machine give the same: they share its monotonic clock.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def monotonic_us() -> int:
    """CLOCK_MONOTONIC of this machine."""
    return time.monotonic_ns() // 1_000


def sentence(hosts: int, error: float) -> str:
    """How times were compared, for people.

    Args:
        hosts: machines that took part.
        error: seconds by which a latency may be wrong.
    """
    if hosts <= 1 and not error:
        return "All processes ran on one machine and used its one monotonic clock."
    return (
        f"Tasks ran on {hosts} machines. Each estimated the driver's clock by round trips; a "
        f"latency may be wrong by {1000 * error:.2f} ms, growing by {DRIFT * 2e6:.0f} µs a second."
    )
