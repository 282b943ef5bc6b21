"""Several exchanges as one subscriber sees them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from roq.client.session.events import Cause, ClientState, SessionFacts, SessionState
from roq.client.session.status import subscriber_status
from roq.client.subscribe.backpressure import AHEAD_BYTES
from roq.client.subscribe.machine import Order, Starts, SubscriberMachine
from roq.machine import Tick
from roq.model import ExchangeInfo, LogId, PublisherId
from roq.protocol import documents
from roq.protocol.batch import pack, pack_floor
from roq.protocol.channel import (
    FETCH,
    STREAMS,
    Fetched,
    FetchRequest,
    Streams,
    StreamsRequest,
)
from roq.protocol.entry import NONE, WIRE_VERSION, EntryKind, pack_entry
from roq.read.events import Answered, Ask, DataUp, From, Start

QUEUE = b"q" * 16
LATEST = Start()
WELL = SessionFacts(SessionState.ACTIVE, Cause.NONE, "", 0.5)
Row = tuple[bytes, bytes, int]
"""Publisher, topic, next sequence."""


class Script:
    """A subscriber, and exchanges that say what the test wants."""

    def __init__(self, start: Starts = LATEST) -> None:
        nonces = count(1)
        self.machine = SubscriberMachine(
            [b""], start, nonce=lambda: next(nonces).to_bytes(16, "little"), now=0.0
        )

    def open(self, number: int, epoch: int = 1) -> list[Order]:
        info = ExchangeInfo(
            number=number, epoch=epoch, generation=epoch, host="h", data="d", live="l"
        )
        self.machine.open(info, QUEUE, 0.0)
        return self.machine.handle(LogId(number, epoch), DataUp(), 0.0)

    def present(self, number: int, end: int, epoch: int = 1) -> list[Order]:
        source = (number, epoch)
        reader = self.machine.readers[source]
        frame = pack_entry(EntryKind.PRESENCE, number, QUEUE, epoch, end, 0, 0)
        reader.live([reader.presence_topic, frame], 0.0)
        return self.machine.burst(source, 0.0)

    def confirm(
        self, number: int, end: int, *, at: float = 0.0, streams: Sequence[Row] = ()
    ) -> None:
        for source, order in self.present(number, end):
            if isinstance(order, Ask) and order.frames[0] == STREAMS:
                request = documents.decode(order.frames[1], StreamsRequest)
                answer = documents.encode(
                    Streams(id=request.id, generation=1, streams=list(streams))
                )
                self.machine.handle(source, Answered([STREAMS, answer]), at)

    def verified(self, number: int, epoch: int = 1) -> int | None:
        return self.machine.readers[number, epoch].chain.verified


def batch(publisher: PublisherId, sequence: int) -> bytes:
    return pack(
        [b"x"], publisher=publisher, epoch=1 + sequence, link_number=1, first_sequence=sequence,
        created_us=1,
    )  # fmt: skip


def test_an_exchange_that_comes_later_is_read_from_its_first_batch() -> None:
    script = Script()
    script.open(1)
    script.confirm(1, end=7)
    assert script.machine.confirmed
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
    script.machine.leave(LogId(2, 1), 0.0)
    script.open(2)
    script.present(2, end=30)
    assert script.verified(2) == 9


def test_another_life_of_an_exchange_is_read_from_its_first_batch() -> None:
    script = Script()
    script.open(1)
    script.confirm(1, end=7)
    script.machine.leave(LogId(1, 1), 0.0)
    script.open(1, epoch=2)
    assert script.verified(1, epoch=2) == 0


def test_offsets_by_exchange_leave_the_others_at_the_earliest() -> None:
    script = Script({1: 5})
    for number in (1, 2):
        script.open(number)
        script.present(number, end=8)
    assert (script.verified(1), script.verified(2)) == (5, 0)
    assert script.machine.readers[1, 1].exchange.number == 1
    assert Start(From.EARLIEST) == script.machine._start_of(LogId(3, 1), first=True)


def test_what_the_start_waits_for_is_said_for_each_exchange() -> None:
    script = Script()
    script.open(1)
    script.open(2)
    script.confirm(1, end=7)
    assert "x2" in script.machine.trouble()
    assert "x1" not in script.machine.trouble()


@pytest.mark.parametrize("more", [b"", b"field"])
def test_an_exchange_of_another_entry_format_is_named_with_both_formats(more: bytes) -> None:
    script = Script()
    script.open(1)
    reader = script.machine.readers[1, 1]
    plain = pack_entry(EntryKind.PRESENCE, 1, QUEUE, 1, 7, 0, 0)
    reader.live([reader.presence_topic, plain[:2] + b"\x07" + plain[3:] + more], 0.0)
    assert not script.machine.confirmed
    assert "speaks version 7" in script.machine.trouble()
    assert f"version {WIRE_VERSION}" in script.machine.trouble()
    facts = script.machine.facts("orders", WELL, 5.0)
    assert "version 7" in facts.exchanges[0].unreadable
    assert reader.foreign + reader.malformed == 1


def test_what_a_late_exchange_of_the_start_may_have_is_not_lost_before_it_is_read() -> None:
    script = Script(Start(From.EARLIEST))
    publisher = PublisherId(b"p" * 16)
    older, newer = (batch(publisher, sequence) for sequence in range(2))
    script.open(1)
    script.open(2)
    script.confirm(1, end=1, streams=[(publisher, b"t", 2)])
    script.machine.resequencer.add(LogId(1, 1), b"t", 0, newer, 0.1)
    script.confirm(2, end=1, at=9.0, streams=[(publisher, b"t", 1)])
    assert script.machine.confirmed
    script.machine.settle(9.1, [])
    script.machine.resequencer.add(LogId(2, 1), b"t", 0, older, 9.2)
    assert [batch.sequence for batch in script.machine.take()] == [0, 1]


def test_what_an_exchange_has_brought_behind_a_hole_is_kept_when_it_goes() -> None:
    script = Script()
    script.open(1)
    script.confirm(1, end=0)
    reader = script.machine.readers[1, 1]
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
    script.machine.leave(LogId(1, 1), 0.0)
    script.machine.resequencer.add(LogId(2, 1), b"t", 0, batches[1], 0.1)
    assert [batch.sequence for batch in script.machine.take()] == [0, 1, 2]


class StripedScript(Script):
    """One stream over two exchanges, in batches of a megabyte; the first says nothing by itself."""

    MEGABYTE = b"x" * (1024 * 1024)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Order] = []
        self.ends = {1: 0, 2: 0}
        for number in (1, 2):
            self.open(number)
        for number in (1, 2):
            self.confirm(number, end=0)

    def batch(self, sequence: int) -> bytes:
        return pack(
            [self.MEGABYTE], publisher=PublisherId(b"p" * 16), epoch=1, link_number=sequence + 1,
            first_sequence=sequence, created_us=1, extensions=pack_floor(0),
        )  # fmt: skip

    def live(self, number: int, sequence: int, now: float, *, skip: int = 0) -> None:
        """A batch comes by the fan-out; `skip`: so many of the topic before it were dropped."""
        offset = self.ends[number] + skip
        previous = offset - 1 if offset else NONE
        self.ends[number] = offset + 1
        frame = pack_entry(EntryKind.ENTRY, number, QUEUE, 1, offset, previous, 0)
        source = (number, 1)
        self.machine.readers[source].live([b"t", frame, self.batch(sequence)], now)
        self.asked += self.machine.burst(source, now)

    def fetches(self, number: int) -> list[FetchRequest]:
        """What this exchange was asked for since the last time."""
        found = [
            documents.decode(order.frames[1], FetchRequest)
            for source, order in self.asked
            if isinstance(order, Ask) and order.frames[0] == FETCH and source[0] == number
        ]
        self.asked = []
        return found

    def deliver(self) -> list[int]:
        return [batch.sequence for batch in self.machine.take()]


def test_an_exchange_that_is_far_ahead_is_held_back_and_read_again() -> None:
    script = StripedScript()
    megabytes = AHEAD_BYTES // len(script.MEGABYTE)
    for sequence in range(1, megabytes):
        script.live(2, sequence * 2, 1.0)
    script.machine.pace(1.0)
    assert not script.machine.held_back
    script.live(1, 0, 1.0)
    script.live(2, megabytes * 2, 1.0)
    script.live(2, megabytes * 2 + 2, 1.0)
    script.asked += script.machine.pace(1.1)
    assert script.machine.held_back == {LogId(2, 1)}
    for sequence in range(1, megabytes * 2 + 2, 2):
        script.live(1, sequence, 1.2)
    script.asked += script.machine.pace(1.2)
    assert script.machine.held_back == set()
    assert script.deliver() == list(range(megabytes * 2 + 3))
    script.machine.check()


def test_who_is_held_back_is_not_silent_and_its_log_is_read_no_further() -> None:
    script = StripedScript()
    megabytes = AHEAD_BYTES // len(script.MEGABYTE)
    for sequence in range(1, megabytes + 2):
        script.live(2, sequence * 2, 1.0)
    script.live(2, 100, 1.0, skip=3)
    (fetch,) = script.fetches(2)
    script.machine.pace(1.0)
    assert script.machine.held_back == {LogId(2, 1)}
    nothing = Fetched(id=fetch.id, generation=1, reached=megabytes + 1, floor=0, done=False)
    answer = Answered([FETCH, documents.encode(nothing)])
    script.asked = script.machine.handle(LogId(2, 1), answer, 1.1)
    reader = script.machine.readers[2, 1]
    for tick in range(20):
        script.asked += script.machine.handle(LogId(2, 1), Tick(), 1.2 + tick)
        assert (reader.next_deadline() or 99.0) > 1.2 + tick
    assert script.fetches(2) == []
    for sequence in range(2 * megabytes + 3):
        if sequence % 2 or not sequence:
            script.live(1, sequence, 21.0)
    script.asked = script.machine.pace(21.0)
    assert script.machine.held_back == set()
    (fetch,) = script.fetches(2)
    assert fetch.wants == [(b"t", megabytes + 1, megabytes + 4)]


def test_what_waits_is_looked_through_only_when_there_is_a_report_to_make() -> None:
    script = Script()
    script.open(1)
    merge = script.machine.resequencer
    merge.counts.stubbed = 1
    looks: list[int] = []

    def put_aside() -> dict[tuple[int, int], int]:
        looks.append(1)
        return {}

    merge.put_aside = put_aside  # type: ignore[method-assign]
    script.machine.handle(LogId(1, 1), Tick(), 0.0)
    assert not looks


# --- exchanges of a durable queue that are away ---------------------------------------------------


def two() -> Script:
    script = Script()
    for number in (1, 2):
        script.open(number)
    for number in (1, 2):
        script.confirm(number, end=9)
    return script


def test_an_exchange_of_a_durable_queue_is_left_when_the_queue_has_it_no_more() -> None:
    machine = two().machine
    one, other = LogId(1, 1), LogId(2, 1)
    assert machine.topology_known([one], [1, 2], 1.0) == []
    assert machine.away == {other}
    assert machine.topology_known([one, other], [1, 2], 2.0) == []
    assert not machine.away, "it is back"
    assert machine.topology_known([one], [1], 3.0) == [other]
    assert machine.topology_known([one], [], 3.0) == [other], "volatile: gone for good"


def test_a_log_that_was_made_anew_takes_the_place_of_the_one_that_was_away() -> None:
    machine = two().machine
    assert machine.topology_known([LogId(1, 1)], [1, 2], 1.0) == []
    assert machine.topology_known([LogId(1, 1), LogId(2, 5)], [1, 2], 2.0) == [LogId(2, 1)]


def test_the_start_does_not_wait_for_an_exchange_that_is_away() -> None:
    script = Script()
    for number in (1, 2):
        script.open(number)
    script.confirm(1, end=9)
    assert script.machine.topology_known([LogId(1, 1)], [1, 2], 1.0) == [LogId(2, 1)]


def test_who_begins_while_an_exchange_is_away_waits_for_what_is_published_there() -> None:
    script, publisher = Script(), PublisherId(b"p" * 16)
    machine = script.machine
    machine.topology_known([LogId(1, 1)], [1, 2], 0.0)
    script.open(1)
    script.confirm(1, end=9, streams=[(publisher, b"t", 3)])
    machine.resequencer.add(LogId(1, 1), b"t", 9, batch(publisher, 4), 1.0)
    for now in (1.0, 60.0, 290.0):
        machine.settle(now, [])
        machine.pace(now)
    assert not machine.take()
    assert not machine.gaps
    quiet = subscriber_status(machine.facts("orders", WELL, 1.5))
    assert quiet.cause is Cause.NONE, "it may have just begun to exist"
    status = subscriber_status(machine.facts("orders", WELL, 60.0))
    assert (status.state, status.cause) == (ClientState.WAITING, Cause.AWAY)
    assert status.reason.startswith("away: x2; ")
    assert "not read to the end since: x1, x2" in status.reason
    machine.topology_known([LogId(1, 1), LogId(2, 1)], [1, 2], 291.0)
    machine.resequencer.add(LogId(2, 1), b"t", 0, batch(publisher, 3), 291.0)
    assert [each.sequence for each in machine.take()] == [3, 4]
    assert not machine.gaps


def test_it_waits_for_nothing_older_than_its_start_and_no_longer_than_the_queue_has_that_log() -> (
    None
):
    script, publisher = Script(Start(From.EARLIEST)), PublisherId(b"p" * 16)
    machine = script.machine
    machine.topology_known([LogId(1, 1)], [1, 2], 0.0)
    script.open(1)
    script.confirm(1, end=9, streams=[(publisher, b"t", 5)])
    for sequence in (0, 3, 7):
        machine.resequencer.add(LogId(1, 1), b"t", 9 + sequence, batch(publisher, sequence), 1.0)
    machine.settle(1.1, [])
    assert [each.sequence for each in machine.take()] == [0, 3]
    assert [(gap.sequence, gap.messages) for gap in machine.gaps] == [(1, 2), (4, 1)]
    machine.gaps.clear()
    machine.topology_known([LogId(1, 1)], [1], 2.0)
    machine.settle(2.1, [])
    assert [each.sequence for each in machine.take()] == [7]
    assert [(gap.sequence, gap.messages) for gap in machine.gaps] == [(5, 2)]


def test_what_waits_for_an_exchange_that_is_away_comes_when_it_is_back_and_others_do_not_wait() -> (
    None
):
    script = two()
    machine = script.machine
    publishers = [PublisherId(bytes([number]) * 16) for number in range(2)]
    machine.topology_known([LogId(1, 1)], [1, 2], 1.0)
    machine.resequencer.add(LogId(1, 1), b"t", 9, batch(publishers[0], 1), 1.0)
    machine.resequencer.add(LogId(1, 1), b"t", 10, batch(publishers[1], 0), 1.0)
    for now in (8.0, 60.0, 290.0):
        machine.settle(now, [])
    assert [each.publisher for each in machine.take()] == [publishers[1]]
    facts = machine.facts("orders", WELL, 60.0)
    status = subscriber_status(facts)
    assert (status.state, status.cause) == (ClientState.WAITING, Cause.AWAY)
    assert "away: x2; what is in a log comes back" in status.reason
    assert "1 messages from sequence 0 are missing; not read to the end since: " in status.reason
    machine.topology_known([LogId(1, 1), LogId(2, 1)], [1, 2], 291.0)
    machine.resequencer.add(LogId(2, 1), b"t", 9, batch(publishers[0], 0), 291.0)
    assert [each.sequence for each in machine.take()] == [0, 1]
    assert not machine.gaps


def test_what_waits_for_an_exchange_that_is_away_is_bounded() -> None:
    script = Script()
    machine = script.machine = SubscriberMachine(
        [b""], LATEST, nonce=lambda: bytes(16), now=0.0, held_bytes_max=10_000
    )
    for number in (1, 2):
        script.open(number)
    for number in (1, 2):
        script.confirm(number, end=0)
    publisher = PublisherId(b"p" * 16)
    machine.topology_known([LogId(1, 1)], [1, 2], 1.0)
    for sequence in range(1, 61):
        batch = pack(
            [b"x" * 500], publisher=publisher, epoch=1 + sequence, link_number=1,
            first_sequence=sequence, created_us=1,
        )  # fmt: skip
        machine.resequencer.add(LogId(1, 1), b"t", sequence, batch, 1.0)
    machine.pace(1.0)
    assert machine.held_back == {LogId(1, 1)}, "the places alone fill the memory: no more is read"
    machine.topology_known([LogId(1, 1), LogId(2, 1)], [1, 2], 2.0)
    machine.pace(2.0)
    assert not machine.held_back
