"""Requests of NATS are answered with what was asked, and as many as are wanted."""

from __future__ import annotations

import sys

import pytest
from paper_nats import PaperNats

from roq.benchmarks.case import Run
from roq.benchmarks.clients import payloads_of
from roq.benchmarks.contenders.nats_requests import SUBJECT, publisher, subscriber

RUN = Run(topic="bench.1.", size=8, batch=3, count=10)
PACED = Run(topic="bench.1.", size=8, batch=1, count=4, rate=1_000)


@pytest.fixture
def nats(monkeypatch: pytest.MonkeyPatch) -> PaperNats:
    paper = PaperNats()
    monkeypatch.setitem(sys.modules, "nats", paper)  # type: ignore[arg-type]
    return paper


def test_every_request_is_answered_and_one_before_the_measurement(nats: PaperNats) -> None:
    answers, asks = subscriber("", {"url": "nats://a"}), publisher("", {"url": "nats://a"})
    answers.open(RUN)
    answers.open(RUN)
    assert nats.urls == ["nats://a"], "it serves once, for all measurements"
    asks.open(RUN)
    payloads = payloads_of(RUN)
    asks.publish(RUN, payloads)
    subjects, asked = zip(*nats.published, strict=True)
    assert set(subjects) == {SUBJECT}
    assert asked[0] == bytes(8)
    assert len(asked) == 1 + RUN.count
    assert set(asked[1:]) <= set(payloads)
    assert (answers.ages(RUN), answers.receive(RUN)) == ([], None)


def test_at_a_rate_the_time_of_each_response_is_kept(nats: PaperNats) -> None:
    answers, asks = subscriber("", {"url": "a"}), publisher("", {"url": "a"})
    answers.open(PACED)
    asks.open(PACED)
    asks.pace(PACED)
    assert len(asks.ack_us) == PACED.count
    asks.close()
    assert nats.closed == 1


def test_an_answer_of_another_size_is_no_measurement(
    nats: PaperNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asks = subscriber("", {"url": "a"}), publisher("", {"url": "a"})
    answers.open(RUN)
    asks.open(RUN)
    with pytest.raises(AssertionError):
        asks.publish(RUN, [bytes(7)])
    request = nats.request

    async def short(subject: str, payload: bytes, **waits: float) -> object:
        return await request(subject, payload[1:], **waits)

    monkeypatch.setattr(nats, "request", short)
    with pytest.raises(AssertionError):
        asks.open(RUN)
