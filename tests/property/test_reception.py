"""Whatever the network does, each stream arrives once and in order, or is counted as lost.

Publishers move between exchanges, fan-outs drop, connections break and stall; exchanges live. What
happens when they die stands in `test_relocations.py`.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from roq.model import Limits
from roq.read.events import From, Start
from roq.simulation.virtual.actors.subscriber import Subscriber
from roq.simulation.virtual.dispatcher import Dispatcher
from roq.simulation.virtual.load import Profile, User
from roq.simulation.virtual.queue import VirtualQueue
from roq.simulation.virtual.queue_faults import FaultRates, Faults
from roq.testing.history import Verdict

SETTLE_SECONDS = 30.0
BAD_WEATHER = FaultRates(cuts=3.0, stalls=3.0, drops=3.0, lags=0.5)
PROFILE = Profile(rate=40.0, size=(8, 3_000), topics=("a", "b.1", "b.2"))
seeds = st.integers(0, 1 << 32)


class Course:
    """Three exchanges and three publishers, who are moved about."""

    def __init__(
        self,
        seed: int,
        limits: Limits | None = None,
        *,
        held_bytes_max: int | None = None,
        repair: bool = True,
    ) -> None:
        self.cluster = VirtualQueue(
            seed, limits or Limits(), held_bytes_max=held_bytes_max, repair=repair
        )
        for number in (1, 2, 3):
            self.cluster.add_exchange(number)
        for _ in range(3):
            self.cluster.add_publisher()
        self.cluster.world.run(0.5)

    def run(self, seconds: float, faults: FaultRates) -> None:
        """Publish and move for a while, then let the network be good and everything arrive."""
        cluster = self.cluster
        dispatcher = Dispatcher(cluster, rate=4.0, stripes=0.2)
        users = [
            User(cluster.world, publisher, PROFILE, cluster.history)
            for publisher in cluster.publishers
        ]
        trouble = Faults(cluster, faults)
        cluster.world.run(seconds)
        for each in (dispatcher, trouble, *users):
            each.stop()
        assert cluster.settle(SETTLE_SECONDS)

    def publish_once(self) -> None:
        """One message in each stream, in good weather."""
        cluster = self.cluster
        for publisher in cluster.publishers:
            for topic in PROFILE.topics:
                assert publisher.publish(topic, [b"the last one"])
                cluster.history.sent(publisher.id, topic, b"the last one")
                assert cluster.settle(SETTLE_SECONDS)

    def sent(self) -> int:
        return self.cluster.history.messages()


def lost(subscriber: Subscriber) -> int:
    return subscriber.machine.stats().counts.lost


def wrong(verdict: Verdict) -> int:
    return verdict.duplicated + verdict.reordered + verdict.foreign


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_everything_arrives_once_and_in_order(seed: int) -> None:
    course = Course(seed)
    subscriber = course.cluster.add_subscriber()
    course.run(3.0, BAD_WEATHER)
    verdict = course.cluster.verdict()
    assert verdict.ok, verdict
    stats = subscriber.machine.stats()
    assert (stats.counts.lost, stats.gaps, stats.held_bytes) == (0, 0, 0)


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_only_what_was_asked_for_arrives(seed: int) -> None:
    course = Course(seed)
    course.cluster.add_subscriber((b"b.",))
    course.run(2.0, BAD_WEATHER)
    verdict = course.cluster.verdict()
    assert verdict.ok, verdict
    assert {row.topic for row in verdict.rows} <= {"b.1", "b.2"}
    assert verdict.received == course.cluster.history.messages(("b.",))


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_a_reader_from_the_earliest_gets_what_was_there_before_it(seed: int) -> None:
    course = Course(seed)
    course.run(1.5, FaultRates())
    subscriber = course.cluster.add_subscriber(start=Start(From.EARLIEST))
    course.run(1.5, BAD_WEATHER)
    verdict = course.cluster.verdict()
    assert verdict.ok, verdict
    assert lost(subscriber) == 0


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_a_reader_of_the_latest_gets_exactly_what_follows(seed: int) -> None:
    course = Course(seed)
    course.run(1.5, FaultRates())
    before = course.sent()
    subscriber = course.cluster.add_subscriber()
    course.run(1.5, BAD_WEATHER)
    verdict = course.cluster.verdict()
    assert wrong(verdict) == lost(subscriber) == 0
    assert verdict.received == course.sent() - before


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_little_memory_for_waiting_batches_changes_nothing(seed: int) -> None:
    course = Course(seed, held_bytes_max=15_000)
    subscriber = course.cluster.add_subscriber()
    course.run(2.0, BAD_WEATHER)
    verdict = course.cluster.verdict()
    assert verdict.ok, verdict
    assert lost(subscriber) == 0


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_what_has_left_a_small_ring_is_counted_and_nothing_hangs(seed: int) -> None:
    course = Course(seed, Limits(ring_bytes=30_000))
    course.cluster.add_subscriber()
    course.run(2.0, BAD_WEATHER)
    course.publish_once()  # what follows shows what has become of the rest
    verdict = course.cluster.verdict()
    assert wrong(verdict) == 0
    assert verdict.lost == 0, verdict
    assert verdict.received + verdict.counted_lost == verdict.sent


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_the_monitor_hears_when_an_exchange_that_was_left_is_read_to_its_end(seed: int) -> None:
    course = Course(seed)
    course.cluster.add_subscriber()
    course.run(1.0, BAD_WEATHER)
    left, *others = course.cluster.exchanges
    monitor = course.cluster.monitor
    for publisher in course.cluster.publishers:
        if monitor.where(publisher.id) != (others[0].key,):
            monitor.relocate(publisher.id, [others[0]])
    assert course.cluster.world.run_until(
        lambda: monitor.read["s1"].get(left.key) == left.core.log.end, 5.0
    )


def test_without_repair_the_same_histories_fail() -> None:
    failures = 0
    for seed in range(4):
        course = Course(seed, repair=False)
        course.cluster.add_subscriber()
        course.run(2.0, BAD_WEATHER)
        failures += not course.cluster.verdict().ok
    assert failures >= 3
