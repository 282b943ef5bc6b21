"""The registry as the machine's shell uses it: leadership in, definitions in and out.

The machine says what shall stand under a path; this says whether that means create, set or delete,
and adds the leader's fence. When the outcome of a commit is unknown, or the registry holds
something else than it should, everything is read again and handed to the machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from roq.coordination.port import (
    CANDIDATES,
    HOSTS,
    QUEUES,
    CommitResult,
    Committed,
    Conflict,
    Create,
    Delete,
    Leadership,
    Node,
    Operation,
    Registry,
    SessionState,
    Set,
)
from roq.errors import NotLeader, RegistryAway, RequestError, StaleEpoch
from roq.gcm import events, records
from roq.gcm.events import Commit, Drop, Put

log = logging.getLogger(__name__)


class Definitions:
    """Feeds the machine from the registry and carries its commits out.

    Args:
        registry: started by `start`, closed by `close`.
        me: what the other managers learn of this one.
        feed: takes an event to the machine.
        on_connected: called once, when the registry was reached for the first time.
    """

    def __init__(
        self,
        registry: Registry,
        me: records.Manager,
        feed: Callable[[events.Event], None],
        on_connected: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._me = me
        self._feed = feed
        self._on_connected = on_connected
        self._leadership: Leadership | None = None
        self._serving = False
        """Whether the machine has been told that it leads, under `_leadership`."""
        self._known: set[str] = set()
        self._reached = False
        self._reading = 0

    def start(self) -> None:
        """Connect, and stand for election."""
        self._registry.start(self._session_changed)
        self._registry.campaign(records.encode(self._me), self._lead, self._follow)
        self._registry.watch_children(HOSTS, self._hosts_changed)
        self._registry.watch_children(CANDIDATES, self._candidates_changed)

    def close(self) -> None:
        """End the session; leadership passes on at once."""
        self._registry.close()

    def commit(self, commit: Commit) -> None:
        """Carry a commit out; the machine gets its outcome as an event."""
        leadership = self._leadership
        if leadership is None:
            error = RegistryAway("registry away")
            self._feed(events.CommitFailed(commit.token, error))
            return
        operations: list[Operation] = []
        for change in commit.changes:
            match change:
                case Put(path=path, data=data) if path in self._known:
                    operations.append(Set(path, data))
                case Put(path=path, data=data):
                    operations.append(Create(path, data))
                case Drop(path=path) if path in self._known:
                    operations.append(Delete(path))
                case Drop():
                    continue
        self._registry.commit(operations, leadership.fence, partial(self._committed, commit))

    def _committed(self, commit: Commit, result: CommitResult) -> None:
        error: RequestError
        match result:
            case Committed():
                for change in commit.changes:
                    if isinstance(change, Put):
                        self._known.add(change.path)
                    else:
                        self._known.discard(change.path)
                self._feed(events.Committed(commit.token))
                return
            case RegistryAway():
                error = RegistryAway("registry away: it is not known whether this was done")
            case StaleEpoch():
                error = NotLeader("this configuration manager does not lead any more")
            case Conflict():
                error = RequestError(
                    f"the registry was changed by somebody else ({result.path}: {result.reason}); "
                    "try again"
                )
                log.error("%s", error, extra={"event": "registry_conflict"})
        self._feed(events.CommitFailed(commit.token, error))
        if self._registry.state is SessionState.CONNECTED:
            self._read_definitions()

    # --- session and leadership -------------------------------------------------------------------

    def _session_changed(self, state: SessionState) -> None:
        match state:
            case SessionState.CONNECTED:
                self._connected()
            case SessionState.SUSPENDED:
                self._feed(events.RegistryLost())
            case SessionState.LOST:
                self._leadership, self._serving = None, False
                self._feed(events.RegistryLost(session_ended=True))

    def _connected(self) -> None:
        self._registry.cluster_id(self._cluster_named)
        if self._leadership is not None:
            self._read_definitions()
        else:
            self._feed(events.RegistryBack(None))
        if not self._reached:
            self._reached = True
            self._on_connected()

    def _cluster_named(self, cluster: str | RegistryAway) -> None:
        if isinstance(cluster, str):
            self._feed(events.ClusterNamed(cluster))

    def _lead(self, leadership: Leadership) -> None:
        self._leadership, self._serving = leadership, False
        self._read_definitions()

    def _follow(self, data: bytes | None) -> None:
        leader = records.decode_manager(data) if data is not None else None
        if leader is not None:
            log.info("following %s", leader.client, extra={"event": "following"})
        self._leadership, self._serving = None, False
        self._feed(events.Following(leader))

    def _read_definitions(self) -> None:
        self._reading += 1
        self._registry.read_tree(QUEUES, partial(self._definitions_read, self._reading))

    def _definitions_read(self, reading: int, found: list[Node] | RegistryAway) -> None:
        leadership = self._leadership
        if leadership is None or reading != self._reading or isinstance(found, RegistryAway):
            return  # a later reading, or the next connection, tells
        self._known = {node.path for node in found}
        snapshot = records.decode_snapshot({node.path: node.data for node in found})
        if self._serving:
            self._feed(events.RegistryBack(snapshot))
        else:
            self._serving = True
            self._feed(events.Elected(leadership.epoch, snapshot))

    # --- who is there -----------------------------------------------------------------------------

    def _hosts_changed(self, names: tuple[str, ...]) -> None:
        self._feed(events.HostsPresent(frozenset(names)))

    def _candidates_changed(self, _names: tuple[str, ...]) -> None:
        self._registry.read_tree(CANDIDATES, self._candidates_read)

    def _candidates_read(self, found: list[Node] | RegistryAway) -> None:
        if isinstance(found, RegistryAway):
            return  # told again after the next connection
        managers = (records.decode_manager(node.data) for node in found)
        self._feed(events.ManagersChanged(tuple(each for each in managers if each is not None)))
