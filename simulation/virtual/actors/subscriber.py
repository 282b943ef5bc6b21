"""A subscriber: a `SubscriberMachine`, two connections to each exchange, and a user who reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from roq.client.subscribe.backpressure import AHEAD_BYTES
from roq.client.subscribe.machine import Order, Starts, SubscriberMachine
from roq.model import ExchangeInfo, LogId
from roq.protocol.control import Control, Topology
from roq.read.events import (
    Answered,
    Ask,
    DataDown,
    DataUp,
    Event,
    Pause,
    Resume,
    Start,
    Subscribe,
    Unsubscribe,
)
from roq.read.message import Batch, Gap
from roq.simulation.virtual.actors.exchange import SUBSCRIBE, UNSUBSCRIBE
from roq.simulation.virtual.network import Connection, Frames, Wire
from roq.simulation.virtual.world import Alarm, Time

RECONNECT_SECONDS: Final = 0.1
TICK_SECONDS: Final = 0.2
TICK_SECONDS_MIN: Final = 0.001
LATEST: Final = Start()
WAITING_MAX: Final = 100
"""Messages of one fan-out that wait for who takes nothing; beyond it they are dropped. Fewer where
the network's queues are shorter."""


@dataclass(slots=True)
class _Line:
    """What a subscriber has to one exchange.

    Attributes:
        filters: set at the fan-out.
        live, data: present connections; None while there is none.
        waiting: what has come by the fan-out while the user takes nothing.
        rests: it is not read, as the user takes nothing.
    """

    exchange: ExchangeInfo
    filters: list[bytes] = field(default_factory=list)
    live: Connection | None = None
    data: Connection | None = None
    waiting: list[Frames] = field(default_factory=list)
    rests: bool = False


class Subscriber:
    """One subscriber.

    Args:
        name: for histories.
        on_batch, on_gap: told of everything that the user gets, in order.
        on_read: told how far it has read, when the monitor would be told at once.
        on_doubt: called when the monitor would be asked which exchanges there are.
        on_confirmed: called once, when it is in force.
        ahead_bytes: what may wait for its turn before exchanges that are ahead are left alone.
        repair, check_duplicates: off only to show what they are good for.

    Attributes:
        machine: the machine.
        most_held: bytes that waited for their turn at once.
        held_back: how often an exchange was left alone, as it was ahead.
        rests: the user takes nothing, so the fan-outs are not read.
    """

    def __init__(
        self,
        world: Time,
        network: Wire,
        queue: bytes,
        name: str,
        *,
        on_batch: Callable[[Batch], None],
        on_gap: Callable[[Gap], None],
        on_read: Callable[[list[tuple[int, int, int]]], None],
        on_doubt: Callable[[], None] = lambda: None,
        on_confirmed: Callable[[], None] = lambda: None,
        prefixes: tuple[bytes, ...] = (b"",),
        start: Starts = LATEST,
        held_bytes_max: int | None = None,
        ahead_bytes: int = AHEAD_BYTES,
        repair: bool = True,
        check_duplicates: bool = True,
    ) -> None:
        self.name = name
        self.machine = SubscriberMachine(
            list(prefixes),
            start,
            nonce=lambda: world.random.randbytes(16),
            now=world.now,
            held_bytes_max=held_bytes_max,
            ahead_bytes=ahead_bytes,
            repair=repair,
            check_duplicates=check_duplicates,
        )
        self._world = world
        self._network = network
        self._queue = queue
        self._on_batch = on_batch
        self._on_gap = on_gap
        self._on_read = on_read
        self._on_doubt = on_doubt
        self._on_confirmed = on_confirmed
        self._confirmed = False
        self.rests = False
        self.most_held = 0
        self.held_back = 0
        self._lines: dict[LogId, _Line] = {}
        self._logs: list[int] = []
        self._alarm = Alarm(world, self._tick)
        self._alarm.set(world.now + TICK_SECONDS)

    # --- the monitor says -------------------------------------------------------------------------

    def told(self, message: Control) -> None:
        """Hear what the monitor says: the exchanges, or that they are still the same."""
        if isinstance(message, Topology):
            self._read(message)
        else:
            serving = self.machine.readers.keys() - self.machine.away
            self.machine.topology_known(serving, self._logs, self._world.now)

    def _read(self, topology: Topology) -> None:
        wanted = {exchange.log: exchange for exchange in topology.exchanges}
        self._logs = topology.logs
        for source in self.machine.topology_known(wanted, self._logs, self._world.now):
            line = self._lines.pop(source)
            orders = self.machine.leave(source, self._world.now)
            for connection in (line.live, line.data):
                if connection is not None:
                    connection.close()
            self._after(orders)
        for source, exchange in wanted.items():
            known = self._lines.get(source)
            if known is None:
                self._open(source, exchange)
            elif known.exchange != exchange:
                self._move(source, known, exchange)

    def _move(self, source: LogId, line: _Line, exchange: ExchangeInfo) -> None:
        """Another process serves this log by now."""
        line.exchange = self.machine.readers[source].exchange = exchange
        for connection in (line.live, line.data):
            if connection is not None:
                connection.close()
                self.disconnected(connection)

    def hear_nothing(self, source: LogId, seconds: float) -> None:
        """What an exchange says arrives only after so long."""
        line = self._lines.get(source)
        for connection in (line.live, line.data) if line is not None else ():
            if connection is not None:
                connection.stall(seconds, up=False, down=True)

    @property
    def connections(self) -> list[Connection]:
        """Those that are open, to all exchanges."""
        both = [each for line in self._lines.values() for each in (line.live, line.data)]
        return [connection for connection in both if connection is not None]

    # --- the user ---------------------------------------------------------------------------------

    def rest(self) -> None:
        """Take nothing more."""
        if self.machine.confirmed and not self.rests:
            self.rests = True
            self._rest()

    def _rest(self) -> None:
        """Stop reading the exchanges that know of this subscriber; others would not wait for it."""
        for source, line in list(self._lines.items()):
            if not line.rests and self.machine.readers[source].confirmed:
                line.rests = True
                self._step(source, Pause())

    def go_on(self) -> None:
        """Take what has come, and read on."""
        if not self.rests:
            return
        self.rests = False
        self.machine.read_again(self._world.now)
        for source, line in list(self._lines.items()):
            line.rests = False
            self._step(source, Resume())
            self._catch_up(source)

    def _catch_up(self, source: LogId) -> None:
        """Take what has come by a fan-out while it was not read."""
        line = self._lines.get(source)
        while line is not None and line.waiting and self._reads(source):
            self._live(source, line.waiting.pop(0))

    def _reads(self, source: LogId) -> bool:
        line = self._lines.get(source)
        rests = self.rests if line is None else line.rests
        return not rests and source not in self.machine.held_back

    # --- connections ------------------------------------------------------------------------------

    def received(self, connection: Connection, frames: Frames) -> None:
        """See `Client`."""
        found = self._find(connection)
        if found is None:
            return
        source, line = found
        reader = self.machine.readers[source]
        if connection is line.live:
            if self._reads(source) and not line.waiting:
                self._live(source, frames)
            elif len(line.waiting) < (self._network.weather.queue_max or WAITING_MAX):
                line.waiting.append(frames)
        elif reader.fetched(list(frames), self._world.now):
            self._after(self.machine.burst(source, self._world.now))
        else:
            self._step(source, Answered(list(frames)))

    def _live(self, source: LogId, frames: Frames) -> None:
        self.machine.readers[source].live(list(frames), self._world.now)
        self._after(self.machine.burst(source, self._world.now))

    def disconnected(self, connection: Connection) -> None:
        """See `Client`; ZeroMQ connects again by itself."""
        found = self._find(connection)
        if found is None:
            return
        source, line = found
        if connection is line.live:
            line.live = None
            again = self._connect_live
        else:
            line.data = None
            self._step(source, DataDown())
            again = self._connect_data
        self._world.call_later(RECONNECT_SECONDS, lambda: again(source, line))

    def _find(self, connection: Connection) -> tuple[LogId, _Line] | None:
        for source, line in self._lines.items():
            if connection is line.live or connection is line.data:
                return source, line
        return None

    def _open(self, source: LogId, exchange: ExchangeInfo) -> None:
        reader = self.machine.open(exchange, self._queue, self._world.now)
        line = self._lines[source] = _Line(exchange, reader.subscriptions())
        self._connect_live(source, line)
        self._connect_data(source, line)

    def _connect_live(self, source: LogId, line: _Line) -> None:
        if self._lines.get(source) is line:
            line.live = self._network.connect(line.exchange.live, self)
            for topic in sorted(line.filters):
                line.live.send((SUBSCRIBE, topic))

    def _connect_data(self, source: LogId, line: _Line) -> None:
        if self._lines.get(source) is line:
            line.data = self._network.connect(line.exchange.data, self)
            self._step(source, DataUp())

    # --- the machine ------------------------------------------------------------------------------

    def _step(self, source: LogId, event: Event) -> None:
        self._after(self.machine.handle(source, event, self._world.now))

    def _tick(self) -> None:
        machine, now = self.machine, self._world.now
        self._after(machine.tick(now, resting=self.rests))
        machine.check()
        self._arm()

    def _after(self, orders: list[Order]) -> None:
        machine = self.machine
        self._perform_all(orders)
        if machine.resequencer.waiting or machine.held_back:
            self._pace()
        if machine.confirmed and not self._confirmed:
            self._confirmed = True
            self._on_confirmed()
        if self.rests:
            self._rest()
        if machine.gaps:
            for gap in machine.gaps:
                self._on_gap(gap)
            machine.gaps.clear()
        if machine.out:
            for batch in machine.take():
                self._on_batch(batch)
        if orders or machine.resequencer.waiting:
            self._arm()
        if machine.has_news(self._world.now):
            self._on_read(machine.read())
        if machine.has_doubts(self._world.now):
            self._on_doubt()

    def _pace(self) -> None:
        """Leave exchanges alone that are ahead of others, and read those that are so no more."""
        machine = self.machine
        self.most_held = max(self.most_held, machine.resequencer.held_bytes)
        before = machine.held_back
        self._perform_all(machine.pace(self._world.now))
        self.held_back += len(machine.held_back - before)
        for source in sorted(before - machine.held_back):
            self._world.call_later(0.0, lambda source=source: self._catch_up(source))  # type: ignore[misc]

    def _perform_all(self, orders: list[Order]) -> None:
        for source, effect in orders:
            line = self._lines.get(source)
            if line is not None:
                self._perform(line, effect)

    def _perform(self, line: _Line, effect: Ask | Subscribe | Unsubscribe) -> None:
        match effect:
            case Ask(frames):
                if line.data is not None:
                    line.data.send(tuple(frames))
            case Subscribe(topic):
                line.filters.append(topic)
                if line.live is not None:
                    line.live.send((SUBSCRIBE, topic))
            case Unsubscribe(topic):
                if topic in line.filters:
                    line.filters.remove(topic)
                if line.live is not None:
                    line.live.send((UNSUBSCRIBE, topic))

    def _arm(self) -> None:
        now = self._world.now
        deadline = self.machine.next_deadline(now)
        wait = TICK_SECONDS
        if deadline is not None:
            wait = max(TICK_SECONDS_MIN, min(wait, deadline - now))
        self._alarm.set_earlier(now + wait)
