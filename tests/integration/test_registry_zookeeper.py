"""The registry in a real ZooKeeper keeps the same contract as the one in memory."""

import itertools
from collections.abc import Iterator
from functools import partial

import pytest
from founding import end_session
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from posting import Loop
from registry_contract import RegistryContract
from tcp_relay import TcpRelay
from zookeeper_server import EmbeddedZooKeeper

from roq.coordination.registry_contract import (
    ANY_VERSION,
    Committed,
    Conflict,
    Create,
    Node,
    Reason,
    Registry,
    RegistryDenied,
    SessionState,
    Set,
)
from roq.coordination.zookeeper import REQUESTS_UNDER_WAY, ZooKeeperRegistry
from roq.errors import RegistryAway

pytestmark = pytest.mark.integration

SESSION_SECONDS = 10.0
"""A machine that does other work must not end it."""
_roots = itertools.count(1)


class InZooKeeper:
    """Registries of one cluster, each behind a relay of its own."""

    def __init__(self, server: EmbeddedZooKeeper) -> None:
        self.loop = Loop()
        self.root = f"/test/RoQ-{next(_roots)}"
        self.rebuild_seconds = 2 * SESSION_SECONDS
        host, port = server.address.rsplit(":", 1)
        self._target = (host, int(port))
        self._address = server.address
        self._relays: dict[Registry, TcpRelay] = {}

    def registry(self) -> ZooKeeperRegistry:
        relay = TcpRelay(self._target)
        made = ZooKeeperRegistry(
            relay.address, self.loop.post, root=self.root, session_seconds=SESSION_SECONDS,
            rebuild_seconds=self.rebuild_seconds,
        )  # fmt: skip
        self._relays[made] = relay
        return made

    def cut(self, registry: Registry) -> None:
        self._relays[registry].cut()

    def mend(self, registry: Registry) -> None:
        self._relays[registry].mend()

    def expire(self, registry: Registry) -> None:
        marker = Create("/marker", ephemeral=True)
        made = self.loop.ask(partial(registry.commit, [marker], None))
        assert isinstance(made, Committed)
        assert isinstance(registry, ZooKeeperRegistry)
        end_session(registry, self._relays[registry], self._address)
        observer = self.registry()
        observer.start(lambda _: None)
        self.loop.until(lambda: observer.state is SessionState.CONNECTED, "an observer")
        assert self.loop.ask(partial(observer.read, marker.path)) is None

    def close(self) -> None:
        for registry, relay in self._relays.items():
            registry.close()
            relay.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def ensemble(server: EmbeddedZooKeeper) -> Iterator[InZooKeeper]:
    made = InZooKeeper(server)
    yield made
    made.close()


@pytest.fixture
def tool(server: EmbeddedZooKeeper) -> Iterator[KazooClient]:
    """What other programs write with."""
    client = KazooClient(hosts=server.address)
    client.start()
    yield client
    client.stop()
    client.close()


class TestZooKeeperRegistry(RegistryContract):
    def test_a_tree_that_was_deleted_is_made_anew(self, ensemble: InZooKeeper) -> None:  # type: ignore[override]
        ensemble.rebuild_seconds = 1.0  # it gives its session up, and comes back after so long
        super().test_a_tree_that_was_deleted_is_made_anew(ensemble)

    def test_two_clusters_share_one_ensemble(
        self, ensemble: InZooKeeper, server: EmbeddedZooKeeper
    ) -> None:
        other = InZooKeeper(server)
        one, _ = self.open(ensemble)
        two, _ = self.open(other)
        self.commit(ensemble, one, Create("/queues/a"))
        assert self.read(other, two, "/queues/a") is None
        other.close()

    def test_answers_more_requests_than_it_has_under_way(self, ensemble: InZooKeeper) -> None:
        registry, _ = self.open(ensemble)
        answers: list[Node | RegistryAway | None] = []
        many = REQUESTS_UNDER_WAY * 10
        for _ in range(many):
            registry.read("/queues", answers.append)
        ensemble.loop.until(lambda: len(answers) == many, "all answers")
        assert all(isinstance(answer, Node) for answer in answers)

    def test_requests_under_way_are_answered_when_the_connection_breaks(
        self, ensemble: InZooKeeper
    ) -> None:
        registry, states = self.open(ensemble)
        told: list[object] = []
        ensemble.cut(registry)
        many = REQUESTS_UNDER_WAY * 3
        for _ in range(many):
            registry.read("/queues", told.append)
        ensemble.loop.until(lambda: len(told) == many, "all answers")
        ensemble.loop.until(lambda: states[-1] is SessionState.SUSPENDED, "the interruption")
        ensemble.mend(registry)
        ensemble.loop.until(lambda: states[-1] is SessionState.CONNECTED, "the connection")
        assert len(told) == many

    def test_a_data_node_as_large_as_allowed_is_stored(self, ensemble: InZooKeeper) -> None:
        registry, _ = self.open(ensemble)
        data = bytes(1_000_000)
        assert self.commit(ensemble, registry, Create("/queues/a", data)) == Committed((0,))
        node = self.read(ensemble, registry, "/queues/a")
        assert isinstance(node, Node)
        assert node.data == data

    def test_a_node_without_data_is_an_empty_one(
        self, ensemble: InZooKeeper, tool: KazooClient
    ) -> None:
        registry, _ = self.open(ensemble)
        tool.create(f"{ensemble.root}/queues/nothing", None)
        node = Node("/queues/nothing", b"", 0)
        assert self.read(ensemble, registry, "/queues/nothing") == node
        assert ensemble.loop.ask(partial(registry.read_tree, "/queues")) == [node]

    def test_what_must_not_be_read_costs_nothing_else(
        self, ensemble: InZooKeeper, tool: KazooClient
    ) -> None:
        registry, _ = self.open(ensemble)
        own = [make_digest_acl("somebody", "else", all=True)]
        tool.create(f"{ensemble.root}/queues/locked", b"secret", acl=own)
        self.commit(ensemble, registry, Create("/queues/open", b"x"))
        locked = Node("/queues/locked", b"", ANY_VERSION)
        found = ensemble.loop.ask(partial(registry.read_tree, "/queues"))
        assert found == [locked, Node("/queues/open", b"x", 0)]
        assert isinstance(self.read(ensemble, registry, "/queues/locked"), RegistryDenied)
        assert self.commit(ensemble, registry, Set("/queues/locked", b"")) == Conflict(
            "/queues/locked", Reason.DENIED
        )
        tool.add_auth("digest", "somebody:else")
        tool.set_acls(f"{ensemble.root}/queues", own)
        # Nothing to be seen is not the same as nothing.
        assert isinstance(ensemble.loop.ask(partial(registry.read_tree, "/queues")), RegistryDenied)
        assert registry.state is SessionState.CONNECTED

    def test_nothing_can_be_made_below_a_node_that_somebody_has_made_ephemeral(
        self, ensemble: InZooKeeper, tool: KazooClient
    ) -> None:
        registry, _ = self.open(ensemble)
        tool.delete(f"{ensemble.root}/queues")
        tool.create(f"{ensemble.root}/queues", b"", ephemeral=True)
        refused = self.commit(ensemble, registry, Create("/queues/a"))
        assert refused == Conflict("/queues/a", Reason.MISSING)
