"""What each contender's module brings for the processes in which its clients run, and helpers.

A contender's module has two functions, `publisher(style, options)` and `subscriber(style,
options)`, which give objects of the two protocols below. They run in `benchmarks.worker`.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from struct import Struct
from typing import Protocol

from roq.benchmarks.case import Run

_STAMP = Struct("<q")
_SETTLE_SECONDS = 0.05


class BenchPublisher(Protocol):
    """The sending side of a contender."""

    def open(self, run: Run) -> None:
        """Get ready; nothing is measured yet."""

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Send `run.count` messages out of `payloads` (one batch of them) as fast as it goes.

        Returns when they have left, or are confirmed where the system confirms.
        """

    def pace(self, run: Run) -> None:
        """Send `run.count` stamped messages at `run.rate` per second, each at once."""

    def close(self) -> None:
        """Undo `open`."""


class BenchSubscriber(Protocol):
    """The receiving side of a contender."""

    def open(self, run: Run) -> None:
        """Subscribe; returns when the subscription is in force."""

    def receive(self, run: Run) -> None:
        """Receive `run.count` messages and look at each payload's length."""

    def ages(self, run: Run) -> list[float]:
        """Receive `run.count` stamped messages and tell how old each was on arrival, in µs."""

    def close(self) -> None:
        """Undo `open`."""


def payloads_of(run: Run) -> list[bytes]:
    """One batch of payloads: random bytes, each different."""
    generator = random.Random(run.size)
    return [generator.randbytes(run.size) for _ in range(run.batch)]


def stamp(size: int) -> bytes:
    """A payload that carries the time at which it was made."""
    return _STAMP.pack(time.monotonic_ns()).ljust(size, b".")


def age_us(payload: bytes) -> float:
    """How long ago a stamped payload was made, in microseconds."""
    made: int = _STAMP.unpack_from(payload)[0]
    return (time.monotonic_ns() - made) / 1000


def paced(run: Run) -> Iterator[bytes]:
    """Stamped payloads, `run.rate` a second, at even distances."""
    never = threading.Event()
    due = time.monotonic() + _SETTLE_SECONDS
    for _ in range(run.count):
        never.wait(max(0.0, due - time.monotonic()))
        due += 1 / run.rate
        yield stamp(run.size)


async def paced_async(run: Run) -> AsyncIterator[bytes]:
    """As `paced`, in an asyncio loop."""
    due = time.monotonic() + _SETTLE_SECONDS
    for _ in range(run.count):
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        due += 1 / run.rate
        yield stamp(run.size)
