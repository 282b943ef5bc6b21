"""Requests of RabbitMQ: each reply finds its request by number, and nothing is kept by anybody."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from roq.benchmarks.case import Run
from roq.benchmarks.clients import payloads_of
from roq.benchmarks.contenders.rabbitmq_requests import QUEUE, REPLY_TO, publisher, subscriber

RUN = Run(topic="bench.1.", size=8, batch=3, count=10)
PACED = Run(topic="bench.1.", size=8, batch=1, count=4, rate=1_000)


class PaperRabbit:
    """The library, its broker, and an echo behind `QUEUE` that answers in between twice."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.told: dict[str, Callable[[Any], Awaitable[None]]] = {}
        self.confirms: list[bool] = []
        self.answered: list[Any] = []
        self.closed = self.connected = 0
        self.default_exchange = self
        self._queue = ""

    def Message(self, body: bytes, **more: Any) -> Any:  # noqa: N802 - as the library has it
        return SimpleNamespace(body=body, **{"reply_to": None, **more})

    async def connect(self, _url: str, **waits: float) -> PaperRabbit:
        assert waits["timeout"] > 0
        self.connected += 1
        return self

    async def channel(self, *, publisher_confirms: bool) -> PaperRabbit:
        self.confirms.append(publisher_confirms)
        return self

    async def get_queue(self, name: str, *, ensure: bool) -> PaperRabbit:
        assert not ensure, "there is no such queue, and none is made"
        self._queue = name
        return self

    async def declare_queue(self, name: str) -> PaperRabbit:
        self._queue = name
        return self

    async def consume(self, take: Callable[[Any], Awaitable[None]], *, no_ack: bool) -> None:
        assert no_ack
        self.told[self._queue] = take

    async def publish(self, message: Any, key: str, *, mandatory: bool) -> None:
        assert not mandatory
        if key != QUEUE:
            self.answered.append((key, message))
            return
        self.asked.append(message)
        for number in ("foreign", message.correlation_id, message.correlation_id):
            reply = SimpleNamespace(body=message.body, correlation_id=number)
            await self.told[REPLY_TO](reply)

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def rabbit(monkeypatch: pytest.MonkeyPatch) -> PaperRabbit:
    paper = PaperRabbit()
    monkeypatch.setitem(sys.modules, "aio_pika", paper)  # type: ignore[arg-type]
    return paper


def test_every_request_has_a_number_of_its_own_and_its_reply(rabbit: PaperRabbit) -> None:
    asks = publisher("", {"url": "amqp://a"})
    asks.open(RUN)
    asks.publish(RUN, payloads_of(RUN))
    assert len(rabbit.asked) == 1 + RUN.count
    assert len({each.correlation_id for each in rabbit.asked}) == 1 + RUN.count
    assert {each.reply_to for each in rabbit.asked} == {REPLY_TO}
    assert rabbit.confirms == [False]
    asks.close()
    assert rabbit.closed == 1


def test_a_reply_of_another_size_is_no_measurement(rabbit: PaperRabbit) -> None:
    asks = publisher("", {"url": "amqp://a"})
    asks.open(RUN)
    with pytest.raises(AssertionError):
        asks.publish(RUN, [bytes(7)])


def test_at_a_rate_the_time_of_each_reply_is_kept(rabbit: PaperRabbit) -> None:
    asks = publisher("", {"url": "amqp://a"})
    asks.open(PACED)
    asks.pace(PACED)
    assert len(asks.ack_us) == PACED.count


def test_the_service_answers_under_the_number_of_the_request(rabbit: PaperRabbit) -> None:
    answers: Any = subscriber("", {"url": "amqp://a"})
    answers.open(RUN)
    answers.open(RUN)
    assert (rabbit.connected, rabbit.confirms) == (1, [False]), "it serves once"
    asked = SimpleNamespace(body=b"1", correlation_id="7", reply_to="there")
    asyncio.run(rabbit.told[QUEUE](asked))  # type: ignore[arg-type]
    ((key, reply),) = rabbit.answered
    assert (key, reply.body, reply.correlation_id) == ("there", b"1", "7")
