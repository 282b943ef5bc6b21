"""Which hosts are there: those with a node in the registry that ends with a session.

A node that ends with none, as is made by hand or by copying a registry, is no sign
of life: it would keep a host from being taken for lost for ever.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from roq.coordination.registry_contract import HOSTS, Node, Registry, RegistryDenied
from roq.errors import RegistryAway
from roq.gcm.state.records import is_host

log = logging.getLogger(__name__)

READS_UNDER_WAY: Final = 16


class Presence:
    """Looks at each node once when it appears, and tells who is there.

    Args:
        registry: where the nodes stand.
        tell: called with the hosts that are there, after each change.
    """

    def __init__(self, registry: Registry, tell: Callable[[frozenset[str]], None]) -> None:
        self._registry = registry
        self._tell = tell
        self._names: frozenset[str] = frozenset()
        self._hosts: set[str] = set()
        self._foreign: set[str] = set()
        self._waiting: deque[str] = deque()
        self._asked: set[str] = set()

    def listed(self, names: tuple[str, ...]) -> None:
        """There are nodes of these names now."""
        self._names = frozenset(filter(is_host, names))
        self._hosts &= self._names
        self._foreign &= self._names  # looked at again: the host's own may stand there by now
        self._waiting = deque(sorted(self._names - self._hosts - self._asked))
        self._advance()

    def _advance(self) -> None:
        while self._waiting and len(self._asked) < READS_UNDER_WAY:
            name = self._waiting.popleft()
            self._asked.add(name)
            self._registry.read(f"{HOSTS}/{name}", partial(self._read, name))
        if not self._asked:
            self._tell(frozenset(self._hosts))

    def _read(self, name: str, node: Node | RegistryAway | None) -> None:
        self._asked.discard(name)
        if isinstance(node, RegistryAway) and not isinstance(node, RegistryDenied):
            self._waiting.clear()  # all are listed again after the next connection
            return
        if isinstance(node, Node) and node.owner:
            self._foreign.discard(name)
            self._hosts |= {name} & self._names
        elif node is not None and name not in self._foreign:
            self._foreign.add(name)
            log.warning(
                "%s/%s belongs to no session, so it is no sign of life of a host", HOSTS, name,
                extra={"event": "foreign_host"},
            )  # fmt: skip
        self._advance()
