"""One bound for the old batches that wait for all slow subscribers of an exchange together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roq.exchange.backlogs import LOOK_PARTS, Backlogs
from roq.log.ring import ENTRY_OVERHEAD, Ring

BATCH = 1_000 - ENTRY_OVERHEAD
RING = 64_000
MOST = 40_000
EACH = 30_000


def made() -> tuple[Ring[bytes], Backlogs]:
    ring: Ring[bytes] = Ring(b"q" * 16, 1, 1, capacity_bytes=RING, topics_max=4)
    return ring, Backlogs(ring, MOST, EACH)


def fill(ring: Ring[bytes], batches: int) -> None:
    for _ in range(batches):
        ring.append(b"t", b"", BATCH)


def test_nobody_is_looked_at_before_a_batch_has_left_the_ring() -> None:
    ring, backlogs = made()
    fill(ring, 64)
    assert ring.gone < backlogs.look_at
    fill(ring, 1)
    assert ring.gone >= backlogs.look_at


def test_what_is_still_in_the_ring_takes_no_memory_of_its_own() -> None:
    ring, backlogs = made()
    fill(ring, 100)
    backlogs.accepted(1)
    fill(ring, 64)
    assert backlogs.look([]) == []
    assert backlogs.occupied == 0
    fill(ring, 10)
    assert backlogs.look([]) == []
    assert backlogs.occupied == 10_000


def test_one_connection_holds_no_more_than_its_own_bound() -> None:
    ring, backlogs = made()
    backlogs.accepted(1)
    fill(ring, 1_000)
    assert backlogs.look([]) == []
    assert backlogs.occupied == EACH


def test_together_above_the_bound_the_one_that_holds_most_is_cut_off_and_the_others_stay() -> None:
    ring, backlogs = made()
    backlogs.accepted(1)
    fill(ring, 10)
    backlogs.accepted(2)
    fill(ring, 10)
    backlogs.accepted(3)
    fill(ring, 64 + 8)
    assert backlogs.look([]) == [1]
    assert (backlogs.occupied, backlogs.cut_off) == (26_000, 1)
    backlogs.ended(1)
    assert backlogs.look([]) == []
    assert backlogs.occupied == 26_000


def test_who_was_cut_off_and_has_not_gone_yet_is_neither_counted_nor_cut_off_again() -> None:
    ring, backlogs = made()
    backlogs.accepted(1)
    backlogs.accepted(2)
    fill(ring, 200)
    assert len(backlogs.look([])) == 1
    assert backlogs.look([]) == []
    assert (backlogs.occupied, backlogs.cut_off) == (EACH, 1)


def test_a_new_connection_under_the_same_number_begins_anew() -> None:
    ring, backlogs = made()
    backlogs.accepted(1)
    fill(ring, 200)
    backlogs.accepted(1)
    backlogs.look([])
    assert backlogs.occupied == 0


def test_who_takes_what_comes_holds_nothing() -> None:
    ring, backlogs = made()
    for number in range(100):
        backlogs.accepted(number)
    for _ in range(500):
        fill(ring, 7)
        assert backlogs.look(range(100)) == []
        assert backlogs.occupied == 0


def test_who_is_busy_at_every_other_look_does_not_count_as_having_read_everything() -> None:
    ring, backlogs = made()
    backlogs.accepted(1)
    fill(ring, 100)
    for number in range(10):
        backlogs.look([1] if number % 2 else [])
    assert backlogs.occupied == EACH
    backlogs.look([1])
    backlogs.look([1])
    assert backlogs.occupied == 0
    backlogs.look([])
    assert backlogs.occupied == 0


def test_between_two_looks_a_part_of_the_ring_may_pass() -> None:
    ring, backlogs = made()
    fill(ring, 65)
    backlogs.look([])
    assert backlogs.look_at == ring.gone + RING // LOOK_PARTS


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("accept"), st.integers(0, 5)),
            st.tuples(st.just("end"), st.integers(0, 5)),
            st.tuples(st.just("fill"), st.integers(1, 90)),
            st.tuples(st.just("read"), st.integers(0, 63)),
        ),
        max_size=60,
    )
)
def test_whoever_reads_and_whenever_all_together_hold_no_more_than_the_bound(
    steps: list[tuple[str, int]],
) -> None:
    """Against sockets that keep everything that was sent to who does not read, up to a bound."""
    ring, backlogs = made()
    queues: dict[int, list[int]] = {}
    """Connection → places of the log that wait for it."""
    stuck: set[int] = set()
    for what, value in steps:
        match what:
            case "accept":
                queues[value] = []
                stuck.add(value)
                backlogs.accepted(value)
            case "end":
                queues.pop(value, None)
                backlogs.ended(value)
            case "read":
                stuck = {number for number in queues if value >> number & 1}
            case _:
                for _ in range(value):
                    fill(ring, 1)
                    end = ring.gone + ring.kept
                    for number, queue in queues.items():
                        if number not in stuck:
                            queue.clear()
                        elif len(queue) < EACH // 1_000:
                            queue.append(end)
        for number in queues.keys() - stuck:
            queues[number].clear()
        for number in backlogs.look([number for number in queues if number not in stuck]):
            del queues[number]
            backlogs.ended(number)
        backlogs.check()
        held = sum(1_000 for queue in queues.values() for end in queue if end <= ring.gone)
        assert held <= MOST
        assert held <= backlogs.occupied
