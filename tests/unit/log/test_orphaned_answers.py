"""Answers that outlive their exchange, at the one to which the request was sent once more."""

from __future__ import annotations

import pytest
from paper_service import PUBLISHER, Desk

from roq.log import delayed_requests
from roq.log.service_group import ServiceGroup
from roq.protocol.orphaned_answers import OrphanedAnswer
from roq.protocol.requesting import (
    Answer,
    Begun,
    Position,
    RequestState,
)


def test_an_answer_finds_the_request_where_it_was_sent_once_more() -> None:
    desk = Desk()
    token = desk.send_again(Position(4, 2))
    other = desk.join("other", credit=0)
    answer = OrphanedAnswer(token, value=b"v")
    assert desk.group.answer_former(other, OrphanedAnswer(bytes(16))) is None
    assert desk.group.answer_former(other, answer) is None, "it was not looked at yet"
    desk.pass_time(0.5, other)
    assert desk.group.answer_former(other, answer) is True
    desk.group.check()
    (ended,) = desk.group.ended
    assert ended.publisher == PUBLISHER
    told = ended.outcome
    assert (told.position, told.state, told.value) == (Position(0, 0), "done", b"v")
    assert (told.instance, told.attempts) == ("other", 1)
    assert desk.group.counts["done"] == 1
    assert desk.group.answer_former(other, answer) is None, "it has ended"
    other.granted = 10
    assert desk.leases() == [], "nobody gets it"


def test_what_was_offered_and_is_not_confirmed_is_taken_from_its_instance() -> None:
    desk = Desk()
    token = desk.send_again(Position(4, 2))
    first, other = desk.join("first"), desk.join("other", credit=0)
    (lease,) = desk.leases()
    answer = OrphanedAnswer(token, RequestState.FAILED, text="as it was")
    assert desk.group.answer_former(other, answer) is True
    assert list(desk.group.revoked) == [(first.id, lease.number, 0)]
    assert desk.ends() == [("failed", "as it was")]
    assert not desk.group.begin(first, Begun(lease.number, 0, 1)), "outdated"
    assert not desk.group.answer(first, Answer(lease.number, 0, value=b"w")), "outdated"
    desk.group.check()


@pytest.mark.parametrize("once", [False, True])
def test_what_an_instance_has_begun_takes_no_answer_from_elsewhere(once: bool) -> None:
    desk = Desk()
    token = desk.send_again(Position(4, 2))
    first, other = desk.join("first"), desk.join("other", credit=0)
    (lease,) = desk.leases()
    assert desk.group.begin(first, Begun(lease.number, 0, 1, once))
    answer = OrphanedAnswer(token, value=b"v")
    assert desk.group.answer_former(other, answer) is False
    if once:
        desk.group.gone(first.id)  # parked
        desk.pass_time(0.5, other)
        assert desk.group.answer_former(other, answer) is False
        return
    assert desk.group.answer(first, Answer(lease.number, 0, value=b"w"))
    assert desk.group.answer_former(other, answer) is None, "it has ended"
    assert [each.outcome.value for each in desk.group.ended] == [b"w"]


def test_however_many_were_sent_once_more_some_are_looked_at_in_one_go_and_others_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delayed_requests, "READS_MAX", 2)
    desk = Desk()
    tokens = [desk.send_again(Position(4, number)) for number in range(10)]
    former = desk.group.delayed.former
    assert desk.group.cancel(Position(7, 0), late=False), "the window goes that far"
    assert [former.where(token) is not None for token in tokens[:8]] == [True] * 2 + [False] * 6
    desk.pass_time(0.5)
    assert [former.where(token) is not None for token in tokens[8:]] == [True] * 2


def test_what_was_given_back_and_waits_for_its_next_run_takes_one() -> None:
    desk = Desk()
    token = desk.send_again(Position(4, 2))
    member = desk.join()
    (lease,) = desk.leases()
    assert desk.group.begin(member, Begun(lease.number, 0, 1))
    desk.group.take_back(member, lease.number, 0, 1)
    assert desk.group.give_back(member, lease.number, 0, 1, 5.0, counted=True, reason="Timeout")
    assert desk.group.answer_former(member, OrphanedAnswer(token, value=b"v")) is True
    desk.group.check()
    desk.pass_time(6.0, member)
    assert desk.leases() == []


def test_an_answer_from_elsewhere_that_finds_no_room_is_a_failure() -> None:
    desk = Desk(store_bytes=2_048)
    token = desk.send_again(Position(4, 2))
    answer = OrphanedAnswer(token, value=bytes(4_000))
    member = desk.join(credit=0)
    desk.pass_time(0.5, member)
    assert desk.group.answer_former(member, answer) is True
    ((state, text),) = desk.ends()
    assert (state, "finds no room" in text) == ("failed", True)


def test_an_answer_from_elsewhere_outlives_the_process() -> None:
    desk = Desk()
    token, later = desk.send_again(Position(4, 2)), desk.send_again(Position(4, 3))
    member = desk.join(credit=0)
    desk.pass_time(0.5, member)
    assert desk.group.answer_former(member, OrphanedAnswer(token, value=b"v")) is True
    delta = desk.group.take_changes()
    assert delta is not None
    after = Desk()
    after.log = desk.log
    after.group = ServiceGroup("s", desk.log, desk.group.settings, 1, 0, 0.0)
    after.group.apply(delta)
    stored = after.group.outcomes.get(Position(0, 0))
    assert stored is not None
    assert stored.value == b"v"
    member = after.join(credit=0)
    after.pass_time(0.5, member)
    assert after.group.answer_former(member, OrphanedAnswer(token, value=b"w")) is None
    assert after.group.answer_former(member, OrphanedAnswer(later, value=b"w")) is True, (
        "what is open is known so again, as the log says it"
    )
    after.group.check()
