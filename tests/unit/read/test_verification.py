"""Is everything that a log has received? The questions, one after the other."""

from __future__ import annotations

from roq.protocol.channel import Heads
from roq.protocol.entry import NONE
from roq.read.offset_chain import OffsetChain
from roq.read.verification import CHECK_SECONDS, SILENT_CHECK_SECONDS, Verification
from roq.timing import END_SILENT_SECONDS


def started() -> tuple[OffsetChain, Verification]:
    chain = OffsetChain()
    chain.advance(0)
    return chain, Verification(chain, 0.0)


def heads(end: int, *found: tuple[bytes, int], more: bool = False) -> Heads:
    return Heads(id=1, generation=7, end=end, floor=0, heads=list(found), more=more)


def test_a_log_without_anything_missing_is_verified_as_of_the_question() -> None:
    chain, verification = started()
    assert not verification.verified
    assert verification.question(1.0, live_at=1.0) == 0
    verification.answered(heads(4))
    verification.resolve(1.3, live_at=1.3, position=3)
    assert (verification.verified, verification.verified_as_of, chain.verified) == (True, 1.0, 4)
    assert verification.question(1.4, live_at=1.4) is None


def test_what_the_fan_out_has_passed_is_fetched_at_once_and_else_awaited() -> None:
    chain, verification = started()
    verification.question(1.0, live_at=1.0)
    verification.answered(heads(9, (b"a", 3), (b"b", 8)))
    verification.resolve(1.0, live_at=1.0, position=5)
    assert set(chain.repairs) == {b"a"}
    assert verification.next_deadline(1.0) == 1.0 + END_SILENT_SECONDS
    verification.resolve(1.0 + END_SILENT_SECONDS, live_at=1.0, position=5)
    assert set(chain.repairs) == {b"a", b"b"}
    assert not verification.verified


def test_the_pages_of_an_answer_make_one_check() -> None:
    chain, verification = started()
    verification.question(1.0, live_at=1.0)
    verification.answered(heads(9, (b"a", 3), more=True))
    verification.resolve(1.0, live_at=1.0, position=0)
    assert verification.question(1.1, live_at=1.1) == 4
    verification.answered(heads(12, (b"b", 8)))
    for topic, offset in ((b"a", 3), (b"b", 8)):
        chain.arrived(topic, offset, NONE, b"x")
    verification.resolve(1.2, live_at=1.2, position=8)
    assert (verification.made, chain.verified) == (1, 9)


def test_a_question_that_is_not_answered_is_asked_again() -> None:
    _, verification = started()
    verification.question(1.0, live_at=1.0)
    verification.give_up()
    verification.answered(heads(4))
    assert verification.next_deadline(1.0) == 1.0 + CHECK_SECONDS
    assert verification.question(1.0 + CHECK_SECONDS, live_at=1.0) == 0


def test_a_demand_is_met_by_a_check_that_begins_later() -> None:
    _, verification = started()
    verification.question(1.0, live_at=1.0)
    verification.demand(1.1)
    verification.answered(heads(4))
    verification.resolve(1.2, live_at=1.2, position=3)
    assert verification.question(1.2, live_at=1.2) == 4
    verification.answered(heads(4))
    verification.resolve(1.3, live_at=1.3, position=3)
    assert verification.question(1.4, live_at=1.4) is None


def test_while_the_fan_out_is_silent_the_log_is_asked_every_half_second() -> None:
    _, verification = started()
    verification.question(1.0, live_at=1.0)
    verification.answered(heads(0))
    verification.resolve(1.0, live_at=1.0, position=-1)
    assert verification.next_deadline(1.0) == 1.0 + END_SILENT_SECONDS
    at = 1.0 + END_SILENT_SECONDS
    assert verification.question(at, live_at=1.0) == 0
    verification.answered(heads(0))
    verification.resolve(at, live_at=1.0, position=-1)
    assert verification.next_deadline(1.0) == at + SILENT_CHECK_SECONDS
