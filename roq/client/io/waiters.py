"""Who waits for a publisher: threads, each with a bell, and event loops, each with a callback.

Everything here is done with the publisher's lock held, but for the waiting itself.
"""

from __future__ import annotations

import math
import os
import select
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress


class Visit:
    """A thread's stay. A raising signal handler (Ctrl-C) may end it before it can leave."""

    __slots__ = ("__weakref__",)


class Waiters:
    """Those who wait now.

    Attributes:
        threads: the bell of each thread that waits, by its visit; empty: none waits.
        loops: whether any event loop does.
    """

    def __init__(self) -> None:
        self.threads: dict[weakref.ref[Visit], int] = {}
        self.loops = False
        self._spare: list[int] = []
        self._callbacks: list[Callable[[], None]] = []

    def enter(self, visit: Visit) -> int:
        """A thread begins to wait; its bell. It waits until `leave`, or until its visit is gone."""
        bell = self._spare.pop() if self._spare else os.eventfd(0, os.EFD_NONBLOCK)
        self.threads[weakref.ref(visit, self._leave)] = bell
        return bell

    def leave(self, visit: Visit) -> None:
        """The thread waits no more; harmless if `enter` was interrupted by a signal handler."""
        self._leave(weakref.ref(visit))

    def _leave(self, visit: weakref.ref[Visit]) -> None:
        bell = self.threads.pop(visit, None)
        if bell is not None:
            self._spare.append(bell)

    def call(self, wake: Callable[[], None]) -> None:
        """Call this once, at the next `ring`; it must not block."""
        self._callbacks.append(wake)
        self.loops = True

    def ring(self, but: int = -1) -> None:
        """Something has changed that may be worth another look.

        Args:
            but: the bell of who says so, and looks anyway.
        """
        for bell in list(self.threads.values()):
            if bell != but:
                os.eventfd_write(bell, 1)
        if self.loops:
            callbacks, self._callbacks = self._callbacks, []
            self.loops = False
            for callback in callbacks:
                callback()

    def forget(self) -> None:
        """No event loop is called any more."""
        self._callbacks.clear()
        self.loops = False

    def close(self) -> None:
        """Give back the bells that nobody holds."""
        while self._spare:
            os.close(self._spare.pop())


def silence(bell: int) -> None:
    """The bell was heard."""
    with suppress(BlockingIOError):
        os.eventfd_read(bell)


def sleep(fds: Sequence[int], seconds: float, bell: int = -1) -> None:
    """Wait until one of the descriptors is readable; a connection may be closed meanwhile.

    Args:
        bell: one of them, which is silent again when it has rung.
    """
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    if any(fd == bell for fd, _ in poll.poll(math.ceil(seconds * 1000))):
        silence(bell)
