"""Which registry an address names."""

from pathlib import Path

import pytest

from roq.coordination.addresses import file_of, name_of, open_registry
from roq.coordination.file import FileRegistry
from roq.coordination.zookeeper import ZooKeeperRegistry
from roq.errors import ConfigError


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
