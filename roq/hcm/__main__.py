"""`python -m roq.hcm --config FILE`: the host manager of this host until SIGTERM."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Final

from roq.coordination.addresses import open_registry
from roq.coordination.registry_contract import Post, Registry
from roq.hcm.config import HcmConfig, load
from roq.hcm.daemon import HostManager
from roq.runtime.program import Program, Readiness, serve
from roq.runtime.service import SystemdService
from roq.runtime.signals import on_flight_wanted, on_stop


def run(config: HcmConfig, on_ready: Readiness | None = None) -> int:
    """Run a host manager in the main thread until SIGTERM or SIGINT.

    At SIGTERM what runs here goes to other hosts first; at a second signal no more.

    Returns:
        0 stopped, 69 the registry could not be reached, 70 crashed, 78 a port is in use, an address
        or the data folder is wrong, or another process manages this host.
    """
    return serve(
        config.log,
        PROGRAM.process,
        lambda: HostManager(config, partial(_registry, config), on_ready),
        _run,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, read the configuration, run."""
    return PROGRAM.main(arguments)


def _run(manager: HostManager) -> int:
    try:
        service = SystemdService(os.environ)
        on_stop(manager.reactor, service.before(manager.stop), gently=service.before(manager.drain))
        on_flight_wanted(manager.reactor, manager.save_flight)
        service.watch(manager.reactor)
        return manager.run()
    finally:
        manager.close()


def _registry(config: HcmConfig, post: Post) -> Registry:
    zk = config.zk
    return open_registry(
        config.registry_address, post, root=zk.root, session_seconds=zk.session_seconds
    )


PROGRAM: Final = Program(
    module="roq.hcm",
    process="host",
    file="hcm.toml",
    description=__doc__,
    ready="one JSON line once the GCM knows us",
    load=load,
    run=run,
)

if __name__ == "__main__":
    raise SystemExit(main())
