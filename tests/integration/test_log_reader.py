"""Reading the log of a real exchange by offset, also when its connection breaks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest
from fake_control import FakeControl, ThreadExchange
from tcp_relay import TcpRelay

from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher
from roq.errors import Closed, StaleEpoch, Unavailable
from roq.model import Limits
from roq.read import log_reader
from roq.read.log_reader import LogReader
from roq.testing.faults import parse_endpoint

pytestmark = pytest.mark.integration

SMALL_RING = Limits(ring_bytes=64 * 1024, batch_messages=10)


@pytest.fixture
def control() -> Iterator[FakeControl]:
    control = FakeControl(limits=SMALL_RING)
    yield control
    control.close()


@pytest.fixture
def exchange(control: FakeControl) -> Iterator[ThreadExchange]:
    exchange = ThreadExchange(control)
    control.exchanges = [exchange.info]
    yield exchange
    exchange.kill()


def reader(control: FakeControl, exchange: ThreadExchange, **options: object) -> LogReader:
    return LogReader(
        str(options.get("address", exchange.info.data)), control.queue_id, number=1,
        generation=exchange.info.epoch, timeout=float(str(options.get("timeout", 30.0))),
    )  # fmt: skip


def publish(control: FakeControl, payloads: list[bytes], topic: str) -> None:
    engine = Engine()
    engine.start()
    try:
        with Publisher(
            engine, [control.address], control.queue, publisher_id=os.urandom(16)
        ) as publisher:
            publisher.publish_many(payloads, topic=topic)
    finally:
        engine.close()


def test_what_was_published_stands_in_the_log(
    control: FakeControl, exchange: ThreadExchange
) -> None:
    sent = [b"%d" % index for index in range(100)]
    publish(control, sent, "eu.be")
    publish(control, [b"other"], "us")
    with reader(control, exchange) as log:
        ends = log.ends()
        everything = list(log.read(ends.floor, ends.end))
        assert [batch.offset for batch in everything] == list(range(ends.floor, ends.end))
        european = list(log.read(0, ends.end, prefixes=(b"eu.",)))
        assert [payload for batch in european for payload in batch.payloads()] == sent
        assert {batch.topic for batch in european} == {b"eu.be"}
        assert log.evicted == 0


def test_a_part_ends_where_it_was_to_end_and_at_the_end_of_the_log(
    control: FakeControl, exchange: ThreadExchange
) -> None:
    publish(control, [b"x"] * 100, "t")
    with reader(control, exchange) as log:
        assert [batch.offset for batch in log.read(2, 5)] == [2, 3, 4]
        end = log.ends().end
        assert [batch.offset for batch in log.read(end - 1, end + 50)] == [end - 1]
        assert list(log.read(end + 10, end + 20)) == []


def test_what_has_left_the_log_is_counted(control: FakeControl, exchange: ThreadExchange) -> None:
    publish(control, [b"x" * 1_000] * 1_000, "t")
    with reader(control, exchange) as log:
        ends = log.ends()
        assert ends.floor > 0
        assert [batch.offset for batch in log.read(0, ends.end)] == list(
            range(ends.floor, ends.end)
        )
        assert log.evicted == ends.floor


def test_a_time_finds_its_offset(control: FakeControl, exchange: ThreadExchange) -> None:
    publish(control, [b"before"], "t")
    with reader(control, exchange) as log:
        end = log.ends().end
        assert log.seek(0) == 0
        assert log.seek((int(time.time()) + 3_600) * 1_000_000) == end


def test_a_connection_that_breaks_is_made_anew(
    control: FakeControl, exchange: ThreadExchange
) -> None:
    publish(control, [b"x" * 1_000] * 40, "t")
    host, _, port = exchange.info.data.removeprefix("tcp://").rpartition(":")
    relay = TcpRelay((host, int(port)))
    try:
        with reader(control, exchange, address=f"tcp://{relay.address}") as log:
            ends = log.ends()
            found = []
            for batch in log.read(ends.floor, ends.end):
                found.append(batch.offset)
                if len(found) == 1:
                    relay.cut()
                    threading.Timer(0.3, relay.mend).start()
            assert found == list(range(ends.floor, ends.end))
    finally:
        relay.close()


def test_an_exchange_that_does_not_answer_is_named(
    control: FakeControl, exchange: ThreadExchange
) -> None:
    released = exchange.freeze()
    try:
        with (
            reader(control, exchange, timeout=0.3) as log,
            pytest.raises(Unavailable, match="x1 at tcp://"),
        ):
            log.ends()
    finally:
        released.set()


def test_the_log_of_another_life_is_not_taken_for_this_one(
    control: FakeControl, exchange: ThreadExchange
) -> None:
    publish(control, [b"x"], "t")
    with LogReader(
        exchange.info.data, control.queue_id, number=1, generation=exchange.info.epoch - 1
    ) as log:
        with pytest.raises(StaleEpoch, match="started"):
            log.ends()
        with pytest.raises(StaleEpoch):
            list(log.read(0, 1))
    with (
        LogReader(exchange.info.data, b"f" * 16, number=1) as log,
        pytest.raises(StaleEpoch, match="another queue"),
    ):
        log.ends()


def test_a_closed_reader_says_so(control: FakeControl, exchange: ThreadExchange) -> None:
    log = reader(control, exchange)
    log.close()
    log.close()
    with pytest.raises(Closed):
        log.ends()


def test_a_batch_that_takes_longer_than_a_question_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The relay needs about one second for the batch, the reader asks again after 0.3 s first."""
    monkeypatch.setattr(log_reader, "ASK_AGAIN_SECONDS", 0.3)
    control = FakeControl(limits=Limits())
    exchange = ThreadExchange(control)
    control.exchanges = [exchange.info]
    relay = TcpRelay(parse_endpoint(exchange.info.data), bytes_per_second=4_000_000)
    try:
        publish(control, [bytes(4_000_000)], "t")
        with reader(control, exchange, address=f"tcp://{relay.address}") as log:
            (batch,) = log.read(0, 1)
        assert len(batch.data) > 4_000_000
    finally:
        relay.close()
        exchange.kill()
        control.close()
