"""Any interleaving of hellos, batches, losses, doubles and reconnections: the log stays right."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from exchange_driver import EPOCH, NUMBER, QUEUE, Exchange, Publisher, exchange
from hypothesis import given, settings
from hypothesis import strategies as st
from segmented_log import SegmentedLog

from roq.exchange.events import Received, Subscribed, Unreachable, Unsubscribed
from roq.exchange.fetches import RETRY_SECONDS
from roq.exchange.machine import ExchangeCore
from roq.log.log import Log
from roq.machine import Tick
from roq.model import PublisherId
from roq.protocol import channel, documents
from roq.protocol.batch import Kind
from roq.protocol.channel import Bye, FetchRequest, Ready, Reset, StreamState
from roq.protocol.entry import read_entry
from roq.protocol.framing import Answers, join_answer, join_large
from roq.protocol.version import WIRE_VERSION

TOPICS = (b"a", b"b")
GENERATION = EPOCH - 2
"""Of a log that was made by an earlier process."""
LOGGED = 30
"""Batches that there are to fetch."""
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
                "commit",
                "snapshot",
                "crash",
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
                    self.next_up = max(0, expected - 1 - self.base)
            else:
                assert letter == channel.HELD, letter  # by a log that commits late

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
            case "commit" | "snapshot" | "crash":
                self.disk(step)
            case _:
                self.exchange.now += 0.6
                self.exchange.core.begin(self.exchange.now, int(self.exchange.now * 1e6))
                self.exchange.tell(Tick())

    def disk(self, step: str) -> None:
        log = self.exchange.core.log
        if not isinstance(log, SegmentedLog):
            return
        if step == "commit":
            log.commit()
            self.exchange.publish()
        elif step == "snapshot":
            self.exchange.snapshots.append((log.end, self.exchange.core.snapshot()))
        else:
            crash(self.exchange, log)

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
            self.do("commit", 0)
            self.listen()
            self.connect()
            for at in range(len(self.unacked)):
                self.transmit(at)
            self.do("commit", 0)
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
    return SegmentedLog(QUEUE, NUMBER, GENERATION, capacity_bytes=1 << 30, topics_max=1_000)


def late() -> SegmentedLog[bytes]:
    """It commits when it is told to."""
    return SegmentedLog(
        QUEUE, NUMBER, GENERATION, capacity_bytes=1 << 30, topics_max=1_000, commits=False
    )


def crash(there: Exchange, log: SegmentedLog[bytes]) -> None:
    """The process ends, and another one goes on with what the log has committed."""
    log.crash()
    core: ExchangeCore[bytes] = ExchangeCore(
        QUEUE, NUMBER, there.core.epoch + 1, there.limits,
        log=log if log.commits else None, late=None if log.commits else log,
    )  # fmt: skip
    core.begin(there.now, int(there.now * 1e6))
    # A snapshot lies in the log, and what was not committed is lost with the rest.
    there.snapshots = [each for each in there.snapshots if each[0] <= log.committed]
    since, snapshot = there.snapshots[-1] if there.snapshots else (0, None)
    core.recover(there.now, snapshot, since)
    there.core = core
    there.sent.clear()


@pytest.mark.parametrize("log", [None, segments, late], ids=["ring", "segments", "late"])
@settings(max_examples=150, deadline=None)
@given(plan=steps)
def test_nothing_is_lost_doubled_or_reordered_whatever_happens_to_the_links(
    log: Callable[[], Log[bytes]] | None,
    plan: list[tuple[str, int, int]],
) -> None:
    there = exchange(late=late()) if log is late else exchange(None if log is None else log())
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


readers = st.sampled_from([b"", b"", b"one!", b"two!", b"odd"])
letters = st.builds(
    bytes.__add__,
    st.sampled_from(
        [channel.HELLO, channel.BYE, channel.HEADS, channel.STREAMS, channel.SEEK, channel.FETCH,
         channel.ACK, b"\xff", b"\xffzz"]
    ),
    readers,
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
        request = FetchRequest(id=1, queue=QUEUE, generation=EPOCH, wants=remaining, max_bytes=most)
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


class Sharing:
    """Readers that fetch over two connections, which are full now and then."""

    def __init__(self) -> None:
        good = Publisher(exchange())
        good.hello()
        for number in range(LOGGED):
            assert good.send(TOPICS[number % 2])
        self.log = good.exchange.core.log
        self.fetches = good.exchange.core.fetches
        self.answers = {route: Answers(4) for route in (b"r", b"s")}
        self.asked: dict[tuple[bytes, bytes], tuple[int, list[int]]] = {}
        """By reader: the number of its fetch, and the offsets that it is to bring."""
        self.got: dict[tuple[bytes, bytes], list[int]] = {}
        self.said: list[tuple[bytes, bytes, bytes]] = []
        self.told: list[tuple[bytes, bytes, bytes]] = []
        self.now = 1.0
        self.full = False
        self.halved = False
        """What is full has taken an entry, but not its batch."""

    def fetch(self, reader: tuple[bytes, bytes], number: int, first: int) -> None:
        request = FetchRequest(
            id=number, queue=QUEUE, generation=EPOCH, prefixes=[b""], first=first, until=first + 10
        )
        assert self.fetches.start(reader[0], request, reader[1])
        self.asked[reader] = number, list(range(first, min(LOGGED, first + 10)))
        self.got[reader] = []

    def answer(self, reader: tuple[bytes, bytes], number: int) -> None:
        body = b"%d" % number
        assert self.fetches.answer_later(reader[0], (channel.HEADS + reader[1], body))
        self.said.append((*reader, body))

    def end(self, route: bytes) -> None:
        """The connection is gone; another one has its name."""
        self.fetches.cancel(route)
        self.answers[route] = Answers(4)
        for reader in [reader for reader in self.asked if reader[0] == route]:
            del self.asked[reader], self.got[reader]
        self.said = [each for each in self.said if each[0] != route or each in self.told]

    def send(self, most: int) -> None:
        for number in range(most):
            self.now += RETRY_SECONDS
            if not self.fetches.runnable(self.now):
                return
            piece = self.fetches.next_piece()
            batch = piece.batch or b""
            assert isinstance(batch, bytes)
            frames = [join_answer(piece.parts, batch)]
            if batch and number % 2:
                frames = [join_large(piece.parts), batch]
            taken = frames if not self.full else frames[:-1] if self.halved else []
            for frame in taken:
                self._arrive(piece.route, frame)
            if self.full:
                self.fetches.blocked(self.now)
            else:
                self.fetches.sent(piece)
            self.fetches.check()

    def _arrive(self, route: bytes, frame: bytes) -> None:
        parts = self.answers[route].take(frame)
        if parts is None:
            return
        reader = route, self.answers[route].tag
        if parts[0] == channel.HEADS:
            self.told.append((*reader, parts[1]))
        elif parts[0] == channel.FETCHED_ENTRY:
            assert channel.read_number(parts[1]) == self.asked[reader][0]
            offset = read_entry(parts[3]).offset
            assert parts[4] == self.log.record(offset)[2]
            self.got[reader].append(offset)
        else:
            number, wanted = self.asked.pop(reader)
            assert documents.decode(parts[1], channel.Fetched).id == number
            assert self.got.pop(reader) == wanted


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("fetch"), st.integers(0, 3), st.integers(0, LOGGED)),
            st.tuples(st.just("answer"), st.integers(0, 3), st.just(0)),
            st.tuples(st.just("send"), st.just(0), st.integers(1, 20)),
            st.tuples(st.just("full"), st.integers(0, 1), st.integers(0, 1)),
            st.tuples(st.just("end"), st.integers(0, 1), st.just(0)),
        ),
        max_size=40,
    )
)
def test_readers_that_share_connections_get_what_they_asked_for_and_nothing_else(
    steps: list[tuple[str, int, int]],
) -> None:
    there = Sharing()
    for number, (what, who, amount) in enumerate(steps, 1):
        reader = (b"r", b"s")[who % 2], (b"one!", b"two!")[who // 2]
        match what:
            case "fetch":
                there.fetch(reader, number, amount)
            case "answer":
                there.answer(reader, number)
            case "full":
                there.full, there.halved = bool(who), bool(amount)
            case "end":
                there.end(reader[0])
            case _:
                there.send(amount)
    there.full = False
    while there.fetches:
        there.send(100)
    assert not there.asked
    assert not there.got
    assert sorted(there.told) == sorted(there.said)
