"""Publishers and subscribers as processes: the actors of the model, in touch with monitors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from roq.client.io.monitor_connections import MonitorConnections
from roq.client.publish.machine import facts_of
from roq.client.publish.receipt import Receipt, SendStatus
from roq.client.session.machine import PUBLISHER, SUBSCRIBER
from roq.client.session.shell import MonitorSession
from roq.client.session.status import (
    PublisherFacts,
    Status,
    SubscriberFacts,
    publisher_status,
    subscriber_status,
)
from roq.client.subscribe.backpressure import AHEAD_BYTES
from roq.model import LogId, PublisherId
from roq.protocol.control import Assigned, Relocate, Relocated, Topology
from roq.runtime.addresses import Translate
from roq.runtime.backoff import Jitter
from roq.runtime.rpc_connections import RpcConnections
from roq.simulation.virtual.actors.publisher import NobodyWaits, Publisher
from roq.simulation.virtual.actors.subscriber import Subscriber
from roq.simulation.virtual.load import Profile, User
from roq.simulation.virtual.process import LocalWorld, Process
from roq.simulation.virtual.sockets import Sockets
from roq.simulation.virtual.watch import Watch
from roq.testing.history import History
from roq.testing.virtual_time import OneThread


class ClientEngine(OneThread):
    """A client's I/O thread, see `SessionEngine`."""

    def __init__(self, process: Process) -> None:
        dialer = Sockets(process)
        self.reactor = process
        self.managers = RpcConnections(process, dialer)
        self.monitors = MonitorConnections(process, dialer)
        self.jitter: Jitter = process.world.random.random
        self.translate: Translate = str
        self.wall_clock = process.clocks.wall_clock

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run it in a turn of its own."""
        self.reactor.call_soon(function)

    call_here = call_soon


class _Sent(Receipt):
    """A receipt that tells its publisher how it was settled."""

    def __init__(self, on_status: Callable[[SendStatus], None]) -> None:
        super().__init__(NobodyWaits())
        self._on_status = on_status

    def settle(self, status: SendStatus) -> None:
        """See `Receipt`."""
        super().settle(status)
        self._on_status(status)


class PublishingClient:
    """One process with a publisher, in touch with its monitor; `offsets`: as of `Publisher`.

    Attributes:
        id: of the publisher.
        died_at: when it died; None while it lives.
        epochs: under which it was told to publish and did, in order.
    """

    offsets = False

    def __init__(self, process: Process, managers: Sequence[str], queue: str) -> None:
        self.process = process
        self.id = PublisherId(process.world.random.randbytes(16))
        self.publisher: Publisher | None = None
        self.died_at: float | None = None
        self.epochs: list[int] = []
        self._queue = queue
        self._time = LocalWorld(process)
        self._reason = "new"
        self._session = MonitorSession(
            ClientEngine(process), managers, queue,
            client_id=self.id, role=PUBLISHER,
            on_assigned=self._assigned, on_relocate=self._relocate, on_topology=self._topology,
            alive=self._alive, on_state=self._state,
        )  # fmt: skip
        self._session.start()
        process.at_kill.append(self._died)

    @property
    def attached(self) -> bool:
        """Whether it may publish."""
        return self.publisher is not None and self.publisher.machine.ready

    @property
    def why(self) -> str:
        """How it is, in words."""
        machine = self.publisher.machine if self.publisher is not None else None
        at = "" if machine is None else f"at {machine.at}, {machine.reason!r}, "
        return f"{at}session {self._reason}"

    # --- the session ------------------------------------------------------------------------------

    def _died(self) -> None:
        self.died_at = self.process.world.now

    def _note_epoch(self) -> None:
        epoch = self.publisher.machine.epoch if self.publisher is not None else 0
        if not self.epochs or self.epochs[-1] != epoch:
            self.epochs.append(epoch)

    def _assigned(self, assigned: Assigned) -> None:
        if self.publisher is None:
            self.publisher = Publisher(
                self._time, self.process, self._session.queue_id, self.id, self, assigned.limits,
                offsets=self.offsets,
            )  # fmt: skip
        self.publisher.told(assigned)
        self._note_epoch()

    def _relocate(self, relocate: Relocate) -> None:
        if self.publisher is not None:
            self.publisher.told(relocate)
            self._note_epoch()

    def _state(self, state: str, reason: str) -> None:
        self._reason = f"{state}: {reason}"
        self.process.world.note(self.process.name, f"session {self._reason}")

    def _topology(self, topology: Topology) -> None:
        if self.publisher is not None:
            self.publisher.told(topology)

    def _alive(self) -> Mapping[str, object]:
        publisher = self.publisher
        if publisher is None:
            return {}
        return {"at": publisher.machine.at, "epoch": publisher.machine.epoch}

    def attach(self, publisher: PublisherId, failed: tuple[tuple[int, int], ...]) -> None:  # noqa: ARG002
        """See `Desk`."""
        self.process.call_soon(lambda: self._session.attach(failed))

    def relocated(self, message: Relocated) -> None:
        """See `Desk`."""
        self.process.call_soon(lambda: self._session.tell(message))


class PublisherShell(PublishingClient):
    """One process that publishes.

    Attributes:
        unsettled: batches that were neither acknowledged nor given up: (topic, first sequence,
            end) → when they were published.
        acked: (topic, first, end, when published) of the latest acknowledged ones.
        failures: batches that were given up, and why.
        progress_at: when something was acknowledged last, or the first batch came to wait for it.
    """

    def __init__(
        self,
        process: Process,
        managers: Sequence[str],
        queue: str,
        profile: Profile,
        history: History,
        watch: Watch,
    ) -> None:
        super().__init__(process, managers, queue)
        self.unsettled: dict[tuple[str, int, int], float] = {}
        self.acked: list[tuple[str, int, int, float]] = []
        self.failures: list[tuple[str, int, int, str]] = []
        self.profile = profile
        self.progress_at = process.world.now
        self._watch = watch
        self._sequences: dict[str, int] = {}
        self.user = User(self._time, self, profile, history)

    @property
    def settled(self) -> bool:
        """Whether everything was acknowledged."""
        return self.publisher is not None and self.publisher.settled

    def publish(self, topic: str, payloads: list[bytes]) -> bool:
        """Publish one batch; False if there is no room for it now."""
        if self.publisher is None:
            return False
        first = self._sequences.get(topic, 0)
        key = (topic, first, first + len(payloads))
        at = self.process.world.now

        def settled(status: SendStatus) -> None:
            self.unsettled.pop(key, None)
            self.progress_at = self.process.world.now
            if status.ok:
                self.acked.append((*key, at))
            else:
                self.failures.append((*key, f"{status}"))

        if not self.unsettled:
            self.progress_at = at
        self.unsettled[key] = at
        if not self.publisher.publish(topic, payloads, _Sent(settled)):
            del self.unsettled[key]
            return False
        self._sequences[topic] = key[2]
        links = self.publisher.machine.chooser.links
        owed, window = min((each.window.owed_batches, each.window.window_batches) for each in links)
        self._watch.published(self.process.name, owed, window)
        return True

    @property
    def stands_still(self) -> str:
        """What keeps it from getting on, since `progress_at`; empty: nothing."""
        if not self.attached:
            return "is not attached"
        return f"waits since {self.progress_at:.3f}" if self.unsettled else ""

    @property
    def standing(self) -> Status:
        """What its watchdog says."""
        session, now = self._session.facts(), self._time.seen
        if self.publisher is None:
            return publisher_status(PublisherFacts(self._queue, session))
        links = self.publisher.machine
        return publisher_status(facts_of(links, self._queue, session, now, late=0.0, ended=""))


class SubscriberShell:
    """One process that receives everything.

    Attributes:
        died_at: when it died; None while it lives.
    """

    def __init__(
        self,
        process: Process,
        managers: Sequence[str],
        queue: str,
        name: str,
        history: History,
        *,
        watch: Watch,
        from_first: bool,
        topics: Sequence[str] = ("",),
        check_duplicates: bool = True,
        ahead_bytes: int = AHEAD_BYTES,
    ) -> None:
        self.process = process
        self.name = name
        self.subscriber: Subscriber | None = None
        self._time = LocalWorld(process, active=True)
        self._reason = "new"
        self._history = history
        self._watch = watch
        self._known: set[LogId] = set()
        self._check_duplicates = check_duplicates
        self._ahead_bytes = ahead_bytes
        self._queue = queue
        self._topics = topics
        history.subscribed(name, topics, from_first=from_first)
        self.died_at: float | None = None
        process.at_kill.append(self._died)
        self._session = MonitorSession(
            ClientEngine(process), managers, queue,
            client_id=process.world.random.randbytes(16), role=SUBSCRIBER,
            on_topology=self._topology, alive=self._alive, on_state=self._state,
        )  # fmt: skip
        self._session.start()

    def _died(self) -> None:
        self.died_at = self.process.world.now
        self._history.gone(self.name)

    @property
    def confirmed(self) -> bool:
        """Whether it is in force."""
        return self.subscriber is not None and self.subscriber.machine.confirmed

    @property
    def waits(self) -> bool:
        """Whether something waits for its turn."""
        return self.subscriber is None or bool(self.subscriber.machine.resequencer.waiting)

    @property
    def why(self) -> str:
        """How it is, in words."""
        trouble = self.subscriber.machine.trouble() if self.subscriber is not None else ""
        return f"{trouble}; session {self._reason}"

    @property
    def stands_still(self) -> str:
        """What keeps it from getting on; empty: nothing."""
        if not self.confirmed or self.subscriber is None:
            return "is not in force"
        merge = self.subscriber.machine.resequencer
        return f"waits for what comes after {merge.counts.delivered}" if merge.waiting else ""

    @property
    def standing(self) -> Status:
        """What its watchdog says."""
        session = self._session.facts()
        if self.subscriber is None:
            return subscriber_status(SubscriberFacts(self._queue, session))
        facts = self.subscriber.machine.facts(self._queue, session, self._time.seen)
        return subscriber_status(facts)

    def _state(self, state: str, reason: str) -> None:
        self._reason = f"{state}: {reason}"
        self.process.world.note(self.process.name, f"session {self._reason}")

    def _topology(self, topology: Topology) -> None:
        if self.subscriber is None:
            self.subscriber = Subscriber(
                self._time, self.process, topology.queue_id, self.name,
                on_batch=lambda batch: self._history.received(self.name, batch),
                on_gap=lambda gap: self._history.gap(self.name, gap),
                on_read=lambda _read: self.process.call_soon(self._session.tell_alive),
                on_confirmed=lambda: self._history.in_force(self.name),
                on_doubt=lambda: self.process.call_soon(self._session.ask_topology),
                prefixes=tuple(each.encode() for each in self._topics),
                check_duplicates=self._check_duplicates,
                ahead_bytes=self._ahead_bytes,
            )  # fmt: skip
        self.subscriber.told(topology)
        readers = set(self.subscriber.machine.readers)
        for log in sorted(readers - self._known):
            self._watch.read(self.name, log)
        self._known = readers

    def _alive(self) -> Mapping[str, object]:
        if self.subscriber is None:
            return {}
        machine = self.subscriber.machine
        counts = machine.resequencer.counts
        return {"received": counts.delivered, "lost": counts.lost, "read": machine.read()}
