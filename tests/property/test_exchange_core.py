"""Any interleaving of hellos, batches, losses, doubles and reconnections: the log stays right."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from exchange_driver import EPOCH, NUMBER, QUEUE, Exchange, Publisher, exchange
from hypothesis import given, settings
from hypothesis import strategies as st
from segmented_log import SegmentedLog

from roq.exchange.events import Received, Subscribed, Unreachable, Unsubscribed
from roq.log.log import Log
from roq.machine import Tick
from roq.model import PublisherId
from roq.protocol import channel, documents
from roq.protocol.batch import Kind
from roq.protocol.channel import Bye, FetchRequest, Ready, Reset, StreamState
from roq.protocol.version import WIRE_VERSION

TOPICS = (b"a", b"b")
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "seal",
                "seal",
                "send",
                "send",
                "send",
                "lose",
                "repeat",
                "listen",
                "reconnect",
                "move",
                "die",
                "tick",
            ]
        ),
        st.integers(0, 1),
        st.integers(0, 2),
    ),
    min_size=10,
    max_size=150,
)


@dataclass
class Faithful(Publisher):
    """Keeps every batch until it is acknowledged, and does as it is told."""

    unacked: list[tuple[bytes, int, int]] = field(default_factory=list)
    """(topic, first sequence, count) in order."""
    base: int = 0
    """Link number before the first unacknowledged batch."""
    next_up: int = 0
    """Index in `unacked` of the batch that is sent next."""
    linked: bool = False
    sealed: dict[bytes, int] = field(default_factory=dict)

    def seal(self, topic: bytes, count: int) -> None:
        first = self.sealed.get(topic, 0)
        self.unacked.append((topic, first, count))
        self.sealed[topic] = first + count

    def connect(self) -> None:
        firsts = {**self.sealed, **{topic: first for topic, first, _ in reversed(self.unacked)}}
        ready = self.hello([StreamState(topic, first, 1) for topic, first in firsts.items()])
        assert isinstance(ready, Ready)
        self.linked = True
        self.take_ack(ready.expected - 1)
        self.next_up = 0

    def take_ack(self, number: int) -> None:
        done = max(0, number - self.base)
        assert done <= len(self.unacked)
        del self.unacked[:done]
        self.base += done
        self.next_up = max(0, self.next_up - done)

    def transmit(self, at: int) -> None:
        topic, first, count = self.unacked[at]
        self.sequences[topic] = first
        self.exchange.append(self.route, topic, self.batch(topic, count, self.base + at + 1))

    def listen(self) -> None:
        for letter, body in self.exchange.answers(self.route):
            if letter == channel.ACK:
                self.take_ack(channel.read_number(body))
            elif letter == channel.RESET:
                expected = documents.decode(body, Reset).expected
                if expected == 0:
                    self.linked = False
                else:
                    self.take_ack(expected - 1)
                    self.next_up = 0
            else:
                raise AssertionError(letter)

    def do(self, step: str, count: int) -> None:
        match step:
            case "seal":
                self.seal(TOPICS[count % 2], count + 1)
            case "send" | "lose" if self.linked and self.next_up < len(self.unacked):
                if step == "send":
                    self.transmit(self.next_up)
                self.next_up += 1
            case "repeat" if self.linked and self.next_up:
                self.transmit(max(0, self.next_up - 1 - count))
            case "listen":
                self.listen()
            case "reconnect":
                self.connect()
            case "move":
                self.move()
            case "die":
                self.exchange.tell(Unreachable(self.route))
            case _:
                self.exchange.now += 0.6
                self.exchange.core.begin(self.exchange.now, int(self.exchange.now * 1e6))
                self.exchange.tell(Tick())

    def move(self) -> None:
        """Leave for another exchange and come back at once under a higher epoch."""
        bye = documents.encode(Bye(publisher=self.id, epoch=self.epoch + 1))
        if self.linked and self.exchange.core.links.routes.get(self.route) is not None:
            self.exchange.tell(Received(self.route, (channel.BYE, bye)))
        self.listen()
        self.epoch += 1
        self.base = 0
        self.connect()

    def finish(self) -> None:
        """Deliver all that is left."""
        for _ in range(4):
            self.exchange.now += 1.1
            self.exchange.core.begin(self.exchange.now, int(self.exchange.now * 1e6))
            self.listen()
            self.connect()
            for at in range(len(self.unacked)):
                self.transmit(at)
            self.listen()
        assert not self.unacked


def delivered(there: Exchange, publisher: PublisherId) -> dict[tuple[int, bytes], list[int]]:
    """Sequences in the log, by (epoch, topic), in order of offset."""
    found: dict[tuple[int, bytes], list[int]] = {}
    for _, topic, header in there.log():
        if header.publisher == publisher and header.kind == Kind.DATA:
            sequences = range(header.first_sequence, header.next_sequence)
            found.setdefault((header.epoch, topic), []).extend(sequences)
    return found


def segments() -> SegmentedLog[bytes]:
    return SegmentedLog(QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 30, topics_max=1_000)


@pytest.mark.parametrize("log", [None, segments], ids=["ring", "segments"])
@settings(max_examples=150, deadline=None)
@given(plan=steps)
def test_nothing_is_lost_doubled_or_reordered_whatever_happens_to_the_links(
    log: Callable[[], Log[bytes]] | None,
    plan: list[tuple[str, int, int]],
) -> None:
    there = exchange(None if log is None else log())
    publishers = [Faithful(there, name="one"), Faithful(there, name="two")]
    for publisher in publishers:
        publisher.connect()
    for step, who, count in plan:
        publishers[who].do(step, count)
    for publisher in publishers:
        publisher.finish()
        check_history(there, publisher)
    check_live(there)


def check_history(there: Exchange, publisher: Faithful) -> None:
    by_link = delivered(there, publisher.id)
    for sequences in by_link.values():
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
    for topic, end in publisher.sealed.items():
        seen: set[int] = set()
        for (_, of), sequences in by_link.items():
            if of == topic:
                # Another epoch may repeat what the publisher did not know to be acknowledged.
                seen |= set(sequences)
        assert seen == set(range(end))
        following = {t: n for p, t, n in there.core.streams.page((b"",), 0, 99)[0]
                     if p == publisher.id}  # fmt: skip
        assert following[topic] == end


def check_live(there: Exchange) -> None:
    """What was published is the log, in order; the chain of each topic has no gap."""
    published = [frames for frames in there.live if len(frames) == 3]
    logged = [there.core.log.record(offset) for offset in range(there.core.log.end)]
    assert [(t, e, b) for t, e, b in published] == [(r[0].name, r[1], r[2]) for r in logged]
    last: dict[bytes, int] = {}
    for entry, topic, _ in there.log():
        if topic in last:
            assert entry.previous == last[topic]
        last[topic] = entry.offset


letters = st.sampled_from(
    [channel.HELLO, channel.BYE, channel.HEADS, channel.STREAMS, channel.SEEK, channel.FETCH,
     channel.ACK, b"\xff", b"\xffzz"]
)  # fmt: skip
values = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=20), st.none(), st.text(max_size=5),
    st.just(QUEUE), st.just(EPOCH),
    st.lists(st.one_of(st.integers(-5, 5), st.binary(max_size=3), st.lists(
        st.one_of(st.integers(-5, 1 << 40), st.binary(max_size=3)), max_size=3)), max_size=3),
)  # fmt: skip
fields = st.sampled_from(
    ["id", "queue", "version", "publisher", "epoch", "attempt", "streams", "prefixes", "since",
     "after", "time_us", "wants", "max_bytes"]
)  # fmt: skip
garbage = st.one_of(
    st.binary(max_size=200),
    st.dictionaries(fields, values, max_size=8).map(documents.encode_raw),
    st.fixed_dictionaries(
        {"id": st.just(1), "queue": st.just(QUEUE), "epoch": st.just(EPOCH), "wants": values}
    ).map(documents.encode_raw),
    st.fixed_dictionaries(
        {"version": st.just(WIRE_VERSION), "queue": st.just(QUEUE),
         "publisher": st.binary(max_size=17),
         "epoch": values, "attempt": st.integers(-1, 3), "streams": values}
    ).map(documents.encode_raw),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("control"), letters, garbage),
            st.tuples(st.just("batch"), st.binary(max_size=300), garbage),
            st.tuples(st.just("header"), st.binary(max_size=64), st.integers(0, 63)),
            st.tuples(st.just("prefix"), st.binary(max_size=300), st.booleans()),
        ),
        max_size=20,
    )
)
def test_no_garbage_raises_goes_unanswered_or_disturbs_a_good_publisher(
    messages: list[tuple[str, bytes, object]],
) -> None:
    there = exchange(topics=5, publishers=3)
    good = Publisher(there)
    assert isinstance(good.hello(), Ready)
    for kind, first, second in messages:
        before = there.core.log.end
        if kind == "control":
            assert isinstance(second, bytes)
            there.tell(Received(b"evil", (first, second)))
            there.serve()
            while there.core.fetches.runnable(there.now):
                piece = there.core.fetches.next_piece()
                there.sent.append((piece.route, piece.parts))
                there.core.fetches.sent(piece)
        elif kind == "batch":
            assert isinstance(second, bytes)
            there.append(b"evil", first, second)
        elif kind == "header":
            assert isinstance(second, int)
            data = bytearray(good.batch(b"t", number=good.number + 1))
            data[second : second + len(first)] = first
            there.append(b"evil", b"t", bytes(data))
        else:
            there.tell(Subscribed(first) if second else Unsubscribed(first))
        answered = len(there.answers(b"evil"))
        expected = 0 if kind == "prefix" or first == channel.BYE else 1
        fenced = there.core.log.end > before
        told_already = there.core.counters.without_hello > 1
        assert answered >= expected or fenced or told_already
        assert good.send()
        assert good.acked() == good.number


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(-3, 40), st.integers(-3, 40)),
                max_size=6), st.integers(0, 40), st.integers(-1, 800))  # fmt: skip
def test_a_fetch_brings_exactly_what_was_wanted_and_is_there(
    wants: list[tuple[bytes, int, int]], batches: int, most: int
) -> None:
    good = Publisher(exchange())
    good.hello()
    for number in range(batches):
        assert good.send(TOPICS[number % 3 % 2])
    core = good.exchange.core
    got: list[int] = []
    remaining = list(wants)
    while True:
        request = FetchRequest(id=1, queue=QUEUE, epoch=EPOCH, wants=remaining, max_bytes=most)
        assert core.fetches.start(b"r", request)
        fetched = None
        while fetched is None:
            assert core.fetches.runnable(0.0)
            piece = core.fetches.next_piece()
            core.fetches.sent(piece)
            if piece.batch is None:
                fetched = documents.decode(piece.parts[1], channel.Fetched)
                continue
            got.append(channel.NUMBER.unpack_from(piece.parts[3], 32)[0])
        if fetched.done:
            break
        remaining = [(topic, max(first, fetched.reached), until) for topic, first, until in wants]
    wanted = [
        entry.offset
        for entry, topic, _ in good.exchange.log()
        for name, first, until in wants
        if name == topic and first <= entry.offset < until
    ]
    assert got == sorted(set(wanted))
