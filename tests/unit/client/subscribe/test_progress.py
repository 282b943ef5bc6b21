"""When a subscriber tells its monitor how far it has read."""

from __future__ import annotations

from roq.client.subscribe.progress import NEWS_SECONDS, Progress
from roq.model import ExchangeInfo, LogId
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
