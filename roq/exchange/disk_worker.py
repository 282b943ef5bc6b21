"""A thread that reads an exchange's log, or syncs it: the loop never waits for the disk.

One thing at a time. A failure is final: what the system has dropped after a failed sync nobody
knows. What writes the log is a `roq.exchange.group_commit.GroupCommit`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

G = TypeVar("G")

CLOSE_SECONDS: Final = 2.0
"""A disk that hangs holds the end of the process up for so long at most."""

log = logging.getLogger(__name__)


class DiskWorker(Generic[G]):
    """Performs one thing after the other.

    Args:
        perform: reads or syncs, however long that takes; called in the thread.
        call_soon: has a function called in the loop, from any thread.
        done: called in the loop when that is done.
        failed: called in the loop when it has failed; nothing more is done.
        name: of the thread.

    Attributes:
        busy: something is being done, or has failed: nothing may be handed over.
    """

    def __init__(
        self,
        perform: Callable[[G], None],
        call_soon: Callable[[Callable[[], None]], None],
        done: Callable[[G], None],
        failed: Callable[[Exception], None],
        name: str = "log syncer",
    ) -> None:
        self.busy = False
        self._perform = perform
        self._call_soon = call_soon
        self._done = done
        self._failed = failed
        self._groups: SimpleQueue[G | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def begin(self, group: G) -> None:
        """Have it performed; only while not `busy`. Loop thread only."""
        self.busy = True
        self._groups.put(group)

    def end(self) -> None:
        """Begin to close."""
        self._groups.put(None)

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Let what is being done be completed; whether the thread has ended."""
        self.end()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (group := self._groups.get()) is not None:
            try:
                self._perform(group)
            except OSError as error:
                self._tell(error)
                return
            except Exception as error:
                log.exception("the %s crashed", self._thread.name, extra={"event": "crashed"})
                self._tell(error)
                return
            self._call_soon(partial(self._written, group))

    def _tell(self, error: Exception) -> None:
        self._call_soon(partial(self._failed, error))

    def _written(self, group: G) -> None:
        self.busy = False
        self._done(group)
