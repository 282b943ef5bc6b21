"""A part of a cluster: hosts, the queues on them, and the clock that all of them share."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Final

from roq.errors import ConfigError, NoCapacity
from roq.policy.catalogue import POLICIES
from roq.simulation.forecast import thresholds
from roq.simulation.forecast.account import LOADED
from roq.simulation.forecast.case import Case
from roq.simulation.forecast.host import Hosts
from roq.simulation.forecast.load import Load
from roq.simulation.forecast.outcome import EVENTS_MAX, Outcome, Sums, outcome
from roq.simulation.forecast.queue import Queue
from roq.simulation.forecast.windows import Recorder, Window
from roq.simulation.scenario.scenario import Fault

MODELLED: Final = {("kill", "host"), ("kill", "exchange"), ("kill", "monitor")}
"""Faults of scenarios that mean something here; the others are left out."""


class Cell:
    """One of the cells of a run; the n-th of N has every N-th host and queue.

    Args:
        case: the run.
        number: which of its cells.

    Raises:
        ConfigError: there is no such policy, or too few slots for the exchanges at the beginning.
    """

    def __init__(self, case: Case, number: int = 0) -> None:
        self._case = case
        self._parameters = parameters = case.parameters
        self._random = Random(f"{case.seed}/{number}/hosts")
        names = [f"h{each:05d}" for each in range(number, case.hosts_wanted, case.cells)]
        self.hosts = Hosts(names, parameters)
        self._calls: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self.load = Load(case.scenario, parameters)
        rules = case.elastic_rules()
        policy = POLICIES.get(rules.policy)
        if policy is None:
            known = ", ".join(sorted(POLICIES))
            raise ConfigError(f"there is no policy {rules.policy!r}; there are {known}")
        self.queues = [
            Queue(
                f"q{each}",
                load=self.load,
                comings=self.load.comings(each, case.queues),
                rules=rules,
                limit=case.limit(),
                policy=policy,
                hosts=self.hosts,
                parameters=parameters,
                clock=self,
                random=Random(f"{case.seed}/{each}"),
                eager=case.eager,
                recorder=self._recorder(),
            )
            for each in range(number, case.queues, case.cells)
        ]
        self._sums = Sums(seconds=case.scenario.seconds, hosts=len(names), queues=len(self.queues))
        self._limit = case.limit()
        self.now = 0.0

    def call(self, when: float, what: Callable[[float], None]) -> None:
        """Call this at that time, in the order in which it was asked for."""
        heapq.heappush(self._calls, (when, next(self._order), what))

    def play(self) -> Sums:
        """Play the scenario to its end."""
        began = time.process_time()
        with thresholds.applied(self._case.thresholds):
            for _ in self.steps():
                pass
        sums = self.sums()
        sums.cpu_seconds = time.process_time() - began
        return sums

    def steps(self) -> Iterator[float]:
        """The same step by step; gives the time after each."""
        self._begin()
        end = self.load.seconds
        while self._calls and self._calls[0][0] <= end:
            self.now, _, what = heapq.heappop(self._calls)
            what(self.now)
            yield self.now
        self.now = end
        self._sample(end)
        self._close_window(end)
        self.hosts.close(end)

    def sums(self) -> Sums:
        """What has come out by now."""
        sums = self._sums
        for queue in self.queues:
            sums.publishers += len(queue.population.publishers)
            sums.totals.add(queue.account.totals)
            sums.tally.add(queue.tally)
        sums.tally.keep_first(EVENTS_MAX)
        sums.used_host_seconds = self.hosts.used_seconds
        return sums

    # --- the beginning ----------------------------------------------------------------------------

    def _begin(self) -> None:
        for queue in self.queues:
            try:
                queue.begin(self._case.scenario.queue.exchanges)
            except NoCapacity as error:
                raise ConfigError(
                    f"{len(self.queues)} queues do not fit on {len(self.hosts)} hosts: {error}"
                ) from None
        for fault in self._case.scenario.faults:
            if (fault.kind, fault.target) in MODELLED:
                self.call(fault.at, lambda now, fault=fault: self._fail(fault, now))  # type: ignore[misc]
        if self._parameters.host_failures_per_hour:
            for name in self.hosts.names:
                self._doom(name, 0.0)
        self._sample_on(0.0)
        if self._case.windows > 1:
            self.call(self.load.seconds / self._case.windows, self._close_windows)

    def _sample_on(self, now: float) -> None:
        self._sample(now)
        after = len(self._sums.exchanges) * self.load.seconds / self._parameters.samples
        if after < self.load.seconds:
            self.call(after, self._sample_on)

    def _recorder(self) -> Recorder | None:
        if not self._case.windows:
            return None
        return Recorder(self.load.subscribers, apart=self._case.queues == 1)

    def _close_windows(self, now: float) -> None:
        self._close_window(now)
        after = len(self._sums.windows) + 1
        if after < self._case.windows:
            self.call(after * self.load.seconds / self._case.windows, self._close_windows)

    def _close_window(self, now: float) -> None:
        if self._case.windows:
            whole = Window(at=now)
            for queue in self.queues:
                if (window := queue.close_window(now)) is not None:
                    whole.join(window)
            self._sums.windows.append(whole)

    def _sample(self, now: float) -> None:
        """How many exchanges there are, and how uneven their load is."""
        exchanges = several = 0
        uneven = 0.0
        for queue in self.queues:
            queue.pass_until(now)
            present = queue.account.present
            loads = len(present.loads)
            exchanges += loads
            if loads > 1 and present.total > LOADED * self._limit * loads:
                several += 1
                uneven += present.imbalance
        self._sums.exchanges.append(exchanges)
        self._sums.uneven.append(uneven)
        self._sums.uneven_of.append(several)

    # --- faults -----------------------------------------------------------------------------------

    def _doom(self, name: str, now: float) -> None:
        """Say when a host will die."""
        rate = self._parameters.host_failures_per_hour / 3_600
        self.call(now + self._random.expovariate(rate), lambda then: self._die(name, then))

    def _die(self, name: str, now: float) -> None:
        self._kill(name, now)
        self.call(now + self._parameters.host_repair_seconds, lambda then: self._return(name, then))

    def _return(self, name: str, now: float) -> None:
        self.hosts.repair(name)
        self._doom(name, now)

    def _kill(self, name: str, now: float) -> None:
        if self.hosts[name].lives:
            self.hosts.kill(name)
            for queue in self.queues:
                queue.host_died(name, now)

    def _fail(self, fault: Fault, now: float) -> None:
        """A fault of the scenario; the n-th exchange is that of the n-th queue, and so on."""
        if fault.target == "host":
            names = self.hosts.names
            self._kill(names[fault.index % len(names)], now)
            return
        queue = self.queues[fault.index % len(self.queues)]
        if fault.target == "monitor":
            queue.lose_monitor(now)
            return
        living = queue.population.living()
        if living:
            queue.losses.lose(living[fault.index // len(self.queues) % len(living)], now)


def play(case: Case) -> Outcome:
    """Play all cells of a run, one after the other.

    Raises:
        ConfigError: see `Cell`.
    """
    sums = Cell(case).play()
    for number in range(1, case.cells):
        sums.join(Cell(case, number).play())
    return outcome(sums, case.seed)
