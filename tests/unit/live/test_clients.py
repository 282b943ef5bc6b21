"""Publishers and subscribers of a task, without a cluster: a fault is made, and must be counted."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest

from roq.client.publish.publisher import Publisher
from roq.client.publish.receipt import Receipt
from roq.client.publish.stats import PublisherStats
from roq.errors import Unavailable, WouldBlock
from roq.model import PublisherId
from roq.read.message import Batch, Gap
from roq.simulation.lab.live.clocks import Clock
from roq.simulation.lab.live.plan import Plan, PublisherStay, Share, Stretch, SubscriberStay
from roq.simulation.lab.live.receivers import Receiver
from roq.simulation.lab.live.schedule import Schedule
from roq.simulation.lab.live.senders import CHUNK, Sender
from roq.simulation.lab.live.stamp import STAMP
from roq.simulation.lab.live.verdict import Counts, ReceivedTally, SentTally, TaskTally, count
from roq.simulation.scenario.draws import LogNormal, Size, Topics
from roq.simulation.scenario.rates import NEVER

BEGIN_US = 1_000_000_000_000
SECONDS = 10.0


class StillClock(Clock):
    """A clock that is set by hand."""

    def __init__(self) -> None:
        super().__init__(0)
        self.seconds = 0.0

    def now_us(self) -> int:
        return BEGIN_US + int(self.seconds * 1_000_000)


class FakePublisher:
    """Takes messages as long as there is room, and gives them to a list."""

    def __init__(self) -> None:
        self.room = 1_000_000
        self.taken: list[tuple[str, bytes]] = []
        self.acknowledged: int | None = None
        self.flushes = 0
        self.busy = False

    def publish(self, payload: bytes, topic: str = "") -> None:
        if not self.room:
            raise WouldBlock("no room")
        self.room -= 1
        self.taken.append((topic, payload))

    def publish_from(
        self, payloads: list[bytes], position: int, topic: str, receipts: list[Receipt]
    ) -> int:
        while position < len(payloads) and self.room:
            self.publish(payloads[position], topic)
            position += 1
        return position

    def flush(self, timeout: float) -> None:
        self.flushes += 1
        if self.acknowledged is not None:
            raise Unavailable("not acknowledged")

    def abort(self, reason: str) -> None:
        if self.busy:
            raise Unavailable("the background thread is busy")

    def stats(self) -> PublisherStats:
        values: dict[str, Any] = dict.fromkeys(PublisherStats.__struct_fields__, 0)
        acked = len(self.taken) if self.acknowledged is None else self.acknowledged
        return PublisherStats(
            **{**values, "exchange": "x1", "ready": True, "acked_messages": acked}
        )


def stay(
    rate: float, *, size: Size = 100, topics: Topics | None = None, begins: float = 0.0
) -> PublisherStay:
    stretch = Stretch(
        begins=begins, ends=SECONDS, phase_begins=0.0, phase_seconds=SECONDS, rate=rate, size=size,
        topics=topics or Topics(),
    )  # fmt: skip
    return PublisherStay(name="publisher-0-0", source=5, stagger=0.0, stretches=[stretch])


class Bench:
    """A sender, a receiver, and the way between them, which a test may disturb."""

    def __init__(self, given: PublisherStay, *, marks: list[float] | None = None) -> None:
        self.clock = StillClock()
        self.publisher = FakePublisher()
        self.sender = Sender(given, Schedule(given), tag=7, seed="1", marks=marks or [])
        self.sender.publisher = cast("Publisher", self.publisher)
        self.sender.begin(self.clock, BEGIN_US, 1.0, 0.001)
        self.errors: list[BaseException] = []
        self.wanted = SubscriberStay(
            name="subscriber-0-0", topic="", begins=0.0, ends=SECONDS, due_from=0.0,
            due_until=SECONDS, last=True,
        )  # fmt: skip
        self.receiver = Receiver(self.wanted, tag=7, on_error=self.errors.append)
        self.receiver._clock = self.clock
        self.receiver.begin(BEGIN_US, 1.0)

    def send(self, until: float = SECONDS + 1, step: float = 0.01) -> None:
        when = 0.0
        while self.clock.seconds < until and when != NEVER:
            self.clock.seconds += step
            while when <= self.clock.seconds and when != NEVER:
                following = self.sender.turn(self.clock.seconds)
                if following == when == self.clock.seconds:
                    break
                when = following

    def receive(self, *indices: int, late: float = 0.0) -> None:
        """Messages by the order in which they were sent."""
        for index in indices:
            topic, payload = self.publisher.taken[index]
            due_us, _, _ = STAMP.unpack_from(payload)
            self.clock.seconds = (due_us - BEGIN_US) / 1_000_000 + late
            self.receiver.take(Batch([payload], topic, PublisherId(b"p" * 16), 0, 0, 0))

    def tallies(self) -> tuple[SentTally, ReceivedTally]:
        self.sender.close()
        self.sender.windows.drain()
        self.receiver.windows.drain()
        got = self.receiver.tally()
        return self.sender.tally(), ReceivedTally(
            **{name: getattr(got, name) for name in got.__struct_fields__} | {"in_force": -1.0}
        )

    def counts(self) -> Counts:
        sent, received = self.tallies()
        made = Plan(
            seconds=SECONDS,
            shares=[Share(publishers=[self.sender.stay], subscribers=[self.wanted])],
            marks=[],
            prefixes=[""],
            offered=1.0,
        )
        return count(made, [TaskTally(task=0, sent=[sent], received=[received])])


@pytest.fixture
def bench() -> Bench:
    return Bench(stay(20.0))


def test_all_that_is_due_is_sent_and_nothing_is_wrong(bench: Bench) -> None:
    bench.send()
    bench.receive(*range(200), late=0.002)

    counts = bench.counts()

    assert (counts.sent, counts.received, counts.owed) == (200, 200, 200)
    assert (counts.lost, counts.doubled, counts.reordered, counts.failed) == (0, 0, 0, 0)
    assert not counts.wrong


def test_messages_that_never_come_are_counted_as_lost(bench: Bench) -> None:
    bench.send()
    bench.receive(*range(50), *range(53, 197))

    assert bench.counts().lost == 6


def test_messages_that_come_twice_are_counted_as_doubled(bench: Bench) -> None:
    bench.send()
    bench.receive(*range(100), 99, 98, 50, *range(100, 200))

    counts = bench.counts()
    assert (counts.doubled, counts.lost, counts.reordered) == (3, 0, 0)


def test_messages_that_come_in_another_order_are_counted_as_reordered(bench: Bench) -> None:
    bench.send()
    bench.receive(*range(10), 12, 10, 11, *range(13, 200))

    counts = bench.counts()
    assert (counts.reordered, counts.lost, counts.doubled) == (2, 0, 0)


def test_what_nobody_has_acknowledged_has_failed_and_is_not_lost(bench: Bench) -> None:
    bench.send()
    bench.publisher.acknowledged = 190
    bench.receive(*range(188))

    counts = bench.counts()
    assert (counts.failed, counts.lost) == (10, 2)


def test_what_was_counted_stays_though_there_is_no_time_to_disconnect(bench: Bench) -> None:
    bench.send()
    bench.receive(*range(200))
    bench.publisher.busy = True
    counts = bench.counts()
    assert (counts.sent, counts.lost, counts.failed) == (200, 0, 0)


def test_foreign_messages_are_counted_and_do_no_harm(bench: Bench) -> None:
    bench.send()
    bench.receive(*range(200))
    for payload in (b"short", STAMP.pack(BEGIN_US, 8 << 32 | 5, 3) + b"of another run"):
        bench.receiver.take(Batch([payload], "t", PublisherId(b"q" * 16), 0, 0, 0))

    counts = bench.counts()
    assert (counts.foreign, counts.lost, counts.doubled) == (2, 0, 0)


def test_reported_losses_are_told_apart(bench: Bench) -> None:
    bench.send()
    bench.receive(*range(190))
    bench.receiver._gap(Gap("t", "gone", messages=10))

    counts = bench.counts()
    assert (counts.lost, counts.reported) == (10, 10)


def test_latency_counts_from_when_a_message_was_meant_to_be_sent(bench: Bench) -> None:
    """Coordinated omission: one pause of the queue delays all that was due meanwhile."""
    bench.publisher.room = 20
    bench.send(until=5.0)
    bench.publisher.room = 1_000
    bench.send()

    sent, _ = bench.tallies()

    assert sent.messages == 200
    assert sent.latency_most == pytest.approx(4.0, abs=0.2)
    assert sent.late == pytest.approx(80, abs=3)
    assert sent.latency_sum == pytest.approx(80 * 2.0, rel=0.1)


def test_after_a_pause_messages_bear_the_moments_at_which_they_were_due(bench: Bench) -> None:
    bench.publisher.room = 0
    bench.send(until=5.0)
    bench.publisher.room = 1_000
    bench.send()

    dues = [STAMP.unpack_from(payload)[0] for _, payload in bench.publisher.taken]
    gaps = {later - due for due, later in pairwise(dues)}
    assert min(gaps) > 49_000
    assert max(gaps) < 51_000


def test_a_publisher_that_never_gets_room_gives_up_after_its_end() -> None:
    bench = Bench(stay(100.0))
    bench.publisher.room = 30
    bench.send(until=60.0, step=0.1)

    sent, _ = bench.tallies()

    assert (sent.messages, sent.unsent) == (30, 970)
    assert sent.topics == {"t": 30}
    assert sent.failed == 0


def test_a_stopped_publisher_has_only_what_it_has_published() -> None:
    bench = Bench(stay(100.0))
    bench.publisher.room = 30
    bench.send(until=5.0)
    bench.sender.stop()

    sent, _ = bench.tallies()

    assert sent.topics == {"t": 30}
    assert sent.messages == 30


def test_numbers_count_the_messages_of_each_topic_alone() -> None:
    bench = Bench(stay(50.0, topics=Topics(names=["a", "b", "c"])))
    bench.send()

    seen: dict[str, int] = {}
    for topic, payload in bench.publisher.taken:
        _, identity, number = STAMP.unpack_from(payload)
        assert number == seen.get(topic, 0)
        assert identity == 7 << 32 | 5
        seen[topic] = number + 1
    assert bench.tallies()[0].topics == seen


def test_at_each_mark_a_publisher_notes_what_it_was_to_have_sent() -> None:
    bench = Bench(stay(20.0, begins=2.0), marks=[1.0, 3.0, 7.5])
    bench.send()

    sent, _ = bench.tallies()

    assert [noted.get("t", 0) for noted in sent.marks] == pytest.approx([0, 19, 109], abs=1)


def test_sizes_are_those_of_the_scenario_but_for_the_smallest() -> None:
    bench = Bench(stay(100.0, size=LogNormal(median=40, sigma=1.0, most=1_000)))
    bench.send()

    sizes = [len(payload) for _, payload in bench.publisher.taken]
    assert min(sizes) == STAMP.size
    assert max(sizes) > 100


def test_the_same_seed_sends_the_same(bench: Bench) -> None:
    once = Bench(stay(50.0, topics=Topics(count=20, zipf=1.0)))
    again = Bench(stay(50.0, topics=Topics(count=20, zipf=1.0)))
    once.send()
    again.send()

    assert once.publisher.taken == again.publisher.taken


def test_much_that_waits_goes_in_pieces_so_that_others_have_their_turn() -> None:
    bench = Bench(stay(2_000.0))
    bench.clock.seconds = 5.0

    assert bench.sender.turn(5.0) == 5.0

    assert len(bench.publisher.taken) == CHUNK


def test_windows_are_those_in_which_messages_were_meant_to_be_sent(bench: Bench) -> None:
    bench.send()
    bench.receive(*range(100), late=3.5)

    told = bench.receiver.windows.drain()

    assert [window.begin_us - BEGIN_US for window in told] == [
        number * 1_000_000 for number in range(len(told))
    ]
    assert [window.messages for window in told[:4]] == pytest.approx([20] * 4, abs=1)
    assert bench.receiver.windows.drain() == []
    assert bench.receiver.messages == 100


def test_an_error_of_the_receiving_thread_does_not_go_unnoticed(bench: Bench) -> None:
    class Broken:
        def subscriber(self, *args: object, **kwargs: object) -> None:
            raise Unavailable("nobody there")

    bench.receiver.open(cast("Any", Broken()), "q", bench.clock)
    thread = bench.receiver._thread
    assert thread is not None
    thread.join(10)
    bench.receiver.close()
    assert isinstance(bench.errors[0], Unavailable)
