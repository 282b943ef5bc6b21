"""Calls what users want to be called, in a thread of its own, so that they may take their time."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final, TypeVar

from roq.runtime.structured_logs import RateLimited

NOTICES_MAX: Final = 100_000
"""Calls that wait for a slow one; beyond it the oldest are dropped."""
CLOSE_SECONDS: Final = 2.0
LOG_SECONDS: Final = 30.0

log = logging.getLogger(__name__)

Call = Callable[[], object]
T = TypeVar("T")


def nothing() -> None:
    """For calls that nobody misses."""


class Callbacks:
    """One thread, begun with the first call. `post` and `close` may come from any thread.

    They may come from a signal handler in the middle of themselves as well: what they use is made
    for that.

    Args:
        locked: whether this thread holds a lock of the client.
        name: of the thread.

    Attributes:
        failed: calls that have raised.
        dropped: calls that were left out.
    """

    def __init__(
        self, locked: Callable[[], bool] = lambda: False, name: str = "roq-notices"
    ) -> None:
        self.failed = 0
        self.dropped = 0
        self._calls: SimpleQueue[tuple[Call, Call] | None] = SimpleQueue()
        """Each with what is called if it is left out; None: no more of them come."""
        self._locked = locked
        self._name = name
        self._left: deque[Call] = deque()
        """What is left out by who holds a lock."""
        self._leaving = False
        """Whether a thread is at that."""
        self._starting = threading.RLock()
        self._begun = False
        self._thread: threading.Thread | None = None
        self._closed = False
        self._ended = False
        """Nothing of what is posted is called any more."""
        self._limited = RateLimited(log, LOG_SECONDS)

    def post(self, call: Call, left_out: Call = nothing) -> None:
        """Have this called soon; after `close` it is not.

        Args:
            call: is called once, or `left_out` is.
            left_out: called by whoever posts or closes, or in a thread of its own if that one holds
                a lock of the client: what it calls may be the user's.
        """
        if self._closed:
            self._leave_out(left_out)
            return
        self._calls.put((call, left_out))
        if self._calls.qsize() > NOTICES_MAX:
            oldest = None
            with suppress(Empty):
                oldest = self._calls.get_nowait()
            if oldest is not None:
                self.dropped += 1
                self._leave_out(oldest[1])
                self._limited.warning(
                    "slow",
                    monotonic(),
                    "a callback is too slow: the oldest of %d calls is left out",
                    NOTICES_MAX,
                )
        if self._ended:  # closed meanwhile
            self._leave_out_rest()
        elif not self._begun:
            self._begin()

    def close(self) -> None:
        """Make the calls that are left, and end; does not wait for long."""
        self._closed = True
        self._calls.put(None)
        thread = self._thread
        if thread is None:
            self._leave_out_rest()
        elif thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS)

    def _begin(self) -> None:
        with self._starting:
            if self._begun:
                return
            self._begun = True
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # none can begin: the program ends, or has too many
                log.debug("no thread for callbacks: they wait")
            finally:
                self._begun = thread.is_alive()
                self._thread = thread if self._begun else None

    def _run(self) -> None:
        while True:
            entry = self._calls.get()
            if entry is None:
                self._leave_out_rest()
                return
            try:
                self._make(entry[0])
            except BaseException as error:  # noqa: BLE001 - `sys.exit()`, say: others are called
                self._has_raised(error)

    def _make(self, call: Call) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the program's own
            self._has_raised(error)

    def _has_raised(self, error: BaseException) -> None:
        self.failed += 1
        with suppress(Exception):  # of a logging handler
            log.error("a callback has raised", exc_info=error)

    def _leave_out_rest(self) -> None:
        self._ended = True
        with suppress(Empty):
            while True:
                entry = self._calls.get_nowait()
                if entry is not None:
                    self._leave_out(entry[1])

    def _leave_out(self, left_out: Call) -> None:
        if left_out is nothing:
            return
        if not self._locked() or len(self._left) >= NOTICES_MAX:
            self._make(left_out)
            return
        with self._starting:
            self._left.append(left_out)
            if self._leaving:
                return
            thread = threading.Thread(target=self._run_left, name="roq-left-out", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # none can begin
                self._left.pop()
            finally:
                begun = self._leaving = thread.is_alive()
        if not begun:
            self._make(left_out)

    def _run_left(self) -> None:
        while True:
            with self._starting:
                if not self._left:
                    self._leaving = False
                    return
                left_out = self._left.popleft()
            try:
                self._make(left_out)
            except BaseException as raised:  # noqa: BLE001 - as in `_run`
                self._has_raised(raised)


class UserFuture(Future[T]):
    """A future for users: what they want to be called by it ends no thread of the client, and keeps
    no other one from being called, whatever it raises."""

    def add_done_callback(self, fn: Callable[[Future[T]], Any]) -> None:
        """As of any future."""
        asks = threading.current_thread()

        def call(future: Future[T]) -> None:
            try:
                fn(future)
            except Exception:
                raise  # is logged
            except BaseException:
                if threading.current_thread() is asks:  # it is there already: its own matter
                    raise
                log.exception("a callback of a future has raised")

        super().add_done_callback(call)
