"""Single keys from the terminal, and what they mean to `roq top`.

browsing = Browsing("orders")
browsing.press("n", ["orders", "prices"])       # → shows prices
"""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from threading import Event
from typing import Final

HINT: Final = "q quit   ? help   → or n next queue   ← or p previous   a all queues"
HELP: Final = (
    ("q, Ctrl-C", "quit"),
    ("→, n, Tab", "the next queue; after the last one: all queues"),
    ("←, p", "the queue before"),
    ("a, Esc", "all queues, a line for each"),
    ("?, h", "this help; any key closes it"),
)
_READ_BYTES: Final = 64
_NEXT: Final = frozenset({"n", "\t", "\x1b[C", "\x1bOC"})
_BEFORE: Final = frozenset({"p", "\x1b[Z", "\x1b[D", "\x1bOD"})
_ALL: Final = frozenset({"a", "\x1b"})


class Press(Enum):
    """What is to be done after a key."""

    NOTHING = "nothing"
    DRAW = "draw"
    QUIT = "quit"


class Browsing:
    """Which queue is looked at, or all; and whether the help is shown.

    Attributes:
        queue: its name; None: all.
        helping: the help is shown in the place of the queues.
    """

    def __init__(self, queue: str | None) -> None:
        self.queue = queue
        self.helping = False

    def press(self, key: str, names: Sequence[str]) -> Press:
        """A key was pressed.

        Args:
            key: what the terminal has sent for it.
            names: of the queues that there are, in order.
        """
        if key in {"q", "Q"}:
            return Press.QUIT
        if self.helping:
            self.helping = False
            return Press.DRAW
        places: list[str | None] = [None, *names]
        here = places.index(self.queue) if self.queue in places else 0
        if key in {"?", "h"}:
            self.helping = True
        elif key in _NEXT:
            self.queue = places[(here + 1) % len(places)]
        elif key in _BEFORE:
            self.queue = places[here - 1]
        elif key in _ALL:
            self.queue = None
        else:
            return Press.NOTHING
        return Press.DRAW


class Keys:
    """Waits for keys; without a terminal at standard input just waits."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._pause = Event()

    @property
    def there(self) -> bool:
        """Whether any key can be pressed."""
        return self._fd is not None

    def wait(self, seconds: float) -> str:
        """The key that is pressed within so many seconds; empty if none is."""
        if self._fd is None:
            self._pause.wait(seconds)
            return ""
        if not select.select([self._fd], [], [], seconds)[0]:
            return ""
        data = os.read(self._fd, _READ_BYTES)
        if not data:  # the terminal is gone
            self._fd = None
        text = data.decode(errors="ignore")
        # One key may be several characters; of several keys the first one counts.
        return text if text.startswith("\x1b") else text[:1]


@contextmanager
def pressed() -> Iterator[Keys]:
    """Keys one by one for as long as the block runs; Ctrl-C stays what it is."""
    try:
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
    except (AttributeError, OSError, ValueError, termios.error):
        yield Keys(None)
        return
    try:
        tty.setcbreak(fd)
        yield Keys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
