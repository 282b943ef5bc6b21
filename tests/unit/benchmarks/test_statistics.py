import pytest

from roq.benchmarks.case import Case, CaseSample
from roq.benchmarks.statistics import exchange_cpu, figure, figures, p50, percentile, rate, ratio

CASE = Case(size=100, batch=500)
LIGHT = Case(size=100, rate=200)


def sample(
    contender: str = "a",
    number: int = 0,
    *,
    seconds: float = 1.0,
    messages: int = 1_000,
    case: Case = CASE,
    cpu: dict[str, float] | None = None,
    rss: dict[str, int] | None = None,
    ages: list[float] | None = None,
) -> CaseSample:
    return CaseSample(contender, case, number, messages, seconds, cpu or {}, rss or {}, ages or [])


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile(values, 99.9) == 100
    assert percentile(values, 0) == 1
    assert percentile([7.0], 99.9) == 7


def test_the_order_of_values_does_not_matter_to_a_percentile() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 50)


def test_a_figure_holds_medians_and_extremes_over_the_rounds() -> None:
    found = figure([sample(seconds=s, number=n) for n, s in enumerate((1.0, 2.0, 4.0))])
    assert (found.rate_low, found.rate, found.rate_high) == (250, 500, 1_000)
    assert found.bytes_rate == 50_000
    assert found.rounds == 3


def test_cpu_is_counted_per_message_and_memory_at_its_highest() -> None:
    found = figure(
        [
            sample(cpu={"exchange": 0.002, "publisher": 0.001}, rss={"exchange": 10}),
            sample(cpu={"exchange": 0.004, "publisher": 0.001}, rss={"exchange": 30}),
            sample(cpu={"exchange": 0.003, "publisher": 0.001}, rss={"exchange": 20}),
        ]
    )
    assert found.cpu_us == {"exchange": pytest.approx(3.0), "publisher": pytest.approx(1.0)}
    assert found.rss == {"exchange": 30}


def test_latencies_of_all_rounds_are_taken_together() -> None:
    found = figure([sample(ages=[1.0, 2.0]), sample(ages=[3.0, 100.0])])
    assert found.latency_us == {"p50": 2.0, "p99": 100.0, "p99.9": 100.0}


def test_contenders_and_cases_are_kept_apart_in_their_order() -> None:
    found = figures([sample("b"), sample("a"), sample("b", case=LIGHT), sample("b", 1)])
    assert [(one.contender, one.case, one.rounds) for one in found] == [
        ("b", CASE, 2),
        ("a", CASE, 1),
        ("b", LIGHT, 1),
    ]


def test_a_ratio_compares_within_each_round() -> None:
    # The machine is half as fast in the second round; the ratio does not notice.
    samples = [
        sample("ours", 0, seconds=2.0),
        sample("theirs", 0, seconds=1.0),
        sample("ours", 1, seconds=4.0),
        sample("theirs", 1, seconds=2.0),
        sample("ours", 2, seconds=1.0),
    ]
    found = ratio(samples, ("ours", CASE), ("theirs", CASE), rate)
    assert found is not None
    assert (found.median, found.low, found.high, found.rounds) == (0.5, 0.5, 0.5, 2)


def test_there_is_no_ratio_without_a_common_round() -> None:
    samples = [sample("ours", 0), sample("theirs", 1)]
    assert ratio(samples, ("ours", CASE), ("theirs", CASE), rate) is None


def test_cpu_and_latency_can_be_compared_as_well() -> None:
    one = sample(cpu={"exchange": 0.5}, messages=1_000_000, ages=[3.0, 1.0, 2.0])
    assert exchange_cpu(one) == 0.5
    assert p50(one) == 2.0
