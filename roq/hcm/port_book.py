"""Which ports of this host must not be given out, because old peers may still go there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

QUARANTINE_SECONDS: Final = 600.0
"""A port is not used again for so long: old peers reconnect to the process that has it."""
QUARANTINE_MAX: Final = 8_192
"""Ports remembered; far more than the ranges hold."""


class PortBook:
    """Ports in use by children, and ports that were in use a short while ago.

    Children choose for themselves, by binding; this book only says what to keep away from.
    """

    def __init__(self) -> None:
        self._used: dict[str, frozenset[int]] = {}
        self._left: deque[tuple[float, int]] = deque(maxlen=QUARANTINE_MAX)

    def took(self, child: str, ports: Iterable[int]) -> bool:
        """A child tells where it listens; whether that is new."""
        before = self._used.get(child, frozenset())
        self._used[child] = before | frozenset(ports)
        return self._used[child] != before

    def left(self, child: str, now: float) -> None:
        """The process of a child has ended."""
        for port in sorted(self._used.pop(child, ())):
            self._left.append((now + QUARANTINE_SECONDS, port))

    def rest(self, ports: Iterable[int], now: float) -> None:
        """These must not be used for a while, by any process."""
        self._left.extend((now + QUARANTINE_SECONDS, port) for port in ports)

    def avoid(self, now: float) -> list[int]:
        """Ports that a child that starts now must not take."""
        while self._left and self._left[0][0] <= now:
            self._left.popleft()
        used = {port for ports in self._used.values() for port in ports}
        return sorted(used.union(port for _, port in self._left))


def port_of(endpoint: str) -> int | None:
    """The port of `tcp://host:port`, None if there is none."""
    _, _, digits = endpoint.rpartition(":")
    if digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 65_536:
        return int(digits)
    return None
