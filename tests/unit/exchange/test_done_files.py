"""What all groups have done leaves the log, when that is on the disk, and nothing else does."""

from __future__ import annotations

import pytest
from done_log import SEGMENT_ENTRIES, DoneLog

from roq.exchange.done_files import GROUP_NAMES_MAX, HELD_SECONDS, REST_SECONDS, groups_digest
from roq.log import timing_wheel
from roq.log.groups import RETURN_SECONDS
from roq.protocol.control import GROUPS_DIGEST_BYTES, OTHER_GROUPS
from roq.timing import SAME_GROUPS_SECONDS

LONG = REST_SECONDS + 5.0


def test_a_file_leaves_when_the_only_group_has_done_it_and_not_before() -> None:
    made = DoneLog()
    member = made.enter("a")
    made.send(25)
    made.wait(LONG)
    assert made.log.floor == 0, "nobody has done anything"
    made.do(member, 15)
    made.wait(2.0)
    assert made.log.floor == SEGMENT_ENTRIES
    made.do_all(member)
    made.wait(2.0)
    assert made.log.floor == 2 * SEGMENT_ENTRIES, "the file that is written stays"
    assert sum(name.endswith(".seg") for name in made.files.names()) == 1
    made.send(1)
    assert made.log.end == 26


def test_without_groups_and_without_the_limit_everything_stays() -> None:
    made = DoneLog()
    made.send(25)
    made.wait(LONG)
    assert made.log.floor == 0
    plain = DoneLog()
    plain.there.core._done_files = None  # as the core makes it without the limit
    assert plain.there.core.groups_digest == b""
    member = plain.enter("a")
    plain.send(25)
    plain.do_all(member)
    plain.wait(LONG)
    assert plain.log.floor == 0


def test_what_has_just_come_rests_so_that_who_is_a_little_behind_finds_it() -> None:
    made = DoneLog()
    member = made.enter("a")
    made.send(25)
    made.do_all(member)
    made.wait(REST_SECONDS - 1.0)
    assert made.log.floor == 0
    made.wait(3.0)
    assert made.log.floor == 2 * SEGMENT_ENTRIES


@pytest.mark.parametrize("hours", [-1, 1])
def test_what_has_just_come_rests_so_long_whatever_jumps_the_wall_clock_makes(hours: int) -> None:
    made = DoneLog(now=2 * 3_600.0)
    member = made.enter("a")
    made.send(25)
    made.do_all(member)
    made.jumped_us = hours * 3_600_000_000
    made.wait(REST_SECONDS - 1.0)
    assert made.log.floor == 0
    made.wait(3.0)
    assert made.log.floor == 2 * SEGMENT_ENTRIES


def test_what_an_earlier_process_has_left_rests_once_more() -> None:
    made = DoneLog()
    member = made.enter("a")
    made.send(25)
    made.do_all(member)
    made.wait(REST_SECONDS / 2)
    made.start()
    made.wait(REST_SECONDS - 1.0)
    assert made.log.floor == 0
    made.wait(3.0)
    assert made.log.floor == 25


def test_the_slowest_group_counts_and_one_that_is_deleted_does_not() -> None:
    made = DoneLog()
    quick, slow = made.enter("a"), made.enter("g")
    made.send(25)
    made.do_all(quick)
    made.do(slow, 12)
    made.wait(LONG)
    assert made.log.floor == SEGMENT_ENTRIES
    made.order("delete")
    made.wait(2.0)
    assert made.log.floor == 2 * SEGMENT_ENTRIES


def test_what_is_held_or_given_back_is_not_done() -> None:
    made = DoneLog()
    member = made.enter("a")
    made.send(25)
    made.wait(LONG)
    first, *rest = member.credit(100_000)
    for number, *_ in rest:
        member.done(number)
    made.wait(2.0)
    assert made.log.floor == 0, "the first one is held"
    member.done(first[0])
    made.wait(2.0)
    assert made.log.floor == 2 * SEGMENT_ENTRIES


@pytest.mark.parametrize("how", ["made", "sent back"])
def test_a_group_that_comes_or_goes_back_before_the_snapshot_is_written_counts(how: str) -> None:
    made = DoneLog()
    member = made.enter("g")
    made.send(25)
    made.do_all(member)
    made.now += LONG
    made.tick()  # a snapshot is wanted by now
    if how == "made":
        made.enter("late")
    else:
        made.order("seek", time_us=0)
    made.wait(LONG)
    assert made.log.floor == 0
    assert min(group.base for group in made.there.core.consumers.groups) == 0


def test_nothing_leaves_before_it_is_on_the_disk_that_it_is_done() -> None:
    made = DoneLog()
    member = made.enter("a")
    made.send(25)
    made.do(member)
    made.now += LONG
    for _ in range(8):
        made.tick()  # and nothing is written
    assert made.log.floor == 0
    made.write()
    assert made.log.floor == 0
    made.tick()
    assert made.log.floor == 2 * SEGMENT_ENTRIES


def test_nothing_leaves_while_another_exchange_has_other_groups_or_the_monitor_is_silent() -> None:
    made = DoneLog(same=False)
    member = made.enter("a")
    made.send(25)
    made.do_all(member)
    made.wait(LONG)
    assert made.log.floor == 0
    made.there.core.same_groups(made.now, same=True)
    made.there.core.same_groups = lambda *_, **__: None  # type: ignore[method-assign] # it says no more
    made.now += SAME_GROUPS_SECONDS
    made.wait(LONG)
    assert made.log.floor == 0


def test_a_delayed_message_keeps_its_file_and_is_not_written_again_and_again() -> None:
    made = DoneLog()
    member = made.enter("a")
    made.log.pinned_from = 5  # as the delayed messages of an exchange do
    made.there.core.delayed._look_at_pin = lambda: None  # type: ignore[method-assign]
    made.send(25)
    made.do_all(member)
    made.wait(LONG)
    assert (made.log.floor, made.log.pressed_below) == (0, 0)
    made.log.pinned_from = 15
    made.wait(2.0)
    assert (made.log.floor, made.log.pressed_below) == (SEGMENT_ENTRIES, 0)


def test_a_stream_of_delayed_messages_keeps_no_more_than_what_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing_wheel, "_BLOCK", 2)
    made = DoneLog()
    member = made.enter("a")
    for number in range(300):
        made.delay(number, 10.0)
        made.wait(1.0)
        made.do_all(member)
    assert len(made.there.core.delayed) > 0
    assert made.log.pressed_below == 0
    assert made.log.end - made.log.floor < 120 < made.log.end


def test_what_waits_is_known_though_delayed_messages_come_faster_than_the_disk_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing_wheel, "_BLOCK", 2)
    made = DoneLog()
    for number in range(100):
        made.delay(number, 3.0)
        made.tick()
        made.there.settle()
        made.write()
    pending = len(made.there.core.delayed)
    assert pending > 0
    assert 100 < made.log.pinned_from <= made.log.end - pending


def test_the_next_process_goes_on_where_groups_were() -> None:
    made = DoneLog()
    member = made.enter("a")
    made.send(25)
    made.do_all(member)
    made.wait(LONG)
    made.start()
    (group,) = made.there.core.consumers.groups
    assert (made.log.floor, group.base, group.expired) == (20, 25, 0)
    made.wait(RETURN_SECONDS + 1.0)
    again = made.enter("a")
    made.send(10)
    made.do_all(again)
    made.wait(LONG)
    assert made.log.floor == 25, "a process begins a file"


def test_a_group_that_does_not_go_on_is_told_after_a_while_and_one_that_does_is_not() -> None:
    made = DoneLog()
    quick, slow = made.enter("a"), made.enter("g")
    made.send(25)
    made.do_all(quick)
    made.wait(REST_SECONDS + HELD_SECONDS - 2.0)
    assert made.there.core.held == ""
    made.wait(4.0)
    assert made.there.core.held == (
        "group 'g' does not get beyond offset 0: each of its members holds as much as it takes"
    )
    made.do(slow, 2)
    made.wait(HELD_SECONDS - 2.0)
    assert made.there.core.held == "", "it goes on"
    made.wait(4.0)
    assert made.there.core.held.startswith("group 'g' does not get beyond offset 2: ")
    made.order("pause")
    made.wait(2.0)
    assert made.there.core.held == "group 'g' does not get beyond offset 2: it is paused"
    made.order("delete")
    made.wait(2.0)
    assert (made.there.core.held, made.log.floor) == ("", 2 * SEGMENT_ENTRIES)


def test_a_message_that_is_held_while_others_are_done_is_not_taken_for_a_group_that_rests() -> None:
    made = DoneLog()
    member = made.enter("a")
    made.send(25)
    _, *rest = member.credit(100_000)
    for number, *_ in rest:
        member.done(number)
    for _ in range(int(REST_SECONDS + HELD_SECONDS) // 5 + 1):
        made.wait(5.0)
        member.credit(100_000)  # its leases go on
    assert made.there.core.held == (
        "group 'a' does not get beyond offset 0: a message there is held, or waits for its next "
        "attempt"
    )


@pytest.mark.parametrize("heard_seconds", [0.0, 2.0])
def test_a_monitor_that_is_silent_or_was_never_heard_is_not_taken_for_other_groups(
    heard_seconds: float,
) -> None:
    made = DoneLog()
    member = made.enter("a")
    made.send(25)
    made.do_all(member)
    made.start()  # of what was said to another process nothing is known
    made.wait(heard_seconds)
    made.there.core.same_groups = lambda *_, **__: None  # type: ignore[method-assign] # it says no more
    made.wait(REST_SECONDS + HELD_SECONDS + SAME_GROUPS_SECONDS + 2.0)
    assert (made.there.core.held, made.log.floor) == ("", 0)


def test_groups_that_are_not_the_same_everywhere_are_told_after_a_while_with_their_names() -> None:
    made = DoneLog(same=False)
    members = made.enter("a"), made.enter("g")
    made.send(25)
    for member in members:
        made.do_all(member)
    made.wait(REST_SECONDS + HELD_SECONDS + 2.0)
    assert made.there.core.held == OTHER_GROUPS
    assert made.there.core.group_names == ["a", "g"]
    made.same = True
    made.wait(2.0)
    assert (made.there.core.held, made.there.core.group_names) == ("", None)
    assert made.log.floor == 2 * SEGMENT_ENTRIES


def test_more_names_of_groups_than_anybody_reads_are_not_told() -> None:
    made = DoneLog(same=False)
    for number in range(GROUP_NAMES_MAX):
        made.enter(f"{number}")
    assert made.there.core.group_names is not None
    made.enter("more")
    assert made.there.core.group_names is None


def test_a_log_without_groups_is_told_and_one_that_holds_nothing_or_a_delayed_message_is_not() -> (
    None
):
    made = DoneLog()
    made.send(SEGMENT_ENTRIES)
    made.wait(REST_SECONDS + HELD_SECONDS + 2.0)
    assert made.there.core.held == "", "no file is complete"
    made.send(1)
    made.wait(REST_SECONDS + HELD_SECONDS + 2.0)
    assert made.there.core.held == "it has no consumer group"
    waits = DoneLog()
    member = waits.enter("a")
    waits.delay(1, 10_000.0)
    waits.send(25)
    waits.do_all(member)
    waits.wait(REST_SECONDS + HELD_SECONDS + 2.0)
    assert (waits.there.core.held, waits.log.floor) == ("", 0)


def test_groups_are_the_same_by_their_names_in_whatever_order() -> None:
    assert groups_digest(["a", "b"]) == groups_digest(["b", "a"])
    others = [[], ["a"], ["a", "b"], ["ab"], ["a", "b", "c"]]
    assert len({groups_digest(each) for each in others}) == len(others)
    assert all(len(groups_digest(each)) == GROUPS_DIGEST_BYTES for each in others)
