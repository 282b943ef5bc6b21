"""`python -m roq.monitor PIPE`: a host manager has started it, and says there what to serve."""

from __future__ import annotations

import gc
import logging
import sys
from pathlib import Path

from roq.monitor.process import MonitorProcess
from roq.runtime import descriptors, exits, structured_logs


def main(arguments: list[str]) -> int:
    """Serve what is said through the pipe; gives the exit code."""
    structured_logs.configure("info", "text", process="monitors")
    if len(arguments) != 1:
        logging.getLogger(__name__).error("usage: python -m roq.monitor PIPE")
        return exits.USAGE
    descriptors.raise_limit()
    try:
        process = MonitorProcess(Path(arguments[0]))
    except OSError as error:
        logging.getLogger(__name__).error("%s: %s", arguments[0], error)  # noqa: TRY400
        return exits.CONFIG
    try:
        process.watch_signals()
        # What exists now stays, and need not be looked at again.
        gc.collect()
        gc.freeze()
        process.run()
    finally:
        process.close()
    return exits.STOPPED


if __name__ == "__main__":
    raise SystemExit(exits.logged(lambda: main(sys.argv[1:])))
