"""What readers ask of the log, and what they get when they ask wrongly."""

import msgspec
import pytest
from exchange_driver import EPOCH, QUEUE, Exchange, Publisher, exchange

from roq.exchange.events import Received
from roq.exchange.fetches import FETCHES_MAX
from roq.protocol import channel, documents
from roq.protocol.channel import (
    FETCH,
    HEADS,
    PAGE_MAX,
    SEEK,
    STREAMS,
    FetchRequest,
    Heads,
    HeadsRequest,
    Refused,
    Seek,
    SeekRequest,
    Streams,
    StreamsRequest,
)


def filled(*topics: bytes, **limits: int) -> Exchange:
    publisher = Publisher(exchange(**limits))
    publisher.hello()
    for topic in topics:
        assert publisher.send(topic)
    publisher.exchange.settle()
    return publisher.exchange


def refusal(there: Exchange, letter: bytes, request: msgspec.Struct) -> str:
    there.tell(Received(b"reader", (letter, documents.encode(request))))
    there.serve()
    ((answer, document),) = there.answers(b"reader")
    assert answer == channel.REFUSED
    return documents.decode(document, Refused).code


def test_heads_are_the_newest_batches_of_the_topics_that_advanced() -> None:
    there = filled(b"a", b"b", b"a", b"c")
    request = HeadsRequest(id=7, queue=QUEUE, prefixes=[b"a", b"b"], since=1)
    heads = documents.decode(there.ask(HEADS, request), Heads)
    assert (heads.id, heads.epoch, heads.end, heads.floor) == (7, EPOCH, 4, 0)
    assert heads.heads == [(b"b", 1), (b"a", 2)]
    assert not heads.more


def test_heads_come_in_pages() -> None:
    there = filled(*(b"%04d" % n for n in range(PAGE_MAX + 5)))
    seen: list[bytes] = []
    since, more = 0, True
    while more:
        request = HeadsRequest(id=1, queue=QUEUE, prefixes=[b""], since=since)
        page = documents.decode(there.ask(HEADS, request), Heads)
        seen += [topic for topic, _ in page.heads]
        since, more = page.heads[-1][1] + 1, page.more
    assert seen == [b"%04d" % n for n in range(PAGE_MAX + 5)]


def test_streams_come_in_pages_with_their_next_sequences() -> None:
    there = filled(*(b"%04d" % n for n in range(PAGE_MAX + 5)), b"0001")
    seen: dict[bytes, int] = {}
    after = 0
    while True:
        request = StreamsRequest(id=1, queue=QUEUE, prefixes=[b""], after=after)
        page = documents.decode(there.ask(STREAMS, request), Streams)
        seen.update({topic: following for _, topic, following in page.streams})
        after = page.next
        if not after:
            break
    assert len(seen) == PAGE_MAX + 5
    assert (seen[b"0000"], seen[b"0001"]) == (1, 2)


def test_a_time_leads_to_an_offset() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    for time_us in (5_000, 6_000, 7_000):
        publisher.exchange.core.begin(0.0, time_us)
        publisher.send()
    request = SeekRequest(id=2, queue=QUEUE, time_us=6_000)
    seek = documents.decode(publisher.exchange.ask(SEEK, request), Seek)
    assert (seek.id, seek.offset, seek.end, seek.floor) == (2, 1, 3, 0)


def test_requests_for_another_queue_are_refused() -> None:
    there = filled(b"t")
    wrong = b"z" * 16
    for letter, request in (
        (HEADS, HeadsRequest(id=1, queue=wrong, prefixes=[], since=0)),
        (STREAMS, StreamsRequest(id=1, queue=wrong, prefixes=[])),
        (SEEK, SeekRequest(id=1, queue=wrong, time_us=0)),
        (FETCH, FetchRequest(id=1, queue=wrong, epoch=EPOCH, wants=[])),
    ):
        assert refusal(there, letter, request) == "foreign_queue"


def test_a_fetch_under_another_epoch_is_refused() -> None:
    request = FetchRequest(id=1, queue=QUEUE, epoch=EPOCH + 1, wants=[(b"t", 0, 1)])
    assert refusal(filled(b"t"), FETCH, request) == "stale_epoch"


def test_requests_beyond_their_bounds_are_refused() -> None:
    there = filled(b"t")
    many = [b"x"] * (channel.PREFIXES_MAX + 1)
    heads = HeadsRequest(id=1, queue=QUEUE, prefixes=many, since=0)
    assert refusal(there, HEADS, heads) == "invalid_request"
    wants = [(b"t", 0, 1)] * (channel.WANTS_MAX + 1)
    fetch = FetchRequest(id=1, queue=QUEUE, epoch=EPOCH, wants=wants)
    assert refusal(there, FETCH, fetch) == "invalid_request"
    assert there.core.counters.refused_requests == 2


def test_only_so_many_readers_fetch_at_once() -> None:
    there = filled(b"t")
    request = FetchRequest(id=1, queue=QUEUE, epoch=EPOCH, wants=[(b"t", 0, 1)])
    for number in range(FETCHES_MAX):
        assert there.core.fetches.start(b"%d" % number, request)
    assert refusal(there, FETCH, request) == "full"


@pytest.mark.parametrize("letter", [HEADS, STREAMS, SEEK, FETCH])
@pytest.mark.parametrize("document", [b"", b"garbage", b"\x05\x00\x00\x00\x00"])
def test_a_request_that_cannot_be_read_is_refused(letter: bytes, document: bytes) -> None:
    there = filled(b"t")
    there.tell(Received(b"reader", (letter, document)))
    there.serve()
    ((answer, body),) = there.answers(b"reader")
    assert answer == channel.REFUSED
    assert documents.decode(body, Refused).code == "malformed"


@pytest.mark.parametrize(
    "frames",
    [(b"\xff",), (b"\xffZ", b""), (HEADS,), (HEADS, b"", b""), (channel.READY, b"")],
    ids=["no letter", "unknown", "no document", "two documents", "an answer"],
)
def test_an_unknown_message_is_refused(frames: tuple[bytes, ...]) -> None:
    there = filled()
    there.tell(Received(b"reader", frames))
    ((answer, body),) = there.answers(b"reader")
    assert answer == channel.REFUSED
    assert documents.decode(body, Refused).code == "invalid_request"


@pytest.mark.parametrize(
    "out_of_range",
    [{"id": -1}, {"first": -(1 << 63)}, {"until": -1}, {"max_bytes": -1}, {"epoch": 1 << 40}],
    ids=str,
)
def test_a_fetch_with_a_number_out_of_its_range_is_refused(out_of_range: dict[str, int]) -> None:
    there = exchange()
    request: documents.RawDocument = {
        "id": 1, "queue": QUEUE, "epoch": EPOCH, "prefixes": [b""], "first": 0, "until": 9,
        **out_of_range,
    }  # fmt: skip
    there.tell(Received(b"reader", (channel.FETCH, documents.encode_raw(request))))
    there.serve()
    ((letter, document),) = there.answers(b"reader")
    assert letter == channel.REFUSED
    assert next(iter(out_of_range)) in documents.decode(document, channel.Refused).text
    assert len(there.core.fetches) == 0
