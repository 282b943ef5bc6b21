"""A host in the registry: one ephemeral node that is there as long as its manager is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from roq.coordination.registry_contract import (
    Committed,
    Conflict,
    Create,
    Delete,
    Node,
    Reason,
    RegistryDenied,
    Set,
)
from roq.coordination.store_contract import MultiResult, Refused, Step, Store
from roq.errors import RegistryAway
from roq.number_ranges import UNREADABLE

log = logging.getLogger(__name__)

_ATTEMPTS_MAX = 8


class _Written(msgspec.Struct):
    """What the node of a host says of the process that wrote it."""

    epoch: int = 0


class Registration:
    """Keeps one node: looks, makes it what it should be, and looks again when it changes.

    A process that registers for the first time takes the name from its holder. Later on the epoch
    in the node decides. A higher one than its own is of a newer process, which has taken the name:
    the node is left alone, as is one that names no epoch. One that is not higher is its own, of an
    earlier session, or of a process before it: a slow registry may carry out what that one asked
    for long after it was killed. A node that ends with no session is nobody's; if it cannot be
    removed, the host goes on without its own.
    """

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._path = path
        self._data = b""
        self._done: Callable[[Committed | Conflict], None] | None = None
        self._entitled = True
        self._stands = False
        self._looking = False
        self._again = False
        self._attempts = 0

    def keep(self, data: bytes, done: Callable[[Committed | Conflict], None]) -> None:
        """What the node shall say, and whom to tell once it does."""
        self._entitled = self._entitled or self._done is None
        self._data = data
        self._done = done
        self._stands = False

    def changed(self) -> None:
        """There is something new to write. A look that is under way will see to it."""
        self._look()

    def resume(self) -> None:
        """The connection is back; what was under way is not answered any more."""
        self._looking = False
        self._look()

    def forget(self) -> None:
        """The session is lost, and the node with it."""
        self._stands = False
        self._attempts = 0

    def _look(self) -> None:
        if self._done is None:
            return
        if self._looking:
            self._again = True
            return
        self._looking = True
        self._again = False
        self._store.read(self._path, self._look, self._seen)

    def _seen(self, node: Node | RegistryAway | None) -> None:
        session = self._store.session
        match node:
            case RegistryDenied():
                self._looking = False
                self._obstructed(str(node))
            case RegistryAway():
                self._looking = False  # the session event that follows makes it look again
            case None:
                self._write([Create(self._path, self._data, ephemeral=True)])
            case Node(owner=owner, data=data) if owner == session and data == self._data:
                self._kept(node)
            case Node(owner=owner) if owner == session:
                self._write([Set(self._path, self._data)])
            case Node(owner=owner, data=data) if self._entitled or not owner or self._leads(data):
                log.warning(
                    "%s stood for another session and is taken over", self._path,
                    extra={"event": "host_taken_over"},
                )  # fmt: skip
                self._write([Delete(self._path), Create(self._path, self._data, ephemeral=True)])
            case _:
                self._taken()

    def _write(self, steps: list[Step]) -> None:
        self._attempts += 1
        if self._attempts > _ATTEMPTS_MAX:
            self._taken()
            return
        self._store.multi(steps, partial(self._written, steps))

    def _written(self, steps: list[Step], result: MultiResult) -> None:
        self._looking = False
        match result:
            case Committed():
                self._look()
            case Refused(index=index, reason=Reason.MISSING) if isinstance(steps[index], Create):
                self._store.restart(f"cannot make {self._path}: what it stands below is gone")
            case Refused(reason=Reason.NOT_EMPTY | Reason.DENIED as reason):
                self._obstructed(f"it cannot be replaced: {reason}")
            case Refused():
                self._look()
            case RegistryAway():
                pass  # perhaps it was done: the session event that follows makes it look again

    def _leads(self, data: bytes) -> bool:
        """Whether no newer process than this one has written that."""
        return data == self._data or 0 < _epoch(data) <= _epoch(self._data)

    def _kept(self, node: Node) -> None:
        self._looking = False
        self._entitled = False
        self._attempts = 0
        self._registered(node.version)
        if self._again:
            self._look()

    def _obstructed(self, why: str) -> None:
        """The host goes on without a node of its own; its reports are enough while it lives."""
        log.error(
            "what stands at %s in the registry is not of this host: %s; remove it", self._path, why,
            extra={"event": "host_obstructed"},
        )  # fmt: skip
        self._attempts = 0
        self._registered()
        if self._again:
            self._look()

    def _registered(self, version: int = 0) -> None:
        if not self._stands:
            self._stands = True
            if self._done is not None:
                self._done(Committed((version,)))

    def _taken(self) -> None:
        done, self._done = self._done, None
        self._looking = False
        self._stands = False
        log.error("%s is held by another process", self._path, extra={"event": "host_taken"})
        if done is not None:
            done(Conflict(self._path, Reason.EXISTS))


def _epoch(data: bytes) -> int:
    """Of the process that wrote this; 0 if it does not say."""
    try:
        return msgspec.json.decode(data, type=_Written).epoch
    except UNREADABLE:
        return 0
