from roq.benchmarks import plan
from roq.benchmarks.case import Case, CaseSample
from roq.benchmarks.results import Idle, ProcessCost, Verdict
from roq.benchmarks.targets import verdicts


def sample(contender: str, case: Case, rate: float, **more: object) -> CaseSample:
    given: dict[str, object] = {"cpu": {}, "rss": {}, **more}
    return CaseSample(contender, case, 0, int(rate), 1.0, **given)  # type: ignore[arg-type]


def find(found: list[Verdict], words: str) -> Verdict:
    return next(one for one in found if words in one.text)


def test_without_measurements_nothing_is_called_reached() -> None:
    assert {one.reached for one in verdicts([], None)} == {None}


def test_a_ratio_at_its_goal_is_reached_and_below_it_is_missed() -> None:
    main, small = plan.main_case(), plan.main_case(plan.SMALL_BATCH)
    found = verdicts(
        [
            sample(plan.ROQ_BATCHES, main, 650),
            sample(plan.ZMQ_PROXY, main, 1_000),
            sample(plan.ROQ_BATCHES, small, 549),
            sample(plan.ZMQ_PROXY, small, 1_000),
        ],
        None,
    )
    assert find(found, "500 per batch").reached is True
    assert find(found, "100 per batch").reached is False
    assert find(found, "100 per batch").measured == 0.549


def test_cost_and_latency_are_reached_from_below() -> None:
    many, light = plan.fan_out_case(), plan.latency_case()
    found = verdicts(
        [
            sample(plan.ROQ_BATCHES, many, 1_000, cpu={"exchange": 1.3}),
            sample(plan.ZMQ_PROXY, many, 1_000, cpu={"exchange": 1.0}),
            sample(plan.ROQ_MESSAGES, light, 200, latencies_us=[100.0]),
            sample(plan.RAW_HOP, light, 200, latencies_us=[80.0]),
            sample(plan.NATS, light, 200, latencies_us=[99.0]),
        ],
        None,
    )
    assert find(found, "CPU of the exchange").reached is False
    hop = find(found, "raw ROUTER")
    assert (hop.goal, hop.measured, hop.reached) == (1.4, 1.25, True)
    assert find(found, "latency p50 at light load, against nats-py").reached is False


def test_an_idle_cluster_is_judged_by_its_exchange_and_its_start() -> None:
    idle = Idle(0.7, 3.0, {"exchange": ProcessCost(0.4, 45_000_000)})
    found = verdicts([], idle)
    assert find(found, "CPU of an idle").reached is True
    assert find(found, "memory of an idle").reached is False
    assert find(found, "`roq up`").reached is True


def test_latency_beside_busy_programs_has_a_goal_of_its_own() -> None:
    quiet, busy = plan.latency_case(), plan.latency_case(2)
    found = verdicts(
        [
            sample(plan.ROQ_MESSAGES, quiet, 200, latencies_us=[300.0]),
            sample(plan.ROQ_MESSAGES, busy, 200, latencies_us=[300.0]),
            sample(plan.NATS, busy, 200, latencies_us=[200.0]),
        ],
        None,
    )
    beside = find(found, "latency p50 beside 2 busy programs, against nats-py")
    assert (beside.measured, beside.reached) == (1.5, True)
    assert find(found, "at light load, against nats-py").measured is None


def test_latency_beside_idle_servers_has_a_goal_of_its_own() -> None:
    idle = plan.latency_case(idle=5)
    found = verdicts(
        [
            sample(plan.ROQ_MESSAGES, idle, 200, latencies_us=[300.0]),
            sample(plan.NATS, idle, 200, latencies_us=[200.0]),
        ],
        None,
    )
    beside = find(found, "latency p50 beside 5 idle servers, against nats-py")
    assert (beside.goal, beside.measured, beside.reached) == (1.2, 1.5, False)
