"""Publishers that are faster than a subscriber: held back, for as long as it reads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from queue_processes import QueueProcesses

from roq.client.engine import Engine
from roq.client.publisher import Publisher
from roq.client.subscriber import Subscriber
from roq.model import Limits

pytestmark = pytest.mark.integration

RING_BYTES = 4 * 1024 * 1024
BUFFER_BYTES = 1024 * 1024
DEADLINE_SECONDS = 60.0
BATCH = [bytes(1_000)] * 50


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    engine.start()
    yield engine
    engine.close()


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueProcesses]:
    with QueueProcesses(tmp_path, exchanges=1, limits=Limits(ring_bytes=RING_BYTES)) as queue:
        yield queue


def subscribe(engine: Engine, queue: QueueProcesses) -> Subscriber:
    return Subscriber(
        engine, [queue.control.address], queue.control.queue, buffer_bytes=BUFFER_BYTES
    )


def publish(engine: Engine, queue: QueueProcesses) -> Publisher:
    return Publisher(
        engine, [queue.control.address], queue.control.queue, publisher_id=os.urandom(16)
    )


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.02)


def take(subscriber: Subscriber, messages: int, pause: float = 0.0) -> int:
    """Receive so many, slowly; how many were there before the time was over."""
    rest, taken = threading.Event(), 0
    while taken < messages and subscriber.receive(DEADLINE_SECONDS) is not None:
        taken += 1
        if pause and taken % 500 == 0:
            rest.wait(pause)
    return taken


def test_a_subscriber_that_reads_slowly_loses_nothing(
    engine: Engine, queue: QueueProcesses
) -> None:
    rounds = 600  # seven rings full
    readers = Engine()
    readers.start()
    with subscribe(readers, queue) as subscriber, publish(engine, queue) as publisher:

        def flood() -> None:
            for number in range(rounds):
                publisher.publish_many(BATCH, topic=f"t{number % 3}")
            publisher.flush(DEADLINE_SECONDS)

        flooding = threading.Thread(target=flood)
        flooding.start()
        taken = take(subscriber, rounds * len(BATCH), pause=0.05)
        flooding.join(DEADLINE_SECONDS)
        assert not flooding.is_alive()
        stats = subscriber.stats()
        assert (taken, stats.counts.lost, stats.gaps) == (rounds * len(BATCH), 0, 0)
        assert publisher.stats().failed_messages == publisher.stats().unknown_messages == 0
    readers.close()
