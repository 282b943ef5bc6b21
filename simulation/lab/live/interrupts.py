"""Ctrl-C and SIGTERM as a request, looked at where it can be followed, so that nothing is left
half begun: a Spark session or a cluster that is just starting is there before it is ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, Generic, TypeVar

from roq.runtime.signals import SignalEvent

T = TypeVar("T")
LOOK_SECONDS: Final = 0.05
WATCH_SECONDS: Final = 0.2


class Interrupted(Exception):
    """The run is to end."""


@contextmanager
def interrupts(stop: SignalEvent, told: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM set `stop` instead of raising.

    In other threads than the main one signals are left alone, for Python does not allow it.

    Args:
        stop: see above; others may set it as well.
        told: called once when it is set, in a thread of its own: a signal handler must not print.
    """

    def asked(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if stop.wait(WATCH_SECONDS):
                told()
                return

    watcher = threading.Thread(target=watch, name="interrupts", daemon=True)
    watcher.start()
    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if main else ()
    before = {each: signal.signal(each, asked) for each in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        over.set()
        watcher.join()


def check(stop: SignalEvent) -> None:
    """Go on only if the run is not to end.

    Raises:
        Interrupted: it is.
    """
    if stop.is_set():
        raise Interrupted


class Aside(Generic[T]):
    """Work in a thread, while the main thread stays able to hear signals.

    Attributes:
        error: what the work has raised.
    """

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._results: list[T] = []
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it is over, one way or another."""
        return not self._thread.is_alive()

    def join(self, seconds: float) -> bool:
        """Wait for its end; gives whether it has come."""
        self._thread.join(seconds)
        return self.done

    def wait(self, stop: SignalEvent | None = None, hurry: Callable[[], object] = int) -> T:
        """Until it is done; gives what has come of it.

        Args:
            stop: as soon as it is set, `hurry` is called, once.
            hurry: has the work end soon.

        Raises:
            BaseException: what the work has raised.
        """
        hurried = stop is None
        while not self.join(LOOK_SECONDS):
            if not hurried and stop is not None and stop.is_set():
                hurried = True
                hurry()
        if self.error is not None:
            raise self.error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self.error = error
