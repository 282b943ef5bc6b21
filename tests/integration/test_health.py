"""Every daemon says how it is: to `roq health`, to Prometheus, to whoever asks /readyz."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from commands import roq, started, until
from prometheus_client.parser import text_string_to_metric_families

from roq.gcm.interfaces.metrics import METRICS as GCM_METRICS
from roq.hcm.metrics import METRICS as HOST_METRICS
from roq.local.ports import choose_ports
from roq.runtime.metrics import COMMON
from roq.testing import RunningCluster, cluster

pytestmark = pytest.mark.integration

SECONDS = 30.0


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    gcm, host = choose_ports("127.0.0.1", 2)
    return {"gcm": gcm, "host": host}


@pytest.fixture(scope="module")
def watched(ports: dict[str, int]) -> Iterator[RunningCluster]:
    with cluster(
        registry="zookeeper",
        hosts=2,
        gcm={"metrics": {"port": ports["gcm"]}},
        hcm={"metrics": {"port": ports["host"]}},
    ) as running:
        with running.connect() as connection:
            connection.create_queue("orders", host="127.0.0.1")
            with connection.publisher("orders") as publisher:
                for _ in range(10):
                    publisher.publish(b"hello", topic="eu")
        yield running


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=SECONDS) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


OF_REQUESTS = {
    "roq_exchange_requests_discarded_by_reason_total", "roq_exchange_requests_waiting_seconds",
    "roq_exchange_requests_running_seconds", "roq_exchange_responses_unfetched_seconds",
}  # fmt: skip
"""Told of an exchange that has had some."""


def figures(port: int) -> dict[str, dict[tuple[str, ...], float]]:
    """Name → values by labels."""
    status, body = get(port, "/metrics")
    assert status == 200
    return {
        sample.name: {
            tuple(other.labels.values()): other.value
            for other in family.samples
            if other.name == sample.name
        }
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_everybody_is_asked_and_all_is_well(watched: RunningCluster) -> None:
    asked = roq("health", "--hosts", "2", "--wait", "30", "--json", cluster=watched.address)
    assert asked.returncode == 0, asked.stdout
    document = json.loads(asked.stdout)
    assert document["ready"] is True
    assert [(each["role"], each["name"]) for each in document["daemons"]] == [
        ("gcm", watched.address),
        ("host", "127.0.0.1"),
        ("host", "127.0.0.2"),
        ("monitor", "orders"),
    ]
    checks = {each["role"]: {c["name"] for c in each["checks"]} for each in document["daemons"]}
    assert checks["gcm"] >= {"registry", "leader", "files", "hosts", "queues"}
    assert checks["host"] >= {"leader", "children", "registry", "files", "disk"}


def test_each_of_them_can_be_asked_by_itself(watched: RunningCluster) -> None:
    asked = roq("health", "--hosts", "2", "--wait", "30", "--json", cluster=watched.address)
    document = json.loads(asked.stdout)
    for each in document["daemons"]:
        alone = roq("health", "--wait", "30", "--at", each["address"])
        assert alone.returncode == 0, alone.stdout
        assert f"{each['role']}" in alone.stdout.decode()


def test_a_daemon_that_hangs_is_found_within_the_time_and_so_is_its_return(
    watched: RunningCluster,
) -> None:
    pid = watched.pid("host 127.0.0.2")
    os.kill(pid, signal.SIGSTOP)
    try:
        asked = roq("health", "--timeout", "1", cluster=watched.address)
        with started("health", "--wait", "60", cluster=watched.address) as waiting:
            assert asked.returncode == 1
            assert "no answer from" in asked.stdout.decode()
            os.kill(pid, signal.SIGCONT)
            assert waiting.wait(90) == 0
    finally:
        os.kill(pid, signal.SIGCONT)


def test_nobody_at_the_address_is_a_finding_and_no_crash() -> None:
    (port,) = choose_ports("127.0.0.1", 1)
    for arguments in (("--at", f"127.0.0.1:{port}"), ("--cluster", f"127.0.0.1:{port}")):
        asked = roq("health", "--timeout", "0.5", *arguments)
        assert asked.returncode == 1
        assert "no answer from" in asked.stdout.decode()
    assert "no configuration manager answers" in asked.stderr.decode()


def test_managers_and_hosts_tell_all_of_their_figures(
    watched: RunningCluster, ports: dict[str, int]
) -> None:
    assert set(figures(ports["gcm"])) >= {metric.name for metric in (*COMMON, *GCM_METRICS)}
    wanted = {metric.name for metric in (*COMMON, *HOST_METRICS)} - OF_REQUESTS
    assert until(lambda: set(figures(ports["host"])) >= wanted)


def test_figures_follow_what_happens(watched: RunningCluster, ports: dict[str, int]) -> None:
    assert until(lambda: figures(ports["gcm"])["roq_gcm_leader"][()] == 1)
    assert until(lambda: figures(ports["gcm"])["roq_gcm_queues"][("running",)] == 1)
    assert until(
        lambda: (
            figures(ports["host"])
            .get("roq_exchange_messages_received_total", {})
            .get(("x1", "orders"))
            == 10
        )
    )


def test_ready_and_alive_are_told_over_http(ports: dict[str, int], watched: RunningCluster) -> None:
    for name, port in ports.items():
        assert get(port, "/healthz")[0] == 200
        assert until(lambda port=port: get(port, "/readyz")[0] == 200)
        status, body = get(port, "/readyz")
        assert (status, json.loads(body)["role"]) == (200, name)


def test_a_manager_without_zookeeper_is_alive_and_not_ready(
    watched: RunningCluster, ports: dict[str, int]
) -> None:
    pid = watched.pid("zookeeper")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert until(lambda: get(ports["gcm"], "/readyz")[0] == 503)
        document = json.loads(get(ports["gcm"], "/readyz")[1])
        assert "ZooKeeper" in str(document["checks"])
        assert get(ports["gcm"], "/healthz")[0] == 200
        asked = roq("health", cluster=watched.address)
        assert asked.returncode == 1
        assert "ZooKeeper cannot be reached" in asked.stdout.decode()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert until(lambda: get(ports["gcm"], "/readyz")[0] == 200)
