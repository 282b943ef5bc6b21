"""Whether the name of this host is free: two host managers must not share one.

A host manager that was killed leaves its name in the registry until its session ends, and the next
one need not wait for that. So the manager that has the name is asked: one that answers keeps it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import zmq

from roq.coordination.port import HOSTS, Node, Registry
from roq.errors import RegistryAway, Unavailable
from roq.protocol.control import Answer, Health, HealthRequest
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import RpcClient

ANSWER_SECONDS: Final = 1.0
_STOPPING: Final = "stopping"

log = logging.getLogger(__name__)

Outcome = Callable[[str], None]
"""Called once: with the address of the other host manager, or with nothing if there is none."""


class HostNameLock:
    """Asks for one name, in the loop of its owner.

    Args:
        reactor, context: of the host manager.
        registry: where the name may stand.
        host: the name.
        control: our own address; one that stands there is ours, from an earlier life.
    """

    def __init__(
        self,
        reactor: Reactor,
        context: zmq.Context[zmq.Socket[bytes]],
        registry: Registry,
        host: str,
        control: str,
    ) -> None:
        self._reactor = reactor
        self._context = context
        self._registry = registry
        self._host = host
        self._control = control
        self._client: RpcClient | None = None

    def ask(self, done: Outcome) -> None:
        """Look who has the name."""
        self._registry.read(f"{HOSTS}/{self._host}", partial(self._read, done))

    def close(self) -> None:
        """Wait for nobody any more."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _read(self, done: Outcome, node: Node | RegistryAway | None) -> None:
        control = _control(node.data) if isinstance(node, Node) else ""
        if not control or control == self._control:
            done("")  # without the registry nothing is registered either
            return
        try:
            self._client = RpcClient(
                self._reactor,
                self._context,
                control,
                on_lost=lambda reason: self._answered(done, Unavailable(reason)),
            )
        except zmq.ZMQError:
            done("")
            return
        self._client.request(HealthRequest(), ANSWER_SECONDS, partial(self._answered, done))

    def _answered(self, done: Outcome, answer: Answer | Unavailable) -> None:
        if self._client is None:
            return  # told already
        endpoint = self._client.endpoint
        self.close()
        there = (
            isinstance(answer, Health)
            and (answer.role, answer.name) == ("host", self._host)
            and answer.state != _STOPPING
        )
        done(endpoint if there else "")


def _control(data: bytes) -> str:
    """The address in what a host manager has written down; empty if there is none to ask."""
    try:
        document = json.loads(data)
    except ValueError:
        return ""
    control = document.get("control") if isinstance(document, dict) else None
    usable = isinstance(control, str) and control.startswith("tcp://") and len(control) <= 300
    return str(control) if usable and str(control).isprintable() else ""
