"""Bare clients send every message once, in batches, and refuse to measure what is not all there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import zmq
from one_context import OneContext

from roq.benchmarks.case import Run
from roq.benchmarks.clients import payloads_of, stamp
from roq.benchmarks.contenders import zmq_clients
from roq.benchmarks.contenders.zmq_clients import BarePublisher, BareSubscriber, decode, encode

RUN = Run(topic="bench.1.", size=8, batch=3, count=10, rate=1_000)
LOCAL = "tcp://127.0.0.1:*"


class Hub:
    """Takes what is pushed to it, and publishes."""

    def __init__(self) -> None:
        self.library = OneContext()
        context = self.library.context
        self.pull, self.pub = context.socket(zmq.PULL), context.socket(zmq.PUB)
        self.data, self.live = (self._bind(each) for each in (self.pull, self.pub))

    @staticmethod
    def _bind(socket: zmq.Socket[bytes]) -> str:
        socket.bind(LOCAL)
        return socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def taken(self, count: int) -> list[tuple[bytes, list[bytes]]]:
        """What has come, until so many messages have."""
        found: list[tuple[bytes, list[bytes]]] = []
        while sum(len(payloads) for _, payloads in found) < count:
            assert self.pull.poll(20_000)
            topic, data = self.pull.recv_multipart()
            found.append((topic, decode(data)[0]))
        assert not self.pull.poll(0)
        return found

    def open(self, subscriber: BareSubscriber) -> None:
        """Pass probes on until the subscription is in force."""
        there = threading.Thread(target=subscriber.open, args=(RUN,))
        there.start()
        while there.is_alive():
            if self.pull.poll(10):
                self.pub.send_multipart(self.pull.recv_multipart())
        there.join()

    def send(self, topic: bytes, *batches: list[bytes]) -> None:
        for each in batches:
            self.pub.send_multipart([topic, encode((each, None))])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub()
    monkeypatch.setattr(zmq_clients, "zmq", made.library)
    yield made
    made.library.close()


@pytest.fixture
def subscriber(hub: Hub) -> Iterator[BareSubscriber]:
    made = BareSubscriber(zmq.PUSH, hub.data, hub.live)
    hub.open(made)
    yield made
    made.close()


def test_a_publisher_sends_whole_batches_and_the_rest(hub: Hub) -> None:
    payloads = payloads_of(RUN)
    BarePublisher(zmq.PUSH, hub.data).publish(RUN, payloads)
    found = hub.taken(RUN.count)
    assert [each for _, batch in found for each in batch] == (payloads * 4)[:10]
    assert [len(batch) for _, batch in found] == [3, 3, 3, 1]
    assert {topic for topic, _ in found} == {b"bench.1."}


def test_at_a_rate_messages_are_sent_one_by_one(hub: Hub) -> None:
    BarePublisher(zmq.PUSH, hub.data).pace(RUN)
    assert [len(batch) for _, batch in hub.taken(RUN.count)] == [1] * 10


def test_a_subscriber_takes_its_topic_alone_and_no_probe(
    hub: Hub, subscriber: BareSubscriber
) -> None:
    hub.send(b"bench.2.", [bytes(9)] * 10)
    hub.send(b"bench.1.", [bytes(8)] * 9, [bytes(8)])
    subscriber.receive(RUN)


def test_messages_of_another_size_are_no_measurement(hub: Hub, subscriber: BareSubscriber) -> None:
    hub.send(b"bench.1.", [bytes(7)] * 10)
    with pytest.raises(AssertionError):
        subscriber.receive(RUN)


def test_ages_are_one_for_each_message(hub: Hub, subscriber: BareSubscriber) -> None:
    hub.send(b"bench.1.", *[[stamp(8)]] * 10)
    ages: list[Any] = subscriber.ages(RUN)
    assert len(ages) == 10
    assert all(each > 0.0 for each in ages)
