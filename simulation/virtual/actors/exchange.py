"""An exchange: a real `ExchangeCore` behind two ports of the simulated network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from roq.exchange.commit import LateLog
from roq.exchange.consumer_peers import Delivery
from roq.exchange.events import (
    Effect,
    Event,
    Garbled,
    Passed,
    Publish,
    Received,
    Send,
    Subscribed,
    Tell,
    Unreachable,
    Unsubscribed,
    Woken,
)
from roq.exchange.machine import ExchangeCore
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits, PublisherId
from roq.protocol.channel import ACK, CONTROL, NUMBER, SYNCED
from roq.protocol.control import OrderAsk, OrderTold
from roq.protocol.entry import announcement
from roq.simulation.virtual.network import Connection, Frames, Wire
from roq.simulation.virtual.world import Alarm, Time

SETTLE_SECONDS: Final = 0.0002
"""Acknowledgements of what comes within this leave together."""
SERVE_SECONDS: Final = 0.0003
"""Between two turns for readers, each of which sends at most this many batches:"""
SERVE_PIECES: Final = 16
SUBSCRIBE: Final = b"\x01"
UNSUBSCRIBE: Final = b"\x00"

_CONTROL: Final = bytes((CONTROL,))


@dataclass(frozen=True, slots=True)
class _Port:
    """What an exchange does about the connections to one of its addresses."""

    accepted: Callable[[Connection], None]
    received: Callable[[Connection, Frames], None]
    disconnected: Callable[[Connection], None]


class Exchange:
    """One exchange process.

    Args:
        number, epoch: of the exchange.
        info: where clients find it; None: at addresses made of number and epoch.
        announce_above: batches larger than this are announced only, and fetched by those who want
            them.
        late: its log, if that commits later than it accepts.
        ahead: that log commits ahead of its disk.
        on_settled: called when acknowledgements were sent: what has come may be written.
        on_append: called with each batch that went into the log, and is committed there.
        on_woken: called when somebody comes after a long time.
        on_leased: called with what is sent to a member of a consumer group.
        on_tell: called with what the monitor is to be told.

    Attributes:
        core: the machine.
        info: where clients find it.
        alive: it was not killed.
        appended: batches that went into the log.
        refused: what full sockets did not take: dropped by the fan-out, or tried again.
    """

    def __init__(
        self,
        world: Time,
        network: Wire,
        queue: bytes,
        number: int,
        epoch: int,
        limits: Limits,
        *,
        info: ExchangeInfo | None = None,
        announce_above: int = 4_000,
        late: LateLog[bytes] | None = None,
        ahead: bool = False,
        on_settled: Callable[[], None] = lambda: None,
        on_append: Callable[[bytes], None] = lambda _batch: None,
        on_woken: Callable[[], None] = lambda: None,
        on_leased: Callable[[Delivery[bytes]], None] = lambda _delivery: None,
        on_tell: Callable[[OrderAsk | OrderTold], None] = lambda _message: None,
    ) -> None:
        self.core: ExchangeCore[bytes] = ExchangeCore(
            queue, number, epoch, limits, late=late, ahead=ahead
        )
        self.info = info or ExchangeInfo(
            number=number, epoch=epoch, generation=epoch, host=f"h{number}",
            data=f"data-{number}-{epoch}", live=f"live-{number}-{epoch}",
        )  # fmt: skip
        self.alive = True
        self.appended = 0
        self.refused = 0
        self._world = world
        self._network = network
        self._announce_above = announce_above
        self._on_settled = on_settled
        self._on_append = on_append
        self._on_woken = on_woken
        self._on_leased = on_leased
        self._on_tell = on_tell
        self._data: dict[bytes, Connection] = {}
        self._live: dict[Connection, list[bytes]] = {}
        self._paused_at: float | None = None
        self._late: list[tuple[Connection, Frames, bool]] = []
        self._ended: list[bytes] = []
        """Connections that have ended while it stands still."""
        self._settle_alarm = Alarm(world, self._settle)
        self._serve_alarm = Alarm(world, self._serve)
        self._tick_alarm = Alarm(world, self._tick)
        live = _Port(self.subscriber_came, self.subscription, self.subscriber_left)
        network.listen(self.info.data, _Port(self.join, self.take, self.leave))
        network.listen(self.info.live, live)
        self._tick_alarm.set(world.now)

    @property
    def key(self) -> tuple[int, int]:
        """Number and epoch."""
        return (self.info.number, self.info.epoch)

    @property
    def paused(self) -> bool:
        """Whether it stands still at present."""
        return self._paused_at is not None

    # --- what may happen to it --------------------------------------------------------------------

    def kill(self) -> None:
        """The process ends as by SIGKILL: its log, and what it had not sent, is gone."""
        self.alive = False
        self._network.shut(self.info.data)
        self._network.shut(self.info.live)
        for connection in [*self._data.values(), *self._live]:
            connection.server_gone()
        self._data.clear()
        self._live.clear()
        self._late.clear()
        self._ended.clear()
        for alarm in (self._settle_alarm, self._serve_alarm, self._tick_alarm):
            alarm.set(None)

    def pause(self, seconds: float) -> None:
        """The process stands still as by SIGSTOP; what comes meanwhile waits for it."""
        if self.alive and not self.paused:
            self._paused_at = self._world.now
            self._world.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._paused_at = None
        if not self.alive:
            return
        late, self._late = self._late, []
        for connection, frames, is_data in late:
            if is_data:
                self.take(connection, frames)
            else:
                self.subscription(connection, frames)
        ended, self._ended = self._ended, []
        for route in ended:
            self.handle(Unreachable(route))
        self._tick()
        self._serve()

    def passed(self, publisher: bytes, epoch: int, addresses: list[str]) -> None:
        """The monitor says that this publisher publishes elsewhere under this epoch."""
        if self.alive and not self.paused:
            self.handle(Passed(PublisherId(publisher), epoch, tuple(addresses)))

    def handle(self, event: Event) -> None:
        """Something that comes by neither port."""
        self._perform(self.core.handle(event, self._world.now))
        self._look_for_members()

    # --- data port --------------------------------------------------------------------------------

    def join(self, connection: Connection) -> None:
        """A client has connected to the data port."""
        self._data[connection.route] = connection

    def leave(self, connection: Connection) -> None:
        """A connection to the data port has ended."""
        if self._data.pop(connection.route, None) is None:
            return
        if self.paused:
            self._ended.append(connection.route)
        else:
            self.core.begin(self._world.now, self._world.time_us)
            self.handle(Unreachable(connection.route))

    def take(self, connection: Connection, frames: Frames) -> None:
        """A message at the data port."""
        if self.paused:
            self._late.append((connection, frames, True))
            return
        now, route = self._world.now, connection.route
        self.core.begin(now, self._world.time_us)
        if frames[0][:1] == _CONTROL:
            self._perform(self.core.handle(Received(route, frames), now))
        elif len(frames) != 2:
            self._perform(self.core.handle(Garbled(route), now))
        else:
            topic, batch = frames
            entry = self.core.append(route, topic, batch, len(batch))
            if entry is not None:
                self.appended += 1
                self._on_append(batch)
                self._fan_out_batch(topic, entry, batch)
        self._settle_alarm.set_earlier(now + SETTLE_SECONDS)
        if self.core.requests or len(self.core.fetches) or self.core.consumers.runnable():
            self._serve_alarm.set_earlier(now + SERVE_SECONDS)

    # --- live port --------------------------------------------------------------------------------

    def subscriber_came(self, connection: Connection) -> None:
        """A subscriber has connected to the live port."""
        self._live[connection] = []

    def subscription(self, connection: Connection, frames: Frames) -> None:
        """A filter is set or taken away."""
        if self.paused:
            self._late.append((connection, frames, False))
            return
        filters = self._live.get(connection)
        if filters is None:
            return
        self.core.begin(self._world.now, self._world.time_us)
        kind, prefix = frames
        if kind == SUBSCRIBE:
            filters.append(prefix)
            self._perform(self.core.handle(Subscribed(prefix), self._world.now))
        elif prefix in filters:
            filters.remove(prefix)
            self._perform(self.core.handle(Unsubscribed(prefix), self._world.now))

    def subscriber_left(self, connection: Connection) -> None:
        """A connection to the live port has ended."""
        for prefix in self._live.pop(connection, []):
            self._perform(self.core.handle(Unsubscribed(prefix), self._world.now))

    def _fan_out_batch(self, topic: bytes, entry: bytes, batch: bytes) -> None:
        if len(batch) > self._announce_above:
            self._fan_out((topic, announcement(entry)))
        else:
            self._fan_out((topic, entry, batch))

    def _fan_out(self, frames: Frames) -> None:
        drop, random = self._network.weather.drop, self._world.random.random
        # A publishing socket drops what finds no room.
        for connection, filters in self._live.items():
            if any(frames[0].startswith(prefix) for prefix in filters) and (
                not drop or random() >= drop
            ):
                if connection.full:
                    self.refused += 1
                else:
                    connection.answer(frames)

    # --- turns of its loop ------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Publish(frames):
                    self._fan_out(frames)
                case Send(route, frames):
                    self._send(route, frames)
                case Tell(message):
                    self._on_tell(message)
                case Woken():
                    self._on_woken()
                    self._tick_alarm.set(self._world.now)

    def _send(self, route: bytes, frames: Frames) -> None:
        connection = self._data.get(route)
        if connection is None or not connection.answer(frames):
            self._perform(self.core.handle(Unreachable(route), self._world.now))

    def committed(self) -> None:
        """More of the log is committed: publishers are told, and everybody is shown that."""
        self.core.begin(self._world.now, self._world.time_us)
        self._settle()
        while not self.core.all_shown:
            for topic, entry, batch, _ in self.core.take_committed(SERVE_PIECES):
                self.appended += 1
                self._on_append(batch)
                self._fan_out_batch(topic.name, entry, batch)
        self._look_for_members()

    def _settle(self) -> None:
        if self.paused:
            return
        for link in self.core.take_acks():
            connection = self._data.get(link.route or b"")
            if connection is not None and connection.full:
                self.refused += 1
                self.core.intake.ack_later(link)
                self._settle_alarm.set_earlier(self._world.now + SERVE_SECONDS)
            elif link.route is not None:
                self._send(link.route, (ACK, link.acknowledgement(link.committed)))
                link.seen = link.acked_at
                if link.places is not None:
                    link.places.told = link.committed
        self._perform(self.core.take_answers())
        for link, number in self.core.take_synced().items():
            if link.route is not None:
                self._send(link.route, (SYNCED, NUMBER.pack(number)))
        self._on_settled()

    def _serve(self) -> None:
        core, now = self.core, self._world.now
        if self.paused:
            return
        core.consumers.begin(now)
        for _ in range(SERVE_PIECES):
            if not (core.requests or core.fetches.runnable(now) or core.consumers.runnable()):
                break
            if core.requests:
                self._perform(core.answer_next(now))
            if core.fetches.runnable(now):
                piece = core.fetches.next_piece()
                if piece is None:
                    core.fetches.wait()
                    continue
                connection = self._data.get(piece.route)
                if connection is not None and connection.full:
                    self.refused += 1
                    core.fetches.blocked(now)
                    continue
                core.fetches.sent(piece)
                body = () if piece.batch is None else (piece.batch,)
                self._send(piece.route, (*piece.parts, *body))
            if core.consumers.runnable():
                self._hand_out()
        if core.consumers.groups:
            self._settle()  # what members were told of their joining is due when it is kept
        if core.requests or len(core.fetches) or core.consumers.runnable():
            self._serve_alarm.set(now + SERVE_SECONDS)
        elif (retry_at := core.consumers.next_deadline()) is not None:
            self._serve_alarm.set(retry_at)

    def _hand_out(self) -> None:
        """One lease to a member, if there is one to hand out."""
        consumers = self.core.consumers
        delivery = consumers.next_delivery()
        if delivery is None:
            return
        connection = self._data.get(delivery.route)
        if connection is not None and connection.full:
            self.refused += 1
            consumers.blocked(delivery)
            return
        self._on_leased(delivery)
        self._send(delivery.route, (*delivery.parts, bytes(delivery.batch)))
        consumers.sent(delivery)

    def _tick(self) -> None:
        if self.paused:
            return
        self.core.begin(self._world.now, self._world.time_us)
        self._perform(self.core.handle(Tick(), self._world.now))
        self._settle()
        if self.core.consumers.groups:
            self.core.consumers.check()
        self._look_for_members()
        self._tick_alarm.set(self.core.next_deadline())

    def _look_for_members(self) -> None:
        if self.core.consumers.runnable():
            self._serve_alarm.set_earlier(self._world.now + SERVE_SECONDS)
