"""A publisher: the real `Links`, a connection for each link, and a user's batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, assert_never

from roq.client.publish.batching import part_attributes
from roq.client.publish.events import (
    AskAttach,
    Assignment,
    ConnectionLost,
    Effect,
    Event,
    Received,
    Serving,
    TellRelocated,
)
from roq.client.publish.events import Relocate as RelocateEvent
from roq.client.publish.link import Drop, Open, Say, Transmit
from roq.client.publish.links import Links
from roq.client.publish.receipt import Receipt
from roq.errors import LocalProtocolError
from roq.machine import Tick
from roq.model import Limits, PublisherId
from roq.protocol.control import Assigned, Control, Relocate, Relocated, Topology
from roq.protocol.requesting import OUTCOMES
from roq.simulation.virtual.network import Connection, Frames, Wire
from roq.simulation.virtual.world import Alarm, Time

DELIVERY_SECONDS: Final = 120.0
WAIT_SECONDS_MIN: Final = 0.0005
CHECK_EVERY: Final = 64
"""Events between two checks of the machine's invariants, which look at everything it holds."""


class Desk(Protocol):
    """What a publisher tells its monitor."""

    def attach(self, publisher: PublisherId, failed: tuple[tuple[int, int], ...]) -> None:
        """It wants an exchange other than these (number, epoch)."""
        ...

    def relocated(self, message: Relocated) -> None:
        """This has become of a Relocate."""
        ...


class NobodyWaits:
    """For receipts: user code never waits on a virtual clock."""

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:  # noqa: ARG002
        """Never called."""
        raise AssertionError("a simulated publisher does not wait")

    def call_back(self, callback: Callable[[], object], left_out: Callable[[], object]) -> None:  # noqa: ARG002
        """Never called."""
        raise AssertionError("a simulated publisher has nobody to call back")

    def attend(self) -> None:
        """Never called."""
        raise AssertionError("a simulated publisher is not read by threads")


class Publisher:
    """One publisher.

    Args:
        desk: its monitor.
        naive: at a relocation it closes its connection at once, opens one to the new exchange, and
            forgets what was not acknowledged: to show what that loses.
        offsets: it is told where its batches are.

    Attributes:
        machine: its links.
        on_outcomes: called with the number of a link, and what its exchange tells of requests.
        on_cut: called when a connection has ended.
    """

    def __init__(
        self,
        world: Time,
        network: Wire,
        queue: bytes,
        publisher: PublisherId,
        desk: Desk,
        limits: Limits,
        *,
        naive: bool = False,
        offsets: bool = False,
    ) -> None:
        self.id = publisher
        self.machine = Links(publisher, limits, delivery_seconds=DELIVERY_SECONDS, offsets=offsets)
        self.on_outcomes: Callable[[int, list[bytes]], None] = lambda *_: None
        self.on_cut: Callable[[], None] = lambda: None
        self._world = world
        self._network = network
        self._queue = queue
        self._desk = desk
        self._limits = limits
        self._naive = naive
        self._connections: dict[int, Connection] = {}
        self._alarm = Alarm(world, self._tick)
        self._events = 0

    @property
    def settled(self) -> bool:
        """Whether everything was acknowledged."""
        return self.machine.ready and not self.machine.unsettled

    def publish(self, topic: str, payloads: list[bytes], receipt: Receipt | None = None) -> bool:
        """Publish one batch; False if there is no room for it now."""
        machine, now = self.machine, self._world.now
        if not machine.chooser.has_room:
            return False
        stream = machine.topics.stream(topic)
        receipt = receipt or Receipt(NobodyWaits())
        plain, attributes, area = part_attributes(payloads)
        time_us = self._world.time_us
        machine.chooser.seal(stream, plain, receipt, now, time_us, attributes, area)
        for link in machine.all:
            batches = link.transmit(now)
            if batches:
                self._perform([Transmit(link.number, batches)])
        self._arm()
        return True

    # --- the monitor says -------------------------------------------------------------------------

    def told(self, message: Control) -> None:
        """Hear what the monitor says."""
        match message:
            case Assigned(exchange=exchange, epoch=epoch, limits=limits):
                self._feed(Assignment(self._queue, exchange, epoch, limits))
            case Topology(exchanges=exchanges):
                self._feed(Serving(tuple(exchanges)))
            case Relocate() if self._naive:
                self._jump(message)
            case Relocate():
                self._relocate(message)
            case _:
                raise LocalProtocolError(f"a publisher is not told {message}")

    def _relocate(self, message: Relocate) -> None:
        self._feed(RelocateEvent(message.epoch, tuple(message.exchanges)))

    def _jump(self, message: Relocate) -> None:
        """The naive hand-off."""
        machine = self.machine
        if message.epoch > machine.epoch:
            for connection in self._connections.values():
                connection.abort()
            self._connections.clear()
            for link in machine.all:
                link.window.abandon("the naive hand-off forgets it")
            machine.replay.clear()
            self._feed(Assignment(self._queue, message.exchanges[0], message.epoch, self._limits))
        self._tell(TellRelocated(message.epoch, accepted=True))

    def _tell(self, outcome: TellRelocated) -> None:
        self._desk.relocated(
            Relocated(
                queue_id=self._queue, publisher=self.id, epoch=outcome.epoch,
                outcome="accepted" if outcome.accepted else "failed",
                failed=list(outcome.failed), reason=outcome.reason, pause_us=outcome.pause_us,
            )
        )  # fmt: skip

    @property
    def connections(self) -> list[Connection]:
        """Those that are open."""
        return list(self._connections.values())

    # --- connections ------------------------------------------------------------------------------

    def received(self, connection: Connection, frames: Frames) -> None:
        """See `Client`."""
        link = self._link(connection)
        if link is not None and frames[0] == OUTCOMES:
            self.on_outcomes(link, list(frames))
        elif link is not None:
            self._feed(Received(link, list(frames)))

    def disconnected(self, connection: Connection) -> None:
        """See `Client`."""
        link = self._link(connection)
        if link is not None:
            del self._connections[link]
            self.on_cut()
            self._feed(ConnectionLost(link, "the connection has ended"))

    def _link(self, connection: Connection) -> int | None:
        for link, each in self._connections.items():
            if each is connection:
                return link
        return None

    # --- the machine ------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._feed(Tick())

    def _feed(self, event: Event) -> None:
        self._perform(self.machine.handle(event, self._world.now))
        self._events += 1
        if self._events % CHECK_EVERY == 0:
            self.machine.check()
        self._arm()

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit(link, batches):
                    for sealed in batches:
                        self._send(link, (sealed.stream.data, sealed.data))
                case Say(link, frames):
                    self._send(link, frames)
                case Open(link, endpoint, hello):
                    self._hang_up(link, ())
                    self._connections[link] = self._network.connect(endpoint, self)
                    self._send(link, hello)
                case Drop(link, bye):
                    self._hang_up(link, bye)
                case AskAttach(failed):
                    self._desk.attach(self.id, failed)
                case TellRelocated():
                    self._tell(effect)
                case _:
                    assert_never(effect)

    def _send(self, link: int, frames: Frames) -> None:
        connection = self._connections.get(link)
        if connection is not None:
            connection.send(frames)

    def _hang_up(self, link: int, bye: Frames) -> None:
        connection = self._connections.pop(link, None)
        if connection is not None:
            if bye:
                connection.send(bye)
            connection.close()
            self.on_cut()

    def _arm(self) -> None:
        deadline = self.machine.next_deadline()
        if deadline is not None:
            deadline = max(deadline, self._world.now + WAIT_SECONDS_MIN)
        self._alarm.set(deadline)
