"""Windows out of small rows: rates, coverage, latencies."""

from __future__ import annotations

import pytest
from traces import BEGAN_US, SECOND_US, us

from roq.simulation.lab.archive.document import HEARD_FROM, LatencyWindow
from roq.simulation.lab.traces.grid import Grid, grid
from roq.simulation.lab.traces.windows import imbalance, silences, windows
from roq.simulation.scenario.scenario import Phase, PublisherGroup, Scenario

SCENARIO = Scenario(
    name="a-test",
    title="a test",
    phases=[Phase(name="p", seconds=600, publishers=[PublisherGroup(count=2, rate=5.0)])],
)
NOTHING: dict[int, LatencyWindow] = {}


def row(window: int, exchange: int, bytes_in: float, seconds: float = 1.0) -> dict[str, object]:
    return {
        "window": window, "exchange": exchange, "messages_in": bytes_in / 10, "bytes_in": bytes_in,
        "messages_out": 0.0, "bytes_out": 0.0, "seconds": seconds, "cpu_seconds": seconds / 4,
        "publishers": 2,
    }  # fmt: skip


def test_a_load_of_ten_minutes_has_windows_of_a_second_and_longer_ones_have_no_more() -> None:
    assert grid(BEGAN_US, 600.0).count == 600
    assert grid(BEGAN_US, 600.5).count == 301
    assert grid(BEGAN_US, 86_400.0).count == 600
    assert grid(BEGAN_US, 0.0).count == 0


def test_the_last_window_may_be_shorter() -> None:
    load = grid(BEGAN_US, 2.5)
    assert [load.seconds(number) for number in range(load.count)] == [1.0, 1.0, 0.5]
    assert load.ends(2) == 2.5
    found = windows(load, SCENARIO, [row(2, 1, 100.0, 0.5)], NOTHING, [])
    assert [window.at for window in found] == [1.0, 2.0, 2.5]
    assert found[2].exchanges[0].bytes_in == pytest.approx(200.0)
    assert [window.offered for window in found] == pytest.approx([10.0, 10.0, 10.0])


def test_rates_are_those_of_the_part_that_is_known() -> None:
    load = grid(BEGAN_US, 4.0)
    rows = [row(0, 1, 100.0), row(0, 2, 300.0), row(1, 1, 50.0, 0.5)]
    found = windows(load, SCENARIO, rows, NOTHING, [(us(1.5), us(3.0))])
    assert [window.covered for window in found] == [1.0, 0.5, 0.0, 1.0]
    assert found[0].imbalance == 1.5
    assert found[1].exchanges[0].bytes_in == pytest.approx(100.0)
    assert found[0].exchanges[0].cpu_percent == pytest.approx(25.0)
    assert found[2].exchanges == []


def test_a_window_in_which_one_of_three_exchanges_is_not_heard_is_not_known() -> None:
    load = grid(BEGAN_US, 5.0)
    rows = [row(number, exchange, 100.0) for number in range(5) for exchange in (1, 2)]
    rows += [row(0, 3, 400.0), row(1, 3, 300.0, 0.75), row(3, 3, 100.0, 0.25), row(4, 3, 400.0)]
    hole = {"exchange": 3, "begin_us": us(1.75), "end_us": us(3.75), "hole": True}
    before = {"exchange": 3, "begin_us": us(-9.0), "end_us": us(-4.0), "hole": True}
    found = windows(load, SCENARIO, rows, NOTHING, [], [hole, before])
    assert [window.covered for window in found] == [1.0, 0.75, 0.0, 0.25, 1.0]
    assert [window.serving for window in found] == [3] * 5
    assert [window.imbalance for window in found] == [2.0, 2.0, None, None, 2.0]
    numbers = [[each.exchange for each in window.exchanges] for window in found]
    assert numbers == [[1, 2, 3], [1, 2, 3], [1, 2], [1, 2], [1, 2, 3]]
    # Each rate is that of the part in which this exchange was heard.
    assert [each.bytes_in for each in found[1].exchanges] == pytest.approx([100.0, 100.0, 400.0])


def test_a_window_is_known_from_the_share_on_from_which_reports_show_it() -> None:
    load = grid(BEGAN_US, 1.0)
    for heard, known in ((0.4994, False), (HEARD_FROM - 0.0004, True), (HEARD_FROM, True)):
        (found,) = windows(load, SCENARIO, [row(0, 1, 50.0)], NOTHING, [(us(heard), us(1.0))])
        assert bool(found.exchanges) == (found.serving == 1) == (found.covered >= HEARD_FROM)
        assert bool(found.exchanges) == known


def test_what_is_silent_with_the_stream_counts_once() -> None:
    load = grid(BEGAN_US, 3.0)
    hole = {"exchange": 1, "begin_us": us(0.5), "end_us": us(3.0), "hole": True}
    found = windows(load, SCENARIO, [row(0, 1, 50.0, 0.5)], NOTHING, [(us(0.75), us(2.5))], [hole])
    assert [window.covered for window in found] == [0.5, 0.0, 0.0]
    assert found[0].exchanges[0].bytes_in == pytest.approx(100.0)
    assert [window.serving for window in found] == [1, 0, 1]


def test_imbalance_needs_two_exchanges_and_load() -> None:
    assert imbalance([]) is imbalance([5.0]) is imbalance([0.0, 0.0]) is None
    assert imbalance([3.0, 1.0]) == 1.5


def test_a_stream_is_silent_where_its_documents_are_far_apart_and_at_both_ends() -> None:
    load = Grid(us(0), us(20), SECOND_US)
    holes = [
        {"begin_us": us(begin), "end_us": us(end)} for begin, end in ((3, 8), (18, 21.5), (30, 40))
    ]
    assert silences(holes, us(-1), us(41), load, 3.0) == [(us(3), us(8)), (us(18), us(20))]
    assert silences([], us(-2), us(22), load, 3.0) == []
    assert silences([], us(2), us(18), load, 3.0) == []
    assert silences([], us(4), us(15), load, 3.0) == [(us(0), us(4)), (us(15), us(20))]
    assert silences([], None, None, load, 3.0) == [(us(0), us(20))]
    assert silences([], us(-50), us(-50), load, 3.0) == [(us(0), us(20))]
