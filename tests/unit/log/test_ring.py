"""The memory log: bounded, indexed by topic and time, and honest about what it forgot."""

from roq.log.ring import ENTRY_OVERHEAD, HotTail, Ring
from roq.protocol.entry import NONE, EntryKind, announcement, read_entry

QUEUE = b"q" * 16


def ring(*, entries: int = 100, topics: int = 100) -> Ring[bytes]:
    return Ring(QUEUE, 7, 3, capacity_bytes=entries * (10 + ENTRY_OVERHEAD), topics_max=topics)


def test_the_topics_that_are_kept_are_taken_by_append_spare_alone() -> None:
    log: Ring[bytes] = Ring(QUEUE, 7, 3, capacity_bytes=1 << 20, topics_max=4, topics_spare=1)
    put(log, b"a", b"b", b"c")
    assert (log.make_room(b"d"), log.make_room(b"d", spare=True)) == (False, True)
    assert log.append(b"d", b"x", 1) is None
    assert log.append_spare(b"d", b"x", 1) is not None
    assert log.append_spare(b"e", b"x", 1) is None
    assert log.append(b"d", b"x", 1) is not None, "a topic that is there goes on"
    log.check()


def test_topics_that_have_left_give_way_before_one_is_refused() -> None:
    log: Ring[bytes] = Ring(
        QUEUE, 7, 3, capacity_bytes=3 * (10 + ENTRY_OVERHEAD), topics_max=5, topics_spare=2
    )
    put(log, b"a", b"b", b"c")
    log.append_spare(b"d", bytes(10), 10)
    log.append_spare(b"e", bytes(10), 10)
    assert log.topics == 5, "two of them have left"
    put(log, b"e", b"e")
    assert log.append(b"f", bytes(10), 10) is not None
    assert log.topics == 3
    log.check()


def put(log: Ring[bytes], *topics: bytes) -> list[bytes | None]:
    frames = []
    for topic in topics:
        frames.append(log.append(topic, b"0123456789", 10))
        log.check()
    return frames


def test_an_entry_names_its_log_its_offset_and_the_one_before_it_in_its_topic() -> None:
    log = ring()
    log.advance_clock(500)
    first, _, third = put(log, b"a", b"b", b"a")
    assert first is not None
    assert third is not None
    entry = read_entry(first)
    assert (entry.kind, entry.exchange, entry.queue, entry.generation) == (
        EntryKind.ENTRY,
        7,
        QUEUE,
        3,
    )
    assert (entry.offset, entry.previous, entry.appended_us) == (0, NONE, 500)
    assert (read_entry(third).offset, read_entry(third).previous) == (2, 0)


def test_append_times_never_decrease() -> None:
    log = ring()
    log.advance_clock(500)
    log.advance_clock(400)
    (frame,) = put(log, b"a")
    assert frame is not None
    assert read_entry(frame).appended_us == 500


def test_the_oldest_entries_leave_when_the_capacity_is_reached() -> None:
    log = ring(entries=3)
    put(log, *[b"a"] * 10)
    assert (log.floor, log.end) == (7, 10)
    assert log.record(7)[2] == b"0123456789"
    assert log.next_of(b"a", 0) == 7


def test_a_batch_larger_than_the_ring_is_kept_alone() -> None:
    log = ring(entries=3)
    put(log, b"a", b"a")
    log.append(b"a", b"x" * 5000, 5000)
    log.check()
    assert (log.floor, log.end) == (2, 3)
    put(log, b"a")
    assert (log.floor, log.end) == (3, 4)


def test_batches_of_a_topic_are_found_from_any_offset() -> None:
    log = ring()
    put(log, b"a", b"b", b"b", b"a", b"b")
    assert [log.next_of(b"a", at) for at in range(5)] == [0, 3, 3, 3, None]
    assert log.next_of(b"nobody", 0) is None


def test_heads_come_in_order_of_offset_filtered_by_prefix_and_paged() -> None:
    log = ring()
    put(log, b"eu.be", b"eu.nl", b"us", b"eu.be", b"eu.fr")
    assert log.heads((b"eu.",), 0, log.end, 10) == (
        [(b"eu.nl", 1), (b"eu.be", 3), (b"eu.fr", 4)],
        False,
    )
    assert log.heads((b"eu.", b"us"), 2, log.end, 10)[0] == [
        (b"us", 2),
        (b"eu.be", 3),
        (b"eu.fr", 4),
    ]
    assert log.heads((b"",), 0, log.end, 2) == ([(b"eu.nl", 1), (b"us", 2)], True)
    assert log.heads((), 0, log.end, 10) == ([], False)


def test_heads_of_the_log_as_it_was_come_from_the_first_offset_that_is_asked_for() -> None:
    log = ring()
    put(log, b"a", b"b", b"a", b"c", b"a")
    assert log.heads((b"",), 0, 4, 10) == ([(b"b", 1), (b"a", 2), (b"c", 3)], False)
    assert log.heads((b"",), 2, 4, 10) == ([(b"a", 2), (b"c", 3)], False)
    assert log.heads((b"",), 3, 5, 10) == ([(b"c", 3), (b"a", 4)], False)
    assert log.heads((b"a", b"b"), 0, 3, 1) == ([(b"b", 1)], True)
    assert log.heads((b"",), 4, 4, 10) == ([], False)


def test_a_topic_that_left_the_ring_still_has_a_head() -> None:
    log = ring(entries=2)
    put(log, b"a", b"b", b"b", b"b")
    assert log.heads((b"",), 0, log.end, 10)[0] == [(b"a", 0), (b"b", 3)]
    (frame,) = put(log, b"a")
    assert frame is not None
    assert read_entry(frame).previous == 0


def test_a_time_is_found_by_bisection() -> None:
    log = ring(entries=4)
    for time_us in (10, 20, 20, 30, 40):
        log.advance_clock(time_us)
        put(log, b"a")
    assert [log.seek(time_us) for time_us in (0, 20, 21, 30, 40, 41)] == [1, 1, 3, 3, 4, 5]


def test_a_new_topic_is_refused_while_every_known_one_is_in_the_ring() -> None:
    log = ring(topics=2)
    assert put(log, b"a", b"b", b"c")[2] is None
    assert log.end == 2


def test_a_topic_that_left_the_ring_makes_room_and_newcomers_say_what_may_be_forgotten() -> None:
    log = ring(entries=2, topics=2)
    put(log, b"a", b"b", b"b", b"b")
    frames = put(log, b"c", b"c", b"a")
    kinds = [(read_entry(f).kind, read_entry(f).previous) for f in frames if f is not None]
    assert kinds == [
        (EntryKind.FORGOTTEN, 1),  # "a" was forgotten; all it had was below offset 1
        (EntryKind.ENTRY, 4),
        (EntryKind.FORGOTTEN, 4),  # "b" was forgotten; all it had was below offset 4
    ]


def test_an_announcement_differs_from_the_entry_in_its_kind_alone() -> None:
    log = ring(entries=1, topics=2)
    first, _, second = put(log, b"a", b"b", b"c")
    assert first is not None
    assert second is not None
    assert read_entry(announcement(first)).kind == EntryKind.ANNOUNCE
    assert read_entry(announcement(second)).kind == EntryKind.FORGOTTEN_ANNOUNCE
    assert announcement(first)[4:] == first[4:]


def test_what_left_the_ring_is_released() -> None:
    log = ring(entries=2)
    put(log, *[b"a", b"b"] * 3_000)
    assert log.kept <= 2 * (10 + ENTRY_OVERHEAD)
    assert log.floor == 5_998


BATCH = b"x" * 100


def tail() -> HotTail[bytes]:
    return HotTail(b"q" * 16, 1, 1, capacity_bytes=1_000, topics_max=10, topics_spare=0)


def test_what_is_not_committed_stays_however_large_it_is() -> None:
    made = tail()
    for _ in range(50):
        made.append(b"t", BATCH, len(BATCH))
    assert (made.floor, made.end, made.committed) == (0, 50, 0)
    assert made.kept > made.capacity


def test_what_is_committed_makes_room_from_then_on() -> None:
    made = tail()
    for _ in range(50):
        made.append(b"t", BATCH, len(BATCH))
    made.commit(20)
    assert (made.floor, made.committed) == (20, 20), "all that may leave, and no more"
    made.commit(50)
    assert 20 < made.floor < 50
    assert made.kept <= made.capacity


def test_a_topic_that_is_forgotten_is_its_name() -> None:
    assert tail().topic(b"t").name == b"t"
