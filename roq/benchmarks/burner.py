"""A program that takes as much of one core as it gets, until its standard input ends."""

from __future__ import annotations

import os
import sys
import threading


def main() -> None:
    """Burn."""
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    print("ready", flush=True)
    while True:
        sum(range(10_000))


def _end_with_the_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
