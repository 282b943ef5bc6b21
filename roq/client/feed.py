"""The I/O side of a subscriber: one `Tap` per exchange, one `Merge`, one `Handoff`.

Everything here runs in the client's I/O thread. The clock that readers and merge know is *active*
time: a step of it is at most a quarter of a second, so a process that was stopped for a minute does
not wake up believing that everybody has been silent for a minute.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, assert_never

from roq.client.chain import LogGap
from roq.client.engine import Engine
from roq.client.handoff import Handoff
from roq.client.merge import Counts, Merge, Source
from roq.client.message import MICROSECONDS, Gap
from roq.client.reader import Reader
from roq.client.reading import (
    Ask,
    Confirmed,
    Effect,
    Event,
    From,
    Gone,
    Refetch,
    Start,
    StreamsFound,
    Subscribe,
    Unsubscribe,
    Verify,
)
from roq.client.tap import Tap
from roq.machine import Tick
from roq.model import ExchangeInfo
from roq.protocol.channel import NONCE_BYTES
from roq.protocol.control import Topology
from roq.runtime.logs import RateLimited
from roq.runtime.reactor import Timer

TICK_SECONDS: Final = 0.2
HURRY_SECONDS: Final = 0.02
"""Between looks at what waits for its turn."""
CLOCK_STEP_SECONDS: Final = 0.25
_RETIRED_MAX: Final = 1_000

log = logging.getLogger(__name__)

Starts = Start | Mapping[int, int]
"""One start for all, or an offset per exchange number (others: from the earliest)."""


@dataclass(frozen=True, slots=True)
class FeedStats:
    """What happened on the way to a subscriber since its start."""

    counts: Counts
    gaps: int
    """Ranges of an exchange's log that were gone before they were read."""
    repairs: int
    """Holes in the fan-out that were noticed and fetched."""
    offset_duplicates: int
    """Batches that one exchange brought twice."""
    checks: int
    timeouts: int
    foreign: int
    malformed: int
    exchanges: int
    held_bytes: int


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
        repair: bool = True,
        check_duplicates: bool = True,
    ) -> None:
        self.confirmed = False
        self.gaps = 0
        self._engine = engine
        self._prefixes = prefixes
        self._start = start
        self._handoff = handoff
        self._translate = translate or str
        self._on_confirmed = on_confirmed
        self._repair = repair
        self._clock = ActiveClock()
        self._merge = Merge(self._clock(), check_duplicates=check_duplicates)
        self._taps: dict[Source, Tap] = {}
        self._retired: dict[Source, int] = {}
        self._past = [0] * 6
        self._queue = b""
        self._paused = False
        self._closed = False
        self._timer: Timer | None = None
        self._timer_at = float("inf")
        self._limited = RateLimited(log)
        self._latency_sum = 0.0
        self._latency_count = 0

    # --- from the session -------------------------------------------------------------------------

    def topology(self, topology: Topology) -> None:
        """Read exactly these exchanges from now on."""
        if self._closed:
            return
        self._queue = topology.queue_id
        wanted = {(exchange.number, exchange.epoch): exchange for exchange in topology.exchanges}
        for source in [source for source in self._taps if source not in wanted]:
            self._leave(source)
        for source, exchange in wanted.items():
            if source not in self._taps:
                self._open(source, exchange)
        self._settle()
        self._look_confirmed()
        self._arm()

    def trouble(self) -> str:
        """What the start still waits for, in words."""
        if not self._taps:
            return "the queue's monitor has named no exchange yet"
        return "; ".join(tap.reader.trouble for tap in self._taps.values() if tap.reader.trouble)

    def alive(self) -> Mapping[str, float | int]:
        """The figures for the monitor; mean latency in ms since the last call."""
        mean = self._latency_sum / self._latency_count if self._latency_count else 0.0
        self._latency_sum, self._latency_count = 0.0, 0
        counts = self._merge.counts
        return {
            "received": counts.delivered,
            "latency_ms": max(0.0, mean * 1_000),
            "lost": counts.lost,
        }

    def resume(self) -> None:
        """The user has caught up."""
        if self._paused and not self._closed:
            self._paused = False
            self._clock()
            for tap in list(self._taps.values()):
                tap.resume()
            self._arm()

    def stats(self) -> FeedStats:
        """The counters."""
        figures = [self._past, *(_figures(tap.reader) for tap in self._taps.values())]
        totals = [sum(values) for values in zip(*figures, strict=True)]
        repairs, duplicates, checks, timeouts, foreign, malformed = totals
        return FeedStats(
            counts=replace(self._merge.counts),
            gaps=self.gaps,
            repairs=repairs,
            offset_duplicates=duplicates,
            checks=checks,
            timeouts=timeouts,
            foreign=foreign,
            malformed=malformed,
            exchanges=len(self._taps),
            held_bytes=self._merge.held_bytes,
        )

    def close(self) -> None:
        """Close all sockets."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for tap in self._taps.values():
            tap.close()
        self._taps.clear()

    # --- exchanges --------------------------------------------------------------------------------

    def _open(self, source: Source, exchange: ExchangeInfo) -> None:
        first = not self.confirmed
        reader = Reader(
            exchange,
            self._queue,
            self._prefixes,
            self._start_of(source, first=first),
            nonce=os.urandom(NONCE_BYTES),
            streams=first,
            now=self._clock(),
            repair=self._repair,
        )
        self._taps[source] = Tap(
            self._engine.reactor,
            self._engine.context,
            reader,
            live=self._translate(exchange.live),
            data=self._translate(exchange.data),
            step=lambda event: self._step(source, event),
            burst=lambda: self._burst(source),
            clock=self._clock,
        )
        if self._paused:
            self._taps[source].pause()

    def _start_of(self, source: Source, *, first: bool) -> Start:
        if source in self._retired:
            return Start(From.OFFSET, self._retired.pop(source))
        if not first:
            return Start(From.NEW)
        if isinstance(self._start, Start):
            return self._start
        offset = self._start.get(source[0])
        return Start(From.EARLIEST) if offset is None else Start(From.OFFSET, offset)

    def _leave(self, source: Source) -> None:
        tap = self._taps[source]
        tap.drain()
        tap.close()
        del self._taps[source]
        self._past = [a + b for a, b in zip(self._past, _figures(tap.reader), strict=True)]
        if tap.reader.chain.verified is not None and len(self._retired) < _RETIRED_MAX:
            self._retired[source] = tap.reader.chain.verified
        self._merge.forget_source(source)
        self._deliver()

    def _look_confirmed(self) -> None:
        if (
            not self.confirmed
            and self._taps
            and all(tap.reader.confirmed for tap in self._taps.values())
        ):
            self.confirmed = True
            self._merge.tables_complete()
            self._deliver()
            self._on_confirmed()

    # --- data -------------------------------------------------------------------------------------

    def _step(self, source: Source, event: Event) -> None:
        tap = self._taps.get(source)
        if tap is None:
            return
        effects = tap.reader.handle(event, self._clock())
        self._pass_on(source, tap)
        for effect in effects:
            self._perform(source, tap, effect)
        if self._merge.recalls:
            self._recall()
        self._deliver()
        self._arm()

    def _burst(self, source: Source) -> None:
        tap = self._taps.get(source)
        if tap is None:
            return
        self._pass_on(source, tap)
        if tap.reader.dirty:
            self._step(source, Tick())
            return
        self._deliver()
        if self._merge.waiting or self._merge.recalls:
            self._recall()
            self._arm()

    def _pass_on(self, source: Source, tap: Tap) -> None:
        passed = tap.reader.chain.passed
        if passed:
            add = self._merge.add
            now = self._clock()
            for topic, offset, batch in passed:
                add(source, topic, offset, batch, now)
            passed.clear()

    def _deliver(self) -> None:
        merge = self._merge
        if merge.gaps:
            for gap in merge.gaps:
                self._report(gap)
            merge.gaps.clear()
        if not merge.out:
            return
        out, merge.out = merge.out, []
        self._latency_sum += time.time() - out[-1].created_us / MICROSECONDS
        self._latency_count += 1
        if not self._handoff.put(out) and not self._paused and not self._closed:
            self._paused = True
            for tap in list(self._taps.values()):
                tap.pause()

    def _perform(self, source: Source, tap: Tap, effect: Effect) -> None:
        match effect:
            case Ask(frames):
                tap.ask(frames)
            case Subscribe(topic):
                tap.subscribe(topic)
            case Unsubscribe(topic):
                tap.unsubscribe(topic)
            case StreamsFound(streams):
                latest = isinstance(self._start, Start) and self._start.at is From.LATEST
                self._merge.start(source, streams, latest=latest)
            case Confirmed():
                self._look_confirmed()
            case Gone(topic, offset):
                self._merge.gone(source, topic, offset)
            case LogGap():
                self._log_gap(tap.reader.exchange, effect)
            case _:
                assert_never(effect)

    def _log_gap(self, exchange: ExchangeInfo, gap: LogGap) -> None:
        self.gaps += 1
        may = "" if gap.certain else "may have "
        text = (
            f"exchange {exchange.name} {may}lost batches from offset {gap.first} to {gap.end} "
            "before they were read: they have left its memory"
        )
        self._report(
            Gap(
                topic=gap.topic.decode("utf-8", "replace"),
                text=text,
                exchange=exchange.name,
                first_offset=gap.first,
                end_offset=gap.end,
            )
        )

    def _report(self, gap: Gap) -> None:
        self._limited.warning(
            "gap", self._engine.reactor.now(), "topic %r: %s", gap.topic, gap.text
        )
        self._handoff.put_gap(gap)

    def _recall(self) -> None:
        recalls, self._merge.recalls = self._merge.recalls, []
        for recall in recalls:
            if recall.source in self._taps:
                self._step(recall.source, Refetch(recall.topic, recall.offset))
            else:
                self._merge.forget_source(recall.source)

    # --- time -------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        now = self._clock()
        if not self._paused:
            for source, tap in list(self._taps.items()):
                deadline = tap.reader.next_deadline()
                if deadline is not None and deadline <= now:
                    self._step(source, Tick())
            self._settle()
        self._arm()

    def _settle(self) -> None:
        """Find out whether what is missing will still come."""
        if not self._merge.waiting or self._paused:
            return
        verified = min(
            (tap.reader.verified_as_of for tap in self._taps.values()), default=float("inf")
        )
        wanted = self._merge.settle(self._clock(), verified)
        self._deliver()
        if wanted is not None:
            for source, tap in list(self._taps.items()):
                if tap.reader.verified_as_of < wanted:
                    self._step(source, Verify(wanted))

    def _arm(self) -> None:
        """Have `_tick` called in time."""
        if self._closed:
            return
        now = self._clock()
        wait = HURRY_SECONDS if self._merge.waiting else TICK_SECONDS
        if not self._paused:
            for tap in self._taps.values():
                deadline = tap.reader.next_deadline()
                if deadline is not None:
                    wait = min(wait, max(deadline - now, 0.001))
        at = self._engine.reactor.now() + wait
        if at < self._timer_at - 0.001:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._engine.reactor.call_at(at, self._tick)


def _figures(reader: Reader) -> list[int]:
    return [
        reader.chain.repairs_started, reader.chain.duplicates, reader.checks,
        reader.inquiries.timeouts, reader.foreign, reader.malformed,
    ]  # fmt: skip
