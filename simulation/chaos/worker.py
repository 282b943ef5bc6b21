"""One publisher or subscriber in its own process: `python -m roq.simulation.chaos.worker JOB.json`.

It goes on until SIGTERM, whatever happens to the cluster, and writes a journal (see journal.py).
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

import roq
from roq.client.publish.publisher import Publisher
from roq.client.subscribe.message import Batch, Gap
from roq.errors import RoQError
from roq.simulation.chaos.journal import (
    Back,
    Finished,
    Got,
    Journal,
    Lost,
    Opened,
    Refused,
    State,
    Subscribed,
    Upto,
    Wrong,
)

CONNECT_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 0.5
PUBLISH_SECONDS: Final = 120.0
"""`publish()` may wait so long; longer than any fault lasts, so that an error is one."""
FLUSH_SECONDS: Final = 20.0
STATE_SECONDS: Final = 0.2
BEHIND_SECONDS: Final = 0.5
"""What was not published in time, for the worker stood still, is made up for; more is not."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is for; in a file."""

    name: str
    addresses: list[str]
    """Client addresses of the configuration managers."""
    queue: str
    publishes: bool
    topic: str
    """Of a publisher; the prefix that a subscriber wants."""
    journal: str
    """File."""
    calls: str = ""
    """File for when each `publish()` began and how long it took, two doubles each; empty: none."""
    rate: float = 50.0
    """Messages a second."""
    size: int = 200
    """Bytes of a payload."""


def payload(stream: str, sequence: int, size: int) -> bytes:
    """The message of a stream with this sequence; the receiver makes the same one to compare."""
    head = f"{stream} {sequence} ".encode()
    return head + bytes(max(0, size - len(head)))


class Sender:
    """Publishes at a steady rate and writes down what happens."""

    def __init__(self, job: Job, publisher: Publisher, journal: Journal) -> None:
        self._job = job
        self._publisher = publisher
        self._journal = journal
        self._stream = publisher.id.hex()
        self._published = 0
        self._slowest = 0.0
        self._calls = array("d")
        self._began = time.monotonic()
        self._said = 0.0
        self._connections = 0
        self._acked_before: int | None = None

    def run(self, stop: threading.Event) -> None:
        """Until told to stop.

        Raises:
            RoQError: `publish()` has raised.
        """
        interval = 1.0 / self._job.rate
        while not stop.wait(max(0.0, self._due(interval) - time.monotonic())):
            now = time.monotonic()
            if now - self._due(interval) > BEHIND_SECONDS:
                self._began += now - self._due(interval) - BEHIND_SECONDS
            self._journal.write(Upto(now, self._published + 1))
            self._publish()
            self._look()
        self._publisher.flush(FLUSH_SECONDS)
        self._tell()

    def _due(self, interval: float) -> float:
        return self._began + self._published * interval

    def _publish(self) -> None:
        message = payload(self._stream, self._published, self._job.size)
        began = time.monotonic()
        self._publisher.publish(message, self._job.topic)
        took = time.monotonic() - began
        self._published += 1
        self._slowest = max(self._slowest, took)
        if self._job.calls:
            self._calls.extend((began, took))

    def _look(self) -> None:
        """Whether it is connected anew and acknowledged again; and tell how it is now and then."""
        stats = self._publisher.stats()
        if stats.connections != self._connections:
            self._connections, self._acked_before = stats.connections, stats.acked_messages
        elif self._acked_before is not None and stats.acked_messages > self._acked_before:
            self._acked_before = None
            self._journal.write(Back(time.monotonic(), stats.connections, stats.exchange))
        if time.monotonic() - self._said >= STATE_SECONDS:
            self._tell()

    def _tell(self) -> None:
        stats = self._publisher.stats()
        self._said = time.monotonic()
        self._journal.write(
            State(
                self._said,
                self._published,
                stats.acked_messages,
                stats.failed_messages + stats.unknown_messages,
                stats.replayed_batches,
                self._slowest,
                stats.exchange if stats.ready else "",
            )
        )
        self._slowest = 0.0
        if self._calls:
            with Path(self._job.calls).open("ab") as file:
                self._calls.tofile(file)
            self._calls = array("d")


def publish(job: Job, journal: Journal, stop: threading.Event) -> None:
    """Be a publisher; when its `publish()` fails, another one takes its place."""
    with roq.connect(job.addresses, timeout=CONNECT_SECONDS) as cluster:
        publisher = cluster.publisher(job.queue, timeout=PUBLISH_SECONDS)
        try:
            journal.write(Opened(time.monotonic(), publisher.id.hex()))
            Sender(job, publisher, journal).run(stop)
        except RoQError as error:
            journal.write(Refused(time.monotonic(), _text(error), working=True))
            publisher.abort()


class Receiver:
    """Compares what comes with what was sent, and writes it down."""

    def __init__(self, job: Job, journal: Journal) -> None:
        self._job = job
        self._journal = journal

    def take(self, batch: Batch) -> None:
        """The next batch."""
        stream, now = batch.publisher.hex(), time.monotonic()
        for sequence, found in enumerate(batch.payloads, batch.sequence):
            if found != payload(stream, sequence, self._job.size):
                self._journal.write(Wrong(now, stream, sequence))
        self._journal.write(Got(now, stream, batch.sequence, len(batch.payloads)))

    def gap(self, gap: Gap) -> None:
        """A loss that the subscriber has reported."""
        stream = "" if gap.publisher is None else gap.publisher.hex()
        self._journal.write(Lost(time.monotonic(), stream, gap.sequence, gap.messages, gap.text))


def subscribe(job: Job, journal: Journal, stop: threading.Event) -> None:
    """Be a subscriber."""
    receiver = Receiver(job, journal)
    with (
        roq.connect(job.addresses, timeout=CONNECT_SECONDS) as cluster,
        cluster.subscriber(job.queue, topic=job.topic, on_gap=receiver.gap) as subscriber,
    ):
        journal.write(Subscribed(time.monotonic(), subscriber.id.hex()))

        def close() -> None:
            stop.wait()
            subscriber.close()

        threading.Thread(target=close, daemon=True).start()
        try:
            for batch in subscriber.batches():
                receiver.take(batch)
        except RoQError as error:
            journal.write(Refused(time.monotonic(), _text(error), working=True))


def main(path: str) -> int:
    """Do the job in the file until SIGTERM; gives the exit code."""
    job = msgspec.json.decode(Path(path).read_bytes(), type=Job)
    journal = Journal(Path(job.journal))
    stop = _stop_event()
    work: Callable[[Job, Journal, threading.Event], None]
    work = publish if job.publishes else subscribe
    while not stop.is_set():
        try:
            work(job, journal, stop)
        except RoQError as error:  # nobody is there at the moment: it is tried until they are
            journal.write(Refused(time.monotonic(), _text(error), working=False))
            stop.wait(AGAIN_SECONDS)
    journal.write(Finished(time.monotonic()))
    return 0


def _stop_event() -> threading.Event:
    """Set at SIGTERM, which no other thread of this process gets to see."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    stop = threading.Event()

    def wait() -> None:
        signal.sigwait([signal.SIGTERM])
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    return stop


def _text(error: RoQError) -> str:
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
