"""`python -m roq.hcm --config FILE`: the host manager of this host until SIGTERM."""

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
from roq.hcm.config import HcmConfig, load
from roq.hcm.daemon import HostManager, Readiness
from roq.runtime import exits, logs

log = logging.getLogger(__name__)


def run(config: HcmConfig, on_ready: Readiness | None = None) -> int:
    """Run a host manager in the main thread until SIGTERM or SIGINT.

    Returns:
        0 stopped, 69 ZooKeeper could not be reached, 70 crashed, 78 a port is in use, an address or
        the data folder is wrong, or another process manages this host.
    """
    logs.configure(config.log.level, config.log.format, process="host")
    try:
        manager = HostManager(config, partial(_registry, config), on_ready)
    except (ConfigError, Unavailable) as error:
        log.error("%s", error, extra={"event": "configuration"})  # noqa: TRY400 - the text says all
        return exits.CONFIG
    try:
        manager.watch_signals()
        return manager.run()
    except Exception:
        log.exception("crashed", extra={"event": "crashed"})
        return exits.CRASHED
    finally:
        manager.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, read the configuration, run."""
    parser = argparse.ArgumentParser(prog="python -m roq.hcm", description=__doc__)
    parser.add_argument("--config", type=Path, help="hcm.toml; searched for if not given")
    parser.add_argument(
        "--ready-fd", type=int, help="descriptor that gets one JSON line once the GCM knows us"
    )
    options = parser.parse_args(arguments)
    logs.hold()
    try:
        config = load(options.config, os.environ)
    except ConfigError as error:
        logs.configure("info", "text", process="host")
        log.error("%s", error, extra={"event": "configuration"})  # noqa: TRY400 - the text says all
        return exits.CONFIG
    return run(config, None if options.ready_fd is None else partial(_tell, options.ready_fd))


def _registry(config: HcmConfig, post: Post) -> Registry:
    zk = config.zk
    return ZooKeeperRegistry(zk.servers, post, root=zk.root, session_seconds=zk.session_seconds)


def _tell(descriptor: int, description: dict[str, object]) -> None:
    with os.fdopen(descriptor, "w") as stream:
        stream.write(json.dumps(description) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
