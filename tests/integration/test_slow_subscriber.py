"""Publishers that are faster than a subscriber: held back, for as long as it reads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from queue_processes import QueueProcesses
from waiting import eventually

from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher
from roq.client.session.events import Cause, StateChange
from roq.client.subscribe.subscriber import Subscriber
from roq.model import Limits
from roq.protocol.framing import split_live
from roq.timing import LIVE_SILENT_SECONDS

pytestmark = pytest.mark.integration

RING_BYTES = 4 * 1024 * 1024
BUFFER_BYTES = 1024 * 1024
DEADLINE_SECONDS = 60.0
BATCH = [bytes(1_000)] * 50
MORE = 150_000
"""Messages that sockets, ring and buffers cannot hold together."""
STUCK = 60
"""At most so many subscribers that read nothing; the system ends some, too."""
SLOW_BYTES = 6 * 1024 * 1024
"""Less than what one of them may have waiting."""


@pytest.fixture
def readers() -> Iterator[Engine]:
    engine = Engine()
    engine.start()
    yield engine
    engine.close()


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueProcesses]:
    with QueueProcesses(tmp_path, exchanges=2, limits=Limits(ring_bytes=RING_BYTES)) as queue:
        yield queue


class Flood:
    """A publisher that publishes as fast as it may, in a thread of its own."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.messages = 0
        self.longest = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            self.publisher.publish_many(BATCH, topic=f"t{self.messages % 3}")
            self.longest = max(self.longest, time.monotonic() - began)
            self.messages += len(BATCH)
        self.publisher.flush(DEADLINE_SECONDS)

    def stop(self) -> None:
        self._stopped.set()

    def join(self) -> None:
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()


def subscribe(engine: Engine, queue: QueueProcesses) -> Subscriber:
    return Subscriber(
        engine, [queue.control.address], queue.control.queue, buffer_bytes=BUFFER_BYTES
    )


def publish(engine: Engine, queue: QueueProcesses) -> Publisher:
    return Publisher(
        engine, [queue.control.address], queue.control.queue, publisher_id=os.urandom(16)
    )


def rule(queue: QueueProcesses, hold_seconds: int) -> None:
    """Have all exchanges wait for so long for a slow subscriber."""
    queue.control.hold_seconds = hold_seconds
    for _ in range(2):  # who reports for the second time has heard the answer to the first
        queue.control.loads.clear()
        eventually(lambda: len(queue.control.loads) == len(queue.exchanges))


def take(subscriber: Subscriber, messages: int, pause: float = 0.0) -> int:
    """Receive so many, slowly; how many were there before the time was over."""
    rest, taken = threading.Event(), 0
    while taken < messages and subscriber.receive(DEADLINE_SECONDS) is not None:
        taken += 1
        if pause and taken % 500 == 0:
            rest.wait(pause)
    return taken


def test_a_subscriber_that_reads_slowly_loses_nothing(
    engine: Engine, readers: Engine, queue: QueueProcesses
) -> None:
    with subscribe(readers, queue) as subscriber, publish(engine, queue) as publisher:
        flood = Flood(publisher)
        taken = take(subscriber, 30_000, pause=0.05)  # seven rings full
        flood.stop()
        taken += take(subscriber, flood.messages - taken)
        flood.join()
        taken += take(subscriber, flood.messages - taken)
        stats = subscriber.stats()
        assert (taken, stats.counts.lost, stats.gaps) == (flood.messages, 0, 0)
        assert publisher.stats().failed_messages == publisher.stats().unknown_messages == 0


def test_one_that_stops_is_left_behind_and_everybody_is_told(
    engine: Engine, readers: Engine, queue: QueueProcesses
) -> None:
    rule(queue, 3)
    told: list[StateChange] = []
    with (
        Subscriber(
            readers, [queue.control.address], queue.control.queue, buffer_bytes=BUFFER_BYTES,
            on_state=told.append,
        ) as subscriber,
        publish(engine, queue) as publisher,
    ):  # fmt: skip
        flood = Flood(publisher)
        eventually(lambda: "held back by a slow subscriber" in publisher.trouble)
        assert subscriber.id.hex()[:8] in publisher.trouble
        eventually(lambda: any(load.holding for load in queue.control.loads.values()))
        eventually(lambda: "left behind by exchange" in subscriber.trouble)
        eventually(lambda: any(load.behind for load in queue.control.loads.values()))
        before = flood.messages
        eventually(lambda: flood.messages > before + MORE)
        flood.stop()
        flood.join()
        while subscriber.receive(timeout=3.0) is not None:
            pass
        assert subscriber.stats().counts.lost > 0
        eventually(lambda: Cause.LEFT_BEHIND in {change.cause for change in told})
        assert sum(load.left_behind for load in queue.control.loads.values()) == 1
        eventually(lambda: not subscriber.trouble)


def test_nobody_waits_where_the_rules_say_drop(
    engine: Engine, readers: Engine, queue: QueueProcesses
) -> None:
    rule(queue, 0)
    with subscribe(readers, queue) as subscriber, publish(engine, queue) as publisher:
        publisher.publish(b"first", topic="t")
        assert take(subscriber, 1) == 1
        flood = Flood(publisher)
        eventually(lambda: flood.messages > MORE)
        flood.stop()
        flood.join()
        while subscriber.receive(timeout=3.0) is not None:
            pass
        assert subscriber.stats().counts.lost > 0
        assert all(load.held_seconds == 0 for load in queue.control.loads.values())


def test_a_publisher_can_be_moved_while_it_is_held(
    engine: Engine, readers: Engine, queue: QueueProcesses
) -> None:
    with subscribe(readers, queue) as subscriber, publish(engine, queue) as publisher:
        flood = Flood(publisher)
        eventually(lambda: "held back" in publisher.trouble)
        there = publisher.stats().exchange
        (other,) = (x for x in queue.control.exchanges if x.name != there)
        queue.control.relocate(publisher.id, other)
        eventually(lambda: any(each.outcome == "accepted" for each in queue.control.relocated))
        taken = take(subscriber, 10_000)
        flood.stop()
        flood.join()
        taken += take(subscriber, flood.messages - taken)
        stats = subscriber.stats()
        assert (taken, stats.counts.lost, stats.gaps) == (flood.messages, 0, 0)


def stuck(context: zmq.Context[zmq.Socket[bytes]], queue: QueueProcesses) -> zmq.Socket[bytes]:
    """A subscriber that is connected and reads nothing."""
    socket = context.socket(zmq.SUB)
    socket.linger = 0
    socket.rcvhwm = 1
    socket.subscribe(b"")
    socket.connect(queue.exchanges[0].info.live)
    return socket


def test_subscribers_that_are_stuck_have_one_bound_for_all_of_them(
    engine: Engine, readers: Engine, tmp_path: Path
) -> None:
    limits = Limits(ring_bytes=RING_BYTES, slow_bytes=SLOW_BYTES)
    with (
        zmq.Context() as context,
        QueueProcesses(tmp_path, exchanges=1, limits=limits) as queue,
        subscribe(readers, queue) as subscriber,
        publish(engine, queue) as publisher,
    ):
        others = [stuck(context, queue)]
        flood = Flood(publisher)
        taken = 0

        def cut_off() -> bool:
            nonlocal taken
            taken += take(subscriber, 5_000)
            if len(others) < STUCK:
                others.append(stuck(context, queue))
            return sum(load.cut_off for load in queue.control.loads.values()) >= 2

        eventually(cut_off)
        assert max(load.slow_bytes for load in queue.control.loads.values()) <= SLOW_BYTES
        flood.stop()
        taken += take(subscriber, flood.messages - taken)
        flood.join()
        taken += take(subscriber, flood.messages - taken)
        assert (taken, subscriber.stats().counts.lost) == (flood.messages, 0)
        for number in range(3):  # each that reads again hears what is new, cut off or not
            silent_at = time.monotonic() + LIVE_SILENT_SECONDS

            def hears(number: int = number) -> bool:
                nonlocal silent_at
                other = others[number]
                publisher.publish(b"new", topic="new")
                heard = False
                while other.poll(20):
                    heard |= split_live(other.recv())[0] == b"new"
                if time.monotonic() > silent_at:  # another socket, as RoQ makes
                    silent_at = time.monotonic() + LIVE_SILENT_SECONDS
                    other.close()
                    others[number] = stuck(context, queue)
                return heard

            eventually(hears)
        for other in others:
            other.close()
