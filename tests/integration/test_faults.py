"""The gate of the data plane: nothing is lost, doubled or out of order on a bad network.

One batch in a hundred is dropped by the fan-out, each link is cut every second, and one exchange is
heard 200 ms late (its links are cut every other second).
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

from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher
from roq.client.subscribe.machine import ReceptionStats
from roq.client.subscribe.subscriber import Subscriber
from roq.testing.faults import FaultyNetwork
from roq.testing.history import History, Verdict

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.long]

TOPICS = ["eu.be", "eu.nl", "us", "asia.jp"]
PUBLISHERS = 5
DROPPED = 0.01
LATE_SECONDS = 0.2
CUT_SECONDS = 1.0
LATE_CUT_SECONDS = 2.0
"""To connect and be let in takes three ways back, 0.6 s: a busy machine needs some time beside."""
MESSAGES, FAULTS = 10_000, 10
"""What a run must at least have seen."""


def faulty(queue: QueueProcesses, seed: int, drop: float) -> FaultyNetwork:
    network = FaultyNetwork()
    for exchange in queue.exchanges:
        late = LATE_SECONDS if exchange.info.number == 2 else 0.0
        network.add(
            exchange.info,
            drop=drop,
            seed=seed * 10 + exchange.info.number,
            delay_seconds=late,
            cut_every_seconds=LATE_CUT_SECONDS if late else CUT_SECONDS,
        )
    return network


class Writer(threading.Thread):
    """Publishes on all topics until it is told to end, through its own bad network."""

    def __init__(self, queue: QueueProcesses, number: int, ending: threading.Event) -> None:
        super().__init__()
        self.count = 0
        self.history = History()
        self.failure: BaseException | None = None
        self._queue = queue
        self._number = number
        self._ending = ending

    def run(self) -> None:
        try:
            with faulty(self._queue, 100 + self._number, 0.0) as network:
                self._publish(network)
        except BaseException as error:  # noqa: BLE001 - raised again in the test
            self.failure = error

    def _publish(self, network: FaultyNetwork) -> None:
        engine = Engine(translate=network.translate)
        engine.start()
        try:
            with Publisher(
                engine,
                [self._queue.control.address],
                self._queue.control.queue,
                publisher_id=os.urandom(16),
                timeout=60.0,
            ) as publisher:
                while not self._ending.wait(0.01):
                    for topic in TOPICS:
                        first = self.count
                        payloads = [f"{self._number}:{first + i}".encode() for i in range(20)]
                        self.count += 20
                        publisher.publish_many(payloads, topic=topic)
                        self.history.sent(publisher.id, topic, *payloads)
        finally:
            engine.close()


class Listener(threading.Thread):
    """Receives everything that it asked for, through its own bad network."""

    def __init__(self, queue: QueueProcesses, name: str, topics: list[str]) -> None:
        super().__init__()
        self.history = History()
        self.history.subscribed(name, topics)
        self.label = name
        self.topics = topics
        self.received = 0
        self.network = faulty(queue, len(name), DROPPED)
        self.engine = Engine(translate=self.network.translate)
        self.engine.start()
        self.done = False
        self.subscriber = Subscriber(
            self.engine,
            [queue.control.address],
            queue.control.queue,
            topics,
            timeout=60.0,
            on_gap=lambda gap: self.history.gap(name, gap),
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


def faults(listeners: list[Listener]) -> tuple[int, int]:
    """How many links were cut, and how many batches dropped, on the way to them."""
    networks = [listener.network for listener in listeners]
    return (
        sum(relay.cuts for network in networks for relay in network.relays),
        sum(lossy.dropped for network in networks for lossy in network.lossy),
    )


def play(folder: Path, *, seconds: float = 3.0, patience: float = 60.0) -> Outcome:
    """Publish for so long and until enough has gone wrong; an exchange is killed, too."""
    with contextlib.ExitStack() as stack:
        queue = stack.enter_context(QueueProcesses(folder))
        listeners = [
            Listener(queue, "all", [""]),
            Listener(queue, "europe", ["eu.", "us"]),
        ]
        for listener in listeners:
            stack.callback(listener.close)
            listener.start()
        ending = threading.Event()
        writers = [Writer(queue, number, ending) for number in range(PUBLISHERS)]
        stack.callback(ending.set)
        for writer in writers:
            writer.start()

        def enough() -> bool:
            stats = [listener.subscriber.stats() for listener in listeners]
            return (
                sum(writer.count for writer in writers) > MESSAGES
                and all(fault > FAULTS for fault in faults(listeners))
                and all(each.repairs and each.counts.duplicates for each in stats)
            )

        ending.wait(seconds / 2)
        queue.kill(2)
        ending.wait(seconds / 2)
        deadline = time.monotonic() + patience
        while not enough() and time.monotonic() < deadline:
            ending.wait(0.1)
        ending.set()
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
    return Outcome(
        wanted.merge(*(listener.history for listener in listeners)).check(),
        stats,
        *faults(listeners),
    )


def test_a_bad_network_and_a_killed_exchange_lose_double_and_reorder_nothing(
    tmp_path: Path,
) -> None:
    outcome = play(tmp_path)
    assert outcome.verdict.ok, outcome
    assert outcome.verdict.sent > MESSAGES
    assert outcome.cuts > FAULTS
    assert outcome.dropped > FAULTS
    assert all(stats.repairs for stats in outcome.stats)
    assert all(stats.counts.duplicates for stats in outcome.stats), "nothing was replayed"
