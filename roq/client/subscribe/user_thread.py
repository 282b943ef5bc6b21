"""Whether the user's thread reads by itself, and what wakes it when it sleeps.

The user's thread *comes* whenever it has nothing left, and *waits* when there is nothing either.
The I/O thread *looks* now and then where it is, and reads in its place when it stays away.
"""

from __future__ import annotations

import math
import os
import select
from collections.abc import Iterable
from enum import Enum

from roq.errors import Unavailable
from roq.runtime import descriptors


class Presence(Enum):
    """What a look has found."""

    BUSY = "busy"
    """It has come since the last look: look again soon."""
    WAITING = "waiting"
    """It sleeps on the sockets, and will come again before it goes."""
    AWAY = "away"


class UserThread:
    """The user's thread, as the I/O thread sees it. All but `sleep` with the feed's lock held.

    Attributes:
        waiting: set before `sleep`, with the lock held; reset after it.
    """

    def __init__(self) -> None:
        self.waiting = False
        try:
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"no subscriber can be made: {descriptors.reason(error)}") from None
        self._visits = 0
        self._seen = 0
        self._closed = False
        self._rung = False

    def come(self) -> None:
        """The user's thread is here."""
        self._visits += 1

    def look(self) -> Presence:
        """Where the user's thread is."""
        seen, self._seen = self._seen, self._visits
        if seen != self._visits:
            return Presence.BUSY
        return Presence.WAITING if self.waiting else Presence.AWAY

    def sleep(self, fds: Iterable[int], seconds: float) -> tuple[int, ...]:
        """Wait for a ring or for one of the descriptors, which may be closed meanwhile.

        Returns:
            The descriptors that have something.
        """
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        for fd in fds:
            poll.register(fd, select.POLLIN)
        ready = tuple(fd for fd, _ in poll.poll(math.ceil(seconds * 1_000)))
        self._rung |= self._bell in ready
        return ready

    def ring(self) -> None:
        """Wake the user's thread if it sleeps."""
        if self.waiting:
            os.eventfd_write(self._bell, 1)

    def hush(self) -> None:
        """A ring that was heard is over; after `sleep`."""
        if self._closed:
            self._release()
        elif self._rung:
            self._rung = False
            os.eventfd_read(self._bell)

    def close(self) -> None:
        """Wake it for the last time."""
        self._closed = True
        self.ring()
        self._release()

    def _release(self) -> None:
        if not self.waiting and self._bell >= 0:
            os.close(self._bell)
            self._bell = -1
