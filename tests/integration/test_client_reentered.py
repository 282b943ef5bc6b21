"""Signal handlers, `__del__` methods, logging handlers and callbacks that use the client."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from fake_control import FakeControl, ThreadExchange
from log_reader import messages
from waiting import eventually

from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher
from roq.client.subscribe.subscriber import Subscriber
from roq.errors import Closed, DeliveryError, Reentered, Unavailable, WouldBlock

pytestmark = pytest.mark.integration

TRAFFIC_SECONDS = 1.0


class Hurry(Exception):
    """What a signal handler raises."""


class Scene:
    """One queue with one exchange."""

    def __init__(self) -> None:
        self.control = FakeControl()
        self.exchange = ThreadExchange(self.control, 1, 1)
        self.control.exchanges.append(self.exchange.info)
        self.engine = Engine()
        self.engine.start()

    def publisher(self) -> Publisher:
        return Publisher(
            self.engine, [self.control.address], self.control.queue,
            publisher_id=os.urandom(16), connect_timeout=30.0,
        )  # fmt: skip

    def subscriber(self) -> Subscriber:
        return Subscriber(self.engine, [self.control.address], self.control.queue, timeout=30.0)

    def payloads(self) -> list[bytes | None]:
        return list(messages([self.exchange]).values())

    def close(self) -> None:
        self.engine.close()
        self.exchange.kill()
        self.control.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[[], None], float], None]]:
    """Calls something again and again by a signal, until the test ends or it is told 0 seconds."""

    def start(call: Callable[[], None], seconds: float) -> None:
        signal.signal(signal.SIGALRM, lambda *_: call())
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)

    before = signal.getsignal(signal.SIGALRM)
    yield start
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_in_the_middle_of_its_own_work_every_call_is_refused_and_nothing_done(scene: Scene) -> None:
    with scene.publisher() as publisher, scene.subscriber() as subscriber:
        publisher.publish(b"x").wait(30)
        for guard in (publisher._shell.guard, subscriber._shell._guard):
            with guard.lock:
                for attempt in (publisher.close, publisher.abort, subscriber.close):
                    with pytest.raises(Reentered):
                        attempt()
        first = subscriber.receive(30)
        assert first is not None
        with publisher._shell.lock:
            for refused in (
                lambda: publisher.publish(b"no"),
                lambda: publisher.publish_many([b"no"]),
                lambda: publisher.flush(30),
            ):
                with pytest.raises(Reentered):
                    refused()
            assert publisher.state
            assert publisher.stats().batches == 1
        with subscriber._shell._lock:
            for refused in (lambda: subscriber.receive(0), subscriber.stats):
                with pytest.raises(Reentered):
                    refused()
            assert subscriber.trouble
        publisher.publish(b"y").wait(30)
        second = subscriber.receive(30)
        assert second is not None
        assert (first.payload, second.payload) == (b"x", b"y")


def test_a_signal_handler_may_publish_and_what_is_refused_is_not_published(
    scene: Scene, alarm: Callable[[Callable[[], None], float], None]
) -> None:
    accepted, refused = 0, 0

    def handle() -> None:
        nonlocal accepted, refused
        try:
            publisher.publish(b"handler", "t")
            accepted += 1
        except Reentered:
            refused += 1

    with scene.publisher() as publisher:
        alarm(handle, 0.0005)
        sent, deadline = 0, time.monotonic() + TRAFFIC_SECONDS
        while time.monotonic() < deadline:
            publisher.publish(b"program", "t")
            sent += 1
        alarm(lambda: None, 0)
        publisher.flush(30)
    payloads = scene.payloads()
    assert accepted + refused
    assert payloads.count(b"program") == sent
    assert payloads.count(b"handler") == accepted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_handler_that_raises_leaves_no_lock_taken(
    scene: Scene, alarm: Callable[[Callable[[], None], float], None]
) -> None:
    wanted = False

    def hurry() -> None:
        nonlocal wanted
        if wanted:
            wanted = False  # once in each attempt
            raise Hurry

    publisher, subscriber = scene.publisher(), scene.subscriber()
    ended: list[str] = []
    hurried, deadline = 0, time.monotonic() + TRAFFIC_SECONDS
    alarm(hurry, 0.003)
    while time.monotonic() < deadline:
        try:
            wanted = True
            while time.monotonic() < deadline:
                try:
                    publisher.publish(b"x" * 100)
                    with suppress(Unavailable):
                        publisher.flush(0.05)
                except (Closed, DeliveryError) as error:
                    wanted = False
                    ended.append(str(error))
                    publisher.abort()
                    publisher = scene.publisher()
                    wanted = True
                subscriber.receive(0)
                assert subscriber.state
            wanted = False
        except Hurry:
            hurried += 1
        assert not publisher._shell.guard.held()
        assert not subscriber._shell._guard.held()
    alarm(lambda: None, 0)
    assert hurried
    assert all("was interrupted" in text for text in ended)
    assert not publisher._shell._waiters.threads
    publisher.abort()
    subscriber.close()
    with scene.publisher() as another:
        another.publish(b"y").result(30)


def test_a_logging_handler_that_publishes_or_raises_ends_nothing(scene: Scene) -> None:
    class Publishing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                publisher.publish(b"a log line", "log")
            finally:
                records.append(record.getMessage())  # behind it: who looks here flushes then
            raise ZeroDivisionError

    records: list[str] = []
    logger, handler = logging.getLogger("roq.client"), Publishing()
    with scene.publisher() as publisher:
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        try:
            publisher.publish(b"x").on_settled(lambda: 1 / 0)
            with scene.publisher() as another:
                another.publish(b"y", "other").wait(30)
            eventually(lambda: any("a callback has raised" in line for line in records))
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
        publisher.flush(30)
        assert scene.engine.failure is None
    assert b"a log line" in scene.payloads()


def test_a_callback_that_raises_is_counted_and_ends_nothing(scene: Scene) -> None:
    with scene.publisher() as one, scene.publisher() as two:
        called = threading.Event()
        one.publish(b"x").on_settled(lambda: 1 / 0)
        one.publish(b"y").on_settled(called.set)
        assert called.wait(30)
        eventually(lambda: one.stats().callback_errors == 1)
        two.publish(b"z").result(30)
        assert scene.engine.failure is None
        assert two.stats().callback_errors == 0


def test_a_callback_may_publish_and_wait(scene: Scene) -> None:
    with scene.publisher() as publisher:
        outcomes: list[bool] = []
        publisher.publish(b"x").on_settled(
            lambda: outcomes.append(publisher.publish(b"y").wait(30).ok)
        )
        eventually(lambda: outcomes == [True])


def test_who_waits_for_each_answer_reads_it_alone_until_there_is_a_callback(scene: Scene) -> None:
    with scene.publisher() as publisher:
        shell = publisher._shell
        shell.away_seconds = 3_600.0

        def reads_alone() -> bool:
            publisher.publish(b"x").result(30)
            return not shell._connections.watched

        eventually(reads_alone)
        called = threading.Event()
        publisher.publish(b"y").on_settled(called.set)
        publisher.wait_for(lambda: False, 0.0)  # as another thread does
        assert called.wait(30)
        eventually(lambda: shell._connections.watched)
        eventually(lambda: shell._away_until < time.monotonic())
        shell._attend_until = 0.0
        eventually(reads_alone)
        publisher._block = False
        with pytest.raises(WouldBlock):
            publisher._wait_for_room(None, 30.0)
        eventually(lambda: shell._connections.watched)
        receipt = publisher.publish(b"z")
        receipt.wait(30)
    scene.engine.close()
    shell._away_until = time.monotonic() + 3_600.0
    receipt.on_settled(called.set)
