"""The reader against a scripted exchange."""

import msgspec

from roq.machine import Tick
from roq.model import ExchangeInfo
from roq.protocol import documents
from roq.protocol.channel import (
    END_TOPIC,
    FETCH,
    FETCHED_ENTRY,
    HEADS,
    NUMBER,
    REFUSED,
    SEEK,
    STREAMS,
    Fetched,
    FetchRequest,
    Heads,
    HeadsRequest,
    Refused,
    Seek,
    SeekRequest,
    Streams,
    StreamsRequest,
)
from roq.protocol.entry import NONE, EntryKind, pack_entry
from roq.read.events import (
    Answered,
    Ask,
    BelowFloor,
    Confirmed,
    DataDown,
    DataUp,
    Effect,
    Event,
    From,
    Gone,
    Pause,
    Refetch,
    Resume,
    Start,
    StreamsFound,
    Subscribe,
    Unsubscribe,
    Verify,
)
from roq.read.log_requests import PATIENCE_SECONDS
from roq.read.offset_chain import TRIES_MAX, LogGap
from roq.read.reader import PRESENCE_SECONDS, Reader
from roq.read.verification import CHECK_SECONDS
from roq.timing import END_SILENT_SECONDS, FETCH_PATIENCE_SECONDS

QUEUE = b"q" * 16
INFO = ExchangeInfo(number=3, epoch=12, generation=9, host="h", data="d", live="l")
LATEST = Start()
REQUESTS = {HEADS: HeadsRequest, STREAMS: StreamsRequest, SEEK: SeekRequest, FETCH: FetchRequest}


class Driver:
    def __init__(self, start: Start = LATEST, *, streams: bool = True, up: bool = True) -> None:
        self.now = 10.0
        self.reader = Reader(
            INFO, QUEUE, [b"t"], start, nonce=b"n" * 16, streams=streams, now=self.now
        )
        self.effects: list[Effect] = []
        if up:
            self.do(DataUp())

    def do(self, event: Event) -> list[Effect]:
        effects = self.reader.handle(event, self.now)
        self.effects += effects
        self.reader.check()
        return effects

    def asked(self, kind: bytes) -> list[msgspec.Struct]:
        """The requests of this kind since the last look."""
        found = [
            documents.decode(effect.frames[1], REQUESTS[kind])
            for effect in self.effects
            if isinstance(effect, Ask) and effect.frames[0] == kind
        ]
        self.effects = [
            effect
            for effect in self.effects
            if not (isinstance(effect, Ask) and effect.frames[0] == kind)
        ]
        return found

    def answer(self, kind: bytes, answer: msgspec.Struct) -> list[Effect]:
        return self.do(Answered([kind, documents.encode(answer)]))

    def entry(
        self, kind: EntryKind, topic: bytes, offset: int, previous: int, *batch: bytes,
        queue: bytes = QUEUE, epoch: int = 9,
    ) -> list[Effect]:  # fmt: skip
        frame = pack_entry(kind, 3, queue, epoch, offset, previous, 0)
        self.reader.live([topic, frame, *batch], self.now)
        return self.do(Tick())

    def present(self, end: int = 0, floor: int = 0) -> list[Effect]:
        return self.entry(EntryKind.PRESENCE, self.reader.presence_topic, end, floor)

    def end(self, end: int, floor: int = 0) -> list[Effect]:
        return self.entry(EntryKind.END, END_TOPIC, end, floor)

    def batch(self, offset: int, previous: int = NONE, topic: bytes = b"t") -> list[Effect]:
        return self.entry(EntryKind.ENTRY, topic, offset, previous, b"batch")

    def heads(self, end: int, *heads: tuple[bytes, int], more: bool = False) -> list[Effect]:
        (request,) = self.asked(HEADS)
        assert isinstance(request, HeadsRequest)
        return self.answer(
            HEADS,
            Heads(id=request.id, generation=9, end=end, floor=0, heads=list(heads), more=more),
        )

    def passed(self) -> list[int]:
        found = [offset for _, offset, _ in self.reader.chain.passed]
        self.reader.chain.passed.clear()
        return found


def confirmed(end: int = 5) -> Driver:
    driver = Driver()
    driver.present(end)
    (streams,) = driver.asked(STREAMS)
    assert isinstance(streams, StreamsRequest)
    driver.answer(STREAMS, Streams(id=streams.id, generation=9, streams=[]))
    driver.heads(end)
    assert driver.reader.confirmed
    driver.now += 1.0
    return driver


def test_a_reader_of_the_latest_confirms_with_presence_and_streams() -> None:
    driver = Driver()
    assert driver.reader.subscriptions() == [b"t", END_TOPIC, driver.reader.presence_topic]
    driver.batch(3)
    driver.present(5)
    (request,) = driver.asked(STREAMS)
    assert isinstance(request, StreamsRequest)
    assert (request.prefixes, request.after) == ([b"t"], 0)
    page = [(b"p" * 16, b"t", 7)]
    effects = driver.answer(STREAMS, Streams(id=request.id, generation=9, streams=page, next=40))
    assert StreamsFound(page) in effects
    (request,) = driver.asked(STREAMS)
    assert isinstance(request, StreamsRequest)
    assert request.after == 40
    assert not driver.reader.confirmed
    effects = driver.answer(STREAMS, Streams(id=request.id, generation=9, streams=[]))
    assert Confirmed() in effects
    driver.batch(5, 3)
    assert driver.passed() == [5]


def test_a_start_is_not_confirmed_before_the_filters_are_in_place() -> None:
    driver = Driver(Start(From.TIME, 1_000))
    (seek,) = driver.asked(SEEK)
    assert isinstance(seek, SeekRequest)
    driver.answer(SEEK, Seek(id=seek.id, generation=9, offset=3, end=5, floor=0))
    (streams,) = driver.asked(STREAMS)
    assert isinstance(streams, StreamsRequest)
    driver.answer(STREAMS, Streams(id=streams.id, generation=9, streams=[]))
    assert not driver.reader.confirmed
    driver.present(5)
    assert driver.reader.confirmed


def test_presence_that_does_not_come_is_asked_for_under_another_nonce() -> None:
    driver = Driver()
    first = driver.reader.presence_topic
    assert driver.reader.next_deadline() is not None
    driver.now += PRESENCE_SECONDS
    effects = driver.do(Tick())
    second = driver.reader.presence_topic
    assert effects[:2] == [Unsubscribe(first), Subscribe(second)]
    assert first != second
    driver.entry(EntryKind.PRESENCE, first, 4, 0)
    assert not driver.reader.present
    driver.present(4)
    assert driver.reader.present


def test_a_new_exchange_is_read_from_its_beginning_at_once() -> None:
    driver = Driver(Start(From.NEW), streams=False)
    driver.heads(2, (b"t", 1))
    assert driver.passed() == []
    driver.present(2)
    assert driver.reader.confirmed
    (request,) = driver.asked(FETCH)
    assert isinstance(request, FetchRequest)
    assert request.wants == [(b"t", 0, 2)]


def test_an_early_start_reads_from_the_floor() -> None:
    driver = Driver(Start(From.EARLIEST))
    driver.present(9, 4)
    (request,) = driver.asked(HEADS)
    assert isinstance(request, HeadsRequest)
    assert request.since == 4


def test_what_is_old_is_not_fetched_before_the_start_is_confirmed() -> None:
    driver = Driver(Start(From.EARLIEST))
    driver.present(9)
    (streams,) = driver.asked(STREAMS)
    assert isinstance(streams, StreamsRequest)
    driver.heads(9, (b"t", 8))
    assert not driver.asked(FETCH)
    driver.answer(STREAMS, Streams(id=streams.id, generation=9, streams=[]))
    assert driver.reader.confirmed
    assert driver.asked(FETCH)


def test_a_start_at_an_offset_that_has_left_the_log_is_reported() -> None:
    driver = Driver(Start(From.OFFSET, 2))
    assert LogGap(b"", 2, 4) in driver.present(9, 4)
    assert driver.reader.chain.verified == 4


def test_who_wants_the_latest_instead_of_what_is_kept_no_more_begins_at_the_end() -> None:
    driver = Driver(Start(From.OFFSET, 2, BelowFloor.LATEST))
    assert LogGap(b"", 2, 9) in driver.present(9, 4)
    assert driver.reader.chain.verified == 9


def test_who_wants_an_error_instead_does_not_begin() -> None:
    driver = Driver(Start(From.OFFSET, 2, BelowFloor.ERROR))
    driver.present(9, 4)
    assert driver.reader.chain.verified is None
    assert "keeps nothing below offset 4, and offset 2 was asked for" in driver.reader.not_kept
    assert not driver.reader.confirmed
    kept = Driver(Start(From.OFFSET, 4, BelowFloor.ERROR))
    kept.present(9, 4)
    assert (kept.reader.chain.verified, kept.reader.not_kept) == (4, "")


def test_an_offset_beyond_the_end_is_one_of_another_log_and_nothing_of_this_one_was_read() -> None:
    driver = Driver(Start(From.OFFSET, 200))
    assert not any(isinstance(each, LogGap) for each in driver.present(9, 4))
    assert driver.reader.chain.verified == 4
    at_the_end = Driver(Start(From.OFFSET, 9))
    at_the_end.present(9, 4)
    assert at_the_end.reader.chain.verified == 9


def test_who_wants_the_latest_begins_at_the_end_of_another_log() -> None:
    driver = Driver(Start(From.OFFSET, 200, BelowFloor.LATEST))
    driver.present(9, 4)
    assert driver.reader.chain.verified == 9


def test_who_wants_an_error_does_not_begin_at_an_offset_of_another_log() -> None:
    driver = Driver(Start(From.OFFSET, 200, BelowFloor.ERROR))
    driver.present(9, 4)
    assert driver.reader.chain.verified is None
    assert "ends at 9: the offset is one of another log" in driver.reader.not_kept


def test_a_start_at_a_time_asks_for_its_offset() -> None:
    driver = Driver(Start(From.TIME, 123))
    (request,) = driver.asked(SEEK)
    assert isinstance(request, SeekRequest)
    assert request.time_us == 123
    driver.present(9)
    assert driver.reader.chain.verified is None
    driver.answer(SEEK, Seek(id=request.id, generation=9, offset=6, end=9, floor=1))
    assert driver.reader.chain.verified == 6


def test_a_dropped_batch_is_fetched_and_the_order_kept() -> None:
    driver = confirmed()
    driver.batch(5)
    driver.batch(8, 7)
    assert driver.passed() == [5]
    (request,) = driver.asked(FETCH)
    assert isinstance(request, FetchRequest)
    assert request.wants == [(b"t", 6, 8)]
    frames = [
        FETCHED_ENTRY, NUMBER.pack(request.id), b"t",
        pack_entry(EntryKind.ENTRY, 3, QUEUE, 9, 7, 5, 0), b"batch",
    ]  # fmt: skip
    assert driver.reader.fetched(frames, driver.now)
    driver.answer(FETCH, Fetched(id=request.id, generation=9, reached=8, floor=0, done=True))
    assert driver.passed() == [7, 8]


def test_a_dropped_tail_is_found_by_the_end_of_the_log() -> None:
    driver = confirmed()
    driver.end(7)
    driver.heads(7, (b"t", 6))
    (request,) = driver.asked(FETCH)
    assert isinstance(request, FetchRequest)
    assert request.wants == [(b"t", 5, 7)]


def test_a_batch_that_may_still_be_under_way_is_waited_for() -> None:
    driver = confirmed()
    driver.do(Verify(driver.now))
    asked_at = driver.now
    driver.heads(7, (b"t", 6))
    assert driver.asked(FETCH) == []
    driver.batch(6)
    assert driver.passed() == [6]
    assert driver.reader.verification.verified_as_of == asked_at


def test_a_silent_fan_out_is_replaced_by_fetches() -> None:
    driver = confirmed()
    driver.now += END_SILENT_SECONDS
    driver.do(Tick())
    driver.heads(7, (b"t", 6))
    assert len(driver.asked(FETCH)) == 1
    deadline = driver.reader.next_deadline()
    assert deadline is not None
    assert deadline > driver.now


def test_verification_is_as_of_the_time_of_the_question() -> None:
    driver = confirmed()
    asked_at = driver.now
    driver.do(Verify(driver.now))
    driver.now += 0.3
    driver.heads(5)
    assert driver.reader.verification.verified_as_of == asked_at


def test_a_later_demand_is_answered_by_another_check() -> None:
    driver = confirmed()
    driver.do(Verify(driver.now))
    driver.now += 0.3
    driver.do(Verify(driver.now))
    driver.heads(5)
    driver.now += CHECK_SECONDS
    driver.do(Tick())
    assert len(driver.asked(HEADS)) == 1


def test_pages_of_heads_make_one_check() -> None:
    driver = confirmed()
    driver.do(Verify(driver.now))
    driver.heads(9, (b"t", 6), more=True)
    (request,) = driver.asked(HEADS)
    assert isinstance(request, HeadsRequest)
    assert request.since == 7


def test_what_was_asked_is_asked_again_when_the_connection_comes_back() -> None:
    driver = confirmed()
    driver.batch(8, 7)
    assert len(driver.asked(FETCH)) == 1
    driver.do(DataDown())
    assert driver.asked(FETCH) == []
    driver.do(DataUp())
    assert len(driver.asked(FETCH)) == 1
    assert len(driver.asked(HEADS)) == 1


def test_an_answer_that_does_not_come_is_asked_for_again_with_more_patience() -> None:
    driver = confirmed()
    driver.batch(8, 7)
    (first,) = driver.asked(FETCH)
    assert isinstance(first, FetchRequest)
    driver.now += FETCH_PATIENCE_SECONDS
    driver.do(Tick())
    (second,) = driver.asked(FETCH)
    assert isinstance(second, FetchRequest)
    assert second.wants == first.wants
    driver.answer(FETCH, Fetched(id=first.id, generation=9, reached=9, floor=99, done=True))
    assert driver.reader.chain.gaps == []
    driver.now += 1.5
    driver.do(Tick())
    assert driver.asked(FETCH) == []


def fetched(driver: Driver, number: int, offset: int, previous: int) -> None:
    frame = pack_entry(EntryKind.ENTRY, 3, QUEUE, 9, offset, previous, 0)
    driver.do(Answered([FETCHED_ENTRY, NUMBER.pack(number), b"t", frame, b"batch"]))


def test_a_batch_that_comes_after_it_was_given_up_is_taken() -> None:
    driver = confirmed()
    driver.batch(8, 7)
    (first,) = driver.asked(FETCH)
    assert isinstance(first, FetchRequest)
    driver.now += FETCH_PATIENCE_SECONDS
    driver.do(Tick())
    (second,) = driver.asked(FETCH)
    assert isinstance(second, FetchRequest)
    fetched(driver, first.id, 7, NONE)
    assert driver.passed() == [7, 8]
    fetched(driver, second.id, 7, NONE)
    driver.answer(FETCH, Fetched(id=second.id, generation=9, reached=8, floor=0, done=True))
    assert driver.passed() == []
    assert driver.reader.chain.gaps == []


def test_a_late_batch_with_a_hole_before_it_is_fetched_anew() -> None:
    driver = confirmed()
    driver.batch(9, 8)
    (first,) = driver.asked(FETCH)
    assert isinstance(first, FetchRequest)
    driver.now += FETCH_PATIENCE_SECONDS
    driver.do(Tick())
    fetched(driver, first.id, 8, 7)
    assert driver.passed() == []


def test_a_late_batch_that_is_wanted_again_is_taken() -> None:
    driver = confirmed()
    driver.do(Refetch(b"t", 3))
    (first,) = driver.asked(FETCH)
    assert isinstance(first, FetchRequest)
    driver.now += FETCH_PATIENCE_SECONDS
    driver.do(Tick())
    fetched(driver, first.id, 3, 2)
    assert driver.passed() == [3]


def test_a_refusal_is_followed_by_another_question_soon() -> None:
    driver = confirmed()
    driver.batch(8, 7)
    assert len(driver.asked(FETCH)) == 1
    driver.do(Answered([REFUSED, documents.encode(Refused(code="full", text="later"))]))
    driver.now += PATIENCE_SECONDS
    driver.do(Tick())
    assert len(driver.asked(FETCH)) == 1


def test_a_paused_reader_asks_nothing_and_expires_nothing() -> None:
    driver = confirmed()
    driver.do(Pause())
    driver.batch(8, 7)
    driver.now += 60
    driver.do(Tick())
    assert driver.asked(FETCH) == []
    assert driver.reader.next_deadline() is None
    driver.do(Resume())
    assert len(driver.asked(FETCH)) == 1


def test_a_batch_that_is_wanted_again_is_fetched_alone() -> None:
    driver = confirmed()
    driver.do(Refetch(b"t", 5))
    (request,) = driver.asked(FETCH)
    assert isinstance(request, FetchRequest)
    assert request.wants == [(b"t", 5, 6)]
    effects = driver.answer(
        FETCH, Fetched(id=request.id, generation=9, reached=6, floor=6, done=True)
    )
    assert Gone(b"t", 5) in effects


def test_a_batch_that_the_log_has_is_wanted_until_it_comes() -> None:
    driver = confirmed()
    driver.do(Refetch(b"t", 5))
    for _ in range(2):
        (request,) = driver.asked(FETCH)
        assert isinstance(request, FetchRequest)
        done = Fetched(id=request.id, generation=9, reached=6, floor=3, done=True)
        assert Gone(b"t", 5) not in driver.answer(FETCH, done)
    for _ in range(TRIES_MAX - 1):
        (request,) = driver.asked(FETCH)
        assert isinstance(request, FetchRequest)
        effects = driver.answer(
            FETCH, Fetched(id=request.id, generation=9, reached=6, floor=3, done=True)
        )
    assert Gone(b"t", 5) in effects


def test_whatever_is_wanted_again_is_asked_for_however_much_it_is() -> None:
    driver = confirmed()
    for offset in range(2_000):
        assert not any(isinstance(effect, Gone) for effect in driver.do(Refetch(b"t", offset)))
    assert len(driver.reader._again) == 2_000


def test_who_is_held_back_fetches_only_what_is_wanted_again() -> None:
    driver = confirmed()
    driver.reader.held_back = True
    driver.batch(8, 7)
    assert driver.asked(FETCH) == []
    driver.do(Refetch(b"t", 3))
    (request,) = driver.asked(FETCH)
    assert isinstance(request, FetchRequest)
    assert request.wants == [(b"t", 3, 4)]
    fetched(driver, request.id, 3, 2)
    driver.answer(FETCH, Fetched(id=request.id, generation=9, reached=4, floor=0, done=True))
    assert driver.asked(FETCH) == []
    driver.reader.held_back = False
    driver.do(Tick())
    assert len(driver.asked(FETCH)) == 1


def test_entries_of_others_are_dropped_and_counted() -> None:
    driver = confirmed()
    driver.entry(EntryKind.ENTRY, b"t", 5, NONE, b"x", queue=b"z" * 16)
    driver.entry(EntryKind.ENTRY, b"t", 5, NONE, b"x", epoch=8)
    assert driver.reader.foreign == 2
    assert driver.passed() == []


def test_garbage_is_counted_on_both_sockets() -> None:
    driver = confirmed()
    for frames in ([], [b"t"], [b"t", b"short"], [b"t", b"x" * 56, b"", b""]):
        driver.reader.live(frames, driver.now)
    driver.entry(EntryKind.ENTRY, b"\xffz", 5, NONE, b"x")
    driver.entry(EntryKind.END, b"t", 5, 0)
    driver.entry(EntryKind.ENTRY, b"t", 5, NONE)
    for frames in ([b""], [b"\xff?", b""], [HEADS, b"no bson"], [FETCHED_ENTRY] + [b""] * 4):
        driver.do(Answered(frames))
    assert driver.reader.malformed == 7 + 4
    assert driver.passed() == []


def test_presence_of_another_subscriber_is_ignored() -> None:
    driver = Driver()
    driver.entry(EntryKind.PRESENCE, b"\xffS" + b"o" * 16, 5, 0)
    assert not driver.reader.present
    assert driver.reader.malformed == 0


def test_who_closes_wants_nothing_more_of_what_it_has_asked_for() -> None:
    driver = confirmed(end=5)
    assert driver.reader.farewells() == []
    driver.batch(9, previous=7)
    (asked,) = driver.asked(FETCH)
    assert isinstance(asked, FetchRequest)
    ((letter, document),) = driver.reader.farewells()
    nothing = documents.decode(document, FetchRequest)
    assert (letter, nothing.queue, nothing.generation) == (FETCH, QUEUE, 9)
    assert nothing.wants == nothing.prefixes == []
    assert nothing.id != asked.id
