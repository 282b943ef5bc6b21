"""The registry of a cluster on top of any store: prepares it, elects, registers, watches, commits.

All of this runs in the loop of its owner. Each part that must survive a lost connection (campaign,
registration, watch) is an object with `resume()`, called after each CONNECTED, and `forget()`,
called after LOST; in between it may be asked to look again as often as its user likes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from roq.coordination.counter import Counter
from roq.coordination.election import Election
from roq.coordination.registration import Registration
from roq.coordination.registry_contract import (
    ANY_VERSION,
    BASE,
    CANDIDATES,
    CLUSTER,
    EPOCH,
    HOSTS,
    LEADER,
    QUEUES,
    CommitResult,
    Committed,
    Conflict,
    Create,
    Fence,
    Leadership,
    Node,
    Operation,
    Post,
    Reason,
    RegistryDenied,
    SessionState,
    anywhere,
    check_data,
    check_path,
    identity_of,
    ignored,
    nothing,
)
from roq.coordination.store_contract import Check, MultiResult, Refused, Step, Store
from roq.errors import LocalProtocolError, RegistryAway, StaleEpoch

log = logging.getLogger(__name__)

LAYOUT = (QUEUES, HOSTS, CANDIDATES, EPOCH, LEADER, BASE)
"""Nodes that stand before anything else happens."""
READS_UNDER_WAY = 64
"""Of one `read_tree`, so that a large tree does not fill the queue of the connection."""

Result = TypeVar("Result")


class _Lasting(Protocol):
    """Something that goes on over lost connections and sessions."""

    def resume(self) -> None: ...

    def forget(self) -> None: ...


class StoreRegistry:
    """`Registry` on a `Store`; see the port for what each method promises."""

    def __init__(self, store: Store, post: Post) -> None:
        self._store = store
        self._post = post
        self._state = SessionState.LOST
        self._closed = False
        self._on_session: Callable[[SessionState], None] | None = None
        self._on_problem: Callable[[str], None] = ignored
        self._counter = Counter(store, self._counting)
        self._campaign: Election | None = None
        self._registrations: dict[str, Registration] = {}
        self._watches: list[_ChildrenWatch] = []

    @property
    def state(self) -> SessionState:
        """How the registry stands to the ensemble, as last told to `on_session`."""
        return self._state

    # --- session ----------------------------------------------------------------------------------

    def start(
        self,
        on_session: Callable[[SessionState], None],
        on_problem: Callable[[str], None] = ignored,
    ) -> None:
        """Begin to connect and keep trying, for ever; each change is told to `on_session`."""
        if self._on_session is not None:
            raise LocalProtocolError("a registry is started once")
        self._on_session, self._on_problem = on_session, on_problem
        self._store.start(self._session_changed)

    def close(self) -> None:
        """End the session; no callback comes afterwards."""
        self._closed = True
        self._store.close()

    def _session_changed(self, state: SessionState) -> None:
        match state:
            case SessionState.CONNECTED:
                self._store.children("", None, self._listed)
            case SessionState.SUSPENDED:
                if self._state is SessionState.CONNECTED:
                    self._turn(state)
            case SessionState.LOST:
                for lasting in self._lasting():
                    lasting.forget()
                self._turn(state)

    def _listed(self, names: tuple[str, ...] | RegistryAway | None) -> None:
        if isinstance(names, RegistryAway):
            self._store.restart(f"cannot read the tree: {names}")
            return
        for path in LAYOUT:
            if path.removeprefix("/") not in (names or ()):
                self._store.multi([Create(path)], self._laid)
        self._counter.follow(self._prepared)

    def _laid(self, result: MultiResult) -> None:
        made = isinstance(result, Committed)
        if not made and not (isinstance(result, Refused) and result.reason is Reason.EXISTS):
            why = result.reason if isinstance(result, Refused) else result
            self._store.restart(f"cannot prepare the tree: {why}")

    def _prepared(self, away: RegistryAway | None) -> None:
        if away is None:
            # If it is of no use, no number is drawn; everything else goes on.
            self._turn(SessionState.CONNECTED)
        else:
            self._store.restart(f"cannot read {BASE}: {away}")

    def _counting(self, problem: str) -> None:
        self._on_problem(problem)
        # Who is just connecting looks by itself, once.
        if not problem and self._campaign is not None and self._state is SessionState.CONNECTED:
            self._campaign.recount()

    def _turn(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        if state is not SessionState.CONNECTED:
            self._counter.away(RegistryAway(f"the registry is {state.value}"))
        log.info("registry %s", state.value, extra={"event": f"registry_{state.value}"})
        if self._on_session is not None:
            self._on_session(state)
        if state is SessionState.CONNECTED:
            for lasting in self._lasting():
                lasting.resume()

    def _lasting(self) -> list[_Lasting]:
        campaigns = [] if self._campaign is None else [self._campaign]
        return [*self._registrations.values(), *campaigns, *self._watches]

    # --- reading and writing ----------------------------------------------------------------------

    def read(self, path: str, done: Callable[[Node | RegistryAway | None], None]) -> None:
        """Fetch one node; None if there is none."""
        check_path(path)
        if self._ready(done):
            self._store.read(path, None, done)

    def read_tree(self, path: str, done: Callable[[list[Node] | RegistryAway], None]) -> None:
        """Fetch everything below `path`, sorted by path; empty if there is nothing."""
        check_path(path)
        if self._ready(done):
            _TreeRead(self._store, path, done).start()

    def commit(
        self,
        operations: Sequence[Operation],
        fence: Fence | None,
        done: Callable[[CommitResult], None],
    ) -> None:
        """Do all operations or none of them, in order."""
        steps: list[Step] = [] if fence is None else [Check(LEADER, fence.version)]
        steps += operations
        if not self._ready(done):
            return
        if not steps:
            self._answer(done, Committed())
            return
        self._store.multi(steps, partial(self._committed, tuple(operations), fence, done))

    def _committed(
        self,
        operations: tuple[Operation, ...],
        fence: Fence | None,
        done: Callable[[CommitResult], None],
        result: MultiResult,
    ) -> None:
        checks = 0 if fence is None else 1
        match result:
            case Committed(versions=versions):
                done(Committed(versions[checks:]))
            case Refused(index=0) if fence is not None:
                done(StaleEpoch(f"epoch {fence.epoch} does not lead any more"))
                if self._campaign is not None:
                    self._campaign.overtaken(fence)
            case Refused(index=index, reason=reason):
                done(Conflict(operations[index - checks].path, reason))
            case RegistryAway():
                done(result)

    def next_host_epoch(self, done: Callable[[int | RegistryAway], None], above: int = 0) -> None:
        """Draw the next number of the cluster's counter, once there is a cluster."""
        if self._ready(done):
            self._counter.draw(above, done)

    def cluster_id(self, done: Callable[[str | RegistryAway | None], None]) -> None:
        """The identity of this cluster; None: no leader has given it one (yet)."""
        self.read(CLUSTER, lambda found: done(identity_of(found)))

    # --- what lasts -------------------------------------------------------------------------------

    def campaign(
        self,
        data: bytes,
        on_lead: Callable[[Leadership], None],
        on_follow: Callable[[bytes | None], None],
        may_lead: Callable[[str | None], bool] = anywhere,
        above: Callable[[], int] = nothing,
    ) -> None:
        """Stand for election, again after each lost session, until closed."""
        if self._campaign is not None:
            raise LocalProtocolError("a process stands for election once")
        check_data(LEADER, data)
        self._campaign = Election(
            self._store, self._counter, data, on_lead, on_follow, may_lead, above
        )
        if self._state is SessionState.CONNECTED:
            self._campaign.resume()

    def lead_anew(self, fence: Fence) -> None:
        """Give up the leadership of this fence, and look who leads."""
        if self._campaign is not None and self._state is SessionState.CONNECTED:
            self._campaign.overtaken(fence)

    def register_host(
        self, host: str, data: bytes, done: Callable[[Committed | Conflict], None]
    ) -> None:
        """Keep an ephemeral node for this host for as long as the registry is open."""
        path = check_path(f"{HOSTS}/{host}")
        check_data(path, data)
        known = self._registrations.get(host)
        if known is None:
            known = self._registrations[host] = Registration(self._store, path)
        known.keep(data, done)
        if self._state is SessionState.CONNECTED:
            known.changed()

    def watch_children(self, path: str, on_change: Callable[[tuple[str, ...]], None]) -> None:
        """Tell the sorted names of the children of `path`, now and at each change."""
        watch = _ChildrenWatch(self._store, check_path(path), on_change)
        self._watches.append(watch)
        if self._state is SessionState.CONNECTED:
            watch.resume()

    # --- answers without the ensemble -------------------------------------------------------------

    def _ready(self, done: Callable[[RegistryAway], None]) -> bool:
        if self._state is SessionState.CONNECTED:
            return True
        self._answer(
            done, RegistryAway(f"the registry is {self._state.value}; try again when it is back")
        )
        return False

    def _answer(self, done: Callable[[Result], None], result: Result) -> None:
        self._post(lambda: None if self._closed else done(result))


class _TreeRead:
    """Fetches what is below one path, at most `READS_UNDER_WAY` requests at a time."""

    def __init__(
        self, store: Store, path: str, done: Callable[[list[Node] | RegistryAway], None]
    ) -> None:
        self._store = store
        self._path = path
        self._done = done
        self._nodes: list[Node] = []
        self._waiting: deque[str] = deque()
        self._under_way = 0
        self._ended = False

    def start(self) -> None:
        self._list(self._path)

    def _list(self, path: str) -> None:
        self._under_way += 1
        self._store.children(path, None, partial(self._listed, path))

    def _listed(self, path: str, names: tuple[str, ...] | RegistryAway | None) -> None:
        if isinstance(names, RegistryDenied) and path != self._path:
            names = None
        if isinstance(names, RegistryAway):
            self._give_up(names)
            return
        # A node that is deleted meanwhile has no children and no data: not part of the answer.
        self._waiting.extend(f"{path}/{name}" for name in names or ())
        self._answered()

    def _read(self, path: str, node: Node | RegistryAway | None) -> None:
        if isinstance(node, RegistryDenied):
            node = Node(path, b"", ANY_VERSION)  # it stands there, and nobody can say what it is
        if isinstance(node, RegistryAway):
            self._give_up(node)
            return
        if node is not None:
            self._nodes.append(node)
        self._answered()

    def _answered(self) -> None:
        self._under_way -= 1
        while self._waiting and self._under_way < READS_UNDER_WAY:
            path = self._waiting.popleft()
            self._under_way += 1
            self._store.read(path, None, partial(self._read, path))
            self._list(path)
        if not self._under_way and not self._ended:
            self._ended = True
            self._done(sorted(self._nodes, key=lambda node: node.path))

    def _give_up(self, away: RegistryAway) -> None:
        self._waiting.clear()
        if not self._ended:
            self._ended = True
            self._done(away)


class _ChildrenWatch:
    """Follows the names below one path."""

    def __init__(
        self, store: Store, path: str, on_change: Callable[[tuple[str, ...]], None]
    ) -> None:
        self._store = store
        self._path = path
        self._on_change = on_change

    def resume(self) -> None:
        self._store.children(self._path, self.resume, self._listed)

    def forget(self) -> None:
        """Nothing is remembered."""

    def _listed(self, names: tuple[str, ...] | RegistryAway | None) -> None:
        if not isinstance(names, RegistryAway):
            self._on_change(tuple(sorted(names or ())))
