"""A small world on a virtual clock: real exchange cores, a real reception, a bad network.

Publishers are modelled (they append to a log and, when they move, replay what they are not sure
of); everything on the reading side is the code that runs in a client.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from roq.client.reading import Answered, Ask, DataDown, DataUp, Start, Subscribe, Unsubscribe
from roq.client.reception import Order, Reception, Starts
from roq.exchange.events import Publish, Received, Subscribed
from roq.exchange.machine import ExchangeCore
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits, PublisherId
from roq.protocol.batch import Kind, pack, pack_empty
from roq.protocol.entry import EntryKind

QUEUE = b"q" * 16
ROUTE = b"reader"
LIVE_DELAY = 0.003
LARGE_BYTES = 4_000
LATEST = Start()


@dataclass
class Host:
    """One exchange and the subscriber's two connections to it."""

    core: ExchangeCore[bytes]
    info: ExchangeInfo
    live: deque[tuple[float, list[bytes]]] = field(default_factory=deque)
    data: deque[tuple[float, list[bytes]]] = field(default_factory=deque)
    asks: deque[tuple[float, list[bytes]]] = field(default_factory=deque)
    filters: list[bytes] = field(default_factory=list)
    live_up: bool = True
    delay: float = LIVE_DELAY

    @property
    def source(self) -> tuple[int, int]:
        return (self.info.number, self.info.epoch)


@dataclass
class Author:
    """A publisher: where it publishes, and what it would replay after a move."""

    id: PublisherId
    host: int
    next: dict[bytes, int] = field(default_factory=dict)
    recent: list[tuple[bytes, int, int, bytes]] = field(default_factory=list)


class World:
    """Everything at once; `step` does one random thing, `heal` lets the network be good again."""

    def __init__(
        self,
        seed: int,
        *,
        exchanges: int = 3,
        publishers: int = 3,
        topics: tuple[bytes, ...] = (b"a", b"b.1", b"b.2"),
        prefixes: tuple[bytes, ...] = (b"",),
        drop: float = 0.1,
        cuts: bool = True,
        ring_bytes: int = 16 * 1024 * 1024,
        start: Starts = LATEST,
        held_bytes_max: int | None = None,
        repair: bool = True,
        check_duplicates: bool = True,
    ) -> None:
        self.random = random.Random(seed)
        self.now = 100.0
        self.drop = drop
        self.cuts = cuts
        self.topics = topics
        self.prefixes = prefixes
        self.limits = Limits(ring_bytes=ring_bytes)
        self.hosts: list[Host] = []
        self.authors = [
            Author(PublisherId(bytes([index + 1]) * 16), self.random.randrange(exchanges))
            for index in range(publishers)
        ]
        self.sent: dict[tuple[bytes, bytes], list[bytes]] = {}
        self.received: dict[tuple[bytes, bytes], list[tuple[int, bytes]]] = {}
        self.reception = Reception(
            list(prefixes),
            start,
            nonce=lambda: self.random.randbytes(16),
            now=self.now,
            held_bytes_max=held_bytes_max,
            repair=repair,
            check_duplicates=check_duplicates,
        )
        for number in range(1, exchanges + 1):
            self.add_exchange(number)

    # --- the cast ---------------------------------------------------------------------------------

    def add_exchange(self, number: int, *, delay: float = LIVE_DELAY) -> Host:
        core: ExchangeCore[bytes] = ExchangeCore(QUEUE, number, 7, self.limits)
        info = ExchangeInfo(number=number, epoch=7, host="h", data="d", live="l")
        host = Host(core, info, delay=delay)
        self.hosts.append(host)
        return host

    def subscribe(self) -> None:
        for host in self.hosts:
            self.open(host)

    def open(self, host: Host) -> None:
        reader = self.reception.open(host.info, QUEUE, self.now)
        host.filters = reader.subscriptions()
        self.live_connected(host)
        self.perform(self.reception.handle(host.source, DataUp(), self.now))

    def live_connected(self, host: Host) -> None:
        host.live_up = True
        for topic in sorted(host.filters):
            self.publish_effects(host, host.core.handle(Subscribed(topic), self.now))

    # --- publishing -------------------------------------------------------------------------------

    def publish(
        self, author: Author, topic: bytes, payloads: list[bytes], *, host: Host | None = None
    ) -> None:
        host = host or self.hosts[author.host]
        first = author.next.get(topic, 0)
        author.next[topic] = first + len(payloads)
        self.sent.setdefault((author.id, topic), []).extend(payloads)
        batch = pack(
            payloads, publisher=author.id, epoch=1, link_number=1, first_sequence=first,
            created_us=int(self.now * 1e6),
        )  # fmt: skip
        author.recent.append((topic, first, first + len(payloads), batch))
        del author.recent[:-8]
        self.append(host, author, topic, batch, first + len(payloads))

    def append(
        self, host: Host, author: Author, topic: bytes, batch: bytes, following: int
    ) -> None:
        host.core.begin(self.now, int(self.now * 1e6))
        streams = host.core.streams.of(author.id)
        stream = streams.get(topic) or host.core.streams.add(author.id, topic)
        assert stream is not None
        stream.next = max(stream.next, following)
        frame = host.core.ring.append(topic, batch, len(batch))
        assert frame is not None
        if len(batch) > LARGE_BYTES:
            kind = (
                EntryKind.FORGOTTEN_ANNOUNCE
                if frame[3] == EntryKind.FORGOTTEN
                else EntryKind.ANNOUNCE
            )
            self.fan_out(host, [topic, frame[:3] + bytes([kind]) + frame[4:]])
        else:
            self.fan_out(host, [topic, frame, batch])

    def move(self, author: Author, target: int) -> None:
        """To another exchange: markers, then a replay of what was not known to have arrived."""
        author.host = target
        host = self.hosts[target]
        replay = author.recent[self.random.randrange(len(author.recent) + 1) :]
        for topic, following in author.next.items():
            first = min([first for name, first, _, _ in replay if name == topic] or [following])
            marker = pack_empty(
                Kind.FENCE, publisher=author.id, epoch=2, link_number=1, first_sequence=first
            )
            self.append(host, author, topic, marker, first)
        for topic, _, following, batch in replay:
            self.append(host, author, topic, batch, following)

    # --- the network ------------------------------------------------------------------------------

    def fan_out(self, host: Host, frames: list[bytes]) -> None:
        control = frames[0][:1] == b"\xff"
        if not host.live_up or not any(frames[0].startswith(prefix) for prefix in host.filters):
            return
        if control or self.random.random() >= self.drop:
            host.live.append((self.now + host.delay, frames))

    def publish_effects(self, host: Host, effects: list[object]) -> None:
        for effect in effects:
            if isinstance(effect, Publish):
                self.fan_out(host, list(effect.frames))
            else:
                frames = list(effect.frames)  # type: ignore[attr-defined]
                host.data.append((self.now + host.delay, frames))

    def perform(self, orders: list[Order]) -> None:
        for source, effect in orders:
            host = next(host for host in self.hosts if host.source == source)
            match effect:
                case Ask(frames):
                    host.asks.append((self.now + 0.001, frames))
                case Subscribe(topic):
                    host.filters.append(topic)
                    self.publish_effects(host, host.core.handle(Subscribed(topic), self.now))
                case Unsubscribe(topic):
                    host.filters.remove(topic)

    def cut(self, host: Host) -> None:
        """Both connections break, and what was under way on them is gone."""
        host.live.clear()
        host.data.clear()
        host.asks.clear()
        host.core.fetches.cancel(ROUTE)
        host.live_up = False
        self.perform(self.reception.handle(host.source, DataDown(), self.now))

    def mend(self, host: Host) -> None:
        if not host.live_up:
            self.live_connected(host)
            self.perform(self.reception.handle(host.source, DataUp(), self.now))

    # --- time -------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.005
            for host in self.hosts:
                self.turn(host)
            self.perform(self.reception.tick(self.now))
            self.collect()

    def turn(self, host: Host) -> None:
        self.publish_effects(host, host.core.handle(Tick(), self.now))
        while host.asks and host.asks[0][0] <= self.now:
            frames = host.asks.popleft()[1]
            self.publish_effects(host, host.core.handle(Received(ROUTE, tuple(frames)), self.now))
        while host.core.requests:
            self.publish_effects(host, host.core.answer_next(self.now))
        while host.core.fetches.runnable(self.now):
            piece = host.core.fetches.next_piece()
            host.core.fetches.sent(piece)
            frames = [*piece.frames] if piece.batch is None else [*piece.frames, piece.batch]
            host.data.append((self.now + host.delay, frames))
        reader = self.reception.readers.get(host.source)
        while reader is not None and host.live and host.live[0][0] <= self.now:
            reader.live(host.live.popleft()[1], self.now)
        self.perform(self.reception.burst(host.source, self.now))
        while host.data and host.data[0][0] <= self.now:
            frames = host.data.popleft()[1]
            self.perform(self.reception.handle(host.source, Answered(frames), self.now))
        self.reception.check()

    def collect(self) -> None:
        for batch in self.reception.take():
            log = self.received.setdefault((batch.publisher, batch.topic.encode()), [])
            log.extend(zip(range(batch.sequence, 1 << 62), batch.payloads, strict=False))

    def step(self) -> None:
        """One random thing happens, then a little time passes."""
        chance = self.random.random()
        author = self.random.choice(self.authors)
        if chance < 0.7:
            size = LARGE_BYTES if self.random.random() < 0.03 else 20
            topic = self.random.choice(self.topics)
            count = self.random.randint(1, 4)
            self.publish(author, topic, [self.random.randbytes(size) for _ in range(count)])
        elif chance < 0.8 and author.recent:
            self.move(author, self.random.randrange(len(self.hosts)))
        elif chance < 0.85 and self.cuts:
            self.cut(self.random.choice(self.hosts))
        elif self.cuts:
            self.mend(self.random.choice(self.hosts))
        if self.random.random() < 0.5:
            self.run(self.random.choice([0.005, 0.01, 0.05, 0.2]))

    def heal(self, seconds: float = 8.0) -> None:
        self.drop = 0.0
        for host in self.hosts:
            self.mend(host)
        self.run(seconds)

    def wanted(self) -> dict[tuple[bytes, bytes], list[bytes]]:
        return {
            key: payloads
            for key, payloads in self.sent.items()
            if any(key[1].startswith(prefix) for prefix in self.prefixes)
        }

    def payloads(self) -> dict[tuple[bytes, bytes], list[bytes]]:
        return {key: [payload for _, payload in log] for key, log in self.received.items()}
