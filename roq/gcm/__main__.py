"""`python -m roq.gcm --config FILE`: one configuration manager until SIGTERM."""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from roq.coordination.port import Post, Registry
from roq.coordination.zookeeper import ZooKeeperRegistry
from roq.errors import ConfigError, Unavailable
from roq.gcm.config import GcmConfig, load
from roq.gcm.daemon import Gcm, Readiness
from roq.runtime import exits, logs
from roq.runtime.signals import on_stop

log = logging.getLogger(__name__)


def run(config: GcmConfig, on_ready: Readiness | None = None) -> int:
    """Run a configuration manager in the main thread until SIGTERM or SIGINT.

    Returns:
        0 stopped, 69 ZooKeeper could not be reached, 70 crashed, 78 a port is in use or an address
        is wrong.
    """
    logs.configure(config.log.level, config.log.format, process="gcm")
    try:
        gcm = Gcm(config, partial(_registry, config), on_ready)
    except (ConfigError, Unavailable) as error:
        log.error("%s", error, extra={"event": "configuration"})  # noqa: TRY400 - the text says all
        return exits.CONFIG
    on_stop(gcm.reactor, gcm.stop)
    try:
        return gcm.run()
    except ConfigError as error:  # what stands in the registry cannot be read
        log.error("%s", error, extra={"event": "configuration"})  # noqa: TRY400 - the text says all
        return exits.CONFIG
    except Exception:
        log.exception("crashed", extra={"event": "crashed"})
        return exits.CRASHED


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, read the configuration, run."""
    parser = argparse.ArgumentParser(prog="python -m roq.gcm", description=__doc__)
    parser.add_argument("--config", type=Path, help="gcm.toml; searched for if not given")
    parser.add_argument(
        "--ready-fd", type=int, help="descriptor that gets one JSON line with the addresses"
    )
    options = parser.parse_args(arguments)
    logs.hold()
    try:
        config = load(options.config, os.environ)
    except ConfigError as error:
        logs.configure("info", "text", process="gcm")
        log.error("%s", error, extra={"event": "configuration"})  # noqa: TRY400 - the text says all
        return exits.CONFIG
    return run(config, None if options.ready_fd is None else partial(_tell, options.ready_fd))


def _registry(config: GcmConfig, post: Post) -> Registry:
    zk = config.zk
    return ZooKeeperRegistry(zk.servers, post, root=zk.root, session_seconds=zk.session_seconds)


def _tell(descriptor: int, addresses: dict[str, str]) -> None:
    with os.fdopen(descriptor, "w") as stream:
        stream.write(json.dumps(addresses) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
