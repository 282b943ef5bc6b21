"""Traffic through an elastic queue of a real cluster, and what became of it; no test in here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import psutil
from processes import processes

import roq
from roq.client.admin.statistics import Statistics
from roq.client.admin.views import ScalingRules
from roq.hcm.children import child_name
from roq.model import Limits
from roq.protocol.kpi import MoveKpi, NumericDocument, QueueKpi, ScaleKpi
from roq.testing import RunningCluster
from roq.testing.history import History

LIMIT = 20_000
"""Bytes per second that one exchange takes."""
PAYLOAD = 1_000
TURN_SECONDS = 0.02
PATIENCE_SECONDS = 30.0
"""A machine that does other work takes longer for everything."""
QUIET_SECONDS = 0.3
"""So long what is doubled may come yet."""
SUBSCRIBERS = ("one", "two")


class Traffic:
    """Publishers that publish at a rate, subscribers who take notes, and the queue's statistics."""

    def __init__(self, cluster: roq.Cluster, queue: str, publishers: int) -> None:
        self.rate = 0.0
        """Bytes per second of each publisher."""
        self.documents: list[NumericDocument] = []
        self.written = History()
        self._read = {name: History() for name in SUBSCRIBERS}
        self._publishers = [cluster.publisher(queue) for _ in range(publishers)]
        self._subscribers = {
            name: cluster.subscriber(queue, on_gap=partial(self._read[name].gap, name))
            for name in SUBSCRIBERS
        }
        self._statistics = cluster.statistics(queue)
        self._ending = threading.Event()
        self._spoken = threading.Event()
        self._patience_ends = 0.0
        self._threads = [
            threading.Thread(target=self._speak),
            threading.Thread(target=self._watch, args=(self._statistics,)),
            *(threading.Thread(target=self._listen, args=(name,)) for name in SUBSCRIBERS),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Publish no more, and let subscribers come to the end."""
        self._ending.set()
        self._threads[0].join(2 * PATIENCE_SECONDS)
        self._statistics.close()
        for thread in self._threads:
            thread.join(2 * PATIENCE_SECONDS)
        for publisher in self._publishers:
            publisher.close()
        for subscriber in self._subscribers.values():
            subscriber.close()

    def judge(self) -> None:
        """Everybody has received everything, once and in order."""
        verdict = self.written.merge(*self._read.values()).check()
        assert verdict.ok, verdict
        assert verdict.sent == verdict.received > 0

    def told(self, kind: type[NumericDocument]) -> list[NumericDocument]:
        return [each for each in self.documents if isinstance(each, kind)]

    def states(self, kind: type[MoveKpi | ScaleKpi]) -> list[str]:
        return [each.state for each in self.told(kind)]  # type: ignore[union-attr]

    def exchanges(self) -> int:
        """How many the queue has by its last statistics."""
        told = self.told(QueueKpi)
        return told[-1].exchanges if told else 0  # type: ignore[union-attr]

    def places(self) -> list[str]:
        """At which exchange each publisher is."""
        return [each.stats().exchange for each in self._publishers]

    def _speak(self) -> None:
        pause = threading.Event()
        owed = 0.0
        number = 0
        before = time.monotonic()
        while not self._ending.is_set():
            now = time.monotonic()
            owed += min(now - before, 0.5) * self.rate / PAYLOAD
            before = now
            for _ in range(int(owed)):
                owed -= 1
                for publisher in self._publishers:
                    number += 1
                    payload = b"%d" % number + b"." * PAYLOAD
                    topic = f"t{number % 3}"
                    publisher.publish(payload, topic=topic)
                    self.written.sent(publisher.id, topic, payload)
            pause.wait(TURN_SECONDS)
        for publisher in self._publishers:
            publisher.flush(PATIENCE_SECONDS)
        self._patience_ends = time.monotonic() + PATIENCE_SECONDS
        self._spoken.set()

    def _listen(self, name: str) -> None:
        subscriber, history = self._subscribers[name], self._read[name]
        received = 0
        while True:
            message = subscriber.receive(timeout=QUIET_SECONDS)
            if message is not None:
                received += 1
                history.received(name, message)
            elif self._spoken.is_set() and (
                received >= self.written.messages() or time.monotonic() > self._patience_ends
            ):
                return

    def _watch(self, statistics: Statistics) -> None:
        for sample in statistics:
            self.documents.append(sample.document)


def eventually(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + max(seconds, PATIENCE_SECONDS)
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.05)


@contextmanager
def traffic(
    cluster: roq.Cluster, queue: str, publishers: int, host: str | None = None, **rules: object
) -> Iterator[Traffic]:
    cluster.create_queue(
        queue, host=host, durability="none", limits=Limits(throughput_bytes=LIMIT * 60)
    )
    cluster.set_rules(queue, ScalingRules(name="test", cooldown_seconds=1, **rules))  # type: ignore[arg-type]
    traffic = Traffic(cluster, queue, publishers)
    traffic.start()
    try:
        # What happens is told once: whoever wants to hear of it must listen before.
        eventually(lambda: bool(traffic.told(QueueKpi)))
        yield traffic
    finally:
        traffic.end()
        cluster.remove_queue(queue)


def child(cluster: RunningCluster, queue: str, number: int = 0) -> psutil.Process:
    """The process of an exchange of a queue, as soon as it runs; 0: that of its monitor."""
    name = child_name(queue, number)
    found: list[psutil.Process] = []
    eventually(lambda: found.extend(processes(cluster.folder, name)) or bool(found))
    return found[0]
