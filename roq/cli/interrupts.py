"""Ends that are no errors: Ctrl-C, SIGTERM, an output that has no reader or no room any more.

It is loaded before anything else (`roq.cli.main`), so it imports the standard library alone.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


class dies_by_interrupt:  # noqa: N801 - a context manager; contextlib would have to be loaded first
    """In the block, Ctrl-C ends the process at once, and without a word.

    While modules are being loaded there is nothing to be closed in order.
    """

    def __enter__(self) -> None:
        self._ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._ours:  # neither ignored (in the background of a shell) nor handled
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


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


# Standard output that may be full or closed: an error of it is told from all others.


class Output(io.FileIO):
    """What standard output writes to.

    Attributes:
        failure: why it could not be written; None as long as it could.
    """

    failure: OSError | None = None

    def write(self, data: Buffer, /) -> int | None:  # type: ignore[override] # typeshed: int
        """Write, and remember what went wrong."""
        try:
            return super().write(data)
        except OSError as error:
            self.failure = error
            raise


def watched() -> Output:
    """Make `sys.stdout` remember why it could not be written; gives what remembers.

    One that was closed when the process began is there again, and cannot be written: else Python
    would have none, and commands would be silent or fail in ways of their own.
    """
    before = sys.stdout
    if before is None:
        output = Output(os.open(os.devnull, os.O_RDONLY), "w")
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(output), encoding="utf-8")
        return output
    output = Output(before.fileno(), "w", closefd=False)
    # A user who wants no buffer (`python -u`) gets lines at once.
    unbuffered = isinstance(before, io.TextIOWrapper) and before.write_through
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=unbuffered or before.isatty(),
    )
    return output
