"""The life of a log on disk, measured: `python -m roq.benchmarks.logs --help`.

    cold    how soon an exchange serves again over a large log, and what memory it takes
    late    what a reader of old entries at full speed costs the publishers

A log is made by the classes of the log themselves, without an exchange, as fast as the disk takes
it: a large one in minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import zmq

from roq.benchmarks.processes import PYTHON, Program, rss_bytes
from roq.exchange.commit import UNCOMMITTED_BYTES_MAX, UNCOMMITTED_ENTRIES_MAX
from roq.exchange.machine import ExchangeCore
from roq.log.disk import DiskFiles
from roq.log.disk_groups import perform
from roq.log.files import INDEX_SUFFIX
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.log.streams import spare_of
from roq.model import Limits, PublisherId
from roq.protocol import batch, channel, documents
from roq.protocol.channel import Fetched, FetchRequest, Hello, Ready
from roq.protocol.framing import Answers, split_answer
from roq.protocol.spec import ExchangeSpec, encode_spec

QUEUE: Final = b"benchmark-of-log"
CLUSTER: Final = "benchmark"
HOST: Final = "127.0.0.1"
EPOCH: Final = 1
GROUP_BYTES: Final = 4 * 1024 * 1024
"""Of records that are written and synced together while a log is made."""
START_SECONDS: Final = 600.0
_MIB: Final = 1024 * 1024


def settings(limits: Limits, epoch: int = EPOCH) -> LogSettings:
    """Of the log of exchange 1 of a queue with these limits."""
    return LogSettings(
        queue=QUEUE, exchange=1, epoch=epoch, cluster=CLUSTER, host=HOST,
        ring_bytes=limits.ring_bytes, topics_max=limits.topics,
        topics_spare=spare_of(limits.topics), capacity_bytes=limits.log_bytes,
        keep_us=limits.log_seconds * 1_000_000, now_us=time.time_ns() // 1_000,
    )  # fmt: skip


def make(
    folder: Path, total: int, *, messages: int, size: int, topics: int = 1, tail: int = 0
) -> int:
    """Make a log of so many bytes on the disk; gives its entries.

    Args:
        messages: in each batch.
        size: bytes of a message.
        topics: the batches are of these in turn.
        tail: bytes of the last group, which nothing says has reached the disk; of no more entries
            than an exchange accepts without having committed them.
    """
    files = DiskFiles(folder)
    limits = Limits(log_bytes=1 << 40, log_seconds=10 * 365 * 86_400)
    log = open_log(files, settings(limits))
    payloads = [os.urandom(size) for _ in range(messages)]
    names = [b"topic.%d." % number for number in range(topics)]
    publisher = PublisherId(b"p" * 16)
    numbers = itertools.count(1)

    def group(least: int) -> None:
        log.advance_clock(time.time_ns() // 1_000)
        until = log.end + UNCOMMITTED_ENTRIES_MAX
        while log.unsynced_bytes < least and log.end < until:
            number = next(numbers)
            data = batch.pack(
                payloads, publisher=publisher, epoch=1, link_number=number,
                first_sequence=(number - 1) * messages, created_us=0,
            )  # fmt: skip
            log.append(names[number % topics], data, len(data))

    while log.kept + tail < total:
        group(GROUP_BYTES)
        _write(files, log)
    if tail:
        group(tail)
        _write(files, log)
    files.close()
    return log.end


def _write(files: DiskFiles, log: SegmentLog[bytes]) -> None:
    snapshot = ExchangeCore(QUEUE, 1, EPOCH, Limits()).snapshot()
    while (group := log.gather(lambda: snapshot)) is not None:
        perform(files, group)
        log.commit(group.end)


class LoneExchange:
    """An exchange process that stands alone.

    Attributes:
        seconds: from its start until it served.
        data, live: where it listens.
    """

    def __init__(self, folder: Path, log: Path | None, limits: Limits, epoch: int) -> None:
        path = folder / "exchange.json"
        spec = ExchangeSpec(
            child="bench.x1", queue="bench", queue_id=QUEUE, epoch=epoch, bind=HOST,
            advertise=HOST, ports=(0, 0), manager="", monitor="", number=1, host=HOST,
            limits=limits, cluster=CLUSTER, log=str(log or ""),
        )  # fmt: skip
        path.write_bytes(encode_spec(spec))
        started = time.monotonic()
        self._program = Program([*PYTHON, "roq.exchange", str(path)], folder / "exchange.log")
        child = json.loads(self._program.read_line(START_SECONDS))
        self.seconds = time.monotonic() - started
        self.data, self.live = child["data"], child["live"]

    @property
    def rss(self) -> int:
        """Its resident bytes."""
        return rss_bytes(self._program.pid)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._program.pid

    def kill(self) -> None:
        """End it as a kill does; idempotent."""
        self._program.stop(9)


def cold(
    folder: Path, log: Path, starts: int, first_epoch: int, *, lost: int = 0, forget: bool = False
) -> None:
    """Start an exchange over a log several times, killed in between; print what it took.

    Args:
        lost: before each start the newest index files go, so many: what a power cut may take.
        forget: before each start the system forgets what it holds of the log in memory.
    """
    limits = Limits(log_bytes=1 << 40, log_seconds=10 * 365 * 86_400)
    empty = LoneExchange(folder, folder / "empty", limits, EPOCH)
    print(f"over no log: {empty.seconds:.2f} s, {empty.rss / _MIB:.0f} MiB")
    memory = empty.rss
    empty.kill()
    for number in range(starts):
        for index in sorted(log.glob(f"*{INDEX_SUFFIX}"), reverse=True)[:lost]:
            index.unlink()
        if forget:
            forget_pages(log)
        one = LoneExchange(folder, log, limits, first_epoch + number)
        what = "the tail verified and written again" if number == 0 else "killed before"
        print(
            f"start {number + 1} ({what}): serves after {one.seconds:.2f} s "
            f"(+{one.seconds - empty.seconds:.2f} s), {one.rss / _MIB:.0f} MiB "
            f"(+{(one.rss - memory) / _MIB:.0f} MiB)",
            flush=True,
        )
        one.kill()


def forget_pages(folder: Path) -> None:
    """Have the system forget what of these files it holds in memory: it has to read them again."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def publish(address: str, seconds: float, messages: int, size: int) -> float:
    """Publish batches for so long, at most a window of them unacknowledged; gives bytes/s."""
    payloads = [os.urandom(size) for _ in range(messages)]
    publisher = PublisherId(os.urandom(16))
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(address)
        hello = Hello(queue=QUEUE, publisher=publisher, epoch=1, attempt=1)
        socket.send_multipart([channel.HELLO, documents.encode(hello)])
        ready = documents.decode(split_answer(socket.recv())[1], Ready)
        window = min(ready.window_batches, ready.window_bytes // (messages * size + 100))
        sent = acknowledged = total = 0
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            while sent - acknowledged < window:
                sent += 1
                data = batch.pack(
                    payloads, publisher=publisher, epoch=1, link_number=sent,
                    first_sequence=(sent - 1) * messages, created_us=0,
                )  # fmt: skip
                socket.send_multipart([b"live", data])
                total += len(data)
            letter, *rest = split_answer(socket.recv())
            if letter == channel.ACK:
                acknowledged = channel.read_number(rest[0])
        return total * acknowledged / sent / (time.monotonic() - started)


def read_old(address: str, seconds: float, until: int, generation: int) -> float:
    """Fetch the first part of a log, again and again, for so long; gives bytes/s."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(address)
        answers = Answers()
        total = at = 0
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            request = FetchRequest(
                id=1, queue=QUEUE, generation=generation, prefixes=[b""], first=at, until=until,
                max_bytes=channel.FETCH_BYTES_MAX,
            )  # fmt: skip
            socket.send_multipart([channel.FETCH, documents.encode(request)])
            while True:
                parts = answers.take(socket.recv())
                if parts is None:
                    continue
                if parts[0] == channel.FETCH:
                    break
                total += len(parts[-1])
            told = documents.decode(parts[1], Fetched)
            at = 0 if told.done else told.reached
        return total / (time.monotonic() - started)


def late(folder: Path, log: Path, entries: int, chosen: argparse.Namespace) -> None:
    """Publishers alone, beside a late reader of their exchange, and beside one that reads from
    another exchange, in turn; print their rates and the ratios.

    The reader is a program that wants a core, and so is its exchange: what is lost beside the
    reader elsewhere is lost to want of cores and of disk, not to what shares the exchange.
    """
    limits = Limits(ring_bytes=16 * _MIB, message_bytes=2 * _MIB, log_bytes=1 << 40)
    errors = folder / "errors"
    here = LoneExchange(folder, log, limits, EPOCH + 1)
    other = LoneExchange(folder, folder / "other", limits, EPOCH + 1)
    command = [*PYTHON, "roq.benchmarks.logs"]
    amount = [str(chosen.seconds), str(chosen.messages), str(chosen.size)]
    arms = {"alone": "", "beside": here.data, "elsewhere": other.data}
    ratios: dict[str, list[float]] = {"beside": [], "elsewhere": []}
    try:
        for number in range(chosen.rounds):
            rates: dict[str, float] = {}
            for arm in sorted(arms, reverse=number % 2 == 1):
                forget_pages(log)
                forget_pages(folder / "other")
                writer = Program([*command, "publish", here.data, *amount], errors)
                reader = None
                if arms[arm]:
                    what = [arms[arm], amount[0], str(entries), str(EPOCH)]
                    reader = Program([*command, "read", *what], errors)
                rates[arm] = float(writer.read_line(START_SECONDS))
                if reader is not None:
                    rates[f"{arm} reader"] = float(reader.read_line(START_SECONDS))
                    reader.stop()
                writer.stop()
            for arm, found in ratios.items():
                found.append(rates[arm] / rates["alone"])
            told = ", ".join(f"{arm} {rate / 1e6:.1f}" for arm, rate in rates.items())
            print(f"round {number + 1}, MB/s: {told}", flush=True)
    finally:
        here.kill()
        other.kill()
    for arm, found in ratios.items():
        print(f"{arm}: {statistics.median(found):.2f} of alone ({min(found):.2f} to "
              f"{max(found):.2f})")  # fmt: skip
    both = [one / two for one, two in zip(ratios["beside"], ratios["elsewhere"], strict=True)]
    print(f"beside, of elsewhere: {statistics.median(both):.2f}")


def main(arguments: Sequence[str]) -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m roq.benchmarks.logs", description=__doc__)
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("cold", help="how soon an exchange serves again over a large log")
    part.add_argument("--gib", type=float, default=1.0, help="bytes of the log")
    part.add_argument("--messages", type=int, default=1, help="messages in each batch")
    part.add_argument("--size", type=int, default=100, help="bytes of a message")
    part.add_argument("--topics", type=int, default=1)
    part.add_argument(
        "--tail", type=int, default=UNCOMMITTED_BYTES_MAX, help="bytes of the last group"
    )
    part.add_argument("--starts", type=int, default=3)
    part.add_argument("--log", type=Path, help="a log that stays; made if it is not there")
    part.add_argument("--epoch", type=int, default=EPOCH + 1, help="of the first start")
    part.add_argument(
        "--lost-indexes", type=int, default=0, metavar="N",
        help="remove the newest N index files before each start, as a power cut may",
    )  # fmt: skip
    part.add_argument(
        "--cold-cache", action="store_true",
        help="have the system forget what it holds of the log before each start",
    )  # fmt: skip
    part.set_defaults(run=_cold)
    part = parts.add_parser("late", help="what a reader of old entries costs the publishers")
    part.add_argument("--gib", type=float, default=1.0, help="bytes of the log")
    part.add_argument("--messages", type=int, default=500, help="messages in each batch")
    part.add_argument("--size", type=int, default=100, help="bytes of a message")
    part.add_argument("--rounds", type=int, default=5)
    part.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    part.set_defaults(run=_late, tail=0, topics=4)
    part = parts.add_parser("publish", help="a part of late")
    part.add_argument("address")
    for name, kind in (("seconds", float), ("messages", int), ("size", int)):
        part.add_argument(name, type=kind)
    part.set_defaults(
        run=lambda at: print(publish(at.address, at.seconds, at.messages, at.size), flush=True)
    )
    part = parts.add_parser("read", help="a part of late")
    part.add_argument("address")
    for name, kind in (("seconds", float), ("until", int), ("generation", int)):
        part.add_argument(name, type=kind)
    part.set_defaults(
        run=lambda at: print(read_old(at.address, at.seconds, at.until, at.generation), flush=True)
    )
    chosen = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], None] = chosen.run
    run(chosen)
    return 0


def _cold(chosen: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roq-bench-")))
        log = chosen.log or folder / "log"
        if not log.exists():
            began = time.monotonic()
            entries = make(
                log, int(chosen.gib * 2**30), messages=chosen.messages, size=chosen.size,
                topics=chosen.topics, tail=chosen.tail,
            )  # fmt: skip
            print(
                f"made: {entries} batches of {chosen.messages} message(s), {chosen.gib:g} GiB, in "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
        cold(
            folder, log, chosen.starts, chosen.epoch, lost=chosen.lost_indexes,
            forget=chosen.cold_cache,
        )  # fmt: skip


def _late(chosen: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="roq-bench-") as name:
        folder = Path(name)
        counts = [
            make(
                folder / log,
                int(chosen.gib * 2**30),
                messages=chosen.messages,
                size=chosen.size,
                topics=chosen.topics,
            )
            for log in ("other", "log")
        ]
        entries = min(counts)
        late(folder, folder / "log", entries, chosen)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
