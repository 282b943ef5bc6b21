"""A run while it goes on, as the statistics stream tells it."""

from __future__ import annotations

import pytest
from kpi_samples import QUEUE_ID, exchange, move, scale, subscriber

from roq.client.admin.statistics import Sample
from roq.demo.latency import Histogram
from roq.protocol.kpi import QueueKpi
from roq.simulation.lab.archive.document import EventKind
from roq.simulation.lab.archive.live_stats import LiveStats, stats_of
from roq.simulation.real.record import Record


def live_stats(*samples: Sample, seconds: float = 10.0) -> LiveStats:
    made = LiveStats(seconds, 1.0, lambda begin, end: 10.0 * (end - begin))
    for when, document in samples:
        made.take(when, document)
    return made


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
    seen = live_stats(*(exchange(at + 0.1, 1, 1_000 * at) for at in range(-1, 5)), queue(0.2, 1))

    series = seen.series(5.0)

    assert [each.at for each in series.windows] == [1, 2, 3, 4, 5]
    assert [each.exchanges[0].bytes_in for each in series.windows] == [1_000] * 5
    assert [each.offered for each in series.windows] == pytest.approx([10] * 5)
    assert series.windows[0].serving == 1


def test_an_exchange_that_was_started_again_counts_from_nothing() -> None:
    seen = live_stats(
        exchange(0.1, 1, 0), exchange(1.1, 1, 5_000), exchange(2.1, 1, 10, epoch=2),
        exchange(3.1, 1, 110, epoch=2),
    )  # fmt: skip

    rates = [sum(one.bytes_in for one in each.exchanges) for each in seen.series(4.0).windows]
    assert rates == [0, 5_000, 0, 100]


def test_what_happens_before_the_load_is_none_of_it() -> None:
    seen = live_stats(move(-3.0, "p", "accepted"), queue(-1.0, 9), queue(1.0, 1), queue(11.0, 9))

    series = seen.series(3.0)
    assert series.events == []
    assert [each.serving for each in series.windows] == [0, 1, 0]


def test_events_are_what_has_ended() -> None:
    seen = live_stats(
        queue(0.5, 1), queue(4.0, 3), queue(9.0, 2),
        move(2.0, "p", "started"), move(2.1, "p", "accepted"), move(3.0, "q", "given_up"),
        scale(1.0, "out", "started"), scale(2.0, "out", "done", 2), scale(8.0, "in", "done", 2),
    )  # fmt: skip

    assert [event.kind for event in seen.series(10.0).events] == [
        EventKind.SCALE_OUT, EventKind.MOVE, EventKind.MOVE_FAILED, EventKind.SCALE_IN,
    ]  # fmt: skip


def test_imbalance_is_that_of_a_window() -> None:
    seen = live_stats(
        queue(0.5, 2),
        *(exchange(at + 0.1, 1, 3_000 * at) for at in range(10)),
        *(exchange(at + 0.1, 2, 1_000 * at) for at in range(10)),
    )

    assert seen.series(9.0).windows[5].imbalance == pytest.approx(1.5)


def test_latencies_are_those_that_tasks_have_told() -> None:
    seen = live_stats()
    histogram = Histogram()
    histogram.add(0.002, 99)
    histogram.add(0.5)
    seen.latency(1.5, histogram.counts())
    seen.latency(-0.5, histogram.counts())

    latency = seen.series(3.0).windows[1].latency

    assert latency is not None
    assert latency.count == 100
    assert latency.p50 == pytest.approx(2.0, rel=0.02)
    assert latency.most == pytest.approx(500, rel=0.02)
    assert seen.series(3.0).windows[0].latency is None


def test_a_record_is_told_window_by_window() -> None:
    record = Record(10.0)
    record.mark(10.0, "a light load")
    record.take([exchange(10.0 + when, 1, 1_000 * when, publishers=2) for when in range(7)])
    record.take([exchange(10.0 + when, 2, 500 * when, publishers=1) for when in range(2, 5)])
    record.take([move(13.0, "aa", "accepted"), subscriber(11.0, "cc", 4.0)])
    series = stats_of(record).series(6.0)
    loads = [{one.exchange: one.bytes_in for one in each.exchanges} for each in series.windows]
    assert loads == [{1: 500.0}, {1: 1_000.0, 2: 250.0}, {1: 1_000.0, 2: 250.0}]
    publishers = [{one.exchange: one.publishers for one in w.exchanges} for w in series.windows]
    assert publishers == [{1: 2}, {1: 2, 2: 1}, {1: 2, 2: 1}]
    assert [each.latency is not None for each in series.windows] == [True, False, False]
    assert [(each.at, each.kind) for each in series.events] == [
        (0.0, EventKind.PHASE), (3.0, EventKind.MOVE),
    ]  # fmt: skip
