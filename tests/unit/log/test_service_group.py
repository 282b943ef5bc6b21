"""The requests of a service, beyond what the model in tests/property says of every history."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from paper_service import PUBLISHER, Desk

from roq.log import service_group
from roq.log.leases import NumberedLeases
from roq.log.service_group import ServiceGroup
from roq.protocol.consuming import Run
from roq.protocol.requesting import (
    Answer,
    Begun,
    Figures,
    Position,
    RequestEnd,
    RequestState,
    ServiceSettings,
)

MEMBERS = [name.ljust(16, b".") for name in (b"a", b"b")]


def test_an_answer_acknowledges_and_is_told_with_who_asked() -> None:
    desk = Desk()
    desk.request(2)
    member = desk.join()
    (lease,) = desk.leases()
    assert desk.group.answer(member, Answer(lease.number, 1, value=b"v"))
    assert not desk.group.answer(member, Answer(lease.number, 1, value=b"w")), "twice"
    assert not desk.group.answer(member, Answer(lease.number + 1, 0)), "what it never had"
    (ended,) = desk.group.ended
    assert ended.publisher == PUBLISHER
    assert (ended.outcome.value, ended.outcome.attempts, ended.outcome.instance) == (b"v", 1, "m")
    assert desk.group.state_of(Position(0, 1)) is RequestState.DONE
    assert desk.group.state_of(Position(0, 0)) is RequestState.OFFERED
    assert desk.group.open_count == 1


def test_nobody_registered() -> None:
    desk = Desk(send_attempts=2, send_wait=1.0)
    desk.request()
    desk.pass_time(1.5)
    assert desk.ends() == []
    desk.pass_time(1.5)
    ((state, text),) = desk.ends()
    assert state == "discarded"
    assert text == "no instance of service s is registered; looked for 2 times"
    assert desk.group.counts["none registered"] == 1


def test_all_busy() -> None:
    desk = Desk(send_attempts=2, send_wait=1.0)
    member = desk.join(credit=1)
    desk.request(2)
    (lease,) = desk.leases()
    desk.group.begin(member, Begun(lease.number, 0, 1))
    desk.pass_time(3.0, member)
    ((state, text),) = desk.ends()
    assert (state, text[:32]) == ("discarded", "all 1 available instances are bu")
    assert desk.group.state_of(Position(0, 0)) is RequestState.RUNNING


def test_all_unavailable_with_the_rule() -> None:
    desk = Desk(send_attempts=2, send_wait=1.0)
    member = desk.join(credit=0)
    desk.group.figures[member.id] = Figures(available=False, rule="too slow")
    desk.request()
    desk.pass_time(3.0, member)
    ((state, text),) = desk.ends()
    assert state == "discarded"
    assert "all 1 instances are unavailable: m: too slow" in text
    assert desk.group.state(who=True, most=5).who[0].figures == Figures(False, "too slow")


def test_what_could_not_be_sent_is_as_if_it_had_not_been_offered() -> None:
    desk = Desk(send_attempts=1, confirm_within=1.0)
    member = desk.join()
    desk.request(3)
    (lease,) = desk.leases()
    desk.group.recall(lease, 3, 100)
    desk.group.check()
    desk.pass_time(0.5, member)
    (again,) = desk.leases()
    assert again.open == 7
    assert desk.group.begin(member, Begun(again.number, 0, 3))
    desk.pass_time(3.0, member)
    assert desk.ends() == [], "it was not confirmed, as it was not sent"
    assert desk.group.state_of(Position(0, 0)) is RequestState.RUNNING


def test_an_instance_that_comes_in_time_gets_it() -> None:
    desk = Desk(send_attempts=2, send_wait=1.0)
    desk.request()
    desk.pass_time(1.5)
    desk.join()
    assert len(desk.leases()) == 1


def test_what_is_not_confirmed_is_taken_back_and_ends_after_so_many_offers() -> None:
    desk = Desk(send_attempts=2, confirm_within=1.0)
    desk.request()
    silent, other = desk.join("silent"), desk.join("other", credit=0)
    (lease,) = desk.leases()
    desk.pass_time(1.0, silent, other)
    assert list(desk.group.revoked) == [], "the last look was up to half a second before the lease"
    desk.pass_time(0.5, silent, other)
    assert list(desk.group.revoked) == [(silent.id, lease.number, 0)]
    assert not desk.group.answer(silent, Answer(lease.number, 0)), "taken back"
    assert silent.credit == 0, "it gets nothing before it has said something"
    other.granted = 5
    (again,) = desk.leases()
    assert again.number > lease.number
    desk.pass_time(1.5, silent, other)
    ((state, text),) = desk.ends()
    assert (state, text) == ("discarded", "not confirmed within 1 s by other")


def test_what_may_be_begun_again_goes_to_another_and_is_unknown_in_the_end() -> None:
    desk = Desk(run_attempts=2)
    desk.request()
    for name, ends in (("a", []), ("b", ["unknown"])):
        member = desk.join(name)
        (lease,) = desk.leases()
        assert desk.group.begin(member, Begun(lease.number, 0, 1))
        desk.group.gone(member.id)
        assert [state for state, _ in desk.ends()] == ends


def test_what_must_not_be_begun_again_is_unknown_when_its_instance_is_lost() -> None:
    desk = Desk()
    desk.request(2)
    member = desk.join()
    (lease,) = desk.leases()
    assert desk.group.begin(member, Begun(lease.number, 0, 1, True))
    desk.group.gone(member.id)
    desk.join("other")
    (rest,) = desk.leases()
    assert (rest.first, rest.length) == (1, 1), "what was not begun goes to another one"
    assert desk.ends() == []
    desk.pass_time(2.5)
    assert [state for state, _ in desk.ends()][:1] == ["unknown"]


def test_what_must_not_be_begun_again_is_not_when_its_instance_is_silent() -> None:
    desk = Desk(run_attempts=2)
    desk.request(2)
    member = desk.join()
    (lease,) = desk.leases()
    assert desk.group.begin(member, Begun(lease.number, 0, 1, True))
    assert desk.group.begin(member, Begun(lease.number, 1, 1))
    desk.pass_time(10.5)
    assert desk.group.member(member.id) is None
    other = desk.join("other")
    assert [(each.first, each.length) for each in desk.leases()] == [(1, 1)]
    desk.pass_time(2.5, other)
    assert [state for state, _ in desk.ends()] == ["unknown"]


def test_an_instance_that_comes_back_goes_on_with_what_it_has_begun() -> None:
    desk = Desk()
    desk.request()
    member = desk.join()
    (lease,) = desk.leases()
    desk.group.begin(member, Begun(lease.number, 0, 1, True))
    desk.group.gone(member.id)
    back = desk.join()
    (again,), _ = desk.group.resume(back, [Run(0, 0, 1)], desk.numbers)
    desk.pass_time(4.0, back)
    assert desk.group.answer(back, Answer(again.number, 0))
    assert [state for state, _ in desk.ends()] == ["done"]


def test_what_was_begun_elsewhere_does_not_go_to_who_held_it_before() -> None:
    desk = Desk()
    desk.request()
    one = desk.join("one")
    desk.leases()
    desk.group.gone(one.id)
    two = desk.join("two")
    (lease,) = desk.leases()
    desk.group.begin(two, Begun(lease.number, 0, 1, True))
    desk.group.gone(two.id)
    back = desk.join("one")
    assert desk.group.resume(back, [Run(0, 0, 1)], desk.numbers) == ([], [])
    delta = desk.group.take_changes()
    assert delta is not None
    assert delta.begun == [(0, two.id, b"\x01")], "another process knows whose it is"
    desk.pass_time(2.5)
    assert [state for state, _ in desk.ends()] == ["unknown"]


def test_an_instance_that_leaves_does_not_end_what_another_one_has_begun() -> None:
    desk = Desk()
    desk.request(3)
    lost, leaves = desk.join("lost", credit=1), desk.join("leaves", credit=1)
    first, second = desk.leases()
    desk.group.begin(lost, Begun(first.number, 0, 1, True))
    desk.group.begin(leaves, Begun(second.number, 1, 1, True))
    desk.group.gone(lost.id)
    desk.group.leave(leaves.id)
    assert desk.ends() == [("unknown", "its instance has left")]
    back = desk.join("lost")
    (again,), _ = desk.group.resume(back, [Run(0, 0, 1)], desk.numbers)
    assert desk.group.answer(back, Answer(again.number, 0))


def test_what_no_batch_has_is_not_given_back() -> None:
    desk = Desk()
    desk.request()
    first = desk.join()
    assert desk.group.resume(first, [Run(0, 0, 2)], desk.numbers) == ([], []), "nor if it is free"
    member = desk.join()
    (lease,) = desk.leases()
    desk.group.begin(member, Begun(lease.number, 0, 1, True))
    back = desk.join()
    for run in (Run(0, 0, 1 << 20), Run(0, (1 << 20) - 1, 1 << 20)):
        assert desk.group.resume(back, [run], desk.numbers)[0] == []
    desk.group.check()


def test_cancelled_and_late_requests_end_and_their_instance_is_told() -> None:
    desk = Desk()
    desk.request(2)
    member = desk.join(credit=1)
    (lease,) = desk.leases()
    assert desk.group.cancel(Position(0, 0), late=False)
    assert desk.group.cancel(Position(0, 1), late=True)
    assert not desk.group.cancel(Position(0, 1), late=True)
    assert list(desk.group.revoked) == [(member.id, lease.number, 0)]
    assert [state for state, _ in desk.ends()] == ["cancelled", "late"]
    assert not desk.group.answer(member, Answer(lease.number, 0))


def test_a_request_without_a_result_ends_in_its_time() -> None:
    desk = Desk(result_within=3.0)
    desk.request()
    member = desk.join()
    (lease,) = desk.leases()
    desk.group.begin(member, Begun(lease.number, 0, 1))
    desk.pass_time(3.5, member)
    assert desk.ends() == [("late", "no result within 3 s")]


def test_what_waits_for_its_next_attempt_is_not_discarded_for_another_one() -> None:
    desk = Desk(send_attempts=2, send_wait=1.0)
    desk.request(2)
    member = desk.join()
    (lease,) = desk.leases()
    for index, delay in ((0, 20.0), (1, 0.0)):
        desk.group.take_back(member, lease.number, index, 1)
        assert desk.group.give_back(
            member, lease.number, index, 1, delay, counted=True, reason="no"
        )
    member.granted = member.taken
    desk.pass_time(10.0, member)
    assert desk.group.state_of(Position(0, 0)) is RequestState.RETRYING


def test_who_begins_with_what_is_not_his_any_more_is_told_so() -> None:
    desk = Desk()
    desk.request(3)
    member = desk.join()
    (lease,) = desk.leases()
    desk.group.cancel(Position(0, 1), late=False)
    desk.group.revoked.clear()  # it was not heard
    for _ in range(100):
        assert not desk.group.begin(member, Begun(lease.number, 0, 3, True))
    assert list(desk.group.revoked) == [(member.id, lease.number, 1)], "once, however often he asks"


def test_what_was_only_offered_counts_as_no_attempt() -> None:
    desk = Desk(send_attempts=2, confirm_within=1.0)
    desk.request(2)
    lost = desk.join("lost")
    (lease,) = desk.leases()
    desk.group.begin(lost, Begun(lease.number, 0, 1))
    desk.group.gone(lost.id)
    member = desk.join()
    attempts = {each.first: each.attempts + 1 for each in desk.leases()}
    assert attempts == {0: 2, 1: 1}
    assert [view.attempts for view in desk.group.views()] == [1, 0], "neither is begun again yet"
    desk.group.cancel(Position(0, 0), late=False)
    desk.pass_time(1.5, member)
    member.granted = 100
    desk.leases()
    desk.pass_time(1.5, member)
    ended = [(each.outcome.state, each.outcome.attempts) for each in desk.group.ended]
    assert ended == [("cancelled", 1), ("discarded", 0)]


def test_settings_that_are_chosen_hold_for_what_is_open_and_what_is_kept() -> None:
    desk = Desk(result_within=50.0, keep_result=50.0, confirm_within=50.0)
    desk.request(2)
    member = desk.join()
    (lease,) = desk.leases()
    desk.group.answer(member, Answer(lease.number, 0))
    desk.group.begin(member, Begun(lease.number, 1, 1))
    chosen = ServiceSettings(result_within=3.0, keep_result=3.0, chosen=True)
    desk.group.choose(chosen)
    desk.request()
    desk.pass_time(4.0, member)
    states = [desk.group.state_of(Position(0, index)) for index in range(2)]
    assert states == ["expired", "late"]
    assert ("late", "no result within 3 s") in desk.ends()


def test_that_a_request_runs_again_is_known_to_another_process() -> None:
    desk, at = Desk(), Position(0, 0)
    desk.request()
    member = desk.join()
    (lease,) = desk.leases()
    desk.group.answer(member, Answer(lease.number, 0, state=RequestState.FAILED))
    deltas = [desk.group.snapshot()]
    desk.group.take_changes()

    def recovered() -> RequestState | None:
        delta = desk.group.take_changes()
        assert delta is not None, "else its operator is told so before it is kept"
        deltas.append(delta)
        after: ServiceGroup[bytes] = ServiceGroup("s", desk.log, desk.group.settings, 1, 0, 0.0)
        for each in [*deltas, *deltas[1:]]:
            after.apply(each)
        return after.state_of(at)

    desk.group.outcomes.run_again(at, desk.now)
    assert recovered() is RequestState.ACCEPTED
    desk.group.outcomes.put_state([at], RequestState.FAILED, desk.now)
    desk.group.outcomes.run_again(at, desk.now)
    desk.group.outcomes.put(RequestEnd(*at, RequestState.DONE), 60.0, again=True)
    assert recovered() is RequestState.DONE, "of all ends the last one counts"


@pytest.mark.parametrize("state", [RequestState.RUNNING, RequestState.UNKNOWN, RequestState.NEVER])
def test_an_instance_cannot_answer_everything(state: RequestState) -> None:
    desk = Desk()
    desk.request()
    member = desk.join()
    (lease,) = desk.leases()
    assert desk.group.answer(member, Answer(lease.number, 0, state))
    assert desk.ends() == [("failed", f"its instance has answered {state}")]


def test_messages_of_others_are_no_requests() -> None:
    desk = Desk()
    desk.request(topic=b"t")
    desk.request()
    desk.pass_time(0.5)
    assert desk.group.state_of(Position(0, 0)) is RequestState.FORGOTTEN
    assert desk.group.open_count == 1


def test_a_service_that_is_moved_on_cancels_what_is_open() -> None:
    desk = Desk()
    desk.request()
    desk.join()
    desk.leases()
    desk.group.seek(desk.log.committed)
    assert [state for state, _ in desk.ends()] == ["cancelled"]
    desk.group.check()


def test_chosen_settings_replace_others() -> None:
    desk = Desk()
    desk.group.choose(ServiceSettings(keep_result=9.0))
    assert desk.group.service.keep_result == 30.0
    desk.group.choose(ServiceSettings(keep_result=9.0, chosen=True))
    assert desk.group.service.keep_result == 9.0


def test_views_name_state_and_instance() -> None:
    desk = Desk()
    desk.request(3)
    member = desk.join(credit=2)
    (lease,) = desk.leases()
    desk.group.answer(member, Answer(lease.number, 0, value=b"abc"))
    views = [(view.index, view.state, view.instance, view.bytes) for view in desk.group.views()]
    assert views == [(0, "done", "m", 3), (1, "offered", "m", 0), (2, "accepted", "", 0)]


@pytest.mark.parametrize(
    ("ended", "open_", "listed"), [(1, 9, 1), (5, 5, 2), (9, 1, 3), (4, 0, 4), (0, 5, 0)]
)
def test_of_many_requests_half_of_those_listed_have_ended(
    ended: int, open_: int, listed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_group, "LISTED_MAX", 4)
    desk = Desk()
    desk.request(open_ + ended)
    member = desk.join(credit=open_ + ended)
    (lease,) = desk.leases()
    for index in range(open_, open_ + ended):
        assert desk.group.answer(member, Answer(lease.number, index))
    views = desk.group.views()
    assert [view.index for view in views] == sorted(view.index for view in views)
    assert len(views) == 4
    states = [view.state for view in views]
    assert states == ["offered"] * (4 - listed) + ["done"] * listed


def test_it_is_measured_how_many_there_are_and_how_long_they_take() -> None:
    desk = Desk(send_attempts=100)
    desk.request(3)
    desk.pass_time(2.0)
    member = desk.join()
    (lease,) = desk.leases()
    assert desk.group.oldest_age == 2.0
    desk.group.begin(member, Begun(lease.number, 0, 3))
    desk.pass_time(4.0, member)
    desk.log.advance_clock(int((desk.now + 0.1) * 1e6))  # between two looks at what is due
    desk.group.answer(member, Answer(lease.number, 0))
    desk.group.give_back(member, lease.number, 1, 1, 0.0, counted=True, reason="again")
    desk.pass_time(1.0, member)
    desk.group.outcomes.fetched(Position(0, 0), desk.now, int(desk.now * 1e6))
    desk.group.outcomes.fetched(Position(0, 0), desk.now, int(desk.now * 1e6))
    measured = desk.group.measured
    assert (measured.accepted, desk.group.failed) == (3, 1)
    assert (measured.waiting.count, measured.waiting.seconds) == (3, 6.0)
    assert (measured.running.count, measured.running.seconds) == (1, 4.1)
    unfetched = desk.group.outcomes.unfetched
    assert (unfetched.count, unfetched.seconds) == (1, 0.9), "once"
    desk.leases()
    desk.group.leave(member.id)
    assert desk.group._requests.since == {}, "nothing is kept of leases that are over"


def test_an_instance_that_goes_or_comes_back_counts_as_no_retry_and_no_wait() -> None:
    desk = Desk()
    desk.request(2)
    member = desk.join()
    (lease,) = desk.leases()
    desk.group.begin(member, Begun(lease.number, 0, 2, True))
    desk.group.gone(member.id)
    desk.pass_time(1.0)
    desk.group.resume(desk.join(), [Run(0, 0, 2)], desk.numbers)
    measured = desk.group.measured
    assert (measured.waiting.count, measured.waiting.seconds) == (2, 0.0)
    assert desk.group.failed == 0, "nobody has given it back after an error"


def test_one_that_has_left_is_no_reason_why_nobody_takes_anything() -> None:
    desk = Desk(send_attempts=1, send_wait=2.0)
    member, other = desk.join("m", 0), desk.join("other", 0)
    desk.group.figures[other.id] = Figures(available=False, rule="flag")
    desk.request()
    desk.pass_time(2.0, member, other)
    desk.group.leave(other.id)
    desk.pass_time(0.5, member)
    ((state, why),) = desk.ends()
    assert (state, "busy" in why) == ("discarded", True)


def test_an_answer_that_comes_late_is_nobodys() -> None:
    """Its instance has begun and gone silent, and another one has it by then."""
    desk = Desk(send_attempts=100)
    desk.request()
    slow = desk.join("slow")
    (first,) = desk.leases()
    desk.group.begin(slow, Begun(first.number, 0, 1))
    desk.pass_time(11.0)
    quick = desk.join("quick")
    (second,) = desk.leases()
    assert not desk.group.answer(slow, Answer(first.number, 0, value=b"late"))
    assert desk.group.answer(quick, Answer(second.number, 0, value=b"v"))
    assert not desk.group.answer(slow, Answer(second.number, 0, value=b"not its own"))
    stored = desk.group.outcomes.get(Position(0, 0))
    assert stored is not None
    assert (stored.value, stored.instance) == (b"v", "quick")


def test_instances_that_flap_have_nothing_discarded_and_nothing_twice() -> None:
    desk = Desk(send_attempts=4, send_wait=0.5)
    desk.request(20)
    member = desk.join(credit=0)
    answered = 0
    for turn in range(40):
        available = bool(turn % 2)
        desk.group.figures[member.id] = Figures(available, "it flaps")
        member.granted = member.taken + available  # no credit while it is unavailable
        for lease in desk.leases():
            desk.group.begin(member, Begun(lease.number, lease.first, lease.length))
            answered += desk.group.answer(member, Answer(lease.number, lease.first))
        desk.pass_time(0.5, member)
    assert answered == desk.group.counts[RequestState.DONE] == 20
    assert desk.group.counts[RequestState.DISCARDED] == 0


def test_one_answer_for_some_counts_for_those_that_are_still_its_instances() -> None:
    desk = Desk()
    desk.request(5)
    member = desk.join()
    (lease,) = desk.leases()
    assert desk.group.cancel(Position(0, 2), late=False)
    desk.ends()
    answer = Answer(lease.number, 0, value=b"0", more=[b"1", b"2", b"3"])
    assert not desk.group.answer(member, answer), "one is not its own any more"
    told = [each.outcome for each in desk.group.ended]
    assert [(each.index, each.values) for each in told] == [(0, [b"0", b"1"]), (3, [b"3"])]
    assert desk.group.counts[RequestState.DONE] == 3
    assert desk.group.state_of(Position(0, 2)) is RequestState.CANCELLED
    assert desk.group.state_of(Position(0, 4)) is RequestState.OFFERED
    assert not desk.group.answer(member, answer), "twice"
    desk.group.check()


def test_answers_to_what_it_never_had_cost_next_to_nothing() -> None:
    """One message may have a hundred thousand of them."""
    desk = Desk()
    desk.request(2)
    member = desk.join()
    (lease,) = desk.leases()
    tracemalloc.start()
    try:
        assert not desk.group.answer(member, Answer(lease.number, (1 << 20) - 1, more=[b""]))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 50_000, "no number of a million bits"
    assert not desk.group.answer(member, Answer(lease.number, 1, more=[b"w"])), "one is its own"
    assert desk.group.open_count == 1


def test_that_an_instance_was_lost_is_told_apart_from_an_error() -> None:
    desk = Desk(run_attempts=9)
    desk.request()
    for turn, (name, fails) in enumerate((("a", True), ("b", False), ("c", True), ("d", False))):
        member = desk.join(name)
        desk.pass_time(3.0, member)
        (lease,) = [*member.leases.values(), *desk.leases()][:1]
        assert (lease.attempts, lease.losses) == (turn, turn // 2)
        desk.group.begin(member, Begun(lease.number, 0, 1))
        if fails:
            desk.group.take_back(member, lease.number, 0, 1)
            desk.group.give_back(
                member, lease.number, 0, 1, 1.0, counted=True, reason="ValueError: no"
            )
            desk.group.leave(member.id)
        else:
            desk.group.gone(member.id)


def test_what_waits_for_its_next_attempt_says_so_and_why() -> None:
    desk = Desk()
    desk.request(3)
    member = desk.join(credit=2)
    (lease,) = desk.leases()
    desk.group.take_back(member, lease.number, 1, 1)
    desk.group.give_back(member, lease.number, 1, 1, 9.0, counted=True, reason="ValueError: no")
    desk.group.take_back(member, lease.number, 0, 1)
    desk.group.give_back(member, lease.number, 0, 1, 9.0, counted=False, reason="no thread")
    views = [(view.state, view.attempts, view.text) for view in desk.group.views()]
    assert views == [("accepted", 0, ""), ("retrying", 1, "ValueError: no"), ("accepted", 0, "")]


@pytest.mark.parametrize("once", [False, True])
def test_what_its_instance_says_not_to_have_begun_is_given_to_another_and_never_discarded(
    once: bool,
) -> None:
    """However often, and though it was said to begin: nobody knows better."""
    desk = Desk(send_attempts=2, send_wait=1.0, run_attempts=1)
    desk.request()
    for turn in range(20):
        member = desk.join(f"m{turn}")
        (lease,) = desk.leases()
        assert (lease.attempts, lease.losses) == (0, 0)
        desk.group.begin(member, Begun(lease.number, 0, 1, once))
        desk.pass_time(1.0, member)
        desk.group.take_back(member, lease.number, 0, 1)
        assert desk.group.give_back(
            member, lease.number, 0, 1, 0.0, counted=False, reason="no thread"
        )
        desk.group.leave(member.id)
    assert desk.ends() == []
    kept, again = desk.group.snapshot(), Desk()
    again.log = desk.log
    again.group.apply(kept)
    assert again.group.snapshot().begun == [], "nor is it known as begun by a process after it"
    member = desk.join("last")
    (lease,) = desk.leases()
    assert desk.group.answer(member, Answer(lease.number, 0, value=b"v"))


def test_what_was_given_back_is_not_overtaken_by_all_that_has_come_since() -> None:
    """Where more comes than is done, it would wait until its time is over."""
    desk = Desk()
    desk.request()
    member = desk.join(credit=1)
    (lease,) = desk.leases()
    desk.request()
    desk.pass_time(0.5, member)
    desk.group.take_back(member, lease.number, 0, 1)
    assert desk.group.give_back(member, lease.number, 0, 1, 0.0, counted=False, reason="no thread")
    member.granted += 1
    (again,) = desk.leases()
    assert (lease.offset, again.offset) == (0, 0)


@pytest.mark.parametrize("seed", range(8))
def test_the_straight_way_out_gives_what_the_long_one_does(seed: int) -> None:
    dice = Random(seed)
    one, other = Desk(result_within=4.0), Desk(result_within=4.0)
    other.group._plain = False
    for desk in (one, other):  # in turn, and not by chance
        desk.group._choice.choose = lambda *_: None  # type: ignore[assignment, method-assign]
    straight: list[object] = []
    way = one.group._next_straight

    def noted(numbers: NumberedLeases) -> object:
        straight.append(way(numbers))
        return straight[-1]

    one.group._next_straight = noted  # type: ignore[assignment, method-assign]
    held: list[tuple[str, int]] = []
    for _ in range(150):
        counts = [dice.randint(1, 4) for _ in range(dice.randint(0, 3))]
        name, credit, seconds = dice.choice("ab"), dice.choice([0, 1, 9]), dice.choice([0.5, 3.0])
        settled = held.pop(dice.randrange(len(held))) if held and dice.random() < 0.7 else None
        how, gone = dice.choice(["answer", "once", "back"]), dice.random() < 0.1
        told = []
        for desk in (one, other):
            group = desk.group
            desk.pass_time(seconds, *filter(None, map(group.member, MEMBERS)))
            for count in counts:
                desk.request(count)
            member = group.member(MEMBERS["ab".index(name)]) or desk.join(name, credit)
            member.granted += credit
            owner = settled and group.member(MEMBERS["ab".index(settled[0])])
            lease = owner.leases.get(settled[1]) if owner and settled else None
            if owner and lease and how == "answer":
                group.answer(owner, Answer(lease.number, lease.first, value=b"v"))
            elif owner and lease and how == "once":
                group.begin(owner, Begun(lease.number, lease.first, 1, once=True))
            elif owner and lease:
                group.take_back(owner, lease.number, lease.first, 1)
                group.give_back(owner, lease.number, lease.first, 1, 0.0, counted=True, reason="no")
            if gone:
                group.gone(member.id)
            given = [
                (each.member.name, each.number, each.offset, each.first, each.open, each.attempts)
                for each in desk.leases()
            ]
            told.append((given, desk.ends(), group.views(), group.snapshot()))
        assert told[0] == told[1]
        held += [each[:2] for each in told[0][0]]
    assert None in straight
    assert sum(each is not None for each in straight) > 20


def test_what_was_begun_or_is_late_does_not_go_straight_out() -> None:
    before, desk = Desk(), Desk()
    before.request()
    owner = before.join()
    (lease,) = before.leases()
    before.group.begin(owner, Begun(lease.number, 0, 1, once=True))
    desk.group.apply(before.group.snapshot())
    for _ in range(2):
        desk.request()
    desk.join()
    assert [each.offset for each in desk.leases()] == [1], "the first one was begun"
    desk.request()
    desk.log.advance_clock(10**12)
    assert desk.leases() == []
    assert [state for state, _ in desk.ends()] == ["late"]
