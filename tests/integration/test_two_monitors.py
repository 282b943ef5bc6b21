"""Two monitors of one queue that both believe they are the one: nobody loses a message by it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest
from elastic_traffic import LIMIT, child, eventually, traffic

import roq
import roq.testing
from roq.errors import RoQError
from roq.protocol.kpi import MoveKpi
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration
SHORT = {"children": {"orphan_seconds": 5}}


@contextmanager
def another_host_manager(running: RunningCluster, host: str) -> Iterator[psutil.Process]:
    """In the place of one that was killed; it knows nothing of what that one has started."""
    command = [sys.executable, "-P", "-m", "roq.hcm", "--config"]
    with (running.folder / "log" / "another.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, str(running.folder / f"host-{host}.toml")], stdout=log, stderr=log
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


def restored(cluster: roq.Cluster, queue: str, manager: psutil.Process) -> bool:
    """Whether monitor and exchange run under the new host manager, which has to be asked for."""
    with suppress(RoQError):  # it has not reported yet
        cluster.start_queue(queue)
    return len(manager.children()) == 2


def test_publishers_and_subscribers_of_an_orphaned_monitor_come_over_without_a_loss() -> None:
    with roq.testing.cluster(hosts=2, hcm=SHORT) as running, running.connect() as cluster:
        with traffic(cluster, "two", 4, host=running.hosts[0], policy="spread") as flow:
            flow.rate = LIMIT * 0.5
            cluster.add_exchange("two", host=running.hosts[1])
            eventually(lambda: flow.states(MoveKpi).count("accepted") >= 2, 15)
            orphans = [child(running, "two"), child(running, "two", 1)]
            psutil.Process(running.pid(f"host {running.hosts[0]}")).kill()
            with another_host_manager(running, running.hosts[0]) as manager:
                eventually(lambda: restored(cluster, "two", manager), 8)
                assert all(each.is_running() for each in orphans)
                eventually(lambda: not any(each.is_running() for each in orphans), 20)
                eventually(lambda: flow.exchanges() == 2, 15)
                flow.end()
        flow.judge()
