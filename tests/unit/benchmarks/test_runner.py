from collections.abc import Callable
from pathlib import Path

import pytest

from roq.benchmarks.case import Case, CaseFailure, CaseSample
from roq.benchmarks.contender import Contender
from roq.benchmarks.plan import Plan, Stage
from roq.benchmarks.processes import BenchmarkError
from roq.benchmarks.runner import FAILURES_MAX, Runner

CASE = Case(size=100, batch=500)
MANY = Case(size=100, batch=500, subscribers=20)
LIGHT = Case(size=100, rate=200)


class FakeServer:
    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble
        self.started = 0
        self.stopped = 0

    def start(self, directory: Path) -> None:
        self.started += 1
        if self.trouble:
            raise BenchmarkError(self.trouble)

    def stop(self) -> None:
        self.stopped += 1

    def options(self, case: Case) -> dict[str, str]:
        return {}

    def processes(self, case: Case) -> dict[str, int]:
        return {}


class FakeContender(Contender):
    def __init__(
        self,
        key: str,
        calls: list[tuple[str, int, int]],
        server: FakeServer | None = None,
        missing: Callable[[], str | None] = lambda: None,
        *,
        rate: float = 1_000_000,
        fails: bool = False,
    ) -> None:
        super().__init__(
            key, key, kind=key, module="", style="", server=server or FakeServer(), missing=missing
        )
        self.calls = calls
        self.measured_rate = rate
        self.fails = fails
        self.stopped = 0

    def stop(self) -> None:
        self.stopped += 1

    def run(self, case: Case, count: int, number: int) -> CaseSample:
        self.calls.append((self.key, number, count))
        if self.fails:
            raise BenchmarkError("it broke")
        return CaseSample(self.key, case, number, count, count / self.measured_rate, {}, {}, [])


class Silent:
    def __init__(self) -> None:
        self.skips: list[tuple[str, str]] = []

    def begins(self, contender: Contender, case: Case, number: int) -> None:
        pass

    def measured(self, sample: CaseSample) -> None:
        pass

    def failed(self, failure: CaseFailure) -> None:
        pass

    def skipped(self, contender: Contender, reason: str) -> None:
        self.skips.append((contender.key, reason))


def plan(*stages: Stage, rounds: int = 2, fan_out: tuple[Stage, ...] = ()) -> Plan:
    return Plan(
        rounds=rounds,
        fan_out_rounds=1,
        seconds=0.5,
        latency_seconds=2.0,
        idle_seconds=0,
        stages=stages,
        fan_out=fan_out,
    )


def runner(tmp_path: Path, *contenders: Contender) -> Runner:
    made = Runner(contenders, tmp_path, Silent())
    made.start()
    return made


def test_contenders_take_turns_and_the_order_is_reversed_every_other_round(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    measured = runner(tmp_path, FakeContender("a", calls), FakeContender("b", calls))
    measured.run(plan(Stage(CASE, ("a", "b")), rounds=3))
    assert [s.contender for s in measured.samples] == ["a", "b", "b", "a", "a", "b"]
    assert [s.round for s in measured.samples] == [0, 0, 1, 1, 2, 2]


def test_the_count_follows_from_the_rate_in_full_batches(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    measured = runner(tmp_path, FakeContender("a", calls, rate=1_001_300))
    measured.run(plan(Stage(CASE, ("a",)), rounds=1))
    assert [s.messages for s in measured.samples] == [500_500]


def test_a_latency_measurement_takes_its_time_whatever_the_rate_could_be(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    measured = runner(tmp_path, FakeContender("a", calls))
    measured.run(plan(Stage(LIGHT, ("a",)), rounds=1))
    assert calls == [("a", 0, 400)]


def test_a_contender_that_is_missing_is_skipped_with_its_reason(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    gone = FakeContender("b", calls, missing=lambda: "not installed")
    measured = runner(tmp_path, FakeContender("a", calls), gone)
    measured.run(plan(Stage(CASE, ("a", "b"))))
    assert measured.skipped == {"b": "not installed"}
    assert {key for key, _, _ in calls} == {"a"}


def test_a_server_that_does_not_start_skips_all_that_need_it_and_is_tried_once(
    tmp_path: Path,
) -> None:
    calls: list[tuple[str, int, int]] = []
    server = FakeServer("no port")
    both = FakeContender("a", calls, server), FakeContender("b", calls, server)
    measured = runner(tmp_path, *both)
    measured.stop()
    assert measured.skipped == {"a": "no port", "b": "no port"}
    assert (server.started, server.stopped) == (1, 1)


def test_a_contender_that_fails_does_not_end_the_benchmark(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    measured = runner(tmp_path, FakeContender("a", calls, fails=True), FakeContender("b", calls))
    measured.run(plan(Stage(CASE, ("a", "b")), rounds=5))
    assert [(one.contender, one.reason) for one in measured.failures] == (
        [("a", "it broke")] * FAILURES_MAX
    )
    assert len(measured.samples) == 5


def test_clients_for_many_subscribers_are_gone_before_the_next_contender(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    a, b = FakeContender("a", calls), FakeContender("b", calls)
    measured = runner(tmp_path, a, b)
    measured.run(plan(fan_out=(Stage(MANY, ("a", "b")),)))
    assert (a.stopped, b.stopped) == (2, 2)
    assert [s.contender for s in measured.samples] == ["a", "b"]


def test_everything_that_was_started_is_stopped(tmp_path: Path) -> None:
    server = FakeServer()
    contender = FakeContender("a", [], server)
    measured = runner(tmp_path, contender)
    measured.stop()
    assert (server.stopped, contender.stopped) == (1, 1)


def test_a_server_that_is_interrupted_while_it_starts_is_stopped(tmp_path: Path) -> None:
    class Interrupted(FakeServer):
        def start(self, directory: Path) -> None:
            raise KeyboardInterrupt

    server = Interrupted()
    measured = Runner([FakeContender("a", [], server)], tmp_path, Silent())
    with pytest.raises(KeyboardInterrupt):
        measured.start()
    measured.stop()
    assert server.stopped == 1
