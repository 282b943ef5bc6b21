"""Ends that are no errors: Ctrl-C, SIGTERM, and a reader of our output that has gone."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def ends_quietly() -> Iterator[None]:
    """Leave the block without a word when the user or the reader of our output has had enough.

    SIGTERM is treated like Ctrl-C, so that what the block opened is closed in order.
    """
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        silence_output()
    finally:
        signal.signal(signal.SIGTERM, before)


def silence_output() -> None:
    """Let the interpreter flush standard output into nothing when its reader has gone."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
