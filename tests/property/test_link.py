"""The link machine against model exchanges over a network that cuts, loses tails, and forgets.

Whatever happens: nothing is lost, doubled or reordered for a reader that drops doubles by sequence,
every receipt tells the truth, and every receipt is settled in the end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from roq.client.link import (
    AskAttach,
    Assignment,
    ConnectionLost,
    Drop,
    Effect,
    Leave,
    LinkMachine,
    LinkPhase,
    Open,
    Received,
    Serving,
    Transmit,
)
from roq.client.receipt import Outcome, Receipt
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits, PublisherId
from roq.protocol import batch as wire
from roq.protocol import channel, documents

PUBLISHER = PublisherId(b"p" * 16)
QUEUE = b"q" * 16
LIMITS = Limits(window_batches=8, window_bytes=4_000)
DELIVERY_SECONDS = 20.0


class NoWaiter:
    def wait_for(self, condition: object, timeout: float | None) -> bool:
        raise AssertionError("a machine does not wait")


class Entry(NamedTuple):
    at: float
    stay: int
    topic: bytes
    data: bytes


@dataclass
class ModelExchange:
    """Accepts contiguous link numbers, acknowledges, remembers links until told to forget."""

    number: int
    epoch: int
    accepted: set[tuple[bytes, int]]
    """What any exchange has taken: a replay of it is not refused."""
    log: list[Entry] = field(default_factory=list)
    stays: int = 0
    """Times that a link was forgotten: the log may repeat itself after that."""
    links: dict[int, int] = field(default_factory=dict)
    attempt: int = 0
    owner: int = 0
    link_epoch: int = 0
    refuse_next: bool = False
    frozen: bool = False

    @property
    def info(self) -> ExchangeInfo:
        return ExchangeInfo(
            number=self.number, epoch=self.epoch, host="h", data=f"tcp://x{self.number}", live=""
        )

    def take(self, connection: int, frames: tuple[bytes, bytes], now: float) -> list[list[bytes]]:
        if frames[0] == channel.HELLO:
            return [self.hello(connection, documents.decode(frames[1], channel.Hello))]
        if connection != self.owner:
            return [self.say(channel.RESET, channel.Reset(expected=0))]
        header = wire.read_header(frames[1])
        expected = self.links.get(header.epoch)
        if expected is None or header.epoch != self.link_epoch:
            return [self.say(channel.RESET, channel.Reset(expected=0))]
        if header.link_number > expected:
            return [self.say(channel.RESET, channel.Reset(expected=expected))]
        if header.link_number == expected:
            place = (frames[0], header.first_sequence)
            if self.refuse_next and header.kind == wire.Kind.DATA and place not in self.accepted:
                self.refuse_next = False
                refused = channel.Refused(code="too_large", text="no", link_number=expected)
                return [self.say(channel.REFUSED, refused)]
            self.accepted.add(place)
            self.log.append(Entry(now, self.stays, frames[0], frames[1]))
            self.links[header.epoch] = expected + 1
        return [[channel.ACK, channel.NUMBER.pack(self.links[header.epoch] - 1)]]

    def hello(self, connection: int, hello: channel.Hello) -> list[bytes]:
        if hello.epoch < self.link_epoch:
            return self.say(channel.REFUSED, channel.Refused(code="stale_epoch", text="old"))
        if (hello.epoch, hello.attempt) > (self.link_epoch, self.attempt):
            self.owner, self.attempt, self.link_epoch = connection, hello.attempt, hello.epoch
        expected = self.links.setdefault(hello.epoch, 1)
        ready = channel.Ready(
            exchange=self.number, exchange_epoch=self.epoch, expected=expected,
            message_bytes=10_000, batch_bytes=1_000, batch_messages=10,
            window_bytes=LIMITS.window_bytes, window_batches=LIMITS.window_batches,
        )  # fmt: skip
        return self.say(channel.READY, ready)

    @staticmethod
    def say(kind: bytes, document: channel.Ready | channel.Reset | channel.Refused) -> list[bytes]:
        return [kind, documents.encode(document)]


class World:
    """One publisher, its exchanges, and everything on the way between them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.link = LinkMachine(PUBLISHER, QUEUE, LIMITS, delivery_seconds=DELIVERY_SECONDS)
        self.exchanges = [ModelExchange(1, 1, set())]
        self.lost_logs: list[list[Entry]] = []
        self.epoch = 0
        self.connection = 0
        self.connected: ModelExchange | None = None
        self.up: deque[tuple[bytes, bytes]] = deque()
        self.down: deque[list[bytes]] = deque()
        self.wants_exchange = True
        self.published: list[tuple[str, int, list[bytes], Receipt]] = []
        self.counter = 0

    # --- what may happen --------------------------------------------------------------------------

    def publish(self, topic: str, count: int) -> None:
        outbox = self.link.outbox
        if not outbox.has_room or self.link.phase is LinkPhase.CLOSED:
            return
        stream = self.link.topics.stream(topic)
        payloads = [f"{self.counter + i}".encode() for i in range(count)]
        self.counter += count
        receipt = Receipt(NoWaiter())
        self.published.append((topic, stream.next_sequence, payloads, receipt))
        outbox.seal(stream, payloads, receipt, self.now, 1)
        self.transmit(self.link.transmit(self.now))
        self.link.check()

    def to_exchange(self, count: int) -> None:
        exchange = self.connected
        for _ in range(min(count, len(self.up))):
            if exchange is None or exchange.frozen:
                return
            self.down.extend(exchange.take(self.connection, self.up.popleft(), self.now))

    def to_publisher(self, count: int) -> None:
        connection = self.connection
        for _ in range(min(count, len(self.down))):
            self.feed(Received(self.down.popleft()))
            if self.connection != connection:
                return

    def cut(self, arrive: int) -> None:
        """The connection breaks; some of what was on its way still arrives at the exchange."""
        if self.connected is not None:
            self.to_exchange(arrive)
            self.hang_up()
            self.feed(ConnectionLost("cut"))

    def kill(self) -> None:
        """The exchange dies with its log; readers have not seen what is younger than 2 s."""
        old = self.exchanges[0]
        self.lost_logs.append([e for e in old.log if e.at < self.now - 2.0])
        self.exchanges[0] = ModelExchange(old.number, old.epoch + 1, old.accepted)
        if self.connected is old:
            self.hang_up()
            self.feed(ConnectionLost("killed"))

    def forget(self) -> None:
        """The exchange forgets the link; the connection with it."""
        exchange = self.exchanges[0]
        exchange.links.pop(exchange.link_epoch, None)
        exchange.stays += 1

    def refuse(self) -> None:
        self.exchanges[0].refuse_next = True

    def freeze(self) -> None:
        self.exchanges[0].frozen = not self.exchanges[0].frozen

    def assign(self) -> None:
        if self.wants_exchange:
            self.wants_exchange = False
            self.epoch += 1
            self.feed(Assignment(self.exchanges[0].info, self.epoch, LIMITS))

    def reassign(self) -> None:
        """The monitor moves the publisher to where it is already, under a new epoch."""
        self.epoch += 1
        self.feed(Assignment(self.exchanges[0].info, self.epoch, LIMITS))

    def tell_topology(self) -> None:
        self.feed(Serving(frozenset((x.number, x.epoch) for x in self.exchanges)))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        deadline = self.link.next_deadline()
        while deadline is not None and deadline <= end:
            self.now = max(self.now, deadline) + 0.001
            self.feed(Tick())
            deadline = self.link.next_deadline()
        self.now = max(self.now, end)
        self.feed(Tick())

    def fall_silent(self) -> None:
        """The exchange takes what is on its way and hangs before it says so."""
        self.to_exchange(50)
        self.exchanges[0].frozen = True
        self.wait(DELIVERY_SECONDS + 5)

    def round_trip(self) -> None:
        self.assign()
        self.to_exchange(50)
        self.to_publisher(50)

    # --- the shell --------------------------------------------------------------------------------

    def feed(self, event: Received | ConnectionLost | Assignment | Serving | Tick) -> None:
        self.perform(self.link.handle(event, self.now))
        self.link.check()

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit(batches):
                    self.transmit(list(batches))
                case Open(endpoint, hello):
                    self.hang_up()
                    self.connection += 1
                    alive = [x for x in self.exchanges if x.info.data == endpoint]
                    self.connected = alive[0]
                    self.up.append(hello)
                case Drop():
                    self.hang_up()
                case AskAttach():
                    self.wants_exchange = True

    def transmit(self, batches: list) -> None:  # type: ignore[type-arg]
        for sealed in batches:
            self.up.append((sealed.stream.data, sealed.data))

    def hang_up(self) -> None:
        self.connected = None
        self.up.clear()
        self.down.clear()

    def settle(self) -> None:
        """Nothing goes wrong any more: let everything arrive."""
        for exchange in self.exchanges:
            exchange.frozen = exchange.refuse_next = False
        for _ in range(200):
            self.assign()
            self.to_exchange(100)
            self.to_publisher(100)
            if self.link.ready and not len(self.link.outbox):
                return
            self.wait(0.2)
        raise AssertionError(f"stuck: {self.link.phase} {self.link.reason}")

    # --- what must hold ---------------------------------------------------------------------------

    def judge(self) -> None:
        logs = [*self.lost_logs, *(x.log for x in self.exchanges)]
        seen: dict[tuple[str, int], set[bytes | None]] = {}
        for log in logs:
            last: dict[tuple[int, int, bytes], int] = {}
            for _, stay, topic, data in log:
                header = wire.read_header(data)
                key = (header.epoch, stay, topic)
                assert header.first_sequence >= last.get(key, 0), "order within a link"
                last[key] = header.next_sequence
                void = header.kind == wire.Kind.VOID
                payloads = [None] * header.count if void else wire.read_payloads(data, header)
                for index, payload in enumerate(payloads):
                    place = (topic.decode(), header.first_sequence + index)
                    seen.setdefault(place, set()).add(payload)
        for topic, first, payloads, receipt in self.published:
            assert receipt.status is not None, "every receipt is settled"
            for index, payload in enumerate(payloads):
                self.judge_message(seen.get((topic, first + index), set()), payload, receipt)

    @staticmethod
    def judge_message(found: set[bytes | None], payload: bytes, receipt: Receipt) -> None:
        assert receipt.status is not None
        assert found, "a sequence is missing: readers would wait"
        match receipt.status.outcome:
            case Outcome.ACCEPTED:
                assert payload in found
            case Outcome.FAILED:
                assert found == {None}
            case _:
                assert found <= {payload, None}
        assert found <= {payload, None}, "two messages under one sequence"


TOPICS = st.sampled_from(["a", "b"])
FEW = st.integers(1, 6)
STEPS = st.one_of(
    st.tuples(st.just("publish"), TOPICS, st.integers(1, 3)),
    st.tuples(st.just("publish"), TOPICS, st.integers(1, 3)),
    st.tuples(st.just("to_exchange"), FEW),
    st.tuples(st.just("to_exchange"), FEW),
    st.tuples(st.just("to_publisher"), FEW),
    st.tuples(st.just("to_publisher"), FEW),
    st.tuples(st.just("round_trip")),
    st.tuples(st.just("round_trip")),
    st.tuples(st.just("reassign")),
    st.tuples(st.just("cut"), st.integers(0, 4)),
    st.tuples(st.just("kill")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("refuse")),
    st.tuples(st.just("freeze")),
    st.tuples(st.just("fall_silent")),
    st.tuples(st.just("tell_topology")),
    st.tuples(st.just("wait"), st.sampled_from([0.01, 0.3, 1.7, 4.0, 25.0])),
)


@settings(max_examples=500, deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=60))
def test_nothing_is_lost_doubled_or_reordered_and_every_receipt_tells_the_truth(
    steps: list[tuple[object, ...]],
) -> None:
    world = World()
    world.round_trip()
    for name, *arguments in steps:
        getattr(world, str(name))(*arguments)
    world.settle()
    world.judge()


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_leaving_settles_every_receipt(steps: list[tuple[object, ...]]) -> None:
    world = World()
    world.round_trip()
    for name, *arguments in steps:
        getattr(world, str(name))(*arguments)
    world.link.handle(Leave("closed"), world.now)
    assert all(receipt.done() for *_, receipt in world.published)
    assert world.link.outbox.owed_batches == 0
