"""One publisher of a live run: it sends what is due, however late it is itself (open loop).

A publisher that has no room does not hold up the others of its task: what is due waits, is sent as
soon as there is room, and its latency counts from when it should have been sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Final, NamedTuple

import roq
from roq.client.publish.batching import Payload
from roq.client.publish.publisher import Publisher
from roq.demo.latency import bucket_of
from roq.errors import RoQError, Unavailable, WouldBlock
from roq.simulation.lab.live.clocks import MICROSECONDS, Clock
from roq.simulation.lab.live.plan import PublisherStay, Stretch
from roq.simulation.lab.live.schedule import Timetable
from roq.simulation.lab.live.stamp import STAMP, STAMP_BYTES, identity
from roq.simulation.lab.live.verdict import SentTally
from roq.simulation.lab.live.windows import LATE_SECONDS, Window, Windows
from roq.simulation.scenario.draws import sizes, topics
from roq.simulation.scenario.rates import NEVER

CHUNK: Final = 500
"""Messages that one publisher sends before others have their turn."""
FEW: Final = 4
BLOCKED_SECONDS: Final = 0.002
"""Until a publisher that had no room tries again."""
OVERTIME_SECONDS: Final = 30.0
"""A publisher that is behind goes on for so long after its end; the rest is not sent."""
FLUSH_SECONDS: Final = 30.0
_LATE_US: Final = LATE_SECONDS * MICROSECONDS
_NOISE: Final = Random(0).randbytes(65_536)


_NO_WINDOW: Final = Window(0)


class _Message(NamedTuple):
    due_us: int
    topic: str
    payload: bytes


class _Draws:
    """What messages of one stretch look like."""

    def __init__(self, stretch: Stretch, random: Random) -> None:
        self.stretch = stretch
        self.size = sizes(stretch.size, random)
        self.topic = topics(stretch.topics, random)
        self.one_topic = len(stretch.topics.all) == 1


class Sender:
    """One stay of a publisher. Only `close` and `failures` may be asked by other threads.

    Args:
        stay: who, and what is to be sent.
        timetable: when.
        tag: of the run.
        seed: of sizes and topics.
        marks: moments at which it notes how far it is.

    Attributes:
        publisher: as soon as it is open.
        windows: what it did; from `begin` on.
        messages, bytes: published so far.
    """

    def __init__(
        self, stay: PublisherStay, timetable: Timetable, *, tag: int, seed: str,
        marks: Sequence[float],
    ) -> None:  # fmt: skip
        self.stay = stay
        self.publisher: Publisher | None = None
        self.windows = Windows(0, 1.0)
        self.messages = 0
        self.bytes = 0
        self._timetable = timetable
        self._identity = identity(tag, stay.source)
        self._random = Random(seed)
        self._marks = [*marks, NEVER]
        self._noted: list[dict[str, int]] = []
        self._numbers: dict[str, int] = {}
        self._draws: _Draws | None = None
        self._waiting: list[_Message] = []
        self._place = 0
        """Of the first in `waiting` that is not published."""
        self._latency_most_us = 0
        self._told_failures = 0
        self._unsent = 0
        self._begin_us = 0
        self._clock = Clock(0)
        self._gap = BLOCKED_SECONDS

    def open(self, cluster: roq.Cluster, queue: str) -> None:
        """Connect; takes a moment."""
        self.publisher = cluster.publisher(queue, block=False)

    def begin(self, clock: Clock, begin_us: int, window_seconds: float, gap: float) -> None:
        """The load begins.

        Args:
            clock: of the driver.
            begin_us: when, by this clock.
            window_seconds: length of a window.
            gap: seconds between two turns at least.
        """
        self._clock, self._begin_us, self._gap = clock, begin_us, gap
        self.windows = Windows(begin_us, window_seconds)

    def turn(self, now: float) -> float:
        """Send what is due; gives when to come again, NEVER if all is done.

        Args:
            now: seconds since the load began.
        """
        publisher = self.publisher
        if publisher is None:
            return now + BLOCKED_SECONDS
        if not self._waiting:
            self._take(now)
        if self._waiting:
            self._publish(publisher)
            if self._waiting:
                if now < self.stay.ends + OVERTIME_SECONDS:
                    return now + BLOCKED_SECONDS
                self._give_up(now)
                return NEVER
            if self._timetable.next_due() <= now:
                return now
        due = self._timetable.next_due()
        return due if due == NEVER else max(due, now + self._gap)

    def stop(self) -> None:
        """Nothing more is to be sent."""
        self._drop()

    def close(self) -> None:
        """Wait until all is acknowledged, and disconnect; takes a moment."""
        if self.publisher is None:
            return
        with contextlib.suppress(RoQError):  # what is not acknowledged counts as failed
            self.publisher.flush(FLUSH_SECONDS)
        self.failures()
        self.abort("the load is over")

    def abort(self, reason: str) -> None:
        """Disconnect without waiting; where nobody has processor time for it, the publisher ends
        with the connection of its task, and what it has counted is not lost."""
        if self.publisher is not None:
            with contextlib.suppress(Unavailable):
                self.publisher.abort(reason)

    def failures(self) -> None:
        """Note what was given up since the last time."""
        if self.publisher is None:
            return
        with self.windows.lock:
            stats = self.publisher.stats()
            failed = stats.failed_messages + stats.unknown_messages
            new, self._told_failures = failed - self._told_failures, failed
            if new:
                self.windows.at(self._clock.now_us()).failed += new

    def tally(self) -> SentTally:
        """What it has done; once it is closed."""
        acknowledged = 0 if self.publisher is None else self.publisher.stats().acked_messages
        return SentTally(
            source=self.stay.source,
            topics=dict(self._numbers),
            marks=[
                {topic: min(number, self._numbers[topic]) for topic, number in noted.items()}
                for noted in self._noted
            ],
            messages=self.messages,
            bytes=self.bytes,
            late=self.windows.late,
            late_most=self._latency_most_us / MICROSECONDS,
            unsent=self._unsent,
            failed=max(0, self.messages - acknowledged),
            latency={str(bucket): each for bucket, each in self.windows.latency.items()},
            latency_sum=self.windows.latency_sum,
            latency_most=self._latency_most_us / MICROSECONDS,
        )

    # --- what is due ------------------------------------------------------------------------------

    def _take(self, now: float) -> None:
        """Make the next messages that are due."""
        moments = self._timetable.take(now, CHUNK)
        if not moments:
            return
        draws = self._draws
        if draws is None or draws.stretch is not self._timetable.stretch():
            draws = self._draws = _Draws(self._timetable.stretch(), self._random)
        size, topic, numbers = draws.size, draws.topic, self._numbers
        begin_us, mine, waiting = self._begin_us, self._identity, self._waiting
        mark, last_us = self._marks[len(self._noted)], int(self.stay.ends * MICROSECONDS) - 1
        for moment in moments:
            while moment >= mark:
                self._noted.append(dict(numbers))
                mark = self._marks[len(self._noted)]
            name = topic()
            number = numbers.get(name, 0)
            numbers[name] = number + 1
            # What is due at the very end belongs to the last window, not to one after the load.
            due_us = begin_us + min(int(moment * MICROSECONDS), last_us)
            payload = STAMP.pack(due_us, mine, number) + _filler(size() - STAMP_BYTES)
            waiting.append(_Message(due_us, name, payload))

    def _publish(self, publisher: Publisher) -> None:
        """Publish what waits, as far as there is room."""
        waiting, begin = self._waiting, self._place
        place, end = begin, len(waiting)
        if self._draws is not None and self._draws.one_topic and end - begin > FEW:
            payloads: list[Payload] = [each.payload for each in waiting]
            place = publisher.publish_from(payloads, begin, waiting[0].topic, [])
        else:
            try:
                while place < end:
                    _, topic, payload = waiting[place]
                    publisher.publish(payload, topic)
                    place += 1
            except WouldBlock:
                pass
        self._account(waiting[begin:place] if place - begin < end else waiting)
        self._place = place
        if place == end:
            self._waiting = []
            self._place = 0

    def _account(self, messages: list[_Message]) -> None:
        """These have just been published."""
        now_us = self._clock.now_us()
        windows = self.windows
        with windows.lock:
            window, from_us, until_us = _NO_WINDOW, 0, 0
            for due_us, _, payload in messages:
                if not from_us <= due_us < until_us:
                    window = windows.at(due_us)
                    from_us = window.begin_us
                    until_us = from_us + windows.width_us
                took_us = now_us - due_us
                seconds = took_us / MICROSECONDS
                window.messages += 1
                window.bytes += len(payload)
                window.late += took_us > _LATE_US
                window.latency[bucket_of(seconds)] += 1
                window.latency_sum += max(0.0, seconds)
                self.bytes += len(payload)
                self._latency_most_us = max(self._latency_most_us, took_us)
        self.messages += len(messages)

    def _give_up(self, now: float) -> None:
        """It is too late for what waits, and for all that would follow."""
        self._unsent += len(self._waiting) - self._place
        self._drop()
        while moments := self._timetable.take(now, CHUNK):
            self._unsent += len(moments)

    def _drop(self) -> None:
        for _, topic, _ in self._waiting[self._place :]:
            self._numbers[topic] -= 1
        self._waiting = []
        self._place = 0


@lru_cache(maxsize=1_024)
def _filler(size: int) -> bytes:
    """So many bytes that do not compress; none if there is no room for any."""
    if size <= 0:
        return b""
    return (_NOISE * (size // len(_NOISE) + 1))[:size]
