"""The lock of a publisher or subscriber, and what its own thread gets that wants it twice.

A signal handler, a `__del__` method (the garbage collector runs it anywhere) and a logging handler
may call the client in the middle of the client's own work. A plain lock would wait for itself for
ever, a lock that counts would let them into what is half done: they are refused.

The lock itself is one of the interpreter's: `with` takes and gives it back without a bytecode in
between, so that a signal handler that raises (Ctrl-C) leaves none taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from roq.errors import Reentered

T = TypeVar("T")


class ClientLock:
    """One lock. Calls from outside `check` before they take it.

    Args:
        who: what it guards, such as `the publisher of orders`.

    Attributes:
        lock: take it with `with`, and in no other way.
        held: tells whether this thread is inside.
    """

    __slots__ = ("__weakref__", "held", "lock", "who")

    def __init__(self, who: str) -> None:
        self.who = who
        self.renew()

    def renew(self) -> None:
        """In a forked child: a thread that it does not have may hold the old one."""
        self.lock = threading.RLock()
        self.held: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 - as `Condition` does

    def check(self) -> None:
        """Make sure that this thread is not inside already.

        Raises:
            Reentered: it is.
        """
        if self.held():
            raise Reentered(
                f"called while this thread was inside {self.who}, by a signal handler, a __del__ "
                "method or a logging handler: nothing was done. Let it leave a note (set a flag, "
                "put into a queue.SimpleQueue), and call from the program itself"
            )

    def within(self, seconds: float, look: Callable[[], T]) -> T | None:
        """What `look` gives with the lock; None if that was not to be had in time, or by itself."""
        if self.held():
            return None
        taken = False
        try:
            taken = self.lock.acquire(timeout=seconds)
            return look() if taken else None
        finally:
            # Interrupted between the two halves of the line above, it is taken and not known to be.
            if taken or self.held():
                self.lock.release()
