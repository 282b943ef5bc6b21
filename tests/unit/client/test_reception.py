"""Several exchanges as one subscriber sees them."""

from __future__ import annotations

from itertools import count

from roq.client.reading import Answered, Ask, DataUp, From, Start
from roq.client.reception import Order, Reception, Starts
from roq.model import ExchangeInfo, PublisherId
from roq.protocol import documents
from roq.protocol.batch import pack
from roq.protocol.channel import STREAMS, Streams, StreamsRequest
from roq.protocol.entry import NONE, EntryKind, pack_entry

QUEUE = b"q" * 16
LATEST = Start()


class Script:
    """A subscriber, and exchanges that say what the test wants."""

    def __init__(self, start: Starts = LATEST) -> None:
        nonces = count(1)
        self.reception = Reception(
            [b""], start, nonce=lambda: next(nonces).to_bytes(16, "little"), now=0.0
        )

    def open(self, number: int, epoch: int = 1) -> list[Order]:
        info = ExchangeInfo(number=number, epoch=epoch, host="h", data="d", live="l")
        self.reception.open(info, QUEUE, 0.0)
        return self.reception.handle((number, epoch), DataUp(), 0.0)

    def present(self, number: int, end: int, epoch: int = 1) -> list[Order]:
        source = (number, epoch)
        reader = self.reception.readers[source]
        frame = pack_entry(EntryKind.PRESENCE, number, QUEUE, epoch, end, 0, 0)
        reader.live([reader.presence_topic, frame], 0.0)
        return self.reception.burst(source, 0.0)

    def confirm(self, number: int, end: int) -> None:
        for source, order in self.present(number, end):
            if isinstance(order, Ask) and order.frames[0] == STREAMS:
                request = documents.decode(order.frames[1], StreamsRequest)
                answer = documents.encode(Streams(id=request.id, epoch=1, streams=[]))
                self.reception.handle(source, Answered([STREAMS, answer]), 0.0)

    def verified(self, number: int, epoch: int = 1) -> int | None:
        return self.reception.readers[number, epoch].chain.verified


def test_an_exchange_that_comes_later_is_read_from_its_first_batch() -> None:
    script = Script()
    script.open(1)
    script.confirm(1, end=7)
    assert script.reception.confirmed
    script.open(2)
    assert script.verified(2) == 0
    script.present(2, end=5)
    assert script.verified(2) == 0
    assert script.verified(1) == 7


def test_an_exchange_that_comes_back_is_read_from_where_it_was_left() -> None:
    script = Script()
    script.open(1)
    script.open(2)
    script.confirm(1, end=7)
    script.confirm(2, end=9)
    script.reception.leave((2, 1), 0.0)
    script.open(2)
    script.present(2, end=30)
    assert script.verified(2) == 9


def test_another_life_of_an_exchange_is_read_from_its_first_batch() -> None:
    script = Script()
    script.open(1)
    script.confirm(1, end=7)
    script.reception.leave((1, 1), 0.0)
    script.open(1, epoch=2)
    assert script.verified(1, epoch=2) == 0


def test_offsets_by_exchange_leave_the_others_at_the_earliest() -> None:
    script = Script({1: 5})
    for number in (1, 2):
        script.open(number)
        script.present(number, end=8)
    assert (script.verified(1), script.verified(2)) == (5, 0)
    assert script.reception.readers[1, 1].exchange.number == 1
    assert Start(From.EARLIEST) == script.reception._start_of((3, 1), first=True)


def test_what_the_start_waits_for_is_said_for_each_exchange() -> None:
    script = Script()
    script.open(1)
    script.open(2)
    script.confirm(1, end=7)
    assert "x2" in script.reception.trouble()
    assert "x1" not in script.reception.trouble()


def test_what_an_exchange_has_brought_behind_a_hole_is_kept_when_it_goes() -> None:
    script = Script()
    script.open(1)
    script.confirm(1, end=0)
    reader = script.reception.readers[1, 1]
    batches = [
        pack(
            [b"x"], publisher=PublisherId(b"p" * 16), epoch=1, link_number=sequence + 1,
            first_sequence=sequence, created_us=1,
        )
        for sequence in range(3)
    ]  # fmt: skip
    for offset in (0, 2):
        previous = offset - 1 if offset else NONE
        frame = pack_entry(EntryKind.ENTRY, 1, QUEUE, 1, offset, previous, 0)
        reader.live([b"t", frame, batches[offset]], 0.0)
    script.reception.leave((1, 1), 0.0)
    script.reception.merge.add((2, 1), b"t", 0, batches[1], 0.1)
    assert [batch.sequence for batch in script.reception.take()] == [0, 1, 2]
