"""RoQ's clients for event loops publish every message, wait for room, and count what they get."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from paper_roq import PaperLoopQueue

from roq.benchmarks.case import Run
from roq.benchmarks.clients import payloads_of
from roq.benchmarks.contenders import roq_aio as module
from roq.benchmarks.contenders.roq import refuse
from roq.benchmarks.contenders.roq_aio import publisher, subscriber

RUN = Run(topic="bench.1.", size=8, batch=3, count=10)
PACED = Run(topic="bench.1.", size=8, batch=1, count=4, rate=1_000)
OPTIONS = {"queue": "q", "cluster": "h:1"}


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> PaperLoopQueue:
    paper = PaperLoopQueue()

    async def connect(*_: Any, **__: Any) -> PaperLoopQueue:
        paper.calls.append("connect")
        return paper

    monkeypatch.setattr(module.roq.aio, "connect", connect)
    return paper


@pytest.mark.parametrize("style", ["batches", "messages"])
def test_every_message_is_published_acknowledged_and_counted(
    style: str, queue: PaperLoopQueue
) -> None:
    sends, takes = publisher(style, OPTIONS), subscriber(style, OPTIONS)
    takes.open(RUN)
    assert queue.calls[-1] == ("subscriber", "q", {"topic": "bench.1.", "on_gap": refuse})
    sends.open(RUN)
    payloads = payloads_of(RUN)
    sends.publish(RUN, payloads)
    assert queue.published[0][0] == "warm.bench.1."
    assert queue.published[1:] == [("bench.1.", each) for each in (payloads * 4)[:10]]
    assert queue.calls[-1] == "flush"
    lists = [each for each in queue.calls if isinstance(each, int)]
    assert lists == ([3, 3, 3, 1] if style == "batches" else [])
    takes.receive(RUN)
    queue.published[-1] = ("bench.1.", bytes(7))
    with pytest.raises(AssertionError):
        takes.receive(RUN)
    sends.close()
    takes.close()
    assert queue.calls[-2:] == ["close", "close"]


def test_a_message_for_which_there_is_no_room_waits_for_it_and_is_not_left_out(
    queue: PaperLoopQueue,
) -> None:
    sends = publisher("messages", OPTIONS)
    sends.open(RUN)
    queue.room = 2
    payloads = payloads_of(RUN)
    sends.publish(RUN, payloads)
    assert queue.payloads() == (payloads * 4)[:10]
    assert queue.calls.count("drain") == 3


def test_at_a_rate_messages_have_ages(queue: PaperLoopQueue) -> None:
    sends, takes = publisher("messages", OPTIONS), subscriber("messages", OPTIONS)
    sends.open(PACED)
    takes.open(PACED)
    sends.pace(PACED)
    assert queue.calls[-1] == "flush"
    assert len(takes.ages(PACED)) == len(queue.payloads()) == PACED.count


def test_a_client_connects_once_for_all_measurements(queue: PaperLoopQueue) -> None:
    takes = subscriber("batches", OPTIONS)
    takes.open(RUN)
    takes.close()
    takes.open(RUN)
    assert queue.calls.count("connect") == 1


def test_both_styles_share_the_cluster() -> None:
    cluster: Any = SimpleNamespace()
    batches, messages = module.contenders(cluster)
    assert (batches.key, messages.key) == ("roq_aio_batches", "roq_aio_messages")
    assert batches.server is messages.server is cluster
