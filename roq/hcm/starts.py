"""How many processes are started at the same time; the others wait for their turn.

A process that starts takes a good part of a second of a processor. Whatever starts when there is
none left takes it from those that run, and none of them is done in time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

PATIENT_MAX: Final = 1
"""At the same time while the host is short of processor."""
SLOT_SECONDS: Final = 5.0
"""A process that has not come up by then does not hold others back any longer."""
SLOT_PATIENT_SECONDS: Final = 20.0


class Starts:
    """Who is starting, and who is next.

    Args:
        most: at the same time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun: dict[str, float] = {}
        self._line: deque[str] = deque()

    def __iter__(self) -> Iterator[str]:
        """Those who wait."""
        return iter(self._line)

    def enter(self, name: str, now: float, *, patient: bool) -> bool:
        """Whether this one may start now; if not, it stands in the line."""
        if self._line or not self._room(now, patient):
            self._line.append(name)
            return False
        self._begun[name] = now
        return True

    def turns(self, now: float, *, patient: bool) -> list[str]:
        """Whose turn it is now; they have entered."""
        found = []
        while self._line and self._room(now, patient):
            name = self._line.popleft()
            self._begun[name] = now
            found.append(name)
        return found

    def leave(self, name: str) -> None:
        """It runs, or has ended."""
        self._begun.pop(name, None)

    def give_up(self, name: str) -> None:
        """It is not to be started any more."""
        self._line.remove(name)

    def next_deadline(self, *, patient: bool) -> float | None:
        """When the oldest one holds others back no longer; None if nobody waits."""
        if not self._line or not self._begun:
            return None
        return min(self._begun.values()) + _slot(patient)

    def _room(self, now: float, patient: bool) -> bool:
        slot = _slot(patient)
        for name in [each for each, begun in self._begun.items() if now >= begun + slot]:
            del self._begun[name]
        return len(self._begun) < (PATIENT_MAX if patient else self._most)


def _slot(patient: bool) -> float:
    return SLOT_PATIENT_SECONDS if patient else SLOT_SECONDS
