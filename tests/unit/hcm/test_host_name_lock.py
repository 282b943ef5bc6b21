"""Whether the name of a host is free: who has it is asked, and keeps it if it answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast

import pytest

from roq.coordination.registry_contract import HOSTS, Node, Registry
from roq.errors import RegistryAway, Unavailable
from roq.hcm.host_name_lock import HostNameLock
from roq.protocol.control import Answer, Health, HealthRequest
from roq.runtime.rpc_connections import RpcConnections

OURS, THEIRS = "tcp://10.0.0.1:5010", "tcp://10.0.0.2:5010"


def host(name: str = "h1", role: str = "host", state: str = "serving") -> Health:
    return Health(role=role, name=name, ready=True, state=state)


class World:
    """A registry with one node, and one process that may answer."""

    def __init__(self, data: bytes | None, answer: Answer | Unavailable | None = None) -> None:
        self.data = data
        self.answer = answer
        self.asked: list[str] = []
        self.outcomes: list[str] = []

    def read(self, path: str, done: Callable[[Node | RegistryAway | None], None]) -> None:
        assert path == f"{HOSTS}/h1"
        done(None if self.data is None else Node(path, self.data, 0))

    def ask(
        self,
        endpoint: str,
        message: HealthRequest,
        seconds: float,
        done: Callable[[Answer | Unavailable], None],
    ) -> None:
        self.asked.append(endpoint)
        assert self.answer is not None
        done(self.answer)

    def look(self) -> list[str]:
        lock = HostNameLock(cast("RpcConnections", self), cast("Registry", self), "h1", OURS)
        lock.ask(self.outcomes.append)
        return self.outcomes


def written(control: object) -> bytes:
    return json.dumps({"control": control}).encode()


def test_another_host_manager_that_answers_keeps_the_name() -> None:
    world = World(written(THEIRS), host())
    assert world.look() == [THEIRS]
    assert world.asked == [THEIRS]


@pytest.mark.parametrize(
    "answer",
    [
        Unavailable("nobody answered"),
        host(name="h2"),
        host(role="gcm"),
        host(state="stopping"),
    ],
)
def test_one_that_is_gone_stops_or_is_something_else_does_not(
    answer: Answer | Unavailable,
) -> None:
    assert World(written(THEIRS), answer).look() == [""]


@pytest.mark.parametrize(
    "data",
    [None, b"", b"{", b"[]", b"[" * 100_000, b"7", written(7), written(""), written("no address")],
)
def test_where_nobody_can_be_asked_nobody_is_and_the_name_is_free(data: bytes | None) -> None:
    world = World(data)
    assert world.look() == [""]
    assert world.asked == []


def test_what_an_earlier_life_of_ours_has_written_is_ours() -> None:
    world = World(written(OURS))
    assert world.look() == [""]
    assert world.asked == []
