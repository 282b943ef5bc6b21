"""When an exchange reports to its monitor, and since when each report counts.

Exchanges of a queue report one after the other in each period, so a monitor decides by figures of
which some are nearly a period old. A report is never on its way for exactly as long as another one,
so a window of five seconds holds five periods or six. Which of the reports before it one counts
from is asked of the monitor's own rule.

All is a function of the number of the report: who looks seldom sees the same.
"""

from __future__ import annotations

from math import ceil, floor
from random import Random
from typing import Final, NamedTuple

from roq.monitor.window import RECENT_SECONDS, WINDOW_SECONDS, reaches_back
from roq.simulation.forecast.parameters import Parameters

LATE_MOST: Final = 0.25
"""Part of a period that a report is on its way for at most: none overtakes the one before it."""
_BITS: Final = 32
_MASK: Final = (1 << _BITS) - 1


class Told(NamedTuple):
    """What the last report of an exchange is about.

    Attributes:
        end: when it was made.
        recent: when that one was made from which the last period counts.
        lasting: likewise of the window.
        last: bytes per minute of a publisher of weight 1 in the last period, by group.
        mean: over the window.
    """

    end: float
    recent: float
    lasting: float
    last: tuple[float, ...] = ()
    mean: tuple[float, ...] = ()


class Reports:
    """The reports of one exchange.

    Args:
        parameters: how often they come, and how long they are on their way on average.
        random: draws when they come.
    """

    __slots__ = ("_begin", "_end", "_late", "_period", "_phase", "_salt", "told")

    def __init__(self, parameters: Parameters, random: Random) -> None:
        self._period = parameters.kpi_seconds
        self._late = late_most(parameters)
        self._phase = random.random() * self._period
        self._salt = random.getrandbits(_BITS)
        self.told: Told
        self._turn_to(0.0)

    def heard(self, number: int) -> float:
        """When the monitor hears a report; drawn from its number, mixed as MurmurHash3 ends."""
        mixed = (number * 0x9E3779B1 + self._salt) & _MASK
        mixed = ((mixed ^ mixed >> 16) * 0x85EBCA6B) & _MASK
        mixed = ((mixed ^ mixed >> 13) * 0xC2B2AE35) & _MASK
        return self._made(number) + self._late * (mixed ^ mixed >> 16) / _MASK

    def after(self, now: float) -> float:
        """When the monitor hears the next one."""
        if not self._begin <= now < self._end:
            self._turn_to(now)
        return self._end

    def last(self, now: float) -> Told:
        """The report that the monitor has heard last; what it says is for others to work out, and
        to be kept here."""
        if not self._begin <= now < self._end:
            self._turn_to(now)
        return self.told

    def _since(self, number: int, seconds: float) -> float:
        """When the report was made from which this one counts so many seconds."""
        first = number - ceil(seconds / self._period) - 1
        last = min(first + 3, number)
        times = [self.heard(each) for each in range(first, last)]
        return self._made(first + reaches_back(times, self._begin - seconds))

    def _turn_to(self, now: float) -> None:
        """Find the last report before a moment, and the next one after it."""
        number = floor((now - self._phase) / self._period)
        if self.heard(number) > now:
            number -= 1
        elif self.heard(number + 1) <= now:
            number += 1
        self._begin, self._end = self.heard(number), self.heard(number + 1)
        recent = self._since(number, RECENT_SECONDS)
        lasting = self._since(number, WINDOW_SECONDS)
        self.told = Told(self._made(number), recent, lasting)

    def _made(self, number: int) -> float:
        return self._phase + number * self._period


def late_most(parameters: Parameters) -> float:
    """For how long a report is on its way at most."""
    return min(2 * parameters.report_seconds, LATE_MOST * parameters.kpi_seconds)
