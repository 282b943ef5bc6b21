"""What is counted while a queue lives: loads are constant between changes, so sums are exact."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from roq.policy.known import OVERLOAD
from roq.simulation.forecast.exchange import Exchange
from roq.simulation.forecast.host import Host, Hosts
from roq.simulation.forecast.load import Group
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.forecast.tally import Summed
from roq.simulation.forecast.windows import Latency, Recorder, waits_for_core

BUSY_MOST: Final = 0.98
"""Of a core or a host; beyond that latency has no limit in this formula, and is not told."""
PROCESSES: Final = 4
"""On the way of a message: the thread of the application, publisher, exchange and subscriber."""
NEAR_CORES: Final = 0.001
"""So exactly is it known how busy a host is …"""
STEPS: Final = 24
"""… after so many guesses at most."""
LOADED: Final = 0.10
"""Of the limit, per exchange on average: below it nothing is said about imbalance."""


class Totals(Summed, kw_only=True):
    """Sums over time, and how long overloads lasted."""

    exchange_seconds: float = 0.0
    bytes: float = 0.0
    messages: float = 0.0
    overload_seconds: float = 0.0
    saturated_seconds: float = 0.0
    unserved_seconds: float = 0.0
    imbalance_seconds: float = 0.0
    """Imbalance times time."""
    balanced_over: float = 0.0
    """The time of that."""
    latency_messages: float = 0.0
    """Latency times the messages that it holds for."""
    busy_seconds: float = 0.0
    """Of cores."""
    reactions: list[float] = msgspec.field(default_factory=list)
    """Seconds from the beginning of an overload until a publisher had left."""
    reliefs: list[float] = msgspec.field(default_factory=list)
    """Seconds from its beginning to its end."""


@dataclass(slots=True)
class Present:
    """Loads between two changes: bytes per minute by the number of the exchange."""

    loads: dict[int, float] = field(default_factory=dict)
    busy: dict[int, float] = field(default_factory=dict)
    """Cores."""
    messages: dict[int, float] = field(default_factory=dict)
    """A minute."""
    batches: dict[int, float] = field(default_factory=dict)
    """A minute."""
    clients: dict[int, float] = field(default_factory=dict)
    """Cores that those of the exchange use."""

    @property
    def total(self) -> float:
        """Of the queue."""
        return sum(self.loads.values())

    @property
    def imbalance(self) -> float:
        """The busiest over the mean."""
        total = self.total
        return max(self.loads.values()) * len(self.loads) / total if total > 0 else 1.0


class Account:
    """The sums of one queue.

    Args:
        groups: of publishers.
        hosts: where exchanges run.
        limit: of one exchange.
        parameters: of the model.
        recorder: is told what happens, if windows are wanted.
    """

    def __init__(
        self,
        groups: list[Group],
        hosts: Hosts,
        limit: float,
        parameters: Parameters,
        recorder: Recorder | None = None,
    ) -> None:
        self._groups = groups
        self._hosts = hosts
        self._limit = limit
        self._parameters = parameters
        self.totals = Totals()
        self.present = Present()
        self.unserved = 0
        """Publishers that are nowhere."""
        self._recorder = recorder
        self._since = 0.0
        self._moment = 0.0
        """Of the load, at that time."""
        self._overloaded: dict[int, tuple[float, bool]] = {}

    def pass_until(self, now: float, exchanges: dict[int, Exchange]) -> None:
        """Add up what was since the last change."""
        seconds = now - self._since
        if seconds <= 0:
            return
        self._since = now
        totals, present = self.totals, self.present
        totals.exchange_seconds += seconds * len(exchanges)
        totals.unserved_seconds += seconds * self.unserved
        loads = present.loads
        total = present.total
        if not loads or total <= 0:
            return
        totals.bytes += total / 60 * seconds
        totals.messages += sum(present.messages.values()) / 60 * seconds
        totals.busy_seconds += sum(present.busy.values()) * seconds
        for number, load in loads.items():
            if load > OVERLOAD * self._limit:
                totals.overload_seconds += seconds
            latency, saturated = self._latency(number, load, exchanges)
            totals.saturated_seconds += seconds * saturated
            messages = present.messages[number] / 60 * seconds
            totals.latency_messages += 1_000 * latency.mean * messages
        even = len(loads) < 2 or total <= LOADED * self._limit * len(loads)
        if not even:
            totals.imbalance_seconds += present.imbalance * seconds
            totals.balanced_over += seconds
        if self._recorder is not None:
            self._record(self._recorder, seconds, exchanges)
            if not even:
                self._recorder.uneven(present.imbalance, seconds)
        self._moment += seconds

    def renew(self, now: float, moment: float, exchanges: dict[int, Exchange]) -> None:
        """Something has changed: what is carried from now on.

        Args:
            now: the present time.
            moment: of the load that is played now.
            exchanges: that live.
        """
        before, self._moment = self.present, moment
        rates = [group.bytes.at(moment) for group in self._groups]
        messages = [group.messages.at(moment) for group in self._groups]
        batches = [group.batches.at(moment) for group in self._groups]
        works = [group.work.at(moment) for group in self._groups]
        present = Present()
        client = 1e-6 * self._parameters.client_us
        needs: dict[str, dict[int, tuple[float, float]]] = {}
        for number, exchange in exchanges.items():
            if exchange.died is not None:
                continue
            actual = exchange.actual
            present.loads[number] = max(0.0, _product(actual, rates))
            present.messages[number] = max(0.0, _product(actual, messages))
            present.batches[number] = max(0.0, _product(actual, batches))
            present.clients[number] = client * present.messages[number] / 60
            work = max(0.0, _product(actual, works))
            needs.setdefault(exchange.host, {})[number] = (work, present.batches[number] / 60)
        for host, needed in needs.items():
            own = sum(before.busy.get(number, 0.0) for number in needed)
            clients = sum(
                present.clients[number] - before.clients.get(number, 0.0) for number in needed
            )
            self._hosts.change(host, 0.0, clients)
            busy = self._busy(needed, self._hosts[host], own)
            self._hosts.change(host, sum(busy.values()) - own, 0.0)
            present.busy |= busy
        self.present = present
        self._watch(now)

    def gone(self, exchange: Exchange) -> None:
        """An exchange does no work any more."""
        present, number = self.present, exchange.number
        self._hosts.change(
            exchange.host, -present.busy.pop(number, 0.0), -present.clients.pop(number, 0.0)
        )

    def left(self, number: int, now: float) -> None:
        """A publisher has left an exchange."""
        since, seen = self._overloaded.get(number, (now, True))
        if not seen:
            self.totals.reactions.append(now - since)
            self._overloaded[number] = (since, True)

    def latency_ms(self, exchanges: dict[int, Exchange]) -> float:
        """Over all that is carried now."""
        loads, total = self.present.loads, self.present.total
        if total <= 0:
            return 0.0
        return (
            1_000
            * sum(
                self._latency(number, load, exchanges)[0].mean * load
                for number, load in loads.items()
            )
            / total
        )

    def _busy(
        self, needed: Mapping[int, tuple[float, float]], host: Host, own: float
    ) -> dict[int, float]:
        """Cores that each exchange of a host uses.

        A turn takes what has come while the exchange waited for a core (W, its share of what a
        message waits), and during the turn before, which takes turn_us (T) and the work on each of
        its n batches (B): of L batches a second it takes n = 1 + L (W + T + n B), so there are
        L / n turns a second. The busier the host, the longer W and the fewer turns: what they use
        in all lies between any guess and what follows from it.

        Args:
            needed: by number, cores for batches alone, and batches a second.
            host: where they are.
            own: cores that they have used there until now.
        """
        low, high, guess = 0.0, math.inf, 0.0
        busy: dict[int, float] = {}
        for step in range(STEPS):
            busy = self._busy_if(needed, host.busy - own + guess, host.clients)
            total = sum(busy.values())
            low, high = max(low, min(guess, total)), min(high, max(guess, total))
            if high - low <= NEAR_CORES:
                break
            guess = (low + high) / 2 if step else high
        return busy

    def _busy_if(
        self, needed: Mapping[int, tuple[float, float]], exchanges: float, clients: float
    ) -> dict[int, float]:
        """The same if these use so much of the host."""
        turn = 1e-6 * self._parameters.turn_us
        _, queued, core = self._crowd(exchanges, clients)
        pause = queued * core / PROCESSES + turn
        return {
            number: work + turn * batches * max(0.0, 1 - work) / (1 + batches * pause)
            for number, (work, batches) in needed.items()
        }

    def _crowd(self, exchanges: float, clients: float) -> tuple[float, float, float]:
        """Of a host whose exchanges and clients use so many cores: which part of its cores is in
        use, the probability that somebody waits for one, and how long.

        A scheduler lets a process that has slept go before those that compute all the time: of
        these one waits for the slice that runs, and for the other exchanges and clients as in a
        queue. (Cobham, "Priority assignment in waiting line problems", 1954.)
        """
        parameters = self._parameters
        cores = parameters.host_cores
        own = (exchanges + clients) / cores
        full = own + parameters.others_cores / cores
        core = parameters.slice_ms / 1_000 / (cores * (1 - min(own, BUSY_MOST)))
        return full, waits_for_core(cores, min(full, BUSY_MOST)), core

    def _latency(
        self, number: int, load: float, exchanges: dict[int, Exchange]
    ) -> tuple[Latency, bool]:
        """How long messages take there, and whether the processor is not enough."""
        parameters = self._parameters
        busy, batches = (
            each.get(number, 0.0) for each in (self.present.busy, self.present.batches)
        )
        exchange = exchanges.get(number)
        host = self._hosts[exchange.host] if exchange is not None else Host("", busy=busy)
        base = parameters.latency_base_ms / 1_000
        if load <= 0 or batches <= 0:
            return Latency(base, 0.0, 0.0), False
        full, queued, core = self._crowd(host.busy, host.clients)
        latency = Latency(
            fixed=base,
            batch=60 * busy / batches,
            used=min(busy, BUSY_MOST),
            queued=queued,
            core=core,
        )
        return latency, max(busy, full) >= 1.0

    def _record(self, recorder: Recorder, seconds: float, exchanges: dict[int, Exchange]) -> None:
        present = self.present
        recorder.begin(self._moment, seconds)
        for number, load in present.loads.items():
            messages = present.messages[number] / 60 * seconds
            busy = present.busy.get(number, 0.0) * seconds
            recorder.passed(number, messages, load / 60 * seconds, busy)
            recorder.delayed(self._latency(number, load, exchanges)[0], messages)

    def _watch(self, now: float) -> None:
        """Note where an overload begins and where one ends."""
        most = OVERLOAD * self._limit
        loads = self.present.loads
        for number in [each for each in self._overloaded if loads.get(each, 0.0) <= most]:
            self.totals.reliefs.append(now - self._overloaded.pop(number)[0])
        for number, load in loads.items():
            if load > most and number not in self._overloaded:
                self._overloaded[number] = (now, False)


def _product(weights: list[float], rates: list[float]) -> float:
    if len(rates) == 1:
        return weights[0] * rates[0]
    return sum(weight * rate for weight, rate in zip(weights, rates, strict=True))
