"""When messages are due: the integral of a rate, turned round; pure.

Message n (from 0) of a stay is due when so many messages are to have been sent that n + 1 of them
are whole. Nothing is skipped: who is late gets all that became due meanwhile, each with the moment
at which it should have been sent.
"""

from __future__ import annotations

from math import floor
from typing import Final, Protocol

from roq.simulation.lab.live.plan import PublisherStay, Stretch
from roq.simulation.scenario.rates import EXACT_SECONDS, NEVER, next_jump, rate_at, sent_by

SLICE_SECONDS: Final = 0.005
"""Rates count as constant for so long, between two points at which they jump."""
_STEPS: Final = 60
_NEAR: Final = 1e-9


class Timetable(Protocol):
    """Says when messages are due."""

    def take(self, now: float, most: int) -> list[float]:
        """Moments of the next messages that are due by now, `most` at most, in order."""
        ...

    def next_due(self) -> float:
        """When the next one is due; NEVER if there is none."""
        ...

    def stretch(self) -> Stretch:
        """To which stretch the messages belong that `take` gave last."""
        ...


class Schedule:
    """The timetable of one stay; times are seconds since the load began."""

    def __init__(self, stay: PublisherStay) -> None:
        self._stretches = stay.stretches
        self._place = 0
        self._told = 0
        self._at = stay.begins
        self._before = stay.stagger
        """Messages of earlier stretches, less those of the phase before this one began."""
        self._done = floor(stay.stagger)
        self._due = stay.stagger
        self._enter()

    def take(self, now: float, most: int) -> list[float]:
        """As `Timetable.take`; those of one call belong to one stretch."""
        found: list[float] = []
        while len(found) < most:
            stretch = self._stretches[self._place]
            if self._at >= stretch.ends:
                if found or not self._next_stretch():
                    break
                continue
            end = min(now, stretch.ends, self._at + SLICE_SECONDS, self._jump(stretch))
            if end <= self._at:
                break
            self._slice(end, most - len(found), found)
        self._told = self._place
        return found

    def next_due(self) -> float:
        """As `Timetable.next_due`."""
        place, before = self._place, self._before
        at = self._at
        while True:
            stretch = self._stretches[place]
            whole = before + self._sent(stretch, stretch.ends)
            if whole + _NEAR >= self._done + 1:
                return self._moment(stretch, before, max(at, stretch.begins))
            if place + 1 == len(self._stretches):
                return NEVER
            place += 1
            following = self._stretches[place]
            before = whole - self._sent(following, following.begins)

    def stretch(self) -> Stretch:
        """As `Timetable.stretch`."""
        return self._stretches[self._told]

    # --- one slice --------------------------------------------------------------------------------

    def _slice(self, end: float, room: int, found: list[float]) -> None:
        """Messages until `end`, as if the rate were constant."""
        stretch = self._stretches[self._place]
        due = self._before + self._sent(stretch, end)
        # What is whole but for the last bit of a float is whole.
        whole = floor(due + _NEAR)
        count = whole - self._done
        if count > 0:
            begin, per_message = self._at, (end - self._at) / max(due - self._due, _NEAR)
            first = self._done + 1 - self._due
            taken = min(count, room)
            found += [
                min(end, max(begin, begin + (first + index) * per_message))
                for index in range(taken)
            ]
            self._done += taken
            if taken < count:
                self._at = found[-1]
                self._due = float(self._done)
                return
        self._at, self._due = end, due

    def _sent(self, stretch: Stretch, when: float) -> float:
        """Messages from the beginning of its phase."""
        return sent_by(stretch.rate, when - stretch.phase_begins, stretch.phase_seconds)

    def _next_stretch(self) -> bool:
        if self._place + 1 == len(self._stretches):
            return False
        self._place += 1
        self._at = self._stretches[self._place].begins
        self._before = self._due
        self._enter()
        return True

    def _enter(self) -> None:
        """What the phase has seen before this stretch is nothing to it."""
        stretch = self._stretches[self._place]
        self._before -= self._sent(stretch, stretch.begins)

    def _jump(self, stretch: Stretch) -> float:
        return stretch.phase_begins + next_jump(
            stretch.rate, self._at - stretch.phase_begins, stretch.phase_seconds
        )

    def _moment(self, stretch: Stretch, before: float, begin: float) -> float:
        """When the next message of a stretch is whole: Newton, and halving where that strays."""
        wanted = self._done + 1 - before - _NEAR
        low, high = begin, stretch.ends
        guess = begin
        for _ in range(_STEPS):
            lacking = wanted - self._sent(stretch, guess)
            if lacking > 0:
                low = guess
            else:
                high = guess
            rate = rate_at(stretch.rate, guess - stretch.phase_begins, stretch.phase_seconds)
            following = guess + lacking / rate if rate > 0 else (low + high) / 2
            if not low <= following <= high:
                following = (low + high) / 2
            if abs(following - guess) < EXACT_SECONDS or high - low < EXACT_SECONDS:
                return min(following, high)
            guess = following
        return high


class FlatOut:
    """As much as goes: always so many messages are due."""

    def __init__(self, stay: PublisherStay) -> None:
        self._stretch = stay.stretches[0]
        self._now = stay.begins

    def take(self, now: float, most: int) -> list[float]:
        """All of them, now."""
        self._now = now
        return [now] * most if now < self._stretch.ends else []

    def next_due(self) -> float:
        """Now."""
        return self._now if self._now < self._stretch.ends else NEVER

    def stretch(self) -> Stretch:
        """The only one."""
        return self._stretch
