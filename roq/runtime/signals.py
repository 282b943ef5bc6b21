"""Signals become calls in the loop; nothing is done inside a signal handler."""

from __future__ import annotations

import os
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
