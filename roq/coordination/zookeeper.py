"""The store of real clusters: a ZooKeeper ensemble through kazoo, which only this module knows.

kazoo runs three threads per client. None of them does anything here but hand over: each session
change, answer and watch is posted into the owner's loop together with the client it came from, and
what comes from a client that was replaced meanwhile is dropped there. So all state has one owner
and needs no lock.

Some habits of kazoo shape this module:

* It queues what is asked while the connection is gone, without a bound, and may send it much later.
  So nothing is given to it unless connected, and only `REQUESTS_UNDER_WAY` at a time.
* It never reconnects, and never says so, when the ensemble came back empty (its last transaction id
  is newer than anything the ensemble knows). So a client that is not connected for a while is
  thrown away and built again.
* It waits for the answer to a connection for as long as a session lasts, divided by the number of
  addresses; and a server that is just coming up forgets to answer now and then. So the addresses
  are given to it several times.
* Stopping a client blocks. So that is done by a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat

from roq.coordination.kazoo_client import check_root, check_servers, new_client
from roq.coordination.registry import StoreRegistry
from roq.coordination.registry_contract import (
    ANY_VERSION,
    Committed,
    Create,
    Delete,
    Node,
    Post,
    Reason,
    RegistryDenied,
    SessionState,
    Set,
)
from roq.coordination.store_contract import Check, CreateNext, MultiResult, Refused, Step, Watch
from roq.errors import RegistryAway
from roq.timing import SESSION_SECONDS

log = logging.getLogger(__name__)

REQUESTS_UNDER_WAY: Final = 64
REQUESTS_WAITING_MAX: Final = 10_000
CLOSE_SECONDS: Final = 2.0

_REASONS: Final[dict[type[KazooException], Reason]] = {
    NodeExistsError: Reason.EXISTS,
    NoNodeError: Reason.MISSING,
    NoChildrenForEphemeralsError: Reason.MISSING,  # what stands there is not what should
    BadVersionError: Reason.VERSION,
    NotEmptyError: Reason.NOT_EMPTY,
    NoAuthError: Reason.DENIED,
}


@dataclass(frozen=True, slots=True)
class _Call:
    """One request: how to send it, and what to do with what comes of it."""

    send: Callable[[KazooClient], IAsyncResult]
    settle: Callable[[object], None]
    """Takes the answer, or the `KazooException` that the ensemble answered with."""
    away: Callable[[RegistryAway], None]


@dataclass(frozen=True, slots=True)
class _Fire:
    """A watch as kazoo holds it: equal for the same function, so kazoo keeps it once."""

    store: ZooKeeperStore
    connection: int
    watch: Watch

    def __call__(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            self.store.fired(self)


class ZooKeeperStore:
    """One connection to a ZooKeeper ensemble.

    Args:
        servers: `host:port`, several separated by commas.
        post: runs a function in the owner's loop.
        root: where the cluster stands in the ensemble.
        session_seconds: how long the ensemble waits for a silent process.
        rebuild_seconds: after so long without a connection the client is built anew.
    """

    def __init__(
        self, servers: str, post: Post, root: str, session_seconds: float, rebuild_seconds: float
    ) -> None:
        self._servers = check_servers(servers)
        self._post = post
        self._root = root
        self._session_seconds = session_seconds
        self._rebuild_seconds = rebuild_seconds
        self._on_session: Callable[[SessionState], None] | None = None
        self._client: KazooClient | None = None
        self._connected = False
        self._connections = 0
        self._told = SessionState.LOST
        self._session = 0
        self._calls = 0
        self._under_way: dict[int, _Call] = {}
        self._waiting: deque[_Call] = deque()
        self._timer: threading.Timer | None = None
        self._closed = False

    @property
    def session(self) -> int:
        """The present session, 0 before the first."""
        return self._session

    # --- the client and its session ---------------------------------------------------------------

    def start(self, on_session: Callable[[SessionState], None]) -> None:
        """Connect and keep connected, telling each change of the session."""
        self._on_session = on_session
        self._build()

    def _build(self) -> None:
        client = new_client(self._servers, self._session_seconds)
        client.add_listener(partial(self._heard, client))
        self._client = client
        try:
            client.start_async()
        except OSError as error:  # no descriptor is left
            log.warning("no client for ZooKeeper: %s", error, extra={"event": "registry_error"})
            self._dispose()
        self._arm()

    def _heard(self, client: KazooClient, state: str) -> None:
        """In kazoo's thread."""
        identity = client.client_id
        self._hand(partial(self._changed, client, state, identity[0] if identity else 0))

    def _changed(self, client: KazooClient, state: str, session: int) -> None:
        if client is not self._client:
            return
        if state == KazooState.CONNECTED:
            self._connections += 1
            self._connected = True
            if session:
                self._session = session
            self._disarm()
            self._submit(
                _Call(
                    send=lambda c: c.ensure_path_async(self._root),
                    settle=self._rooted,
                    away=lambda _: None,
                )
            )
        else:
            self._disconnect(
                SessionState.SUSPENDED if state == KazooState.SUSPENDED else SessionState.LOST
            )
            self._arm()

    def _rooted(self, answer: object) -> None:
        if isinstance(answer, KazooException):
            self.restart(f"cannot make {self._root}: {answer!r}")
        else:
            self._tell(SessionState.CONNECTED)

    def _disconnect(self, state: SessionState) -> None:
        self._connected = False
        calls = [*self._under_way.values(), *self._waiting]
        self._under_way.clear()
        self._waiting.clear()
        for call in calls:
            call.away(self._away())
        self._tell(state)

    def _tell(self, state: SessionState) -> None:
        # The first attempts are neither suspended nor lost: there was nothing yet.
        known = self._told is not SessionState.LOST or state is SessionState.CONNECTED
        self._told = state if known else self._told
        if known and self._on_session is not None:
            self._on_session(state)

    def _away(self) -> RegistryAway:
        return RegistryAway(f"ZooKeeper at {self._servers} cannot be reached")

    # --- thrown away and built again --------------------------------------------------------------

    def restart(self, reason: str) -> None:
        """Give the session up, if there is one, and try anew after a while: it is of no use."""
        if self._connected:
            log.error("giving the session up: %s", reason, extra={"event": "registry_restart"})
            self._dispose()
            self._disconnect(SessionState.LOST)
            self._arm()

    def _arm(self) -> None:
        """Wait for a connection, but not for ever."""
        if self._timer is None and not self._closed:
            self._timer = threading.Timer(self._rebuild_seconds, self._hand, (self._overdue,))
            self._timer.daemon = True
            self._timer.start()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self) -> None:
        self._timer = None
        if self._connected:
            return
        log.warning(
            "no connection to ZooKeeper at %s for %.0f s, starting anew",
            self._servers,
            self._rebuild_seconds,
            extra={"event": "registry_rebuild"},
        )
        self._dispose()
        self._tell(SessionState.LOST)
        self._build()

    def _dispose(self) -> threading.Thread | None:
        """Stop the client in a thread, because stopping waits for its connection to end."""
        client, self._client = self._client, None
        if client is None:
            return None
        thread = threading.Thread(
            target=_stop, args=(client,), name="roq-registry-stop", daemon=True
        )
        thread.start()
        return thread

    def close(self) -> None:
        """End the session; nothing is called any more."""
        self._closed = True
        self._connected = False
        self._disarm()
        self._under_way.clear()
        self._waiting.clear()
        thread = self._dispose()
        if thread is not None:
            thread.join(CLOSE_SECONDS)

    def _hand(self, call: Callable[[], None]) -> None:
        """From any thread: run `call` in the owner's loop unless closed by then."""
        if not self._closed:
            self._post(lambda: None if self._closed else call())

    # --- requests ---------------------------------------------------------------------------------

    def _submit(self, call: _Call) -> None:
        if not self._connected:
            self._hand(partial(call.away, self._away()))
        elif len(self._under_way) < REQUESTS_UNDER_WAY and not self._waiting:
            self._send(call)
        elif len(self._waiting) < REQUESTS_WAITING_MAX:
            self._waiting.append(call)
        else:
            text = f"{REQUESTS_WAITING_MAX} requests wait for ZooKeeper already"
            self._hand(partial(call.away, RegistryAway(text)))

    def _send(self, call: _Call) -> None:
        client = self._client
        self._calls += 1
        number = self._calls
        self._under_way[number] = call
        call.send(client).rawlink(
            lambda result: self._hand(partial(self._answered, number, result))
        )

    def _answered(self, number: int, result: IAsyncResult) -> None:
        error = result.exception
        if isinstance(error, ConnectionLoss | SessionExpiredError):
            return  # the session change that is on its way settles it, with all the others
        call = self._under_way.pop(number, None)
        if call is None:
            return
        while self._waiting and len(self._under_way) < REQUESTS_UNDER_WAY:
            self._send(self._waiting.popleft())
        if error is None or isinstance(error, KazooException):
            call.settle(result.value if error is None else error)
        else:
            raise error

    def _failed(self, error: KazooException) -> RegistryAway:
        log.error("ZooKeeper answered %r", error, extra={"event": "registry_error"})
        return RegistryAway(f"ZooKeeper at {self._servers} answered {error!r}")

    def _denied(self, path: str) -> RegistryDenied:
        text = f"ZooKeeper at {self._servers} does not permit to read {self._at(path)}"
        log.warning("%s", text, extra={"event": "registry_denied"})
        return RegistryDenied(text)

    def _fire(self, watch: Watch | None) -> _Fire | None:
        return None if watch is None else _Fire(self, self._connections, watch)

    def fired(self, fire: _Fire) -> None:
        """In kazoo's thread: a watch went off."""
        self._hand(partial(self._fired, fire))

    def _fired(self, fire: _Fire) -> None:
        if self._connected and fire.connection == self._connections:
            fire.watch()

    def read(
        self, path: str, watch: Watch | None, done: Callable[[Node | RegistryAway | None], None]
    ) -> None:
        """Fetch a node; `watch` fires when its data changes, or it is made or deleted."""

        def settle(answer: object) -> None:
            match answer:
                case NoNodeError() if watch is not None:
                    self._missing(path, watch, done, partial(self.read, path, watch, done))
                case NoNodeError():
                    done(None)
                case NoAuthError():
                    done(self._denied(path))
                case KazooException():
                    done(self._failed(answer))
                case _:
                    # Other tools make nodes that have no data at all.
                    data, stat = cast("tuple[bytes | None, ZnodeStat]", answer)
                    done(Node(path, data or b"", stat.version, stat.ephemeralOwner))

        fire = self._fire(watch)
        self._submit(_Call(lambda c: c.get_async(self._at(path), watch=fire), settle, done))

    def children(
        self,
        path: str,
        watch: Watch | None,
        done: Callable[[tuple[str, ...] | RegistryAway | None], None],
    ) -> None:
        """Fetch the names below a node, None if it is missing; `watch` fires when that changes."""

        def settle(answer: object) -> None:
            match answer:
                case NoNodeError() if watch is not None:
                    self._missing(path, watch, done, partial(self.children, path, watch, done))
                case NoNodeError():
                    done(None)
                case NoAuthError():
                    done(self._denied(path))
                case KazooException():
                    done(self._failed(answer))
                case _:
                    done(tuple(cast("list[str]", answer)))

        fire = self._fire(watch)
        self._submit(
            _Call(lambda c: c.get_children_async(self._at(path), watch=fire), settle, done)
        )

    def _missing(
        self,
        path: str,
        watch: Watch,
        done: Callable[[RegistryAway | None], None],
        again: Callable[[], None],
    ) -> None:
        """Leave the watch where ZooKeeper leaves none by itself: on a node that does not exist."""

        def settle(answer: object) -> None:
            match answer:
                case KazooException():
                    done(self._failed(answer))
                case None:
                    done(None)
                case _:
                    again()

        fire = self._fire(watch)
        self._submit(_Call(lambda c: c.exists_async(self._at(path), watch=fire), settle, done))

    def multi(self, steps: Sequence[Step], done: Callable[[MultiResult], None]) -> None:
        """Do all steps or none; at least one."""

        def send(client: KazooClient) -> IAsyncResult:
            transaction = client.transaction()
            for step in steps:
                self._add(transaction, step)
            return transaction.commit_async()

        def settle(answer: object) -> None:
            if isinstance(answer, KazooException):
                done(self._failed(answer))
            else:
                done(self._outcome(steps, cast("list[object]", answer)))

        self._submit(_Call(send, settle, done))

    def _add(self, transaction: TransactionRequest, step: Step) -> None:
        path = self._at(step.path)
        match step:
            case Create(data=data, ephemeral=ephemeral):
                transaction.create(path, data, ephemeral=ephemeral)
            case CreateNext(data=data):
                transaction.create(path, data, ephemeral=True, sequence=True)
            case Set(data=data, version=version):
                transaction.set_data(path, data, version)
            case Delete(version=version):
                transaction.delete(path, version)
            case Check(version=version):
                transaction.check(path, version)

    def _outcome(self, steps: Sequence[Step], answers: Sequence[object]) -> MultiResult:
        for index, answer in enumerate(answers):
            if isinstance(answer, KazooException) and not isinstance(
                answer, RolledBackError | RuntimeInconsistency
            ):
                reason = _REASONS.get(type(answer))
                return self._failed(answer) if reason is None else Refused(index, reason)
        return Committed(tuple(map(_version, steps, answers)))

    def _at(self, path: str) -> str:
        return self._root + path


def _version(step: Step, answer: object) -> int:
    match step:
        case Create() | CreateNext():
            return 0
        case Set():
            return int(cast("ZnodeStat", answer).version)
        case Check(version=version):
            return version
        case Delete():
            return ANY_VERSION


def _stop(client: KazooClient) -> None:
    # Each by itself: a client that did not stop in time still has descriptors to give back.
    for step in (client.stop, client.close):
        try:
            step()
        except Exception as error:  # noqa: BLE001 - kazoo raises bare ones here
            log.warning("stopping a client: %r", error, extra={"event": "registry_stop"})


class ZooKeeperRegistry(StoreRegistry):
    """The registry of a cluster in a ZooKeeper ensemble.

    Args:
        servers: `host:port`, several separated by commas.
        post: runs a function in the owner's loop (`Reactor.call_soon`).
        root: where the cluster stands, so that several share an ensemble.
        session_seconds: how long the ensemble waits for a silent process.
        rebuild_seconds: after so long without a connection the client is built anew; twice the
            session by default.

    Raises:
        ConfigError: the addresses or the root are malformed.
    """

    def __init__(
        self,
        servers: str,
        post: Post,
        *,
        root: str = "/RoQ",
        session_seconds: float = SESSION_SECONDS,
        rebuild_seconds: float | None = None,
    ) -> None:
        if rebuild_seconds is None:
            rebuild_seconds = 2 * session_seconds
        store = ZooKeeperStore(servers, post, check_root(root), session_seconds, rebuild_seconds)
        super().__init__(store, post)
