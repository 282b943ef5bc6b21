"""The gate of the data plane: nothing is lost, doubled or out of order on a bad network.

One batch in a hundred is dropped by the fan-out, each link is cut every second, and one exchange is
heard 200 ms late.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from queue_processes import QueueProcesses

from roq.client.engine import Engine
from roq.client.publisher import Publisher
from roq.client.reception import ReceptionStats
from roq.client.subscriber import Subscriber
from roq.testing.faults import FaultyNetwork
from roq.testing.history import History, Verdict

pytestmark = [pytest.mark.integration, pytest.mark.faults]

TOPICS = ["eu.be", "eu.nl", "us", "asia.jp"]
PUBLISHERS = 5
DROPPED = 0.01
LATE_SECONDS = 0.2
CUT_SECONDS = 1.0


def faulty(queue: QueueProcesses, seed: int, drop: float) -> FaultyNetwork:
    network = FaultyNetwork()
    for exchange in queue.exchanges:
        late = LATE_SECONDS if exchange.info.number == 2 else 0.0
        network.add(
            exchange.info,
            drop=drop,
            seed=seed * 10 + exchange.info.number,
            delay_seconds=late,
            cut_every_seconds=CUT_SECONDS,
        )
    return network


class Writer(threading.Thread):
    """Publishes on all topics for some seconds, through its own bad network."""

    def __init__(self, queue: QueueProcesses, number: int, seconds: float) -> None:
        super().__init__()
        self.history = History()
        self.failure: BaseException | None = None
        self._queue = queue
        self._number = number
        self._seconds = seconds

    def run(self) -> None:
        try:
            with faulty(self._queue, 100 + self._number, 0.0) as network:
                self._publish(network)
        except BaseException as error:  # noqa: BLE001 - raised again in the test
            self.failure = error

    def _publish(self, network: FaultyNetwork) -> None:
        engine = Engine()
        engine.start()
        try:
            with Publisher(
                engine,
                [self._queue.control.address],
                self._queue.control.queue,
                publisher_id=os.urandom(16),
                timeout=60.0,
                translate=network.translate,
            ) as publisher:
                end = time.monotonic() + self._seconds
                pause = threading.Event()
                count = 0
                while time.monotonic() < end:
                    for topic in TOPICS:
                        payloads = [f"{self._number}:{count + i}".encode() for i in range(20)]
                        count += 20
                        publisher.publish_many(payloads, topic=topic)
                        self.history.sent(publisher.id, topic, *payloads)
                    pause.wait(0.01)
        finally:
            engine.close()


class Listener(threading.Thread):
    """Receives everything that it asked for, through its own bad network."""

    def __init__(
        self, queue: QueueProcesses, name: str, topics: list[str], **switches: bool
    ) -> None:
        super().__init__()
        self.history = History()
        self.history.subscribed(name, topics)
        self.label = name
        self.topics = topics
        self.received = 0
        self.network = faulty(queue, len(name), DROPPED)
        self.engine = Engine()
        self.engine.start()
        self.done = False
        self.subscriber = Subscriber(
            self.engine,
            [queue.control.address],
            queue.control.queue,
            topics,
            timeout=20.0,
            on_gap=lambda gap: self.history.gap(name, gap),
            translate=self.network.translate,
            **switches,
        )

    def run(self) -> None:
        while not self.done:
            message = self.subscriber.receive(timeout=0.1)
            if message is not None:
                self.history.received(self.label, message)
                self.received += 1

    def close(self) -> None:
        self.done = True
        self.join()
        self.subscriber.close()
        self.engine.close()
        self.network.close()


@dataclass
class Outcome:
    """What a run has shown."""

    verdict: Verdict
    stats: list[ReceptionStats]
    cuts: int
    dropped: int


def play(
    folder: Path, *, seconds: float = 4.0, patience: float = 15.0, kill: bool = False,
    **switches: bool,
) -> Outcome:  # fmt: skip
    with contextlib.ExitStack() as stack:
        queue = stack.enter_context(QueueProcesses(folder))
        listeners = [
            Listener(queue, "all", [""], **switches),
            Listener(queue, "europe", ["eu.", "us"], **switches),
        ]
        for listener in listeners:
            stack.callback(listener.close)
            listener.start()
        writers = [Writer(queue, number, seconds) for number in range(PUBLISHERS)]
        for writer in writers:
            writer.start()
        if kill:
            writers[0].join(seconds / 2)
            queue.kill(2)
        for writer in writers:
            writer.join()
            if writer.failure is not None:
                raise writer.failure
        wanted = History().merge(*(writer.history for writer in writers))
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and any(
            listener.received < wanted.messages(listener.topics) for listener in listeners
        ):
            listeners[0].join(0.05)
        listeners[0].join(0.3)  # what is doubled may come yet
        stats = [listener.subscriber.stats() for listener in listeners]
        networks = [listener.network for listener in listeners]
    return Outcome(
        wanted.merge(*(listener.history for listener in listeners)).check(),
        stats,
        sum(relay.cuts for network in networks for relay in network.relays),
        sum(lossy.dropped for network in networks for lossy in network.lossy),
    )


def test_a_bad_network_loses_doubles_and_reorders_nothing(tmp_path: Path) -> None:
    outcome = play(tmp_path)
    assert outcome.verdict.ok, outcome
    assert outcome.verdict.sent > 10_000
    assert outcome.cuts > 10
    assert outcome.dropped > 10
    assert all(stats.repairs for stats in outcome.stats)


def test_an_exchange_killed_on_a_bad_network_loses_nothing(tmp_path: Path) -> None:
    outcome = play(tmp_path, kill=True)
    assert outcome.verdict.ok, outcome
    assert all(stats.counts.duplicates for stats in outcome.stats), "nothing was replayed"
