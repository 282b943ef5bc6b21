"""The registry as the machine's shell uses it: leadership in, definitions in and out.

The machine says what shall stand under a path; this says whether that means create, set or delete,
and adds the leader's fence. When the outcome of a commit is unknown, or the registry holds
something else than it should, everything is read again and handed to the machine.

The leader remembers what stands in the registry. If that comes back empty, it writes it back; a
manager that only knows that there was something does not lead there, and neither does any manager
in the registry of another cluster.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from roq.coordination.registry_contract import (
    CANDIDATES,
    CLUSTER,
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
    Reason,
    Registry,
    SessionState,
    Set,
)
from roq.errors import NotLeader, RegistryAway, RequestError, StaleEpoch
from roq.gcm import events
from roq.gcm.events import Change, Commit, DrawEpoch, Drop, Put
from roq.gcm.persistence.epochs import Epochs
from roq.gcm.persistence.presence import Presence
from roq.gcm.persistence.restoration import Restoration, deleted
from roq.gcm.state import records
from roq.runtime.interfaces import Timer

log = logging.getLogger(__name__)

NAMED_MAX: Final = 5
"""Queues that are named in a line of the log."""
_QUEUE_DEPTH: Final = 2


class Definitions:
    """Feeds the machine from the registry and carries its commits out.

    Args:
        registry: started by `start`, closed by `close`.
        me: what the other managers learn of this one.
        feed: takes an event to the machine.
        on_connected: called once, when the registry was reached for the first time.
        later: calls something after so many seconds, unless it is cancelled.
        highest: the highest host epoch below this number that is known here.
        lease_seconds: this long after the connection has gone the session may have ended.
    """

    def __init__(
        self,
        registry: Registry,
        me: records.Manager,
        feed: Callable[[events.Event], None],
        on_connected: Callable[[], None],
        later: Callable[[float, Callable[[], None]], Timer],
        highest: Callable[[int], int] = lambda _: 0,
        lease_seconds: float = 2.0,
    ) -> None:
        self._registry = registry
        self._presence = Presence(registry, self._hosts_present)
        self._me = me
        self._feed = feed
        self._on_connected = on_connected
        self._epochs = Epochs(highest)
        self._later = later
        self._lease_seconds = lease_seconds
        self._lease: Timer | None = None
        self._leadership: Leadership | None = None
        self._serving = False
        """Whether the machine has been told that it leads, under `_leadership`."""
        self._known: dict[str, bytes] = {}
        """What stands in the registry, as far as this manager has read or written it."""
        self._mine = False
        """Nobody else has led since `_known` was read, so nobody else may have changed it."""
        self._last: Leadership | None = None
        """The latest one of this manager, if it has ended."""
        self._unsure: set[str] = set()
        """What this leader may have deleted since then: it does not know whether that was done."""
        self._missed: set[str] = set()
        """What the reading before did not find."""
        self._remembers = False
        """Whether `_known` is what the cluster's last leader knew: this manager was that one."""
        self._cluster = ""
        self._astray = ""
        """Why this manager cannot belong to this registry; empty if it can."""
        self._empty = False
        self._leader: bytes | None = None
        self._reached = False
        self._reading = 0
        self._meanwhile: list[events.Change] | None = None
        """What was committed since the reading that is under way was begun."""

    def start(self) -> None:
        """Connect, and stand for election."""
        self._registry.start(self._session_changed, self._counted)
        self._registry.campaign(
            records.encode(self._me), self._lead, self._follow, self._may_lead, self._above
        )
        self._registry.watch_children(HOSTS, self._presence.listed)
        self._registry.watch_children(QUEUES, self._queues_listed)
        self._registry.watch_children(CANDIDATES, self._candidates_changed)

    def close(self) -> None:
        """End the session; leadership passes on at once."""
        self._registry.close()

    def commit(self, commit: Commit) -> None:
        """Carry a commit out; the machine gets its outcome as an event."""
        leadership = self._leadership
        if leadership is None:
            error = RegistryAway(f"registry away: {self._astray}".removesuffix(": "))
            self._feed(events.CommitFailed(commit.token, error))
            return
        surplus = surplus_of(commit.changes, self._known)
        if surplus:
            self._clear(commit, surplus, leadership)
        else:
            operations = operations_for(commit.changes, self._known)
            self._registry.commit(operations, leadership.fence, partial(self._committed, commit))

    def _clear(self, commit: Commit, surplus: list[str], leadership: Leadership) -> None:
        """Delete some of what others have put below what is dropped, then try the commit again."""

        def done(result: CommitResult) -> None:
            if not isinstance(result, Committed):
                self._committed(commit, result)
                return
            self._made([Drop(path) for path in surplus])
            self.commit(commit)

        self._registry.commit([Delete(path) for path in surplus], leadership.fence, done)

    def draw(self, draw: DrawEpoch) -> None:
        """Draw a number of the counter of host epochs; the machine gets it as an event."""

        def drawn(result: int | RegistryAway) -> None:
            if isinstance(result, int):
                self._feed(events.EpochDrawn(draw.token, result))
            else:
                error = RegistryAway(f"registry away: {result}")
                self._feed(events.CommitFailed(draw.token, error))

        self._registry.next_host_epoch(drawn, self._epochs.heard())

    def lead_anew(self, epoch: int) -> None:
        """A host obeys a leader of this epoch, and so none of a lower one.

        Either another manager leads by now, or the registry is an older one than it was.
        """
        leadership = self._leadership
        if leadership is None or not self._serving or epoch <= leadership.epoch:
            return
        if self._epochs.obeyed(epoch):
            self._registry.lead_anew(leadership.fence)

    def read_again(self) -> None:
        """Tell the machine what stands in the registry now, if this manager leads."""
        if self._leadership is not None and self._serving:
            self._read_definitions()

    def _committed(self, commit: Commit, result: CommitResult) -> None:
        error: RequestError
        match result:
            case Committed():
                self._made(commit.changes)
                self._feed(events.Committed(commit.token))
                return
            case RegistryAway():
                error = RegistryAway(f"registry away: {result}")
                self._unsure |= {each.path for each in commit.changes if isinstance(each, Drop)}
            case StaleEpoch():
                error = NotLeader("this configuration manager does not lead any more")
            case Conflict(reason=Reason.DENIED):
                error = RegistryAway(f"the registry does not permit to change {result.path}")
                log.error("%s", error, extra={"event": "registry_denied"})
            case Conflict():
                error = RequestError(
                    f"another program changed the registry ({result.path}: {result.reason}); "
                    "try again"
                )
                log.error("%s", error, extra={"event": "registry_conflict"})
        self._feed(events.CommitFailed(commit.token, error))
        if self._registry.state is SessionState.CONNECTED:
            self._read_definitions()

    def _made(self, made: Sequence[events.Change]) -> None:
        apply(made, self._known)
        if self._meanwhile is not None:
            self._meanwhile += made

    # --- session and leadership -------------------------------------------------------------------

    def _session_changed(self, state: SessionState) -> None:
        match state:
            case SessionState.CONNECTED:
                self._end_lease()
                self._connected()
            case SessionState.SUSPENDED:
                self._feed(events.RegistryLost())
                self._begin_lease()
            case SessionState.LOST:
                # The ensemble has just said so: in a moment it says who leads now. Until then this
                # manager may be behind; only if it hears no more does it tell what it remembers.
                self._last = self._leadership or self._last
                self._leadership, self._serving = None, False
                self._feed(events.Doubted())
                self._feed(events.RegistryLost())
                self._begin_lease()

    def _counted(self, problem: str) -> None:
        self._feed(events.EpochsDamaged(problem))

    def _begin_lease(self) -> None:
        self._end_lease()
        self._lease = self._later(self._lease_seconds, self._lapsed)

    def _end_lease(self) -> None:
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None

    def _lapsed(self) -> None:
        """The ensemble may have ended the session by now, or chosen, and could not tell."""
        self._lease = None
        self._serving = False
        self._feed(events.RegistryLost(session_ended=True))

    def _connected(self) -> None:
        if self._leadership is not None:
            self._take_office()
        elif self._astray:
            self._feed(events.RegistryLost(session_ended=True, problem=self._astray))
        else:
            self._feed(events.RegistryBack(None))
        if not self._reached:
            self._reached = True
            self._on_connected()

    def _lead(self, leadership: Leadership) -> None:
        self._leadership, self._serving = leadership, False
        if self._last is not None and leadership.version not in {1, self._last.version + 1}:
            # Others have written the leader's node meanwhile, so they have led; in the one that was
            # made anew nobody has.
            self._mine = False
        self._last = None
        self._epochs.lead(leadership.epoch)
        self._take_office()

    def _follow(self, data: bytes | None) -> None:
        self._leader = data
        self._last = self._leadership or self._last
        self._leadership, self._serving = None, False
        if self._astray:
            return  # a leader there leads another cluster
        leader = records.decode_manager(data) if data is not None else None
        if data is not None:
            self._mine = self._remembers = False  # it is his to change from now on
            self._epochs.follow()
        if leader is not None:
            log.info("following %s", leader.client, extra={"event": "following"})
        if data is not None or not self._empty:
            self._feed(events.Following(leader))

    def doubt(self) -> None:
        """This process has stood still; whether it still leads is for the registry to say."""
        leadership = self._leadership
        if leadership is None or not self._serving:
            return
        log.warning(
            "this process stood still; looking whether it still leads", extra={"event": "paused"}
        )
        self._serving = False
        self._feed(events.Doubted())
        self._ask_about(leadership)

    def _ask_about(self, leadership: Leadership) -> None:
        if self._leadership is leadership and not self._serving:
            self._registry.commit([], leadership.fence, partial(self._told_about, leadership))

    def _told_about(self, leadership: Leadership, result: CommitResult) -> None:
        if isinstance(result, Committed):
            self._take_office()
        elif self._registry.state is SessionState.CONNECTED:
            # Another leader, or the session's end, is heard of; this is for all other cases.
            self._later(self._lease_seconds, partial(self._ask_about, leadership))

    # --- which cluster this is --------------------------------------------------------------------

    def _may_lead(self, cluster: str | None) -> bool:
        """Whether this manager may lead in a registry with this identity."""
        self._empty = cluster is None
        if cluster and not self._cluster:
            self._name(cluster)
        problem = identity_problem(cluster, self._cluster, remembers=self._remembers)
        if problem and not self._astray:
            log.error("%s", problem, extra={"event": "registry_astray"})
            self._mine = False
            self._feed(events.RegistryLost(session_ended=True, problem=problem))
        if not cluster and self._serving and not problem:
            self._take_office()  # it was spoilt under the eyes of the leader
        returned = bool(self._astray) and not problem
        self._astray = problem
        if returned:
            self._feed(events.RegistryBack(None))
            if cluster is not None:
                self._follow(self._leader)
        return not problem

    def _name(self, cluster: str) -> None:
        self._cluster = cluster
        self._feed(events.ClusterNamed(cluster))

    def _above(self) -> int:
        return self._epochs.above(remembers=self._remembers, empty=self._empty)

    # --- taking office ----------------------------------------------------------------------------

    def _take_office(self) -> None:
        """Lead with what stands in the registry, or with what has to stand there."""
        leadership = self._leadership
        if leadership is not None:
            self._registry.cluster_id(partial(self._identified, leadership))

    def _identified(self, leadership: Leadership, cluster: str | RegistryAway | None) -> None:
        if self._leadership is not leadership or isinstance(cluster, RegistryAway):
            return  # a later leadership, or the next connection, tells
        if cluster and not self._cluster:
            self._name(cluster)
        if cluster and cluster == self._cluster:
            self._read_definitions()
        elif cluster is None and not self._cluster:
            self._found(leadership)
        elif cluster is None and self._remembers:
            self._registry.read_tree(QUEUES, partial(self._restore, leadership))
        elif cluster == "" and self._remembers:
            log.error(
                "%s in the registry holds no identity of a cluster any more; it is set to %s again",
                CLUSTER, self._cluster, extra={"event": "identity_spoilt"},
            )  # fmt: skip
            named = Set(CLUSTER, self._cluster.encode())
            self._registry.commit([named], leadership.fence, self._founded)

    def _restore(self, leadership: Leadership, found: list[Node] | RegistryAway) -> None:
        """Write back what is not there, and the identity in any case."""
        if self._leadership is not leadership or isinstance(found, RegistryAway):
            return
        what = "the identity of the cluster is gone from the registry" if found else (
            "the registry came back empty"
        )  # fmt: skip
        log.error(
            "%s; writing cluster %s back from memory", what, self._cluster,
            extra={"event": "registry_empty"},
        )  # fmt: skip
        there = {node.path: node.data for node in found}
        Restoration(
            self._registry, leadership.fence, self._cluster, self._known, self._founded, there
        ).start()

    def _found(self, leadership: Leadership) -> None:
        cluster = uuid.uuid4().hex
        log.info("this is the new cluster %s", cluster, extra={"event": "cluster_founded"})
        named = Create(CLUSTER, cluster.encode())
        self._registry.commit([named], leadership.fence, self._founded)

    def _founded(self, result: CommitResult) -> None:
        match result:
            case Committed() | Conflict(reason=Reason.EXISTS | Reason.MISSING):
                self._take_office()
            case StaleEpoch() | RegistryAway() | Conflict():
                log.warning("not completed: %s", result, extra={"event": "cluster_not_founded"})

    def _read_definitions(self) -> None:
        leadership = self._leadership
        if leadership is not None:
            self._reading += 1
            self._meanwhile = []
            done = partial(self._definitions_read, leadership, self._reading)
            self._registry.read_tree(QUEUES, done)

    def _definitions_read(
        self, leadership: Leadership, reading: int, found: list[Node] | RegistryAway
    ) -> None:
        if reading != self._reading:
            return
        meanwhile, self._meanwhile = self._meanwhile or [], None
        if self._leadership is not leadership or isinstance(found, RegistryAway):
            return  # a later reading, or the next connection, tells
        documents = {node.path: node.data for node in found}
        apply(meanwhile, documents)  # some may have been read before
        if not found:
            # Perhaps the node itself is gone; it does not matter if it is not.
            self._registry.commit([Create(QUEUES)], leadership.fence, lambda _: None)
        lost = deleted(self._known, documents, self._unsure) if self._mine else {}
        missed, self._missed = self._missed, set(lost)
        if lost.keys() - missed:
            self._read_definitions()  # look twice: it may have been made after its parent was read
        elif lost:
            self._write_back(leadership, lost, documents)
        else:
            self._take_over(leadership, documents)

    def _take_over(self, leadership: Leadership, documents: dict[str, bytes]) -> None:
        self._known = documents
        self._mine = self._remembers = True
        self._unsure.clear()
        snapshot = records.decode_snapshot(documents)
        if self._serving:
            self._feed(events.RegistryBack(snapshot))
        else:
            self._serving = True
            self._feed(events.Elected(leadership.epoch, snapshot))

    # --- what others have deleted -----------------------------------------------------------------

    def _queues_listed(self, names: tuple[str, ...]) -> None:
        if not self._serving or not self._mine:
            return
        there = {records.queue_path(name) for name in names}
        gone = {path for path in self._known if path.count("/") == _QUEUE_DEPTH} - there
        if gone:
            self._read_definitions()

    def _write_back(
        self, leadership: Leadership, lost: dict[str, bytes], there: dict[str, bytes]
    ) -> None:
        queues = sorted({path.split("/")[2] for path in lost})
        log.error(
            "what stood of %s in the registry was deleted by another program; it is written back "
            "(`roq queue remove` removes a queue)", ", ".join(queues[:NAMED_MAX]),
            extra={"event": "definitions_deleted"},
        )  # fmt: skip
        Restoration(self._registry, leadership.fence, "", lost, self._written_back, there).start()

    def _written_back(self, result: CommitResult) -> None:
        match result:
            case Committed():
                self._read_definitions()
            case Conflict(path=path, reason=reason):
                log.error(
                    "%s cannot be written back: %s", path, reason,
                    extra={"event": "not_written_back"},
                )  # fmt: skip
                if path.count("/") > _QUEUE_DEPTH:
                    self._unsure.add(path)  # the queue goes on without it, and nobody waits for it
                    self._read_definitions()
                else:
                    self._later(self._lease_seconds, self._read_definitions)
            case StaleEpoch() | RegistryAway():
                """The next leadership, or the next connection, reads again."""

    # --- who is there -----------------------------------------------------------------------------

    def _hosts_present(self, hosts: frozenset[str]) -> None:
        self._feed(events.HostsPresent(hosts))

    def _candidates_changed(self, _names: tuple[str, ...]) -> None:
        self._registry.read_tree(CANDIDATES, self._candidates_read)

    def _candidates_read(self, found: list[Node] | RegistryAway) -> None:
        if isinstance(found, RegistryAway):
            return  # told again after the next connection
        # A node that ends with no session stands for nobody.
        managers = (records.decode_manager(node.data) for node in found if node.owner)
        self._feed(events.ManagersChanged(tuple(each for each in managers if each is not None)))


# What the changes of a commit mean for the nodes that stand in the registry.

DROPPED_AT_ONCE: Final = 500
"""Nodes that are deleted in one transaction: ZooKeeper takes no more than 1 MiB of paths."""


def operations_for(changes: Sequence[Change], known: Collection[str]) -> list[Operation]:
    """What is to be done in one transaction.

    Args:
        changes: what shall stand in the registry, and what shall not.
        known: the paths that do.
    """
    found: list[Operation] = []
    for change in changes:
        match change:
            case Put(path=path, data=data):
                found.append((Set if path in known else Create)(path, data))
            case Drop(path=path):
                # From the leaves up, with what a later version may have put there.
                found += [Delete(each) for each in below(known, path)]
    return found


def apply(changes: Sequence[Change], documents: dict[str, bytes]) -> None:
    """Change the documents, by path, as the nodes were changed."""
    for change in changes:
        if isinstance(change, Put):
            documents[change.path] = change.data
            continue
        for path in below(documents, change.path):
            del documents[path]


def surplus_of(changes: Sequence[Change], known: Collection[str]) -> list[str]:
    """What to delete before, because there is too much of it for one transaction."""
    dropped = [change.path for change in changes if isinstance(change, Drop)]
    paths = [path for root in dropped for path in below(known, root) if path != root]
    return paths[:DROPPED_AT_ONCE] if len(paths) > DROPPED_AT_ONCE else []


def below(known: Collection[str], root: str) -> list[str]:
    """The paths that are or stand below this one, from the leaves up."""
    return sorted((each for each in known if f"{each}/".startswith(f"{root}/")), reverse=True)


# Whether a manager belongs to the cluster that a registry holds.


def identity_problem(found: str | None, mine: str, *, remembers: bool) -> str:
    """Why a manager may not lead in a registry; empty if it may.

    Args:
        found: the identity that stands there; None if there is none, empty if it cannot be one.
        mine: that of the cluster to which the manager belongs; empty if it has none yet.
        remembers: whether it knows all that stood in the registry of its cluster.
    """
    if found == "" and not remembers:
        return (
            "/cluster in the registry holds no identity of a cluster: this manager changes "
            f"nothing. Set it to {mine or 'the one that the logs of the host managers name'}"
        )
    if not mine or found == mine:
        return ""
    if found:
        return (
            f"the registry holds cluster {found} now, and this manager belongs to {mine}: it "
            "changes nothing. Remove that cluster from it, bring the data of this one back, or "
            "restart this manager to have it join the other"
        )
    if remembers:
        return ""
    return (
        f"the registry is empty, and this manager remembers nothing of cluster {mine}: it does not "
        "lead until one that does has written it back. Bring its data back, or restart "
        "all configuration managers to begin a new cluster"
    )
