"""What each contender's module brings for the processes in which its clients run, and helpers.

A contender's module has two functions, `publisher(style, options)` and `subscriber(style,
options)`, which give objects of the two protocols below. They run in `benchmarks.worker`.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from struct import Struct
from typing import Protocol

from roq.benchmarks.case import Run
from roq.benchmarks.contender import OPEN_SECONDS

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


class AsyncClient:
    """Either side of a contender that lives in an event loop: its methods run those of the loop.

    Attributes:
        ack_us: how long each acknowledgement or response took, when it was measured.
    """

    def __init__(self) -> None:
        self.ack_us: list[float] = []
        self._runner = asyncio.Runner()

    def open(self, run: Run) -> None:
        """Connect, and get ready."""
        self._runner.run(self._open(run))

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Send everything as fast as it goes."""
        self._runner.run(self._publish(run, payloads))

    def pace(self, run: Run) -> None:
        """Send at a rate."""
        self._runner.run(self._pace(run))

    def receive(self, run: Run) -> None:
        """Receive everything."""
        self._runner.run(self._receive(run))

    def ages(self, run: Run) -> list[float]:
        """Receive everything; gives ages of messages, or times of acknowledgements, in µs."""
        return self._runner.run(self._ages(run))

    def close(self) -> None:
        """Undo `open`."""
        self._runner.run(self._close())

    async def _open(self, run: Run) -> None:
        raise NotImplementedError

    async def _publish(self, run: Run, payloads: list[bytes]) -> None:
        raise NotImplementedError

    async def _pace(self, run: Run) -> None:
        raise NotImplementedError

    async def _receive(self, run: Run) -> None:
        raise NotImplementedError

    async def _ages(self, run: Run) -> list[float]:
        raise NotImplementedError

    async def _close(self) -> None:
        raise NotImplementedError

    async def _timed(self, run: Run, send: Callable[[bytes], Awaitable[object]]) -> None:
        """Send at a rate, one after the other, and keep how long each takes."""
        self.ack_us = []
        async for payload in paced_async(run):
            began = time.monotonic()
            await send(payload)
            self.ack_us.append((time.monotonic() - began) * 1e6)

    async def _asked(
        self, run: Run, payloads: list[bytes], ask: Callable[[bytes], Awaitable[bytes]]
    ) -> None:
        """Keep as many requests under way as there are payloads."""
        left, size = run.count, 0

        async def go_on(payload: bytes) -> None:
            nonlocal left, size
            while left > 0:
                left -= 1
                answer = await ask(payload)
                size += len(answer)

        async with asyncio.TaskGroup() as group:
            for payload in payloads:
                group.create_task(go_on(payload))
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen


class Asking:
    """The asking side of a library that makes a request, and waits for its response apart.

    Args:
        ask: makes a request, and gives what waits for the response.

    Attributes:
        ack_us: how long each response took, when that was measured.
    """

    def __init__(self, ask: Callable[[bytes], Callable[[], bytes]]) -> None:
        self.ack_us: list[float] = []
        self._ask = ask

    def open(self, run: Run) -> None:
        """Wait for a response: it is served."""
        assert len(self._ask(bytes(run.size))()) == run.size  # noqa: S101 - must not go unseen

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Keep as many requests under way as there are payloads."""
        asked(run, payloads, self._ask)

    def pace(self, run: Run) -> None:
        """Ask at a rate, one after the other."""
        self.ack_us = timed(run, lambda payload: self._ask(payload)())

    def close(self) -> None:
        """Nothing to do: the connection stays."""


class Answering:
    """The answering side of a contender with requests: it answers in the background."""

    def receive(self, run: Run) -> None:
        """Nothing: it answers anyway."""

    def ages(self, run: Run) -> list[float]:  # noqa: ARG002 - nothing is measured here
        """Nothing: it answers anyway."""
        return []

    def close(self) -> None:
        """Nothing: it serves until its process ends."""


class AnsweredElsewhere(Answering):
    """That of a library whose own program answers: the server has started it."""

    def open(self, run: Run) -> None:
        """Nothing to do."""


class AsyncAnswering(Answering):
    """One in an event loop, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def open(self, run: Run) -> None:  # noqa: ARG002 - it answers whatever comes
        """Serve; the measurements that follow find it."""
        if not self._thread.is_alive():
            self._thread.start()
            asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(OPEN_SECONDS)

    async def _serve(self) -> None:
        raise NotImplementedError


def parts(run: Run, payloads: list[bytes]) -> Iterator[list[bytes]]:
    """All messages of a measurement, one batch of payloads at a time."""
    full, rest = divmod(run.count, len(payloads))
    yield from [payloads] * full
    if rest:
        yield payloads[:rest]


def asked(run: Run, payloads: list[bytes], ask: Callable[[bytes], Callable[[], bytes]]) -> None:
    """Keep as many requests under way as there are payloads, each response waited for in turn."""
    under_way, size = deque[Callable[[], bytes]](), 0
    for number in range(run.count):
        if len(under_way) == len(payloads):
            size += len(under_way.popleft()())
        under_way.append(ask(payloads[number % len(payloads)]))
    size += sum(len(wait()) for wait in under_way)
    assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen


def timed(run: Run, send: Callable[[bytes], object]) -> list[float]:
    """Send at a rate, one after the other; gives how long each takes in µs."""
    took = []
    for payload in paced(run):
        began = time.monotonic()
        send(payload)
        took.append((time.monotonic() - began) * 1e6)
    return took


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
