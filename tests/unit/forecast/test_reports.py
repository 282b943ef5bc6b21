from random import Random

import pytest

from roq.monitor.window import LoadWindow
from roq.protocol.reports import ExchangeLoad
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.forecast.reports import LATE_MOST, Reports, late_most

COUNT = 300


def brought(seconds: float) -> int:
    """Bytes until a moment, of a load that doubles every seven seconds and falls again."""
    whole, rest = divmod(seconds, 14.0)
    return round(1_000_000 * (21 * whole + min(rest, 7.0) + 2 * max(0.0, rest - 7.0)))


@pytest.mark.parametrize("kpi_seconds", [0.1, 0.4, 1.0, 3.0, 7.0])
def test_a_report_counts_from_the_one_from_which_the_monitor_counts(kpi_seconds: float) -> None:
    parameters = Parameters(kpi_seconds=kpi_seconds)
    reports, window = Reports(parameters, Random(3)), LoadWindow()
    for number in range(COUNT):
        heard = reports.heard(number)
        made = reports.last(heard).end
        window.add(ExchangeLoad(bytes_in=brought(made)), [], heard)
        if heard < 20 * kpi_seconds + 10:
            continue  # the monitor has not seen what is before its first report
        told = reports.last(heard)
        late = late_most(parameters)
        for begin, rate in ((told.recent, window.last()), (told.lasting, window.mean())):
            grown = brought(told.end) - brought(begin)
            spans = (told.end - begin + late, told.end - begin - late)
            assert grown / spans[0] <= rate.bytes_in + 1 <= grown / spans[1] + 2


def test_a_window_of_five_seconds_holds_five_periods_or_six() -> None:
    reports = Reports(Parameters(), Random(1))
    told = [reports.last(reports.heard(number)) for number in range(COUNT)]
    spans = [round(each.end - each.lasting) for each in told]
    assert set(spans) == {5, 6}
    assert 0.4 * COUNT < spans.count(5) < 0.6 * COUNT
    assert {round(each.end - each.recent) for each in told} == {1}


@pytest.mark.parametrize("report_seconds", [0.0, 0.005, 10.0])
def test_one_report_comes_after_the_other(report_seconds: float) -> None:
    reports = Reports(Parameters(report_seconds=report_seconds), Random(2))
    now = 0.0
    for _ in range(COUNT):
        after = reports.after(now)
        assert now < after < now + 1 + 2 * LATE_MOST
        middle = (now + after) / 2
        assert reports.after(middle) == after
        assert reports.last(middle) == reports.last(now)
        now = after


def test_who_looks_seldom_sees_the_same() -> None:
    often, seldom = (Reports(Parameters(), Random(5)) for _ in range(2))
    for number in range(COUNT):
        often.last(number / 7)
    assert often.last(COUNT / 7) == seldom.last(COUNT / 7)
