"""The I/O side of a subscriber: sockets and timers around a `Reception`.

Everything here runs in the I/O thread. The clock that the reception knows is *active* time:
a step of it is at most a quarter of a second, so a process that was stopped for a minute does not
wake up believing that everybody has been silent for a minute.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, assert_never

from roq.client.engine import Engine
from roq.client.handoff import Handoff
from roq.client.message import MICROSECONDS
from roq.client.reading import Ask, Event, Subscribe, Unsubscribe
from roq.client.reception import Order, Reception, ReceptionStats, Starts
from roq.client.stream import Source
from roq.client.tap import Tap
from roq.model import ExchangeInfo
from roq.protocol.channel import NONCE_BYTES
from roq.protocol.control import Topology
from roq.runtime.logs import RateLimited
from roq.runtime.reactor import Timer

TICK_SECONDS: Final = 0.2
TICK_SECONDS_MIN: Final = 0.001
CLOCK_STEP_SECONDS: Final = 0.25

log = logging.getLogger(__name__)


class ActiveClock:
    """The monotonic clock without the time in which this process did not run."""

    def __init__(self) -> None:
        self._real = time.monotonic()
        self._active = 0.0

    def __call__(self) -> float:
        """The active time, in seconds from an arbitrary origin."""
        real = time.monotonic()
        self._active += min(real - self._real, CLOCK_STEP_SECONDS)
        self._real = real
        return self._active


class Feed:
    """Reads all exchanges of one queue for one subscriber.

    Args:
        prefixes: of topics.
        start: where to begin on the exchanges that are there.
        handoff: where batches go.
        translate: applied to addresses before they are connected to.
        on_confirmed: called once, when every exchange of the start has confirmed.
        on_news: called when `alive` has something to tell that is not to wait.
        repair, check_duplicates: off only in tests that prove what these are good for.
    """

    def __init__(
        self,
        engine: Engine,
        prefixes: list[bytes],
        start: Starts,
        handoff: Handoff,
        *,
        translate: Callable[[str], str] | None = None,
        on_confirmed: Callable[[], None],
        on_news: Callable[[], None],
        repair: bool = True,
        check_duplicates: bool = True,
    ) -> None:
        self.confirmed = False
        self._engine = engine
        self._handoff = handoff
        self._translate = translate or str
        self._on_confirmed = on_confirmed
        self._on_news = on_news
        self._clock = ActiveClock()
        self._reception = Reception(
            prefixes,
            start,
            nonce=lambda: os.urandom(NONCE_BYTES),
            now=self._clock(),
            repair=repair,
            check_duplicates=check_duplicates,
        )
        self._taps: dict[Source, Tap] = {}
        self._paused = False
        self._closed = False
        self._timer: Timer | None = None
        self._timer_at = float("inf")
        self._limited = RateLimited(log)
        self._latency_sum = 0.0
        self._latency_count = 0

    def topology(self, topology: Topology) -> None:
        """Read exactly these exchanges from now on."""
        if self._closed:
            return
        wanted = {(exchange.number, exchange.epoch): exchange for exchange in topology.exchanges}
        for source in [source for source in self._taps if source not in wanted]:
            tap = self._taps[source]
            tap.drain()
            self._perform(self._reception.leave(source, self._clock()))
            tap.close()
            del self._taps[source]
        for source, exchange in wanted.items():
            if source not in self._taps:
                self._open(source, exchange, topology.queue_id)
        self._after()

    def trouble(self) -> str:
        """What the start still waits for, in words."""
        return self._reception.trouble()

    def stats(self) -> ReceptionStats:
        """The counters."""
        return self._reception.stats()

    def alive(self) -> Mapping[str, object]:
        """The figures for the monitor; mean latency in ms since the last call."""
        mean = self._latency_sum / self._latency_count if self._latency_count else 0.0
        self._latency_sum, self._latency_count = 0.0, 0
        counts = self._reception.merge.counts
        return {
            "received": counts.delivered,
            "latency_ms": max(0.0, mean * 1_000),
            "lost": counts.lost,
            "read": self._reception.read(),
        }

    def resume(self) -> None:
        """The user has caught up."""
        if self._paused and not self._closed:
            self._paused = False
            for tap in list(self._taps.values()):
                tap.resume()
            self._arm()

    def close(self) -> None:
        """Close all sockets."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for tap in self._taps.values():
            tap.close()
        self._taps.clear()

    # --- in the loop ------------------------------------------------------------------------------

    def _open(self, source: Source, exchange: ExchangeInfo, queue: bytes) -> None:
        tap = self._taps[source] = Tap(
            self._engine.reactor,
            self._engine.context,
            self._reception.open(exchange, queue, self._clock()),
            live=self._translate(exchange.live),
            data=self._translate(exchange.data),
            step=lambda event: self._step(source, event),
            burst=lambda: self._burst(source),
            clock=self._clock,
        )
        if self._paused:
            tap.pause()

    def _step(self, source: Source, event: Event) -> None:
        self._perform(self._reception.handle(source, event, self._clock()))
        self._after()

    def _burst(self, source: Source) -> None:
        orders = self._reception.burst(source, self._clock())
        if orders:
            self._perform(orders)
            self._after()
            return
        if self._reception.out:
            self._deliver()
        if self._reception.merge.waiting:
            self._arm()

    def _tick(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        now = self._clock()
        if not self._paused:
            self._perform(self._reception.tick(now))
        self._after()

    def _after(self) -> None:
        """Whatever the reception has decided is passed on."""
        if self._closed:
            return
        if not self.confirmed and self._reception.confirmed:
            self.confirmed = True
            self._on_confirmed()
        if self._reception.gaps:
            self._report()
        if self._reception.out:
            self._deliver()
        self._arm()
        if self._reception.has_news(self._clock()):
            self._on_news()

    def _perform(self, orders: Iterable[Order]) -> None:
        for source, effect in orders:
            tap = self._taps.get(source)
            if tap is None:
                continue
            match effect:
                case Ask(frames):
                    tap.ask(frames)
                case Subscribe(topic):
                    tap.subscribe(topic)
                case Unsubscribe(topic):
                    tap.unsubscribe(topic)
                case _:
                    assert_never(effect)

    def _deliver(self) -> None:
        out = self._reception.take()
        self._latency_sum += time.time() - out[-1].created_us / MICROSECONDS
        self._latency_count += 1
        if not self._handoff.put(out) and not self._paused:
            self._paused = True
            for tap in list(self._taps.values()):
                tap.pause()

    def _report(self) -> None:
        for gap in self._reception.gaps:
            self._limited.warning(
                "gap", self._engine.reactor.now(), "topic %r: %s", gap.topic, gap.text
            )
            self._handoff.put_gap(gap)
        self._reception.gaps.clear()

    def _arm(self) -> None:
        """Have `_tick` called in time; also only to keep the clock going."""
        if self._closed:
            return
        now = self._clock()
        deadline = None if self._paused else self._reception.next_deadline(now)
        wait = TICK_SECONDS
        if deadline is not None:
            wait = max(TICK_SECONDS_MIN, min(wait, deadline - now))
        at = self._engine.reactor.now() + wait
        if at < self._timer_at - TICK_SECONDS_MIN:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._engine.reactor.call_at(at, self._tick)
