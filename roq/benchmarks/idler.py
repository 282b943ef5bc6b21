"""A server that has nothing to do, until its standard input ends.

It stands for servers of the JVM and of Erlang, and is none: a program in Python with a crowd of
threads, each of which wakes up now and then by its own timer, looks around and sleeps again.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Final

PERIODS_SECONDS: Final = (0.01, 0.02, 0.05, 0.05, *[0.1] * 8, *[0.5] * 12, *[1.0] * 16)
"""One thread each: some 300 wake-ups a second, as a JVM with its periodic task each 50 ms, the
threads of its pools and its timers has at most. What runs in between is short."""
STACK_BYTES: Final = 256 * 1024


def main() -> None:
    """Idle."""
    threading.stack_size(STACK_BYTES)
    never = threading.Event()
    for period in PERIODS_SECONDS:
        threading.Thread(target=_wake_up_now_and_then, args=(never, period), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.buffer.read()
    os._exit(0)


def _wake_up_now_and_then(never: threading.Event, period: float) -> None:
    while not never.wait(period):
        sum(range(200))


if __name__ == "__main__":
    main()
