"""One subscriber of a live run: what it gets, how late, and what is missing."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from time import monotonic

import roq
from roq.client.subscribe.subscriber import Subscriber
from roq.demo.latency import bucket_of
from roq.errors import RoQError
from roq.read.message import Batch, Gap
from roq.simulation.lab.live.clocks import MICROSECONDS, Clock
from roq.simulation.lab.live.plan import SubscriberStay
from roq.simulation.lab.live.stamp import SOURCE_MASK, STAMP, TAG_BITS
from roq.simulation.lab.live.verdict import ReceivedTally, StreamTally
from roq.simulation.lab.live.windows import Window, Windows
from roq.testing.positions import Positions

_NO_WINDOW = Window(0)
_NO_STREAM = Positions()


class Receiver:
    """One stay of a subscriber, in a thread of its own.

    Args:
        stay: who, and for how long.
        tag: of the run; messages with another one are foreign.
        on_error: told when it cannot go on, in its thread.

    Attributes:
        windows: what it got; from `begin` on.
        messages, bytes: until now.
        fresh: messages that were not there before.
        last: when the last batch came; seconds on the monotonic clock of this machine.
    """

    def __init__(
        self, stay: SubscriberStay, *, tag: int, on_error: Callable[[BaseException], None]
    ) -> None:
        self.stay = stay
        self.windows = Windows(0, 1.0)
        self.messages = 0
        self.bytes = 0
        self.fresh = 0
        self.last = monotonic()
        self._tag = tag
        self._on_error = on_error
        self._streams: dict[tuple[int, str], Positions] = {}
        self._foreign = 0
        self._reported = 0
        self._latency_most = 0.0
        self._begin_us = 0
        self._in_force_us = 0
        self._clock = Clock(0)
        self._begun = threading.Event()
        self._ready = threading.Event()
        self._closing = False
        self._subscriber: Subscriber | None = None
        self._thread: threading.Thread | None = None

    def is_ready(self) -> bool:
        """Whether it is in force."""
        return self._ready.is_set()

    @property
    def opened(self) -> bool:
        """Whether it was ever told to open."""
        return self._thread is not None

    def open(self, cluster: roq.Cluster, queue: str, clock: Clock) -> None:
        """Subscribe, and receive from then on."""
        self._clock = clock
        self._thread = threading.Thread(
            target=self._run, args=(cluster, queue), name=self.stay.name, daemon=True
        )
        self._thread.start()

    def begin(self, begin_us: int, window_seconds: float) -> None:
        """The load begins."""
        self._begin_us = begin_us
        self.windows = Windows(begin_us, window_seconds)
        self._begun.set()

    def close(self) -> None:
        """Unsubscribe and wait for the thread; idempotent."""
        self._closing = True
        self._begun.set()
        if self._subscriber is not None:
            self._subscriber.close()
        if self._thread is not None:
            self._thread.join()

    def tally(self) -> ReceivedTally:
        """What it got; once it is closed."""
        in_force = self._in_force_us - self._begin_us if self._in_force_us else float("inf")
        return ReceivedTally(
            name=self.stay.name,
            begins=self.stay.begins,
            in_force=in_force / MICROSECONDS,
            streams=[
                StreamTally(
                    source=source,
                    topic=topic,
                    next=stream.next,
                    missing=stream.missing,
                    doubled=stream.doubled,
                    reordered=stream.reordered,
                )
                for (source, topic), stream in self._streams.items()
            ],
            messages=self.messages,
            bytes=self.bytes,
            foreign=self._foreign,
            reported=self._reported,
            latency={str(bucket): each for bucket, each in self.windows.latency.items()},
            latency_sum=self.windows.latency_sum,
            latency_most=self._latency_most,
        )

    # --- its thread -------------------------------------------------------------------------------

    def _run(self, cluster: roq.Cluster, queue: str) -> None:
        try:
            with cluster.subscriber(queue, self.stay.topic, on_gap=self._gap) as subscriber:
                self._subscriber = subscriber
                self._in_force_us = self._clock.now_us()
                self._ready.set()
                self._begun.wait()
                if not self._closing:
                    for batch in subscriber.batches():
                        self.take(batch)
        except RoQError as error:
            if not self._closing:
                self._on_error(error)
        except BaseException as error:  # noqa: BLE001 - a thread that ends must not go unnoticed
            self._on_error(error)

    def _gap(self, gap: Gap) -> None:
        self._reported += gap.messages
        with self.windows.lock:
            self.windows.at(self._clock.now_us()).failed += gap.messages

    def take(self, batch: Batch) -> None:
        """The next batch."""
        now_us = self._clock.now_us()
        unpack, windows = STAMP.unpack_from, self.windows
        window, stream = _NO_WINDOW, _NO_STREAM
        latest = known = -1
        from_us = until_us = fresh = 0
        with windows.lock:
            for payload in batch.payloads:
                try:
                    due_us, identity, number = unpack(payload)
                except struct.error:
                    self._foreign += 1
                    continue
                if identity != known:
                    if identity >> TAG_BITS != self._tag:
                        self._foreign += 1
                        continue
                    known = identity
                    stream = self._stream(identity & SOURCE_MASK, batch.topic)
                if not from_us <= due_us < until_us:
                    window = windows.at(due_us)
                    from_us = window.begin_us
                    until_us = from_us + windows.width_us
                window.messages += 1
                window.bytes += len(payload)
                if number == stream.next:
                    stream.next = number + 1
                    fresh += 1
                elif stream.odd(number):
                    fresh += 1
                    window.reordered += number < stream.next - 1
                else:
                    window.doubled += 1
                took_us = now_us - due_us
                latest = max(latest, took_us)
                seconds = took_us / MICROSECONDS if took_us > 0 else 0.0
                window.latency[bucket_of(seconds)] += 1
                window.latency_sum += seconds
                self.messages += 1
                self.bytes += len(payload)
        self.fresh += fresh
        self.last = monotonic()
        self._latency_most = max(self._latency_most, latest / MICROSECONDS)

    def _stream(self, source: int, topic: str) -> Positions:
        key = source, topic
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Positions()
        return stream
