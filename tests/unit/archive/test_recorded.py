"""A queue under load, as its statistics stream has told of it."""

from __future__ import annotations

import pytest
from kpi_samples import QUEUE_ID, exchange, move, scale, subscriber

from roq.client.admin.statistics import Sample
from roq.protocol.kpi import QueueKpi
from roq.simulation.lab.archive.document import EventKind, Series
from roq.simulation.lab.archive.recorded import series_of
from roq.simulation.real.record import Record


def told(*samples: Sample, began: float = 0.0) -> Series:
    record = Record(began)
    record.take(sorted(samples, key=lambda sample: sample.when))
    return series_of(record)


def queue(when: float, exchanges: int) -> Sample:
    return Sample(
        when,
        QueueKpi(
            queue="load", queue_id=QUEUE_ID, monitor_epoch=1, version=1, exchanges=exchanges,
            publishers=0, subscribers=0, waiting=0, limit_bytes_per_second=0.0,
            messages_in_per_second=0.0, bytes_in_per_second=0.0, messages_out_per_second=0.0,
            bytes_out_per_second=0.0,
        ),
    )  # fmt: skip


def test_windows_hold_what_totals_have_grown_by() -> None:
    series = told(*(exchange(float(at), 1, 1_000 * at) for at in range(-1, 11)), queue(0.2, 1))

    assert series.window_seconds == 2.0
    assert [each.at for each in series.windows] == [2, 4, 6, 8, 10]
    assert [each.exchanges[0].bytes_in for each in series.windows] == pytest.approx([1_000] * 5)
    assert series.windows[0].serving == 1


def test_an_exchange_that_was_started_again_counts_from_nothing() -> None:
    series = told(
        exchange(0.0, 1, 0), exchange(2.0, 1, 5_000), exchange(4.0, 1, 10, epoch=2),
        exchange(6.0, 1, 110, epoch=2),
    )  # fmt: skip

    rates = [sum(one.bytes_in for one in each.exchanges) for each in series.windows]
    assert rates == [2_500, 0, 50]


def test_what_happens_before_the_load_is_none_of_it() -> None:
    series = told(
        move(-3.0, "p", "accepted"), queue(-1.0, 9), queue(3.0, 1), subscriber(-0.5, "cc", 4.0),
        exchange(6.0, 1),
    )  # fmt: skip

    assert series.events == []
    assert [each.serving for each in series.windows] == [0, 1, 0]
    assert all(each.latency is None for each in series.windows)


def test_events_are_what_has_ended() -> None:
    series = told(
        queue(0.5, 1), queue(4.0, 3), queue(9.0, 2),
        move(2.5, "p", "started"), move(2.6, "p", "accepted"), move(3.0, "q", "given_up"),
        scale(1.0, "out", "started"), scale(2.0, "out", "done", 2), scale(8.0, "in", "done", 2),
    )  # fmt: skip

    assert [(event.kind, event.exchange, event.text) for event in series.events[:2]] == [
        (EventKind.SCALE_OUT, 2, ""), (EventKind.MOVE, 2, "x1 → x2"),
    ]  # fmt: skip
    assert [event.kind for event in series.events[2:]] == [
        EventKind.MOVE_FAILED, EventKind.SCALE_IN,
    ]  # fmt: skip


def test_imbalance_is_that_of_a_window() -> None:
    series = told(
        *(exchange(at, 1, 3_000 * at) for at in range(10)),
        *(exchange(at, 2, 1_000 * at) for at in range(10)),
    )

    assert series.windows[2].imbalance == pytest.approx(1.5)


def test_latencies_are_the_means_that_subscribers_tell() -> None:
    series = told(
        *(subscriber(3.0, "cc", 2.0) for _ in range(99)), subscriber(3.5, "dd", 500.0),
        subscriber(3.6, "ee", 9_000.0, received=0.0), queue(6.0, 1),
    )  # fmt: skip

    latency = series.windows[1].latency
    assert latency is not None
    assert latency.count == 100
    assert latency.p50 == pytest.approx(2.0, rel=0.02)
    assert latency.most == pytest.approx(500, rel=0.02)
    assert series.windows[0].latency is None


def test_a_record_is_told_window_by_window() -> None:
    record = Record(10.0)
    record.mark(10.0, "a light load")
    record.take([exchange(10.0 + when, 1, 1_000 * when, publishers=2) for when in range(7)])
    record.take([exchange(10.0 + when, 2, 500 * when, publishers=1) for when in range(2, 5)])
    record.take([move(13.0, "aa", "accepted")])
    series = series_of(record)
    loads = [{one.exchange: one.bytes_in for one in each.exchanges} for each in series.windows]
    assert loads == [{1: 1_000.0}, {1: 1_000.0, 2: 500.0}, {1: 1_000.0, 2: 0.0}]
    publishers = [{one.exchange: one.publishers for one in w.exchanges} for w in series.windows]
    assert publishers == [{1: 2}, {1: 2, 2: 1}, {1: 2, 2: 1}]
    assert [(each.at, each.kind) for each in series.events] == [
        (0.0, EventKind.PHASE), (3.0, EventKind.MOVE),
    ]  # fmt: skip
