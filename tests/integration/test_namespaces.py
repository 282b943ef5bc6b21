"""A cluster on two hosts of a real network: bind and advertised addresses apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from roq.coordination.embedded import prepare
from roq.runtime.process import Child, spawn
from roq.testing.namespaces import NetworkHost, missing, network

pytestmark = [pytest.mark.integration, pytest.mark.netns]

ZOOKEEPER_PORT = 2181
MESSAGES = 20_000


@dataclass
class Cluster:
    """A cluster whose client port is on the first host."""

    hosts: list[NetworkHost]
    folder: Path

    def roq(self, host: NetworkHost, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run the command line on a host."""
        done = subprocess.run(
            self.argv(host, *arguments), input=stdin, capture_output=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr.decode() + self.logs()
        return done.stdout

    def argv(self, host: NetworkHost, *arguments: str) -> list[str]:
        address = f"{self.hosts[0].address}:5000"
        argv = [*host.prefix, sys.executable, "-m", "roq", *arguments]
        return [*argv, "--cluster", address]

    def logs(self) -> str:
        return "".join(
            f"--- {path.name}\n{path.read_text()[-2000:]}" for path in self.folder.rglob("*.log")
        )


def start(stack: ExitStack, host: NetworkHost, folder: Path, module: str, **environ: str) -> Child:
    """Start a daemon on a host and wait until it says that it is ready."""
    read, write = os.pipe()
    log = folder / f"{module}-{host.address}.log"
    child = spawn(
        [*host.prefix, sys.executable, "-m", module, "--ready-fd", str(write)],
        log_path=log,
        env={**os.environ, **environ},
        pass_fds=[write],
    )
    os.close(write)
    stack.callback(child.close)
    stack.callback(child.stop)
    with os.fdopen(read, "rb") as ready:
        line = ready.readline()
    assert line, f"{module} on {host.address} ended:\n{log.read_text()}"
    return child


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("network")
    with network(2) as hosts, ExitStack() as stack:
        first = hosts[0]
        zookeeper = f"{first.address}:{ZOOKEEPER_PORT}"
        command = prepare(folder / "zookeeper", first.address, ZOOKEEPER_PORT, os.environ)
        server = spawn([*first.prefix, *command], log_path=folder / "zookeeper.log")
        stack.callback(server.close)
        stack.callback(server.stop)
        start(
            stack, first, folder, "roq.gcm",
            ROQ_GCM_NETWORK_BIND="0.0.0.0", ROQ_GCM_NETWORK_ADVERTISE=first.address,
            ROQ_GCM_ZK_SERVERS=zookeeper,
        )  # fmt: skip
        for host in hosts:
            start(
                stack, host, folder, "roq.hcm",
                ROQ_HCM_NETWORK_BIND="0.0.0.0", ROQ_HCM_NETWORK_ADVERTISE=host.address,
                ROQ_HCM_ZK_SERVERS=zookeeper, ROQ_HCM_DATA_DIR=str(folder / host.address),
                ROQ_HCM_GCM_ADDRESS=f"{first.address}:5000",
            )  # fmt: skip
        yield Cluster(hosts, folder)


def test_a_queue_spans_two_hosts_and_every_message_reaches_the_other_one(cluster: Cluster) -> None:
    one, two = cluster.hosts
    cluster.roq(one, "queue", "create", "orders", "--host", one.address)
    cluster.roq(two, "exchange", "add", "orders", "--host", two.address)
    listed = json.loads(cluster.roq(one, "exchange", "list", "orders", "--json"))
    assert [exchange["host"] for exchange in listed] == [one.address, two.address]
    assert all("127.0.0.1" not in json.dumps(exchange) for exchange in listed)

    readers = [
        subprocess.Popen(
            cluster.argv(host, "sub", "orders", "--count", str(2 * MESSAGES)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for host in cluster.hosts
    ]
    for reader in readers:
        assert reader.stderr is not None
        assert reader.stderr.readline().startswith(b"Subscribed")
    sent = {
        host.address: [f"{host.address} {number}" for number in range(MESSAGES)]
        for host in cluster.hosts
    }
    for host in cluster.hosts:
        lines = "\n".join(sent[host.address]).encode()
        cluster.roq(host, "pub", "orders", "--topic", "t", stdin=lines)
    for reader in readers:
        output, _ = reader.communicate(timeout=120)
        got = output.decode().splitlines()
        for address, lines_sent in sent.items():
            assert [line for line in got if line.startswith(address + " ")] == lines_sent
        assert len(got) == 2 * MESSAGES
    cluster.roq(two, "queue", "remove", "orders")


def test_both_hosts_are_known_by_their_advertised_addresses(cluster: Cluster) -> None:
    hosts = json.loads(cluster.roq(cluster.hosts[1], "host", "list", "--json"))
    assert sorted(host["host"] for host in hosts) == [host.address for host in cluster.hosts]


def test_a_daemon_that_leaves_loopback_warns_that_nothing_is_authenticated(
    cluster: Cluster,
) -> None:
    for log in cluster.folder.glob("roq.*.log"):
        assert "authenticat" in log.read_text(), log.name
