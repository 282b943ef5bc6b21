"""What goes wrong around an exchange, as lines in its log: few, however much it is."""

from __future__ import annotations

import logging
from typing import Final

from roq.exchange.counters import Counters
from roq.runtime import descriptors

REPEAT_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


class Troubles:
    """Looks every few seconds at what peers have done and at what is left to serve them with."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._told = counters.abuse()
        self._next = 0.0

    def look(self, now: float) -> None:
        """Write a line if there is something new to tell, and time for it."""
        if now >= self._next:
            self._next = now + REPEAT_SECONDS
            self.tell()

    def tell(self) -> None:
        """The same, whenever it is."""
        abuse = self._counters.abuse()
        risen = {name: n - self._told[name] for name, n in abuse.items() if n > self._told[name]}
        if risen:
            self._told = abuse
            text = ", ".join(f"{count} {name}" for name, count in risen.items())
            log.warning("peers misbehave: %s", text, extra={"event": "abuse"})
        if descriptors.exhausted():
            log.warning("%s", descriptors.EXHAUSTED, extra={"event": "descriptors"})
