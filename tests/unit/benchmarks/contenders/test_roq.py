"""RoQ's clients publish every message, wait for acknowledgements, and count what they receive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from paper_roq import PaperQueue

from roq.benchmarks.case import Run
from roq.benchmarks.clients import payloads_of
from roq.benchmarks.contenders import roq as module
from roq.benchmarks.contenders.roq import publisher, refuse, subscriber
from roq.benchmarks.processes import BenchmarkError
from roq.read.message import Gap

RUN = Run(topic="bench.1.", size=8, batch=3, count=10)
PACED = Run(topic="bench.1.", size=8, batch=1, count=4, rate=1_000)
OPTIONS = {"queue": "q", "cluster": "h:1"}


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> PaperQueue:
    paper = PaperQueue()
    monkeypatch.setattr(module.roq, "connect", lambda *_, **__: paper)
    return paper


@pytest.mark.parametrize("style", ["batches", "messages"])
def test_every_message_is_published_acknowledged_and_counted(style: str, queue: PaperQueue) -> None:
    sends, takes = publisher(style, OPTIONS), subscriber(style, OPTIONS)
    takes.open(RUN)
    sends.open(RUN)
    assert [topic for topic, _ in queue.published] == ["warm.bench.1."], "which nobody reads"
    payloads = payloads_of(RUN)
    sends.publish(RUN, payloads)
    assert queue.published[1:] == [("bench.1.", each) for each in (payloads * 4)[:10]]
    assert queue.calls[-1] == "flush"
    lists = [each for each in queue.calls if isinstance(each, int)]
    assert lists == ([3, 3, 3, 1] if style == "batches" else [])
    takes.receive(RUN)
    queue.published.pop()
    queue.published.append(("bench.1.", bytes(7)))
    with pytest.raises(AssertionError):
        takes.receive(RUN)
    sends.close()
    takes.close()
    assert queue.calls[-2:] == ["close", "close"]


def test_at_a_rate_messages_have_ages_and_acknowledgements_are_awaited_at_the_end(
    queue: PaperQueue,
) -> None:
    sends, takes = publisher("messages", OPTIONS), subscriber("messages", OPTIONS)
    sends.open(PACED)
    takes.open(PACED)
    sends.pace(PACED)
    assert queue.calls[-1] == "flush"
    assert len(takes.ages(PACED)) == len(queue.payloads()) == PACED.count


def test_acknowledgements_one_by_one_are_timed(queue: PaperQueue) -> None:
    sends: Any = publisher("acked", OPTIONS)
    sends.open(PACED)
    sends.pace(PACED)
    assert queue.calls.count("acknowledged") == len(sends.ack_us) == PACED.count


def test_a_measurement_in_which_something_was_lost_is_ended(queue: PaperQueue) -> None:
    with pytest.raises(BenchmarkError, match="lost: three messages"):
        refuse(Gap("t", "three messages"))
    subscriber("batches", OPTIONS).open(RUN)
    assert queue.calls == [("subscriber", "q", {"topic": "bench.1.", "on_gap": refuse})]


def test_both_styles_share_the_cluster() -> None:
    cluster: Any = SimpleNamespace()
    batches, messages = module.contenders(cluster)
    assert (batches.key, messages.key) == ("roq_batches", "roq_messages")
    assert batches.server is messages.server is cluster
    assert batches.kind == messages.kind
