"""Signals: those that end a daemon are calls in its loop, and an event that a handler may set."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Callable
from types import FrameType

from roq.runtime.reactor import Reactor

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Also SIGHUP (the terminal was closed), unless it is ignored as under nohup."""
FLIGHT_SIGNAL = signal.SIGUSR2
"""What was decided last shall be written down."""


def on_stop(
    reactor: Reactor, stop: Callable[[], None], gently: Callable[[], None] | None = None
) -> None:
    """Call `stop` in the loop at the first of the signals; at the second leave the loop at once.

    Main thread only.

    Args:
        reactor: the loop.
        stop: begins to stop.
        gently: called instead if the first signal is SIGTERM; `stop` comes with the second then.
    """
    steps = [stop, reactor.stop]

    def arrived(number: int) -> None:
        nonlocal gently
        if gently is not None and number == signal.SIGTERM:
            gently()
        else:
            steps[0]()
            del steps[:-1]
        gently = None

    def handler(number: int, _frame: FrameType | None) -> None:
        reactor.call_soon(lambda: arrived(number))

    for number in STOP_SIGNALS:
        signal.signal(number, handler)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handler)
    # The poll of libzmq returns on EINTR into Python, where the handler runs; pyzmq then polls
    # again with the time that was left. The pipe makes it return, whichever thread took the signal.
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    reactor.add(read, lambda: _drain(read))


def on_flight_wanted(reactor: Reactor, save: Callable[[], None]) -> None:
    """Call `save` in the loop at each `FLIGHT_SIGNAL`. Main thread only, after `on_stop`."""
    signal.signal(FLIGHT_SIGNAL, lambda _number, _frame: reactor.call_soon(save))


def _drain(descriptor: int) -> None:
    try:
        os.read(descriptor, 4096)
    except BlockingIOError:
        return


class SignalEvent:
    """As a `threading.Event`, which a signal's handler must not set.

    A handler runs between any two steps of the main thread, so also while that waits for the event,
    or sets it, and holds its lock: then the handler waits for that lock for ever. A
    `queue.SimpleQueue` has no such moment, as the documentation of Python says.

    Any number of threads may wait if nobody clears it.
    """

    def __init__(self) -> None:
        self._set = False
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        """Whether `set` was called since the last `clear`."""
        return self._set

    def set(self) -> None:
        """End all waits, and those that begin before `clear`."""
        self._set = True
        if self._wakes.empty():
            self._wakes.put(None)

    def clear(self) -> None:
        """From here on `wait` waits until it is set again.

        For one waiting thread: of several, some may not see that it was set before.
        """
        self._set = False

    def wait(self, seconds: float | None = None) -> bool:
        """Return when it is set, or after so many seconds (at once if there are none left); None:
        never before.

        Returns:
            Whether it is set.
        """
        bound = None if seconds is None else max(0.0, seconds)
        while not self.is_set():
            try:
                self._wakes.get(timeout=bound)
            except queue.Empty:
                break
            if self.is_set():
                self._wakes.put(None)  # for the next thread that waits
        return self.is_set()

    def take(self, seconds: float | None = None) -> bool:
        """`wait`, and `clear` if it was set: for the only thread that waits."""
        was_set = self.wait(seconds)
        if was_set:
            self.clear()
        return was_set
