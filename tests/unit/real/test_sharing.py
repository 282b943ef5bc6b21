"""The judge of consumer groups finds what never may be, and says why something comes again."""

from __future__ import annotations

import pytest

from roq.simulation.real import sharing
from roq.simulation.real.journal import Entered, Lease, LeaseState, Opened, State, Upto
from roq.simulation.real.judge import Judge
from roq.simulation.real.sharing import Sharing

STREAM = "ab" * 16


class Group:
    """Records of members, of batches with two messages each."""

    def __init__(self) -> None:
        self.judged = Sharing()
        self.now = 0.0

    def told(
        self, member: str, state: LeaseState, lease: int, *, offset: int = 0, log: str = "1:1",
        sequence: int | None = None, later: float = 1.0,
    ) -> None:  # fmt: skip
        number = 2 * offset if sequence is None else sequence
        self.now += later
        record = Lease(self.now, state, log, offset, 0, 2, lease, STREAM, number)
        self.judged.take(member, record)

    def does(self, member: str, lease: int, *states: LeaseState) -> None:
        for state in states:
            self.told(member, state, lease)


@pytest.fixture
def group() -> Group:
    return Group()


def test_what_is_done_once_is_right(group: Group) -> None:
    group.does("a", 1, "held", "acked", "kept")
    group.judged.check()
    assert group.judged.findings == []
    assert group.judged.delivered == 2
    assert not group.judged.again
    assert group.judged.undone({STREAM: 2}) == []


def test_what_is_confirmed_must_not_come_again(group: Group) -> None:
    group.does("a", 1, "held", "acked", "kept")
    group.does("b", 2, "held")
    assert len(group.judged.findings) == 2
    assert group.judged.findings[0] == (
        "message 0 at offset 0 of log 1:1 was given to b, and a has done it before"
    )


def test_who_is_confirmed_by_a_lease_that_is_over_was_a_second_holder(group: Group) -> None:
    group.does("a", 1, "held")
    group.does("b", 2, "held")
    group.does("a", 1, "acked", "kept")
    assert group.judged.findings[0] == (
        "message 0 at offset 0 of log 1:1 was confirmed to a by lease 1, while b had 2"
    )


def test_it_does_not_matter_whose_journal_is_read_first(group: Group) -> None:
    group.does("b", 2, "held", "acked", "kept")
    group.does("a", 1, "held", "back")
    assert group.judged.findings == []
    assert group.judged.again == {"given back": 2}


def test_it_is_found_also_when_the_journal_of_the_earlier_holder_is_read_late(group: Group) -> None:
    group.does("b", 2, "held")
    group.does("a", 1, "held", "acked", "kept")
    assert len(group.judged.findings) == 2


def test_a_holder_that_goes_on_by_another_lease_is_the_one(group: Group) -> None:
    group.does("a", 1, "held")
    group.does("a", 3, "resumed", "acked", "kept")
    assert group.judged.findings == []
    assert not group.judged.again
    assert group.judged.delivered == 2


def test_what_was_acknowledged_before_it_was_resumed_is_still_acknowledged(group: Group) -> None:
    group.does("a", 1, "held", "acked")
    group.does("a", 3, "resumed")
    group.does("b", 4, "held")
    assert group.judged.again == {"not confirmed": 2}


@pytest.mark.parametrize(
    ("state", "cause"),
    [("back", "given back"), ("lost", "its lease was lost"), ("acked", "not confirmed")],
)
def test_why_something_comes_again(group: Group, state: LeaseState, cause: str) -> None:
    group.does("a", 1, "held", state)
    group.does("b", 2, "held")
    assert group.judged.again == {cause: 2}
    assert group.judged.findings == []


def test_of_one_that_is_silent_and_of_one_that_has_ended_it_is_another_cause(group: Group) -> None:
    group.does("a", 1, "held")
    group.does("b", 2, "held")
    group.judged.end("b")
    group.does("c", 3, "held")
    assert group.judged.again == {"its member was silent": 2, "its member has ended": 2}


def test_in_a_second_log_it_was_published_again(group: Group) -> None:
    group.does("a", 1, "held", "acked", "kept")
    group.told("b", "held", 1, log="2:1", sequence=0)
    assert group.judged.again == {"published again": 2}
    assert group.judged.findings == []


def test_what_a_member_has_acknowledged_is_done_when_it_is_confirmed_or_the_member_has_ended(
    group: Group,
) -> None:
    group.does("a", 1, "held", "acked")
    (text,) = group.judged.undone({STREAM: 3})
    assert text == f"the group has not done 3 of 3 messages of {STREAM[:8]}, from 0 on"
    group.judged.end("a")
    assert "1 of 3 messages" in group.judged.undone({STREAM: 3})[0]
    group.judged.give_up({STREAM: 3})
    assert group.judged.gone == 1
    assert group.judged.undone({STREAM: 3}) == []


def test_what_was_acknowledged_to_an_exchange_that_has_gone_may_be_done_or_come_again(
    group: Group,
) -> None:
    group.does("a", 1, "held", "acked", "cut")
    assert group.judged.undone({STREAM: 2}) == []
    group.does("b", 2, "held", "cut")
    group.does("a", 3, "held", "acked", "lost")
    assert group.judged.again == {"not confirmed": 2, "its lease was lost": 2}
    assert group.judged.findings == []


def test_what_was_acknowledged_by_a_lease_that_was_lost_is_not_done(group: Group) -> None:
    group.does("a", 1, "held", "acked", "lost")
    assert group.judged.undone({STREAM: 2}) != []


def test_what_an_exchange_says_is_done_is_done_whoever_did_it(group: Group) -> None:
    group.does("a", 1, "held", "acked")
    group.does("b", 2, "held")
    group.told("a", "kept", 0)
    assert group.judged.undone({STREAM: 2}) == []
    group.does("b", 2, "acked", "kept")
    assert group.judged.findings == []


def test_what_is_old_is_forgotten(group: Group) -> None:
    group.does("a", 1, "held", "acked", "kept")
    group.told("a", "held", 2, offset=1, later=1.5 + sharing.KEPT_SECONDS)
    group.judged.check()
    group.does("b", 3, "held")
    assert group.judged.findings == []
    assert not group.judged.again


def test_of_one_kind_only_a_few_are_told(group: Group) -> None:
    for lease in range(1, 20, 2):
        group.told("a", "held", lease, offset=lease)
        group.told("a", "kept", lease, offset=lease)
        group.told("b", "held", lease + 1, offset=lease)
    assert len(group.judged.findings) == sharing.SHOWN_MAX


def test_the_judge_of_all_counts_what_is_found_and_asks_each_group_for_its_queue() -> None:
    judge = Judge()
    for queue in ("q", "other"):
        judge.take(f"publisher-{queue}", queue, "t", Opened(0.0, f"{queue}-stream"))
        judge.take(f"publisher-{queue}", queue, "t", Upto(1.0, 2))
        judge.take(f"publisher-{queue}", queue, "t", State(1.0, 2, 2, 0, 0, 0.0, "x1"))
    for member in ("a", "b"):
        judge.take(member, "q", "load", Entered(0.0, member))
    marks = judge.acked(ended=True)
    assert judge.undone(marks) == [
        "q: the group has not done 2 of 2 messages of q-stream, from 0 on"
    ]
    states: list[LeaseState] = ["held", "acked"]
    for state in states:
        judge.take("a", "q", "load", Lease(2.0, state, "1:1", 0, 0, 2, 1, "q-stream", 0))
    judge.end("a")
    assert judge.undone(marks) == []
    judge.take("b", "q", "load", Lease(2.0, "held", "1:1", 0, 0, 2, 2, "q-stream", 0))
    judge.take("a", "q", "load", Lease(2.0, "kept", "1:1", 0, 0, 2, 1, "q-stream", 0))
    judge.check()
    assert judge.tally.shared_wrong == judge.tally.violations == len(judge.findings) == 2
    judge.check()
    assert judge.tally.shared_wrong == 2
