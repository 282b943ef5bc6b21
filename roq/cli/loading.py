"""While modules are being loaded there is nothing to be closed in order: Ctrl-C just ends it."""

from __future__ import annotations

import signal


class dies_by_interrupt:  # noqa: N801 - a context manager; contextlib would have to be loaded first
    """In the block, Ctrl-C ends the process at once, and without a word."""

    def __enter__(self) -> None:
        self._ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._ours:  # neither ignored (in the background of a shell) nor handled
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
