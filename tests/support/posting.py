"""A loop for tests: runs what was posted, until a condition holds."""

import queue
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

PATIENCE_SECONDS = 60.0


class Loop:
    """Stands for the reactor of a daemon; `post` may be called from any thread."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.post = self._calls.put

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Run calls until the condition holds; fails with `what` when it does not in time."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            try:
                self._calls.get(timeout=max(0.0, deadline - time.monotonic()))()
            except queue.Empty:
                raise AssertionError(f"waited {PATIENCE_SECONDS:.0f} s in vain: {what}") from None

    def drain(self) -> int:
        """Run what is there now; gives how many calls that were."""
        count = 0
        while True:
            try:
                self._calls.get_nowait()()
            except queue.Empty:
                return count
            count += 1

    def ask(self, request: Callable[[Callable[[Result], None]], None]) -> Result:
        """Give the result of one request that takes a `done` callback."""
        results: list[Result] = []
        request(results.append)
        self.until(lambda: bool(results), "an answer")
        assert len(results) == 1
        return results[0]
