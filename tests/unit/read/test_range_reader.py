"""A range of a log is read once and in order, whatever is lost on the way."""

from __future__ import annotations

from random import Random

import pytest

from roq.errors import RemoteProtocolError, StaleEpoch, Unavailable
from roq.model import PublisherId
from roq.protocol import batch as wire
from roq.protocol import documents
from roq.protocol.channel import (
    FETCH,
    FETCHED_ENTRY,
    HEADS,
    NUMBER,
    REFUSED,
    Fetched,
    FetchRequest,
    Heads,
    Refused,
)
from roq.protocol.entry import NONE, EntryKind, pack_entry
from roq.read.log_requests import LogRequests
from roq.read.range_reader import BATCH_SECONDS_MAX, LogBatch, RangeReader, answer_to

QUEUE, OTHER = b"q" * 16, b"o" * 16
GENERATION = 7
WHERE = "x1 at here"
PAGE = 5


def data(offset: int) -> bytes:
    return wire.pack(
        [b"%d" % offset], publisher=PublisherId(b"p" * 16), epoch=1, link_number=1,
        first_sequence=0, created_us=5,
    )  # fmt: skip


def entry(
    request: int, offset: int, queue: bytes = QUEUE, generation: int = GENERATION
) -> list[bytes]:
    frame = pack_entry(EntryKind.ENTRY, 1, queue, generation, offset, NONE, 5)
    return [FETCHED_ENTRY, NUMBER.pack(request), b"t", frame, data(offset)]


def fetched(request: int, reached: int, *, done: bool = False, evicted: int = 0) -> list[bytes]:
    answer = Fetched(
        id=request, generation=GENERATION, reached=reached, floor=0, done=done, evicted=evicted
    )
    return [FETCH, documents.encode(answer)]


def refusal(code: str) -> list[bytes]:
    return [REFUSED, documents.encode(Refused(code=code, text="it says why"))]


def reader(first: int = 4, until: int = 10) -> RangeReader:
    return RangeReader(LogRequests(QUEUE), QUEUE, GENERATION, first, until, [b""], where=WHERE)


def request(frames: list[bytes]) -> FetchRequest:
    assert frames[0] == FETCH
    return documents.decode(frames[1], FetchRequest)


def test_it_asks_for_what_is_left_of_its_range() -> None:
    reading = reader()
    asked = request(reading.ask(0.0))
    assert (asked.first, asked.until, asked.generation) == (4, 10, GENERATION)
    batch = reading.received(entry(asked.id, 5), 0.0)
    assert batch is not None
    assert (batch.offset, batch.topic, batch.payloads()) == (5, b"t", [b"5"])
    assert reading.received(fetched(asked.id, 7, evicted=2), 0.0) is None
    assert (reading.asking, reading.done, reading.evicted) == (False, False, 2)
    asked = request(reading.ask(0.0))
    assert asked.first == 7
    reading.received(fetched(asked.id, 8, done=True), 0.0)
    assert reading.done


def test_an_empty_range_asks_nothing() -> None:
    assert reader(4, 4).done


def test_answers_to_questions_that_were_given_up_are_passed_over() -> None:
    reading = reader()
    before = request(reading.ask(0.0))
    reading.late()
    asked = request(reading.ask(2.0))
    assert reading.received(entry(before.id, 4), 2.0) is None
    assert reading.received(fetched(before.id, 10, done=True), 2.0) is None
    assert reading.asking
    assert reading.received(entry(asked.id, 4), 2.0) is not None


@pytest.mark.parametrize("offset", [0, 3, 10, 1 << 40])
def test_what_was_not_asked_for_is_refused(offset: int) -> None:
    reading = reader()
    asked = request(reading.ask(0.0))
    with pytest.raises(RemoteProtocolError, match=f"{WHERE} sent offset {offset}, asked for 4 to"):
        reading.received(entry(asked.id, offset), 0.0)


@pytest.mark.parametrize(("queue", "generation"), [(OTHER, GENERATION), (QUEUE, 8)])
def test_another_log_at_this_address_is_an_error(queue: bytes, generation: int) -> None:
    reading = reader()
    asked = request(reading.ask(0.0))
    with pytest.raises(StaleEpoch, match="serves another log by now"):
        reading.received(entry(asked.id, 4, queue, generation), 0.0)


@pytest.mark.parametrize("code", ["stale_epoch", "foreign_queue"])
def test_a_refusal_because_of_the_log_is_told_as_such(code: str) -> None:
    with pytest.raises(StaleEpoch, match="it says why"):
        reader().received(refusal(code), 0.0)


def test_other_refusals_end_it_unless_they_ask_for_patience() -> None:
    with pytest.raises(Unavailable, match="it says why"):
        reader().received(refusal("malformed"), 0.0)
    reading = reader()
    reading.ask(0.0)
    assert reading.received(refusal("full"), 0.0) is None
    assert reading.asking


@pytest.mark.parametrize("parts", [[FETCH], [FETCH, b"{}", b"more"], [FETCHED_ENTRY, b"1"]])
def test_what_no_exchange_sends_is_refused(parts: list[bytes]) -> None:
    reading = reader()
    reading.ask(0.0)
    with pytest.raises(RemoteProtocolError, match=WHERE):
        reading.received(parts, 0.0)


def test_patience_doubles_and_ends() -> None:
    reading = reader()
    waited = 0.0
    while reading.patience < BATCH_SECONDS_MAX:
        reading.ask(waited)
        waited += reading.patience
        reading.late()
    assert waited < BATCH_SECONDS_MAX
    with pytest.raises(Unavailable, match="has not brought one batch in 256 s"):
        reading.late()


def test_the_answer_to_another_kind_of_question_is_none() -> None:
    requests = LogRequests(QUEUE)
    requests.ask(HEADS, 0.0, prefixes=[], since=0)
    assert answer_to(HEADS, Heads, fetched(1, 5), requests, WHERE) is None


@pytest.mark.parametrize("seed", range(30))
def test_everything_is_read_once_and_in_order_whatever_is_lost_on_the_way(seed: int) -> None:
    """Any tail of what an exchange sends may be lost, and old answers may come late."""
    random = Random(seed)
    reading = reader(0, 60)
    read: list[LogBatch] = []
    late: list[list[bytes]] = []
    for turn in range(500):
        if reading.done:
            break
        asked = request(reading.ask(float(turn)))
        until = min(asked.first + PAGE, 60)
        sent = [entry(asked.id, offset) for offset in range(asked.first, until)]
        sent.append(fetched(asked.id, until, done=until == 60))
        kept = random.randint(0, len(sent))
        if random.random() < 0.5:
            late, sent = sent[kept:], [*late, *sent[:kept]]
        else:
            sent = [*late, *sent]
            late = []
        for parts in sent:
            batch = reading.received(parts, float(turn))
            if batch is not None:
                read.append(batch)
        if reading.asking:
            reading.late()
            reading.patience = 2.0
    assert reading.done
    assert [batch.offset for batch in read] == list(range(60))
