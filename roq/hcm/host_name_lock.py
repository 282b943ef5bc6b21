"""Whether the name of this host is free: two host managers must not share one.

A host manager that was killed leaves its name in the registry until its session ends, and the next
one need not wait for that. So the manager that has the name is asked: one that answers keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Final

from roq.coordination.registry_contract import HOSTS, Node, Registry
from roq.errors import RegistryAway, Unavailable
from roq.model import is_address
from roq.number_ranges import UNREADABLE
from roq.protocol.control import Answer, Health, HealthRequest
from roq.runtime.rpc_connections import RpcConnections

ANSWER_SECONDS: Final = 1.0
_STOPPING: Final = "stopping"

Outcome = Callable[[str], None]
"""Called once: with the address of the other host manager, or with nothing if there is none."""


class HostNameLock:
    """Asks for one name, in the loop of its owner.

    Args:
        connections: of the host manager.
        registry: where the name may stand.
        host: the name.
        control: our own address; one that stands there is ours, from an earlier life.
    """

    def __init__(
        self,
        connections: RpcConnections,
        registry: Registry,
        host: str,
        control: str,
    ) -> None:
        self._connections = connections
        self._registry = registry
        self._host = host
        self._control = control

    def ask(self, done: Outcome) -> None:
        """Look who has the name."""
        self._registry.read(f"{HOSTS}/{self._host}", partial(self._read, done))

    def _read(self, done: Outcome, node: Node | RegistryAway | None) -> None:
        control = _control(node.data) if isinstance(node, Node) else ""
        if not control or control == self._control:
            done("")  # without the registry nothing is registered either
            return
        self._connections.ask(
            control, HealthRequest(), ANSWER_SECONDS, partial(self._answered, done, control)
        )

    def _answered(self, done: Outcome, control: str, answer: Answer | Unavailable) -> None:
        there = (
            isinstance(answer, Health)
            and (answer.role, answer.name) == ("host", self._host)
            and answer.state != _STOPPING
        )
        done(control if there else "")


def _control(data: bytes) -> str:
    """The address in what a host manager has written down; empty if there is none to ask."""
    try:
        document = json.loads(data)
    except UNREADABLE:
        return ""
    control = document.get("control") if isinstance(document, dict) else None
    return control if isinstance(control, str) and is_address(control) else ""
