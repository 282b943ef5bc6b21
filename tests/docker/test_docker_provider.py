"""Hosts as containers of a real Docker Engine."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import ClassVar

import docker
import msgspec
import pytest

from roq.errors import ProviderFailed
from roq.provider.docker import (
    ADDRESS_LABEL,
    CLUSTER_LABEL,
    HOST_LABEL,
    DockerOptions,
    DockerProvider,
    container_name,
)
from roq.provider.engine import ContainerSpec, Engine
from roq.provider.port import HostRequest, HostState, ProvidedHost, Provider
from roq.testing.provider_kit import NOBODY, ProviderKit
from roq.testing.running import RunningCluster

pytestmark = [pytest.mark.docker, pytest.mark.long]

FIRST, LAST = "127.0.9.1", "127.0.9.20"


class DockerKit(ProviderKit):
    bad_options: ClassVar = (
        {"image": ""}, {"network": ""}, {"memory_mb": -1}, {"cpus": "two"}, {"timeout_seconds": 0},
        {"managers": "m:1"}, {"labels": {"a": 1}}, {"first_address": "10.0.0.1"},
    )  # fmt: skip
    engine: Engine

    @pytest.fixture(autouse=True)
    def _here(self, engine: Engine, engine_url: str, host_image: str,
              roq_cluster: RunningCluster, gateway: str) -> None:  # fmt: skip
        self.engine, self._running, self._gateway = engine, roq_cluster, gateway
        self._plain = DockerOptions(url=engine_url, image=host_image, stop_seconds=8)

    def running(self) -> RunningCluster:
        return self._running

    def end(self, host: ProvidedHost) -> None:
        with closing(docker.DockerClient(base_url=self._plain.url, version="auto")) as client:
            client.containers.get(host.handle).kill()

    def traces(self, host: ProvidedHost) -> list[str]:
        found = self.engine.find(host.handle)
        return [] if found is None else [f"container {found.name} is {found.status}"]


class TestOnTheBridge(DockerKit):
    chooses_addresses: ClassVar = False  # the engine does

    def open(self) -> Provider:
        port = self._running.address.rpartition(":")[2]
        return DockerProvider(
            msgspec.structs.replace(
                self._plain,
                managers=[f"{self._gateway}:{port}"],
                zookeeper=self._running.registry,
            )
        )


class TestOnTheNetworkOfTheMachine(DockerKit):
    def open(self) -> Provider:
        return DockerProvider(
            msgspec.structs.replace(
                self._plain, network="host", first_address=FIRST, last_address=LAST
            )
        )


# --- what is particular to containers -------------------------------------------------------------


@pytest.fixture
def options(engine_url: str, host_image: str) -> DockerOptions:
    return DockerOptions(
        url=engine_url, image=host_image, network="host", first_address=FIRST, last_address=LAST,
        stop_seconds=2,
    )  # fmt: skip


@pytest.fixture
def wanted(engine: Engine) -> Iterator[HostRequest]:
    cluster = f"t-{uuid.uuid4().hex[:8]}"
    yield HostRequest(
        cluster=cluster, name="one", managers=[NOBODY], zookeeper=NOBODY,
        settings={"zk": {"connect_seconds": 600.0}},
    )  # fmt: skip
    for left in engine.labelled({CLUSTER_LABEL: cluster}):
        engine.remove(left.id, 0.0)


def test_limits_and_labels_stand_on_the_container(
    options: DockerOptions, wanted: HostRequest
) -> None:
    options = msgspec.structs.replace(
        options, memory_mb=256, cpus=0.5, pids_max=500, labels={"team": "red", CLUSTER_LABEL: "x"}
    )
    host = DockerProvider(options).create(
        msgspec.structs.replace(wanted, labels={"queue": "orders", HOST_LABEL: "x"})
    )
    with closing(docker.DockerClient(base_url=options.url, version="auto")) as client:
        found = client.containers.get(host.handle)
    assert found.name == container_name(wanted.cluster, "one")
    assert found.labels[CLUSTER_LABEL] == wanted.cluster
    assert found.labels[HOST_LABEL] == "one"
    assert found.labels[ADDRESS_LABEL] == host.host
    assert (found.labels["team"], found.labels["queue"]) == ("red", "orders")
    limits = found.attrs["HostConfig"]
    assert limits["Memory"] == 256 * 1024 * 1024
    assert limits["NanoCpus"] == 500_000_000
    assert limits["PidsLimit"] == 500
    assert limits["RestartPolicy"]["Name"] == "no"
    assert found.attrs["Config"]["User"] == "1000:1000"


def test_an_image_that_is_missing_is_told_before_anything_is_made(
    options: DockerOptions, wanted: HostRequest
) -> None:
    provider = DockerProvider(msgspec.structs.replace(options, image="no-such-image:1"))
    with pytest.raises(ProviderFailed, match=r"has no image no-such-image:1: make it with scripts"):
        provider.create(wanted)
    assert provider.list(wanted.cluster) == []


def test_a_network_that_is_missing_is_told_and_nothing_is_left(
    options: DockerOptions, wanted: HostRequest
) -> None:
    provider = DockerProvider(
        msgspec.structs.replace(
            options, network="no-such-network", managers=["192.0.2.1:5000"],
            zookeeper="192.0.2.1:2181",
        )
    )  # fmt: skip
    with pytest.raises(ProviderFailed, match="no-such-network"):
        provider.create(wanted)
    assert provider.list(wanted.cluster) == []


def test_an_address_that_no_container_can_reach_is_told(
    options: DockerOptions, wanted: HostRequest
) -> None:
    provider = DockerProvider(msgspec.structs.replace(options, network="bridge"))
    with pytest.raises(ProviderFailed, match=r"cannot reach 127\.0\.0\.1:9, a loopback address"):
        provider.create(wanted)
    assert provider.list(wanted.cluster) == []


def test_a_container_that_cannot_run_is_removed_and_its_error_told(
    options: DockerOptions, wanted: HostRequest, engine: Engine
) -> None:
    """The engine refuses to start what has no entry point that it can execute."""
    provider = DockerProvider(
        msgspec.structs.replace(options, hcm={"a b": {"x": 1}})  # no file can have such a section
    )
    with pytest.raises(ProviderFailed, match="cannot be configured: 'a b'"):
        provider.create(wanted)
    assert engine.labelled({CLUSTER_LABEL: wanted.cluster}) == []


def test_a_container_that_was_never_started_is_found_and_replaced(
    options: DockerOptions, wanted: HostRequest, engine: Engine
) -> None:
    """Whoever made it was interrupted in between."""
    name = container_name(wanted.cluster, "one")
    labels = {CLUSTER_LABEL: wanted.cluster, HOST_LABEL: "one", ADDRESS_LABEL: FIRST}
    spec = ContainerSpec(name=name, image=options.image, command=[], labels=labels, network="host")
    assert engine.make(spec) is not None
    assert engine.make(spec) is None
    provider = DockerProvider(options)
    (found,) = provider.list(wanted.cluster)
    assert found.state is HostState.ENDED
    assert found.note == "its container is created, exit code 0"
    assert provider.create(wanted).state is HostState.RUNNING
    assert len(engine.labelled({CLUSTER_LABEL: wanted.cluster})) == 1


def test_a_container_of_somebody_else_is_not_removed(
    options: DockerOptions, wanted: HostRequest, engine: Engine
) -> None:
    spec = ContainerSpec(
        name=f"{wanted.cluster}-stranger", image=options.image, command=[],
        labels={CLUSTER_LABEL: wanted.cluster}, network="host",
    )  # fmt: skip
    stranger = engine.make(spec)
    assert stranger is not None
    provider = DockerProvider(options)
    assert provider.list(wanted.cluster) == []
    with pytest.raises(ProviderFailed, match="is no host of RoQ and stays"):
        provider.remove(stranger.id)
    assert engine.find(stranger.id) is not None


def test_a_host_runs_as_a_user_that_can_write_nothing_but_its_own_folder(
    options: DockerOptions, wanted: HostRequest
) -> None:
    host = DockerProvider(options).create(wanted)
    code = (
        "import os; print(os.getuid(), os.access('/etc/roq', os.W_OK), os.access('/', os.W_OK),"
        " os.access('/var/lib/roq', os.W_OK))"
    )
    with closing(docker.DockerClient(base_url=options.url, version="auto")) as client:
        container = client.containers.get(host.handle)
        python = container.attrs["Config"]["Entrypoint"][0]
        _, told = container.exec_run([python, "-c", code])
    assert told == b"1000 False False True\n"


def test_the_same_files_give_the_same_image(host_image: str, engine: Engine) -> None:
    assert host_image.startswith("roq-host-test:0.")
    assert engine.has_image(host_image)
    assert engine.has_image("roq-host-test:latest")
    assert not engine.has_image("roq-host-test:none")
