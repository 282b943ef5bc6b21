"""What the provider `docker` says when the engine does not do what it should."""

import socket
from collections.abc import Iterator

import msgspec
import pytest

from roq.errors import ProviderFailed
from roq.provider.docker import DockerOptions, DockerProvider, container_name
from roq.provider.port import HostRequest

REQUEST = HostRequest(cluster="c", name="n", managers=["10.0.0.1:5000"], zookeeper="10.0.0.1:2181")


@pytest.fixture
def mute() -> Iterator[str]:
    """The url of somebody who takes requests and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


def test_an_engine_that_does_not_run_is_told() -> None:
    provider = DockerProvider(DockerOptions(url="tcp://127.0.0.1:9", timeout_seconds=5))
    for call in (lambda: provider.create(REQUEST), lambda: provider.list("c")):
        with pytest.raises(ProviderFailed, match=r"tcp://127\.0\.0\.1:9 does not answer; see that"):
            call()
    provider.close()


def test_an_engine_that_hangs_is_given_up(mute: str) -> None:
    provider = DockerProvider(DockerOptions(url=mute, timeout_seconds=0.2))
    with pytest.raises(ProviderFailed, match="does not answer"):
        provider.list("c")


def test_a_url_that_is_none_is_told() -> None:
    with pytest.raises(ProviderFailed, match="cannot list containers"):
        DockerProvider(DockerOptions(url="nonsense://x")).list("c")


@pytest.mark.parametrize(
    "address", ["127.0.0.1:5000", "127.0.0.2:5000", "localhost:5000", "[::1]:5000", "tcp://127.1.1.1:5"]
)  # fmt: skip
def test_a_loopback_address_is_no_way_out_of_a_container(address: str) -> None:
    provider = DockerProvider(DockerOptions(url="tcp://127.0.0.1:9"))
    for change in ({"managers": ["10.0.0.1:1", address]}, {"zookeeper": f"10.0.0.1:1,{address}"}):
        request = msgspec.structs.replace(REQUEST, **change)
        with pytest.raises(ProviderFailed, match="a loopback address: bind and advertise"):
            provider.create(request)


def test_a_file_of_this_machine_is_no_registry_for_a_container() -> None:
    provider = DockerProvider(DockerOptions(url="tcp://127.0.0.1:9"))
    request = msgspec.structs.replace(REQUEST, zookeeper="file:/var/lib/cluster.db")
    with pytest.raises(ProviderFailed, match="Use ZooKeeper for a cluster with containers"):
        provider.create(request)


def test_a_handle_that_no_engine_gives_is_not_looked_for() -> None:
    provider = DockerProvider(DockerOptions(url="tcp://127.0.0.1:9"))
    for handle in ("", "../x", "a?force=1", "é"):
        provider.remove(handle)


def test_the_container_is_named_after_cluster_and_host() -> None:
    assert container_name("c1", "e5-1") == "roq-c1-e5-1"
