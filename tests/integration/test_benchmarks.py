"""The benchmark's harness with real processes and tiny counts; what it measures is not judged."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from roq.benchmarks import groups, jobs, plan, request_limits, requests
from roq.benchmarks.case import Case, CaseFailure, CaseSample
from roq.benchmarks.contender import Contender
from roq.benchmarks.contenders import bare_hops, nats_core, redis_streams
from roq.benchmarks.runner import Runner

pytestmark = pytest.mark.integration

TINY = plan.Plan(
    rounds=1,
    fan_out_rounds=1,
    seconds=0.02,
    latency_seconds=0.1,
    idle_seconds=0,
    stages=(
        plan.Stage(Case(size=100, batch=50), ("measured",)),
        plan.Stage(Case(size=65_536, batch=50), ("measured",)),
        plan.Stage(Case(size=100, rate=200), ("measured",)),
    ),
    fan_out=(plan.Stage(Case(size=10, batch=50, subscribers=3), ("measured",)),),
)


class Watcher:
    """Fails the test at once with the reason, rather than at its end without one."""

    def begins(self, contender: Contender, case: Case, number: int) -> None:
        pass

    def measured(self, sample: CaseSample) -> None:
        pass

    def failed(self, failure: CaseFailure) -> None:
        pytest.fail(failure.reason)

    def skipped(self, contender: Contender, reason: str) -> None:
        pytest.skip(reason)


@pytest.mark.parametrize(
    "peers",
    [
        lambda: bare_hops.contenders()[:1],
        lambda: bare_hops.contenders()[1:],
        pytest.param(nats_core.contenders, marks=pytest.mark.long),
        pytest.param(redis_streams.contenders, marks=pytest.mark.long),
    ],
)
def test_a_peer_is_started_measured_and_stopped(
    peers: Callable[[], list[Contender]], tmp_path: Path
) -> None:
    (contender,) = peers()
    contender.key = "measured"
    runner = Runner([contender], tmp_path, Watcher())
    try:
        runner.start()
        runner.run(TINY)
        pids = list(contender.server.processes(Case(size=1)).values())
    finally:
        runner.stop()
    assert len(runner.samples) == 4
    for sample in runner.samples:
        assert sample.seconds > 0
        assert set(sample.cpu) == {"publisher", "subscriber", "exchange"}
        assert len(sample.latencies_us) == (sample.messages if sample.case.rate else 0)
        assert all(age > 0 for age in sample.latencies_us)
    assert pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.long
def test_groups_and_their_peers_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {
        f"roq_{durability}_{kind}_{by}"
        for durability in ("none", "flush")
        for kind in ("subscriber", "group")
        for by in ("batches", "messages")
    }
    everybody = groups._everybody
    taking_part = {*ours, "redis_everysec", "jetstream_default"}
    monkeypatch.setattr(
        groups, "_everybody",
        lambda cluster: [each for each in everybody(cluster) if each.reader.key in taking_part],
    )  # fmt: skip
    results = groups.measure(1, 0.02, Console(quiet=True))
    assert results.failures == []
    assert {each.key for each in results.readers} >= ours
    assert set(results.rates) == {each.key for each in results.readers}
    assert all(rate > 0 for rates in results.rates.values() for rate in rates)
    assert {"roq_none_group_messages", "roq_flush_group_messages"} <= set(results.confirmed_us)
    assert all(median > 0 for figures in results.confirmed_us.values() for median in figures)


@pytest.mark.long
def test_requests_and_their_peer_take_turns() -> None:
    results = requests.measure(1, 0.02, Console(quiet=True))
    assert results.failures == []
    assert {each.key for each in results.askers} >= {"roq_none", "roq_flush"}
    for figures in (results.rates, results.p50_us, results.p99_us):
        assert set(figures) == {each.key for each in results.askers}
        assert all(figure > 0 for rounds in figures.values() for figure in rounds)
    assert set(results.accepted_us) == {"roq_none", "roq_flush"}


@pytest.mark.long
def test_what_requests_cost_at_most_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {
        "STORED": 2_000, "INSTANCES": 8, "CROWDS": 2, "IDLE_SECONDS": 0.2, "OPEN": 500, "RATE": 40,
        "BEFORE_SECONDS": 0.5, "AFTER_SECONDS": 0.5,
    }  # fmt: skip
    for name, size in sizes.items():
        monkeypatch.setattr(request_limits, name, size)
    monkeypatch.delitem(request_limits._LOST, "silence")
    found = request_limits.measure(1, 0.0, Console(quiet=True))
    assert found.failures == []
    assert len(found.verdicts) == 5
    figures = {each.text: each.measured for each in found.verdicts}
    idle = figures.pop(request_limits.IDLE)
    assert idle is not None  # in so short a time it may take less than a tick of the system's clock
    assert idle >= 0
    assert all(figures.values()), figures


def test_jobs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    everybody = jobs._everybody
    monkeypatch.setattr(
        jobs, "_everybody",
        lambda servers: [each for each in everybody(servers) if each[0].key == jobs.SQLITE],
    )  # fmt: skip
    monkeypatch.setattr(jobs, "FIRST_JOBS", 20)
    found = jobs.measure(1, 0.001, Console(quiet=True))
    assert (found.failures, list(found.rates)) == ([], [jobs.SQLITE])
