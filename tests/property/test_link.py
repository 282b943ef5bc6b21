"""The link machine against model exchanges over a network that cuts, loses tails, and forgets.

Whatever happens, relocations and stripes included: nothing is lost, doubled or reordered for a
reader that drops doubles by sequence, every receipt tells the truth and is settled in the end, and
no batch says that something below it is in a log which is not.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from roq.client.publish.events import (
    AskAttach,
    Assignment,
    ConnectionLost,
    Effect,
    Event,
    Leave,
    Received,
    Relocate,
    Serving,
    TellRelocated,
)
from roq.client.publish.link import Drop, Open, Say, Transmit
from roq.client.publish.links import Links
from roq.client.publish.pending_batch import PendingBatch
from roq.client.publish.receipt import Outcome, Receipt
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits, PublisherId
from roq.protocol import batch as wire
from roq.protocol import channel, documents
from roq.protocol.batch import read_floor

PUBLISHER = PublisherId(b"p" * 16)
QUEUE = b"q" * 16
LIMITS = Limits(window_batches=8, window_bytes=4_000)
DELIVERY_SECONDS = 20.0
EXCHANGES = 4


class NoWaiter:
    def wait_for(self, condition: object, timeout: float | None) -> bool:
        raise AssertionError("a machine does not wait")


class Entry(NamedTuple):
    at: float
    stay: int
    link: int
    topic: bytes
    data: bytes


@dataclass
class ModelExchange:
    """Accepts contiguous link numbers, acknowledges, remembers links until told to forget."""

    number: int
    epoch: int
    accepted: set[tuple[bytes, int]]
    """What any exchange has taken: a replay of it is not refused."""
    too_large: set[tuple[bytes, int]]
    """What any exchange has refused: so do all."""
    sealed: dict[tuple[bytes, int], int]
    """The link for which a batch (topic, first sequence) was sealed."""
    log: list[Entry] = field(default_factory=list)
    stays: int = 0
    """Times that a link was forgotten: the log may repeat itself after that."""
    links: dict[int, int] = field(default_factory=dict)
    attempt: int = 0
    owner: int = 0
    link_epoch: int = 0
    refuse_next: bool = False
    frozen: bool = False
    closed: bool = False
    """Nobody answers at its address."""

    @property
    def info(self) -> ExchangeInfo:
        return ExchangeInfo(
            number=self.number,
            epoch=self.epoch,
            generation=self.epoch,
            host="h",
            data=f"tcp://x{self.number}",
            live="",
        )

    def take(  # noqa: PLR0911 - one per answer
        self, wire_: Wire, frames: tuple[bytes, ...], now: float
    ) -> list[list[bytes]]:
        connection = wire_.serial
        if frames[0] == channel.HELLO:
            return [self.hello(connection, documents.decode(frames[1], channel.Hello))]
        if connection != self.owner:
            return [self.say(channel.RESET, channel.Reset(expected=0))]
        if frames[0] == channel.BYE:
            bye = documents.decode(frames[1], channel.Bye)
            self.link_epoch = max(self.link_epoch, bye.epoch)
            return []
        header = wire.read_header(frames[1])
        expected = self.links.get(header.epoch)
        if expected is None or header.epoch != self.link_epoch:
            return [self.say(channel.RESET, channel.Reset(expected=0))]
        if header.link_number > expected:
            return [self.say(channel.RESET, channel.Reset(expected=expected))]
        if header.link_number == expected:
            place = (frames[0], header.first_sequence)
            again = place in self.too_large
            new = self.refuse_next and place not in self.accepted
            if header.kind == wire.Kind.DATA and (again or new):
                self.refuse_next &= again
                self.too_large.add(place)
                refused = channel.Refused(code="too_large", text="no", link_number=expected)
                return [self.say(channel.REFUSED, refused)]
            self.judge_floor(frames[0], frames[1], header)
            self.accepted.add(place)
            self.log.append(Entry(now, self.stays, wire_.link, frames[0], frames[1]))
            self.links[header.epoch] = expected + 1
        return [[channel.ACK, channel.NUMBER.pack(self.links[header.epoch] - 1)]]

    def judge_floor(self, topic: bytes, data: bytes, header: wire.Header) -> None:
        """Everything below a batch's floor, or below the batch if it has none, was in a log."""
        if header.kind != wire.Kind.DATA:
            return
        end = wire.HEADER_BYTES + header.ext_bytes
        floor = read_floor(data[wire.HEADER_BYTES : end])
        below = header.first_sequence if floor is None else floor
        known = {first for name, first in self.accepted if name == topic}
        for name, first in self.sealed:
            if name == topic and first < below:
                assert first in known, f"{first} is missing below {header.first_sequence}, {floor}"

    def hello(self, connection: int, hello: channel.Hello) -> list[bytes]:
        if hello.epoch < self.link_epoch:
            return self.say(channel.REFUSED, channel.Refused(code="moved", text="old"))
        if (hello.epoch, hello.attempt) > (self.link_epoch, self.attempt):
            self.owner, self.attempt, self.link_epoch = connection, hello.attempt, hello.epoch
        expected = self.links.setdefault(hello.epoch, 1)
        ready = channel.Ready(
            exchange=self.number, exchange_epoch=self.epoch, generation=self.epoch,
            expected=expected, message_bytes=10_000, batch_bytes=1_000, batch_messages=10,
            window_bytes=LIMITS.window_bytes, window_batches=LIMITS.window_batches,
        )  # fmt: skip
        return self.say(channel.READY, ready)

    @staticmethod
    def say(kind: bytes, document: channel.Ready | channel.Reset | channel.Refused) -> list[bytes]:
        return [kind, documents.encode(document)]


@dataclass
class Wire:
    """One connection, and what is on its way in both directions."""

    link: int
    serial: int
    exchange: ModelExchange
    up: deque[tuple[bytes, ...]] = field(default_factory=deque)
    down: deque[list[bytes]] = field(default_factory=deque)


class World:
    """One publisher, its exchanges, and everything on the way between them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.machine = Links(PUBLISHER, LIMITS, delivery_seconds=DELIVERY_SECONDS)
        accepted: set[tuple[bytes, int]] = set()
        too_large: set[tuple[bytes, int]] = set()
        self.sealed: dict[tuple[bytes, int], int] = {}
        self.exchanges = [
            ModelExchange(number, 1, accepted, too_large, self.sealed)
            for number in range(1, EXCHANGES + 1)
        ]
        self.lost_logs: list[list[Entry]] = []
        self.epoch = 0
        self.serial = 0
        self.wires: dict[int, Wire] = {}
        self.refusals: list[int] = []
        self.leaving: list[Wire] = []
        """Given up by the publisher; what it had sent still arrives."""
        self.wants_exchange = True
        self.untold = False
        """An exchange has died and the topology does not say so yet."""
        self.told: dict[int, TellRelocated] = {}
        self.last_relocate: Relocate | None = None
        self.published: list[tuple[str, int, list[bytes], Receipt]] = []
        self.counter = 0

    # --- what may happen --------------------------------------------------------------------------

    def publish(self, topic: str, count: int) -> bool:
        chooser = self.machine.chooser
        if not chooser.has_room or self.machine.closed:
            return False
        stream = self.machine.topics.stream(topic)
        payloads = [f"{self.counter + i}".encode() for i in range(count)]
        self.counter += count
        receipt = Receipt(NoWaiter())
        self.published.append((topic, stream.next_sequence, payloads, receipt))
        sealed = chooser.seal(stream, payloads, receipt, self.now, 1)
        link = next(link.number for link in self.machine.all if sealed in link.window)
        self.sealed[stream.data, sealed.first_sequence] = link
        for one in self.machine.all:
            self.transmit(one.number, one.transmit(self.now))
        self.machine.check()
        return True

    def to_exchange(self, count: int) -> None:
        """All connections carry what is on its way."""
        for connection in [*self.leaving, *self.wires.values()]:
            self.carry(connection, count)

    def one_to_exchange(self, which: int, count: int) -> None:
        """One connection is quicker than the others."""
        connections = [*self.leaving, *self.wires.values()]
        if connections:
            self.carry(connections[-1 - which % len(connections)], count)

    def carry(self, connection: Wire, count: int) -> None:
        for _ in range(min(count, len(connection.up))):
            exchange = connection.exchange
            if exchange.frozen or exchange.closed or exchange not in self.exchanges:
                break
            answers = exchange.take(connection, connection.up.popleft(), self.now)
            connection.down.extend(answers)
        self.leaving = [connection for connection in self.leaving if connection.up]

    def to_publisher(self, count: int) -> None:
        refusals, self.refusals = self.refusals, []
        for link in refusals:
            if link not in self.wires:
                self.feed(ConnectionLost(link, "refused"))
        for connection in list(self.wires.values()):
            for _ in range(min(count, len(connection.down))):
                if self.wires.get(connection.link) is not connection:
                    break
                self.feed(Received(connection.link, connection.down.popleft()))

    def cut(self, which: int, arrive: int) -> None:
        """A connection breaks; some of what was on its way still arrives at the exchange."""
        links = sorted(self.wires)
        if links:
            link = links[which % len(links)]
            connection = self.wires.pop(link)
            while len(connection.up) > arrive:
                connection.up.pop()
            self.leaving.append(connection)
            self.feed(ConnectionLost(link, "cut"))

    def kill(self, which: int) -> None:
        """An exchange dies with its log; readers have not seen what is younger than 2 s."""
        index = which % EXCHANGES
        old = self.exchanges[index]
        self.lost_logs.append([e for e in old.log if e.at < self.now - 2.0])
        self.untold = True
        self.exchanges[index] = ModelExchange(
            old.number, old.epoch + 1, old.accepted, old.too_large, self.sealed
        )
        self.hang_up_on(old, "killed")

    def hang_up_on(self, exchange: ModelExchange, reason: str) -> None:
        self.leaving = [c for c in self.leaving if c.exchange is not exchange]
        for connection in [c for c in self.wires.values() if c.exchange is exchange]:
            if self.wires.get(connection.link) is connection:
                del self.wires[connection.link]
                self.feed(ConnectionLost(connection.link, reason))

    def close(self, which: int) -> None:
        """An exchange can or cannot be reached from now on; it goes on living."""
        exchange = self.exchanges[which % EXCHANGES]
        exchange.closed = not exchange.closed
        if exchange.closed:
            self.hang_up_on(exchange, "unreachable")

    def forget(self, which: int) -> None:
        """An exchange forgets the link; the connection with it."""
        exchange = self.exchanges[which % EXCHANGES]
        exchange.links.pop(exchange.link_epoch, None)
        exchange.stays += 1

    def refuse(self, which: int) -> None:
        self.exchanges[which % EXCHANGES].refuse_next = True

    def freeze(self, which: int) -> None:
        exchange = self.exchanges[which % EXCHANGES]
        exchange.frozen = not exchange.frozen

    def assign(self, which: int = 0) -> None:
        if self.wants_exchange:
            self.wants_exchange = False
            self.epoch += 1
            good = [x for x in self.exchanges if not x.closed] or self.exchanges
            self.feed(Assignment(QUEUE, good[which % len(good)].info, self.epoch, LIMITS))

    def reassign(self) -> None:
        """The monitor moves the publisher to where it is already, under a new epoch."""
        self.epoch += 1
        self.feed(Assignment(QUEUE, self.exchanges[0].info, self.epoch, LIMITS))

    def relocate(self, *which: int) -> None:
        self.epoch += 1
        targets = {index % EXCHANGES: self.exchanges[index % EXCHANGES].info for index in which}
        self.last_relocate = Relocate(self.epoch, tuple(targets.values()))
        self.feed(self.last_relocate)

    def repeat(self) -> None:
        """The monitor says its last Relocate again."""
        if self.last_relocate is not None:
            self.feed(self.last_relocate)

    def tell_topology(self) -> None:
        self.untold = False
        self.feed(Serving(tuple(x.info for x in self.exchanges)))

    def wait(self, seconds: float) -> None:
        if self.untold and seconds > 1.0:
            self.tell_topology()  # the monitor notices a death in time
        end = self.now + seconds
        deadline = self.machine.next_deadline()
        while deadline is not None and deadline <= end:
            self.now = max(self.now, deadline) + 0.001
            self.feed(Tick())
            deadline = self.machine.next_deadline()
        self.now = max(self.now, end)
        self.feed(Tick())

    def fall_silent(self, which: int) -> None:
        """An exchange takes what is on its way and hangs before it says so."""
        self.to_exchange(50)
        self.exchanges[which % EXCHANGES].frozen = True
        self.wait(DELIVERY_SECONDS + 5)

    def round_trip(self) -> None:
        self.assign()
        self.to_exchange(50)
        self.to_publisher(50)

    # --- the shell --------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        self.perform(self.machine.handle(event, self.now))
        self.machine.check()

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit(link, batches):
                    self.transmit(link, list(batches))
                case Say(link, frames):
                    self.wires[link].up.append(frames)
                case Open(link, endpoint, hello):
                    self.open(link, endpoint, hello)
                case Drop(link, bye):
                    connection = self.wires.pop(link, None)
                    if connection is not None and bye:
                        connection.up.append(bye)
                    if connection is not None:
                        self.leaving.append(connection)
                case AskAttach():
                    self.wants_exchange = True
                case TellRelocated(epoch):
                    assert self.told.setdefault(epoch, effect) == effect, "said something else"

    def open(self, link: int, endpoint: str, hello: tuple[bytes, bytes]) -> None:
        self.wires.pop(link, None)
        self.serial += 1
        exchange = next(x for x in self.exchanges if x.info.data == endpoint)
        if exchange.closed:
            self.refusals.append(link)
            return
        self.wires[link] = Wire(link, self.serial, exchange, deque([hello]))

    def transmit(self, link: int, batches: list[PendingBatch]) -> None:
        for sealed in batches:
            if link in self.wires:
                self.wires[link].up.append((sealed.stream.data, sealed.data))

    def settle(self) -> None:
        """Nothing goes wrong any more: let everything arrive."""
        for exchange in self.exchanges:
            exchange.frozen = exchange.refuse_next = exchange.closed = False
        if self.untold:
            self.tell_topology()
        for _ in range(300):
            self.assign()
            self.to_exchange(100)
            self.to_publisher(100)
            if self.machine.ready and not self.machine.unsettled:
                return
            self.wait(0.2)
        raise AssertionError(f"stuck: {self.machine.reason}")

    # --- what must hold ---------------------------------------------------------------------------

    def judge(self) -> None:
        logs = [*self.lost_logs, *(x.log for x in self.exchanges)]
        seen: dict[tuple[str, int], set[bytes | None]] = {}
        for log in logs:
            self.judge_order(log)
            for entry in log:
                header = wire.read_header(entry.data)
                void = header.kind == wire.Kind.VOID
                payloads = [None] * header.count if void else wire.read_payloads(entry.data, header)
                for index, payload in enumerate(payloads):
                    place = (entry.topic.decode(), header.first_sequence + index)
                    seen.setdefault(place, set()).add(payload)
        for topic, first, payloads, receipt in self.published:
            assert receipt.status is not None, "every receipt is settled"
            for index, payload in enumerate(payloads):
                self.judge_message(seen.get((topic, first + index), set()), payload, receipt)

    def judge_order(self, log: list[Entry]) -> None:
        """Within a link only what another link had held may stand behind newer messages."""
        last: dict[tuple[int, int, bytes], int] = {}
        for _, stay, link, topic, data in log:
            header = wire.read_header(data)
            key = (header.epoch, stay, topic)
            if self.sealed[topic, header.first_sequence] == link:
                assert header.first_sequence >= last.get(key, 0), "order within a link"
            last[key] = max(last.get(key, 0), header.next_sequence)

    def judge_calm(self) -> None:
        """Without trouble no log holds anything twice or out of order, and no two the same."""
        seen: set[tuple[bytes, int]] = set()
        for exchange in self.exchanges:
            last: dict[bytes, int] = {}
            for entry in exchange.log:
                header = wire.read_header(entry.data)
                assert (entry.topic, header.first_sequence) not in seen
                seen.add((entry.topic, header.first_sequence))
                assert header.first_sequence >= last.get(entry.topic, 0)
                last[entry.topic] = header.next_sequence
        assert all(receipt.status and receipt.status.ok for *_, receipt in self.published)

    @staticmethod
    def judge_message(found: set[bytes | None], payload: bytes, receipt: Receipt) -> None:
        assert receipt.status is not None
        assert found, "a sequence is missing: readers would wait"
        match receipt.status.outcome:
            case Outcome.OK:
                assert payload in found
            case Outcome.FAILED | Outcome.REFUSED:
                assert found == {None}
            case _:
                assert found <= {payload, None}
        assert found <= {payload, None}, "two messages under one sequence"


Step = tuple[object, ...]
FEW = st.integers(1, 6)
WHICH = st.integers(0, EXCHANGES - 1)


def step(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), *arguments)


PUBLISH = step("publish", st.sampled_from(["a", "b"]), st.integers(1, 3))
CALM = [
    PUBLISH,
    PUBLISH,
    PUBLISH,
    PUBLISH,
    step("one_to_exchange", WHICH, FEW),
    step("one_to_exchange", WHICH, FEW),
    step("to_publisher", FEW),
    step("to_publisher", FEW),
    step("round_trip"),
    step("repeat"),
    step("relocate", WHICH),
]
STRIPES = [step("relocate", WHICH, WHICH), step("relocate", WHICH, WHICH, WHICH)]
TROUBLE = [
    step("reassign"),
    step("cut", WHICH, st.integers(0, 4)),
    step("kill", WHICH),
    step("close", WHICH),
    step("forget", WHICH),
    step("refuse", WHICH),
    step("freeze", WHICH),
    step("fall_silent", WHICH),
    step("tell_topology"),
    step("wait", st.sampled_from([0.01, 0.3, 1.7, 4.0, 25.0])),
]


def steps(kinds: list[st.SearchStrategy[Step]], most: int = 80) -> st.SearchStrategy[list[Step]]:
    """Long lists: most trouble takes several steps to come about."""
    lengths = st.integers(5, most)
    return lengths.flatmap(lambda n: st.lists(st.one_of(kinds), min_size=n, max_size=n))


def run(steps: list[Step]) -> World:
    world = World()
    world.round_trip()
    for name, *arguments in steps:
        getattr(world, str(name))(*arguments)
    return world


@settings(max_examples=600, deadline=None)
@given(steps(CALM + STRIPES + TROUBLE))
def test_nothing_is_lost_doubled_or_reordered_and_every_receipt_tells_the_truth(
    steps: list[Step],
) -> None:
    world = run(steps)
    world.settle()
    world.judge()


@settings(max_examples=200, deadline=None)
@given(steps(CALM))
def test_planned_moves_leave_every_log_in_order_without_a_single_double(
    steps: list[Step],
) -> None:
    world = run(steps)
    world.settle()
    world.judge()
    world.judge_calm()


@settings(max_examples=200, deadline=None)
@given(steps(CALM + STRIPES))
def test_planned_stripes_leave_every_log_in_order_without_a_single_double(
    steps: list[Step],
) -> None:
    world = run(steps)
    world.settle()
    world.judge()
    world.judge_calm()


@settings(max_examples=100, deadline=None)
@given(steps(CALM + STRIPES + TROUBLE, 40))
def test_leaving_settles_every_receipt(steps: list[Step]) -> None:
    world = run(steps)
    world.machine.handle(Leave("closed"), world.now)
    assert all(receipt.done() for *_, receipt in world.published)
    assert world.machine.owed_batches == 0


@settings(max_examples=100, deadline=None)
@given(steps(CALM + STRIPES, 20), WHICH)
def test_a_move_never_takes_the_room_of_a_window_away(steps: list[Step], target: int) -> None:
    """While the old exchange drains there is room for a window beside what it still owes."""
    world = run(steps)
    world.relocate(0)
    world.settle()
    world.exchanges[0].frozen = True
    while world.publish("a", 1):
        continue
    world.relocate(1 + target % (EXCHANGES - 1))
    world.to_exchange(50)
    world.to_publisher(50)
    published = 0
    while published < LIMITS.window_batches and world.publish("a", 1):
        published += 1
    assert published == LIMITS.window_batches
    world.settle()
    world.judge()
