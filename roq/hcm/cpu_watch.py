"""Looks twice a second what processor this host gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from roq.hcm.cpu import Sample
from roq.runtime.pressure import Quota, waited_us
from roq.runtime.reactor import Reactor

PERIOD_SECONDS: Final = 0.5
OLD_SECONDS: Final = 0.2
"""Before a child is judged the last look is to be younger than this."""


class CpuWatch:
    """Takes samples.

    Args:
        handle: called with each of them.
    """

    def __init__(self, reactor: Reactor, handle: Callable[[Sample], None]) -> None:
        self._reactor = reactor
        self._handle = handle
        self._quota = Quota()
        self._due = self._taken = 0.0

    def start(self) -> None:
        """Look from now on."""
        self._due = self._reactor.now()
        self._look()

    def sample_if_old(self) -> Iterator[Sample]:
        """One more sample if the last one is some time ago."""
        if self._reactor.now() - self._taken > OLD_SECONDS:
            yield self._sample(0.0)

    def _look(self) -> None:
        now = self._reactor.now()
        late = max(0.0, now - self._due)
        self._due = now + PERIOD_SECONDS
        self._reactor.call_at(self._due, self._look)
        self._handle(self._sample(late))

    def _sample(self, late: float) -> Sample:
        self._taken = self._reactor.now()
        periods, throttled = self._quota.periods() or (None, None)
        return Sample(late=late, waited_us=waited_us(), periods=periods, throttled=throttled)
