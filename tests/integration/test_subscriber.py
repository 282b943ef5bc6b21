"""Subscribers against real exchanges: starts, slow users, stopped processes, clear refusals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fake_control import FakeControl
from queue_processes import QueueProcesses
from tcp_relay import TcpRelay
from waiting import eventually

from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher
from roq.client.subscribe.subscriber import Subscriber
from roq.errors import Closed, InvalidRequest, QueueNotFound, Unavailable
from roq.model import ExchangeInfo, Limits
from roq.read.message import Message
from roq.testing.faults import FaultyNetwork, parse_endpoint
from roq.testing.history import History, Verdict

pytestmark = pytest.mark.integration
LISTENING = Path(__file__).parents[1] / "support" / "listening.py"


@contextlib.contextmanager
def detoured(translate: Callable[[str], str]) -> Iterator[Engine]:
    engine = Engine(translate=translate)
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcesses]:
    with QueueProcesses(tmp_path_factory.mktemp("queue"), exchanges=2) as queue:
        yield queue


def subscribe(
    engine: Engine, queue: QueueProcesses, *args: object, **options: object
) -> Subscriber:
    return Subscriber(
        engine, [queue.control.address], queue.control.queue, *args, **options  # type: ignore[arg-type]
    )  # fmt: skip


def publish(engine: Engine, queue: QueueProcesses) -> Publisher:
    return Publisher(
        engine, [queue.control.address], queue.control.queue, publisher_id=os.urandom(16)
    )


def receive(subscriber: Subscriber, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        message = subscriber.receive(timeout=30)
        assert message is not None
        found.append(message.payload)
    return found


def test_what_is_published_after_it_returns_arrives(engine: Engine, queue: QueueProcesses) -> None:
    with publish(engine, queue) as publisher, subscribe(engine, queue, ["now.", "also."]) as sub:
        publisher.publish(b"1", topic="now.a")
        publisher.publish(b"no", topic="never")
        publisher.publish(b"2", topic="also.a")
        assert sorted(receive(sub, 2)) == [b"1", b"2"]
        assert sub.receive(timeout=0.05) is None


def test_a_broken_off_iteration_goes_on_where_it_was(engine: Engine, queue: QueueProcesses) -> None:
    payloads = [str(number).encode() for number in range(10)]
    with publish(engine, queue) as publisher, subscribe(engine, queue, "pieces") as sub:
        publisher.publish_many(payloads, topic="pieces")
        found = []
        for message in sub:
            found.append(message.payload)
            if len(found) == 3:
                break
        found += receive(sub, 2)
        for batch in sub.batches():
            found += batch.payloads
            if len(found) == 10:
                break
        assert found == payloads


def test_a_late_subscriber_can_read_from_the_earliest_an_offset_or_a_time(
    engine: Engine, queue: QueueProcesses
) -> None:
    with publish(engine, queue) as publisher:
        for number in range(3):
            publisher.publish(b"old%d" % number, topic="history")
            publisher.flush(timeout=30)
        moment = datetime.now(UTC)
        eventually(lambda: datetime.now(UTC) > moment)
        publisher.publish(b"new", topic="history")
        publisher.flush(timeout=30)
        everything = [b"old0", b"old1", b"old2", b"new"]
        with subscribe(engine, queue, "history", start="earliest") as sub:
            assert receive(sub, 4) == everything
        with subscribe(engine, queue, "history", start={"x1": 0, "x2": 0}) as sub:
            assert receive(sub, 4) == everything
        with subscribe(engine, queue, "history", start=moment) as sub:
            assert receive(sub, 1) == [b"new"]
            assert sub.stats().counts.lost == 0
        with subscribe(engine, queue, "history") as sub:
            assert sub.receive(timeout=0.05) is None


def test_a_start_does_not_wait_for_ever_for_an_exchange_that_answers_late(
    engine: Engine, queue: QueueProcesses
) -> None:
    with publish(engine, queue) as publisher:
        publisher.publish_many([bytes(1_000)] * 100, topic="much")
        publisher.publish(b"end", topic="much")
        publisher.flush(timeout=30)
        full = publisher.publish(b"more", topic="much").wait(30).exchange
    (late,) = (one for one in queue.control.exchanges if one.name != full)
    with FaultyNetwork() as network:
        network.add(late, delay_seconds=0.5)
        with (
            detoured(network.translate) as elsewhere,
            subscribe(
                elsewhere, queue, "much", start="earliest", buffer_bytes=1_000, timeout=30
            ) as sub,
        ):
            assert receive(sub, 102) == [*[bytes(1_000)] * 100, b"end", b"more"]
            assert sub.stats().counts.lost == 0


def test_large_messages_arrive_by_fetch(engine: Engine, queue: QueueProcesses) -> None:
    large = os.urandom(3_000_000)
    with publish(engine, queue) as publisher, subscribe(engine, queue, "large") as sub:
        for payload in (b"before", large, b"after"):
            publisher.publish(payload, topic="large")
        assert receive(sub, 3) == [b"before", large, b"after"]


def test_a_message_that_takes_longer_than_a_heartbeat_arrives(queue: QueueProcesses) -> None:
    with contextlib.ExitStack() as stack:
        relays: dict[str, str] = {}

        def slowly(address: str) -> str:
            if address == queue.control.address:
                return address
            if address not in relays:
                relay = TcpRelay(parse_endpoint(address), bytes_per_second=3_000_000)
                stack.callback(relay.close)
                relays[address] = f"tcp://{relay.address}"
            return relays[address]

        with (
            detoured(slowly) as engine,
            subscribe(engine, queue) as subscriber,
            publish(engine, queue) as publisher,
        ):
            for payload in (b"before", bytes(10_000_000), b"after"):
                publisher.publish(payload, topic="slow")
            publisher.flush(60)
            assert publisher.stats().connections == 1
            sizes = []
            while len(sizes) < 3:
                message = subscriber.receive(timeout=30)
                assert message is not None
                sizes.append(len(message.payload))
            assert sizes == [6, 10_000_000, 5]


def test_an_exchange_that_comes_later_is_read_from_its_beginning(
    engine: Engine, tmp_path: Path
) -> None:
    with QueueProcesses(tmp_path, exchanges=2) as queue:
        first, second = queue.control.exchanges
        queue.control.exchanges = [first]
        with subscribe(engine, queue) as sub:
            queue.control.exchanges = [second]
            with publish(engine, queue) as publisher:
                publisher.publish(b"early", topic="t")
            queue.control.exchanges = [first, second]
            assert receive(sub, 1) == [b"early"]


def test_a_user_who_is_slow_gets_everything_later(engine: Engine, queue: QueueProcesses) -> None:
    payloads = [bytes([number % 256]) * 10_000 for number in range(2_000)]
    with (
        publish(engine, queue) as publisher,
        subscribe(engine, queue, "slow", buffer_bytes=200_000) as sub,
    ):
        for payload in payloads:
            publisher.publish(payload, topic="slow")
        publisher.flush(timeout=60)
        assert receive(sub, len(payloads)) == payloads
        assert sub.stats().counts.lost == 0


class Raised(BaseException):
    """What a signal handler raises in the middle of something."""


def test_nothing_is_lost_or_doubled_when_signal_handlers_raise_while_it_is_read(
    engine: Engine, queue: QueueProcesses
) -> None:
    count = 40_000
    armed, messages, interruptions = True, list[Message](), 0

    def handler(_signal: int, _frame: object) -> None:
        if armed:
            raise Raised

    def publish_all() -> None:
        with publish(engine, queue) as publisher:
            for first in range(0, count, 50):
                publisher.publish_many([b"%d" % n for n in range(first, first + 50)], topic="alarm")

    sub = subscribe(engine, queue, "alarm")
    before = signal.signal(signal.SIGALRM, handler)
    thread = threading.Thread(target=publish_all)
    thread.start()
    deadline = time.monotonic() + 90
    message: Message | None = None
    had, in_vain = 0, 0
    try:
        while len(messages) < count and time.monotonic() < deadline:
            # Whoever is interrupted before he gets anything has longer the next time: this is
            # about what is lost, and not about how busy the machine is.
            in_vain, had = in_vain + 1 if len(messages) == had else 0, len(messages)
            patience = 2 ** min(in_vain, 8)
            try:
                signal.setitimer(
                    signal.ITIMER_REAL, (0.0005 + interruptions % 7 * 0.0003) * patience
                )
                while len(messages) < count:
                    message = sub.receive(timeout=5)
                    if message is None:
                        break
                    messages.append(message)
            except Raised:
                armed = False
                interruptions += 1
                if message is not None and message not in messages[-1:]:
                    messages.append(message)  # the handler raised between the two lines above
                armed = True
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        thread.join()
        sub.close()
    assert interruptions
    assert [int(message.payload) for message in messages] == list(range(count))


def test_a_user_who_stays_away_finds_what_came_meanwhile(
    engine: Engine, queue: QueueProcesses
) -> None:
    with publish(engine, queue) as publisher, subscribe(engine, queue, "away") as sub:
        publisher.publish(b"here", topic="away")
        assert receive(sub, 1) == [b"here"]
        publisher.publish_many([b"x" * 1_000] * 1_000, topic="away")
        publisher.flush(timeout=30)
        eventually(lambda: sub.stats().counts.delivered == 1_001)  # the I/O thread has read it
        assert len(receive(sub, 1_000)) == 1_000
        publisher.publish(b"back", topic="away")
        assert receive(sub, 1) == [b"back"]


def test_closing_from_another_thread_ends_the_iteration(
    engine: Engine, queue: QueueProcesses
) -> None:
    sub = subscribe(engine, queue)
    closer = threading.Timer(0.1, sub.close)
    closer.start()
    assert list(sub) == []
    closer.join()
    with pytest.raises(Closed):
        sub.receive(timeout=1)
    sub.close()


def test_an_event_loop_can_take_without_waiting(engine: Engine, queue: QueueProcesses) -> None:
    ready = threading.Event()
    with publish(engine, queue) as publisher, subscribe(engine, queue, "loop") as sub:
        sub._on_ready(ready.set)
        assert sub._take(10) == []
        publisher.publish(b"x", topic="loop")
        assert ready.wait(30)
        assert [batch.payloads for batch in sub._take(10)] == [[b"x"]]


def test_an_event_loop_that_takes_everything_at_once_is_read_for_again(
    engine: Engine, queue: QueueProcesses
) -> None:
    found: list[bytes] = []
    with (
        publish(engine, queue) as publisher,
        subscribe(engine, queue, "at-once", buffer_bytes=1) as sub,
    ):
        # What is there is taken before the feed has seen that it is too much.
        sub._on_ready(lambda: found.extend(p for batch in sub._take(100) for p in batch.payloads))
        payloads = [b"1st", b"2nd", b"3rd"]
        for payload in payloads:
            publisher.publish(payload, topic="at-once")
            publisher.flush(timeout=30)
        eventually(lambda: found == payloads)
        sub._on_ready(None)


def test_an_exchange_that_does_not_answer_is_named(engine: Engine) -> None:
    with FakeControl() as control:
        control.exchanges = [
            ExchangeInfo(
                number=7,
                epoch=1,
                generation=1,
                host="h",
                data="tcp://127.0.0.1:1",
                live="tcp://127.0.0.1:1",
            )
        ]
        with pytest.raises(Unavailable, match=r"no connection to exchange x7 at tcp://127.0.0.1:1"):
            Subscriber(engine, [control.address], control.queue, timeout=3.0)
        with pytest.raises(QueueNotFound):
            Subscriber(engine, [control.address], "other", timeout=30)


def test_impossible_wishes_are_refused(engine: Engine) -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    for start in ("yesterday", naive, {"a": 1}, {"x1": -1}, {"x1": "1"}, -1, 1.0, True, None):
        with pytest.raises(InvalidRequest):
            Subscriber(engine, ["tcp://127.0.0.1:1"], "q", start=start)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        Subscriber(engine, ["tcp://127.0.0.1:1"], "q", ["t"] * 65)


def stopped_while(
    tmp_path: Path, engine: Engine, limits: Limits, chunks: int, chunk: list[bytes]
) -> tuple[Verdict, dict[str, int]]:
    """One subscriber process is stopped while chunks are published; another one is not.

    Neither publisher nor the other one wait for it: all has come before it goes on.
    """
    history = History()
    with contextlib.ExitStack() as stack:
        queue = stack.enter_context(QueueProcesses(tmp_path, exchanges=1, limits=limits))
        stopped = stack.enter_context(
            subprocess.Popen(
                [sys.executable, LISTENING, queue.control.address, queue.control.queue, "stopped",
                 tmp_path / "stopped.history"],
                stdout=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
        stack.callback(stopped.kill)
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "ready\n"
        other = stack.enter_context(subscribe(engine, queue))
        publisher = stack.enter_context(publish(engine, queue))
        stopped.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        for _ in range(chunks):
            publisher.publish_many(chunk, topic="t")
            history.sent(publisher.id, "t", *chunk)
            receive(other, len(chunk))  # what it leaves behind would go out of a small ring
        publisher.flush(timeout=30)
        eventually(lambda: time.monotonic() - began > 3.0)  # longer than the heartbeats allow
        stopped.send_signal(signal.SIGCONT)
        publisher.publish(b"end", topic="t")
        history.sent(publisher.id, "t", b"end")
        publisher.flush(timeout=30)
        counters = json.loads(stopped.stdout.readline())
    return history.load(tmp_path / "stopped.history").check(), counters


def test_a_stopped_process_gets_everything_that_the_ring_holds(
    tmp_path: Path, engine: Engine
) -> None:
    verdict, counters = stopped_while(tmp_path, engine, Limits(), 100, [b"x" * 1_000] * 100)
    assert verdict.ok, verdict
    assert counters == {"lost": 0, "gaps": 0}


def test_a_stopped_process_counts_what_the_ring_does_not_hold(
    tmp_path: Path, engine: Engine
) -> None:
    limits = Limits(ring_bytes=4 * 1024 * 1024)
    verdict, counters = stopped_while(tmp_path, engine, limits, 400, [os.urandom(1_000)] * 100)
    assert (verdict.lost, verdict.duplicated, verdict.reordered, verdict.foreign) == (0, 0, 0, 0)
    assert verdict.counted_lost == counters["lost"] > 0
    assert counters["gaps"] > 0
