"""A program beside a measurement, until its standard input ends: `burn` or `idle`.

One that burns takes as much of one core as it gets.

One that idles is a server that has nothing to do. It stands for servers of the JVM and of Erlang,
and is none: a program in Python with a crowd of threads, each of which wakes up now and then by its
own timer, looks around and sleeps again.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Final

BURN: Final = "burn"
IDLE: Final = "idle"
PERIODS_SECONDS: Final = (0.01, 0.02, 0.05, 0.05, *[0.1] * 8, *[0.5] * 12, *[1.0] * 16)
"""One thread each: some 300 wake-ups a second, as a JVM with its periodic task each 50 ms, the
threads of its pools and its timers has at most. What runs in between is short."""
STACK_BYTES: Final = 256 * 1024


def main(what: str) -> None:
    """Burn or idle."""
    {BURN: burn, IDLE: idle}[what]()


def burn() -> None:
    """Burn."""
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    print("ready", flush=True)
    while True:
        sum(range(10_000))


def idle() -> None:
    """Idle."""
    threading.stack_size(STACK_BYTES)
    never = threading.Event()
    for period in PERIODS_SECONDS:
        threading.Thread(target=_wake_up_now_and_then, args=(never, period), daemon=True).start()
    print("ready", flush=True)
    _end_with_the_input()


def _wake_up_now_and_then(never: threading.Event, period: float) -> None:
    while not never.wait(period):
        sum(range(200))


def _end_with_the_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
