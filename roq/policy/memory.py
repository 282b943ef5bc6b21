"""What a policy remembers from round to round: counts of hits, and since when something lasts.

A hit is a round in which a condition held. Rounds in a row are counted, and one without it starts
the count anew, so a signal that flickers never adds up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from roq.policy.snapshot import Memory

MARKS_MAX: Final = 8_192
"""The oldest marks are forgotten beyond this."""


class Marks:
    """The memory of a policy, open for one round.

    Args:
        memory: from the round before.
        now: of the view.
    """

    def __init__(self, memory: Memory, now: float) -> None:
        self.now = now
        self._marks = dict(memory.marks)

    def __contains__(self, name: str) -> bool:
        return name in self._marks

    def get(self, name: str, default: float = 0.0) -> float:
        """The mark of this name."""
        return self._marks.get(name, default)

    def put(self, name: str, value: float) -> None:
        """Set a mark; it counts as the newest one."""
        self._marks.pop(name, None)
        self._marks[name] = value

    def drop(self, *names: str) -> None:
        """Forget these marks."""
        for name in names:
            self._marks.pop(name, None)

    def hit(self, name: str, held: bool) -> int:
        """Count the rounds in a row in which a condition held, this one included."""
        if not held:
            self.drop(name)
            return 0
        self._marks[name] = self.get(name) + 1
        return int(self._marks[name])

    def lasting(self, name: str, held: bool) -> float:
        """For how many seconds a condition has held without a break."""
        if not held:
            self.drop(name)
            return 0.0
        return self.now - self._marks.setdefault(name, self.now)

    def start(self, name: str) -> None:
        """Remember that something happens now."""
        self.put(name, self.now)

    def since(self, name: str) -> float:
        """Seconds since `start`; infinite if it never happened."""
        return self.now - self._marks[name] if name in self._marks else float("inf")

    def named(self, prefix: str) -> list[str]:
        """The names of all marks with this prefix, the oldest first."""
        return [name for name in self._marks if name.startswith(prefix)]

    def keep(self, prefix: str, names: Iterable[str]) -> None:
        """Forget the marks with this prefix that are not among `names`."""
        wanted = set(names)
        self.drop(*(name for name in self.named(prefix) if name not in wanted))

    def memory(self) -> Memory:
        """What to remember until the next round."""
        while len(self._marks) > MARKS_MAX:
            del self._marks[next(iter(self._marks))]
        return Memory(self._marks)
