"""Wakes coroutines from another thread."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from time import monotonic
from typing import TypeAlias

from roq.model import wait_seconds

Armed: TypeAlias = asyncio.Future[None]
"""What one coroutine waits for."""


class Bell:
    """Coroutines of one event loop wait, any thread rings; made in the loop's own thread.

    What is waited for is looked at once more between `arm` and `wait`, so that no ring is missed.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._armed: set[Armed] = set()

    def arm(self) -> Armed:
        """From here on a ring ends a `wait` for what this gives; `disarm` it."""
        armed = self._loop.create_future()
        self._armed.add(armed)
        return armed

    def disarm(self, armed: Armed) -> None:
        """Nobody waits for this any more."""
        self._armed.discard(armed)

    async def wait(self, armed: Armed, deadline: float = math.inf) -> None:
        """Wait for a ring since `arm`, or until `deadline` on the monotonic clock."""
        if deadline == math.inf:
            await armed
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline - monotonic())):
                await armed

    def ring(self) -> None:
        """Wake all that wait; from any thread."""
        if self._armed:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                for armed in tuple(self._armed):
                    self._loop.call_soon_threadsafe(_finish, armed)


def _finish(armed: Armed) -> None:
    if not armed.done():
        armed.set_result(None)


def deadline_in(timeout: float | None) -> float:
    """The time on the monotonic clock in so many seconds; None: never.

    Raises:
        InvalidRequest: that is no number.
    """
    return math.inf if timeout is None else monotonic() + wait_seconds(timeout)
