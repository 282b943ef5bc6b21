"""What a reader and its owner say to each other is said, understood and kept."""

from typing import get_args

from vocabulary import is_kept, kinds, unsaid

from roq.machine import Tick
from roq.model import ExchangeInfo
from roq.read import events
from roq.read.offset_chain import LogGap
from roq.read.reader import Reader

INFO = ExchangeInfo(number=3, epoch=12, generation=9, host="h", data="d", live="l")
EVENTS: list[events.Event] = [
    events.DataUp(),
    events.Answered([b"\xffh", b"no document"]),
    events.Answered([b"nothing"]),
    events.Verify(10.0),
    events.Refetch(b"t", 7),
    events.Pause(),
    Tick(),
    events.Resume(),
    events.DataDown(),
]


def reader(start: events.Start) -> Reader:
    return Reader(INFO, b"q" * 16, [b"t"], start, nonce=b"n" * 16, streams=True, now=10.0)


def test_every_word_is_an_event_or_an_effect() -> None:
    assert unsaid(events, events.Start) == []
    assert kinds(EVENTS) == set(get_args(events.Event))
    assert LogGap in get_args(events.Effect)


def test_a_reader_takes_every_event_wherever_it_begins() -> None:
    for at in events.From:
        for below in events.BelowFloor:
            reading = reader(events.Start(at, 5, below))
            for event in EVENTS:
                effects = reading.handle(event, 10.0)
                assert kinds(effects) <= set(get_args(events.Effect))
                reading.check()


def test_what_was_said_cannot_be_changed() -> None:
    effects = [
        events.Ask([b""]), events.Subscribe(b"t"), events.Unsubscribe(b"t"),
        events.StreamsFound([]), events.Confirmed(), events.Gone(b"t", 7),
    ]  # fmt: skip
    assert kinds(effects) | {LogGap} == set(get_args(events.Effect))
    said = [*EVENTS, *effects, events.Start()]
    assert [each for each in said if not isinstance(each, Tick) and not is_kept(each)] == []


def test_who_says_nothing_reads_what_comes_and_else_what_is_kept() -> None:
    assert events.Start() == events.Start(events.From.LATEST, 0, events.BelowFloor.EARLIEST)


def test_where_reading_begins_is_said_in_the_words_that_users_write() -> None:
    assert {each.value for each in events.From} == {"latest", "earliest", "offset", "time", "new"}
    assert {each.value for each in events.BelowFloor} == {"earliest", "latest", "error"}
