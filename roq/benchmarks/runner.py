"""Goes through a plan: starts the contenders, lets them take turns, collects samples.

Contenders alternate within each case, and the order is reversed every other round, so that what
changes on the machine over time meets all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from roq.benchmarks.case import Case, CaseFailure, CaseSample
from roq.benchmarks.contender import Contender, Server
from roq.benchmarks.plan import Plan, Stage
from roq.benchmarks.processes import BenchmarkError, Neighbours

FIRST_BYTES: Final = 4 * 1024 * 1024
FIRST_MESSAGES: Final = 20_000
BYTES_MAX: Final = 192 * 1024 * 1024
"""Payload bytes per measurement at most: NATS and Redis keep what a subscriber has not read in
memory, RoQ in a ring of limited size, and nothing may be lost in a measurement."""
FLOOD_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
"""And in a flood, which is to find out what they do then."""
FAILURES_MAX: Final = 2
"""A contender that fails so often in one case is not measured there any more."""


class Observer(Protocol):
    """Is told how the benchmark goes."""

    def begins(self, contender: Contender, case: Case, number: int) -> None:
        """A measurement begins."""

    def measured(self, sample: CaseSample) -> None:
        """It gave this."""

    def failed(self, failure: CaseFailure) -> None:
        """It did not come to its end."""

    def skipped(self, contender: Contender, reason: str) -> None:
        """A contender does not take part at all."""


class Runner:
    """One benchmark.

    Attributes:
        samples: everything that was measured.
        failures: everything that was not.
        skipped: contender → why it does not take part.
    """

    def __init__(
        self, contenders: Iterable[Contender], directory: Path, observer: Observer
    ) -> None:
        self.samples: list[CaseSample] = []
        self.failures: list[CaseFailure] = []
        self.skipped: dict[str, str] = {}
        self._contenders = {contender.key: contender for contender in contenders}
        self._directory = directory
        self._observer = observer
        self._servers: list[Server] = []
        self._reasons: dict[int, str] = {}
        """Server → why it does not run; empty if it does."""
        self._rates: dict[tuple[str, Case], float] = {}

    def start(self) -> None:
        """Start every server that can be started here; the others are skipped with a reason."""
        for contender in list(self._contenders.values()):
            reason = contender.missing() or self._start_server(contender.server)
            if reason:
                self.skipped[contender.key] = reason
                del self._contenders[contender.key]
                self._observer.skipped(contender, reason)
                continue
            contender.start(self._directory)

    def _start_server(self, server: Server) -> str:
        """Start a server, once; gives the reason if it cannot be."""
        reason = self._reasons.get(id(server))
        if reason is None:
            # Known before it starts: whatever is begun is stopped, also on an interrupt.
            self._servers.append(server)
            try:
                server.start(self._directory)
                reason = ""
            except BenchmarkError as error:
                reason = str(error)
            self._reasons[id(server)] = reason
        return reason

    def stop(self) -> None:
        """End everything that was started."""
        for contender in self._contenders.values():
            contender.stop()
        for server in self._servers:
            server.stop()
        self._servers.clear()

    def run(self, plan: Plan) -> None:
        """Measure everything."""
        self._rounds(plan.stages, plan.rounds, plan.seconds_of)
        self._rounds(plan.flood, 1, plan.seconds_of)
        for contender in self._contenders.values():
            contender.stop()
        # Twenty subscribers of several contenders at a time would crowd the machine: one after the
        # other, and gone again.
        by_contender = _by_contender(plan.fan_out)
        for number in range(plan.fan_out_rounds):
            for key in _alternate(list(by_contender), number):
                for case in by_contender[key]:
                    self._measure(key, case, number, plan.seconds_of(case))
                if key in self._contenders:
                    self._contenders[key].stop()

    def _rounds(
        self, stages: Sequence[Stage], rounds: int, seconds_of: Callable[[Case], float]
    ) -> None:
        for number in range(rounds):
            for stage in stages:
                for key in _alternate(list(stage.contenders), number):
                    self._measure(key, stage.case, number, seconds_of(stage.case))

    def _measure(self, key: str, case: Case, number: int, seconds: float) -> None:
        contender = self._contenders.get(key)
        if contender is None or self._hopeless(key, case):
            return
        self._observer.begins(contender, case, number)
        try:
            with Neighbours(case.busy, case.idle, self._directory):
                sample = contender.run(case, self._count(contender, case, seconds), number)
        except BenchmarkError as error:
            failure = CaseFailure(key, case, number, str(error))
            self.failures.append(failure)
            self._observer.failed(failure)
            return
        self._rates[key, case] = sample.rate
        self.samples.append(sample)
        self._observer.measured(sample)

    def _count(self, contender: Contender, case: Case, seconds: float) -> int:
        """How many messages take about `seconds`, by the last measurement or a short one."""
        if case.rate:
            return max(int(case.rate * seconds), 1)
        key = (contender.key, case)
        if key not in self._rates:
            few = min(FIRST_MESSAGES, FIRST_BYTES // case.size)
            some = contender.run(case, _whole(few, case), 0)
            self._rates[key] = contender.run(case, _count(some.rate, case, seconds / 4), 0).rate
        return _count(self._rates[key], case, seconds)

    def _hopeless(self, key: str, case: Case) -> bool:
        failures = [one for one in self.failures if (one.contender, one.case) == (key, case)]
        return len(failures) >= FAILURES_MAX


def _count(rate: float, case: Case, seconds: float) -> int:
    most = FLOOD_BYTES_MAX if case.flood else BYTES_MAX
    return _whole(min(int(rate * seconds), most // case.size), case)


def _whole(count: int, case: Case) -> int:
    """Full batches only."""
    return max(count // case.per_batch, 1) * case.per_batch


def _alternate(keys: list[str], number: int) -> list[str]:
    return keys[::-1] if number % 2 else keys


def _by_contender(stages: Iterable[Stage]) -> dict[str, list[Case]]:
    cases: dict[str, list[Case]] = {}
    for stage in stages:
        for key in stage.contenders:
            cases.setdefault(key, []).append(stage.case)
    return cases
