from collections.abc import Callable

import pytest

from roq.benchmarks import plan
from roq.benchmarks.case import BATCH_BYTES, Case
from roq.benchmarks.contenders import bare_hops, nats_core, redis_streams


@pytest.mark.parametrize(("size", "messages"), [(10, 500), (100, 500), (1024, 64), (65_536, 1)])
def test_a_batch_is_limited_by_its_bytes_too(size: int, messages: int) -> None:
    case = Case(size=size, batch=500)
    assert case.per_batch == messages
    assert messages * size <= BATCH_BYTES


def test_a_message_above_the_limit_of_a_batch_is_a_batch_by_itself() -> None:
    assert Case(size=10 * BATCH_BYTES, batch=500).per_batch == 1


def test_the_full_plan_has_every_size_and_both_numbers_of_subscribers() -> None:
    full = plan.full()
    cases = [stage.case for stage in (*full.stages, *full.fan_out)]
    for subscribers in (1, 20):
        assert {case.size for case in cases if case.subscribers == subscribers} == set(plan.SIZES)


def test_steps_count_every_measurement() -> None:
    chosen = plan.Plan(
        rounds=3,
        fan_out_rounds=2,
        seconds=1,
        latency_seconds=1,
        idle_seconds=1,
        stages=(plan.Stage(plan.main_case(), ("a", "b")),),
        fan_out=(plan.Stage(plan.fan_out_case(), ("a", "b", "c")),),
        flood=(plan.Stage(plan.flood_case(), ("a", "b")),),
    )
    assert chosen.steps == 3 * 2 + 2 * 3 + 2
    assert chosen.seconds_of(plan.flood_case()) == 10.0


def test_a_plan_without_peers_has_nothing_but_roq() -> None:
    alone = plan.only_roq(plan.full())
    keys = {key for stage in (*alone.stages, *alone.fan_out) for key in stage.contenders}
    assert keys == {
        plan.ROQ_BATCHES,
        plan.ROQ_MESSAGES,
        plan.ROQ_AIO_BATCHES,
        plan.ROQ_AIO_MESSAGES,
    }
    assert all(stage.contenders for stage in (*alone.stages, *alone.fan_out))


def test_every_peer_of_the_plan_exists() -> None:
    modules = (bare_hops, nats_core, redis_streams)
    peers = {one.key for module in modules for one in module.contenders()}
    full = plan.full()
    planned = {key for stage in (*full.stages, *full.fan_out) for key in stage.contenders}
    assert {key for key in planned if not key.startswith("roq")} == peers


@pytest.mark.parametrize("chosen", [plan.full, plan.quick])
def test_latency_is_measured_beside_other_programs_only_if_wanted(
    chosen: Callable[..., plan.Plan],
) -> None:
    quiet = [stage.case for stage in chosen().stages if stage.case.rate]
    both = [stage.case for stage in chosen(busy=3).stages if stage.case.rate]
    assert quiet == [plan.latency_case()]
    assert both == [plan.latency_case(), plan.latency_case(3)]
    every = [stage.case for stage in chosen(busy=3, idle=5).stages if stage.case.rate]
    assert every == [*both, plan.latency_case(idle=5)]
