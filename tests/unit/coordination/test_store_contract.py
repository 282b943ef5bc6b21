"""What a registry is built on keeps its promises, in memory and in a file."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from contracts import broken
from paper_store import PaperStore
from posting import Loop

from roq.coordination.file import FileStore
from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.coordination.registry_contract import (
    ANY_VERSION,
    Committed,
    Create,
    Delete,
    Reason,
    SessionState,
    Set,
)
from roq.coordination.store_contract import Check, CreateNext, Refused, Store
from roq.coordination.zookeeper import ZooKeeperStore
from roq.errors import RegistryAway


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, loop: Loop, tmp_path: Path) -> Iterator[Store]:
    made: Store = (
        FileStore(tmp_path / "registry.db", loop.post, 6.0)
        if request.param == "file"
        else MemoryRegistry(MemoryEnsemble(), loop.post)._memory
    )
    states: list[SessionState] = []
    made.start(states.append)
    loop.until(lambda: SessionState.CONNECTED in states, "a connection")
    yield made
    made.close()


def test_every_store_is_asked_alike(store: Store) -> None:
    for kept_by in (store, ZooKeeperStore, PaperStore()):
        assert broken(Store, kept_by) == []


def test_a_transaction_is_done_or_the_step_is_named_that_did_not_fit(
    loop: Loop, store: Store
) -> None:
    steps = [Create("/a"), Create("/a/b", b"1"), Set("/a/b", b"2"), Set("/a/b", b"3", 1)]
    assert loop.ask(partial(store.multi, [*steps, Check("/a/b", 2)])) == Committed((0, 0, 1, 2, 2))
    node = loop.ask(partial(store.read, "/a/b", None))
    assert (node.data, node.version) == (b"3", 2)
    for index, step, reason in (
        (1, Create("/a"), Reason.EXISTS),
        (1, Create("/c/d"), Reason.MISSING),
        (1, Set("/a/b", b"3", 0), Reason.VERSION),
        (1, Check("/a/b", 0), Reason.VERSION),
        (1, Check("/c"), Reason.MISSING),
        (1, Delete("/a"), Reason.NOT_EMPTY),
    ):
        assert loop.ask(partial(store.multi, [Create("/x"), step])) == Refused(index, reason)
    assert loop.ask(partial(store.children, "", None)) == ("a",)
    assert Check("/a").version == ANY_VERSION


def test_nodes_that_are_numbered_have_names_in_their_order_and_end_with_the_session(
    loop: Loop, store: Store
) -> None:
    loop.ask(partial(store.multi, [Create("/line")]))
    for _ in range(3):
        loop.ask(partial(store.multi, [CreateNext("/line/n-", b"me")]))
    names = loop.ask(partial(store.children, "/line", None))
    assert names == tuple(sorted(names))
    assert [len(each) for each in names] == [len("n-") + 10] * 3
    node = loop.ask(partial(store.read, f"/line/{names[0]}", None))
    assert (node.data, node.owner) == (b"me", store.session)
    assert store.session != 0


def test_a_watch_fires_once_also_if_it_was_asked_for_twice(loop: Loop, store: Store) -> None:
    fired: list[str] = []

    def told() -> None:
        fired.append("/a")

    for _ in range(2):
        assert loop.ask(partial(store.read, "/a", told)) is None
    loop.ask(partial(store.multi, [Create("/a")]))
    loop.until(lambda: fired != [], "the watch")
    loop.ask(partial(store.multi, [Set("/a", b"1")]))
    loop.ask(partial(store.read, "/a", None))
    assert fired == ["/a"]


def test_operations_take_effect_in_the_order_in_which_they_were_asked_for(
    loop: Loop, store: Store
) -> None:
    told: list[object] = []
    store.multi([Create("/a", b"1")], told.append)
    store.read("/a", None, lambda node: told.append(node.data))
    store.multi([Set("/a", b"2")], told.append)
    store.read("/a", None, lambda node: told.append(node.data))
    loop.until(lambda: len(told) == 4, "all answers")
    assert told == [Committed((0,)), b"1", Committed((1,)), b"2"]


def test_whoever_is_not_connected_is_answered_all_the_same(loop: Loop, tmp_path: Path) -> None:
    file = FileStore(tmp_path / "registry.db", loop.post, 6.0)
    memory = MemoryRegistry(MemoryEnsemble(), loop.post)._memory
    for each in (file, memory):
        assert each.session == 0
        assert isinstance(loop.ask(partial(each.read, "/a", None)), RegistryAway)
        each.close()
        each.close()


def test_nothing_is_called_after_the_end(loop: Loop, store: Store) -> None:
    told: list[object] = []
    store.read("/a", None, told.append)
    store.close()
    loop.drain()
    assert told == []
