"""Notices that something was committed, so that an idle instance looks for jobs at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import exc

from roq.errors import Unavailable
from roq.jobs.database import CHANNEL, JobDatabase

LOOK_SECONDS: Final = 0.01
"""SQLite tells nobody, but says for a few microseconds' work whether anybody has committed."""
LISTEN_SECONDS: Final = 0.5
AWAY_SECONDS: Final = 1.0


class ChangeWatch:
    """A thread that calls `changed` after commits of any process.

    An instance looks by itself twice a second, too: a change that is missed is late, not lost.

    Args:
        database: where jobs are.
        changed: called in the thread.
    """

    def __init__(self, database: JobDatabase, changed: Callable[[], None]) -> None:
        self._database = database
        self._changed = changed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roq-jobs-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; one that a database does not answer ends later."""
        self._stop.set()
        self._thread.join(2 * LISTEN_SECONDS)

    def _run(self) -> None:
        watch = self._watch_file if self._database.sqlite else self._listen
        while not self._stop.is_set():
            # The instance itself tells when its database is away.
            with contextlib.suppress(Unavailable, exc.SQLAlchemyError, *self._database.failures):
                watch()
            self._stop.wait(AWAY_SECONDS)

    def _watch_file(self) -> None:
        connection = self._database.engine.raw_connection()
        try:
            cursor = connection.cursor()
            before: object = None
            while not self._stop.wait(LOOK_SECONDS):
                now = cursor.execute("PRAGMA data_version").fetchone()
                if now != before:
                    before = now
                    self._changed()
        finally:
            connection.close()

    def _listen(self) -> None:
        held = self._database.engine.raw_connection()
        try:
            driver: Any = held.driver_connection
            driver.rollback()
            driver.autocommit = True
            driver.execute(f"LISTEN {CHANNEL}")
            self._changed()
            while not self._stop.is_set():
                for _ in driver.notifies(timeout=LISTEN_SECONDS, stop_after=1):
                    self._changed()
        finally:
            held.invalidate()
            held.close()


class Ticker:
    """A thread that calls a function again and again, whatever others wait for.

    Args:
        seconds: between two calls.
        call: the function; it is to raise nothing, and to wait for nothing.
    """

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self._seconds = seconds
        self._call = call
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roq-jobs-ticker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            self._call()
