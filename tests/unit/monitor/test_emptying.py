import pytest
from monitor_queue import STEP, Exchange, Queue, Script

from roq.monitor.emptying import (
    ASKED_SECONDS,
    EMPTIED_SECONDS,
    MOVING_SECONDS,
    READING_SECONDS,
    STOPPING_SECONDS,
)
from roq.monitor.events import Push
from roq.policy.snapshot import Grow, Shrink
from roq.protocol import kpi
from roq.protocol.control import Assigned, Done, Emptied, Failure, ScaleIn, ScaleOut, Topology
from roq.timing import EMPTYING_ANSWER_SECONDS, SAME_GROUPS_SECONDS

REQUEST = 9


def queue_of(
    *names: str, exchanges: int = 2, durable: bool = False, **more: object
) -> tuple[Queue, Script]:
    script = Script()
    queue = Queue(exchanges, policy=script, **more)  # type: ignore[arg-type]
    queue.durable = durable
    for name in names:
        queue.add_publisher(name, 100)
    queue.periods(2)
    queue.effects.clear()
    return queue, script


def test_an_exchange_without_publishers_is_empty_as_soon_as_it_accepts_nothing_more() -> None:
    queue, _ = queue_of()
    assert queue.empty(2) == []
    queue.periods(2)
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)


def test_whoever_has_it_emptied_is_told_where_its_log_ends() -> None:
    queue, _ = queue_of()
    there = queue.exchanges[2]
    there.end = 17
    queue.empty(2)
    queue.periods(2)
    [answer] = queue.answers_to(REQUEST)
    assert isinstance(answer, Emptied)
    assert (answer.number, answer.epoch, answer.end) == (2, there.epoch, 17)


def test_a_queue_that_shrinks_says_where_the_log_ends() -> None:
    queue, _ = shrinking("a")
    there = queue.exchanges[1]
    there.end = 17
    queue.periods(8)
    [asked] = queue.questions(ScaleIn)
    assert (asked.number, asked.epoch, asked.end) == (1, there.epoch, there.end)
    assert asked.end >= 17


def test_all_publishers_go_elsewhere_and_then_it_is_empty() -> None:
    queue, _ = queue_of("a", "b", "c", "d", exchanges=3)
    assert queue.empty(1) == []
    queue.periods(2)
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)
    assert queue.placed()[1] == []
    assert sorted(len(names) for names in queue.placed().values()) == [0, 2, 2]


def test_an_exchange_that_is_being_emptied_gets_no_publishers() -> None:
    queue, script = queue_of()
    queue.empty(1)
    queue.periods(1)
    assert [queue.add_publisher(name, 0).numbers for name in "xyz"] == [[2]] * 3
    assert [each.accepting for each in script.views[-1].exchanges] == [False, True]
    assert queue.documents(kpi.ExchangeKpi)[-2].leaving


def test_a_publisher_that_asks_again_does_not_stay_where_everybody_leaves() -> None:
    queue, _ = queue_of("a")
    queue.publishers["a"].mood = "ignores"
    queue.empty(1)
    [assigned] = queue.attach("a")
    assert isinstance(assigned, Assigned)
    assert assigned.exchange.number == 2


def test_it_is_not_empty_before_every_subscriber_has_read_it() -> None:
    queue, _ = queue_of("a")
    queue.add_subscriber("quick")
    queue.add_subscriber("slow", "lags")
    queue.empty(1)
    queue.periods(4)
    assert queue.placed()[1] == []
    assert queue.answers_to(REQUEST) == []
    queue.readers["slow"] = "reads"
    queue.periods(2)
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)


def test_a_subscriber_that_is_gone_is_not_waited_for() -> None:
    queue, _ = queue_of("a")
    queue.add_subscriber("slow", "lags")
    queue.empty(1)
    queue.periods(3)
    del queue.readers["slow"]
    queue.leave("slow")
    queue.periods(2)
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)


def test_whoever_waits_too_long_is_told_for_what_and_may_ask_again() -> None:
    queue, _ = queue_of("a")
    queue.publishers["a"].mood = "ignores"
    queue.empty(1)
    queue.run(EMPTYING_ANSWER_SECONDS + 1)
    [failure] = queue.answers_to(REQUEST)
    assert isinstance(failure, Failure)
    assert "1 publisher still there" in failure.COMMENT
    queue.publishers["a"].mood = "obeys"
    queue.empty(1, request=10)
    queue.periods(45)
    assert queue.emptied(queue.answers_to(10), 10) or queue.placed()[1] == []
    assert queue.emptied(queue.empty(1, request=11), 11)


def test_whoever_waits_for_subscribers_is_told_so() -> None:
    queue, _ = queue_of("a")
    queue.add_subscriber("slow", "lags")
    queue.empty(1)
    queue.run(EMPTYING_ANSWER_SECONDS + 1)
    [failure] = queue.answers_to(REQUEST)
    assert isinstance(failure, Failure)
    assert "1 subscriber not at its end yet" in failure.COMMENT


def test_the_last_exchange_that_takes_publishers_is_never_emptied() -> None:
    queue, _ = queue_of("a")
    queue.empty(1)
    [failure] = queue.empty(2, request=10)
    assert isinstance(failure, Failure)
    assert failure.CODE == "no_capacity"
    assert "last exchange" in failure.COMMENT
    queue.periods(2)
    assert queue.placed() == {1: [], 2: ["a"]}


def test_an_exchange_that_dies_while_it_is_emptied_is_empty() -> None:
    queue, _ = queue_of("a")
    queue.publishers["a"].mood = "ignores"
    queue.empty(1)
    queue.periods(1)
    queue.kill(1)
    queue.publishers["a"].at = []
    queue.attach("a", failed=[(1, 1)])
    queue.periods(4)
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)


def test_an_exchange_that_was_restarted_meanwhile_still_gets_nobody() -> None:
    queue, _ = queue_of("a")
    queue.publishers["a"].mood = "ignores"
    queue.empty(1)
    queue.exchanges[1].epoch = 2
    queue.publishers["a"].at = []
    queue.periods(1)
    [assigned] = queue.attach("a", failed=[(1, 1)])
    assert isinstance(assigned, Assigned)
    assert assigned.exchange.number == 2
    queue.periods(1)
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)


def test_publishers_are_served_by_an_exchange_that_leaves_if_there_is_no_other() -> None:
    queue, _ = queue_of()
    queue.exchanges[1].end = 1
    queue.add_subscriber("slow", "lags")
    queue.empty(1)
    queue.kill(2)
    queue.periods(4)
    assert queue.add_publisher("a", 0).numbers == [1]


def test_an_exchange_that_nobody_wants_emptied_any_more_takes_publishers_again() -> None:
    queue, script = queue_of()
    queue.empty(1)
    queue.periods(2)
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)
    queue.run(ASKED_SECONDS - 4)
    assert not script.views[-1].exchanges[0].accepting
    queue.run(5)
    assert script.views[-1].exchanges[0].accepting
    assert "emptying_called_off" in [each.event for each in queue.notes]


def test_what_is_known_of_an_exchange_that_is_gone_for_good_is_forgotten() -> None:
    queue, _ = queue_of()
    queue.empty(1)
    queue.kill(1)
    queue.run(ASKED_SECONDS + 5)
    assert len(queue.machine._elasticity.emptying) == 0
    assert queue.machine._exchanges.leaving == set()


def test_a_striped_publisher_keeps_its_other_exchanges() -> None:
    queue, _ = queue_of("a", exchanges=3)
    publisher = queue.publishers["a"]
    publisher.at, publisher.epoch = [(1, 1), (2, 1)], publisher.epoch
    queue.periods(2)
    queue.empty(1)
    queue.periods(3)
    assert 1 not in publisher.numbers
    assert 2 in publisher.numbers
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)


def test_more_publishers_than_can_move_at_once_move_one_after_another() -> None:
    queue, _ = queue_of()
    for number in range(600):
        queue.add_publisher(f"p{number}", 0)
    queue.periods(1)
    queue.empty(1)
    queue.periods(4)
    assert len(queue.placed()[2]) == 600
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)


def test_a_monitor_that_has_just_taken_over_empties_nothing_yet() -> None:
    queue = Queue(2, policy=Script())
    queue.take_over(0.0, 2.0)
    queue.periods(1)
    [failure] = queue.empty(1)
    assert isinstance(failure, Failure)
    assert failure.CODE == "unavailable"
    queue.periods(4)
    queue.empty(1, request=10)
    queue.periods(2)
    assert queue.emptied(queue.answers_to(10), 10)


def test_the_end_of_the_monitor_answers_all_who_wait() -> None:
    queue, _ = queue_of("a")
    queue.publishers["a"].mood = "ignores"
    queue.empty(1)
    queue.stop("stopped")
    [failure] = queue.answers_to(REQUEST)
    assert isinstance(failure, Failure)
    assert failure.CODE == "queue_stopped"


# --- by scaling -----------------------------------------------------------------------------------


def shrinking(*names: str) -> tuple[Queue, Script]:
    queue, script = queue_of(*names)
    queue.scaled.append(1)
    queue.periods(3)
    queue.effects.clear()
    script.wanted = [Shrink(1, "not needed")]
    return queue, script


def test_scaling_in_is_called_off_if_a_publisher_does_not_go() -> None:
    queue, script = shrinking("a")
    queue.publishers["a"].mood = "ignores"
    queue.run(MOVING_SECONDS + 3)
    assert queue.scales() == [("in", "started", 1), ("in", "failed", 1)]
    assert "publisher still there" in queue.documents(kpi.ScaleKpi)[-1].reason
    assert queue.questions(ScaleIn) == []
    assert script.views[-1].exchanges[0].accepting


def test_an_exchange_without_a_log_rests_too_rather_than_lose_what_is_not_read() -> None:
    queue, script = shrinking("a")
    queue.add_subscriber("slow", "lags")
    queue.run(READING_SECONDS - 6)
    assert queue.scales() == [("in", "started", 1)]
    script.wanted = []
    queue.run(12 + 2 * ASKED_SECONDS)
    assert queue.scales() == [("in", "started", 1), ("in", "done", 1)]
    assert queue.questions(ScaleIn) == []
    assert [each.number for each in script.views[-1].exchanges] == [2], "it does not count"
    assert queue.add_publisher("b", 0).numbers == [2]
    queue.readers["slow"] = "reads"
    queue.periods(8)
    [asked] = queue.questions(ScaleIn)
    assert (asked.number, asked.holds_nothing) == (1, False)
    assert 1 not in queue.exchanges


def test_what_rests_without_a_log_and_is_not_heard_of_is_not_stopped_with_what_it_holds() -> None:
    """It may be held up, and come back; if it has ended it is started again, and holds nothing."""
    queue, script = shrinking("a")
    queue.add_subscriber("slow", "lags")
    queue.run(READING_SECONDS + 20, step=1.0)
    script.wanted = []
    there = queue.exchanges[1]
    emptying = queue.machine._elasticity.emptying
    for comes_back in (there, Exchange(1, epoch=7)):
        assert emptying.resting() == [1]
        queue.missing.append(1)
        queue.kill(1)
        queue.run(10)
        assert queue.questions(ScaleIn) == []
        queue.exchanges[1] = comes_back
        queue.missing.remove(1)
        queue.run(5)
    assert [each.epoch for each in queue.questions(ScaleIn)] == [7]


def test_what_rests_without_a_log_and_is_no_exchange_of_the_queue_any_more_is_forgotten() -> None:
    queue, script = shrinking("a")
    queue.add_subscriber("slow", "lags")
    queue.run(READING_SECONDS + 20, step=1.0)
    script.wanted = []
    queue.kill(1)
    queue.run(10)
    assert queue.questions(ScaleIn) == []
    assert len(queue.machine._elasticity.emptying) == 0


def test_scaling_in_is_called_off_when_the_others_are_lost() -> None:
    queue, _ = shrinking("a")
    queue.publishers["a"].mood = "ignores"
    queue.periods(1)
    queue.kill(2)
    queue.periods(5)
    assert queue.scales() == [("in", "started", 1), ("in", "failed", 1)]
    assert queue.add_publisher("b", 0).numbers == [1]


def test_whoever_wants_the_same_exchange_removed_takes_over() -> None:
    queue, _ = shrinking("a")
    queue.publishers["a"].mood = "ignores"
    queue.periods(1)
    queue.empty(1)
    assert queue.scales() == [("in", "started", 1), ("in", "done", 1)]
    queue.publishers["a"].mood = "obeys"
    queue.periods(8)
    assert queue.questions(ScaleIn) == []


# --- exchanges with logs on disks -----------------------------------------------------------------


def resting(*names: str) -> tuple[Queue, Script]:
    """x1 is not needed, and its log holds something."""
    queue, script = queue_of(*names, durable=True)
    queue.scaled.append(1)
    queue.exchanges[1].end = 17
    queue.periods(3)
    queue.effects.clear()
    script.wanted = [Shrink(1, "not needed")]
    queue.periods(8)
    return queue, script


def test_an_exchange_with_a_log_rests_until_that_holds_nothing() -> None:
    queue, script = resting("a")
    assert queue.scales() == [("in", "started", 1), ("in", "done", 1)]
    assert queue.placed()[2] == ["a"]
    assert [each.number for each in script.views[-1].exchanges] == [2], "it does not count"
    assert not script.views[-1].scaling
    queue.add_subscriber("slow", "lags")
    queue.run(READING_SECONDS + MOVING_SECONDS + ASKED_SECONDS)
    assert queue.questions(ScaleIn) == []
    assert queue.add_publisher("b", 0).numbers == [2]
    there = queue.exchanges[1]
    there.floor = there.end
    queue.readers["slow"] = "reads"
    queue.periods(8)
    [asked] = queue.questions(ScaleIn)
    assert (asked.number, asked.end, asked.holds_nothing) == (1, there.end, True)
    assert 1 not in queue.exchanges
    assert queue.scales()[-2:] == [("in", "started", 1), ("in", "done", 1)]
    assert [each for each in queue.scales() if each[1] == "failed"] == []


def test_with_what_all_groups_have_done_an_exchange_goes_that_keeps_a_log() -> None:
    queue, _ = resting()
    there = queue.exchanges[1]
    there.more = {"groups": 1, "groups_behind": 1}
    for each in queue.exchanges.values():
        each.groups = b"g"
    queue.run(60)
    assert queue.questions(ScaleIn) == [], "the group has not done it"
    there.more["groups_behind"] = 0
    queue.exchanges[2].groups = b"h"
    queue.run(60)
    assert queue.questions(ScaleIn) == [], "the other exchange has another one"
    queue.exchanges[2].groups = b"g"
    queue.run(5)
    [asked] = queue.questions(ScaleIn)
    assert asked.number == there.number
    assert asked.holds_nothing


@pytest.mark.parametrize(("groups", "digest"), [(0, b"none"), (1, b"")])
def test_a_log_without_groups_or_that_keeps_what_they_have_done_rests_on(
    groups: int, digest: bytes
) -> None:
    queue, _ = resting()
    there = queue.exchanges[1]
    there.more = {"groups": groups}
    for each in queue.exchanges.values():
        each.groups = digest
    queue.run(120)
    assert queue.questions(ScaleIn) == []


def test_groups_count_only_a_while_after_the_last_publisher_has_left() -> None:
    queue, script = queue_of("a", durable=True)
    queue.scaled.append(1)
    queue.exchanges[1].end = 17
    queue.periods(3)
    for each in queue.exchanges.values():
        each.groups, each.more = b"g", {"groups": 1}
    script.wanted = [Shrink(1, "not needed")]
    queue.run(SAME_GROUPS_SECONDS)
    assert queue.questions(ScaleIn) == []
    queue.run(6)
    assert [each.number for each in queue.questions(ScaleIn)] == [1]


def test_a_queue_that_grows_takes_back_what_rests_before_it_asks_for_more() -> None:
    queue, script = resting("a")
    script.wanted = [Grow("too much")]
    queue.periods(2)
    assert queue.scales()[-1] == ("out", "done", 1)
    assert queue.questions(ScaleOut) == []
    queue.periods(3)
    assert [each.number for each in script.views[-1].exchanges] == [1, 2]
    script.wanted = [Grow("still too much")]
    queue.periods(2)
    assert len(queue.questions(ScaleOut)) == 1


def test_a_publisher_that_comes_back_to_a_resting_exchange_is_moved_again() -> None:
    queue, _ = resting("a")
    queue.publishers["a"].at = [queue.exchanges[1].key]
    queue.periods(8)
    assert queue.placed()[2] == ["a"]
    assert queue.scales() == [("in", "started", 1), ("in", "done", 1)]


def test_what_rests_takes_publishers_when_the_others_are_lost() -> None:
    queue, _ = resting()
    queue.kill(2)
    queue.periods(5)
    assert queue.add_publisher("b", 0).numbers == [1]


def test_a_queue_that_grows_does_not_take_back_what_rests_and_is_away() -> None:
    queue, script = resting("a")
    queue.missing.append(1)
    queue.kill(1)
    queue.run(30)
    script.wanted = [Grow("too much")]
    queue.periods(2)
    assert len(queue.questions(ScaleOut)) == 1


@pytest.mark.parametrize("why", ["disk_full: 1 MB are free", "sealed: cannot write its log"])
def test_a_queue_that_grows_does_not_take_back_what_takes_nothing(why: str) -> None:
    queue, script = resting("a")
    queue.exchanges[1].disk_full = why
    queue.periods(2)
    script.wanted = [Grow("too much")]
    queue.periods(2)
    assert len(queue.questions(ScaleOut)) == 1


def test_what_rests_and_was_given_up_with_its_log_is_forgotten() -> None:
    queue, _ = resting("a")
    emptying = queue.machine._elasticity.emptying
    queue.missing.append(1)
    queue.kill(1)
    queue.run(30)
    assert emptying.resting() == [1]
    queue.missing.remove(1)
    queue.run(5)
    assert emptying.find(1) is None
    assert emptying.resting() == []


def test_an_exchange_goes_with_its_log_only_when_it_accepts_nothing_more() -> None:
    queue, _ = resting("a")
    there = queue.exchanges[1]
    assert not there.retired
    there.floor = there.end
    queue.periods(1)
    assert there.retired
    assert queue.questions(ScaleIn) == [], "it has not said so yet"
    queue.publishers["a"].at = [there.key]  # it has come back before, and has sent something
    there.end += 1
    queue.periods(1)
    assert not there.retired, "what is there now stays, and more may come"
    queue.periods(6)
    assert queue.questions(ScaleIn) == []
    assert queue.placed()[2] == ["a"]
    there.floor = there.end
    queue.periods(4)
    assert len(queue.questions(ScaleIn)) == 1


def test_an_exchange_that_is_about_to_be_stopped_stays_retired() -> None:
    queue, _ = resting("a")
    there = queue.exchanges[1]
    queue.manager = "silent"
    there.floor = there.end
    queue.periods(4)
    assert len(queue.questions(ScaleIn)) == 1
    queue.add_subscriber("slow", "lags")
    queue.periods(4)
    assert there.retired, "whoever comes now, it is gone in a moment"


def test_what_rests_and_does_not_serve_keeps_its_log() -> None:
    queue, _ = resting("a")
    there = queue.exchanges[1]
    queue.missing.append(1)
    queue.kill(1)
    queue.run(30)
    assert queue.questions(ScaleIn) == []
    queue.exchanges[1] = there
    queue.run(5)
    assert queue.questions(ScaleIn) == []
    assert queue.placed()[2] == ["a"]
    there.floor = there.end
    queue.run(5)
    assert len(queue.questions(ScaleIn)) == 1


def test_whoever_removes_a_resting_exchange_does_not_wait_for_its_log() -> None:
    queue, _ = resting()
    queue.empty(1)
    queue.periods(2)
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)


# --- what an exchange holds goes with it ----------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
def test_an_exchange_is_removed_only_when_it_accepts_nothing_more(durable: bool) -> None:
    queue, _ = queue_of("a", durable=durable)
    there = queue.exchanges[2]
    there.end = 17
    queue.periods(1)
    assert queue.empty(2) == [], "what it has reported says nothing of what comes now"
    queue.publishers["a"].at = [there.key]  # it has been there before, and has sent something
    there.end += 1
    queue.periods(1)
    assert queue.answers_to(REQUEST) == []
    queue.periods(6)
    [answer] = queue.answers_to(REQUEST)
    assert isinstance(answer, Emptied)
    assert there.retired
    assert answer.end == there.end


def test_an_exchange_of_which_somebody_was_told_that_it_may_go_stays_retired() -> None:
    queue, _ = queue_of("a", durable=True)
    there = queue.exchanges[2]
    queue.empty(2)
    queue.periods(3)
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)
    queue.publishers["a"].at = [there.key]
    queue.add_subscriber("slow", "lags")
    there.end += 1
    queue.periods(3)
    assert there.retired, "whoever comes now, it is stopped in a moment"
    queue.run(ASKED_SECONDS + 5)
    assert not there.retired, "nobody has stopped it"


def test_an_exchange_that_is_stopped_stays_retired_when_the_other_one_is_lost() -> None:
    queue, script = queue_of(durable=True)
    queue.empty(2)
    queue.periods(3)
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)
    queue.kill(1)
    queue.periods(6)
    assert queue.exchanges[2].retired
    queue.run(STOPPING_SECONDS)
    assert not queue.exchanges[2].retired
    assert script.views[-1].exchanges[0].accepting


def test_publishers_wait_for_another_exchange_than_one_that_is_about_to_be_stopped() -> None:
    queue, _ = queue_of(durable=True)
    queue.empty(2)
    queue.periods(3)
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)
    queue.kill(1)
    queue.periods(6)
    late = queue.add_publisher("a", 0)
    queue.periods(3)
    assert late.numbers == [], "it takes nothing, and holds up whoever comes"
    queue.add_exchange()
    queue.periods(3)
    assert late.numbers == [3]


def test_publishers_are_served_by_an_exchange_that_nobody_has_stopped_after_all() -> None:
    queue, _ = queue_of(durable=True)
    queue.empty(2)
    queue.periods(3)
    queue.kill(1)
    queue.run(STOPPING_SECONDS + 10)
    assert queue.add_publisher("a", 0).numbers == [2]


def test_an_exchange_that_is_asked_for_again_and_again_serves_if_the_others_are_gone() -> None:
    queue, _ = queue_of(durable=True)
    queue.empty(2)
    queue.periods(3)
    queue.kill(1)
    for _ in range(round(STOPPING_SECONDS) + 10):
        queue.empty(2, at_once=True)
        queue.run(1.0)
    assert queue.add_publisher("a", 0).numbers == [2]


def test_an_exchange_that_was_told_to_serve_on_is_believed_only_when_it_has_retired_again() -> None:
    queue, _ = queue_of()
    queue.add_subscriber("s")
    there = queue.exchanges[2]
    queue.empty(2)
    queue._report_of(there)
    assert there.retired
    there.end += 1  # it came before
    queue._report_of(there)
    assert not there.retired, "a subscriber has to read it first, and it serves meanwhile"
    queue._read("s", "reads")
    assert not queue.emptied(queue.empty(2, at_once=True, request=10), 10)
    queue.periods(3)
    assert queue.emptied(queue.answers_to(REQUEST), REQUEST)


@pytest.mark.parametrize(
    ("left", "why"),
    [
        ({"groups_behind": 1}, "1 consumer group not at its end yet"),
        ({"responses_stored": 2}, "2 responses not fetched yet"),
        ({"delayed": 7}, "7 delayed messages not due yet"),
        ({"transactions": 1}, "1 open transaction"),
    ],
)
def test_what_groups_have_not_done_and_what_is_delayed_is_waited_for_without_a_bound(
    left: dict[str, int], why: str
) -> None:
    queue, _ = queue_of("a")
    queue.add_subscriber("slow", "lags")
    there = queue.exchanges[1]
    there.more = left
    queue.empty(1, at_once=True, read_seconds=20.0)
    for _ in range(10):
        queue.periods(10)
        [refused] = queue.empty(1, at_once=True, read_seconds=20.0)
        assert isinstance(refused, Failure)
    assert refused.COMMENT.endswith(f": {why}")
    assert not there.retired
    there.more = {}
    queue.periods(3)
    answered = queue.empty(1, at_once=True, read_seconds=20.0)
    assert queue.emptied(answered, REQUEST)
    [note] = [each for each in queue.notes if each.event == "emptying_unread"]
    assert note.text == "x1 goes after 20 s all the same: 1 subscriber not at its end yet"


def test_an_exchange_with_a_log_that_does_not_serve_at_the_moment_is_waited_for() -> None:
    queue, _ = queue_of("a", durable=True)
    there = queue.exchanges[1]
    there.more = {"groups_behind": 1}
    queue.empty(1, at_once=True, read_seconds=20.0)
    queue.missing.append(1)
    queue.kill(1)
    for _ in range(10):
        queue.periods(3)
        [refused] = queue.empty(1, at_once=True, read_seconds=20.0)
        assert isinstance(refused, Failure)
    assert refused.COMMENT.endswith("it does not serve, and may hold something")
    there.epoch += 1
    queue.exchanges[1] = there
    queue.periods(3)
    [refused] = queue.empty(1, at_once=True, read_seconds=20.0)
    assert refused.COMMENT.endswith("1 consumer group not at its end yet")
    there.more = {}
    queue.periods(3)
    assert queue.emptied(queue.empty(1, at_once=True, read_seconds=20.0), REQUEST)


# --- what clients are told of it ------------------------------------------------------------------


def test_clients_are_told_for_a_while_that_nothing_was_lost_with_an_exchange() -> None:
    queue, _ = shrinking("a")
    queue.add_subscriber("s")
    queue.periods(8)
    assert 1 not in queue.exchanges
    shown = [each for each in queue.effects if isinstance(each, Push)]
    topologies = [each.message for each in shown if isinstance(each.message, Topology)]
    assert topologies[-1].emptied == [(1, 1)]
    queue.run(EMPTIED_SECONDS)
    assert queue.machine._topology().emptied == []


def test_an_exchange_that_was_emptied_by_hand_was_emptied_as_well() -> None:
    queue, _ = queue_of("a")
    queue.empty(1)
    queue.periods(3)
    queue.kill(1)
    queue.periods(5)
    assert queue.machine._topology().emptied == [(1, 1)]


def test_clients_do_not_wait_for_the_silence_of_an_emptied_exchange_that_ends() -> None:
    queue, _ = queue_of("a")
    queue.empty(1)
    queue.periods(3)
    queue.exchanges[1].stopping = True
    queue.periods(1)
    queue.kill(1)
    queue.run(STEP)
    assert [each.number for each in queue.machine._topology().exchanges] == [2]
    assert queue.machine._topology().emptied == [(1, 1)]


def test_an_exchange_that_ends_before_it_is_empty_is_not_dropped_before_it_is_silent() -> None:
    queue, _ = queue_of("a")
    queue.publishers["a"].mood = "ignores"
    queue.empty(1)
    queue.exchanges[1].stopping = True
    queue.periods(2)
    assert [each.number for each in queue.machine._topology().exchanges] == [1, 2]


@pytest.mark.parametrize("mood", ["ignores", "obeys"])
def test_an_exchange_that_dies_before_it_was_empty_and_read_was_not(mood) -> None:
    queue, _ = queue_of("a")
    queue.publishers["a"].mood = mood
    if mood == "obeys":
        queue.add_subscriber("slow", "lags")
    queue.empty(1)
    queue.periods(3)
    queue.kill(1)
    queue.periods(5)
    assert queue.machine._topology().emptied == []


# --- asked again and again, because a host is to hold nothing -------------------------------------


def test_asked_at_once_it_says_what_it_waits_for_and_goes_on() -> None:
    queue, _ = queue_of("a")
    queue.add_subscriber("slow", "lags")
    [refused] = queue.empty(1, at_once=True)
    assert isinstance(refused, Failure)
    assert refused.COMMENT == "x1 is not empty: 1 publisher still there"
    queue.periods(4)
    [refused] = queue.empty(1, at_once=True)
    assert isinstance(refused, Failure)
    assert refused.COMMENT == "x1 is not empty: 1 subscriber not at its end yet"
    queue.readers["slow"] = "reads"
    queue.periods(2)
    assert queue.emptied(queue.empty(1, at_once=True), REQUEST)


def test_what_is_not_wanted_empty_any_more_takes_publishers_again() -> None:
    queue, _ = queue_of()
    queue.empty(1, at_once=True)
    assert queue.add_publisher("x", 0).numbers == [2]
    assert queue.empty(1, wanted=False) == [Done(id=REQUEST)]
    queue.periods(1)
    assert 1 in {queue.add_publisher(name, 0).numbers[0] for name in "yz"}
    assert queue.empty(1, wanted=False) == [Done(id=REQUEST)]


def test_a_subscriber_that_does_not_read_is_waited_for_within_a_bound() -> None:
    queue, _ = queue_of("a")
    queue.add_subscriber("slow", "lags")
    queue.empty(1, at_once=True, read_seconds=20.0)
    queue.periods(4)
    [refused] = queue.empty(1, at_once=True, read_seconds=20.0)
    assert isinstance(refused, Failure)
    queue.periods(20)
    assert queue.emptied(queue.empty(1, at_once=True, read_seconds=20.0), REQUEST)
