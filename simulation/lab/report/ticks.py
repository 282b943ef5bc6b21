"""Where an axis has its marks: at round numbers, and at times that clocks show."""

from __future__ import annotations

from math import ceil, floor, isfinite, log10
from typing import Final, NamedTuple

_TIMES: Final = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800,
    3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
)  # fmt: skip
_LEAST: Final = 1e-9
"""Nothing smaller is told from nought."""


class Scale(NamedTuple):
    """From a value to its place on an axis."""

    low: float
    high: float
    ticks: list[float]
    log: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one; what is beyond an end stands at it."""
        if self.log:
            return _clamped(log10(max(value, self.low) / self.low) / log10(self.high / self.low))
        return _clamped((value - self.low) / (self.high - self.low))


def linear(high: float, count: int = 5, low: float = 0.0) -> Scale:
    """From `low` to a round number that is at least `high`.

    Args:
        high: the largest value.
        count: so many ticks at most, about.
        low: where it begins; a tick only if it is round.
    """
    if not isfinite(high) or not isfinite(low) or high <= low + _LEAST:
        high = low + 1.0
    step = _round_step((high - low) / max(1, count - 1))
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    ticks = [float(f"{index * step:.12g}") for index in range(first, last + 1)]
    return Scale(ticks[0], ticks[-1], ticks)


def logarithmic(low: float, high: float) -> Scale:
    """Powers of ten, with 2 and 5 between them where there are few."""
    low = max(low, _LEAST)
    high = max(high, low)
    bottom, top = floor(log10(low) + 1e-9), ceil(log10(high) - 1e-9)
    top = max(top, bottom + 1)
    between = (1, 2, 5) if top - bottom <= 2 else (1, 3) if top - bottom <= 3 else (1,)
    every = max(1, ceil((top - bottom) / 7))
    all_of_them = [
        float(f"{part * 10.0**power:.6g}")
        for power in range(bottom, top + every, every)
        for part in between
    ]
    first = max((tick for tick in all_of_them if tick <= low), default=all_of_them[0])
    last = min((tick for tick in all_of_them if tick >= high), default=all_of_them[-1])
    last = last if last > first else all_of_them[-1]
    return Scale(first, last, [tick for tick in all_of_them if first <= tick <= last], log=True)


def times(seconds: float, count: int = 10) -> list[float]:
    """Moments from 0 to `seconds`, as clocks show them; at most `count` and one."""
    if not isfinite(seconds) or seconds <= 0:
        return [0.0]
    step = next((each for each in _TIMES if seconds / each <= count), None)
    if step is None:
        step = 604_800 * ceil(seconds / 604_800 / count)
    elif seconds / step < 1:
        step = _round_step(seconds / count)
    return [float(f"{index * step:.12g}") for index in range(floor(seconds / step + 1e-9) + 1)]


def _round_step(least: float) -> float:
    """1, 2, 2.5 or 5 times a power of ten, not below `least`; no halves of small numbers."""
    power = 10.0 ** floor(log10(least))
    parts = (1, 2, 2.5, 5, 10) if power >= 10 else (1, 2, 5, 10)
    return next(part * power for part in parts if part * power >= least * (1 - 1e-9))


def _clamped(share: float) -> float:
    return min(1.0, max(0.0, share))
