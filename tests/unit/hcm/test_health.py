"""How a host manager says it is, and what it tells of its children."""

from __future__ import annotations

import pytest

from roq.exchange.kpi_report import metrics_of
from roq.hcm.children import EXCHANGE, MONITOR, Child, Children, State
from roq.hcm.crash_history import CrashHistory, CrashLimits
from roq.hcm.health import SHOWN_MAX, of_host
from roq.hcm.leader import Leader
from roq.hcm.metrics import DISCARDED, METRICS, figures, known, of_machine
from roq.model import Limits
from roq.protocol.control import NOT_LEADER, Failure, HostReportAck
from roq.protocol.metrics import Sample
from roq.protocol.reports import Check, ExchangeLoad
from roq.protocol.requesting import DURATION_BOUNDS, Durations
from roq.runtime.metrics import exposition

LEADER = "tcp://a:5000"


def leader(*, known: bool = True) -> Leader:
    link = Leader([LEADER])
    link.start(0.0)
    if known:
        assert link.take_due(0.0)
        link.answered(HostReportAck(cluster="c"), 0.0)
    return link


def child(number: int, state: State = State.RUNNING, reason: str = "") -> Child:
    return Child(
        role=EXCHANGE if number else MONITOR,
        queue="orders",
        queue_id=b"q",
        number=number,
        limits=Limits(),
        history=CrashHistory(CrashLimits()),
        state=state,
        reason=reason,
    )


def children(*members: Child) -> Children:
    made = Children()
    for each in members:
        made.add(each)
    return made


def test_a_host_whose_reports_are_taken_and_whose_children_run_is_ready() -> None:
    health = of_host("h", children(child(0), child(1)), leader())
    assert (health.role, health.name, health.ready, health.state) == ("host", "h", True, "serving")
    assert [check.detail for check in health.checks] == [LEADER, "2 run"]


def test_a_host_that_no_leader_knows_is_not_ready() -> None:
    health = of_host("h", children(), leader(known=False))
    assert not health.ready
    assert health.checks[0].detail == "no configuration manager has answered yet"


def test_a_host_whose_reports_nobody_takes_any_more_says_so_and_what_it_was_told() -> None:
    link = leader()
    assert link.take_due(10.0)
    link.answered(Failure(RESULT=NOT_LEADER, COMMENT="ask another one"), 10.0)
    health = of_host("h", children(), link)
    assert not health.ready
    assert health.checks[0].detail == (
        "no configuration manager takes its reports, the last one says: ask another one"
    )


@pytest.mark.parametrize("state", [State.FAILED, State.RESTARTING])
def test_a_child_that_does_not_run_is_named_with_its_reason(state: State) -> None:
    health = of_host("h", children(child(0), child(1, state, "exit code 1")), leader())
    assert not health.ready
    assert health.checks[1].detail == f"orders.x1 is {state}: exit code 1"


@pytest.mark.parametrize("state", [State.STARTING, State.STOPPING])
def test_a_child_that_comes_or_goes_is_nothing_wrong(state: State) -> None:
    assert of_host("h", children(child(1, state)), leader()).ready


def test_many_failures_are_counted_and_not_all_named() -> None:
    failed = [child(number, State.FAILED) for number in range(1, SHOWN_MAX + 4)]
    assert of_host("h", children(*failed), leader()).checks[1].detail.endswith("; and 3 more")


def test_what_the_shell_has_measured_may_be_a_warning_only() -> None:
    full = Check(name="disk", ok=False, detail="full", essential=False)
    assert of_host("h", children(), leader(), (full,)).ready


def test_a_host_that_stops_is_not_ready() -> None:
    health = of_host("h", children(), leader(), stopping=True)
    assert (health.ready, health.state) == (False, "stopping")


def test_of_what_a_child_tells_only_known_names_are_kept() -> None:
    told = {"messages_in": 5.0, "x" * 1000: 1.0, "lag_ms": 250.0}
    assert known(EXCHANGE, told) == {"messages_in": 5.0, "lag_ms": 250.0}
    assert known(MONITOR, told) == {}


def test_figures_are_in_base_units_with_the_queue_and_the_exchange() -> None:
    one = child(1)
    one.metrics = {"messages_in": 5.0, "lag_ms": 250.0}
    told = {each.metric.name: each for each in figures(children(one), leader(), 3)}
    assert told["roq_exchange_messages_received_total"].labels == ("orders", "x1")
    assert told["roq_exchange_longest_turn_seconds"].value == 0.25
    assert told["roq_host_exchanges_max"].value == 3
    assert told["roq_child_up"].value == 1


def test_how_long_requests_took_is_a_histogram_and_discarded_ones_are_told_by_reason() -> None:
    load = ExchangeLoad(
        requests_waiting=Durations([0, 2, *[0] * (len(DURATION_BOUNDS) - 2), 1], 400.5),
        requests_discarded_by={"all busy": 3, "for fun": 4},
    )
    one = child(1)
    one.metrics = known(EXCHANGE, metrics_of(load))
    samples = list(figures(children(one), leader(), 0))
    told = {each.metric.name: each for each in samples}
    waiting = told["roq_exchange_requests_waiting_seconds"]
    assert (waiting.labels, waiting.value) == (("orders", "x1"), 400.5)
    assert waiting.buckets[:2] == (("0.001", 0), ("0.002", 2)), "up to each bound"
    assert waiting.buckets[-2:] == (("300", 2), ("+Inf", 3))
    assert "roq_exchange_requests_running_seconds" not in told, "there were none"
    text = exposition(METRICS, samples).decode()
    name = "roq_exchange_requests_waiting_seconds"
    assert f'{name}_bucket{{exchange="x1",le="0.002",queue="orders"}} 2.0' in text
    assert f'{name}_sum{{exchange="x1",queue="orders"}} 400.5' in text
    reasons = [each for each in samples if each.metric is DISCARDED]
    assert [(each.labels[-1], each.value) for each in reasons] == [("all busy", 3)]


def test_one_that_does_not_run_has_no_figures_but_that_it_is_down() -> None:
    one = child(1, State.FAILED)
    one.metrics = {"messages_in": 5.0}
    names = {each.metric.name: each.value for each in figures(children(one), leader(), 0)}
    assert names["roq_child_up"] == 0
    assert "roq_exchange_messages_received_total" not in names


def test_descriptors_are_told_of_each_child_also_if_its_queue_has_dots() -> None:
    samples = list(of_machine(10, 5, {"my.own.queue.x2": 7}))
    assert samples[-1].labels == ("my.own.queue", "x2")


def test_every_sample_has_the_labels_that_its_metric_names() -> None:
    one, monitor = child(1), child(0)
    one.metrics = {"publishers": 1.0}
    monitor.metrics = {"moves": 1.0}
    samples: list[Sample] = [
        *figures(children(one, monitor), leader(), 0),
        *of_machine(1, 1, {"orders.x1": 2}),
    ]
    assert all(len(each.labels) == len(each.metric.labels) for each in samples)
    assert {each.metric for each in samples} <= set(METRICS)
