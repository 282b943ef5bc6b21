"""Makes in a thread what takes its time; a cancelled task leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def made(make: Callable[[], T], undo: Callable[[T], object]) -> T:
    """What `make` gives, which is called in a thread.

    Args:
        make: may wait; it cannot be interrupted.
        undo: called in a thread with what was made if nobody waits for it any more.
    """
    lock, things, wanted = threading.Lock(), list[T](), True

    def work() -> None:
        thing = make()
        with lock:
            if wanted:
                things.append(thing)
                return
        undo(thing)

    try:
        await asyncio.to_thread(work)
    except asyncio.CancelledError:
        with lock:
            wanted = False
        for thing in things:  # it was made just now
            asyncio.get_running_loop().run_in_executor(None, undo, thing)
        raise
    return things[0]
