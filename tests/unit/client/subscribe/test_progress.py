"""When a subscriber tells its monitor how far it has read, and what it says that it waits for."""

from __future__ import annotations

from roq.client.subscribe.progress import NEWS_SECONDS, Progress, oldest
from roq.client.subscribe.stream import Held, Stream
from roq.model import ExchangeInfo, LogId, PublisherId
from roq.protocol.batch import Kind
from roq.protocol.channel import END_TOPIC
from roq.protocol.entry import EntryKind, pack_entry
from roq.read.events import From, Start
from roq.read.reader import Reader

QUEUE = b"q" * 16
X1, X2 = (1, 7), (2, 8)


def reader(source: LogId) -> Reader:
    number, epoch = source
    info = ExchangeInfo(number=number, epoch=epoch, generation=epoch, host="h", data="d", live="l")
    return Reader(info, QUEUE, [b""], Start(From.NEW), nonce=b"n" * 16, streams=False, now=0.0)


class Script:
    def __init__(self, *sources: LogId) -> None:
        self.progress = Progress()
        self.readers = {source: reader(source) for source in sources}
        self.now = 10.0

    def verify(self, source: LogId, end: int) -> None:
        self.readers[source].chain.advance(end)
        self.readers[source].verification.verified_as_of = self.now

    def end(self, source: LogId, end: int) -> None:
        frame = pack_entry(EntryKind.END, source[0], QUEUE, source[1], end, 0, 0)
        self.readers[source].live([END_TOPIC, frame], self.now)

    def is_news(self) -> bool:
        return self.progress.is_news(self.readers, self.now)

    def report(self, **put_aside: int) -> list[tuple[int, int, int]]:
        aside = {X1: put_aside["x1"]} if put_aside else {}
        return self.progress.report(self.readers, aside)


def test_an_exchange_that_was_never_verified_is_not_told_of() -> None:
    script = Script(X1, X2)
    script.verify(X2, 5)
    assert script.report() == [(2, 8, 5)]


def test_the_first_verification_of_an_exchange_is_news_once() -> None:
    script = Script(X1)
    assert not script.is_news()
    script.verify(X1, 0)
    assert script.is_news()
    script.report()
    script.now += 60.0
    assert not script.is_news()
    script.verify(X1, 8)
    assert not script.is_news()


def test_an_exchange_that_is_read_to_its_end_and_has_become_quiet_is_news() -> None:
    script = Script(X1)
    script.verify(X1, 0)
    script.report()
    script.end(X1, 8)
    script.verify(X1, 8)
    assert not script.is_news()
    script.end(X1, 8)
    assert script.is_news()
    assert script.report() == [(1, 7, 8)]
    script.now += 60.0
    assert not script.is_news()


def test_an_exchange_that_is_quiet_and_not_read_to_its_end_is_no_news() -> None:
    script = Script(X1)
    script.verify(X1, 0)
    script.report()
    script.end(X1, 8)
    script.end(X1, 8)
    script.verify(X1, 7)
    assert not script.is_news()
    script.verify(X1, 8)
    assert script.is_news()


def test_news_are_told_twice_a_second_at_most() -> None:
    script = Script(X1, X2)
    script.verify(X1, 0)
    assert script.is_news()
    script.report()
    script.verify(X2, 0)
    assert not script.is_news()
    script.now += NEWS_SECONDS
    assert script.is_news()


def test_what_is_put_aside_counts_as_not_read() -> None:
    script = Script(X1)
    script.verify(X1, 8)
    assert script.report(x1=3) == [(1, 7, 3)]
    script.now += 60.0
    assert not script.is_news()


def test_an_exchange_that_has_gone_is_not_told_of() -> None:
    script = Script(X1)
    script.verify(X1, 8)
    script.report()
    script.readers.clear()
    assert script.report() == []


def waiting(arrived: float, first: int = 7, expected: int = 4, data: bytes | None = b"") -> Stream:
    stream = Stream(PublisherId(b"p" * 16), "eu.be", expected=expected)
    stream.held.append(Held(first, first + 1, int(Kind.DATA), arrived, X1, b"eu.be", 0, data))
    return stream


def test_nothing_waits() -> None:
    assert oldest([]) is None
    assert oldest([Stream(PublisherId(b"p" * 16), "t")]) is None


def test_the_oldest_hole_is_the_one_that_has_not_moved_for_longest() -> None:
    old, moved, young = waiting(1.0), waiting(0.5), waiting(2.0)
    moved.filled_at = 3.0
    hole = oldest([moved, young, old])
    assert hole is not None
    assert hole.stream is old
    assert hole.since == 1.0


def test_what_is_missing_is_told_and_who_may_have_it() -> None:
    hole = oldest([waiting(1.0)])
    assert hole is not None
    assert hole.text({X1: 2.0, X2: 0.5}) == (
        "publisher 70707070, topic 'eu.be': 3 messages from sequence 4 are missing; "
        "not read to the end since: x2"
    )
    assert "not read" not in hole.text({X1: 2.0})


def test_what_was_put_aside_is_told_as_being_fetched() -> None:
    hole = oldest([waiting(1.0, first=4, data=None)])
    assert hole is not None
    assert "sequence 4 was put aside and is being fetched from x1" in hole.text({})
