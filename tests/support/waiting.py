"""Waiting for what is to happen soon; no test in here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from roq.runtime.reactor import Reactor

PATIENCE_SECONDS = 90.0
"""A machine that does other work takes longer for everything."""


def eventually(
    condition: Callable[[], object], what: object = "", seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until a condition holds, and fail if it does not in time.

    Args:
        condition: asked again and again.
        what: is said if it fails.
        seconds: of patience.
    """
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        pause.wait(0.01)


def run_until(reactor: Reactor, condition: Callable[[], object]) -> None:
    """Run a loop until something is so, and fail after twenty seconds; it may be run again."""
    reached = []

    def look() -> None:
        if condition():
            reached.append(True)
            reactor.stop()
        else:
            reactor.call_later(0.01, look)

    late = reactor.call_later(20, reactor.stop)
    look()
    reactor.run()
    late.cancel()
    reactor._stopping = False
    assert reached
