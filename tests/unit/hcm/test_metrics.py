"""What a host tells of itself and of its children to those who watch many hosts."""

from __future__ import annotations

from hcm_children import child, children, leader

from roq.exchange.kpi_report import metrics_of
from roq.hcm.children import EXCHANGE, MONITOR, State
from roq.hcm.metrics import (
    CHILDREN,
    DISCARDED,
    DURATIONS,
    METRICS,
    OF_EXCHANGE,
    OF_MONITOR,
    figures,
    known,
    of_machine,
)
from roq.protocol.metrics import Sample
from roq.protocol.reports import ExchangeLoad
from roq.protocol.requesting import DURATION_BOUNDS, Durations
from roq.runtime.metrics import exposition


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


def test_what_an_exchange_reports_has_a_metric_unless_it_is_a_place_in_its_log() -> None:
    told = {name.split(".")[0] for name in metrics_of(ExchangeLoad())}
    ours = {*OF_EXCHANGE, *DURATIONS, "requests_discarded_by"}
    assert OF_EXCHANGE.keys() <= told
    assert set(ExchangeLoad.__struct_fields__) - ours == {
        "end_offset", "floor_offset", "groups", "holding",
    }  # fmt: skip


def test_names_are_of_the_kind_that_those_who_read_them_expect() -> None:
    names = [each.name for each in METRICS]
    assert len(set(names)) == len(names)
    for each in METRICS:
        assert each.name.startswith(("roq_host_", "roq_child_", "roq_exchange_", "roq_monitor_"))
        assert each.name.endswith("_total") is (each.kind == "counter")


def test_children_are_counted_by_role_and_state_and_no_state_is_left_out() -> None:
    samples = list(
        figures(children(child(0), child(1), child(2, State.FAILED)), leader(known=False), 0)
    )
    counts = {each.labels: each.value for each in samples if each.metric is CHILDREN}
    assert set(counts) == {(role, state) for role in (MONITOR, EXCHANGE) for state in State}
    assert {labels: count for labels, count in counts.items() if count} == {
        (MONITOR, State.RUNNING): 1, (EXCHANGE, State.RUNNING): 1, (EXCHANGE, State.FAILED): 1,
    }  # fmt: skip
    assert samples[0].value == 0, "no leader takes our reports"


def test_a_monitor_has_figures_of_its_own_under_the_name_of_its_queue() -> None:
    one = child(0)
    one.metrics = {"moves": 7.0, "messages_in": 5.0}
    samples = {each.metric.name: each for each in figures(children(one), leader(), 0)}
    moves = samples[OF_MONITOR["moves"][0].name]
    assert (moves.labels, moves.value) == (("orders",), 7)
    assert "roq_exchange_messages_received_total" not in samples
    assert samples["roq_child_up"].labels == ("orders", MONITOR)


def test_shares_and_seconds_are_in_base_units() -> None:
    one = child(1)
    one.metrics = {"cpu_percent": 50.0, "lag_ms": 1_000.0, "held_seconds": 3.0}
    told = {each.metric.name: each.value for each in figures(children(one), leader(), 0)}
    assert told["roq_exchange_cpu_ratio"] == 0.5
    assert told["roq_exchange_longest_turn_seconds"] == 1
    assert told["roq_exchange_held_seconds_total"] == 3
    assert told["roq_exchange_ring_max_bytes"] == one.limits.ring_bytes
    assert told["roq_child_restarts_total"] == 0


def test_the_disk_is_told_as_it_was_measured() -> None:
    told = {each.metric.name: each.value for each in of_machine(100, 40, {})}
    assert told == {"roq_host_disk_bytes": 100, "roq_host_disk_free_bytes": 40}
