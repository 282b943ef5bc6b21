"""A publisher against real exchanges, over real sockets."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import pytest
from fake_control import FakeControl, ThreadExchange
from log_reader import messages
from tcp_relay import TcpRelay
from waiting import eventually

from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher
from roq.client.publish.receipt import Outcome
from roq.errors import (
    Closed,
    DeliveryError,
    InvalidName,
    InvalidRequest,
    MessageTooLarge,
    QueueNotFound,
    QueueStopped,
    RoQError,
    Unavailable,
    WouldBlock,
)
from roq.model import Limits
from roq.protocol.batch import read_header

pytestmark = pytest.mark.integration

LIMITS = Limits(message_bytes=100_000, window_batches=8, batch_messages=50, batch_bytes=8_192)


class Scene:
    """One queue with a real exchange, and publishers that are closed in the end."""

    def __init__(self) -> None:
        self.control = FakeControl(limits=LIMITS)
        self.exchanges: list[ThreadExchange] = []
        self.relays: list[TcpRelay] = []
        self.engine = Engine()
        self.engine.start()
        self.publishers: list[Publisher] = []

    def exchange(self, number: int = 1, counter: int = 1) -> ThreadExchange:
        exchange = ThreadExchange(self.control, number, counter)
        self.exchanges.append(exchange)
        self.control.exchanges.append(exchange.info)
        return exchange

    def publisher(self, queue: str = "orders", **options: object) -> Publisher:
        publisher = Publisher(
            self.engine,
            [self.control.address],
            queue,
            publisher_id=os.urandom(16),
            **{"connect_timeout": 30.0, **options},  # type: ignore[arg-type]
        )
        self.publishers.append(publisher)
        return publisher

    def relay(self, exchange: ThreadExchange) -> tuple[TcpRelay, Callable[[str], str]]:
        host, _, port = exchange.info.data.removeprefix("tcp://").rpartition(":")
        relay = TcpRelay((host, int(port)))
        self.relays.append(relay)
        return (
            relay,
            lambda address: f"tcp://{relay.address}" if address == exchange.info.data else address,
        )

    def log(self) -> dict[tuple[str, int], bytes | None]:
        return messages(self.exchanges)

    def close(self) -> None:
        for publisher in self.publishers:
            publisher.abort()
        self.engine.close()
        for exchange in self.exchanges:
            exchange.kill()
        for relay in self.relays:
            relay.close()
        self.control.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()


def fill(publisher: Publisher, size: int = 0) -> int:
    """Publish until it is refused; how many were taken, as the error's note says."""
    taken = 0
    try:
        while True:
            publisher.publish(b"%d" % taken + bytes(size))
            taken += 1
    except RoQError as error:
        error.taken = taken  # type: ignore[attr-defined]
        raise


def expected(topic: str, payloads: list[bytes]) -> dict[tuple[str, int], bytes]:
    return {(topic, number): payload for number, payload in enumerate(payloads)}


def test_everything_published_stands_in_the_log_in_order(scene: Scene) -> None:
    scene.exchange()
    payloads = [b"%d" % number for number in range(2_000)]
    with scene.publisher() as publisher:
        for payload in payloads:
            publisher.publish(payload, "eu.be")
        publisher.publish_many(payloads, "eu.nl")
    assert scene.log() == expected("eu.be", payloads) | expected("eu.nl", payloads)
    stats = publisher.stats()
    assert (stats.messages, stats.acked_messages) == (4_000, 4_000)
    assert stats.unacked_batches == stats.failed_messages == stats.unknown_messages == 0


def test_a_message_on_an_idle_link_leaves_at_once(scene: Scene) -> None:
    scene.exchange()
    publisher = scene.publisher(linger=1_000.0)
    status = publisher.publish(b"now").wait(30)
    assert (status.outcome, status.exchange) == (Outcome.OK, "x1")


def test_receipts_tell_where_their_batches_lie(scene: Scene) -> None:
    exchange = scene.exchange()
    others = scene.publisher()
    publisher = scene.publisher(offsets=True)
    receipts = []
    for number in range(300):
        receipts.append(publisher.publish(b"%d" % number, "mine"))
        others.publish(b"-", "others")
    statuses = [receipt.result(30) for receipt in dict.fromkeys(receipts)]
    assert {status.log for status in statuses} == {exchange.info.log}
    log = exchange.server.core.log
    for status, receipt in zip(statuses, dict.fromkeys(receipts), strict=True):
        assert status.offset is not None
        record = log.record(status.offset)
        assert record is not None
        header = read_header(bytes(record[2]))
        assert (header.publisher, header.count) == (publisher.id, receipt.count)
    assert len({status.offset for status in statuses}) == len(statuses)


def test_a_send_is_tried_at_another_exchange_within_its_time(scene: Scene) -> None:
    first = scene.exchange(1)
    publisher = scene.publisher(retry_times=2, delivery_timeout=120.0)
    assert publisher.send(b"before").exchange == "x1"
    scene.exchange(2)
    released = first.freeze()
    try:
        status = publisher.send(b"now", timeout=90.0)
        assert (status.outcome, status.exchange) == (Outcome.OK, "x2")
        told: list[str] = []
        future = publisher.send_async(b"later", callback=lambda told_: told.append(told_.exchange))
        assert future.result(30).exchange == "x2"
    finally:
        released.set()
    publisher.close()
    assert told == ["x2"]


def test_one_way_messages_arrive_and_hold_up_no_flush(scene: Scene) -> None:
    exchange = scene.exchange()
    publisher = scene.publisher()
    publisher.flush()
    released = exchange.freeze()
    try:
        receipt = publisher.publish(b"one way", "t", wait=False)
        publisher.flush(30)
        assert not receipt.done()
    finally:
        released.set()
    assert receipt.wait(30).ok
    assert publisher.stats().one_way_lost == 0
    assert scene.log() == expected("t", [b"one way"])


def test_messages_behind_a_busy_link_leave_without_a_flush(scene: Scene) -> None:
    scene.exchange()
    publisher = scene.publisher()
    receipts = [publisher.publish(b"x", f"topic {number}") for number in range(20)]
    assert all(receipt.wait(30).ok for receipt in receipts)


def test_messages_of_a_batch_share_their_receipt(scene: Scene) -> None:
    exchange = scene.exchange()
    publisher = scene.publisher(linger=30.0)
    released = exchange.freeze()
    publisher.publish(b"first, alone")
    receipts = {id(publisher.publish(b"x")) for _ in range(20)}
    assert len(receipts) == 1
    released.set()
    publisher.flush()


def test_bytes_like_payloads_are_taken_as_they_were(scene: Scene) -> None:
    scene.exchange()
    changing = bytearray(b"before")
    with scene.publisher() as publisher:
        publisher.publish(b"", "a")
        publisher.publish(memoryview(b"view"), "a")
        publisher.publish(changing, "a")
        publisher.publish_many([changing, memoryview(b"12"), b""], "b")
        publisher.publish_many((b"%d" % n for n in range(3)), "c")
        assert publisher.publish_many([], "c") == []
        changing[:] = b"after!"
    assert scene.log() == expected("a", [b"", b"view", b"before"]) | expected(
        "b", [b"before", b"12", b""]
    ) | expected("c", [b"0", b"1", b"2"])


def test_what_cannot_be_sent_is_refused_and_uses_no_sequence(scene: Scene) -> None:
    scene.exchange()
    with scene.publisher() as publisher:
        publisher.publish(b"0")
        with pytest.raises(TypeError, match="str"):
            publisher.publish("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            publisher.publish_many([b"1", 7])  # type: ignore[list-item]
        with pytest.raises(TypeError):
            publisher.publish_many(["text"])  # type: ignore[list-item]
        with pytest.raises(MessageTooLarge, match="100000"):
            publisher.publish(bytes(LIMITS.message_bytes + 1))
        with pytest.raises(MessageTooLarge):
            publisher.publish_many([bytes(LIMITS.message_bytes + 1)])
        with pytest.raises(InvalidName):
            publisher.publish(b"x", "t" * 300)
        publisher.publish(bytes(LIMITS.message_bytes))
    assert scene.log() == expected("", [b"0", bytes(LIMITS.message_bytes)])


def test_sizes_of_all_kinds_mix(scene: Scene) -> None:
    scene.exchange()
    sizes = [0, 1, 162, 163, 164, 165, 5_000, 8_191, 8_192, 8_193, 20_000, 3] * 12
    payloads = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    with scene.publisher() as publisher:
        for payload in payloads:
            publisher.publish(payload, "one")
        publisher.publish_many(payloads, "many")
        for start in range(0, len(payloads), 7):
            publisher.publish_many(payloads[start : start + 7], "few")
    log = scene.log()
    for topic in ("one", "many", "few"):
        assert {k: v for k, v in log.items() if k[0] == topic} == expected(topic, payloads)


def test_a_full_window_blocks_until_the_exchange_goes_on(scene: Scene) -> None:
    exchange = scene.exchange()
    publisher = scene.publisher()
    released = exchange.freeze()

    def release_who_waits() -> None:
        eventually(lambda: publisher.stats().window_waits > 0, "publish() does not wait")
        released.set()

    releaser = threading.Thread(target=release_who_waits)
    releaser.start()
    payloads = [b"%d" % number for number in range(2_000)]
    for payload in payloads:
        publisher.publish(payload)
    releaser.join()
    assert released.is_set()
    publisher.close()
    assert scene.log() == expected("", payloads)


def test_a_full_window_says_why_when_the_time_is_over(scene: Scene) -> None:
    exchange = scene.exchange()
    publisher = scene.publisher(timeout=0.1)
    released = exchange.freeze()
    reason = r"took nothing for 0\.1 s .*does not acknowledge"
    with pytest.raises(Unavailable, match=reason) as caught:
        fill(publisher)
    published = caught.value.taken  # type: ignore[attr-defined]
    with pytest.raises(Unavailable, match="not acknowledged within"):
        publisher.flush(0.05)
    released.set()
    publisher.flush(30)
    assert scene.log() == expected("", [b"%d" % number for number in range(published)])


def test_a_publisher_that_does_not_want_to_wait_is_told_so(scene: Scene) -> None:
    exchange = scene.exchange()
    publisher = scene.publisher(block=False)
    released = exchange.freeze()
    with pytest.raises(WouldBlock) as caught:
        fill(publisher)
    published = caught.value.taken  # type: ignore[attr-defined]
    released.set()
    publisher.flush(30)
    publisher.publish(b"%d" % published)
    publisher.flush(30)
    assert scene.log() == expected("", [b"%d" % number for number in range(published + 1)])


@pytest.mark.faults
def test_connections_that_break_lose_nothing(scene: Scene) -> None:
    exchange = scene.exchange()
    relay, translate = scene.relay(exchange)
    scene.engine.translate = translate
    publisher = scene.publisher()
    payloads = [b"%d" % number for number in range(3_000)]
    for number, payload in enumerate(payloads):
        publisher.publish(payload)
        if number % 600 == 300:
            before = publisher.stats().connections
            relay.cut()
            eventually(
                lambda seen=before: publisher.stats().connections > seen, "it was not noticed"
            )
            relay.mend()
    publisher.close()
    assert scene.log() == expected("", payloads)


@pytest.mark.faults
def test_another_exchange_takes_over_with_all_that_the_dead_one_had_acknowledged(
    scene: Scene,
) -> None:
    first = scene.exchange(1)
    publisher = scene.publisher()
    payloads = [b"%d" % number for number in range(1_000)]
    for payload in payloads[:600]:
        publisher.publish(payload)
    publisher.flush(30)
    scene.exchange(2)
    first.kill()
    for payload in payloads[600:]:
        publisher.publish(payload)
    publisher.close()
    assert messages(scene.exchanges[1:]) == expected("", payloads)
    assert publisher.stats().moves == 2
    assert publisher.stats().exchange == "x2"


def test_waiting_for_a_receipt_works_from_several_threads(scene: Scene) -> None:
    exchange = scene.exchange()
    publisher = scene.publisher()
    released = exchange.freeze()
    receipt = publisher.publish(b"x")
    assert receipt.wait(0.01).outcome is Outcome.PENDING
    outcomes: list[Outcome] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(receipt.wait(30).outcome)) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    released.set()
    for thread in threads:
        thread.join()
    assert outcomes == [Outcome.OK] * 5


def test_a_forked_child_is_refused_at_once_and_the_parent_goes_on(scene: Scene) -> None:
    scene.exchange()
    with scene.publisher() as publisher:
        publisher.publish(b"before").wait(30)
        # As if another thread held the lock, and a batch was open, when the process was forked.
        frozen = scene.exchanges[0].freeze()
        for _ in range(10):
            publisher.publish(b"open")
        with publisher._shell.lock, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            signal.alarm(30)
            refused = 0
            for attempt in (lambda: publisher.publish(b"child"), lambda: publisher.flush(30)):
                try:
                    attempt()
                except Closed:
                    refused += 1
            publisher.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        frozen.set()
        publisher.flush(30)
    assert [payload for _, payload in sorted(scene.log().items())] == [b"before"] + 10 * [b"open"]


def test_it_has_a_name_that_the_monitor_is_told(scene: Scene) -> None:
    scene.exchange()
    with scene.publisher(name="till-7") as publisher, scene.publisher() as other:
        assert publisher.name == "till-7"
        assert other.name.endswith(f":{os.getpid()}")
        told = [attach.name for attach in scene.control.attaches]
        assert told == ["till-7", other.name]
        eventually(
            lambda: {alive.name for alive in scene.control.alive} >= {"till-7", other.name},
            "both have said that they are alive",
        )
    with pytest.raises(InvalidName):
        scene.publisher(name="x" * 65)


def test_it_shows_what_it_is_without_waiting_for_anything(scene: Scene) -> None:
    scene.exchange()
    with scene.publisher(name="till-7") as publisher:
        publisher.publish(b"x").wait(30)
        shown: list[str] = []
        thread = threading.Thread(target=lambda: shown.append(repr(publisher)))
        with publisher._shell.lock:
            thread.start()
            thread.join(30)
        counts = "1 messages sent, 0 batches unacknowledged"
        assert shown == [f"<roq.Publisher 'till-7' of orders: connected, {counts}>"]
    assert "closed" in repr(publisher)
    assert repr(Publisher.__new__(Publisher)) == "<roq.Publisher>"


def test_opening_takes_as_long_as_it_may_and_no_longer(scene: Scene) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"could be reached in 0\.5 s"):
        scene.publisher(connect_timeout=0.5)
    assert 0.4 < time.monotonic() - began < 20
    with pytest.raises(InvalidRequest, match="connect_timeout"):
        scene.publisher(connect_timeout=0)


def test_threads_share_a_publisher(scene: Scene) -> None:
    scene.exchange()
    each = 2_000
    with scene.publisher() as publisher:

        def publish(name: int) -> None:
            for number in range(each):
                publisher.publish(b"%d %d" % (name, number), "shared")

        threads = [threading.Thread(target=publish, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    log = [payload for _, payload in sorted(scene.log().items()) if payload is not None]
    assert len(log) == 4 * each
    for name in range(4):
        own = [int(p.split()[1]) for p in log if p.startswith(b"%d " % name)]
        assert own == list(range(each))


def test_a_queue_that_does_not_exist_is_an_error_at_once(scene: Scene) -> None:
    with pytest.raises(QueueNotFound, match="other"):
        scene.publisher("other")
    with pytest.raises(InvalidName):
        scene.publisher("a/b")
    with pytest.raises(InvalidRequest):
        scene.publisher(delivery_timeout=0)


def test_a_stopped_queue_is_waited_for(scene: Scene) -> None:
    scene.exchange()
    scene.control.stop_queue()
    with pytest.raises(QueueStopped, match="stopped"):
        scene.publisher(connect_timeout=2.0)

    def start() -> None:
        scene.control.refusal = None

    threading.Timer(0.2, start).start()
    assert scene.publisher().publish(b"x").wait(30).ok


def test_no_exchange_in_time_says_what_was_tried(scene: Scene) -> None:
    with pytest.raises(Unavailable, match="no exchange of queue orders"):
        scene.publisher(connect_timeout=2.0)


@pytest.mark.faults
def test_a_queue_that_is_removed_ends_its_publishers(scene: Scene) -> None:
    exchange = scene.exchange()
    publisher = scene.publisher()
    scene.control.refusal = QueueNotFound("queue orders was removed")
    scene.control.silence()
    exchange.kill()
    receipt = publisher.publish(b"x")
    with pytest.raises(QueueNotFound):
        fill(publisher, 1_000)
    assert receipt.wait(30).outcome in {Outcome.FAILED, Outcome.UNKNOWN}
    with pytest.raises(DeliveryError):
        publisher.close()


@pytest.mark.faults
def test_what_cannot_be_delivered_is_raised_when_the_block_ends(scene: Scene) -> None:
    exchange = scene.exchange()

    def publish_into_the_void() -> None:
        with scene.publisher(timeout=0.3) as publisher:
            exchange.kill()
            scene.control.exchanges.clear()
            for _ in range(3):
                publisher.publish(b"x")

    with pytest.raises(DeliveryError, match="3 messages") as caught:
        publish_into_the_void()
    assert caught.value.messages == 3


@pytest.mark.faults
def test_what_is_not_acknowledged_in_time_is_given_up_and_reported_once(scene: Scene) -> None:
    exchange = scene.exchange()
    publisher = scene.publisher(delivery_timeout=0.3)
    released = exchange.freeze()
    receipt = publisher.publish(b"lost?")
    assert receipt.wait(30).outcome is Outcome.UNKNOWN
    with pytest.raises(DeliveryError, match="1 messages"):
        publisher.flush(0.05)
    released.set()
    publisher.flush(30)
    assert publisher.stats().unknown_messages == 1


def test_an_error_in_the_block_is_not_hidden(scene: Scene) -> None:
    scene.exchange()

    def fail() -> None:
        with scene.publisher() as publisher:
            publisher.publish(b"x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert scene.log() == expected("", [b"x"])


def test_a_closed_publisher_refuses_and_has_said_goodbye(scene: Scene) -> None:
    exchange = scene.exchange()
    publisher = scene.publisher()
    publisher.publish(b"x")
    publisher.close()
    publisher.close()
    with pytest.raises(Closed):
        publisher.publish(b"x")
    with pytest.raises(Closed):
        publisher.publish_many([b"x"])
    core = exchange.server.core
    eventually(lambda: not core.present(), "the exchange still counts it")
    eventually(lambda: bool(scene.control.left), "the monitor was not told")


def test_closing_the_connection_ends_publishers_that_are_left_open(scene: Scene) -> None:
    scene.exchange()
    publisher = scene.publisher()
    scene.engine.close()
    with pytest.raises(Closed):
        publisher.publish(b"x")
    publisher.abort()


class Raised(BaseException):
    """What a signal handler raises in the middle of something."""


def interrupt(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, *, after: bool) -> None:
    """A signal handler ends each call of this in the main thread, before or after its work."""
    method = getattr(owner, name)

    def call(*arguments: object) -> object:
        if threading.current_thread() is not threading.main_thread():
            return method(*arguments)
        if after:
            method(*arguments)
        raise Raised

    monkeypatch.setattr(owner, name, call)


both = pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
everywhere = pytest.mark.parametrize("where", ["sealing", "sending", "reading"])


@both
@everywhere
def test_a_publisher_that_is_interrupted_half_done_fails_and_tells_of_everything(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, where: str, after: bool
) -> None:
    scene.exchange()
    publisher = scene.publisher(linger=60.0)
    publisher.publish(b"first", topic="t").result(30)
    shell = publisher._shell
    owner, name = {
        "sealing": (shell.machine.links.chooser, "seal"),
        "sending": (shell._connections, "transmit"),
        "reading": (shell.machine.links, "receive"),
    }[where]

    def publish_and_wait() -> None:
        while True:
            publisher.publish(b"more", topic="t").wait(30)

    with monkeypatch.context() as signals:
        interrupt(signals, owner, name, after=after)
        with pytest.raises(Raised):
            publish_and_wait()
    with pytest.raises(Closed, match=r"queue orders was interrupted .* open another publisher"):
        publisher.publish(b"third", topic="t")
    assert publisher.failed
    stats = publisher.stats()
    unknown, lost = stats.unknown_messages, stats.failed_messages + stats.unknown_messages
    assert stats.messages == stats.acked_messages + lost
    assert lost == 1 or where == "reading"
    if lost:
        with pytest.raises(DeliveryError, match=f"whether {unknown} of them were is unknown"):
            publisher.close()
    arrived = [payload for _, payload in sorted(scene.log().items())]
    assert stats.acked_messages <= len(arrived) <= stats.messages
    with scene.publisher() as another:
        another.publish(b"new", topic="u").result(30)


@both
def test_an_end_that_is_interrupted_itself_is_done_once_more_and_leaves_no_connection(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    exchange = scene.exchange()
    publisher = scene.publisher(linger=60.0)
    publisher.publish(b"first").result(30)
    shell = publisher._shell
    for owner, name in ((shell._connections, "transmit"), (shell._connections, "retire")):
        with monkeypatch.context() as signals:
            interrupt(signals, owner, name, after=after)
            with pytest.raises(Raised):
                publisher.publish(b"x")
    with pytest.raises(Closed, match="was interrupted"):
        publisher.publish(b"x")
    assert shell._connections.all == ()
    with pytest.raises(DeliveryError):
        publisher.close()
    core = exchange.server.core
    eventually(lambda: not core.present(), "the exchange still has its connection")


def test_an_interrupted_publisher_ends_by_itself_though_nobody_calls(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.exchange()
    publisher = scene.publisher(linger=60.0)
    with monkeypatch.context() as signals:
        interrupt(signals, publisher._shell._connections, "transmit", after=False)
        with pytest.raises(Raised):
            publisher.publish(b"x")
    eventually(lambda: publisher.failed, "the background thread has not noticed")
    eventually(lambda: bool(publisher.trouble), "nobody was told")
    assert "interrupted" in publisher.trouble
    with pytest.raises(DeliveryError):
        publisher.close()
