"""An ensemble in memory: the same nodes, sessions, watches and transactions, without a network.

Several registries, each in its own loop or thread, share one `MemoryEnsemble`. What goes wrong in
real life is a method here: a connection that breaks (`suspend`, `resume`), a session that the
ensemble ends (`expire`), an ensemble that comes back empty (`wipe`).
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from roq.coordination.registry import StoreRegistry
from roq.coordination.registry_contract import (
    ANY_VERSION,
    CLUSTER,
    Committed,
    Create,
    Delete,
    Node,
    Post,
    Reason,
    SessionState,
    Set,
)
from roq.coordination.store_contract import Check, CreateNext, MultiResult, Refused, Step, Watch
from roq.errors import RegistryAway

log = logging.getLogger(__name__)

AWAY = "the registry in memory is suspended"


@dataclass(frozen=True, slots=True)
class _Refusal(Exception):
    reason: Reason


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


class MemoryEnsemble:
    """The nodes and sessions that registries in memory share; safe to use from several threads.

    Args:
        cluster: its identity, for those that have no configuration manager to give it one.
    """

    def __init__(self, cluster: str = "") -> None:
        self.lock = threading.RLock()
        self._sessions = itertools.count(1)
        self._live: set[int] = set()
        self._stores: list[_MemoryStore] = []
        self._wipe()
        if cluster:
            self._nodes[CLUSTER] = Node(CLUSTER, cluster.encode(), 0)

    def _wipe(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._counters: defaultdict[str, int] = defaultdict(int)

    def suspend(self) -> None:
        """Cut every registry off, as if the whole ensemble were away."""
        for store in list(self._stores):
            store.suspend()

    def resume(self) -> None:
        """Let every registry in again; sessions live on."""
        for store in list(self._stores):
            store.resume()

    def wipe(self) -> None:
        """Cut everybody off and lose all nodes and sessions: the ensemble comes back empty."""
        self.suspend()
        with self.lock:
            self._wipe()
            self._live.clear()

    def attach(self, store: _MemoryStore) -> None:
        """Take a store in; part of its construction."""
        self._stores.append(store)

    def detach(self, store: _MemoryStore) -> None:
        """Forget a store that was closed."""
        self._stores.remove(store)

    # --- what stores ask, under the lock ----------------------------------------------------------

    def open_session(self) -> int:
        """Begin a session."""
        session = next(self._sessions)
        self._live.add(session)
        return session

    def lives(self, session: int) -> bool:
        """Whether the session has not ended."""
        return session in self._live

    def end_session(self, session: int) -> None:
        """End a session and remove its ephemeral nodes."""
        self._live.discard(session)
        for path in [node.path for node in self._nodes.values() if node.owner == session]:
            del self._nodes[path]
            self._touched({path}, {_parent(path)})

    def node(self, path: str) -> Node | None:
        """The node at a path."""
        return self._nodes.get(path)

    def names(self, path: str) -> tuple[str, ...] | None:
        """The names below a path, None if it is missing."""
        if path and path not in self._nodes:
            return None
        return tuple(sorted(p[len(path) + 1 :] for p in self._nodes if _parent(p) == path))

    def transact(self, session: int, steps: Sequence[Step]) -> MultiResult:
        """Do all steps or none."""
        nodes, counters = dict(self._nodes), self._counters.copy()
        versions: list[int] = []
        changed: set[str] = set()
        parents: set[str] = set()
        for index, step in enumerate(steps):
            try:
                path, version = self._step(session, step)
            except _Refusal as refusal:
                self._nodes, self._counters = nodes, counters
                return Refused(index, refusal.reason)
            versions.append(version)
            if not isinstance(step, Check):
                changed.add(path)
            if not isinstance(step, Check | Set):
                parents.add(_parent(path))
        self._touched(changed, parents)
        return Committed(tuple(versions))

    def _step(self, session: int, step: Step) -> tuple[str, int]:
        match step:
            case Create(path=path, data=data, ephemeral=ephemeral):
                return self._create(path, data, session if ephemeral else 0)
            case CreateNext(path=path, data=data):
                number = self._counters[_parent(path)]
                return self._create(f"{path}{number:010d}", data, session)
            case Set(path=path, data=data, version=version):
                node = self._existing(path, version)
                self._nodes[path] = replace(node, data=data, version=node.version + 1)
                return path, node.version + 1
            case Delete(path=path, version=version):
                self._existing(path, version)
                if self.names(path):
                    raise _Refusal(Reason.NOT_EMPTY)
                del self._nodes[path]
                return path, ANY_VERSION
            case Check(path=path, version=version):
                return path, self._existing(path, version).version

    def _create(self, path: str, data: bytes, owner: int) -> tuple[str, int]:
        parent = _parent(path)
        if parent and parent not in self._nodes:
            raise _Refusal(Reason.MISSING)
        if path in self._nodes:
            raise _Refusal(Reason.EXISTS)
        self._counters[parent] += 1
        self._nodes[path] = Node(path, data, 0, owner)
        return path, 0

    def _existing(self, path: str, version: int) -> Node:
        node = self._nodes.get(path)
        if node is None:
            raise _Refusal(Reason.MISSING)
        if version not in {ANY_VERSION, node.version}:
            raise _Refusal(Reason.VERSION)
        return node

    def _touched(self, nodes: set[str], parents: set[str]) -> None:
        for store in list(self._stores):
            store.fire(nodes, parents | nodes)


class _MemoryStore:
    """One connection to a `MemoryEnsemble`."""

    def __init__(self, ensemble: MemoryEnsemble, post: Post) -> None:
        self._ensemble = ensemble
        self._post = post
        self._session = 0
        self._connected = False
        self._closed = False
        self._on_session: Callable[[SessionState], None] | None = None
        self._node_watches: defaultdict[str, dict[Watch, None]] = defaultdict(dict)
        self._child_watches: defaultdict[str, dict[Watch, None]] = defaultdict(dict)
        ensemble.attach(self)

    @property
    def session(self) -> int:
        return self._session

    def start(self, on_session: Callable[[SessionState], None]) -> None:
        self._on_session = on_session
        self.resume()

    def read(
        self, path: str, watch: Watch | None, done: Callable[[Node | RegistryAway | None], None]
    ) -> None:
        with self._ensemble.lock:
            if not self._connected:
                self._hand(partial(done, RegistryAway(AWAY)))
                return
            if watch is not None:
                self._node_watches[path][watch] = None
            self._hand(partial(done, self._ensemble.node(path)))

    def children(
        self,
        path: str,
        watch: Watch | None,
        done: Callable[[tuple[str, ...] | RegistryAway | None], None],
    ) -> None:
        with self._ensemble.lock:
            if not self._connected:
                self._hand(partial(done, RegistryAway(AWAY)))
                return
            if watch is not None:
                self._child_watches[path][watch] = None
            self._hand(partial(done, self._ensemble.names(path)))

    def multi(self, steps: Sequence[Step], done: Callable[[MultiResult], None]) -> None:
        with self._ensemble.lock:
            if not self._connected:
                self._hand(partial(done, RegistryAway(AWAY)))
                return
            self._hand(partial(done, self._ensemble.transact(self._session, steps)))

    def restart(self, reason: str) -> None:
        log.error("giving the session up: %s", reason, extra={"event": "registry_restart"})
        if self._connected:
            self.expire(reconnect=False)

    def close(self) -> None:
        with self._ensemble.lock:
            if self._closed:
                return
            self._closed = True
            self._disconnect()
            self._ensemble.detach(self)
            self._ensemble.end_session(self._session)

    # --- faults -----------------------------------------------------------------------------------

    def suspend(self) -> None:
        with self._ensemble.lock:
            if self._connected:
                self._disconnect()
                self._tell(SessionState.SUSPENDED)

    def resume(self) -> None:
        with self._ensemble.lock:
            if self._connected or self._closed or self._on_session is None:
                return
            if not self._ensemble.lives(self._session):
                if self._session:
                    self._tell(SessionState.LOST)
                self._session = self._ensemble.open_session()
            self._connected = True
            self._tell(SessionState.CONNECTED)

    def expire(self, *, reconnect: bool) -> None:
        with self._ensemble.lock:
            was_connected = self._connected
            self.suspend()
            self._ensemble.end_session(self._session)
            if was_connected and reconnect:
                self.resume()

    # --- what the ensemble tells ------------------------------------------------------------------

    def fire(self, nodes: set[str], children_of: set[str]) -> None:
        """Call the watches on these nodes and on the children of those."""
        for watches, paths in (
            (self._node_watches, nodes),
            (self._child_watches, children_of),
        ):
            for path in paths:
                for watch in watches.pop(path, ()):
                    self._hand(watch)

    def _disconnect(self) -> None:
        self._connected = False
        self._node_watches.clear()
        self._child_watches.clear()

    def _tell(self, state: SessionState) -> None:
        if self._on_session is not None:
            self._hand(partial(self._on_session, state))

    def _hand(self, call: Callable[[], None]) -> None:
        self._post(lambda: None if self._closed else call())


class MemoryRegistry(StoreRegistry):
    """A registry on a `MemoryEnsemble`.

    Args:
        ensemble: what it shares with the other registries of the cluster.
        post: runs a function in the owner's loop.
    """

    def __init__(self, ensemble: MemoryEnsemble, post: Post) -> None:
        self._memory = _MemoryStore(ensemble, post)
        super().__init__(self._memory, post)

    def suspend(self) -> None:
        """Break the connection; the session lives on."""
        self._memory.suspend()

    def resume(self) -> None:
        """Let the registry connect again: to its session, or to a new one if that has ended."""
        self._memory.resume()

    def expire(self, *, reconnect: bool = True) -> None:
        """Let the ensemble end the session: ephemeral nodes vanish at once.

        Args:
            reconnect: begin a new session at once, if the registry was connected.
        """
        self._memory.expire(reconnect=reconnect)
