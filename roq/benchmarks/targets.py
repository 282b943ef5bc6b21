"""What RoQ promises to reach beside its peers, and whether it did: ratios and bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from roq.benchmarks import plan
from roq.benchmarks.case import Case, CaseSample, beside_text
from roq.benchmarks.results import Idle, Verdict
from roq.benchmarks.statistics import Ratio, exchange_cpu, p50, rate, ratio

PERCENT_MAX: Final = 0.5
RSS_MAX: Final = 40 * 1024 * 1024
UP_SECONDS_MAX: Final = 1.0
BESIDE_BUSY: Final = 1.5
BESIDE_IDLE: Final = 1.2


class _Comparison(msgspec.Struct, frozen=True):
    text: str
    goal: float
    ours: tuple[str, Case]
    theirs: tuple[str, Case]
    measure: Callable[[CaseSample], float] = rate
    at_least: bool = True


def _comparisons() -> tuple[_Comparison, ...]:
    main, small = plan.main_case(), plan.main_case(plan.SMALL_BATCH)
    many, light = plan.fan_out_case(), plan.latency_case()
    proxy, nats = (plan.ZMQ_PROXY, main), (plan.NATS, main)
    batches, messages = (plan.ROQ_BATCHES, main), (plan.ROQ_MESSAGES, main)
    return (
        _Comparison(
            "publish_many → batches(), 500 per batch, against zmq.proxy", 0.65, batches, proxy
        ),
        _Comparison(
            "publish_many → batches(), 100 per batch, against zmq.proxy",
            0.55,
            (plan.ROQ_BATCHES, small),
            (plan.ZMQ_PROXY, small),
        ),
        _Comparison("publish_many → batches(), against nats-py", 18.0, batches, nats),
        _Comparison("publish() → for message in sub, against zmq.proxy", 0.3, messages, proxy),
        _Comparison("publish() → for message in sub, against nats-py", 8.0, messages, nats),
        _Comparison(
            "asyncio by batches, against RoQ without asyncio",
            0.9,
            (plan.ROQ_AIO_BATCHES, main),
            batches,
        ),
        _Comparison(
            "asyncio by message, against RoQ without asyncio",
            0.7,
            (plan.ROQ_AIO_MESSAGES, main),
            messages,
        ),
        _Comparison(
            f"CPU of the exchange with {plan.FAN_OUT} subscribers, against zmq.proxy",
            1.2,
            (plan.ROQ_BATCHES, many),
            (plan.ZMQ_PROXY, many),
            exchange_cpu,
            at_least=False,
        ),
        _Comparison(
            "latency p50 at light load, against a raw ROUTER→XPUB hop",
            1.4,
            (plan.ROQ_MESSAGES, light),
            (plan.RAW_HOP, light),
            p50,
            at_least=False,
        ),
        _Comparison(
            "latency p50 at light load, against nats-py",
            1.0,
            (plan.ROQ_MESSAGES, light),
            (plan.NATS, light),
            p50,
            at_least=False,
        ),
    )


def verdicts(samples: Sequence[CaseSample], idle: Idle | None) -> list[Verdict]:
    """Compare what was measured with every target."""
    compared = [_verdict(one, samples) for one in _comparisons()]
    light = plan.latency_case()
    beside = {sample.case for sample in samples if sample.case.rate} - {light}
    compared += [
        _verdict(_comparison_beside(case), samples)
        for case in sorted(beside, key=lambda case: (case.busy, case.idle))
    ]
    return [*compared, *(_idle_verdicts(idle) if idle else [])]


def _comparison_beside(case: Case) -> _Comparison:
    return _Comparison(
        f"latency p50 {beside_text(case)}, against nats-py",
        BESIDE_BUSY if case.busy else BESIDE_IDLE,
        (plan.ROQ_MESSAGES, case),
        (plan.NATS, case),
        p50,
        at_least=False,
    )


def _verdict(one: _Comparison, samples: Sequence[CaseSample]) -> Verdict:
    found: Ratio | None = ratio(samples, one.ours, one.theirs, one.measure)
    if found is None:
        return Verdict(one.text, one.goal, one.at_least, None)
    return Verdict(one.text, one.goal, one.at_least, found.median, found.low, found.high)


def _idle_verdicts(idle: Idle) -> list[Verdict]:
    exchange = idle.processes.get("exchange")
    verdicts = []
    if exchange is not None:
        verdicts += [
            Verdict("CPU of an idle exchange", PERCENT_MAX, False, exchange.cpu_percent, unit=" %"),
            Verdict(
                "memory of an idle exchange",
                RSS_MAX / 1e6,
                False,
                exchange.rss / 1e6,
                unit=" MB",
            ),
        ]
    verdicts.append(
        Verdict("`roq up` until ready", UP_SECONDS_MAX, False, idle.up_seconds, unit=" s")
    )
    return verdicts
