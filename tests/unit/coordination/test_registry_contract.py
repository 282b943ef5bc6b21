"""What stands in a registry fits there, and every registry has what its users ask for."""

import pytest
from contracts import broken

from roq.coordination.file import FileRegistry
from roq.coordination.memory import MemoryRegistry
from roq.coordination.registry_contract import (
    ANY_VERSION,
    CLUSTER,
    DATA_BYTES_MAX,
    EPOCH_MAX,
    LOST_EPOCHS,
    Create,
    Delete,
    Fence,
    Leadership,
    Node,
    Registry,
    SessionState,
    Set,
    anywhere,
    check_data,
    check_path,
    identity_of,
    ignored,
    nothing,
)
from roq.coordination.zookeeper import ZooKeeperRegistry
from roq.errors import LocalProtocolError, RegistryAway
from roq.model import HOST_EPOCH_MAX, child_epoch


@pytest.mark.parametrize("kind", [MemoryRegistry, FileRegistry, ZooKeeperRegistry])
def test_every_registry_is_asked_alike(kind: type) -> None:
    assert broken(Registry, kind) == []


@pytest.mark.parametrize("path", ["/queues", "/queues/orders", "/a/b.c", "/Aufträge", "/a/..b"])
def test_a_path_is_absolute_and_plain(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "queues", "/", "//a", "/a/", "/a//b", "/.", "/a/..", "/a/./b", "/a\0", "/a\n", "/\x7f",
     "/\x9f", "/\ud800", "/\uf8ff", "/\ufff0", "/\U0010ffff"],
)  # fmt: skip
def test_what_is_no_path_is_refused_by_all_that_have_one(path: str) -> None:
    for make in (check_path, Create, Delete, lambda each: Set(each, b"")):
        with pytest.raises(LocalProtocolError, match="registry"):
            make(path)


def test_data_fit_into_one_node_or_are_refused_with_their_size() -> None:
    assert len(check_data("/a", bytes(DATA_BYTES_MAX))) == DATA_BYTES_MAX
    for make in (check_data, Create, Set):
        with pytest.raises(LocalProtocolError, match=f"/a would hold {DATA_BYTES_MAX + 1} bytes"):
            make("/a", bytes(DATA_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("data", "identity"),
    [
        (b"c1", "c1"),
        (b"x" * 64, "x" * 64),
        (b"x" * 65, ""),
        (b"", ""),
        (b"two words", ""),
        (b"c1\n", ""),
        ("für".encode(), ""),
    ],
)
def test_an_identity_is_one_short_word_and_anything_else_cannot_be_one(
    data: bytes, identity: str
) -> None:
    assert identity_of(Node(CLUSTER, data, 0)) == identity


def test_a_registry_that_has_none_or_is_away_says_no_identity() -> None:
    assert identity_of(None) is None
    away = RegistryAway("cut")
    assert identity_of(away) is away


def test_what_a_leader_writes_carries_its_epoch_and_the_version_of_its_node() -> None:
    assert Leadership(epoch=7, version=3).fence == Fence(epoch=7, version=3)


def test_who_has_no_past_leads_anywhere_above_nothing_and_hears_of_no_problem() -> None:
    assert anywhere(None)
    assert anywhere("c1")
    assert nothing() == 0
    assert ignored("spoilt") is None


def test_a_node_lives_for_ever_and_a_version_counts_for_all_unless_it_is_said() -> None:
    assert Node("/a", b"", 0).owner == 0
    assert not Create("/a").ephemeral
    assert Set("/a", b"").version == Delete("/a").version == ANY_VERSION == -1


def test_an_epoch_fits_beside_a_count_of_children_and_many_are_left_when_some_are_skipped() -> None:
    assert EPOCH_MAX == HOST_EPOCH_MAX
    assert child_epoch(EPOCH_MAX, (1 << 16) - 1) < 1 << 36
    assert EPOCH_MAX > 1_000 * LOST_EPOCHS


def test_a_session_is_told_by_its_word() -> None:
    assert [str(each) for each in SessionState] == ["connected", "suspended", "lost"]
