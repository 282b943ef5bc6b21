"""The thread that writes an exchange's log: the loop never waits for the disk.

One group at a time. What gathers while the disk works is the next group, so a slow disk gets few
large groups and a fast one many small ones, and nothing ever lingers. A failure is final: what the
system has dropped after a failed sync nobody knows, so nothing more is written.
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


class LogWriter(Generic[G]):
    """Performs one group after the other.

    Args:
        perform: writes a group and syncs it, however long that takes; called in the thread.
        call_soon: has a function called in the loop, from any thread.
        done: called in the loop when a group is on the disk.
        failed: called in the loop when one is not; nothing more is written.
        name: of the thread.

    Attributes:
        busy: a group is being written, or one has failed: none may be handed over.
    """

    def __init__(
        self,
        perform: Callable[[G], None],
        call_soon: Callable[[Callable[[], None]], None],
        done: Callable[[G], None],
        failed: Callable[[Exception], None],
        name: str = "log writer",
    ) -> None:
        self.busy = False
        self._perform = perform
        self._call_soon = call_soon
        self._done = done
        self._failed = failed
        self._groups: SimpleQueue[G | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def write(self, group: G) -> None:
        """Have a group written; only while not `busy`. Loop thread only."""
        self.busy = True
        self._groups.put(group)

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Let the group that is being written be completed; whether the thread has ended."""
        self._groups.put(None)
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
