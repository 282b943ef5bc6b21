from roq.protocol.entry import NONE
from roq.read.offset_chain import HOLES_MAX, LogGap, OffsetChain


def started(hold_bytes_max: int = 1_000) -> OffsetChain:
    chain = OffsetChain(hold_bytes_max)
    chain.advance(0)
    return chain


def offsets(chain: OffsetChain) -> list[int]:
    chain.check()
    found = [offset for _, offset, _ in chain.passed]
    chain.passed.clear()
    return found


def test_nothing_passes_before_the_start_is_known() -> None:
    chain = OffsetChain()
    chain.arrived(b"t", 3, NONE, b"x")
    assert offsets(chain) == []


def test_batches_that_follow_each_other_pass() -> None:
    chain = started()
    chain.arrived(b"t", 3, NONE, b"x")
    chain.arrived(b"u", 4, NONE, b"x")
    chain.arrived(b"t", 7, 3, b"x")
    assert offsets(chain) == [3, 4, 7]
    assert not chain.repairs


def test_what_came_before_the_start_is_no_hole() -> None:
    chain = OffsetChain()
    chain.advance(10)
    chain.arrived(b"t", 12, 5, b"x")
    assert offsets(chain) == [12]


def test_a_batch_that_came_already_is_dropped() -> None:
    chain = started()
    chain.arrived(b"t", 3, NONE, b"x")
    chain.arrived(b"t", 3, NONE, b"x")
    assert offsets(chain) == [3]
    assert chain.duplicates == 1


def test_a_hole_is_fetched_while_later_batches_wait() -> None:
    chain = started()
    chain.arrived(b"t", 1, NONE, b"x")
    chain.arrived(b"t", 9, 5, b"x")
    chain.arrived(b"t", 11, 9, b"x")
    assert offsets(chain) == [1]
    assert chain.wants(10, 0.0) == [(b"t", 2, 6)]
    assert chain.wants(10, 0.0) == []
    chain.fetched(b"t", 3, 1, b"x")
    chain.fetched(b"t", 5, 3, b"x")
    chain.answered([(b"t", 2, 6)], 6, 0, True, 0.0)
    assert offsets(chain) == [3, 5, 9, 11]
    assert not chain.repairs
    assert not chain.gaps


def test_a_second_hole_among_waiting_batches_is_fetched_next() -> None:
    chain = started()
    for offset, previous in ((5, 3), (9, 7)):
        chain.arrived(b"t", offset, previous, b"x")
    wants = chain.wants(10, 0.0)
    chain.fetched(b"t", 3, NONE, b"x")
    chain.answered(wants, 4, 0, True, 0.0)
    assert offsets(chain) == [3, 5]
    wants = chain.wants(10, 0.0)
    assert wants == [(b"t", 6, 8)]
    chain.fetched(b"t", 7, 5, b"x")
    chain.answered(wants, 8, 0, True, 0.0)
    assert offsets(chain) == [7, 9]


def test_a_page_that_ends_early_is_continued() -> None:
    chain = started()
    chain.arrived(b"t", 9, 5, b"x")
    wants = chain.wants(10, 0.0)
    chain.fetched(b"t", 2, NONE, b"x")
    chain.answered(wants, 3, 0, False, 0.0)
    assert chain.wants(10, 0.0) == [(b"t", 3, 6)]


def test_what_has_left_the_log_is_reported_once() -> None:
    chain = started()
    chain.arrived(b"t", 1, NONE, b"x")
    chain.arrived(b"t", 9, 8, b"x")
    wants = chain.wants(10, 0.0)
    chain.fetched(b"t", 8, 6, b"x")
    assert offsets(chain) == [1]
    chain.answered(wants, 9, 7, True, 0.0)
    assert chain.gaps == [LogGap(b"t", 2, 7)]
    assert offsets(chain) == [8, 9]


def test_a_log_that_forgets_faster_than_it_is_fetched_still_yields_what_a_fetch_brings() -> None:
    chain = started()
    chain.arrived(b"t", 1, NONE, b"x")
    chain.arrived(b"t", 100, 99, b"x")
    for floor in (20, 40, 60):
        wants = chain.wants(10, 0.0)
        chain.fetched(b"t", floor, floor - 1, b"x")
        chain.fetched(b"t", floor + 1, floor, b"x")
        chain.fetched(b"t", floor + 5, floor + 4, b"x")
        chain.answered(wants, floor + 6, floor + 5, False, 0.0)
        chain.check()
    assert offsets(chain) == [1, 20, 21, 25, 40, 41, 45, 60, 61, 65]
    assert [(gap.first, gap.end) for gap in chain.gaps] == [
        (2, 20), (22, 25), (26, 40), (42, 45), (46, 60), (62, 65),
    ]  # fmt: skip


def test_what_was_skipped_by_a_log_that_still_has_it_is_not_passed_over() -> None:
    chain = started()
    chain.arrived(b"t", 1, NONE, b"x")
    chain.arrived(b"t", 9, 8, b"x")
    wants = chain.wants(10, 0.0)
    chain.fetched(b"t", 5, 4, b"x")
    chain.fetched(b"t", 8, 7, b"x")
    chain.answered(wants, 9, 6, True, 0.0)
    assert offsets(chain) == [1, 5]
    assert chain.wants(10, 1.0) == [(b"t", 6, 9)]


def test_all_of_a_range_gone_ends_its_repair() -> None:
    chain = started()
    chain.arrived(b"t", 9, 5, b"x")
    wants = chain.wants(10, 0.0)
    chain.answered(wants, 6, 8, True, 0.0)
    assert chain.gaps == [LogGap(b"t", 0, 6)]
    assert offsets(chain) == [9]


def test_a_log_that_hides_a_batch_is_asked_again_and_given_up_in_the_end() -> None:
    chain = started()
    chain.arrived(b"t", 9, 5, b"x")
    now = 0.0
    for _ in range(20):
        now += 10
        wants = chain.wants(10, now)
        if not wants:
            break
        chain.answered(wants, 6, 0, True, now)
    assert chain.gaps == [LogGap(b"t", 0, 6)]
    assert offsets(chain) == [9]


def test_an_unanswered_fetch_is_wanted_again() -> None:
    chain = started()
    chain.arrived(b"t", 9, 5, b"x")
    wants = chain.wants(10, 0.0)
    chain.failed(wants)
    assert chain.wants(10, 0.0) == wants


def test_waiting_batches_beyond_the_bound_are_dropped_and_fetched() -> None:
    chain = started(hold_bytes_max=25)
    chain.arrived(b"t", 9, 5, b"0123456789")
    chain.arrived(b"t", 11, 9, b"0123456789")
    chain.arrived(b"t", 12, 11, b"0123456789")
    chain.arrived(b"t", 13, 12, b"0123456789")
    chain.check()
    assert chain.wants(10, 0.0) == [(b"t", 0, 13)]
    assert chain.held_bytes == 10


def test_a_large_batch_that_was_only_announced_is_fetched() -> None:
    chain = started()
    chain.arrived(b"t", 4, NONE, None)
    chain.arrived(b"t", 5, 4, b"y")
    wants = chain.wants(10, 0.0)
    assert wants == [(b"t", 0, 5)]
    chain.fetched(b"t", 4, NONE, b"large")
    chain.answered(wants, 5, 0, True, 0.0)
    assert chain.passed == [(b"t", 4, b"large"), (b"t", 5, b"y")]


def test_a_forgotten_topic_may_have_lost_something_only_above_what_was_verified() -> None:
    chain = started()
    chain.advance(20)
    chain.arrived_forgotten(b"t", 30, 15, b"x")
    assert not chain.gaps
    chain.arrived_forgotten(b"u", 31, 25, b"x")
    assert chain.gaps == [LogGap(b"u", 20, 25, certain=False)]
    assert offsets(chain) == [30, 31]


def test_a_head_that_was_not_passed_on_is_repaired() -> None:
    chain = started()
    chain.arrived(b"t", 3, NONE, b"x")
    assert chain.need(b"t", 3)
    assert not chain.need(b"t", 8)
    assert chain.wants(10, 0.0) == [(b"t", 4, 9)]


def test_what_waits_behind_a_hole_is_passed_on_when_the_log_is_gone() -> None:
    chain = started()
    chain.arrived(b"t", 1, NONE, b"x")
    chain.arrived(b"t", 9, 5, b"x")
    chain.arrived(b"t", 11, 9, None)
    chain.arrived(b"u", 12, 8, b"x")
    chain.surrender()
    assert offsets(chain) == [1, 9, 12]
    assert not chain.repairs


def test_many_holes_among_waiting_batches_are_fetched_in_one_go() -> None:
    chain = started()
    for offset in range(1, 4 * HOLES_MAX, 2):
        chain.arrived(b"t", offset, offset - 1, b"x")
    assert chain.wants(10, 0.0) == [(b"t", 0, 1)]
    chain.fetched(b"t", 0, NONE, b"x")
    chain.answered([(b"t", 0, 1)], 1, 0, True, 0.0)
    last = 4 * HOLES_MAX - 1
    assert chain.wants(10, 0.0) == [(b"t", 1, last + 1)]
    for offset in range(1, last + 1):
        chain.fetched(b"t", offset, offset - 1, b"x")
    chain.answered([(b"t", 1, last + 1)], last + 1, 0, True, 0.0)
    assert offsets(chain) == list(range(last + 1))
    assert (chain.repairs, chain.held_bytes) == ({}, 0)
