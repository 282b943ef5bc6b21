"""ZooKeeper: the nodes of `MemoryEnsemble`, behind connections that are slow, break and expire.

    connected --machine cut off, ensemble away--> suspended --back in time--> connected
                                                     \\--session over--> lost, a new session

Requests take time to get there, are done in the order of asking, and their answers take time as
well: a write may be done after its writer has lost the leadership, which is what fences are for.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from roq.coordination.memory import MemoryEnsemble
from roq.coordination.registry import StoreRegistry
from roq.coordination.registry_contract import LEADER, QUEUES, Committed, Node, SessionState
from roq.coordination.store_contract import MultiResult, Step, Watch
from roq.errors import RegistryAway
from roq.simulation.virtual.process import Process
from roq.simulation.virtual.wires import Wires
from roq.simulation.virtual.world import World

MACHINE: Final = "zookeeper"
DELAY_SECONDS: Final = (0.0005, 0.003)
HEARTBEAT_SECONDS: Final = 0.3
"""Between two looks of a client at its connection."""
NOTICE_SECONDS: Final = (0.001, 0.3)
"""What a client takes to notice that its connection is broken."""
LATE: Final = 0.5
"""How often what was under way when a connection broke gets there all the same."""
AWAY: Final = "the ensemble cannot be reached"


class Ensemble(MemoryEnsemble):
    """The ensemble and the sessions of all processes.

    Args:
        session_seconds: a session ends after so long without a word.

    Attributes:
        slow: how long a request or an answer takes at most; a slow disk makes it long.
        on_write: called with the machine that has written a definition, and with what the
            leader node says then.
    """

    def __init__(self, world: World, wires: Wires, session_seconds: float) -> None:
        super().__init__()
        self.world = world
        self.wires = wires
        self.session_seconds = session_seconds
        self.slow = DELAY_SECONDS[1]
        self.away = False
        self.on_write: Callable[[str, str], None] = lambda _writer, _leader: None
        self._connected: list[Store] = []

    def registry(self, process: Process) -> StoreRegistry:
        """A registry for a process."""
        return StoreRegistry(Store(self, process), process.call_soon)

    def reachable(self, process: Process) -> bool:
        """Whether this process can talk to the ensemble."""
        both = (
            self.wires.reaches(process.machine, MACHINE),
            self.wires.reaches(MACHINE, process.machine),
        )
        return not self.away and all(both)

    # --- what may happen to it --------------------------------------------------------------------

    def go_away(self) -> None:
        """The connections of all processes break; sessions live on, their time stands still."""
        self.away = True
        for store in list(self._connected):
            store.break_connection()

    def come_back(self, *, empty: bool = False) -> None:
        """It is there again; as it was, or with nothing in it."""
        if empty:
            with self.lock:
                self._wipe()
                self._live.clear()
        self.away = False

    def expire(self, store: Store) -> None:
        """End the session of a process."""
        self.end_session(store.session)
        store.break_connection()

    @property
    def stores(self) -> list[Store]:
        """The clients that are connected."""
        return list(self._connected)

    # --- for stores -------------------------------------------------------------------------------

    def transact(self, session: int, steps: Sequence[Step]) -> MultiResult:
        """Do all steps or none; what was let through under a fence is remembered."""
        result = super().transact(session, steps)
        leader = self.node(LEADER)
        written = any(each.path.startswith(f"{QUEUES}/") for each in steps)
        if written and isinstance(result, Committed) and leader is not None:
            for store in self._connected:
                if store.session == session:
                    self.on_write(store.process.machine, leader.data.decode("utf-8", "replace"))
        return result

    def joined(self, store: Store) -> None:
        """A client is connected."""
        self._connected.append(store)

    def left(self, store: Store) -> None:
        """It is not any more."""
        if store in self._connected:
            self._connected.remove(store)


class Store:
    """One process' connection: what `roq.coordination.store_contract.Store` promises.

    The two ends notice that it is broken each in its time: until then a client believes that what
    it asks is on its way.
    """

    def __init__(self, ensemble: Ensemble, process: Process) -> None:
        self._ensemble = ensemble
        self._process = process
        self._session = 0
        self._connected = False
        """As far as the client knows."""
        self._linked = False
        """As far as the ensemble knows."""
        self._closed = False
        self._heard = 0.0
        self._last = 0.0
        self._generation = 0
        self._late = False
        self._waiting: deque[Callable[[RegistryAway], None]] = deque()
        """Who waits for answers, in the order of asking."""
        self._on_session: Callable[[SessionState], None] | None = None
        self._node_watches: defaultdict[str, dict[Watch, None]] = defaultdict(dict)
        self._child_watches: defaultdict[str, dict[Watch, None]] = defaultdict(dict)
        process.at_kill.append(self._killed)

    @property
    def process(self) -> Process:
        """Whose connection this is."""
        return self._process

    @property
    def session(self) -> int:
        """The present session, 0 before the first."""
        return self._session

    # --- what the registry asks -------------------------------------------------------------------

    def start(self, on_session: Callable[[SessionState], None]) -> None:
        """Connect and keep connected."""
        self._on_session = on_session
        self._ensemble._stores.append(self)  # type: ignore[arg-type]  # noqa: SLF001
        self._look()

    def read(
        self, path: str, watch: Watch | None, done: Callable[[Node | RegistryAway | None], None]
    ) -> None:
        """Fetch a node."""

        def apply() -> Node | None:
            if watch is not None:
                self._node_watches[path][watch] = None
            return self._ensemble.node(path)

        self._ask(apply, done)

    def children(
        self,
        path: str,
        watch: Watch | None,
        done: Callable[[tuple[str, ...] | RegistryAway | None], None],
    ) -> None:
        """Fetch the names below a node."""

        def apply() -> tuple[str, ...] | None:
            if watch is not None:
                self._child_watches[path][watch] = None
            return self._ensemble.names(path)

        self._ask(apply, done)

    def multi(self, steps: Sequence[Step], done: Callable[[MultiResult], None]) -> None:
        """Do all steps or none."""
        session = self._session
        self._ask(lambda: self._ensemble.transact(session, steps), done)

    def restart(self, reason: str) -> None:
        """Give the session up and try anew."""
        self._process.world.note(self._process.name, f"gives its session up: {reason}")
        if self._connected:
            self._ensemble.expire(self)

    def close(self) -> None:
        """End the session in an orderly way."""
        if not self._closed:
            self._closed = True
            self._ensemble.end_session(self._session)
            self._disconnect()

    # --- requests on their way --------------------------------------------------------------------

    def _ask(self, apply: Callable[[], object], done: Callable[..., None]) -> None:
        """Have it done at the ensemble, and the answer brought back; `RegistryAway` if it breaks.

        All of one connection are done, and answered, in the order of asking.
        """
        if not self._connected:
            self._soon(partial(done, RegistryAway(AWAY)))
            return
        world, generation, session = self._ensemble.world, self._generation, self._session
        linked = self._linked
        self._waiting.append(done)

        def arrive() -> None:
            # What has got there is done, whether the answer finds its way or not.
            arrives = linked and (generation == self._generation or self._late)
            if arrives and self._ensemble.lives(session):
                result = apply()
                world.call_at(self._on_time(), lambda: self._process.turn(lambda: answer(result)))

        def answer(result: object) -> None:
            if generation == self._generation and not self._closed:
                self._waiting.popleft()
                done(result)

        world.call_at(self._on_time(), arrive)

    def _on_time(self) -> float:
        world = self._ensemble.world
        slow = max(DELAY_SECONDS[1], self._ensemble.slow)
        self._last = max(self._last, world.now + world.random.uniform(DELAY_SECONDS[0], slow))
        return self._last

    def _soon(self, call: Callable[[], None]) -> None:
        self._process.call_soon(lambda: None if self._closed else call())

    # --- the session ------------------------------------------------------------------------------

    def break_connection(self) -> None:
        """The connection is gone; the client will notice it."""
        if not self._linked:
            return
        self._disconnect()
        process = self._process
        delay = process.world.random.uniform(*NOTICE_SECONDS)
        # One that stands still has not begun to notice.
        process.turn(partial(self._notice_later, delay))

    def _notice_later(self, delay: float) -> None:
        self._process.call_later(delay, self._notice)

    def _notice(self) -> None:
        """What was asked is not answered any more."""
        if self._closed or self._linked:
            return
        self._connected = False
        waiting, self._waiting = self._waiting, deque()
        for done in waiting:
            done(RegistryAway(AWAY))
        self._tell(SessionState.SUSPENDED)

    def _disconnect(self) -> None:
        self._linked = False
        self._generation += 1
        self._late = self._ensemble.world.random.random() < LATE
        self._node_watches.clear()
        self._child_watches.clear()
        self._ensemble.left(self)

    def _tell(self, state: SessionState) -> None:
        self._process.world.note(self._process.name, f"its session is {state}")
        self._soon(partial(self._told, state))

    def _told(self, state: SessionState) -> None:
        if self._on_session is not None:
            self._on_session(state)

    def _look(self) -> None:
        """What client and ensemble do by themselves, each in its time."""
        ensemble, process = self._ensemble, self._process
        if self._closed or not process.alive:
            return
        now, reachable = ensemble.world.now, ensemble.reachable(process)
        if reachable and not process.paused:
            if not self._connected and not self._linked:
                self._connect()
            self._heard = now
        elif ensemble.away:
            self._heard += HEARTBEAT_SECONDS
        else:
            silent = now - self._heard
            if silent > ensemble.session_seconds:
                self._over()
            if silent > ensemble.session_seconds * 2 / 3:
                self.break_connection()
        ensemble.world.call_later(HEARTBEAT_SECONDS, self._look)

    def _connect(self) -> None:
        ensemble = self._ensemble
        if not ensemble.lives(self._session):
            if self._session:
                self._tell(SessionState.LOST)
            self._session = ensemble.open_session()
        self._connected = self._linked = True
        ensemble.joined(self)
        self._tell(SessionState.CONNECTED)

    def _over(self) -> None:
        if self._ensemble.lives(self._session):
            self._ensemble.end_session(self._session)

    def _killed(self) -> None:
        """The process says no goodbye: the session ends when its time is over."""
        if not self._closed:
            self._closed = True
            self._disconnect()
            self._ensemble.world.call_later(self._ensemble.session_seconds, self._over)

    # --- what the ensemble tells ------------------------------------------------------------------

    def fire(self, nodes: set[str], children_of: set[str]) -> None:
        """Call the watches on these nodes and on the children of those."""
        for watches, paths in ((self._node_watches, nodes), (self._child_watches, children_of)):
            for path in sorted(paths):
                for watch in watches.pop(path, ()):
                    self._notify(watch)

    def _notify(self, watch: Watch) -> None:
        generation = self._generation

        def call() -> None:
            if generation == self._generation and not self._closed:
                watch()

        self._ensemble.world.call_at(self._on_time(), lambda: self._process.turn(call))
