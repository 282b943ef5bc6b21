"""The registry comes back without anything in it: the cluster goes on, and nothing is stopped."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import psutil
import pytest
from commands import alive, until
from zookeeper_server import EmbeddedZooKeeper

import roq
from roq.errors import RequestError, Unavailable
from roq.local.ports import choose_ports
from roq.testing import RunningCluster, cluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

ZK = {"zk": {"session_seconds": 2.0}}


def zookeeper(folder: Path) -> EmbeddedZooKeeper:
    """At a port that nobody gets by chance while it is not there."""
    (port,) = choose_ports("127.0.0.1", 1)
    return EmbeddedZooKeeper(folder, port=port)


def emptied(server: EmbeddedZooKeeper, folder: Path) -> EmbeddedZooKeeper:
    """The same server with nothing in it."""
    port = int(server.address.rsplit(":", 1)[1])
    server.stop()
    shutil.rmtree(folder)
    server = EmbeddedZooKeeper(folder, port=port)
    server.start()
    return server


def children(running: RunningCluster) -> list[psutil.Process]:
    """Monitors and exchanges of the first host."""
    return psutil.Process(running.pid("host 127.0.0.1")).children(recursive=True)


def changes(client: roq.Cluster) -> bool:
    try:
        client.set_rules("orders", roq.ScalingRules(name="again"))
    except (RequestError, Unavailable):
        return False
    return True


def log(running: RunningCluster, name: str) -> str:
    return (running.folder / "log" / f"{name}.log").read_text()


def restorer(running: RunningCluster) -> str:
    """The configuration manager that has written the registry back."""
    names = [f"gcm {number}" for number in (1, 2)]
    done = "written back from memory"
    return next((name for name in names if done in log(running, name.replace(" ", "-"))), "")


def test_the_leader_writes_everything_back_and_data_flows_all_the_time(tmp_path: Path) -> None:
    server = zookeeper(tmp_path / "zk")
    server.start()
    try:
        with (
            cluster(zookeeper=server.address, managers=2, gcm=ZK, hcm=ZK) as running,
            roq.connect(*running.managers) as client,
        ):
            client.create_queue("orders", limits={"exchanges_max": 3})
            client.set_rules("orders", roq.ScalingRules(name="mine"))
            before = client.describe("orders")
            processes = children(running)
            with client.publisher("orders") as pub, client.subscriber("orders") as sub:
                server = emptied(server, tmp_path / "zk")
                assert until(lambda: bool(restorer(running)))
                assert client.get_rules("orders").name == "mine"
                assert until(lambda: changes(client))
                after = client.describe("orders")
                assert (after.queue_id, after.monitor) == (before.queue_id, before.monitor)
                assert [child.pid for child in children(running)] == [
                    each.pid for each in processes
                ]
                pub.publish(b"still here")
                pub.flush(30)
                message = sub.receive(timeout=30)
                assert message is not None
                assert message.payload == b"still here"
            assert until(lambda: host_is_registered(client))
            client.add_exchange("orders", "127.0.0.1")
            client.create_queue("more")
            # The next leader knows of all this.
            os.kill(running.pid(restorer(running)), signal.SIGKILL)
            assert until(lambda: changes(client))
            assert [queue.name for queue in client.queues()] == ["more", "orders"]
            assert all(alive(process) for process in processes)
    finally:
        server.stop()


def host_is_registered(client: roq.Cluster) -> bool:
    return [host.state for host in client.hosts()] == ["live"]


def test_a_new_cluster_in_an_emptied_registry_leaves_the_hosts_of_the_old_one_alone(
    tmp_path: Path,
) -> None:
    server = zookeeper(tmp_path / "zk")
    server.start()
    try:
        with cluster(zookeeper=server.address, gcm=ZK, hcm=ZK, restart=True) as running:
            with roq.connect(running.address) as client:
                client.create_queue("orders")
            processes = children(running)
            # The only one that remembers dies with the registry.
            manager = running.pid("gcm")
            os.kill(manager, signal.SIGSTOP)
            server = emptied(server, tmp_path / "zk")
            os.kill(manager, signal.SIGKILL)
            assert until(lambda: log(running, "gcm").count("this is the new cluster") == 2)
            assert until(lambda: "belongs to cluster" in log(running, "host-127.0.0.1"))
            assert until(lambda: "belongs to cluster" in log(running, "gcm"))
            assert all(alive(process) for process in processes)
            assert children(running) == processes
            # Also a host manager that was started again knows where its children belong.
            manager = running.pid("host 127.0.0.1")
            os.kill(manager, signal.SIGKILL)
            assert until(lambda: log(running, "host-127.0.0.1").count("belongs to cluster") == 2)
            assert all(alive(process) for process in processes)
    finally:
        server.stop()


def test_the_leader_writes_everything_back_into_a_file_that_was_removed() -> None:
    with cluster(managers=2, gcm=ZK, hcm=ZK) as running, roq.connect(*running.managers) as client:
        client.create_queue("orders")
        client.set_rules("orders", roq.ScalingRules(name="mine"))
        processes = children(running)
        file = Path(running.registry.removeprefix("file:"))
        for path in file.parent.glob("cluster.db*"):
            path.unlink()
        assert until(lambda: bool(restorer(running)))
        assert client.get_rules("orders").name == "mine"
        assert until(lambda: changes(client))
        assert until(lambda: host_is_registered(client))
        # The next leader knows of all this.
        os.kill(running.pid(restorer(running)), signal.SIGKILL)
        assert until(lambda: changes(client))
        assert [queue.name for queue in client.queues()] == ["orders"]
        assert children(running) == processes


def test_a_leader_whose_file_is_replaced_by_that_of_another_cluster_changes_nothing(
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    with cluster(data_dir=other) as running, running.connect() as client:
        client.create_queue("theirs")
    with cluster(gcm=ZK, hcm=ZK) as running, running.connect() as client:
        client.create_queue("orders")
        file = Path(running.registry.removeprefix("file:"))
        (other / "cluster.db").replace(file)
        assert until(lambda: "the registry holds cluster" in log(running, "gcm"))
        assert not changes(client)
        assert [queue.name for queue in client.queues()] == ["orders"]


def test_a_registry_that_was_restored_from_an_older_copy_has_no_process_take_the_epoch_of_another(
    tmp_path: Path,
) -> None:
    """Publishers would take it for the one that they know, and keep what that has lost."""
    folder = tmp_path / "cluster"
    epochs: list[int] = []
    logs = set()
    for life in range(4):
        with cluster(hosts=1, data_dir=folder) as running, running.connect() as client:
            client.create_queue("orders", durability="none", exists_ok=True)
            with client.publisher("orders") as publisher:
                sent = publisher.publish(b"m").result(20)
            epochs.append(sent.exchange_epoch)
            logs.add(sent.log)
            file = Path(running.registry.removeprefix("file:"))
        if life == 0:
            shutil.copy(file, tmp_path / "copy.db")
        if life == 2:
            for each in folder.glob("cluster.db*"):
                each.unlink()
            shutil.copy(tmp_path / "copy.db", file)
    assert epochs == sorted(set(epochs))
    assert len(logs) == len(epochs), "nor is a log in memory mistaken for another one"
    text = (folder / "log" / "host-127.0.0.1.log").read_text()
    assert "has the registry an older state?" in text
