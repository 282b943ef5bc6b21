"""`python -m roq.gcm --config FILE`: one configuration manager until SIGTERM."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Final

from roq.coordination.addresses import open_registry
from roq.coordination.registry_contract import Post, Registry
from roq.gcm.config import GcmConfig, load
from roq.gcm.daemon import Gcm
from roq.runtime.program import Program, Readiness, serve
from roq.runtime.service import SystemdService
from roq.runtime.signals import on_flight_wanted, on_stop


def run(config: GcmConfig, on_ready: Readiness | None = None) -> int:
    """Run a configuration manager in the main thread until SIGTERM or SIGINT.

    Returns:
        0 stopped, 69 the registry could not be reached, 70 crashed, 78 a port is in use, an address
        is wrong, or what stands in the registry cannot be read.
    """
    return serve(
        config.log, PROGRAM.process, lambda: Gcm(config, partial(_registry, config), on_ready), _run
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, read the configuration, run."""
    return PROGRAM.main(arguments)


def _run(gcm: Gcm) -> int:
    service = SystemdService(os.environ)
    on_stop(gcm.reactor, service.before(gcm.stop))
    on_flight_wanted(gcm.reactor, gcm.save_flight)
    service.watch(gcm.reactor)
    return gcm.run()


def _registry(config: GcmConfig, post: Post) -> Registry:
    zk = config.zk
    return open_registry(
        config.registry_address, post, root=zk.root, session_seconds=zk.session_seconds
    )


PROGRAM: Final = Program(
    module="roq.gcm",
    process="gcm",
    file="gcm.toml",
    description=__doc__,
    ready="one JSON line with the addresses",
    load=load,
    run=run,
)

if __name__ == "__main__":
    raise SystemExit(main())
