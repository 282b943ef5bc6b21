"""Which hosts are there: a node must end with a session, and each is looked at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from roq.coordination.registry_contract import Node, Registry, RegistryDenied
from roq.errors import RegistryAway
from roq.gcm.persistence.presence import READS_UNDER_WAY, Presence


class Nodes:
    """A registry of which the test says what stands there, and when it answers."""

    def __init__(self) -> None:
        self.owners: dict[str, int | RegistryAway] = {}
        self.waiting: list[Callable[[], None]] = []
        self.reads: list[str] = []
        self.told: list[frozenset[str]] = []
        self.presence = Presence(cast("Registry", self), self.told.append)

    def read(self, path: str, done: Callable[[Node | RegistryAway | None], None]) -> None:
        self.reads.append(path)

        def answer() -> None:
            owner = self.owners.get(path.rpartition("/")[2])
            done(Node(path, b"", 0, owner) if isinstance(owner, int) else owner)

        self.waiting.append(answer)

    def listed(self, **owners: int | RegistryAway) -> None:
        self.owners = dict(owners)
        self.presence.listed(tuple(owners))

    def answer(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


def test_hosts_whose_nodes_end_with_a_session_are_there() -> None:
    nodes = Nodes()
    nodes.listed(h1=7, h2=0, h3=RegistryDenied("no"), h4=9)
    assert nodes.told == []
    nodes.answer()
    assert nodes.told == [frozenset({"h1", "h4"})]


def test_names_that_no_host_can_have_are_not_looked_at() -> None:
    nodes = Nodes()
    nodes.presence.listed(("a b", "h\u00a0", ""))
    assert (nodes.reads, nodes.told) == ([], [frozenset()])


def test_a_host_that_is_known_is_not_looked_at_again_and_is_gone_at_once() -> None:
    nodes = Nodes()
    nodes.listed(h1=7, h2=8)
    nodes.answer()
    nodes.listed(h1=7)
    assert nodes.told[-1] == {"h1"}
    assert len(nodes.reads) == 2


def test_a_foreign_node_that_a_host_has_replaced_is_seen() -> None:
    nodes = Nodes()
    nodes.listed(h1=0)
    nodes.answer()
    nodes.listed(h1=7)
    nodes.answer()
    assert nodes.told == [frozenset(), frozenset({"h1"})]


def test_nothing_is_told_of_a_look_that_was_cut_short() -> None:
    nodes = Nodes()
    nodes.listed(h1=7, h2=RegistryAway("away"))
    nodes.answer()
    assert nodes.told == []
    nodes.listed(h1=7, h2=8)
    nodes.answer()
    assert nodes.told == [frozenset({"h1", "h2"})]


def test_a_node_that_goes_while_it_is_looked_at_is_not_there() -> None:
    nodes = Nodes()
    nodes.listed(h1=7, h2=8)
    nodes.listed(h1=7)
    nodes.owners = {"h1": 7, "h2": 8}
    nodes.answer()
    assert nodes.told[-1] == {"h1"}


def test_many_nodes_are_looked_at_a_few_at_a_time() -> None:
    nodes = Nodes()
    names = {f"h{number}": 7 for number in range(5 * READS_UNDER_WAY)}
    nodes.listed(**names)
    assert len(nodes.waiting) == READS_UNDER_WAY
    nodes.answer()
    assert nodes.told == [frozenset(names)]
    assert len(nodes.reads) == len(names)
