"""One publisher or subscriber in its own process: `python -m roq.simulation.scenario.worker JOB`.

Commands come on standard input and reports go to standard output (see job.py). It ends when it has
finished, or when standard input ends.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

import roq
from roq.client.subscribe.message import Batch, Gap
from roq.demo.latency import Histogram
from roq.errors import RoQError
from roq.simulation.scenario import naive
from roq.simulation.scenario.job import (
    Broken,
    Command,
    Finish,
    Finished,
    Job,
    Move,
    Open,
    Progress,
    Rate,
    Ready,
    Report,
    command,
    line,
)
from roq.simulation.scenario.timings import Timings
from roq.testing.history import History

PROGRESS_SECONDS: Final = 0.5
FLUSH_SECONDS: Final = 60.0
PUBLISH_SECONDS: Final = 60.0
BURST_SECONDS: Final = 0.05
"""What was not published in time is made up for, but not more than so much at once."""
CHUNK: Final = 50
"""Messages at a time when as many go as go."""
_READ_BYTES: Final = 65_536

Say = Callable[[Report], None]


class Publishing(Protocol):
    """What a publishing worker needs: RoQ's publisher, or the naive one."""

    @property
    def id(self) -> bytes:
        """Names the publisher in the history."""
        ...

    def publish(self, payload: bytes, topic: str = "") -> object:
        """Publish one message."""
        ...


class Commands:
    """Standard input, line by line, without waiting longer than wanted."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self._ended = False

    def next(self, timeout: float) -> Command | None:
        """The next command; None if there is none in time.

        Raises:
            EOFError: whoever gave commands has gone.
        """
        while b"\n" not in self._buffer:
            if self._ended:
                raise EOFError
            if not select.select([self._descriptor], [], [], timeout)[0]:
                return None
            data = os.read(self._descriptor, _READ_BYTES)
            self._ended = not data
            self._buffer += data
        first, _, self._buffer = self._buffer.partition(b"\n")
        return command(first)

    def wait_open(self) -> None:
        """Until the scenario wants the worker to connect."""
        while not isinstance(self.next(3_600.0), Open):
            continue


class Sender:
    """Publishes at a rate that may change at any time."""

    def __init__(self, job: Job, publisher: Publishing, say: Say) -> None:
        self.messages = 0
        self.timings = Timings()
        self._job = job
        self._publisher = publisher
        self._say = say
        self._history = History()
        self._filler = bytes(job.payload)
        self._rate = 0.0
        self._credit = 0.0
        self._looked = time.monotonic()
        self._said = 0.0

    def set_rate(self, per_second: float) -> None:
        """From now on; below 0: as many as go."""
        self._accrue()
        self._rate = per_second

    def wait_seconds(self) -> float:
        """Until the next message is due."""
        if self._rate < 0:
            return 0.0
        if self._rate == 0:
            return PROGRESS_SECONDS
        return min(PROGRESS_SECONDS, max(0.0, (self._job.burst - self._credit) / self._rate))

    def publish_due(self) -> None:
        """Publish what is due."""
        self._accrue()
        count = int(self._credit) if self._credit >= self._job.burst else 0
        if self._rate < 0:
            count = CHUNK
        self._credit = max(0.0, self._credit - count)
        self._publish(count)
        self._tell()

    def _accrue(self) -> None:
        """What has become due since the last look; a pause is not made up for in full."""
        now = time.monotonic()
        rate = max(0.0, self._rate)
        due = self._credit + rate * (now - self._looked)
        self._credit = min(due, max(self._job.burst, BURST_SECONDS * rate))
        self._looked = now

    def save(self) -> None:
        """Write history and timings."""
        if self._job.history:
            self._history.save(Path(self._job.history))
        if self._job.timings:
            self.timings.save(Path(self._job.timings))

    def _publish(self, count: int) -> None:
        topic, publisher = self._job.topic, self._publisher
        for _ in range(count):
            head = b"%d %d " % (os.getpid(), self.messages)
            payload = head + self._filler[len(head) :]
            began = time.monotonic()
            publisher.publish(payload, topic)
            if self._job.timings:
                self.timings.add(began, time.monotonic() - began)
            if self._job.history:
                self._history.sent(publisher.id, topic, payload)
            self.messages += 1

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._said >= PROGRESS_SECONDS:
            self._said = now
            size = self.messages * self._job.payload
            self._say(Progress(messages=self.messages, bytes=size))


def drive(sender: Sender, commands: Commands, move: Callable[[], None]) -> None:
    """Publish as told until told to finish."""
    while True:
        given = commands.next(sender.wait_seconds())
        match given:
            case Rate():
                sender.set_rate(given.per_second)
            case Move():
                move()
            case Finish():
                return
            case Open() | None:
                pass
        sender.publish_due()


def publish(job: Job, commands: Commands, say: Say) -> None:
    """Be a publisher of RoQ."""
    commands.wait_open()
    with (
        roq.connect(job.address) as cluster,
        cluster.publisher(job.queue, timeout=PUBLISH_SECONDS) as publisher,
    ):
        say(Ready(id=publisher.id.hex()))
        sender = Sender(job, publisher, say)
        drive(sender, commands, move=lambda: None)
        publisher.flush(timeout=FLUSH_SECONDS)
        sender.save()
        stats = publisher.stats()
    say(
        Finished(
            messages=sender.messages,
            bytes=sender.messages * job.payload,
            replayed=stats.replayed_batches,
            failed=stats.failed_messages + stats.unknown_messages,
        )
    )


def publish_naively(job: Job, commands: Commands, say: Say) -> None:
    """Be a publisher that moves by closing its socket and connecting elsewhere."""
    commands.wait_open()
    with naive.Publisher(job.address.split(",")) as publisher:
        say(Ready(id=publisher.id.hex()))
        sender = Sender(job, publisher, say)
        drive(sender, commands, move=publisher.move)
        sender.save()
        publisher.drain()
    say(Finished(messages=sender.messages, bytes=sender.messages * job.payload))


class Receiver:
    """Takes in what a subscriber gets."""

    def __init__(self, job: Job, say: Say) -> None:
        self.messages = 0
        self.bytes = 0
        self.latency = Histogram()
        self.history = History()
        self._job = job
        self._say = say
        self._seconds = 0.0
        self._told = (0, 0.0)
        self.history.subscribed(job.name, (job.topic,))

    def take(self, batch: Batch) -> None:
        """The next batch."""
        payloads = batch.payloads
        seconds = max(0.0, time.time() - batch.timestamp)
        self.latency.add(seconds, len(payloads))
        if self._job.history:
            self.history.received(self._job.name, batch)
        self.bytes += sum(map(len, payloads))
        self._seconds += seconds * len(payloads)
        self.messages += len(payloads)

    def gap(self, gap: Gap) -> None:
        """A loss that the subscriber has reported."""
        self.history.gap(self._job.name, gap)

    def tell(self) -> None:
        """Say how far it is; by one thread only."""
        now = (self.messages, self._seconds)
        count, seconds = now[0] - self._told[0], now[1] - self._told[1]
        self._told = now
        latency = 1_000 * seconds / count if count else 0.0
        self._say(Progress(messages=self.messages, bytes=self.bytes, latency_ms=latency))

    def save(self) -> None:
        """Write the history."""
        if self._job.history:
            self.history.save(Path(self._job.history))


def watch(receiver: Receiver, commands: Commands, close: Callable[[], None]) -> None:
    """Say how far a receiver is until told to finish, then let it end."""
    try:
        while not isinstance(commands.next(PROGRESS_SECONDS), Finish):
            receiver.tell()
    except EOFError:
        receiver.history = History()
    finally:
        close()


def subscribe(job: Job, commands: Commands, say: Say) -> None:
    """Be a subscriber of RoQ."""
    receiver = Receiver(job, say)
    commands.wait_open()
    with (
        roq.connect(job.address) as cluster,
        cluster.subscriber(job.queue, topic=job.topic, on_gap=receiver.gap) as subscriber,
    ):
        say(Ready(id=subscriber.id.hex()))
        watcher = threading.Thread(
            target=watch, args=(receiver, commands, subscriber.close), daemon=True
        )
        watcher.start()
        for batch in subscriber.batches():
            receiver.take(batch)
        watcher.join()
        counts = subscriber.stats().counts
        receiver.save()
    say(
        Finished(
            messages=receiver.messages,
            bytes=receiver.bytes,
            latency=receiver.latency.counts(),
            duplicates=counts.duplicates,
            lost=counts.lost,
        )
    )


def subscribe_naively(job: Job, commands: Commands, say: Say) -> None:
    """Be a subscriber that reads all relays."""
    receiver = Receiver(job, say)
    commands.wait_open()
    with naive.Subscriber(job.address.split(","), job.topic) as subscriber:
        say(Ready(id=subscriber.id.hex()))
        watcher = threading.Thread(
            target=watch, args=(receiver, commands, subscriber.stop), daemon=True
        )
        watcher.start()
        for batch in subscriber.batches():
            receiver.take(batch)
        watcher.join()
        receiver.save()
    say(Finished(messages=receiver.messages, bytes=receiver.bytes))


def main(path: str) -> int:
    """Do the job in the file; gives the exit code."""
    job = msgspec.json.decode(Path(path).read_bytes(), type=Job)
    commands = Commands(sys.stdin.fileno())

    def say(report: Report) -> None:
        sys.stdout.buffer.write(line(report))
        sys.stdout.buffer.flush()

    work = {
        (True, False): publish,
        (False, False): subscribe,
        (True, True): publish_naively,
        (False, True): subscribe_naively,
    }[job.publishes, job.naive]
    try:
        work(job, commands, say)
    except EOFError:
        return 1  # whoever wanted it has gone
    except RoQError as error:
        say(Broken(reason=f"{type(error).__name__}: {error}"))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
