"""The life of a log on disk, measured: `python -m roq.benchmarks.logs --help`.

    cold    how soon an exchange serves again over a large log, and what memory it takes

A log is made by the classes of the log themselves, without an exchange, as fast as the disk takes
it: a large one in minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from roq.benchmarks.processes import PYTHON, Program, rss_bytes
from roq.exchange.commit import UNCOMMITTED_BYTES_MAX, UNCOMMITTED_ENTRIES_MAX
from roq.exchange.machine import ExchangeCore
from roq.log.disk import DiskFiles
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog, perform
from roq.log.streams import spare_of
from roq.model import Limits, PublisherId
from roq.protocol import batch
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
        while log.uncommitted_bytes < least and log.end < until:
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


def cold(folder: Path, log: Path, starts: int, first_epoch: int) -> None:
    """Start an exchange over a log several times, killed in between; print what it took."""
    limits = Limits(log_bytes=1 << 40, log_seconds=10 * 365 * 86_400)
    empty = LoneExchange(folder, folder / "empty", limits, EPOCH)
    print(f"over no log: {empty.seconds:.2f} s, {empty.rss / _MIB:.0f} MiB")
    memory = empty.rss
    empty.kill()
    for number in range(starts):
        one = LoneExchange(folder, log, limits, first_epoch + number)
        what = "the tail verified and written again" if number == 0 else "killed before"
        print(
            f"start {number + 1} ({what}): serves after {one.seconds:.2f} s "
            f"(+{one.seconds - empty.seconds:.2f} s), {one.rss / _MIB:.0f} MiB "
            f"(+{(one.rss - memory) / _MIB:.0f} MiB)",
            flush=True,
        )
        one.kill()


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
    part.set_defaults(run=_cold)
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
        cold(folder, log, chosen.starts, chosen.epoch)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
