"""Which contenders meet which cases, how often and how long."""

from __future__ import annotations

from typing import Final

import msgspec

from roq.benchmarks.case import Case

SIZES: Final = (10, 100, 1024, 64 * 1024)
MAIN_SIZE: Final = 100
FULL_BATCH: Final = 500
SMALL_BATCH: Final = 100
FAN_OUT: Final = 20
LATENCY_RATE: Final = 200

ROQ_BATCHES: Final = "roq_batches"
ROQ_MESSAGES: Final = "roq_messages"
ROQ_AIO_BATCHES: Final = "roq_aio_batches"
ROQ_AIO_MESSAGES: Final = "roq_aio_messages"
ZMQ_PROXY: Final = "zmq_proxy"
RAW_HOP: Final = "raw_hop"
NATS: Final = "nats_core"
REDIS: Final = "redis_streams"


class Stage(msgspec.Struct, frozen=True):
    """One case and the contenders that take turns in it."""

    case: Case
    contenders: tuple[str, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole benchmark."""

    rounds: int
    fan_out_rounds: int
    seconds: float
    """How long one throughput measurement should take."""
    latency_seconds: float
    idle_seconds: float
    stages: tuple[Stage, ...]
    fan_out: tuple[Stage, ...]
    """With many subscribers; their processes are started for each contender and round."""
    flood: tuple[Stage, ...] = ()
    """Measured once, for `flood_seconds`."""
    flood_seconds: float = 10.0

    @property
    def steps(self) -> int:
        """Measurements in all."""
        parts = (
            (self.rounds, self.stages), (self.fan_out_rounds, self.fan_out), (1, self.flood)
        )  # fmt: skip
        return sum(rounds * len(stage.contenders) for rounds, stages in parts for stage in stages)

    def seconds_of(self, case: Case) -> float:
        """How long one measurement of a case should take."""
        if case.flood:
            return self.flood_seconds
        return self.latency_seconds if case.rate else self.seconds


def full(rounds: int = 5, busy: int = 0, idle: int = 0) -> Plan:
    """Everything; about five minutes with five rounds on two cores.

    Args:
        rounds: the medians over them are shown.
        busy: latency is also measured beside so many programs that burn a core each.
        idle: and beside so many servers that have nothing to do.
    """
    return Plan(
        rounds=rounds,
        fan_out_rounds=min(rounds, 3),
        seconds=0.9,
        latency_seconds=2.0,
        idle_seconds=5.0,
        stages=(*_throughput(), *_latency(busy, idle)),
        fan_out=_fan_out(SIZES),
        flood=_flood(),
    )


def quick(rounds: int = 2, busy: int = 0, idle: int = 0) -> Plan:
    """The same with shorter measurements and fewer sizes with many subscribers; a minute or so."""
    return Plan(
        rounds=rounds,
        fan_out_rounds=1,
        seconds=0.4,
        latency_seconds=1.0,
        idle_seconds=3.0,
        stages=(*_throughput(), *_latency(busy, idle)),
        fan_out=_fan_out((MAIN_SIZE,)),
        flood=_flood(),
    )


def only_roq(plan: Plan) -> Plan:
    """The same plan without anybody else."""

    def ours(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        kept = (
            Stage(stage.case, tuple(key for key in stage.contenders if key.startswith("roq")))
            for stage in stages
        )
        return tuple(stage for stage in kept if stage.contenders)

    return msgspec.structs.replace(
        plan, stages=ours(plan.stages), fan_out=ours(plan.fan_out),
        flood=ours(plan.flood),
    )  # fmt: skip


def main_case(batch: int = FULL_BATCH) -> Case:
    """The case that most targets speak of."""
    return Case(size=MAIN_SIZE, batch=batch)


def fan_out_case(size: int = MAIN_SIZE) -> Case:
    """Many subscribers."""
    return Case(size=size, batch=FULL_BATCH, subscribers=FAN_OUT)


def latency_case(busy: int = 0, idle: int = 0) -> Case:
    """Light load."""
    return Case(size=MAIN_SIZE, rate=LATENCY_RATE, busy=busy, idle=idle)


def flood_case() -> Case:
    """Full speed for longer than any memory lasts."""
    return Case(size=MAIN_SIZE, batch=FULL_BATCH, flood=True)


def _flood() -> tuple[Stage, ...]:
    return (Stage(flood_case(), (ROQ_BATCHES, ZMQ_PROXY, NATS, REDIS)),)


def _throughput() -> tuple[Stage, ...]:
    all_sizes = tuple(
        Stage(
            Case(size=size, batch=FULL_BATCH),
            (ROQ_BATCHES, ZMQ_PROXY, ROQ_MESSAGES, NATS, REDIS)
            + ((ROQ_AIO_BATCHES, ROQ_AIO_MESSAGES) if size == MAIN_SIZE else ()),
        )
        for size in SIZES
    )
    return (*all_sizes, Stage(main_case(SMALL_BATCH), (ROQ_BATCHES, ZMQ_PROXY)))


def _latency(busy: int, idle: int) -> tuple[Stage, ...]:
    everybody = (ROQ_MESSAGES, RAW_HOP, ROQ_AIO_MESSAGES, ZMQ_PROXY, NATS, REDIS)
    cases = (latency_case(), latency_case(busy), latency_case(idle=idle))
    return tuple(Stage(case, everybody) for case in dict.fromkeys(cases))


def _fan_out(sizes: tuple[int, ...]) -> tuple[Stage, ...]:
    return tuple(
        Stage(
            fan_out_case(size),
            (ROQ_BATCHES, ZMQ_PROXY) + ((NATS, REDIS) if size == MAIN_SIZE else ()),
        )
        for size in sizes
    )
