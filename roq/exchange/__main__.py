"""`python -m roq.exchange FILE`: started by a host manager, which wrote FILE.

An exchange whose FILE names no host manager stands alone: it prints where it listens, as one line
of JSON, and serves until a signal ends it.
"""

from __future__ import annotations

import gc
import logging
import sys
from pathlib import Path

import msgspec

from roq.errors import ConfigError, RemoteProtocolError, Unavailable
from roq.exchange.config import load_spec
from roq.exchange.daemon import ExchangeServer
from roq.log.files import LogRefused
from roq.runtime import descriptors, exits, structured_logs

log = logging.getLogger("roq.exchange")


def main(arguments: list[str]) -> int:
    """Read the spec and serve; gives the exit code."""
    structured_logs.configure("info", "text", process="exchange")
    if len(arguments) != 1:
        log.error("usage: python -m roq.exchange FILE")
        return exits.USAGE
    descriptors.raise_limit()
    # A start reads many records and leaves nothing to collect; looking for it costs a fifth.
    gc.disable()
    try:
        spec = load_spec(Path(arguments[0]))
        structured_logs.configure(spec.log_level, spec.log_format, process=f"exchange {spec.child}")
        server = ExchangeServer(spec)
    except (ConfigError, LogRefused, RemoteProtocolError) as error:
        log.error("cannot start: %s", error, extra={"event": "start_failed"})  # noqa: TRY400
        return exits.CONFIG
    except Unavailable as error:
        log.error("cannot start: %s", error, extra={"event": "start_failed"})  # noqa: TRY400
        return exits.UNAVAILABLE
    try:
        server.watch_signals()
        if not spec.manager:
            sys.stdout.write(msgspec.json.encode(server.child()).decode() + "\n")
            sys.stdout.flush()
        # What exists now stays; what comes is freed by its references.
        gc.collect()
        gc.freeze()
        gc.enable()
        server.run()
    finally:
        server.close()
    return server.exit_code


if __name__ == "__main__":
    raise SystemExit(exits.logged(lambda: main(sys.argv[1:])))
