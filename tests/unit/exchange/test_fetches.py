"""Old batches, piece by piece, fairly, and within bounds."""

from exchange_driver import QUEUE

from roq.exchange.fetches import ANSWERS_BYTES_MAX, RETRY_SECONDS, Fetches
from roq.log.cursors import SCAN_MAX
from roq.log.log import Record
from roq.log.patient_reads import AGAIN_SECONDS, REFUSED_SECONDS
from roq.log.ring import ENTRY_OVERHEAD, Ring
from roq.protocol import documents
from roq.protocol.channel import (
    FETCH,
    FETCHED_ENTRY,
    HEADS,
    NUMBER,
    READERS_PER_CONNECTION_MAX,
    Fetched,
    FetchRequest,
)
from roq.protocol.entry import read_entry
from roq.timing import FETCH_GIVE_UP_SECONDS


def ring(*topics: bytes, entries: int = 1_000) -> Ring[bytes]:
    log: Ring[bytes] = Ring(
        QUEUE, 1, 1, capacity_bytes=entries * (10 + ENTRY_OVERHEAD), topics_max=100
    )
    for topic in topics:
        log.append(topic, b"0123456789", 10)
    return log


def request(*wants: tuple[bytes, int, int], number: int = 1, most: int = 1 << 20) -> FetchRequest:
    return FetchRequest(id=number, queue=QUEUE, generation=1, wants=list(wants), max_bytes=most)


def take(fetches: Fetches[bytes], now: float = 0.0) -> tuple[bytes, int | Fetched]:
    """Send the next piece: who gets it, and its offset or the end of the fetch."""
    assert fetches.runnable(now)
    piece = fetches.next_piece()
    fetches.sent(piece)
    fetches.check()
    if piece.batch is None:
        return piece.route, documents.decode(piece.parts[1], Fetched)
    assert piece.parts[0][:2] == FETCHED_ENTRY
    return piece.route, read_entry(piece.parts[3]).offset


def drain(fetches: Fetches[bytes], now: float = 0.0) -> tuple[list[int], Fetched]:
    offsets: list[int] = []
    while True:
        _, got = take(fetches, now)
        if isinstance(got, Fetched):
            return offsets, got
        offsets.append(got)


def test_wanted_batches_come_in_order_of_offset_over_all_topics() -> None:
    fetches = Fetches(ring(b"a", b"b", b"a", b"c", b"b", b"a"))
    fetches.start(b"r", request((b"a", 1, 6), (b"b", 0, 4)))
    offsets, fetched = drain(fetches)
    assert offsets == [1, 2, 5]
    assert (fetched.id, fetched.reached, fetched.floor, fetched.done) == (1, 6, 0, True)
    assert len(fetches) == 0


def test_a_piece_carries_request_topic_entry_and_batch() -> None:
    fetches = Fetches(ring(b"a"))
    fetches.start(b"r", request((b"a", 0, 1), number=9))
    assert fetches.runnable(0.0)
    piece = fetches.next_piece()
    letter, number, topic, _ = piece.parts
    assert (letter, number, topic) == (FETCHED_ENTRY, NUMBER.pack(9), b"a")
    assert (piece.route, piece.batch, piece.size) == (b"r", b"0123456789", 10)


def test_a_fetch_ends_at_its_limit_of_bytes_and_says_where_to_go_on() -> None:
    fetches = Fetches(ring(*[b"a"] * 10))
    fetches.start(b"r", request((b"a", 0, 10), most=25))
    offsets, fetched = drain(fetches)
    assert offsets == [0, 1, 2]
    assert (fetched.reached, fetched.done) == (3, False)
    fetches.start(b"r", request((b"a", 3, 10)))
    assert drain(fetches)[0] == list(range(3, 10))


def test_a_limit_below_one_batch_still_brings_one() -> None:
    fetches = Fetches(ring(b"a", b"a"))
    fetches.start(b"r", request((b"a", 0, 2), most=-5))
    assert drain(fetches)[0] == [0]


def test_nothing_wanted_is_done_at_once() -> None:
    fetches = Fetches(ring(b"a"))
    for wants in ((), ((b"nobody", 0, 9),), ((b"a", 1, 9),), ((b"a", 0, -3),), ((b"a", 0, 0),)):
        fetches.start(b"r", request(*wants))
        offsets, fetched = drain(fetches)
        assert (offsets, fetched.done) == ([], True)


def test_a_range_beyond_the_end_is_reached_up_to_the_end_only() -> None:
    fetches = Fetches(ring(b"a", b"a"))
    fetches.start(b"r", request((b"a", 0, 100)))
    assert drain(fetches)[1].reached == 2


def test_what_left_the_ring_meanwhile_is_skipped_and_the_floor_tells() -> None:
    log = ring(*[b"a"] * 4, entries=4)
    fetches = Fetches(log)
    fetches.start(b"r", request((b"a", 0, 100)))
    assert take(fetches)[1] == 0
    for _ in range(3):
        log.append(b"a", b"0123456789", 10)
    offsets, fetched = drain(fetches)
    assert offsets == [3, 4, 5, 6]
    assert fetched.floor == 3


def test_overlapping_wants_bring_each_batch_once() -> None:
    fetches = Fetches(ring(*[b"a"] * 4))
    fetches.start(b"r", request((b"a", 0, 3), (b"a", 1, 4), (b"a", 1, 2)))
    assert drain(fetches)[0] == [0, 1, 2, 3]


def test_readers_take_turns() -> None:
    fetches = Fetches(ring(b"a", b"a"))
    for route in (b"one", b"two"):
        fetches.start(route, request((b"a", 0, 2)))
    assert [take(fetches)[0] for _ in range(4)] == [b"one", b"two", b"one", b"two"]


def test_a_newer_fetch_of_a_reader_replaces_the_older() -> None:
    fetches = Fetches(ring(b"a", b"b"))
    fetches.start(b"r", request((b"a", 0, 2), number=1))
    fetches.start(b"r", request((b"b", 0, 2), number=2))
    offsets, fetched = drain(fetches)
    assert (offsets, fetched.id) == ([1], 2)
    assert not fetches.runnable(0.0)


def test_a_blocked_reader_holds_nobody_up_and_goes_on_where_it_was() -> None:
    fetches = Fetches(ring(b"a", b"a"))
    fetches.start(b"slow", request((b"a", 0, 2)))
    fetches.start(b"fast", request((b"a", 0, 2)))
    assert fetches.runnable(0.0)
    assert fetches.next_piece().route == b"slow"
    assert fetches.blocked(0.0) == 0
    fetches.check()
    assert [take(fetches)[0] for _ in range(3)] == [b"fast"] * 3
    assert not fetches.runnable(0.0)
    assert fetches.next_deadline() == RETRY_SECONDS
    assert fetches.runnable(RETRY_SECONDS)
    assert [take(fetches)[1] for _ in range(2)] == [0, 1]


def test_a_reader_that_never_reads_is_given_up() -> None:
    fetches = Fetches(ring(b"a"))
    fetches.start(b"r", request((b"a", 0, 2)))
    now = 1.0
    while True:
        assert fetches.runnable(now)
        fetches.next_piece()
        if fetches.blocked(now):
            break
        now += RETRY_SECONDS
    assert now >= FETCH_GIVE_UP_SECONDS
    assert len(fetches) == 0
    assert fetches.next_deadline() is None


def test_a_reader_that_is_gone_is_forgotten_ready_or_blocked() -> None:
    fetches = Fetches(ring(b"a"))
    fetches.start(b"r", request((b"a", 0, 2)))
    fetches.cancel(b"r")
    fetches.start(b"r", request((b"a", 0, 2)))
    assert fetches.runnable(0.0)
    fetches.next_piece()
    fetches.blocked(0.0)
    fetches.cancel(b"r")
    fetches.cancel(b"r")
    fetches.check()
    assert len(fetches) == 0


def test_readers_of_one_connection_fetch_in_turn_and_replace_their_own_only() -> None:
    fetches = Fetches(ring(b"a", b"a", b"b"))
    fetches.start(b"r", request((b"b", 0, 3), number=1), b"one!")
    fetches.start(b"r", request((b"a", 0, 2), number=2), b"one!")
    fetches.start(b"r", request((b"a", 0, 2), number=3), b"two!")
    came = []
    while fetches.runnable(0.0):
        piece = fetches.next_piece()
        fetches.sent(piece)
        fetches.check()
        came.append(piece.parts[0])
    entries = [FETCHED_ENTRY + b"one!", FETCHED_ENTRY + b"two!"]
    assert came == [*entries, *entries, FETCH + b"one!", FETCH + b"two!"]


def test_connections_take_turns_however_many_readers_share_one() -> None:
    fetches = Fetches(ring(*[b"a"] * 9))
    for reader in (b"one!", b"two!", b"tri!"):
        fetches.start(b"shared", request((b"a", 0, 9)), reader)
    fetches.start(b"alone", request((b"a", 0, 9)))
    assert [take(fetches)[0] for _ in range(4)] == [b"shared", b"alone"] * 2


def test_readers_of_one_connection_have_a_bound() -> None:
    fetches = Fetches(ring(b"a"))
    for number in range(READERS_PER_CONNECTION_MAX):
        assert fetches.start(b"r", request((b"a", 0, 1)), number.to_bytes(4, "big"))
    assert not fetches.start(b"r", request((b"a", 0, 1)), b"more")
    assert fetches.start(b"r", request((b"a", 0, 1)), bytes(4))
    assert fetches.start(b"other", request((b"a", 0, 1)))
    assert fetches.cancel(b"r") == READERS_PER_CONNECTION_MAX
    fetches.check()
    assert len(fetches) == 1


def test_an_answer_for_which_there_was_no_room_goes_before_all_that_is_fetched() -> None:
    fetches = Fetches(ring(b"a", b"a"))
    fetches.start(b"r", request((b"a", 0, 2)), b"one!")
    assert fetches.runnable(0.0)
    fetches.next_piece()
    fetches.blocked(0.0)
    assert fetches.answer_later(b"r", (HEADS + b"two!", b"document"))
    fetches.check()
    assert not fetches.runnable(0.0)
    came = []
    while fetches.runnable(RETRY_SECONDS):
        piece = fetches.next_piece()
        fetches.sent(piece)
        fetches.check()
        came.append(piece.parts[0][:2])
    assert came == [HEADS, FETCHED_ENTRY, FETCHED_ENTRY, FETCH]


def test_answers_that_wait_for_one_connection_have_a_bound_and_are_given_up() -> None:
    fetches = Fetches(ring(b"a"))
    assert fetches.answer_later(b"r", (HEADS, bytes(ANSWERS_BYTES_MAX - 2)))
    assert not fetches.answer_later(b"r", (HEADS, b""))
    assert fetches.answer_later(b"other", (HEADS, b""))
    fetches.check()
    now = 1.0
    while fetches:
        assert fetches.runnable(now)
        fetches.next_piece()
        assert fetches.blocked(now) == 0
        fetches.check()
        now += RETRY_SECONDS
    assert now >= FETCH_GIVE_UP_SECONDS


def span(first: int, until: int, *prefixes: bytes, most: int = 1 << 20) -> FetchRequest:
    return FetchRequest(
        id=1, queue=QUEUE, generation=1, prefixes=list(prefixes), first=first, until=until,
        max_bytes=most,
    )  # fmt: skip


def test_a_part_of_the_log_comes_as_it_stands() -> None:
    fetches = Fetches(ring(b"a", b"b", b"a", b"c", b"b", b"a"))
    fetches.start(b"r", span(1, 5, b""))
    offsets, fetched = drain(fetches)
    assert offsets == [1, 2, 3, 4]
    assert (fetched.reached, fetched.done) == (5, True)


def test_of_a_part_of_the_log_only_topics_under_a_prefix_come() -> None:
    fetches = Fetches(ring(b"eu.be", b"us", b"eu.nl", b"asia", b"us"))
    fetches.start(b"r", span(0, 100, b"eu.", b"as"))
    offsets, fetched = drain(fetches)
    assert offsets == [0, 2, 3]
    assert (fetched.reached, fetched.done) == (5, True)


def test_a_long_stretch_of_other_topics_is_passed_over_in_steps() -> None:
    log = ring(*[b"other"] * (SCAN_MAX + 10), b"wanted", entries=5_000)
    fetches = Fetches(log)
    fetches.start(b"r", span(0, 10_000, b"wanted"))
    offsets, fetched = drain(fetches)
    assert (offsets, fetched.reached, fetched.done) == ([], SCAN_MAX, False)
    fetches.start(b"r", span(fetched.reached, 10_000, b"wanted"))
    offsets, fetched = drain(fetches)
    assert (offsets, fetched.reached, fetched.done) == ([SCAN_MAX + 10], SCAN_MAX + 11, True)


def test_of_a_part_of_the_log_that_has_left_the_ring_the_rest_comes() -> None:
    log = ring(*[b"a"] * 30, entries=10)
    fetches = Fetches(log)
    fetches.start(b"r", span(0, 25, b""))
    offsets, fetched = drain(fetches)
    assert offsets == list(range(log.floor, 25))
    assert (fetched.reached, fetched.floor, fetched.done) == (25, log.floor, True)
    assert fetched.evicted == log.floor
    fetches.start(b"r", span(0, 5, b""))
    offsets, fetched = drain(fetches)
    assert (offsets, fetched.reached, fetched.done, fetched.evicted) == ([], 5, True, 5)


def test_a_part_of_the_log_ends_at_its_limit_of_bytes_and_says_where_to_go_on() -> None:
    fetches = Fetches(ring(*[b"a"] * 10))
    fetches.start(b"r", span(0, 10, b"", most=35))
    offsets, fetched = drain(fetches)
    assert (offsets, fetched.reached, fetched.done) == ([0, 1, 2, 3], 4, False)


def test_a_part_of_the_log_from_beyond_its_end_is_empty() -> None:
    fetches = Fetches(ring(*[b"a"] * 3))
    fetches.start(b"r", span(7, 9, b""))
    offsets, fetched = drain(fetches)
    assert (offsets, fetched.reached, fetched.done) == ([], 3, True)


def test_who_waits_for_the_disk_holds_nobody_up_and_is_first_when_it_was_read() -> None:
    fetches = Fetches(ring(b"a", b"b", b"c"))
    for route, topic in ((b"1", b"a"), (b"2", b"b"), (b"3", b"c")):
        fetches.start(route, request((topic, 0, 3)))
    fetches.wait()
    fetches.wait()
    fetches.check()
    assert take(fetches) == (b"3", 2)
    fetches.go_on()
    fetches.check()
    assert [take(fetches) for _ in range(3)][:2] == [(b"1", 0), (b"2", 1)]


def test_who_waits_for_the_disk_may_go() -> None:
    fetches = Fetches(ring(b"a", b"b"))
    fetches.start(b"1", request((b"a", 0, 3)))
    fetches.start(b"2", request((b"b", 0, 3)))
    fetches.wait()
    assert fetches.cancel(b"1") == 1
    fetches.check()
    fetches.wait()
    assert not fetches.runnable(0.0)
    assert fetches
    fetches.go_on()
    assert take(fetches) == (b"2", 1)


class Refusing(Ring[bytes]):
    """A log whose disk does not give some entries."""

    refused: range = range(0)

    def record(self, offset: int) -> Record[bytes] | None:
        return None if offset in self.refused else super().record(offset)

    def is_lost(self, offset: int) -> bool:
        return offset not in self.refused


def refusing(*topics: bytes) -> Refusing:
    log = Refusing(QUEUE, 1, 1, capacity_bytes=1 << 20, topics_max=100)
    for topic in topics:
        log.append(topic, b"0123456789", 10)
    return log


def test_what_the_disk_refuses_is_asked_for_again_and_holds_up_no_other_reader() -> None:
    log = refusing(*[b"a"] * 6)
    log.refused = range(2, 4)
    fetches = Fetches(log)
    for reader, first in ((b"1", 0), (b"2", 4)):
        fetches.start(b"r", span(first, 6, b""), reader)
    sent = []
    while fetches.runnable(0.0) and (piece := fetches.next_piece()) is not None:
        fetches.sent(piece)
        sent.append(piece.parts[0][-1:])
    assert sorted(sent) == [b"1", b"1", b"2", b"2", b"2"], "two each, and the end of the other one"
    fetches.wait()
    fetches.check()
    assert not fetches.runnable(0.0)
    assert fetches.next_deadline() == AGAIN_SECONDS
    fetches.start(b"r", span(0, 1, b""), b"2")
    assert fetches.next_deadline() == RETRY_SECONDS, "who comes meanwhile does not wait either"
    assert take(fetches, RETRY_SECONDS)[1] == 0
    take(fetches, RETRY_SECONDS)
    assert fetches.next_piece() is None
    fetches.wait()
    log.refused = range(0)
    offsets, fetched = drain(fetches, AGAIN_SECONDS + RETRY_SECONDS)
    assert offsets == [2, 3, 4, 5]
    assert (fetched.reached, fetched.done, fetched.evicted) == (6, True, 0)


def test_what_it_refuses_for_long_is_lost_for_all_who_ask_for_it() -> None:
    log = refusing(*[b"a"] * 6)
    log.refused = range(2, 4)
    fetches = Fetches(log)
    fetches.start(b"r", span(2, 6, b""))
    now = 0.0
    while fetches.runnable(now) and (piece := fetches.next_piece()) is None:
        fetches.wait()
        now += AGAIN_SECONDS
        fetches.start(b"r", span(2, 6, b""))  # a reader that asks again does not begin anew
    assert now == REFUSED_SECONDS
    assert read_entry(piece.parts[3]).offset == 4
    offsets, fetched = drain(fetches, now)
    assert (offsets, fetched.evicted, fetched.done) == ([4, 5], 2, True)
    assert fetches.reads.lost == 2
