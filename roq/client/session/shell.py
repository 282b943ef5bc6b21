"""A client's session with the monitor of its queue: sockets and timers of a `SessionMachine`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import zmq

from roq.client.io.monitor_connections import MonitorConnection, MonitorConnections
from roq.client.session.events import (
    AliveWanted,
    AskManager,
    AskMonitor,
    AttachWanted,
    Close,
    DropMonitor,
    Effect,
    Event,
    ManagerAnswered,
    MonitorAnswered,
    MonitorLost,
    OpenMonitor,
    Pushed,
    ReportAssigned,
    ReportRelocate,
    ReportState,
    ReportTopology,
    SessionFacts,
    SessionState,
    Start,
    Tell,
    TellMonitor,
    TopologyWanted,
)
from roq.client.session.machine import SessionMachine
from roq.errors import Unavailable
from roq.machine import Tick
from roq.model import Limits
from roq.protocol.control import (
    Alive,
    Answer,
    Assigned,
    Attach,
    Control,
    LocateRequest,
    Relocate,
    Topology,
)
from roq.runtime import descriptors
from roq.runtime.addresses import Translate
from roq.runtime.backoff import Jitter
from roq.runtime.interfaces import Loop, Timer
from roq.runtime.rpc_connections import NotReached, RpcConnections


class SessionEngine(Protocol):
    """What a session needs of its client's I/O thread."""

    managers: RpcConnections
    monitors: MonitorConnections
    jitter: Jitter
    translate: Translate

    @property
    def reactor(self) -> Loop:
        """The loop of that thread."""
        ...

    @property
    def inside(self) -> bool:
        """Whether the caller is that thread."""
        ...

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run `function` in that thread; does not wait for it."""
        ...

    def run_sync(self, function: Callable[[], None]) -> None:
        """Run `function` in that thread, and wait for it."""
        ...


class MonitorSession:
    """Finds the monitor of a queue, stays in touch with it, and finds it again, for ever.

    All callbacks run in the engine's thread, as do all methods but `start` and `close`.

    Args:
        engine: the client's I/O thread.
        cluster_addresses: endpoints (`tcp://…`) of configuration managers.
        queue: name of the queue.
        client_id: 16 random bytes.
        role: `publisher`, `subscriber` or `consumer`.
        name: as people see it (publishers only).
        on_assigned: a publisher's exchange (publishers only).
        on_relocate: where the monitor wants the publisher to publish instead (publishers only).
        on_topology: the queue's exchanges, at first and at each change; each second unless the
            role is `consumer`.
        on_state: (`SessionState`, reason) at each change, and again at each failed attempt.
        alive: further fields of `Alive` (where a publisher publishes, what a subscriber has
            received, read and lost), asked for each one.
    """

    def __init__(
        self,
        engine: SessionEngine,
        cluster_addresses: Sequence[str],
        queue: str,
        *,
        client_id: bytes,
        role: str,
        name: str = "",
        on_assigned: Callable[[Assigned], None] | None = None,
        on_relocate: Callable[[Relocate], None] | None = None,
        on_topology: Callable[[Topology], None] | None = None,
        on_state: Callable[[str, str], None] | None = None,
        alive: Callable[[], Mapping[str, object]] | None = None,
    ) -> None:
        self._engine = engine
        self._queue = queue
        self._client = client_id
        self._name = name
        self._on_assigned = on_assigned
        self._on_relocate = on_relocate
        self._on_topology = on_topology
        self._on_state = on_state
        self._alive = alive
        self._machine = SessionMachine(
            queue=queue,
            client=client_id,
            role=role,
            managers=cluster_addresses,
            jitter=engine.jitter,
        )
        self._monitor: MonitorConnection | None = None
        self._timer: Timer | None = None
        self._events: deque[Event] = deque()
        self._busy = False

    @property
    def queue_id(self) -> bytes:
        """16 bytes; empty before the queue was located."""
        return self._machine.queue_id

    @property
    def limits(self) -> Limits | None:
        """The queue's limits; None before the queue was located."""
        return self._machine.limits

    @property
    def state(self) -> SessionState:
        """What `on_state` has said last."""
        return self._machine.state

    def facts(self) -> SessionFacts:
        """What the watchdog wants to know."""
        machine = self._machine
        silent = self._engine.reactor.now() - machine.heard_at
        return SessionFacts(machine.state, machine.cause, machine.reason, silent)

    def start(self) -> None:
        """Begin; from any thread. A publisher is attached without being asked."""
        self._engine.call_soon(lambda: self._handle(Start()))

    def attach(self, failed: Sequence[tuple[int, int]] = ()) -> None:
        """Ask for another exchange than these (number, epoch); answered by `on_assigned`."""
        self._handle(AttachWanted(tuple(failed)))

    def tell(self, message: Control) -> None:
        """Send a message that is not answered; dropped if there is no monitor just now."""
        self._handle(Tell(message))

    def tell_alive(self) -> None:
        """Say `Alive` now, without waiting for its time."""
        self._handle(AliveWanted())

    def ask_topology(self) -> None:
        """Have `on_topology` called with what the monitor knows, even if nothing has changed."""
        self._handle(TopologyWanted())

    def close(self) -> None:
        """Tell the monitor, and close; from any thread, also when the engine has ended."""
        if self._engine.inside:
            self._handle(Close())
        else:
            self._engine.run_sync(lambda: self._handle(Close()))

    def _handle(self, event: Event) -> None:
        # A callback may bring the next event before the effects of this one are all performed.
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                now = self._engine.reactor.now()
                for effect in self._machine.handle(self._events.popleft(), now):
                    self._perform(effect)
        finally:
            self._busy = False
        self._arm()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case AskManager(address, timeout):
                self._ask_manager(address, timeout)
            case OpenMonitor(endpoint):
                self._open_monitor(endpoint)
            case DropMonitor(linger_ms):
                self._drop_monitor(linger_ms)
            case AskMonitor():
                self._ask_monitor(effect)
            case TellMonitor(message):
                self._tell_monitor(message)
            case _:
                self._report(effect)

    def _report(
        self, effect: ReportAssigned | ReportRelocate | ReportTopology | ReportState
    ) -> None:
        match effect:
            case ReportAssigned(assigned):
                if self._on_assigned is not None:
                    self._on_assigned(assigned)
            case ReportRelocate(relocate):
                if self._on_relocate is not None:
                    self._on_relocate(relocate)
            case ReportTopology(topology):
                if self._on_topology is not None:
                    self._on_topology(topology)
            case ReportState(state, reason):
                if self._on_state is not None:
                    self._on_state(state, reason)

    def _tell_monitor(self, message: Control) -> None:
        if self._monitor is not None:
            self._monitor.send(self._complete(message))

    def _complete(self, message: Control) -> Control:
        """An `Attach` or `Alive` with the owner's name, and an `Alive` with its figures."""
        if isinstance(message, Attach | Alive) and self._name:
            message = msgspec.structs.replace(message, name=self._name)
        if isinstance(message, Alive) and self._alive is not None:
            return msgspec.structs.replace(message, **self._alive())
        return message

    def _open_monitor(self, endpoint: str) -> None:
        self._drop_monitor()
        engine = self._engine
        address = engine.translate(endpoint)
        try:
            self._monitor = engine.monitors.open(address, self._client, self._pushed, self._lost)
        except zmq.ZMQError as error:
            reason = f"{address}: {descriptors.reason(error)}"
            engine.reactor.call_soon(lambda: self._not_opened(reason))

    def _pushed(self, message: Answer) -> None:
        self._handle(Pushed(message))

    def _lost(self, reason: str) -> None:
        self._handle(MonitorLost(reason))

    def _not_opened(self, reason: str) -> None:
        if self._monitor is None:
            self._lost(reason)

    def _ask_manager(self, address: str, timeout: float) -> None:
        def answered(answer: Answer | Unavailable) -> None:
            late = isinstance(answer, Unavailable) and not isinstance(answer, NotReached)
            self._handle(ManagerAnswered(answer, late))

        request = LocateRequest(QName=self._queue)
        self._engine.managers.ask(self._engine.translate(address), request, timeout, answered)

    def _ask_monitor(self, ask: AskMonitor) -> None:
        monitor = self._monitor
        if monitor is None:
            return

        def answered(answer: Answer | Unavailable) -> None:
            if self._monitor is monitor:
                self._handle(MonitorAnswered(ask.serial, answer))

        monitor.request(self._complete(ask.message), ask.timeout, answered)

    def _drop_monitor(self, linger_ms: int = 0) -> None:
        if self._monitor is not None:
            monitor, self._monitor = self._monitor, None
            monitor.close(linger_ms, given_up=not linger_ms)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._machine.next_deadline()
        self._timer = (
            None if deadline is None else self._engine.reactor.call_at(deadline, self._tick)
        )

    def _tick(self) -> None:
        if self._monitor is not None:
            self._monitor.read()  # it is not silent if this thread was only late
        self._handle(Tick())
