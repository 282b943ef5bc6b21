"""Outcomes that have arrived, until their exchanges are told so: once of many, as to be told costs
an exchange about as much of one as of a hundred."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from roq.client.io.engine import Engine
from roq.client.io.queue_connections import AskExchange
from roq.client.request.machine import RequesterMachine
from roq.client.request.pending import Requested
from roq.errors import Closed
from roq.runtime.interfaces import Timer

CONFIRM_SECONDS: Final = 0.025
"""So long a retrieval waits for others at most."""
CONFIRM_MAX: Final = 1_000
"""So many wait at most."""


class Confirmations:
    """Those of one collector.

    Args:
        engine: the client's threads.
        machine: what decides; `words` and `press` are called with its lock.
        on_due: called in the I/O thread, when exchanges are to be told.
    """

    def __init__(
        self, engine: Engine, machine: RequesterMachine, on_due: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._machine = machine
        self._on_due = on_due
        self._arrived: deque[Requested] = deque()
        self._due = False
        """`tell` is about to be called."""
        self._timer = Timer(0.0, self.tell)

    def add(self, requested: Requested) -> None:
        """This has arrived; any thread."""
        self._arrived.append(requested)
        self.soon()

    def soon(self) -> None:
        """Have exchanges told in a moment; any thread."""
        if not self._due:
            self._due = True
            with suppress(Closed):  # there is nobody any more who could be told
                self._engine.call_soon(self._begin)

    @property
    def many(self) -> bool:
        """Whether so many have arrived that they do not wait; any thread."""
        return len(self._arrived) >= CONFIRM_MAX

    @property
    def press(self) -> bool:
        """Whether there is something that does not wait; with the machine's lock."""
        return self.many or self._machine.talks

    def words(self) -> list[AskExchange]:
        """What there is to be said to exchanges, with what has arrived."""
        arrived = self._arrived
        while arrived:
            requested = arrived.popleft()
            for place in requested.places():
                self._machine.fetched(requested.endpoint.service, *place)
        return self._machine.say()

    def tell(self) -> None:
        """Have exchanges told now; I/O thread."""
        self._timer.cancel()  # else it would tell of what has arrived just before it
        self._due = False
        self._on_due()

    def _begin(self) -> None:
        self._timer.cancel()
        self._timer = self._engine.reactor.call_later(CONFIRM_SECONDS, self.tell)
