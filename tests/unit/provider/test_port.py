"""What a request for a host may look like."""

import pytest

from roq.errors import InvalidName, InvalidRequest
from roq.provider.port import HostRequest


def test_a_request_names_cluster_and_host_and_where_the_cluster_is() -> None:
    request = HostRequest(cluster="c", name="n", managers=["m:1"], zookeeper="z:1")
    assert request.zookeeper_root == "/RoQ"
    assert request.settings == {}


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "x" * 129])
def test_names_that_could_be_paths_are_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        HostRequest(cluster=name, name="n", managers=["m:1"], zookeeper="z:1")
    with pytest.raises(InvalidName):
        HostRequest(cluster="c", name=name, managers=["m:1"], zookeeper="z:1")


def test_a_host_without_a_cluster_to_go_to_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="configuration manager and of the registry"):
        HostRequest(cluster="c", name="n", managers=[], zookeeper="z:1")
    with pytest.raises(InvalidRequest):
        HostRequest(cluster="c", name="n", managers=["m:1"], zookeeper="")
