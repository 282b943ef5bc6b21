"""A durable exchange through many lives, and producers of transactions; no test in here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from exchange_driver import NUMBER, QUEUE, publisher_id

from roq.exchange.events import Effect, Received, Send, Unreachable
from roq.exchange.machine import ExchangeCore
from roq.log.disk_groups import perform
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.machine import Tick
from roq.model import Limits
from roq.protocol import batch, channel, documents
from roq.protocol.attributes import Attributes, BatchAttributes, pack_attributes
from roq.protocol.channel import READER_TAG_BYTES, REFUSED, Hello, Refused
from roq.protocol.delayed import DELAYED_TOPIC, Delayed, encode_delayed
from roq.protocol.entry import read_entry
from roq.protocol.transaction import (
    CHECK,
    ENROLL,
    OPEN_US,
    SETTLE,
    TRANSACTIONS,
    CheckHead,
    Decision,
    Enroll,
    Fate,
    Half,
    Policy,
    Settle,
    Settled,
    Transactions,
    TransactionsQuery,
    decode_half,
    encode_half,
    split_document,
)
from roq.simulation.virtual.lossy_files import LossyFiles

START_US = 1_700_000_000_000_000
TAG = bytes(READER_TAG_BYTES)


def name(number: int) -> bytes:
    return number.to_bytes(8, "big")


def half(
    number: int,
    *,
    group: str = "g",
    topics: tuple[bytes, ...] = (b"t",),
    size: int = 0,
    check: float = 10.0,
    attempts: int = 3,
    patience: float = 1_000.0,
    otherwise: Policy = "rollback",
) -> bytes:
    """The payload of a half message with one message for each topic."""
    messages = [(topic, b"%d:%d:" % (number, at) + b"x" * size) for at, topic in enumerate(topics)]
    made = Half(
        group, messages, pack_attributes({0: Attributes("k")}), check, attempts, patience, otherwise
    )
    return encode_delayed(Delayed(OPEN_US, b"", encode_half(made), name(number)))


@dataclass
class Durable:
    """The exchange, its disk, and what came of it."""

    files: LossyFiles = field(default_factory=LossyFiles)
    now: float = 0.0
    jump_us: int = 0
    epoch: int = 0
    link: int = 0
    capacity: int = 60_000
    written: int | None = None
    """Up to where it is on the disk, which the exchange does not know yet."""
    places: dict[bytes, set[int]] = field(default_factory=dict)
    """By payload, the offsets at which subscribers got it."""
    keys: dict[bytes, Attributes] = field(default_factory=dict)
    answers: list[tuple[bytes, tuple[bytes, ...]]] = field(default_factory=list)

    def open(self) -> None:
        """The next process begins."""
        self.epoch += 1
        settings = LogSettings(
            queue=QUEUE, exchange=NUMBER, epoch=self.epoch, cluster="c", host="h",
            ring_bytes=4_000, topics_max=100, topics_spare=12, capacity_bytes=self.capacity,
            keep_us=1 << 50, now_us=self.wall_us, segment_bytes=3_000, segment_entries=30,
        )  # fmt: skip
        self.log: SegmentLog[bytes] = open_log(self.files, settings)
        limits = Limits(ring_bytes=4_000, log_bytes=self.capacity)
        self.core: ExchangeCore[bytes] = ExchangeCore(
            QUEUE, NUMBER, self.epoch, limits, late=self.log, place="here"
        )
        self.core.begin(self.now, self.wall_us)
        self.core.recover(self.now, self.log.recovered.snapshot, self.log.recovered.since)
        for offset in range(self.log.floor, self.log.end):
            record = self.log.record(offset)
            if record is not None and record[0].name in {b"t", b"u"}:
                self.show(record[1], record[2])
        hello = Hello(queue=QUEUE, publisher=publisher_id("p"), epoch=self.epoch, attempt=1)
        self.core.handle(Received(b"p", (channel.HELLO, documents.encode(hello))), self.now)
        self.link, self.written = 0, None
        self.answers.clear()
        self.core.check()

    @property
    def wall_us(self) -> int:
        return START_US + int(self.now * 1e6) + self.jump_us

    @property
    def table_size(self) -> int:
        return len(self.core.delayed.transactions)

    def prepare(self, *halves: bytes, again: bool = False) -> bool:
        """Whether the log has taken it, as one batch; acknowledged when that is committed."""
        self.link += not again
        data = batch.pack(
            list(halves), publisher=publisher_id("p"), epoch=self.epoch, link_number=self.link,
            first_sequence=1_000 * self.link, created_us=7,
        )  # fmt: skip
        before = self.log.end
        shown = self.core.append(b"p", DELAYED_TOPIC, data, len(data))
        assert shown is None, "nobody is shown that"
        if self.log.end == before and not again:
            self.link -= 1
        return self.log.end > before

    def fill(self, size: int = 200) -> None:
        """An ordinary message."""
        self.link += 1
        data = batch.pack(
            [b"-1:0:" + b"y" * size], publisher=publisher_id("p"), epoch=self.epoch,
            link_number=self.link, first_sequence=1_000 * self.link, created_us=7,
        )  # fmt: skip
        before = self.log.end
        self.core.append(b"p", b"v", data, len(data))
        self.link -= self.log.end == before

    def turn(self, seconds: float = 0.0, *, sync: bool = True) -> None:
        """Time passes, and the disk takes what there is."""
        self.now += seconds
        core = self.core
        core.begin(self.now, self.wall_us)
        self.take(core.handle(Tick(), self.now))
        core.take_acks()
        self.take(core.take_answers())
        core.check()
        group = self.log.gather(core.snapshot)
        if group is not None:
            perform(self.files, group)
            self.written = group.end
        if not sync:
            return
        if self.written is not None:
            self.log.commit(self.written)
            self.written = None
        for topic, frame, data, _ in core.take_committed(1_000):
            assert topic.name != DELAYED_TOPIC
            if topic.name != b"v":
                self.show(frame, data)
        self.take(core.take_answers())
        core.check()

    def wait(self, seconds: float, step: float = 1.0) -> None:
        """Turn by turn."""
        until = self.now + seconds
        while self.now < until:
            self.turn(min(step, until - self.now))
        self.turn()

    @property
    def shown(self) -> Counter[bytes]:
        """By payload, how often subscribers got it."""
        return Counter({payload: len(places) for payload, places in self.places.items()})

    def show(self, frame: bytes, data: bytes) -> None:
        header = batch.read_header(data)
        if header.kind == batch.Kind.DATA and not header.link_number:
            payloads, packed = batch.read_body(data, header)
            for at, payload in enumerate(payloads):
                self.places.setdefault(payload, set()).add(read_entry(frame).offset)
                if packed is not None:
                    self.keys[payload] = BatchAttributes(packed, 0, header.count).of(at)

    def take(self, effects: list[Effect]) -> None:
        self.answers += [(each.route, each.parts) for each in effects if isinstance(each, Send)]

    def ask(self, route: bytes, letter: bytes, document: bytes) -> None:
        self.take(self.core.handle(Received(route, (letter + TAG, document)), self.now))
        while self.core.requests:
            self.take(self.core.answer_next(self.now))
        self.core.check()

    def told(self, route: bytes, letter: bytes) -> list[tuple[bytes, ...]]:
        """What came here under this letter since the last call, without the letter."""
        mine = [each for each in self.answers if (each[0], each[1][0]) == (route, letter + TAG)]
        self.answers = [each for each in self.answers if each not in mine]
        return [parts[1:] for _, parts in mine]

    # --- producers --------------------------------------------------------------------------------

    def enroll(
        self, route: bytes, group: str = "g", publisher: str = "", *, leave: bool = False
    ) -> None:
        made = Enroll(
            id=1, queue=QUEUE, group=group, leave=leave,
            publisher=publisher_id(publisher) if publisher else b"",
        )  # fmt: skip
        self.ask(route, ENROLL, documents.encode(made))
        assert self.told(route, ENROLL)

    def checks(self, route: bytes) -> list[tuple[int, CheckHead]]:
        """What this producer is asked since the last call."""
        found = []
        for (data,) in self.told(route, CHECK):
            document, rest = split_document(data)
            assert decode_half(rest)
            head = documents.decode(document, CheckHead)
            found.append((int.from_bytes(head.transaction, "big"), head))
        return found

    def say(
        self,
        number: int,
        decision: Decision,
        route: bytes = b"r",
        group: str = "g",
        serial: int = 1,
    ) -> None:
        """What is to become of a transaction; the answer comes when it is kept."""
        settle = Settle(id=serial, queue=QUEUE, group=group, ends=[(name(number), decision)])
        self.ask(route, SETTLE, documents.encode(settle))

    def fates(self, route: bytes = b"r") -> list[tuple[int, Fate]]:
        """What was answered to that: by serial."""
        answers = [documents.decode(each[0], Settled) for each in self.told(route, SETTLE)]
        return [(each.id, each.fates[0]) for each in answers]

    def settle(
        self, number: int, decision: Decision, route: bytes = b"r", group: str = "g"
    ) -> Fate:
        """The same, and wait until that is kept."""
        self.say(number, decision, route, group)
        for _ in range(9):
            self.turn()
            found = self.fates(route)
            if found:
                return found[0][1]
        raise AssertionError("it is not answered")

    def look(self, number: int | None = None, group: str = "", most: int = 100) -> Transactions:
        transaction = b"" if number is None else name(number)
        query = TransactionsQuery(
            id=1, queue=QUEUE, transaction=transaction, group=group, most=most
        )
        self.ask(b"look", TRANSACTIONS, documents.encode(query))
        self.turn()  # how one has ended is told when that is kept
        ((data,),) = self.told(b"look", TRANSACTIONS)
        return documents.decode(split_document(data)[0], Transactions)

    def leave(self, route: bytes) -> None:
        """Its connection has ended."""
        self.core.handle(Unreachable(route), self.now)
        self.core.check()

    def refusals(self, route: bytes) -> list[str]:
        """Codes."""
        mine = [parts for to, parts in self.answers if to == route and parts[0][:2] == REFUSED]
        return [documents.decode(parts[1], Refused).code for parts in mine]
