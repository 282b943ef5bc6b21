"""How many messages a publisher sends: rates that change over a phase, known in advance.

`sent_by(rate, seconds, phase)` is the number of messages that are due `seconds` after a phase of
`phase` seconds began. A generator that looks at it sends what is due, however late it is itself
(open loop), and a model needs no random numbers for it.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from math import cos, floor, pi
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

PerSecond: TypeAlias = Annotated[float, Meta(ge=0, le=10_000_000)]
"""Messages a second of one publisher."""
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=31_536_000)]
Moment: TypeAlias = Annotated[float, Meta(ge=0, le=31_536_000)]
NEVER: Final = float("inf")
EXACT_SECONDS: Final = 1e-6
"""Moments closer to each other are one."""


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Base of everything that has a kind."""


class Ramp(Kind, frozen=True, tag="ramp", rename={"start": "from", "end": "to"}):
    """Rises or falls evenly over the phase."""

    start: PerSecond
    end: PerSecond


class Step(Kind, frozen=True, tag="step"):
    """One rate after another, each for an equal part of the phase."""

    rates: Annotated[list[PerSecond], Meta(min_length=1, max_length=1_000)]


class Burst(Kind, frozen=True, tag="burst"):
    """A base, and every so often a burst."""

    base: PerSecond
    peak: PerSecond
    every: Seconds
    """From the beginning of one burst to that of the next."""
    width: Seconds
    """Seconds that a burst lasts; at most `every`."""

    def __post_init__(self) -> None:
        if self.width > self.every:
            raise ValueError("`width` of a burst is at most `every`")


class Diurnal(Kind, frozen=True, tag="diurnal"):
    """A wave like that of day and night: lowest at its beginning, highest after half a period."""

    low: PerSecond
    high: PerSecond
    period: Seconds = 86_400.0


class Trace(Kind, frozen=True, tag="trace"):
    """What was measured somewhere: points that are joined by straight lines, then over again.

    A file (`points_file`) holds two columns, seconds and messages a second.
    """

    points: Annotated[list[tuple[Moment, PerSecond]], Meta(max_length=1_000_000)] = []
    points_file: str = ""

    def __post_init__(self) -> None:
        times = [time for time, _ in self.points]
        if times and (times[0] != 0 or any(b <= a for a, b in pairwise(times))):
            raise ValueError("`points` of a trace begin at 0 seconds and go on in time")
        if not self.points and not self.points_file:
            raise ValueError("a trace needs `points` or `points_file`")
        if len(self.points) == 1:
            raise ValueError("a trace has at least two `points`")


Rate: TypeAlias = PerSecond | Ramp | Step | Burst | Diurnal | Trace


def sent_by(rate: Rate, seconds: float, phase: float) -> float:
    """Messages that one publisher is to have sent by then; a number that never falls.

    Args:
        rate: its rate.
        seconds: since the phase began; beyond its end the phase has ended.
        phase: seconds that the phase lasts.
    """
    t = min(max(seconds, 0.0), phase)
    match rate:
        case Ramp(start, end):
            return start * t + (end - start) * t * t / (2 * phase)
        case Step(rates):
            part = phase / len(rates)
            whole = min(int(t / part), len(rates) - 1)
            return sum(rates[:whole]) * part + rates[whole] * (t - whole * part)
        case Burst(base, peak, every, width):
            bursts, rest = divmod(t, every)
            return base * t + (peak - base) * (bursts * width + min(rest, width))
        case Diurnal(low, high, period):
            middle, swing = (low + high) / 2, (high - low) / 2
            wave = 2 * pi / period
            return middle * t - swing * _sine(wave * t) / wave
        case Trace():
            return _traced(rate.points, t)
        case _:
            return rate * t


def rate_at(rate: Rate, seconds: float, phase: float) -> float:
    """Messages a second of one publisher at a moment of a phase."""
    t = min(max(seconds, 0.0), phase)
    match rate:
        case Ramp(start, end):
            return start + (end - start) * t / phase
        case Step(rates):
            return rates[min(int(t * len(rates) / phase), len(rates) - 1)]
        case Burst(base, peak, every, width):
            return peak if t % every < width else base
        case Diurnal(low, high, period):
            return (low + high) / 2 - (high - low) / 2 * cos(2 * pi * t / period)
        case Trace():
            return _interpolated(rate.points, t % rate.points[-1][0])
        case _:
            return rate


def next_jump(rate: Rate, t: float, phase: float) -> float:
    """The next moment after `t` at which a rate jumps; seconds of its phase; NEVER: it does not."""
    match rate:
        case Step(rates):
            part = phase / len(rates)
            return _after(t, part, 0.0)
        case Burst(_, _, every, width):
            return min(_after(t, every, 0.0), _after(t, every, width))
        case Trace(points) if points:
            return _after(t, points[-1][0], 0.0)
        case _:
            return NEVER


def highest(rate: Rate) -> float:
    """The highest rate that there is."""
    match rate:
        case Ramp(start, end):
            return max(start, end)
        case Step(rates):
            return max(rates)
        case Burst(base, peak):
            return max(base, peak)
        case Diurnal(low, high):
            return max(low, high)
        case Trace():
            return max((each for _, each in rate.points), default=0.0)
        case _:
            return rate


def stretched(rate: Rate, factor: float) -> Rate:
    """The same course in `factor` times the time: as high, and as often in a phase."""
    match rate:
        case Burst(base, peak, every, width):
            return Burst(base=base, peak=peak, every=every * factor, width=width * factor)
        case Diurnal(low, high, period):
            return Diurnal(low=low, high=high, period=period * factor)
        case Trace():
            points = [(time * factor, each) for time, each in rate.points]
            return Trace(points=points, points_file=rate.points_file)
        case _:
            return rate


def _sine(angle: float) -> float:
    return cos(angle - pi / 2)


def _traced(points: list[tuple[float, float]], t: float) -> float:
    if not points:
        return 0.0
    whole, rest = divmod(t, points[-1][0])
    return whole * _area(points, points[-1][0]) + _area(points, rest)


def _area(points: list[tuple[float, float]], until: float) -> float:
    """Messages from the beginning of a trace until a moment of it."""
    area = 0.0
    for (t0, r0), (t1, r1) in pairwise(points):
        if until <= t0:
            break
        end = min(t1, until)
        rate = r0 + (r1 - r0) * (end - t0) / (t1 - t0)
        area += (r0 + rate) / 2 * (end - t0)
    return area


def _interpolated(points: list[tuple[float, float]], t: float) -> float:
    index = min(max(bisect_right(points, (t, float("inf"))), 1), len(points) - 1)
    (t0, r0), (t1, r1) = points[index - 1], points[index]
    return r0 + (r1 - r0) * (t - t0) / (t1 - t0)


def _after(t: float, every: float, shift: float) -> float:
    number = floor((t - shift) / every) + 1
    found = number * every + shift
    return found if found > t + EXACT_SECONDS else found + every
