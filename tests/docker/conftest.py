"""The engine for these tests: ROQ_TEST_DOCKER is its url, or `start` for one of our own."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import docker
import docker_engine
import pytest
from zookeeper_server import EmbeddedZooKeeper

from roq.provider.engine import Engine
from roq.testing.running import RunningCluster, cluster

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "roq-host-test"


@pytest.fixture(scope="session")
def engine_url() -> Iterator[str]:
    wanted = os.environ.get("ROQ_TEST_DOCKER", "")
    if not wanted:
        pytest.skip("ROQ_TEST_DOCKER is not set: `make test-docker` runs these tests")
    if wanted != "start":
        yield wanted
        return
    why = docker_engine.why_not()
    if why:
        pytest.skip(why)
    with docker_engine.own_engine() as url:
        yield url


@pytest.fixture(scope="session")
def engine(engine_url: str) -> Engine:
    return Engine(engine_url, 120.0)


@pytest.fixture(scope="session")
def host_image(engine_url: str) -> str:
    """The image, made as people make it."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/docker_image.py", "--url", engine_url, "--name", IMAGE],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="session")
def gateway(engine_url: str) -> str:
    """The address of this machine on the bridge."""
    with closing(docker.DockerClient(base_url=engine_url, version="auto")) as client:
        configuration = client.networks.get("bridge").attrs["IPAM"]["Config"][0]
    subnet = ipaddress.ip_network(configuration["Subnet"])
    return str(configuration.get("Gateway") or subnet[1])


@pytest.fixture(scope="session")
def roq_cluster(gateway: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A cluster that containers on the bridge can reach."""
    with (
        EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), gateway) as zookeeper,
        cluster(
            registry="zookeeper",
            hosts=1,
            zookeeper=zookeeper.address,
            gcm={"network": {"bind": "0.0.0.0", "advertise": gateway}},
        ) as running,
    ):
        yield running
