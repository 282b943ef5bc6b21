"""One history for each rule of the readers: break the rule, and a message is lost.

A whole queue on a virtual clock, and a network that does the one thing that the rule is there for.
"""

from __future__ import annotations

from itertools import count

from roq.client.publish.link import READY_SECONDS
from roq.model import Limits
from roq.read.events import Verify
from roq.simulation.virtual.actors.exchange import Exchange
from roq.simulation.virtual.actors.publisher import Publisher
from roq.simulation.virtual.actors.subscriber import Subscriber
from roq.simulation.virtual.network import Client, Connection, Network
from roq.simulation.virtual.queue import VirtualQueue
from roq.timing import REPLAY_KEEP_SECONDS, REPLAY_SECONDS

SETTLE_SECONDS = 30.0


class Scene:
    """Two exchanges, one publisher, one subscriber."""

    def __init__(self, held_bytes_max: int | None = None, limits: Limits | None = None) -> None:
        self.cluster = VirtualQueue(1, limits or Limits(), held_bytes_max=held_bytes_max)
        self.world = self.cluster.world
        self.weather = self.cluster.network.weather
        self.one, self.two = self.cluster.add_exchange(1), self.cluster.add_exchange(2)
        self.subscriber: Subscriber = self.cluster.add_subscriber()
        self.publisher: Publisher = self.cluster.add_publisher()
        self.numbers = count()
        self.world.run(0.1)
        self.move(self.one)
        self.world.run(1.0)

    def publish(self, batches: int, seconds: float = 0.001) -> None:
        for _ in range(batches):
            payload = str(next(self.numbers)).encode()
            assert self.publisher.publish("t", [payload])
            self.cluster.history.sent(self.publisher.id, "t", payload)
            self.world.run(seconds)

    def move(self, *targets: Exchange) -> None:
        """Relocate the publisher, and wait until it has done so."""
        accepted = self.cluster.monitor.figures.accepted
        if self.cluster.monitor.where(self.publisher.id) == tuple(each.key for each in targets):
            return
        self.cluster.monitor.relocate(self.publisher.id, list(targets))
        assert self.world.run_until(
            lambda: self.cluster.monitor.figures.accepted > accepted, SETTLE_SECONDS
        )

    def stall_monitor(self, client: Publisher | Subscriber, seconds: float) -> None:
        """What the monitor says arrives late there."""
        subscribers, publishers = self.cluster.monitor.pipes
        (subscribers if client is self.subscriber else publishers).stall(seconds)

    def stall_reading(self, exchange: Exchange, seconds: float) -> None:
        """What an exchange tells the subscriber arrives late."""
        line = self.subscriber._lines[exchange.key]
        for connection in (line.live, line.data):
            assert connection is not None
            connection.stall(seconds, up=False, down=True)

    def stall_opening(self, seconds: float) -> None:
        """Connections that the publisher opens from now on are slow at first; 0: not any more."""
        connect = Network.connect

        def slowly(address: str, client: Client) -> Connection:
            connection = connect(self.cluster.network, address, client)
            if client is self.publisher:
                connection.stall(seconds, up=True, down=False)
            return connection

        self.cluster.network.connect = slowly  # type: ignore[method-assign]

    def kill(self, exchange: Exchange, noticed: float) -> None:
        """Kill it, and have the monitor notice after so many seconds."""
        self.cluster.kill(exchange)
        self.world.run(noticed)
        self.cluster.monitor.remove(exchange.key)

    def received(self) -> int:
        return self.subscriber.machine.resequencer.counts.delivered

    def check(self) -> None:
        """Everything has arrived, once and in order."""
        self.weather.drop = 0.0
        assert self.cluster.settle(SETTLE_SECONDS)
        verdict = self.cluster.verdict()
        assert verdict.ok, verdict
        assert self.subscriber.machine.stats().counts.lost == 0


def test_what_is_above_the_floor_of_a_striped_stream_is_not_lost() -> None:
    scene = Scene()
    scene.move(scene.one, scene.two)
    slow = scene.publisher.connections[0]
    slow.stall(1.0, up=True, down=False)
    scene.publish(20)
    scene.world.run(0.5)
    # The other exchange's part is here, and nobody knows what is still on its way.
    assert scene.subscriber.machine.resequencer.waiting
    scene.check()


def test_a_real_hole_in_a_striped_stream_is_declared_lost_when_the_floor_has_passed_it() -> None:
    scene = Scene()
    scene.move(scene.one, scene.two)
    scene.publish(10)
    scene.world.run(0.5)
    scene.publisher.machine.topics.stream("t").next_sequence += 3  # nobody will ever send these
    for number in range(10):
        scene.publisher.publish("t", [b"%d" % number])
        scene.world.run(0.01)
    scene.world.run(1.0)
    assert scene.subscriber.machine.stats().counts.lost == 3
    assert scene.received() == 20


def test_replays_of_what_an_exchange_had_that_was_left_and_died_come_in_time() -> None:
    scene = Scene()
    scene.stall_reading(scene.one, 2.0)
    scene.publish(20)
    scene.move(scene.two)
    scene.publish(5)
    scene.stall_monitor(scene.publisher, 1.0)
    scene.kill(scene.one, noticed=0.3)
    scene.world.run(0.5)
    scene.publish(5)
    scene.check()


def test_replays_behind_newer_batches_are_waited_for_when_their_exchange_has_been_asked() -> None:
    scene = Scene()
    scene.stall_reading(scene.one, 1.0)
    scene.publish(20)
    scene.move(scene.two)
    scene.publish(5)
    scene.world.run(0.1)
    scene.stall_reading(scene.two, REPLAY_SECONDS + 1.0)
    scene.kill(scene.one, noticed=0.1)
    # The replays are in the log since long when the subscriber sees them.
    scene.check()


def test_an_answer_says_what_there_was_when_it_was_asked_for() -> None:
    scene = Scene()
    scene.move(scene.two)
    scene.world.run(1.0)
    data = scene.subscriber._lines[scene.two.key].data
    assert data is not None
    data.stall(0.3, up=False, down=True)
    scene.subscriber._step(scene.two.key, Verify(scene.world.now))
    scene.world.run(0.006)
    scene.weather.drop = 1.0
    scene.publish(3)
    scene.move(scene.one)
    scene.weather.drop = 0.0
    scene.publish(3)
    scene.check()


def test_an_exchange_that_appears_is_read_from_its_first_batch() -> None:
    scene = Scene()
    scene.stall_monitor(scene.subscriber, 0.5)
    three = scene.cluster.add_exchange(3)
    scene.move(three)
    scene.publish(10)
    scene.check()


def test_what_went_through_an_exchange_that_the_subscriber_has_not_heard_of_is_not_lost() -> None:
    for stripe in (False, True):
        scene = Scene()
        scene.stall_monitor(scene.subscriber, 3.0)
        three = scene.cluster.add_exchange(3)
        scene.move(*([scene.one, three] if stripe else [three]))
        scene.publish(10)
        scene.move(scene.one)
        scene.publish(10)
        scene.check()


def test_what_was_put_aside_at_an_exchange_that_died_is_taken_from_its_replay() -> None:
    scene = Scene(held_bytes_max=1_000)
    scene.move(scene.one, scene.two)
    scene.publisher.connections[0].stall(1.0, up=True, down=False)
    scene.publish(20)
    scene.kill(scene.two, noticed=0.3)
    scene.check()


def test_what_is_lost_for_good_is_told_even_if_nothing_follows_it() -> None:
    scene = Scene()
    for connection in scene.subscriber.connections:
        connection.stall(REPLAY_KEEP_SECONDS + 3, up=False, down=True)
    scene.publish(10)
    scene.world.run(REPLAY_KEEP_SECONDS + 2)
    scene.publisher._tick()  # it lets go of what it kept for replays
    scene.kill(scene.one, noticed=0.3)
    assert scene.cluster.settle(SETTLE_SECONDS)
    verdict = scene.cluster.verdict()
    assert (verdict.lost, verdict.counted_lost) == (0, 10)


def test_a_link_that_breaks_with_nothing_to_follow_delivers_what_was_on_its_way() -> None:
    scene = Scene()
    (connection,) = scene.publisher.connections
    connection.stall(0.2, up=True, down=True)
    scene.publish(10)
    connection.cut()
    scene.check()


def test_what_an_exchange_does_not_acknowledge_in_time_is_sent_in_order_at_the_next() -> None:
    scene = Scene()
    (connection,) = scene.publisher.connections
    connection.stall(2.0, up=True, down=False)
    scene.publish(10)
    scene.move(scene.two)
    scene.publish(10)
    scene.check()


def test_a_message_that_is_refused_proves_nothing_about_those_before_it() -> None:
    scene = Scene(limits=Limits(message_bytes=1_000, batch_bytes=1_000))
    scene.move(scene.one, scene.two)
    scene.publisher.connections[0].stall(1.0, up=True, down=False)
    scene.publish(1)
    scene.publisher.publish("t", [bytes(100_000)])
    scene.world.run(2.0)
    counts = scene.subscriber.machine.stats().counts
    assert (counts.delivered, counts.void, counts.lost) == (1, 1, 0)


def test_a_gap_in_the_link_is_noticed_by_the_exchange_and_filled_at_once() -> None:
    scene = Scene()
    (connection,) = scene.publisher.connections
    scene.publish(3)
    connection.lose(1)
    scene.publish(10)
    scene.world.run(0.2)
    assert scene.received() == 13
    scene.check()


def test_a_hello_that_comes_too_late_takes_no_link_away() -> None:
    scene = Scene()
    scene.stall_opening(READY_SECONDS + 2.0)
    scene.cluster.monitor.relocate(scene.publisher.id, [scene.two])
    assert scene.world.run_until(lambda: scene.cluster.monitor.figures.failed == 1, 10.0)
    scene.stall_opening(0.0)
    scene.move(scene.two)
    machine = scene.two.core.links.get(scene.publisher.id)
    assert machine is not None
    epoch = machine.epoch
    scene.publish(1500, seconds=0.002)
    assert machine.epoch == epoch
    assert scene.publisher.machine.tally.resets == 0
    scene.check()


def test_an_exchange_that_was_left_lets_nobody_in_under_the_old_epoch() -> None:
    scene = Scene()
    (connection,) = scene.publisher.connections
    scene.stall_opening(1.0)
    connection.cut()
    scene.world.run(0.1)
    scene.stall_opening(0.0)
    scene.move(scene.two)
    scene.publish(10)
    scene.world.run(2.0)
    assert scene.one.core.counters.refused_hellos == 1
    scene.check()


def test_what_the_fan_out_drops_is_fetched_from_the_log() -> None:
    scene = Scene()
    scene.weather.drop = 0.7
    scene.publish(50)
    scene.check()
