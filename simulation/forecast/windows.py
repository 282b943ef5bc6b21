"""How a run goes, window by window: sums that can be joined over queues and cells."""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import Final

import msgspec

from roq.demo.latency import Histogram
from roq.simulation.forecast.tally import Summed
from roq.simulation.forecast.timeline import Timeline

ALL: Final = 0
"""In the place of a number: all exchanges together."""
PARTS: Final = 1_000
"""A histogram counts so many parts of a message, so that rare latencies are not rounded away."""
LEVELS: Final = (
    *((0.05 + 0.1 * step, 100) for step in range(9)),
    *((0.905 + 0.01 * step, 10) for step in range(9)),
    *((0.9905 + 0.001 * step, 1) for step in range(9)),
    (0.9995, 1),
)
"""(Share of messages that are not later, how many parts of a message it stands for)."""


class Work(Summed, kw_only=True):
    """What one exchange did in a window, or all of them."""

    messages: float = 0.0
    bytes: float = 0.0
    messages_out: float = 0.0
    bytes_out: float = 0.0
    busy_seconds: float = 0.0
    """Of one core."""
    publishers: int = 0
    """At the end."""


class Window(msgspec.Struct, kw_only=True):
    """One window.

    Attributes:
        at: its end.
        work: by the number of the exchange, or `ALL`.
        serving: exchanges that serve at the end.
        imbalance_seconds, balanced_over: as in `Totals`.
        latency: a `roq.demo.latency.Histogram` of parts of messages.
        latency_messages: milliseconds times messages.
    """

    at: float
    work: dict[int, Work] = {}
    serving: int = 0
    imbalance_seconds: float = 0.0
    balanced_over: float = 0.0
    latency: dict[str, int] = {}
    latency_messages: float = 0.0

    def join(self, other: Window) -> None:
        """Put the same window of other queues to this."""
        for number, work in other.work.items():
            self.work.setdefault(number, Work()).add(work)
        self.serving += other.serving
        self.imbalance_seconds += other.imbalance_seconds
        self.balanced_over += other.balanced_over
        both = Histogram(self.latency)
        both.merge(Histogram(other.latency))
        self.latency = both.counts()
        self.latency_messages += other.latency_messages


class Latency(msgspec.Struct, frozen=True):
    """What an exchange and its host make messages wait, as a distribution.

    A message takes `fixed` and the time that its batch needs. With the probability `used` the batch
    waits for others at the exchange, exponentially distributed around `batch / (2 (1 - used))`: the
    mean of all is that of a queue with one server and equal jobs, and the tail is the usual
    approximation of it. And once on its way it finds, with the probability `queued`, that all cores
    are taken: a process has to wait then, exponentially distributed around `core`, as in a queue
    with several servers.

    Attributes:
        fixed: without load, seconds.
        batch: time for one batch, seconds.
        used: part of its core that the exchange uses, below 1.
        queued: the probability that it has to wait for a core.
        core: how long it takes then, seconds.
    """

    fixed: float
    batch: float
    used: float
    queued: float = 0.0
    core: float = 0.0

    @property
    def mean(self) -> float:
        """Seconds."""
        waits = self.batch * (1 + self.used / (2 * (1 - self.used)))
        return self.fixed + waits + self.queued * self.core

    def quantile(self, level: float) -> float:
        """Seconds that this part of the messages does not exceed."""
        wait = _exceeded(self.used, level) * self.batch / (2 * (1 - self.used))
        return self.fixed + self.batch + wait + _exceeded(self.queued, level) * self.core


def _exceeded(waits: float, level: float) -> float:
    """What this part of all do not exceed, in means, if so many of them wait exponentially."""
    return max(0.0, log(waits / (1 - level))) if waits else 0.0


@lru_cache(maxsize=4_096)
def waits_for_core(cores: float, used: float) -> float:
    """The probability that all cores are taken when somebody needs one (Erlang's formula).

    Args:
        cores: of the host; less than one counts as one.
        used: part of them that is in use, below 1.
    """
    count = max(1, round(cores))
    offered, blocked = count * used, 1.0
    for number in range(1, count + 1):
        blocked = offered * blocked / (number + offered * blocked)
    return blocked / (1 - used * (1 - blocked))


class Recorder:
    """Writes down the windows of one queue.

    Args:
        subscribers: who get everything, over time.
        apart: tell exchanges apart.
    """

    def __init__(self, subscribers: Timeline, *, apart: bool) -> None:
        self._subscribers = subscribers
        self._apart = apart
        self._window = Window(at=0.0)
        self._latencies: dict[Latency, float] = {}
        self._readers = 0.0

    def begin(self, moment: float, seconds: float) -> None:
        """Say which part of the load is counted next."""
        self._readers = self._subscribers.mean(moment, moment + seconds)

    def passed(self, number: int, messages: float, size: float, busy: float) -> None:
        """An exchange has carried so many messages and bytes, busy for so many seconds."""
        work = self._window.work.setdefault(number if self._apart else ALL, Work())
        work.messages += messages
        work.bytes += size
        work.messages_out += messages * self._readers
        work.bytes_out += size * self._readers
        work.busy_seconds += busy

    def delayed(self, latency: Latency, messages: float) -> None:
        """So many messages took as long as that."""
        self._latencies[latency] = self._latencies.get(latency, 0.0) + messages

    def uneven(self, imbalance: float, seconds: float) -> None:
        """The busiest exchange had so much of the mean for so long."""
        self._window.imbalance_seconds += imbalance * seconds
        self._window.balanced_over += seconds

    def close(self, at: float, publishers: dict[int, int]) -> Window:
        """The window ends; the next one begins.

        Args:
            at: the present time.
            publishers: how many are at each exchange that serves.
        """
        window, self._window = self._window, Window(at=at)
        window.at, window.serving = at, len(publishers)
        for number, count in publishers.items():
            window.work.setdefault(number if self._apart else ALL, Work()).publishers += count
        histogram = Histogram()
        for latency, messages in self._latencies.items():
            window.latency_messages += 1_000 * latency.mean * messages
            for level, parts in LEVELS:
                histogram.add(latency.quantile(level), round(messages * parts))
        window.latency = histogram.counts()
        self._latencies = {}
        return window
