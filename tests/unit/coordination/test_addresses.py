"""Addresses of an ensemble and the place of a cluster in it."""

from pathlib import Path

import pytest

from roq.coordination.addresses import check_root, check_servers, file_of, name_of, open_registry
from roq.coordination.file import FileRegistry
from roq.coordination.zookeeper import ZooKeeperRegistry
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


@pytest.mark.parametrize("address", ["file:/var/lib/c.db", "file:///var/lib/c.db"])
def test_a_file_is_named_by_its_whole_path(address: str) -> None:
    assert file_of(address) == Path("/var/lib/c.db")


@pytest.mark.parametrize(
    "address",
    ["file:", "file:c.db", "file:/", "file:///", "file://host/c.db", "file:/a\0b", "file:./c.db"],
)
def test_what_names_no_file_of_this_machine_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="write its whole path"):
        file_of(address)


def test_the_address_says_which_registry_it_is(tmp_path: Path) -> None:
    file = f"file:{tmp_path}/cluster.db"
    for address, kind in ((file, FileRegistry), ("127.0.0.1:1", ZooKeeperRegistry)):
        made = open_registry(address, lambda _: None, root="/RoQ", session_seconds=6.0)
        assert isinstance(made, kind)
        made.close()
    with pytest.raises(ConfigError, match="no address of a ZooKeeper server"):
        open_registry("sqlite:x", lambda _: None, root="/RoQ", session_seconds=6.0)


def test_a_sentence_says_what_the_registry_is() -> None:
    assert name_of("zk1:2181,zk2:2181") == "ZooKeeper"
    assert name_of("file:/var/lib/c.db") == "the registry /var/lib/c.db"
