"""Reads what exchanges tell of requests, in the threads that wait for that.

It comes over the connections of the publisher that has made the requests, with its
acknowledgements, so who waits for an end reads both, and wakes no other thread
(`roq.client.publish.shell` has the lock).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from time import monotonic
from typing import Final

from roq.client.io.engine import Engine
from roq.client.io.lock import ClientLock
from roq.client.publish.shell import PublisherShell
from roq.errors import Closed
from roq.model import LogId

SLICE_SECONDS: Final = 1.0
"""So long a thread waits at once at most."""
AWAY_SECONDS: Final = 0.01
"""Who waits again and again is the only one to read, if it comes back within so long: both would be
woken else, and be in each other's way."""
TURN_SECONDS: Final = 0.1
"""And for another one that takes something in."""


class OutcomeReader:
    """The threads that wait for the requests of one publisher.

    Args:
        engine: the client's threads.
        shell: the publisher's.
        guard: the lock of what waits.
        told: what comes is added here, with the log of its exchange.
        has_news: whether something has come that was not taken in.
        has_word: whether it is more than that requests are accepted: for that alone nobody is to
            look who waits for an end.
        take_in: takes it in; called with the lock.
        on_news: called when something has come.
        on_cut: called in the I/O thread when something of it may be lost.

    Attributes:
        threads: those that wait. One that is interrupted here may stay among them until it waits
            again.
    """

    def __init__(
        self, engine: Engine, shell: PublisherShell, guard: ClientLock,
        told: deque[tuple[LogId, list[bytes]]], *, has_news: Callable[[], bool],
        has_word: Callable[[], bool], take_in: Callable[[], bool], on_news: Callable[[], None],
        on_cut: Callable[[], None],
    ) -> None:  # fmt: skip
        self.threads: set[int] = set()
        shell.away_seconds = AWAY_SECONDS
        self._shell = shell
        self._guard = guard
        self._has_news = has_news
        self._has_word = has_word
        self._take_in = take_in
        self._on_news = on_news
        links = shell.machine.links

        def come(number: int, parts: list[bytes]) -> None:
            for link in links.all:
                if link.number == number:
                    told.append((link.log, parts))
            on_news()

        def cut() -> None:
            with suppress(Closed):
                engine.call_soon(on_cut)

        connections = shell._connections  # noqa: SLF001 - made for this
        connections.on_outcomes, connections.on_cut = come, cut
        connections.holds = False

    def wait_for(self, condition: Callable[[], bool], deadline: float) -> bool | None:
        """Wait until this is so; False: it was not by then, on the monotonic clock; None: the
        publisher has ended, and nothing comes this way any more."""
        has_news, has_word, shell = self._has_news, self._has_word, self._shell

        def look() -> bool:
            return has_word() or condition()

        try:
            self.threads.add(get_ident())
            while not condition():
                remaining = deadline - monotonic()
                turn = max(0.0, min(remaining, TURN_SECONDS))
                if has_news() and self._guard.within(turn, self._take_in) and remaining > 0:
                    continue
                if remaining <= 0:
                    return condition()
                if shell.failure is not None:
                    return None
                shell.wait_for(look, min(remaining, SLICE_SECONDS))
        finally:
            self.threads.discard(get_ident())
            if has_news():
                self._on_news()  # somebody else has to look
        return True

    def why(self) -> str:
        """Why requests are not accepted, in a sentence."""
        return self._shell.why

    def wake(self) -> None:
        """Something has happened elsewhere."""
        if self.threads:
            self._shell.wake()
