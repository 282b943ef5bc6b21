"""Waiting for something with a deadline."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Final

STEP_SECONDS: Final = 0.02


def rest(seconds: float) -> None:
    """Do nothing for so long."""
    until(lambda: False, seconds, seconds)


def until(condition: Callable[[], bool], seconds: float, step: float = STEP_SECONDS) -> bool:
    """Ask again and again until it holds; False if it still does not after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        select.select([], [], [], min(step, left))
    return True
