"""Connections that are shared, and what is told when one ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from answering import Answering

from roq.errors import Unavailable
from roq.protocol.control import Answer, Done, LocateRequest
from roq.runtime import rpc_connections
from roq.runtime.rpc_connections import NotReached, RpcConnections

QUESTION = LocateRequest(QName="orders")


class World(Answering):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[Answer | Unavailable | str] = []
        self.connections = RpcConnections(
            self.reactor, self.context, lambda address, _: self.told.append(f"{address} is lost")
        )

    def ask(self, address: str, timeout: float = 30.0) -> None:
        self.connections.ask(address, QUESTION, timeout, self.told.append)


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world
        world.connections.close()


def test_those_that_wait_are_told_before_the_owner_when_a_connection_ends(world: World) -> None:
    server = world.server(lambda _: None)
    for _ in range(2):
        world.ask(server)
    world.run(lambda: len(world.asked) == 2)
    world._servers.pop().close()
    world.run(lambda: len(world.told) == 3)
    assert [type(each) for each in world.told] == [NotReached, NotReached, str]
    assert world.told[2] == f"{server} is lost"


def test_a_connection_over_which_nothing_is_asked_is_given_back_and_another_one_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_connections, "IDLE_SECONDS", 0.01)
    server = world.server(lambda _: Done())
    for times in (1, 2):
        world.ask(server)
        world.run(lambda times=times: len(world.told) == times)
        world.run(lambda: not world.connections._clients)
    assert all(isinstance(each, Done) for each in world.told)


def test_who_is_late_is_not_taken_for_one_that_cannot_be_reached(world: World) -> None:
    world.ask(world.server(lambda _: None), timeout=0.05)
    world.ask("nonsense")
    world.run(lambda: len(world.told) == 2)
    assert {type(each) for each in world.told} == {Unavailable, NotReached}
