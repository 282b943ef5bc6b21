"""What a program has left open when it ends: flushed for a moment, and told.

A program that is over without having closed its publishers gets its messages delivered, for two
seconds in all. What nobody has acknowledged by then is said on standard error, and Python's
`ResourceWarning` (`python -X dev` shows it) names what was left open. A forked child has nothing to
do with what its parent has opened.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
import weakref
from collections import Counter
from time import monotonic
from typing import Final, Protocol

EXIT_SECONDS: Final = 2.0
"""For all publishers together."""


class Leftover(Protocol):
    """What is to be closed before the program ends."""

    @property
    def _left_open(self) -> bool:
        """Whether it is still to be closed."""
        ...

    def _part(self, seconds: float) -> tuple[str, int]:
        """The program ends: do what can be done in so long.

        Returns:
            The name of the queue, and how many messages were not acknowledged.
        """
        ...


_open: dict[int, weakref.ref[Leftover]] = {}
_worker = 0
"""Process id of a worker of `multiprocessing` that has arranged for its end."""


def opened(thing: Leftover) -> None:
    """Look after this when the program ends."""
    key = id(thing)
    _open[key] = weakref.ref(thing, lambda _: _open.pop(key, None))
    _end_of_worker()


def closed(thing: Leftover) -> None:
    """It needs no looking after any more."""
    _open.pop(id(thing), None)


def warn(thing: object) -> None:
    """Tell that this was never closed."""
    warnings.warn(
        f"unclosed {thing!r}: use it in a 'with' block, or close it",
        ResourceWarning,
        stacklevel=2,
        source=thing,
    )


def part() -> None:
    """The program ends."""
    deadline, lost = monotonic() + EXIT_SECONDS, Counter[str]()
    things = [thing for reference in list(_open.values()) if (thing := reference()) is not None]
    left = [thing for thing in things if thing._left_open]  # noqa: SLF001 - made for this
    _open.clear()
    for thing in left:
        try:
            queue, count = thing._part(deadline - monotonic())  # noqa: SLF001
        except (KeyboardInterrupt, SystemExit):  # of a signal handler: no more patience
            deadline = 0.0
            queue, count = thing._part(0.0)  # noqa: SLF001
        lost[queue] += count
    total = lost.total()
    if total and sys.stderr is not None:
        each = ", ".join(f"{queue}: {count:,}" for queue, count in lost.items() if count)
        sys.stderr.write(
            f"roq: {total:,} message{'s' * (total > 1)} not acknowledged when the program ended "
            f"({each}); close() waits for longer\n",
        )
    for thing in left:
        warn(thing)


def _end_of_worker() -> None:
    """Workers of `multiprocessing` end without `atexit`, but have an end of their own."""
    global _worker  # noqa: PLW0603 - of this process
    processes = sys.modules.get("multiprocessing.process")
    if processes is None or _worker == os.getpid() or processes.parent_process() is None:
        return
    from multiprocessing import util  # noqa: PLC0415 - only where it is loaded already

    _worker = os.getpid()
    util.Finalize(None, part, exitpriority=0)


atexit.register(part)
os.register_at_fork(after_in_child=_open.clear)
