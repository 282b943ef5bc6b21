"""The core as a whole: time, presence, the end of the log, garbage."""

import pytest
from exchange_driver import EPOCH, NUMBER, QUEUE, Exchange, Publisher, exchange, publisher_id

from roq.exchange.events import (
    Garbled,
    Passed,
    Publish,
    Received,
    Stop,
    Subscribed,
    Unreachable,
    Unsubscribed,
)
from roq.exchange.machine import DESERTED_SECONDS, IDLE_SECONDS
from roq.machine import Tick
from roq.protocol import channel, documents
from roq.protocol.channel import END_TOPIC, PRESENCE_TOPIC, FetchRequest
from roq.protocol.entry import EntryKind, read_entry
from roq.protocol.version import WIRE_VERSION
from roq.timing import END_SECONDS, IDLE_AFTER_SECONDS

NONCE = PRESENCE_TOPIC + b"n" * 16


def test_the_end_of_the_log_is_published_again_and_again() -> None:
    publisher = Publisher(exchange())
    there = publisher.exchange
    publisher.hello()
    publisher.send()
    for _ in range(3):
        there.now = there.core.next_deadline()
        (effect,) = there.tell(Tick())
        assert isinstance(effect, Publish)
        topic, frame = effect.parts
        entry = read_entry(frame)
        assert topic == END_TOPIC
        assert (entry.kind, entry.offset, entry.previous) == (EntryKind.END, 1, 0)
        assert (entry.queue, entry.exchange, entry.generation) == (QUEUE, NUMBER, EPOCH)
        assert there.tell(Tick()) == []
        assert there.core.next_deadline() == there.now + END_SECONDS


def until_the_next_tick(there: Exchange) -> float:
    there.now = there.core.next_deadline()
    there.tell(Tick())
    return there.core.next_deadline() - there.now


def deserted(there: Exchange) -> float:
    """Let time pass until it is idle; gives how long that took."""
    since = there.now
    while not there.core.idle:
        assert until_the_next_tick(there) in {DESERTED_SECONDS, IDLE_SECONDS}
    return there.now - since


def test_an_exchange_that_nobody_uses_wakes_up_less_often() -> None:
    there = exchange()
    assert until_the_next_tick(there) == DESERTED_SECONDS
    there.tell(Subscribed(NONCE))
    assert until_the_next_tick(there) == END_SECONDS
    there.tell(Unsubscribed(NONCE))
    assert until_the_next_tick(there) == DESERTED_SECONDS
    publisher = Publisher(there)
    publisher.hello()
    assert until_the_next_tick(there) == END_SECONDS


def test_an_exchange_is_idle_when_nobody_has_come_for_ten_seconds() -> None:
    there = exchange()
    assert deserted(there) == IDLE_AFTER_SECONDS
    assert until_the_next_tick(there) == IDLE_SECONDS
    assert there.woken == 0


@pytest.mark.parametrize("who", ["publisher", "subscriber", "reader"])
def test_whoever_comes_to_an_idle_exchange_wakes_it_once(who: str) -> None:
    there = exchange()
    publisher = Publisher(there)

    def come() -> None:
        if who == "publisher":
            publisher.hello()
        elif who == "subscriber":
            there.tell(Subscribed(NONCE))
        else:
            there.tell(Received(b"reader", (channel.HEADS, b"")))

    deserted(there)
    come()
    come()
    assert there.woken == 1
    assert not there.core.idle
    assert there.core.next_deadline() == there.now
    if who == "reader":
        assert deserted(there) >= IDLE_AFTER_SECONDS


@pytest.mark.parametrize("who", ["publisher", "subscriber"])
def test_an_exchange_with_a_client_is_never_idle(who: str) -> None:
    there = exchange()
    if who == "publisher":
        Publisher(there).hello()
    else:
        there.tell(Subscribed(NONCE))
    while there.now < 3 * IDLE_AFTER_SECONDS:
        assert until_the_next_tick(there) == END_SECONDS
        assert not there.core.idle
    if who == "subscriber":
        there.tell(Unsubscribed(NONCE))
        assert deserted(there) >= IDLE_AFTER_SECONDS - END_SECONDS


def test_what_the_monitor_says_does_not_wake_an_idle_exchange() -> None:
    there = exchange()
    deserted(there)
    there.tell(Passed(publisher_id("p"), 3))
    assert (there.core.idle, there.woken) == (True, 0)


def test_a_presence_subscription_is_answered_on_its_own_topic() -> None:
    there = exchange()
    (effect,) = there.tell(Subscribed(NONCE))
    assert isinstance(effect, Publish)
    assert effect.parts[0] == NONCE
    assert read_entry(effect.parts[1]).kind == EntryKind.PRESENCE
    assert there.tell(Subscribed(b"eu.")) == []
    assert there.core.subscriptions.subscribers == 1
    there.tell(Unsubscribed(NONCE))
    assert there.core.subscriptions.subscribers == 0


def test_subscriptions_that_no_reader_makes_are_counted() -> None:
    there = exchange()
    there.tell(Subscribed(b"x" * 300))
    assert there.core.counters.bad_subscriptions == 1


def test_a_message_with_the_wrong_number_of_frames_is_answered() -> None:
    there = exchange()
    there.tell(Garbled(b"r"))
    ((letter, _),) = there.answers(b"r")
    assert letter == channel.REFUSED
    assert there.core.counters.malformed == 1


def test_a_connection_that_is_gone_takes_its_link_and_its_fetch_along() -> None:
    publisher = Publisher(exchange())
    there = publisher.exchange
    publisher.hello()
    publisher.send()
    there.core.fetches.start(
        publisher.route, FetchRequest(id=1, queue=QUEUE, generation=EPOCH, wants=[(b"t", 0, 1)])
    )
    there.tell(Unreachable(publisher.route))
    there.tell(Unreachable(b"nobody"))
    assert there.core.present() == []
    assert len(there.core.fetches) == 0
    assert not publisher.send()


def test_stopping_publishes_the_end_at_once() -> None:
    (effect,) = exchange().tell(Stop())
    assert isinstance(effect, Publish)
    assert effect.parts[0] == END_TOPIC


def test_a_publisher_that_left_for_good_still_counts_in_the_totals() -> None:
    publisher = Publisher(exchange(publishers=1))
    publisher.hello()
    publisher.send(count=5)
    publisher.exchange.settle()
    publisher.exchange.tell(Unreachable(publisher.route))
    other = Publisher(publisher.exchange, name="other")
    other.hello()
    other.send(count=2)
    messages, size, batches = publisher.exchange.core.totals()
    assert (messages, batches) == (7, 2)
    assert 0 < size < 100


def test_the_answer_to_a_refused_hello_says_what_to_do() -> None:
    publisher = Publisher(exchange())
    answer = publisher.hello(version=9)
    assert isinstance(answer, channel.Refused)
    assert "version 9" in answer.text
    assert f"version {WIRE_VERSION}" in answer.text
    assert documents.encode(answer)
