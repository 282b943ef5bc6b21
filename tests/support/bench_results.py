"""The results of a benchmark that never was."""

from __future__ import annotations

from roq.benchmarks import plan
from roq.benchmarks.case import CaseFailure, CaseSample
from roq.benchmarks.results import Environment, Idle, ProcessCost, Results
from roq.benchmarks.statistics import figures
from roq.benchmarks.targets import verdicts


def made() -> Results:
    cpu = {"publisher": 0.1, "exchange": 0.2, "subscriber": 0.3}
    rss = {"publisher": 10_000_000, "exchange": 20_000_000, "subscriber": 30_000_000}
    samples = [
        CaseSample(contender, case, 0, messages, 1.0, cpu, rss, [10.0, 20.0] if case.rate else [])
        for contender, messages in ((plan.ROQ_BATCHES, 2_500_000), (plan.ZMQ_PROXY, 5_000_000))
        for case in (plan.main_case(), plan.fan_out_case(), plan.latency_case())
    ]
    idle = Idle(4.0, 3.0, {"exchange": ProcessCost(0.1, 30_000_000)})
    return Results(
        environment=Environment(
            "2026-01-01T00:00:00Z",
            "a processor",
            2,
            1 << 34,
            "Linux",
            "CPython 3.11",
            "4.3.5",
            {"pyzmq": "27", "nats-py": "", "redis": "5"},
            {"nats-server": ""},
            7.5,
        ),
        rounds=1,
        fan_out_rounds=1,
        seconds_per_run=1.0,
        titles={plan.ROQ_BATCHES: "RoQ", plan.ZMQ_PROXY: "zmq.proxy", plan.NATS: "NATS"},
        skipped={plan.NATS: "nats-server is not installed"},
        figures=figures(samples),
        failures=[CaseFailure(plan.ROQ_BATCHES, plan.main_case(), 0, "no answer within 60 s")],
        idle=idle,
        verdicts=verdicts(samples, idle),
    )
