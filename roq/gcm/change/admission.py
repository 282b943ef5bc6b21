"""How much is started on one host at the same time; whatever comes on top waits for its turn.

A process that starts takes a good part of a second of a processor. Hundreds of them at once would
leave nothing of a small machine to those that run there, this manager among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

from roq.gcm.change.fairness import FairLine

AT_ONCE: Final = 4
"""Operations that start something on one host."""
WAITING_MAX: Final = 128
"""Of one host, and of one party at most as many as are left; more are refused."""


class Admission:
    """Who may start something on which host, and who is next."""

    def __init__(self) -> None:
        self._inside: Counter[str] = Counter()
        self._lines: dict[str, FairLine[int]] = {}

    def enter(self, host: str) -> bool:
        """Whether one more may begin now; it has to `leave` then."""
        if self._inside[host] >= AT_ONCE or self._lines.get(host):
            return False
        self._inside[host] += 1
        return True

    def wait(self, host: str, party: Hashable, token: int) -> bool:
        """Stand in the line of this host; False if there is no room for more of this party."""
        line = self._lines.get(host) or FairLine(WAITING_MAX)
        if not line.put(party, token):
            return False
        self._lines[host] = line
        return True

    def leave(self, host: str) -> int | None:
        """One has ended; gives the next, which has entered."""
        line = self._lines.get(host)
        if line:
            token = line.take()
            if not line:
                del self._lines[host]
            return token
        self._inside[host] -= 1
        if not self._inside[host]:
            del self._inside[host]
        return None

    def give_up(self, host: str, party: Hashable, token: int) -> None:
        """This one does not wait any longer."""
        line = self._lines.get(host)
        if line is not None and line.remove(party, token) and not line:
            del self._lines[host]

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
            assert line  # noqa: S101 - for tests and simulation
            assert self._inside[host] == AT_ONCE  # noqa: S101
            line.check()
        assert all(0 < inside <= AT_ONCE for inside in self._inside.values())  # noqa: S101
