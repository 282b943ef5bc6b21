"""The threads that write an exchange's log: the loop never waits for the disk.

One thread syncs what is written, and the other one writes what comes meanwhile; both do either, so
that a group that comes alone is written and synced without a change of threads. What gathers while
the disk works is synced together, so a slow disk gets few syncs and a fast one many, and nothing
ever lingers. A failure is final: what the system has dropped after a failed sync nobody knows, so
nothing more is written.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Generic, TypeVar

from roq.exchange.disk_worker import CLOSE_SECONDS

G = TypeVar("G")

NAME = "log writer"

log = logging.getLogger(__name__)


class GroupCommit(Generic[G]):
    """Writes one group after the other, and settles them.

    Args:
        write: writes a group; called in one of the threads.
        settle: syncs all groups that are written and not settled, in order; likewise.
        call_soon: has a function called in the loop, from any thread.
        call_here: likewise, or in its place while it sleeps: who waits is told without a change of
            threads.
        done: called so when groups are on the disk, in order.
        failed: called in the loop when some are not; nothing more is written.

    Attributes:
        busy: a group is being written, or one has failed: none may be handed over.
    """

    def __init__(
        self,
        write: Callable[[G], None],
        settle: Callable[[list[G]], None],
        call_soon: Callable[[Callable[[], None]], None],
        call_here: Callable[[Callable[[], None]], None],
        done: Callable[[list[G]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.busy = False
        self._write, self._settle = write, settle
        self._call_soon, self._call_here = call_soon, call_here
        self._done, self._failed = done, failed
        self._groups: SimpleQueue[G | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._written: list[G] = []
        self._settled: list[G] = []
        """On the disk, and not told."""
        self._settling = self._over = False
        """A thread settles what is written; one has failed."""
        self._threads = [
            threading.Thread(target=self._run, name=NAME, daemon=True) for _ in range(2)
        ]
        for thread in self._threads:
            thread.start()

    def write(self, group: G) -> None:
        """Have a group written; only while not `busy`. Loop thread only."""
        self.busy = True
        self._groups.put(group)

    def end(self) -> None:
        """Begin to close."""
        for _ in self._threads:
            self._groups.put(None)

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Let what is under way be completed; whether the threads have ended."""
        self.end()
        until = monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        try:
            # One that was handed over as another one failed is not even written.
            while (group := self._groups.get()) is not None and not self._over:
                self._write(group)
                if self._is_to_settle(group):
                    self._settle_all()
                group = None  # who waits for the next one holds no batches
        except OSError as error:
            self._fail(error)
        except Exception as error:
            log.exception("the %s crashed", NAME, extra={"event": "crashed"})
            self._fail(error)

    def _is_to_settle(self, group: G) -> bool:
        """Whether this thread is to settle what is written; else the other one is at it."""
        with self._lock:
            self._written.append(group)
            self.busy = self._over
            settles = not self._settling and not self._over
            self._settling |= settles
            return settles

    def _settle_all(self) -> None:
        more = True
        while more:
            with self._lock:
                groups, self._written = self._written, []
            self._settle(groups)
            with self._lock:
                self._settled += groups
                more = self._settling = bool(self._written)
            # What is done in place of the loop may take its time: the other thread may settle.
            (self._call_soon if more else self._call_here)(self._tell)

    def _tell(self) -> None:
        """In the loop, or in its place: whoever comes first tells all there is, in order."""
        with self._lock:
            groups, self._settled = self._settled, []
        if groups:
            self._done(groups)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            first, self._over = not self._over, True
            self.busy = True
        if first:
            self._call_soon(partial(self._failed, error))
