"""A group's measurement ends when its last acknowledgement is confirmed, and leaves no group."""

from __future__ import annotations

import pytest
from paper_roq import PaperQueue

from roq.benchmarks.case import Run
from roq.benchmarks.clients import payloads_of
from roq.benchmarks.contenders import roq_groups as module
from roq.benchmarks.contenders.roq import RoqAckedPublisher, RoqBatchPublisher
from roq.benchmarks.contenders.roq_groups import BATCHES, publisher, subscriber

RUN = Run(topic="bench.1.", size=8, batch=3, count=10)
PACED = Run(topic="bench.1.", size=8, batch=1, count=4, rate=1_000)
OPTIONS = {"queue": "q", "cluster": "h:1"}
MESSAGES = "consume_messages"


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> PaperQueue:
    paper = PaperQueue()
    monkeypatch.setattr(module.roq, "connect", lambda *_, **__: paper)
    return paper


@pytest.mark.parametrize(("style", "acks"), [(BATCHES, 4), (MESSAGES, 1)])
def test_all_is_looked_at_acknowledged_and_confirmed(
    style: str, acks: int, queue: PaperQueue
) -> None:
    takes = subscriber(style, OPTIONS)
    takes.open(RUN)
    assert queue.calls == [
        ("consumer", "q", {"group": "bench.1", "topic": "bench.1.", "start": "latest"})
    ]
    queue.publish_many((payloads_of(RUN) * 4)[:10], "bench.1.")
    takes.receive(RUN)
    assert (queue.acked, queue.calls[-1]) == (acks, "flush"), "going on acknowledges the one before"
    queue.published[-1] = ("bench.1.", bytes(7))
    with pytest.raises(AssertionError):
        takes.receive(RUN)


def test_the_group_is_removed_after_its_consumer_has_left(queue: PaperQueue) -> None:
    takes = subscriber(MESSAGES, OPTIONS)
    takes.open(RUN)
    takes.close()
    assert queue.calls[-2:] == ["close", ("delete", "q", "g")]


def test_at_a_rate_each_acknowledgement_is_confirmed_and_timed(queue: PaperQueue) -> None:
    takes = subscriber(MESSAGES, OPTIONS)
    takes.open(PACED)
    queue.publish_many([bytes(8)] * 4, "bench.1.")
    assert len(takes.ages(PACED)) == PACED.count
    assert (queue.acked, queue.calls.count("flush")) == (4, 4)


def test_what_is_published_suits_the_style(queue: PaperQueue) -> None:
    assert isinstance(publisher(BATCHES, OPTIONS), RoqBatchPublisher)
    assert isinstance(publisher(MESSAGES, OPTIONS), RoqAckedPublisher)
