"""Ends one part of a local cluster, as `systemctl restart` does first: SIGTERM, and waits for it.

    python end_part.py FOLDER roq.hcm host-127.0.0.1.toml

The part is the one process whose command line has all of these words.
"""

from __future__ import annotations

import sys
from typing import Final

import psutil

PATIENCE_SECONDS: Final = 90.0


def main(words: list[str]) -> int:
    """End it; gives the exit code."""
    found = [each for each in psutil.process_iter() if _has(each, words)]
    if len(found) != 1:
        return 1
    found[0].terminate()
    found[0].wait(PATIENCE_SECONDS)
    return 0


def _has(process: psutil.Process, words: list[str]) -> bool:
    try:
        line = process.cmdline()
    except psutil.Error:
        return False
    mine = any(__file__ in each for each in line)
    return not mine and all(any(word in each for each in line) for word in words)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
