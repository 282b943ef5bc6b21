"""The tap: what it hears is published, what it loses is told."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from traces import RUN, exchange, queue

from roq.client.admin.statistics import Sample
from roq.errors import Closed, Unavailable
from roq.simulation.lab.archive.document import EventKind
from roq.simulation.lab.traces.messages import AnyTrace, EventTrace, KpiTrace, decode
from roq.simulation.lab.traces.tap import Tap, wall_clock

ENOUGH_SECONDS = 10.0


@dataclass
class Stream:
    """Stands in for the statistics stream."""

    samples: list[Sample]
    malformed: int = 0
    foreign: int = 0
    dropped: int = 0
    ends: bool = False
    read: threading.Event = field(default_factory=threading.Event)

    def receive(self, timeout: float) -> Sample | None:
        if self.samples:
            return self.samples.pop(0)
        self.read.set()
        if self.ends:
            raise Closed("the statistics stream is closed")
        threading.Event().wait(0.001)
        return None

    def waiting(self) -> list[Sample]:
        return []

    def close(self) -> None:
        self.ends = True


@dataclass
class Publisher:
    """Stands in for a publisher into the queue of traces."""

    fails: int = 0
    sent: list[tuple[str, AnyTrace]] = field(default_factory=list)
    flushed: bool = False

    def publish(self, payload: bytes, topic: str) -> None:
        if self.fails:
            self.fails -= 1
            raise Unavailable("no room")
        self.sent.append((topic, decode(payload)))

    def flush(self, timeout: float) -> None:
        self.flushed = True


def tapped(stream: Stream, publisher: Publisher) -> Tap:
    cluster: Any = SimpleNamespace(statistics=lambda queue: stream)
    given: Any = publisher
    with Tap(cluster, "orders", given, RUN, wall=lambda when: round(when * 10)) as tap:
        assert stream.read.wait(ENOUGH_SECONDS)
    return tap


def test_documents_are_published_with_their_times_and_numbers() -> None:
    publisher = Publisher()
    tap = tapped(Stream([Sample(1.0, exchange(1, 70)), Sample(2.0, queue(1))]), publisher)
    traces = [trace for _, trace in publisher.sent]
    assert [topic for topic, _ in publisher.sent] == ["kpi", "kpi"]
    assert [(trace.time_us, trace.number, trace.run) for trace in traces] == [
        (10, 0, RUN),
        (20, 1, RUN),
    ]
    assert {trace.source for trace in traces} == {tap.source}
    assert isinstance(traces[0], KpiTrace)
    assert (traces[0].document["CMD"], traces[0].document["bytes_in"]) == (41, 70)
    assert (tap.published, tap.dropped) == (2, 0)
    assert publisher.flushed


def test_what_was_lost_is_told_once_and_leaves_no_hole_in_the_numbers() -> None:
    publisher = Publisher(fails=1)
    stream = Stream([Sample(float(at), queue(1)) for at in range(3)], malformed=2, foreign=5)
    tap = tapped(stream, publisher)
    traces = [trace for _, trace in publisher.sent]
    assert [trace.number for trace in traces] == list(range(len(traces)))
    (gap,) = [trace for trace in traces if isinstance(trace, EventTrace)]
    assert gap.event == EventKind.GAP
    assert "3 documents" in gap.text
    assert (tap.published, tap.failed, tap.malformed, tap.foreign, tap.dropped) == (2, 1, 2, 5, 3)
    last = [trace for trace in traces if isinstance(trace, KpiTrace)][-1]
    assert last.dropped == 3


def test_it_ends_quietly_when_the_cluster_is_closed_first() -> None:
    publisher = Publisher()
    stream = Stream([Sample(1.0, queue(1))], ends=True)
    assert tapped(stream, publisher).published == 1


def test_it_says_why_it_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream([Sample(1.0, queue(1))])

    def breaks(timeout: float) -> Sample | None:
        stream.read.set()
        raise ZeroDivisionError("nobody thought of this")

    stream.receive = breaks  # type: ignore[method-assign]
    assert tapped(stream, Publisher()).failure == "ZeroDivisionError: nobody thought of this"
    assert "the tap has failed" in caplog.text


def test_two_taps_are_two_sources() -> None:
    publisher = Publisher()
    assert tapped(Stream([]), publisher).source != tapped(Stream([]), publisher).source


def test_its_clock_goes_as_the_monotonic_one() -> None:
    wall = wall_clock()
    assert wall(12.5) - wall(10.0) == 2_500_000
