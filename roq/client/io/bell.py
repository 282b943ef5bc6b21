"""Wakes a coroutine from another thread."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from time import monotonic

from roq.model import wait_seconds


class Bell:
    """One coroutine waits, any thread rings; made in the event loop's own thread.

    What is waited for is looked at once more between `arm` and `wait`, so that no ring is missed.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] | None = None

    def arm(self) -> None:
        """From here on a ring ends the next `wait`."""
        self._future = self._loop.create_future()

    def disarm(self) -> None:
        """There is nothing to wait for; rings cost next to nothing again."""
        self._future = None

    async def wait(self, deadline: float = math.inf) -> None:
        """Wait for a ring since `arm`, or until `deadline` on the monotonic clock."""
        future = self._future
        if future is None:
            return
        try:
            if deadline == math.inf:
                await future
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, deadline - monotonic())):
                    await future
        finally:
            self._future = None

    def ring(self) -> None:
        """Wake the coroutine that waits; from any thread."""
        future = self._future
        if future is not None:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(_finish, future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def deadline_in(timeout: float | None) -> float:
    """The time on the monotonic clock in so many seconds; None: never.

    Raises:
        InvalidRequest: that is no number.
    """
    return math.inf if timeout is None else monotonic() + wait_seconds(timeout)
