"""Addresses of an ensemble and the place of a cluster in it."""

import pytest

from roq.coordination.addresses import check_root, check_servers
from roq.errors import ConfigError


@pytest.mark.parametrize(
    "servers", ["localhost", "localhost:2181", "a.b-c:1, d:2", "[::1]:2181", "10.0.0.1:2181,b"]
)
def test_addresses_of_an_ensemble_are_taken(servers: str) -> None:
    assert check_servers(servers) == servers


@pytest.mark.parametrize(
    "servers", ["", "a:1,,b:2", "host:port", "host:2181/chroot", "a b:1", "::1:2181", "host:123456"]
)
def test_malformed_addresses_are_refused_at_once(servers: str) -> None:
    with pytest.raises(ConfigError):
        check_servers(servers)


@pytest.mark.parametrize("root", ["", "/", "RoQ", "/RoQ/", "/a//b", "/../b"])
def test_a_root_that_is_no_path_is_refused_at_once(root: str) -> None:
    with pytest.raises(ConfigError, match="write it like /RoQ"):
        check_root(root)
