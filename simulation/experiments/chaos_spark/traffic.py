"""The RoQ side of a run: what is published, what stands in the logs, what subscribers get."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import psutil

import roq
from roq.client.admin.views import ScalingRules
from roq.errors import RoQError
from roq.model import LogId
from roq.protocol.batch import Kind
from roq.read.log_reader import LogReader
from roq.read.message import Gap
from roq.simulation.experiments.chaos_spark.judge import Row
from roq.simulation.real.waiting import until
from roq.spark.offsets import Offsets
from roq.spark.options import Options, read_options
from roq.spark.queue_logs import QueueLogs

SOURCE: Final = "chaos-in"
TARGET: Final = "chaos-out"
TOPICS: Final = ("eu.be", "eu.fr", "us")
PUBLISHERS: Final = 2
RING_BYTES: Final = 512 * 1024 * 1024
"""Nothing may leave the logs before it has been compared."""
RULES: Final = ScalingRules(name="chaos", policy="static")
"""Nor may a queue shrink by itself: an exchange goes when the run says so."""
REMOVAL_SECONDS: Final = 300.0
"""An exchange goes when both queries have read its log; a driver that has to be started takes long.
"""
FLUSH_SECONDS: Final = 60.0
READY_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.2
MORE_SECONDS: Final = 1.0
DEAD_SECONDS: Final = 30.0


class Traffic:
    """Publishers to the first queue and a subscriber to each of both, in threads; a context
    manager.

    Args:
        address: of the RoQ cluster.
        rate: messages a second of all publishers together.

    Attributes:
        sent: payloads that were published, and are acknowledged once `finish` has returned.
        seen: what the subscriber of the first queue has: also what stood in logs that are gone.
        got: what the subscriber of the second queue has, in the order in which it came.
        troubles: what went wrong in the threads, in sentences.
    """

    def __init__(self, address: str, rate: float) -> None:
        self.sent: list[bytes] = []
        self.seen: list[Row] = []
        self.got: list[Row] = []
        self.troubles: list[str] = []
        self._address = address
        self._rate = rate
        self._stack = ExitStack()
        self._publishers: list[roq.Publisher] = []
        self._turn = threading.Lock()
        """Held to publish a message, and while nothing is to be published."""
        self._stop_publishing = threading.Event()
        self._stop = threading.Event()
        self._subscribed = {queue: threading.Event() for queue in (SOURCE, TARGET)}
        self._publisher = threading.Thread(target=self._publish, name="publisher")
        self._subscribers = [
            threading.Thread(target=self._subscribe, args=(queue, rows), name=f"{queue} subscriber")
            for queue, rows in ((SOURCE, self.seen), (TARGET, self.got))
        ]

    def __enter__(self) -> Self:
        self._cluster = self._stack.enter_context(roq.connect(self._address))
        for queue in (SOURCE, TARGET):
            self._cluster.create_queue(queue, durability="none", limits={"ring_bytes": RING_BYTES})
            self._cluster.set_rules(queue, RULES)
        for thread in self._subscribers:
            thread.start()
        for queue, event in self._subscribed.items():
            if not event.wait(READY_SECONDS):
                self.troubles.append(f"the subscriber of {queue} does not begin")
        self._publisher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_publishing.set()
        self._stop.set()
        for thread in (self._publisher, *self._subscribers):
            if thread.ident is not None:
                thread.join()
        self._stack.close()

    def exchanges(self) -> list[str]:
        """Of the first queue, by name, the oldest first."""
        found = self._cluster.describe(SOURCE).exchanges
        return [each.name for each in sorted(found, key=lambda each: each.number)]

    def grow(self) -> str:
        """One more exchange for the first queue; gives its name."""
        return self._cluster.add_exchange(SOURCE)

    def shrink(self, exchange: str) -> None:
        """Take an exchange out of the first queue, with its log, once that was read.

        Raises:
            RoQError: it could not be emptied.
        """
        self._cluster.remove_exchange(SOURCE, exchange, timeout=REMOVAL_SECONDS)

    def note(self, log: LogId) -> tuple[dict[bytes, int], int]:
        """What stands in a log of the first queue, and how many messages were sent by then.

        Nothing is published meanwhile.
        """
        with self._turn:
            for publisher in self._publishers:
                publisher.flush(FLUSH_SECONDS)
            with QueueLogs(_options(self._address, SOURCE)) as logs:
                span = logs.spans()[log]
                rows = list(_rows(logs, log, span.floor, span.end))
            return {row.payload: offset for offset, row in rows}, len(self.sent)

    def kill(self, log: LogId) -> int:
        """Kill the exchange with this log; gives how many messages were sent until it was dead."""
        exchanges = self._cluster.describe(SOURCE).exchanges
        (pid,) = [each.pid for each in exchanges if (each.number, each.epoch) == log]
        process = psutil.Process(pid)
        process.kill()
        process.wait(DEAD_SECONDS)
        with self._turn:
            return len(self.sent)

    def finish(self) -> None:
        """Publish no more, and wait until all is acknowledged."""
        self._stop_publishing.set()
        self._publisher.join()

    def wait_for(self, seen: int, got: int) -> None:
        """Wait until the subscribers have so many messages, and a little for more than that."""
        until(lambda: len(self.seen) >= seen and len(self.got) >= got, READY_SECONDS)
        until(lambda: False, MORE_SECONDS)

    def ends(self) -> Offsets:
        """Where the logs of the first queue end now."""
        with QueueLogs(_options(self._address, SOURCE)) as logs:
            return Offsets(logs.queue_id, {log: span.end for log, span in logs.spans().items()})

    def log(self, queue: str) -> dict[LogId, list[Row]]:
        """All messages in the logs of a queue, each log in its order."""
        options = _options(self._address, queue)
        with QueueLogs(options) as logs:
            return {
                log: [row for _, row in _rows(logs, log, span.floor, span.end)]
                for log, span in logs.spans().items()
            }

    def _publish(self) -> None:
        try:
            with ExitStack() as stack:
                publishers = self._publishers
                for _ in range(PUBLISHERS):
                    publishers.append(stack.enter_context(self._cluster.publisher(SOURCE)))
                began = time.monotonic()
                number = 0
                while not self._stop_publishing.wait(
                    max(0.0, began + number / self._rate - time.monotonic())
                ):
                    topic = TOPICS[number % len(TOPICS)]
                    payload = b"message %d of the run, %s" % (number, bytes(64))
                    with self._turn:
                        publishers[number % PUBLISHERS].publish(payload, topic)
                        self.sent.append(payload)
                    number += 1
                for publisher in publishers:
                    publisher.flush(FLUSH_SECONDS)
        except RoQError as error:
            self.troubles.append(f"publishing: {type(error).__name__}: {error}")

    def _subscribe(self, queue: str, rows: list[Row]) -> None:
        try:
            with self._cluster.subscriber(queue, start="earliest", on_gap=self._gap) as subscriber:
                self._subscribed[queue].set()
                while not self._stop.is_set():
                    message = subscriber.receive(timeout=POLL_SECONDS)
                    if message is not None:
                        rows.append(
                            Row(
                                message.publisher,
                                message.topic,
                                message.sequence,
                                message.payload,
                            )
                        )
        except RoQError as error:
            self.troubles.append(f"subscribing: {type(error).__name__}: {error}")

    def _gap(self, gap: Gap) -> None:
        self.troubles.append(f"the subscriber reports a loss: {gap.text}")


def _options(address: str, queue: str) -> Options:
    return read_options({"cluster": address, "queue": queue}, streaming=False)


def _rows(logs: QueueLogs, log: LogId, first: int, until: int) -> Iterator[tuple[int, Row]]:
    """The messages of a part of a log, each with its offset."""
    with LogReader(
        logs.address(log),
        bytes.fromhex(logs.queue_id),
        number=log.number,
        generation=log.generation,
    ) as reader:
        for batch in reader.read(first, until):
            if batch.header.kind != Kind.DATA:
                continue
            topic, publisher = batch.topic.decode(), bytes(batch.header.publisher)
            for sequence, payload in enumerate(batch.payloads(), batch.header.first_sequence):
                yield batch.offset, Row(publisher, topic, sequence, payload)
