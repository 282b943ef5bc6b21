"""A client in a process, whatever it does: `python -m roq.simulation.real.worker JOB FD`.

Commands come over a pipe (see commands.py), and what it does goes to a journal (see journal.py). It
goes on whatever happens to the cluster, until it is told to finish or the pipe ends.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, Literal

import msgspec

import roq
from roq.client.publish.publisher import Publisher
from roq.demo.latency import Histogram
from roq.errors import RoQError
from roq.read.message import Batch, Gap
from roq.simulation.real import naive
from roq.simulation.real.asker import Asker
from roq.simulation.real.commands import Commands, Finish, Move, Open, Rate
from roq.simulation.real.instance import SERVICE, SETTINGS, Instance
from roq.simulation.real.journal import (
    Back,
    Entered,
    Finished,
    Got,
    Journal,
    Left,
    Lost,
    Opened,
    Present,
    Refused,
    State,
    Subscribed,
    Upto,
    Wrong,
)
from roq.simulation.real.member import Member
from roq.simulation.real.timings import Timings

CONNECT_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 0.5
PUBLISH_SECONDS: Final = 120.0
"""`publish()` may wait so long; longer than any fault lasts, so that an error is one."""
FLUSH_SECONDS: Final = 60.0
STATE_SECONDS: Final = 0.2
LOOK_SECONDS: Final = 0.01
"""Between two looks whether a publisher is connected anew."""
BEHIND_SECONDS: Final = 0.05
"""What was not published in time is made up for, but not more than so much at once."""
CHUNK: Final = 50
"""Messages at a time when as many go as go."""
STREAM_LETTERS: Final = 12
GROUP: Final = "workers"
LEASE_SECONDS: Final = 3.0
RETRY_SECONDS: Final = (0.2, 1.0)
PREFETCH: Final = 200
THREADS: Final = 8


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is for; in a file."""

    queue: str
    publishes: bool = False
    name: str = ""
    addresses: list[str] = []
    """Client addresses of the cluster; for the naive hand-off those of the relays."""
    journal: str = ""
    """File."""
    topic: str = "load"
    """Of a publisher; the prefix that a subscriber wants."""
    mode: str = ""
    """Of its consumer group, if it is a member of one."""
    role: Literal["", "instance", "requester"] = ""
    """What it is, if it has to do with requests."""
    left: list[Left] = []
    """Requests of others whose responses a requester asks for."""
    calls: str = ""
    """File for how long each `publish()` took; empty: none."""
    rate: float = 0.0
    """Messages a second; below 0: as many as go. Of a requester: calls."""
    size: int = 500
    """Bytes of a payload."""
    burst: int = 1
    """So many messages are published at a time."""
    waits: bool = False
    """It connects when it is told to, not at once."""
    naive: bool = False
    """Bare ZeroMQ sockets: see naive.py."""


def payload(stream: str, sequence: int, size: int) -> bytes:
    """The message of a stream with this sequence; the receiver makes the same one to compare.

    It says how long it is, so that a part of it is seen to be one.
    """
    head = b"%s %d %d " % (stream[:STREAM_LETTERS].encode(), sequence, size)
    return head + bytes(max(0, size - len(head)))


class Sender:
    """Publishes at a rate that may change at any time, and writes down what happens."""

    def __init__(self, job: Job, publisher: Publisher | naive.Publisher, journal: Journal) -> None:
        self._job = job
        self._publisher = publisher
        self._journal = journal
        self._stream = publisher.id.hex()
        self._published = 0
        self._rate = job.rate
        self._credit = 0.0
        self._accrued = time.monotonic()
        self._slowest = 0.0
        self._calls = Timings()
        self._told = self._looked = 0.0
        self._connections = 0
        self._acked_before: int | None = None

    def set_rate(self, per_second: float) -> None:
        """From now on; below 0: as many as go."""
        self._accrue()
        self._rate = per_second

    def wait_seconds(self) -> float:
        """Until the next message is due, or something is to be told."""
        if self._rate < 0:
            return 0.0
        if self._rate == 0:
            return STATE_SECONDS
        return min(STATE_SECONDS, max(0.0, (self._job.burst - self._credit) / self._rate))

    def publish_due(self) -> None:
        """Publish what is due.

        Raises:
            RoQError: `publish()` has raised.
        """
        self._accrue()
        count = int(self._credit) if self._credit >= self._job.burst else 0
        if self._rate < 0:
            count = CHUNK
        self._credit = max(0.0, self._credit - count)
        if count:
            self._journal.write(Upto(time.monotonic(), self._published + count))
        for _ in range(count):
            self._publish()
        self._look()

    def tell(self) -> None:
        """Write down how far it is."""
        stats, self._told = self._publisher.stats(), time.monotonic()
        failed = stats.failed_messages + stats.unknown_messages
        exchange = stats.exchange if stats.ready else ""
        self._journal.write(
            State(
                self._told, self._published, stats.acked_messages, failed, stats.replayed_batches,
                self._slowest, exchange,
            )
        )  # fmt: skip
        self._slowest = 0.0
        if self._job.calls:
            self._calls.append_to(Path(self._job.calls))

    def _accrue(self) -> None:
        """What has become due since the last look; a pause is not made up for in full."""
        now = time.monotonic()
        rate = max(0.0, self._rate)
        due = self._credit + rate * (now - self._accrued)
        self._credit = min(due, max(self._job.burst, BEHIND_SECONDS * rate))
        self._accrued = now

    def _publish(self) -> None:
        message = payload(self._stream, self._published, self._job.size)
        began = time.monotonic()
        self._publisher.publish(message, self._job.topic)
        took = time.monotonic() - began
        self._published += 1
        self._slowest = max(self._slowest, took)
        if self._job.calls:
            self._calls.add(began, took)

    def _look(self) -> None:
        """Whether it is connected anew and acknowledged again; and tell how it is now and then."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        stats = self._publisher.stats()
        if stats.connections != self._connections:
            self._connections, self._acked_before = stats.connections, stats.acked_messages
        elif self._acked_before is not None and stats.acked_messages > self._acked_before:
            self._acked_before = None
            self._journal.write(Back(now, stats.connections, stats.exchange))
        if now - self._told >= STATE_SECONDS:
            self.tell()


class Receiver:
    """Compares what comes with what was sent, and writes it down."""

    def __init__(self, journal: Journal) -> None:
        self.latency = Histogram()
        self._journal = journal

    def take(self, batch: Batch) -> None:
        """The next batch."""
        count = len(batch.payloads)
        self.latency.add(max(0.0, time.time() - batch.timestamp), count)
        self.compare(batch)
        self._journal.write(Got(time.monotonic(), batch.publisher.hex(), batch.sequence, count))

    def compare(self, batch: Batch) -> None:
        """Write down what is not as it was sent."""
        stream = batch.publisher.hex()
        for sequence, found in enumerate(batch.payloads, batch.sequence):
            if found != payload(stream, sequence, len(found)):
                self._journal.write(Wrong(time.monotonic(), stream, sequence))

    def gap(self, gap: Gap) -> None:
        """A loss that the subscriber has reported."""
        stream = "" if gap.publisher is None else gap.publisher.hex()
        self._journal.write(Lost(time.monotonic(), stream, gap.sequence, gap.messages, gap.text))


class Worker:
    """Does a job over and over until it is told to finish."""

    def __init__(self, job: Job, commands: Commands) -> None:
        self._job = job
        self._commands = commands
        self._journal = Journal(Path(job.journal))
        self._stop = threading.Event()
        """A subscriber is to finish."""

    def run(self) -> None:
        """Until it is told to finish.

        Raises:
            EOFError: the process that gave commands has gone.
        """
        job = self._job
        if job.waits:
            self._commands.wait_for(Open)
        if not job.publishes:
            threading.Thread(target=self._hear, daemon=True).start()
        work = self._publish if job.publishes else self._subscribe
        work = self._consume if job.mode else work
        work = {"instance": self._serve, "requester": self._ask}.get(job.role, work)
        if job.naive:
            work = self._publish_naively if job.publishes else self._subscribe_naively
        while not self._stop.is_set():
            try:
                work()
            except RoQError as error:  # the cluster is not there at the moment: tried until it is
                self._refused(error, working=False)
                self._stop.wait(AGAIN_SECONDS)

    # --- publishers -------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Be a publisher; when its `publish()` fails, another one takes its place."""
        job = self._job
        with roq.connect(job.addresses, timeout=CONNECT_SECONDS) as cluster:
            publisher = cluster.publisher(job.queue, timeout=PUBLISH_SECONDS)
            try:
                sender = self._drive(publisher, move=lambda: None)
                publisher.flush(FLUSH_SECONDS)
                sender.tell()
                self._finished(replayed=publisher.stats().replayed_batches)
            except RoQError as error:
                self._refused(error, working=True)
            finally:
                publisher.abort()

    def _publish_naively(self) -> None:
        with naive.Publisher(self._job.addresses) as publisher:
            sender = self._drive(publisher, move=publisher.move)
            sender.tell()
            publisher.drain()
            self._finished()

    def _drive(self, publisher: Publisher | naive.Publisher, move: Callable[[], None]) -> Sender:
        """Publish as told until told to finish."""
        self._journal.write(Opened(time.monotonic(), publisher.id.hex()))
        sender = Sender(self._job, publisher, self._journal)
        while True:
            match self._commands.next(sender.wait_seconds()):
                case Rate(per_second=rate):
                    sender.set_rate(rate)
                case Move():
                    move()
                case Finish():
                    return sender
                case Open() | None:
                    pass
            sender.publish_due()

    # --- subscribers ------------------------------------------------------------------------------

    def _hear(self) -> None:
        try:
            self._commands.wait_for(Finish)
        except EOFError:
            pass
        finally:
            self._stop.set()

    def _subscribe(self) -> None:
        job, receiver = self._job, Receiver(self._journal)
        with (
            roq.connect(job.addresses, timeout=CONNECT_SECONDS) as cluster,
            cluster.subscriber(job.queue, topic=job.topic, on_gap=receiver.gap) as subscriber,
        ):
            self._journal.write(Subscribed(time.monotonic(), subscriber.id.hex()))
            self._at_the_end(subscriber.close)
            try:
                for batch in subscriber.batches():
                    receiver.take(batch)
            except RoQError as error:
                self._refused(error, working=True)
                return
            counts = subscriber.stats().counts
        self._finished(latency=receiver.latency.counts(), duplicates=counts.duplicates)

    def _subscribe_naively(self) -> None:
        receiver = Receiver(self._journal)
        with naive.Subscriber(self._job.addresses, self._job.topic) as subscriber:
            self._journal.write(Subscribed(time.monotonic(), subscriber.id.hex()))
            self._at_the_end(subscriber.stop)
            for batch in subscriber.batches():
                receiver.take(batch)
        self._finished(latency=receiver.latency.counts())

    # --- members of a consumer group --------------------------------------------------------------

    def _consume(self) -> None:
        job, (retry, retry_max) = self._job, RETRY_SECONDS
        with (
            roq.connect(job.addresses, timeout=CONNECT_SECONDS) as cluster,
            cluster.consumer(
                job.queue, GROUP, topic=f"{job.queue}.", mode=job.mode, prefetch=PREFETCH,
                lease=LEASE_SECONDS, attempts=0, retry=retry, retry_max=retry_max,
            ) as consumer,
        ):  # fmt: skip
            self._journal.write(Entered(time.monotonic(), consumer.id.hex()))
            seats, receiver = consumer._shell.seats, Receiver(self._journal)  # noqa: SLF001
            member = Member(self._journal, Random(consumer.id), lambda log: log in seats)
            try:
                while not self._stop.is_set():
                    for batch in consumer.batches(wait=STATE_SECONDS):
                        receiver.compare(batch.batch)
                        self._stop.wait(member.begin(batch))
                        member.end(batch)
                        member.look()
                        if self._stop.is_set():
                            break
                    member.look()
            except RoQError as error:
                self._refused(error, working=True)
                return
        member.look()
        self._finished()

    # --- requests ---------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Be an instance of the service."""
        job = self._job
        with roq.connect(job.addresses, timeout=CONNECT_SECONDS) as cluster:
            service = cluster.service(
                SERVICE, job.queue, threads=THREADS, lease=LEASE_SECONDS, settings=SETTINGS
            )
            Instance(self._journal, job.name).register(service)
            with service:
                self._journal.write(Present(time.monotonic(), job.name))
                self._at_the_end(service.stop)
                try:
                    service.wait_stopped()
                except RoQError as error:
                    self._refused(error, working=True)
                    return
        self._finished()

    def _ask(self) -> None:
        """Be a requester, and one that takes no responses beside it."""
        job = self._job
        with (
            roq.connect(job.addresses, timeout=CONNECT_SECONDS) as cluster,
            cluster.requester(job.queue, timeout=PUBLISH_SECONDS) as requester,
            cluster.requester(job.queue, timeout=PUBLISH_SECONDS, collect=False) as silent,
        ):
            requester.prepare(SERVICE)
            self._journal.write(Present(time.monotonic(), job.name))
            asker = Asker(self._journal, job.name, requester, silent, cluster.response)
            try:
                asker.fetch_all(job.left)
                while not self._stop.wait(1 / job.rate):
                    asker.ask()
                    asker.look()
            except RoQError as error:
                self._refused(error, working=True)
                return
        self._finished()

    # --- both -------------------------------------------------------------------------------------

    def _at_the_end(self, close: Callable[[], None]) -> None:
        """Close when it is to finish."""

        def wait() -> None:
            self._stop.wait()
            close()

        threading.Thread(target=wait, daemon=True).start()

    def _finished(
        self, *, replayed: int = 0, duplicates: int = 0, latency: dict[str, int] | None = None
    ) -> None:
        self._stop.set()
        self._journal.write(Finished(time.monotonic(), replayed, duplicates, latency or {}))

    def _refused(self, error: RoQError, *, working: bool) -> None:
        text = f"{type(error).__name__}: {error}"
        self._journal.write(Refused(time.monotonic(), text, working=working))


def main(path: str, descriptor: str) -> int:
    """Do the job in the file; gives the exit code."""
    job = msgspec.json.decode(Path(path).read_bytes(), type=Job)
    try:
        Worker(job, Commands(int(descriptor))).run()
    except EOFError:
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
