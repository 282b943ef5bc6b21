"""How much is started on one host at the same time; whatever comes on top waits in its order.

A process that starts takes a good part of a second of a processor. Hundreds of them at once would
leave nothing of a small machine to those that run there, this manager among them.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

AT_ONCE: Final = 4
"""Operations that start something on one host."""
WAITING_MAX: Final = 128
"""Of one host; more are refused."""
WAIT_SECONDS: Final = 20.0
"""Whose turn has not come within this is refused."""


class Admission:
    """Who may start something on which host, and who is next."""

    def __init__(self) -> None:
        self._inside: Counter[str] = Counter()
        self._lines: dict[str, deque[int]] = {}

    def enter(self, host: str) -> bool:
        """Whether one more may begin now; it has to `leave` then."""
        if self._inside[host] >= AT_ONCE or self._lines.get(host):
            return False
        self._inside[host] += 1
        return True

    def wait(self, host: str, token: int) -> bool:
        """Stand in the line of this host; False if that is too long."""
        line = self._lines.setdefault(host, deque())
        if len(line) >= WAITING_MAX:
            return False
        line.append(token)
        return True

    def leave(self, host: str) -> int | None:
        """One has ended; gives the next, which has entered."""
        line = self._lines.get(host)
        if line:
            return line.popleft()
        self._inside[host] -= 1
        if not self._inside[host]:
            del self._inside[host]
        return None

    def give_up(self, host: str, token: int) -> None:
        """This one does not wait any longer."""
        line = self._lines.get(host)
        if line is not None and token in line:
            line.remove(token)
        if not line:
            self._lines.pop(host, None)

    def waiting(self, host: str) -> list[int]:
        """Those who wait for this host."""
        return list(self._lines.get(host, ()))

    def clear(self) -> None:
        """Nothing is under way any more."""
        self._inside.clear()
        self._lines.clear()

    def check(self) -> None:
        """Assert the invariants."""
        for host, line in self._lines.items():
            assert not line or self._inside[host] == AT_ONCE  # noqa: S101 - tests and simulation
            assert len(line) <= WAITING_MAX  # noqa: S101
        assert all(0 < inside <= AT_ONCE for inside in self._inside.values())  # noqa: S101
