"""One publisher or subscriber, a process of its own: `python -m roq.demo.worker JOB_FILE`.

It says what it does on standard output (see report.py). A publisher begins when a line comes on
standard input; a subscriber ends when standard input does.
"""

from __future__ import annotations

import hashlib
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

import roq
from roq.demo import corpus
from roq.demo.latency import Histogram
from roq.demo.report import Calm, Progress, Ready, Report, StreamDigest, WorkerFinished, encode

PROGRESS_SECONDS: Final = 0.1
FLUSH_SECONDS: Final = 120.0
CALM_SECONDS: Final = 0.002
"""Between two lines that go one by one."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told."""

    address: str
    queue: str
    share: corpus.Share | None = None
    """What to publish; None: subscribe to everything."""
    calm: int = 0
    """So many lines go one by one first, for the latency without load."""


class Tally:
    """Counts and digests of streams as they go by."""

    def __init__(self, say: Callable[[Report], None]) -> None:
        self.messages = 0
        self.bytes = 0
        self.first = 0.0
        self.last = 0.0
        self._say = say
        self._said = 0.0
        self._streams: dict[tuple[str, str], _Sum] = {}

    def add(self, publisher: str, topic: str, data: bytes, messages: int) -> None:
        """Take the next messages of a stream, joined to one piece."""
        stream = self._streams.get((publisher, topic))
        if stream is None:
            stream = self._streams[publisher, topic] = _Sum()
        stream.messages += messages
        stream.bytes += len(data)
        stream.digest.update(data)
        self.messages += messages
        self.bytes += len(data)
        self.last = time.time()
        self.first = self.first or self.last

    def restart(self) -> None:
        """What comes now is the first at full speed."""
        self.first = 0.0

    def tell(self) -> None:
        """Say how far it is, not more than ten times a second; by one thread only."""
        now = time.monotonic()
        if now - self._said >= PROGRESS_SECONDS:
            self._said = now
            self._say(Progress(messages=self.messages, bytes=self.bytes))

    def streams(self) -> list[StreamDigest]:
        """What went by."""
        return [
            StreamDigest(
                publisher=publisher,
                topic=topic,
                messages=stream.messages,
                bytes=stream.bytes,
                sha256=stream.digest.hexdigest(),
            )
            for (publisher, topic), stream in sorted(self._streams.items())
        ]


class _Sum:
    __slots__ = ("bytes", "digest", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.digest = hashlib.sha256()


def publish(job: Job, share: corpus.Share, say: Callable[[Report], None]) -> None:
    """Publish each line of each file: the first ones one by one, the others file by file."""
    with roq.connect(job.address) as cluster, cluster.publisher(job.queue) as publisher:
        tally = Tally(say)
        name = publisher.id.hex()
        say(Ready())
        if not sys.stdin.readline():
            return  # the demo has gone
        singles, files = _split(_files(share), job.calm)
        pause = threading.Event()
        for topic, line in singles:
            publisher.publish(line, topic=topic)
            tally.add(name, topic, line, 1)
            tally.tell()
            pause.wait(CALM_SECONDS)
        publisher.flush(timeout=FLUSH_SECONDS)
        say(Calm())
        if not sys.stdin.readline():
            return
        tally.restart()
        for topic, lines in files:
            publisher.publish_many(lines, topic=topic)
            tally.add(name, topic, b"".join(lines), len(lines))
            tally.tell()
        publisher.flush(timeout=FLUSH_SECONDS)
    say(WorkerFinished(streams=tally.streams(), first=tally.first, last=time.time()))


def subscribe(job: Job, say: Callable[[Report], None]) -> None:
    """Receive everything until standard input ends; a line there marks the start of full speed."""
    calm, full = Histogram(), Histogram()
    tally = Tally(say)
    with roq.connect(job.address) as cluster, cluster.subscriber(job.queue) as subscriber:
        say(Ready())
        watcher = _Watcher(tally, subscriber.close)
        watcher.start()
        for batch in subscriber.batches():
            payloads = batch.payloads
            latency = full if watcher.full_speed else calm
            latency.add(time.time() - batch.timestamp, len(payloads))
            tally.add(batch.publisher.hex(), batch.topic, b"".join(payloads), len(payloads))
        watcher.join()
        counts = subscriber.stats().counts
    say(
        WorkerFinished(
            streams=tally.streams(),
            first=tally.first,
            last=tally.last,
            calm_latency=calm.counts(),
            latency=full.counts(),
            lost=counts.lost,
            duplicates=counts.duplicates,
        )
    )


class _Watcher(threading.Thread):
    """Says how far a subscriber is, and listens to standard input, until that ends."""

    def __init__(self, tally: Tally, close: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.full_speed = False
        self._tally = tally
        self._close = close

    def run(self) -> None:
        """Until standard input ends, then let the receiving loop end."""
        while True:
            readable = select.select([sys.stdin], [], [], PROGRESS_SECONDS)[0]
            if readable:
                if not sys.stdin.readline():
                    break
                self._tally.restart()
                self.full_speed = True
            self._tally.tell()
        self._close()


def _files(share: corpus.Share) -> Iterator[tuple[str, list[bytes]]]:
    for topic, data in corpus.read(share):
        yield topic, corpus.lines_of(data)


def _split(
    files: Iterator[tuple[str, list[bytes]]], count: int
) -> tuple[list[tuple[str, bytes]], Iterator[tuple[str, list[bytes]]]]:
    """The first `count` lines one by one, and what is left."""
    singles: list[tuple[str, bytes]] = []
    while len(singles) < count:
        topic, lines = next(files, ("", []))
        if not topic:
            break
        wanted = count - len(singles)
        singles.extend((topic, line) for line in lines[:wanted])
        if len(lines) > wanted:
            return singles, chain([(topic, lines[wanted:])], files)
    return singles, files


def _say(report: Report) -> None:
    sys.stdout.buffer.write(encode(report))
    sys.stdout.buffer.flush()


def main(path: str) -> None:
    """Do the job in the file."""
    job = msgspec.json.decode(Path(path).read_bytes(), type=Job)
    if job.share is None:
        subscribe(job, _say)
    else:
        publish(job, job.share, _say)


if __name__ == "__main__":
    main(sys.argv[1])
