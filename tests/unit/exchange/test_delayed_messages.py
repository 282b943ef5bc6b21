"""Delayed messages of an exchange, on a virtual clock, in memory and on a disk that loses power."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from exchange_driver import NUMBER, QUEUE, Exchange, exchange, publisher_id

from roq.exchange import commit, delayed_messages
from roq.exchange.disk_room import Room
from roq.exchange.events import Received, Send, Unreachable
from roq.exchange.machine import ExchangeCore
from roq.log.disk_groups import perform
from roq.log.files import LogRefused
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.log.steady_clock import SteadyClock
from roq.machine import Tick
from roq.model import Limits
from roq.protocol import batch, channel, documents
from roq.protocol.attributes import (
    Attributes,
    BatchAttributes,
    pack_attributes,
)
from roq.protocol.channel import (
    FETCH,
    FETCHED_ENTRY,
    HEADS,
    READER_BYTES,
    REFUSED,
    STREAMS,
    Fetched,
    FetchRequest,
    Heads,
    HeadsRequest,
    Hello,
    Refused,
    Streams,
    StreamsRequest,
)
from roq.protocol.delayed import (
    CANCEL_DELAYED,
    DELAY_SECONDS_MAX,
    DELAYED,
    DELAYED_TOPIC,
    CancelDelayed,
    CancelledDelayed,
    Delayed,
    DelayedList,
    DelayedRequest,
    encode_delayed,
)
from roq.protocol.entry import read_entry
from roq.protocol.transaction import OPEN_US, Half, encode_half
from roq.simulation.virtual.lossy_files import LossyFiles

START_US = 1_700_000_000_000_000
SECOND = 1_000_000


def name(number: int) -> bytes:
    return number.to_bytes(8, "big")


def wrapped(
    payloads: list[bytes], number: int, first: int, attributes: dict[int, Attributes] | None = None
) -> bytes:
    return batch.pack(
        payloads, publisher=publisher_id("p"), epoch=1, link_number=number, first_sequence=first,
        created_us=7, attributes=None if attributes is None else pack_attributes(attributes),
    )  # fmt: skip


@dataclass
class Clock:
    """An exchange, a publisher of delayed messages, and time."""

    there: Exchange
    number: int = 0
    first: int = 0
    jump_us: int = 0

    def __post_init__(self) -> None:
        self.there.core.delayed.clock = SteadyClock()
        self.begin()
        hello = Hello(queue=QUEUE, publisher=publisher_id("p"), epoch=1, attempt=1)
        self.there.tell(Received(b"p", (channel.HELLO, documents.encode(hello))))

    def begin(self) -> None:
        wall_us = START_US + int(self.there.now * SECOND) + self.jump_us
        self.there.core.begin(self.there.now, wall_us)

    def send(self, *messages: Delayed, attributes: dict[int, Attributes] | None = None) -> bool:
        return self.send_raw([encode_delayed(each) for each in messages], attributes)

    def send_raw(
        self, payloads: list[bytes], attributes: dict[int, Attributes] | None = None
    ) -> bool:
        self.begin()
        before = self.there.core.log.end
        data = wrapped(payloads, self.number + 1, self.first, attributes)
        shown = self.there.append(b"p", DELAYED_TOPIC, data)
        assert not shown, "nobody is shown that"
        if self.there.core.log.end == before:
            return False
        self.number += 1
        self.first += len(payloads)
        return True

    def wait(self, seconds: float) -> None:
        """Time passes, turn by turn."""
        until = self.there.now + seconds
        while True:
            at = min(until, self.there.core.next_deadline())
            self.there.now = max(self.there.now, at)
            self.begin()
            self.there.tell(Tick())
            self.there.settle()
            if self.there.now >= until and (self.there.core.delayed.deadline or until + 1) > until:
                return

    def published(self) -> list[tuple[bytes, bytes, Attributes]]:
        """What subscribers have got of the exchange's own."""
        found = []
        for parts in self.there.live:
            if len(parts) == 3:
                header = batch.read_header(parts[2])
                if header.kind == batch.Kind.DATA and not header.link_number:
                    payloads, packed = batch.read_body(parts[2], header)
                    assert packed is not None
                    given = BatchAttributes(packed, 0, header.count)
                    found += [(parts[0], each, given.of(at)) for at, each in enumerate(payloads)]
        return found

    def payloads(self) -> list[bytes]:
        return [payload for _, payload, _ in self.published()]


def clock(**limits: int) -> Clock:
    return Clock(exchange(**limits))


def message(number: int, seconds: float, topic: bytes = b"t", payload: bytes = b"") -> Delayed:
    due_us = START_US + int(seconds * SECOND)
    return Delayed(due_us, topic, payload or b"m%d" % number, name(number))


def test_a_message_is_published_when_it_is_due_and_not_before() -> None:
    made = clock()
    assert made.send(message(1, 5.0), message(2, 2.5, b"u"), message(3, 500.0))
    made.wait(2.4)
    assert made.payloads() == []
    made.wait(0.2)
    assert made.payloads() == [b"m2"]
    made.wait(2.4)
    assert made.payloads() == [b"m2", b"m1"]
    assert len(made.there.core.delayed) == 1
    made.wait(500.0)
    assert made.payloads() == [b"m2", b"m1", b"m3"]
    assert len(made.there.core.delayed) == 0
    assert made.there.core.delayed.deadline is None


def test_what_is_past_is_published_at_once_and_ten_years_are_kept() -> None:
    made = clock()
    assert made.send(message(1, -86_400.0), message(2, DELAY_SECONDS_MAX - 1.0))
    made.wait(0.0)
    assert made.payloads() == [b"m1"]
    assert made.there.core.delayed.deadline is None


def test_it_says_who_has_published_it_and_keeps_its_attributes() -> None:
    made = clock()
    given = Attributes("k", ("a", "b"), {"colour": "red"})
    made.send(message(1, 1.0), attributes={0: given})
    made.wait(1.0)
    ((topic, _, attributes),) = made.published()
    assert (topic, attributes.key, attributes.tags) == (b"t", "k", ("a", "b"))
    assert attributes.properties == {
        "colour": "red",
        "roq.delayed.id": name(1).hex(),
        "roq.delayed.publisher": publisher_id("p").hex(),
        "roq.delayed.published": "7",
        "roq.delayed.due": str(START_US + SECOND),
    }


def test_the_exchange_numbers_what_it_publishes() -> None:
    made = clock(batch_messages=2)
    for number in range(5):
        made.send(message(number, 1.0))
    made.wait(1.0)
    headers = [batch.read_header(parts[2]) for parts in made.there.live if len(parts) == 3]
    assert [(each.first_sequence, each.count, each.link_number) for each in headers] == [
        (0, 2, 0), (2, 2, 0), (4, 1, 0),
    ]  # fmt: skip
    assert {each.publisher for each in headers} == {made.there.core.delayed.publisher}


@pytest.mark.parametrize(
    "payload",
    [b"", b"garbage", encode_delayed(Delayed(1, b"\xff", b"", name(1))),
     encode_delayed(Delayed(1, DELAYED_TOPIC, b"", name(1))),
     encode_delayed(Delayed(1, b"t", b"", name(1)))[:-9]],
)  # fmt: skip
def test_what_is_no_delayed_message_is_refused(payload: bytes) -> None:
    made = clock()
    made.there.answers(b"p")
    assert not made.send_raw([payload])
    ((_, document),) = made.there.answers(b"p")
    assert documents.decode(document, Refused).code == "malformed"
    assert made.send(message(1, 1.0))


def refusal(made: Clock) -> Refused:
    return documents.decode(made.there.answers(b"p")[-1][1], Refused)


def test_ten_thousand_years_are_refused_in_a_sentence() -> None:
    made = clock()
    assert not made.send(message(1, 10_000 * 365 * 86_400.0))
    assert "3660 days at most" in refusal(made).text
    assert made.there.core.delayed.refused == 1


@pytest.mark.parametrize(("properties", "taken"), [(140, True), (141, False), (144, False)])
@pytest.mark.parametrize("half", [False, True])
def test_what_leaves_no_room_for_where_it_comes_from_is_refused_and_others_can_be_read(
    properties: int, taken: bool, half: bool
) -> None:
    made = clock()
    given = Attributes(properties={f"p{each}": "" for each in range(properties)})
    if half:
        packed = encode_half(Half("g", [(b"t", b"x")], pack_attributes({0: given}), 60, 1, 60))
        sent = made.send(Delayed(OPEN_US, b"", packed, name(1)))
    else:
        sent = made.send(message(1, 1.0), attributes={0: given})
    assert sent is taken
    if not taken:
        refused = refusal(made)
        assert refused.code == "invalid_request"
        assert "140 properties at most" in refused.text
        assert made.there.core.delayed.refused == 1
    assert made.send(message(2, 1.0), attributes={0: Attributes("k")})
    made.wait(1.0)
    assert "k" in [attributes.key for _, _, attributes in made.published()]


def test_what_waits_is_bounded_in_bytes_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    made = clock(ring_bytes=40_000)
    assert made.send(message(1, 50.0, payload=b"x" * 9_000))
    assert not made.send(message(2, 50.0, payload=b"x" * 2_000))
    assert refusal(made).code == "full"
    monkeypatch.setattr(delayed_messages, "PENDING_MAX", 1)
    assert not made.send(message(3, 50.0))
    assert "keeps 1 of" in refusal(made).text
    made.wait(51.0)
    assert made.send(message(4, 90.0))


def test_properties_count_for_what_waits() -> None:
    made = clock(ring_bytes=400_000)
    given = {0: Attributes(properties={"p": "y" * 4_000})}
    sent = 0
    while sent < 100 and made.send(message(sent, 50.0, payload=b"x"), attributes=given):
        sent += 1
    assert 20 < sent < 25, "100,000 bytes are kept at most"
    made.wait(51.0)
    assert made.there.core.delayed.check() is None
    assert made.send(message(200, 90.0), attributes=given)


def test_it_is_hidden_from_readers() -> None:
    made = clock()
    made.send(message(1, 50.0))
    ask = made.there.ask
    heads = documents.decode(
        ask(HEADS, HeadsRequest(id=1, queue=QUEUE, prefixes=[b""], since=0)), Heads
    )
    assert (heads.heads, heads.end) == ([], 1)
    request = StreamsRequest(id=1, queue=QUEUE, prefixes=[b""])
    assert documents.decode(ask(STREAMS, request), Streams).streams == []
    fetch = FetchRequest(
        id=1, queue=QUEUE, generation=made.there.core.log.generation, prefixes=[b""], until=9
    )
    made.there.tell(Received(b"reader", (FETCH, documents.encode(fetch))))
    made.there.serve()
    piece = made.there.core.fetches.next_piece()
    assert piece.parts[0] != FETCHED_ENTRY
    assert documents.decode(piece.parts[1], Fetched).done


def cancel(made: Clock, number: int) -> bool:
    request = CancelDelayed(id=1, queue=QUEUE, message=name(number))
    return documents.decode(made.there.ask(CANCEL_DELAYED, request), CancelledDelayed).found


def listed(made: Clock, most: int = 10) -> list[int]:
    request = DelayedRequest(id=1, queue=QUEUE, most=most)
    answer = documents.decode(made.there.ask(DELAYED, request), DelayedList)
    assert answer.pending == len(made.there.core.delayed)
    return [int.from_bytes(each, "big") for each, _ in answer.messages]


def test_messages_are_listed_in_order_and_cancelled() -> None:
    made = clock()
    made.send(*(message(number, 1 + 40.0 * number**3) for number in range(8)))
    assert listed(made) == list(range(8))
    assert listed(made, 3) == [0, 1, 2]
    made.wait(0.5)  # the first one is near
    assert [cancel(made, number) for number in (0, 3, 7, 7, 99)] == [True, True, True, False, False]
    assert listed(made) == [1, 2, 4, 5, 6]
    made.wait(40_000.0)
    assert made.payloads() == [b"m1", b"m2", b"m4", b"m5", b"m6"]
    assert made.there.core.delayed.cancelled == 3


def test_a_request_for_another_queue_is_refused() -> None:
    made = clock()
    request = DelayedRequest(id=1, queue=b"x" * 16)
    made.there.tell(Received(b"reader", (DELAYED, documents.encode(request))))
    made.there.serve()
    ((_, document),) = made.there.answers(b"reader")
    assert documents.decode(document, Refused).code == "foreign_queue"


@pytest.mark.parametrize("days", [-1, 1])
def test_a_clock_that_jumps_for_a_while_changes_nothing(days: int) -> None:
    made = clock()
    made.send(message(1, 100.0), message(2, 1_000.0))
    made.wait(10.0)
    made.jump_us = days * 86_400 * SECOND
    made.wait(89.0)
    assert made.payloads() == []
    made.wait(2.0)
    assert made.payloads() == [b"m1"]
    made.jump_us = 0
    made.wait(890.0)
    assert made.payloads() == [b"m1"]
    made.wait(10.0)
    assert made.payloads() == [b"m1", b"m2"]


def test_a_topic_without_room_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = clock()
    made.send(message(1, 1.0))
    with monkeypatch.context() as patch:
        patch.setattr(type(made.there.core.log), "make_room", lambda *_, **__: False)
        made.wait(1.5)
    assert (made.payloads(), len(made.there.core.delayed)) == ([], 1)
    made.wait(1.0)
    assert made.payloads() == [b"m1"]


def test_many_that_are_due_at_once_are_published_turn_by_turn() -> None:
    made = clock()
    for first in range(0, 3_000, 500):
        made.send(*(message(number, 20.0) for number in range(first, first + 500)))
    made.wait(21.0)
    assert sorted(made.payloads()) == sorted(b"m%d" % number for number in range(3_000))


def test_what_is_due_pushes_out_nothing_that_a_group_has_still_to_do() -> None:
    made = clock(ring_bytes=40_000)
    made.send(*(message(number, 5.0, payload=b"%d" % number * 900) for number in range(8)))
    core = made.there.core
    core.backpressure.report(b"g" * READER_BYTES, b"g", 0, patient=True)
    core.intake.look()
    for first in range(60):  # until there is no room for one more
        made.there.append(b"p", b"t", wrapped([b"n" * 900], made.number + 1 + first, first))
    for _ in range(20):
        made.wait(1.0)
        assert core.log.floor == 0, "the group has not read that"
    waits = len(core.delayed)
    assert waits > 0
    core.backpressure.report(b"g" * READER_BYTES, b"g", core.log.end, patient=True)
    made.wait(2.0)
    assert sorted(made.payloads()) == [b"%d" % number * 900 for number in range(8)]


# --- on a disk ------------------------------------------------------------------------------------


@dataclass
class Lives:
    """A durable exchange through many lives, and what must come of it."""

    chance: random.Random
    ahead: bool = False
    files: LossyFiles = field(default_factory=LossyFiles)
    now: float = 0.0
    epoch: int = 0
    serial: int = 0
    link: int = 0
    owed: dict[int, float] = field(default_factory=dict)
    """Acknowledged, and neither published nor cancelled: when it is due."""
    maybe: dict[int, float] = field(default_factory=dict)
    """Sent, and not acknowledged."""
    seen: dict[int, set[int]] = field(default_factory=dict)
    """By message, the offsets at which it was published."""
    cancelled: set[int] = field(default_factory=set)

    def open(self) -> None:
        self.epoch += 1
        settings = LogSettings(
            queue=QUEUE, exchange=NUMBER, epoch=self.epoch, cluster="c", host="h",
            ring_bytes=4_000, topics_max=100, topics_spare=12, capacity_bytes=30_000,
            keep_us=1 << 50, now_us=self.wall_us, segment_bytes=3_000, segment_entries=30,
        )  # fmt: skip
        log: SegmentLog[bytes] = open_log(self.files, settings)
        limits = Limits(ring_bytes=4_000, log_bytes=30_000)
        core: ExchangeCore[bytes] = ExchangeCore(
            QUEUE, NUMBER, self.epoch, limits, late=log, place="here"
        )
        core.begin(self.now, self.wall_us)
        core.recover(self.now, log.recovered.snapshot, log.recovered.since)
        self.core, self.log = core, log
        for offset in range(log.floor, log.end):
            record = log.record(offset)
            if record is not None and record[0].name in {b"t", b"u"}:
                self.take(record[1], record[2])
        hello = Hello(queue=QUEUE, publisher=publisher_id("p"), epoch=self.epoch, attempt=1)
        core.handle(Received(b"p", (channel.HELLO, documents.encode(hello))), self.now)
        self.link = 0
        self.sent: list[tuple[int, list[int]]] = []
        core.check()

    @property
    def wall_us(self) -> int:
        return START_US + int(self.now * SECOND)

    def turn(self) -> bool:
        """Whether the process lives on."""
        core, chance = self.core, self.chance
        self.now += chance.choice([0.0, 0.4, 2.0, 30.0])
        core.begin(self.now, self.wall_us)
        core.handle(Tick(), self.now)
        for _ in range(chance.randrange(3)):
            self.send()
        if chance.random() < 0.2 and self.owed:
            self.cancel(chance.choice(list(self.owed)))
        for _ in range(6):
            core.take_acks()
            core.take_answers()
            core.check()
            group = self.log.gather(core.snapshot)
            if group is None:
                continue
            perform(self.files, group)
            if chance.random() < 0.03:
                return False
            self.log.commit(group.end)
            self.look()
        self.log.check()
        return True

    def send(self) -> None:
        numbers = list(range(self.serial, self.serial + self.chance.randrange(1, 4)))
        self.serial += len(numbers)
        dues = {each: self.now + self.chance.choice([-5.0, 0.3, 9.0, 200.0, 9_000.0])
                for each in numbers}  # fmt: skip
        payloads = [
            encode_delayed(message(each, max(0.0, due), self.chance.choice([b"t", b"u"]),
                                   b"%d:" % each + b"x" * self.chance.choice([0, 90])))
            for each, due in dues.items()
        ]  # fmt: skip
        self.link += 1
        data = batch.pack(
            payloads, publisher=publisher_id("p"), epoch=self.epoch, link_number=self.link,
            first_sequence=numbers[0], created_us=7,
        )  # fmt: skip
        before = self.log.end
        self.core.append(b"p", DELAYED_TOPIC, data, len(data))
        if self.log.end == before:
            self.link -= 1  # it was refused, or there was no room
            return
        self.maybe |= dues
        self.sent.append((self.log.end, numbers))

    def cancel(self, number: int) -> None:
        request = CancelDelayed(id=1, queue=QUEUE, message=name(number))
        received = Received(b"r", (CANCEL_DELAYED, documents.encode(request)))
        self.core.handle(received, self.now)
        while self.core.requests:
            self.core.answer_next(self.now)
        self.cancelled.add(number)
        self.owed.pop(number)

    def look(self) -> None:
        """What is committed is acknowledged, and shown."""
        while self.sent and self.sent[0][0] <= self.log.committed:
            for number in self.sent.pop(0)[1]:
                due = self.maybe.pop(number, None)
                if due is not None and number not in self.seen:
                    self.owed[number] = due
        for topic, frame, data, _ in self.core.take_committed(1_000):
            assert topic.name != DELAYED_TOPIC
            assert read_entry(frame).offset < self.log.committed
            self.take(frame, data)

    def take(self, frame: bytes, data: bytes) -> None:
        header = batch.read_header(data)
        for payload in batch.read_payloads(data, header) if header.kind == batch.Kind.DATA else ():
            number = int(payload.partition(b":")[0])
            self.seen.setdefault(number, set()).add(read_entry(frame).offset)
            self.owed.pop(number, None)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_lost_and_nothing_comes_twice_whatever_the_power_does(seed: int) -> None:
    lives = Lives(random.Random(seed))
    for _ in range(lives.chance.randrange(3, 9)):
        lives.open()
        for _ in range(lives.chance.randrange(25)):
            if not lives.turn():
                break
        if lives.chance.random() < 0.7:
            lives.files = lives.files.power_cut(lives.chance)
    lives.open()
    lives.now += 20_000.0
    for _ in range(400):
        lives.core.begin(lives.now, lives.wall_us)
        lives.core.take_answers()
        lives.core.check()
        group = lives.log.gather(lives.core.snapshot)
        if group is None and not len(lives.core.delayed):
            break
        if group is not None:
            perform(lives.files, group)
            lives.log.commit(group.end)
        lives.look()
        lives.now += 0.1
    assert not len(lives.core.delayed)
    assert not lives.owed, "all that was acknowledged was published"
    again = {number: places for number, places in lives.seen.items() if len(places) > 1}
    assert not again, "nothing came twice"
    assert lives.log.floor > 0 or lives.log.end < 400


LIMITS = Limits(ring_bytes=4_000, log_bytes=1 << 20)


@dataclass
class OnDisk:
    """A durable exchange with a disk that does what it is told, and one publisher."""

    files: LossyFiles = field(default_factory=LossyFiles)
    now: float = 0.0
    link: int = 0
    first: dict[bytes, int] = field(default_factory=dict)
    got: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log: SegmentLog[bytes] = open_log(self.files, self.settings(1))
        self.core: ExchangeCore[bytes] = ExchangeCore(
            QUEUE, NUMBER, 1, LIMITS, late=self.log, place="here"
        )
        self.begin()
        hello = Hello(queue=QUEUE, publisher=publisher_id("p"), epoch=1, attempt=1)
        self.core.handle(Received(b"p", (channel.HELLO, documents.encode(hello))), self.now)

    def settings(self, epoch: int) -> LogSettings:
        return LogSettings(
            queue=QUEUE, exchange=NUMBER, epoch=epoch, cluster="c", host="h", ring_bytes=4_000,
            topics_max=100, topics_spare=12, capacity_bytes=1 << 30, keep_us=100 * SECOND,
            now_us=START_US, segment_bytes=3_000, segment_entries=30,
        )  # fmt: skip

    def begin(self) -> None:
        self.core.begin(self.now, START_US + int(self.now * SECOND))

    def turn(self, seconds: float = 0.5) -> None:
        self.now += seconds
        self.begin()
        self.core.handle(Tick(), self.now)
        self.core.take_acks()
        self.core.take_answers()
        self.core.check()
        group = self.log.gather(self.core.snapshot)
        if group is not None:
            perform(self.files, group)
            self.log.commit(group.end)
        for topic, _, data, _ in self.core.take_committed(1_000):
            header = batch.read_header(data)
            if topic.name == b"t" and not header.link_number and header.kind == batch.Kind.DATA:
                self.got += batch.read_payloads(data, header)

    def send(self, topic: bytes, *payloads: bytes) -> bool:
        first = self.first.get(topic, 0)
        data = batch.pack(
            list(payloads), publisher=publisher_id("p"), epoch=1, link_number=self.link + 1,
            first_sequence=first, created_us=7,
        )  # fmt: skip
        before = self.log.end
        self.core.append(b"p", topic, data, len(data))
        if self.log.end == before:
            return False
        self.link += 1
        self.first[topic] = first + len(payloads)
        return True

    def bury(self) -> None:
        """What was sent is on the disk alone."""
        for _ in range(60):
            self.send(b"t", b"x" * 200)
            self.turn(0.01)


def test_what_the_disk_does_not_give_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = OnDisk()
    made.send(DELAYED_TOPIC, *(encode_delayed(message(each, 20.0)) for each in range(5)))
    made.bury()
    made.turn(15.0)
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> bytes:
            raise OSError(24, "Too many open files")

        patch.setattr(made.files, "read", refuse)
        for _ in range(40):
            made.turn(0.2)
    assert (made.got, len(made.core.delayed), made.core.delayed.lost) == ([], 5, 0)
    for _ in range(40):
        made.turn()
    assert sorted(made.got) == [b"m%d" % each for each in range(5)]
    assert (len(made.core.delayed), made.core.delayed.lost) == (0, 0)


def test_what_the_disk_refuses_while_a_segment_is_to_leave_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = OnDisk()
    made.send(DELAYED_TOPIC, *(encode_delayed(message(each, 500.0)) for each in range(5)))
    made.bury()
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> bytes:
            raise OSError(5, "Input/output error")

        patch.setattr(made.files, "read", refuse)
        for _ in range(10):
            made.turn(30.0)
            made.send(b"t", b"x")
        assert made.log.pressed_below > 0
    while made.now < 520.0:
        made.turn(5.0)
        made.send(b"t", b"x")
    assert sorted(made.got) == [b"m%d" % each for each in range(5)]


def test_what_is_damaged_is_counted_and_waits_no_more() -> None:
    made = OnDisk()
    made.send(DELAYED_TOPIC, *(encode_delayed(message(each, 20.0)) for each in range(5)))
    made.bury()
    first = min(each for each in made.files.names() if each.endswith(".seg"))
    made.files.write(first, 0, [bytes(made.files.size(first))])
    while made.now < 30.0:
        made.turn(1.0)
    assert (made.got, len(made.core.delayed), made.core.delayed.lost) == ([], 0, 5)


def again(made: OnDisk) -> ExchangeCore[bytes]:
    """The next process, which has no snapshot."""
    log: SegmentLog[bytes] = open_log(made.files, made.settings(2))
    core: ExchangeCore[bytes] = ExchangeCore(QUEUE, NUMBER, 2, LIMITS, late=log, place="here")
    core.begin(made.now, START_US)
    return core


def test_a_start_at_which_the_disk_refuses_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = OnDisk()
    made.send(DELAYED_TOPIC, *(encode_delayed(message(each, 20.0)) for each in range(5)))
    made.bury()
    core = again(made)
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> bytes:
            raise OSError(24, "Too many open files")

        patch.setattr(made.files, "read", refuse)
        with pytest.raises(LogRefused, match="cannot be read at the moment"):
            core.recover(made.now)
    core = again(made)
    core.recover(made.now)
    assert (len(core.delayed), core.delayed.unread) == (5, 0)


def test_what_is_damaged_at_a_start_is_counted() -> None:
    made = OnDisk()
    made.send(DELAYED_TOPIC, *(encode_delayed(message(each, 20.0)) for each in range(5)))
    made.bury()
    core = again(made)
    first = min(each for each in made.files.names() if each.endswith(".seg"))
    made.files.write(first, 0, [bytes(made.files.size(first))])
    core.recover(made.now)
    assert len(core.delayed) == 0
    assert core.delayed.unread > 0


def asked(made: OnDisk, number: int, route: bytes = b"r") -> list[bytes]:
    """The letters of what is answered at once to a cancellation."""
    request = CancelDelayed(id=1, queue=QUEUE, message=name(number))
    received = Received(route, (CANCEL_DELAYED, documents.encode(request)))
    effects = [*made.core.handle(received, made.now)]
    while made.core.requests:
        effects += made.core.answer_next(made.now)
    return [each.parts[0] for each in effects if isinstance(each, Send)]


def test_answers_that_wait_for_the_disk_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "OWED_MAX", 3)
    made = OnDisk()
    assert asked(made, 99) == [CANCEL_DELAYED], "there is nothing to wait for"
    made.send(DELAYED_TOPIC, *(encode_delayed(message(each, 500.0)) for each in range(9)))
    assert asked(made, 0) == asked(made, 0) == asked(made, 99) == []
    assert asked(made, 1) == [REFUSED]
    assert len(made.core.delayed) == 8
    made.core.handle(Unreachable(b"r"), made.now)
    assert asked(made, 1, b"s") == []
    made.turn()
    told = [each for each in made.core.take_answers() if isinstance(each, Send)]
    assert [(each.route, each.parts[0]) for each in told] == [(b"s", CANCEL_DELAYED)]


GB = 1 << 30


def test_one_that_waits_for_days_does_not_keep_a_full_disk_full() -> None:
    made = OnDisk()
    made.send(DELAYED_TOPIC, encode_delayed(message(1, 1e6)), encode_delayed(message(2, 90.0)))

    def measure() -> None:
        """Nothing else is on that disk, and it has room for so much of the log."""
        free = 10 * GB if made.log.kept < 20_000 else 200 << 20
        made.core.disk.measured(Room(free, 10 * GB, 10**6, 10**6))

    while not made.core.disk.full:
        made.send(b"t", b"x" * 200)
        made.turn(0.1)
        measure()
    while made.core.disk.full:
        assert made.now < 1_000.0, "what is old enough leaves, and there is room again"
        made.turn(1.0)
        measure()
    assert made.got == [b"m2"], "what is due is published all the same"
    assert len(made.core.delayed) == 1
    for _ in range(5):
        made.turn(1.0)
    assert made.core.delayed.deadline is None, "nothing is left to do for it"
    assert made.send(b"t", b"again")


def test_a_log_that_is_retired_or_sealed_gets_nothing_from_what_is_due() -> None:
    made = OnDisk()
    made.send(DELAYED_TOPIC, encode_delayed(message(1, 5.0)))
    made.core.disk.retire(retired=True)
    for _ in range(20):
        made.turn()
    assert made.got == []
    made.core.disk.retire(retired=False)
    made.turn()
    made.turn()
    assert made.got == [b"m1"]
