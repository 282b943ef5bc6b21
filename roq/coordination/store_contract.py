"""The few primitives of an ensemble that the registry is built on: the seam to the network.

A store knows nodes, sessions, one-shot watches and transactions, and nothing of leaders or hosts.
It promises its user, the registry:

1. Everything is called in the user's loop, in the order in which it happened.
2. Each operation is answered exactly once. When the connection goes, all outstanding operations
   are answered with `RegistryAway` first, then the session change is told; nothing late follows.
3. A watch fires at most once and is gone, without being called, once the connection is gone: the
   user looks again after each CONNECTED. The same function watches the same path once.
4. After CONNECTED, operations take effect in the order in which they were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from roq.coordination.registry_contract import (
    ANY_VERSION,
    Committed,
    Create,
    Delete,
    Node,
    Reason,
    SessionState,
    Set,
)
from roq.errors import RegistryAway


@dataclass(frozen=True, slots=True)
class CreateNext:
    """Make an ephemeral node whose name is `path` plus a rising number of ten digits."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Check:
    """Let the transaction through only if the node exists and has this version."""

    path: str
    version: int = ANY_VERSION


Step: TypeAlias = Create | CreateNext | Set | Delete | Check


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was done, because of the step at `index`."""

    index: int
    reason: Reason


Watch: TypeAlias = Callable[[], None]
MultiResult: TypeAlias = Committed | Refused | RegistryAway


class Store(Protocol):
    """A connection to an ensemble that keeps itself up; see the promises above."""

    @property
    def session(self) -> int:
        """The present session, 0 before the first."""
        ...

    def start(self, on_session: Callable[[SessionState], None]) -> None:
        """Connect and keep connected, telling each change of the session."""
        ...

    def read(
        self, path: str, watch: Watch | None, done: Callable[[Node | RegistryAway | None], None]
    ) -> None:
        """Fetch a node; `watch` fires when its data changes, or it is made or deleted."""
        ...

    def children(
        self,
        path: str,
        watch: Watch | None,
        done: Callable[[tuple[str, ...] | RegistryAway | None], None],
    ) -> None:
        """Fetch the names below a node, None if it is missing; `watch` fires when that changes."""
        ...

    def multi(self, steps: Sequence[Step], done: Callable[[MultiResult], None]) -> None:
        """Do all steps or none; at least one."""
        ...

    def restart(self, reason: str) -> None:
        """Give the session up, if there is one, and try anew after a while: it is of no use."""
        ...

    def close(self) -> None:
        """End the session; nothing is called any more. Bounded; idempotent."""
        ...
