"""A host manager that is killed under load, and what its next life makes of its children."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from commands import alive
from elastic_traffic import LIMIT, traffic
from waiting import eventually

import roq
import roq.testing
from roq.hcm.records import ProcessRecord
from roq.protocol.public_answers import HostSummary
from roq.testing import RunningCluster
from roq.timing import CHILD_STOP_SECONDS_MIN

pytestmark = [pytest.mark.integration, pytest.mark.long]
HOST = "127.0.0.1"
SHORT = {"children": {"orphan_seconds": 60, "stop_seconds": CHILD_STOP_SECONDS_MIN}}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    with roq.testing.cluster(registry="zookeeper", restart=True, hcm=SHORT) as found:
        yield found


def processes(running: RunningCluster) -> dict[str, psutil.Process]:
    """The children of the host by name, whoever their parent is."""
    return {
        path.stem: psutil.Process(msgspec.json.decode(path.read_bytes(), type=ProcessRecord).pid)
        for path in running.folder.rglob("*.process")
    }


def host(cluster: roq.Cluster) -> HostSummary:
    return next(each for each in cluster.hosts() if each.host == HOST)


def states(cluster: roq.Cluster, queue: str) -> dict[str, tuple[str, int]]:
    """State and pid of a queue's children as the configuration manager knows them."""
    return {
        each.child: (each.state, each.pid) for each in host(cluster).children if each.queue == queue
    }


def all_run(cluster: roq.Cluster, queue: str, count: int) -> bool:
    found = states(cluster, queue)
    return len(found) == count and {state for state, _ in found.values()} == {"running"}


def ready_count(running: RunningCluster) -> int:
    """How many host managers of this cluster have been ready so far."""
    log = next((running.folder / "log").glob("host*.log"))
    return log.read_text().count("ready in cluster")


def kill_manager(running: RunningCluster) -> None:
    """SIGKILL for the host manager; another one is ready when it returns."""
    count = ready_count(running)
    os.kill(running.pid(f"host {HOST}"), signal.SIGKILL)
    eventually(lambda: ready_count(running) > count)


def test_traffic_and_processes_go_on_while_the_host_manager_is_killed_twice(
    running: RunningCluster, cluster: roq.Cluster
) -> None:
    with traffic(cluster, "kept", 3, host=HOST, policy="spread") as flow:
        flow.rate = LIMIT * 0.5
        cluster.add_exchange("kept", host=HOST)
        eventually(lambda: all_run(cluster, "kept", 3))
        before = states(cluster, "kept")
        for _ in range(2):
            kill_manager(running)
            # Those that it has adopted run for it when they have reported to it.
            eventually(lambda: states(cluster, "kept") == before)
        # The one that adopted them looks after them: what is killed is replaced.
        pid = before["kept.x2"][1]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: states(cluster, "kept").get("kept.x2", ("", 0))[1] not in {0, pid})
        eventually(lambda: all_run(cluster, "kept", 3))
        flow.end()
    flow.judge()


def test_of_what_a_killed_host_manager_has_written_down_only_what_is_true_counts(
    running: RunningCluster, cluster: roq.Cluster
) -> None:
    queues = ("whole", "spoilt", "reused")
    for queue in queues:
        cluster.create_queue(queue)
        eventually(lambda: all_run(cluster, queue, 2))  # noqa: B023
    before = {queue: states(cluster, queue) for queue in queues}
    exchanges = {queue: psutil.Process(before[queue][f"{queue}.x1"][1]) for queue in queues}
    next(running.folder.rglob("spoilt.x1.process")).write_bytes(b"{}")
    # As if the exchange had ended, and this test had got its pid.
    path = next(running.folder.rglob("reused.x1.process"))
    record = msgspec.json.decode(path.read_bytes(), type=ProcessRecord)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, pid=os.getpid())))
    kill_manager(running)
    # Who cannot be adopted is told that nobody knows it; who can, goes on.
    for queue in ("spoilt", "reused"):
        eventually(lambda: not alive(exchanges[queue]))  # noqa: B023
    eventually(lambda: states(cluster, "whole") == before["whole"])
    # What was adopted is stopped and started like anything else.
    assert {"whole.monitor", "whole.x1"} <= set(processes(running))
    cluster.stop_queue("whole")
    assert not alive(exchanges["whole"])
    assert not {"whole.monitor", "whole.x1"} & set(processes(running))
    cluster.start_queue("whole")
    eventually(lambda: all_run(cluster, "whole", 2))
    for queue in queues:
        cluster.remove_queue(queue)


def test_adopted_children_end_with_their_host_manager_and_leave_nothing(
    tmp_path: Path,
) -> None:
    with (
        roq.testing.cluster(
            registry="zookeeper", restart=True, hcm=SHORT, data_dir=tmp_path
        ) as running,
        running.connect() as cluster,
    ):
        cluster.create_queue("ending")
        kill_manager(running)
        eventually(lambda: all_run(cluster, "ending", 2))
        children = list(processes(running).values())
        assert len(children) == 2
        # One of them does not even hear SIGTERM.
        children[0].suspend()
    assert not any(alive(each) for each in children)
    assert not list(tmp_path.rglob("*.process"))
