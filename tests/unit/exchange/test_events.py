"""What shell and core say to each other is said, understood and kept."""

from typing import get_args

import exchange_driver
from exchange_driver import QUEUE, publisher_id
from vocabulary import is_kept, kinds, unsaid

from roq.exchange import events
from roq.machine import Tick
from roq.protocol.control import OrderAsk, OrderTold

ASKED = {"queue_id": QUEUE, "asker": (2, 7)}
EVENTS: list[events.Event] = [
    events.Received(b"route", (b"\xffH", b"nothing")),
    events.Garbled(b"route"),
    events.Unreachable(b"route"),
    events.Subscribed(b"orders"),
    events.Unsubscribed(b"orders"),
    events.Passed(publisher_id("p"), 3, ("tcp://127.0.0.1:6002",)),
    OrderAsk(**ASKED, questions=[]),
    OrderTold(**ASKED, answers=[]),
    Tick(),
    events.Stop(),
]


def test_every_word_is_an_event_or_an_effect() -> None:
    assert unsaid(events) == []
    assert kinds(EVENTS) == set(get_args(events.Event))


def test_the_core_takes_every_event() -> None:
    exchange = exchange_driver.exchange()
    for event in EVENTS:
        exchange.tell(event)


def test_what_was_said_cannot_be_changed() -> None:
    said = [*EVENTS, events.Send(b"r", (b"\xffA",)), events.Publish((b"t", b"e")), events.Woken()]
    ours = [each for each in said if type(each).__module__ == events.__name__]
    assert [each for each in ours if not is_kept(each)] == []


def test_where_a_publisher_has_gone_need_not_be_known() -> None:
    assert events.Passed(publisher_id("p"), 3).addresses == ()
