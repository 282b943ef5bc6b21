"""Calls what users want to be called, in a thread of its own, so that they may take their time."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

NOTICES_MAX: Final = 1_000
"""Calls that wait for a slow one; beyond it the oldest are dropped."""
CLOSE_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


class Notices:
    """One thread, begun with the first call. `post` and `close` may come from any thread."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque(maxlen=NOTICES_MAX)
        self._wake = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None
        self._closed = False

    def post(self, call: Callable[[], None]) -> None:
        """Have this called soon; after `close` it is not."""
        with self._wake:
            if self._closed:
                return
            if len(self._calls) == NOTICES_MAX:
                log.warning(
                    "a callback is too slow: the oldest of %d calls is left out", NOTICES_MAX
                )
            self._calls.append(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="roq-notices", daemon=True)
                self._thread.start()
            self._wake.notify()

    def close(self) -> None:
        """Make the calls that are left, and end; does not wait for long."""
        with self._wake:
            self._closed = True
            self._wake.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._calls and not self._closed:
                    self._wake.wait()
                if not self._calls:
                    return
                call = self._calls.popleft()
            try:
                call()
            except Exception:
                log.exception("a callback has raised; it will be called again")
