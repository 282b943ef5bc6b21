"""What readers ask of the log, and what they get when they ask wrongly."""

from typing import TypeVar

import msgspec
import pytest
from exchange_driver import EPOCH, NUMBER, QUEUE, Exchange, Publisher, exchange
from segmented_log import SegmentedLog

from roq.exchange.events import Publish, Received
from roq.exchange.fetches import FETCHES_MAX
from roq.exchange.requests import PER_READER_MAX
from roq.machine import Tick
from roq.protocol import channel, documents
from roq.protocol.channel import (
    FETCH,
    FIND,
    HEADS,
    PAGE_MAX,
    SEEK,
    STREAMS,
    FetchRequest,
    FindRequest,
    Heads,
    HeadsRequest,
    KeyPlaces,
    Refused,
    Seek,
    SeekRequest,
    Streams,
    StreamsRequest,
)
from roq.protocol.entry import read_entry

A = TypeVar("A")


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
    assert (heads.id, heads.generation, heads.end, heads.floor) == (7, EPOCH, 4, 0)
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


def test_where_a_key_may_be_is_told_of_the_log_that_was_asked_about() -> None:
    there = filled(b"t", b"u", b"t")
    request = FindRequest(id=3, queue=QUEUE, generation=EPOCH, key=7, before=2)
    found = documents.decode(there.ask(FIND, request), KeyPlaces)
    assert (found.id, found.places, found.reached, found.floor) == (3, [(0, 2)], 0, 0)
    stale = FindRequest(id=3, queue=QUEUE, generation=EPOCH + 1, key=7, before=2)
    assert refusal(filled(b"t"), FIND, stale) == "stale_epoch"


def test_requests_for_another_queue_are_refused() -> None:
    there = filled(b"t")
    wrong = b"z" * 16
    for letter, request in (
        (HEADS, HeadsRequest(id=1, queue=wrong, prefixes=[], since=0)),
        (STREAMS, StreamsRequest(id=1, queue=wrong, prefixes=[])),
        (SEEK, SeekRequest(id=1, queue=wrong, time_us=0)),
        (FETCH, FetchRequest(id=1, queue=wrong, generation=EPOCH, wants=[])),
    ):
        assert refusal(there, letter, request) == "foreign_queue"


def test_a_fetch_of_another_log_is_refused() -> None:
    request = FetchRequest(id=1, queue=QUEUE, generation=EPOCH + 1, wants=[(b"t", 0, 1)])
    assert refusal(filled(b"t"), FETCH, request) == "stale_epoch"


def test_requests_beyond_their_bounds_are_refused() -> None:
    there = filled(b"t")
    many = [b"x"] * (channel.PREFIXES_MAX + 1)
    heads = HeadsRequest(id=1, queue=QUEUE, prefixes=many, since=0)
    assert refusal(there, HEADS, heads) == "invalid_request"
    wants = [(b"t", 0, 1)] * (channel.WANTS_MAX + 1)
    fetch = FetchRequest(id=1, queue=QUEUE, generation=EPOCH, wants=wants)
    assert refusal(there, FETCH, fetch) == "invalid_request"
    assert there.core.counters.refused_requests == 2


@pytest.mark.parametrize("queue", [QUEUE, b"z" * 16])
def test_what_answers_one_of_several_readers_has_its_four_bytes(queue: bytes) -> None:
    there = filled(b"t")
    for reader in (b"one!", b"two!", b""):
        request = documents.encode(SeekRequest(id=1, queue=queue, time_us=0))
        there.tell(Received(b"reader", (SEEK + reader, request)))
    there.serve()
    letter = SEEK if queue == QUEUE else channel.REFUSED
    answers = [parts[0] for parts in there.answers(b"reader")]
    assert answers == [letter + b"one!", letter + b"two!", letter]


@pytest.mark.parametrize("tag", [b"1", b"123", b"12345", bytes(255)])
def test_a_reader_has_four_bytes_or_none(tag: bytes) -> None:
    there = filled(b"t")
    request = documents.encode(SeekRequest(id=1, queue=QUEUE, time_us=0))
    there.tell(Received(b"reader", (SEEK + tag, request)))
    there.serve()
    ((letter, document),) = there.answers(b"reader")
    assert (letter, documents.decode(document, Refused).code) == (
        channel.REFUSED,
        "invalid_request",
    )


def test_one_reader_of_a_connection_that_asks_too_much_is_refused_and_the_others_are_not() -> None:
    there = filled(b"t")
    request = documents.encode(SeekRequest(id=1, queue=QUEUE, time_us=0))
    for _ in range(PER_READER_MAX + 1):
        there.tell(Received(b"reader", (SEEK + b"many", request)))
    there.tell(Received(b"reader", (SEEK + b"one!", request)))
    there.serve()
    answers = [parts[0] for parts in there.answers(b"reader")]
    assert answers[:3] == [channel.REFUSED + b"many", SEEK + b"many", SEEK + b"one!"]
    assert answers[3:] == [SEEK + b"many"] * (PER_READER_MAX - 1)


def test_only_so_many_readers_fetch_at_once() -> None:
    there = filled(b"t")
    request = FetchRequest(id=1, queue=QUEUE, generation=EPOCH, wants=[(b"t", 0, 1)])
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
    [(b"\xff",), (b"\xff~", b""), (HEADS,), (HEADS, b"", b""), (channel.READY, b"")],
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
    [{"id": -1}, {"first": -(1 << 63)}, {"until": -1}, {"max_bytes": -1}, {"generation": 1 << 40}],
    ids=str,
)
def test_a_fetch_with_a_number_out_of_its_range_is_refused(out_of_range: dict[str, int]) -> None:
    there = exchange()
    request: documents.RawDocument = {
        "id": 1, "queue": QUEUE, "generation": EPOCH, "prefixes": [b""], "first": 0, "until": 9,
        **out_of_range,
    }  # fmt: skip
    there.tell(Received(b"reader", (channel.FETCH, documents.encode_raw(request))))
    there.serve()
    ((letter, document),) = there.answers(b"reader")
    assert letter == channel.REFUSED
    assert next(iter(out_of_range)) in documents.decode(document, channel.Refused).text
    assert len(there.core.fetches) == 0


def told(there: Exchange, letter: bytes, request: msgspec.Struct, kind: type[A]) -> A:
    return documents.decode(there.ask(letter, request), kind)


def test_readers_are_told_of_what_is_committed_and_of_nothing_else() -> None:
    log: SegmentedLog[bytes] = SegmentedLog(
        QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=100, commits=False
    )
    publisher = Publisher(exchange(log))
    publisher.hello()
    there = publisher.exchange

    def seen() -> tuple[object, ...]:
        heads = told(there, HEADS, HeadsRequest(id=1, queue=QUEUE, prefixes=[b""], since=0), Heads)
        sought = told(there, SEEK, SeekRequest(id=2, queue=QUEUE, time_us=1 << 60), Seek)
        there.now += 1
        (end,) = (
            read_entry(effect.parts[1]).offset
            for effect in there.tell(Tick())
            if isinstance(effect, Publish)
        )
        assert heads.end == sought.end == sought.offset == end
        return heads.heads, fetched(there, b"a", b"b"), end

    assert publisher.send(b"a")
    log.commit()
    assert publisher.send(b"a")
    assert publisher.send(b"b")
    assert seen() == ([(b"a", 0)], [0], 1)
    log.commit()
    assert seen() == ([(b"a", 1), (b"b", 2)], [0, 1, 2], 3)


@pytest.mark.parametrize("span", [False, True])
def test_a_fetch_ends_before_what_is_not_committed(*, span: bool) -> None:
    log: SegmentedLog[bytes] = SegmentedLog(
        QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=100, commits=False
    )
    publisher = Publisher(exchange(log))
    publisher.hello()
    for _ in range(3):
        assert publisher.send(b"a")
        if log.end == 2:
            log.commit()
    there = publisher.exchange
    assert fetched(there, *(() if span else (b"a",))) == [0, 1]
    log.commit()
    assert fetched(there, *(() if span else (b"a",))) == [0, 1, 2]


def fetched(there: Exchange, *topics: bytes) -> list[int]:
    """Offsets that a fetch of these topics, or else of everything, brings."""
    wants = [(topic, 0, 100) for topic in topics]
    prefixes = [] if topics else [b""]
    request = FetchRequest(
        id=3, queue=QUEUE, generation=EPOCH, wants=wants, prefixes=prefixes, first=0, until=100
    )
    there.tell(Received(b"reader", (FETCH, documents.encode(request))))
    there.serve()
    offsets = []
    while there.core.fetches.runnable(there.now):
        piece = there.core.fetches.next_piece()
        there.core.fetches.sent(piece)
        if piece.batch is not None:
            offsets.append(read_entry(piece.parts[3]).offset)
    return offsets
