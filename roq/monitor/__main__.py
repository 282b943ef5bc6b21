"""`python -m roq.monitor FILE`: started by a host manager, which wrote FILE."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import msgspec

from roq.monitor.daemon import run
from roq.protocol.spec import MonitorSpec
from roq.ranges import UNREADABLE
from roq.runtime import descriptors, exits, logs
from roq.runtime.exits import logged


def main(arguments: list[str]) -> int:
    """Read the spec and run; gives the exit code."""
    logs.configure("info", "text", process="monitor")
    if len(arguments) != 1:
        logging.getLogger(__name__).error("usage: python -m roq.monitor FILE")
        return exits.USAGE
    try:
        spec = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=MonitorSpec)
    except (OSError, *UNREADABLE) as error:
        logging.getLogger(__name__).error("%s: %s", arguments[0], error)  # noqa: TRY400
        return exits.CONFIG
    logs.configure(spec.log_level, spec.log_format, process=f"monitor {spec.queue}")
    descriptors.raise_limit()
    return run(spec)


if __name__ == "__main__":
    raise SystemExit(logged(lambda: main(sys.argv[1:])))
