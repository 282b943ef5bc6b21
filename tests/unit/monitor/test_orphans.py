"""Exchanges that report and that the queue does not have go, without anything being lost."""

from monitor_queue import Queue, Script

from roq.monitor.events import Disowned
from roq.monitor.orphans import CERTAIN_SECONDS, EMPTY_SECONDS, Orphans
from roq.policy.snapshot import Grow
from roq.protocol.control import Failure, ScaleOut
from roq.timing import ORPHAN_FORGOTTEN_SECONDS

LONG_ENOUGH = CERTAIN_SECONDS + 2.0


def grown(exchanges: int = 2) -> Queue:
    queue = Queue(exchanges, policy=Script())
    queue.add_subscriber("s")
    for name in "ab":
        queue.add_publisher(name, 100)
    queue.periods(3)
    return queue


def test_an_exchange_that_the_queue_does_not_have_is_emptied_and_then_dismissed() -> None:
    queue = grown()
    assert all(queue.placed().values())
    queue.unwanted = {2}
    queue.periods(8)
    assert list(queue.exchanges) == [1]
    assert queue.placed() == {1: ["a", "b"]}
    assert [state for _, state, *_ in queue.moves()] == ["started", "accepted"]
    assert queue.machine._exchanges.numbers() == {1}
    assert any("x2 is dismissed" in note.text for note in queue.notes)


def test_a_word_that_is_taken_back_dismisses_nobody() -> None:
    queue = grown()
    for _ in range(10):
        queue.unwanted = {2}
        queue.run(1.25)
        queue.unwanted = set()
        queue.run(ORPHAN_FORGOTTEN_SECONDS + 1.25)
    assert sorted(queue.exchanges) == [1, 2]
    assert queue.moves() == []


def test_the_last_exchange_serves_until_there_is_another_one() -> None:
    queue = grown(1)
    queue.unwanted = {1}
    queue.periods(30)
    assert queue.placed() == {1: ["a", "b"]}
    queue.add_exchange()
    queue.periods(10)
    assert queue.placed() == {2: ["a", "b"]}


def test_an_exchange_that_has_served_as_the_last_one_for_long_is_emptied_all_the_same() -> None:
    queue = grown(1)
    queue.unwanted = {1}
    queue.run(CERTAIN_SECONDS + EMPTY_SECONDS + 10)
    queue.readers = {"s": "lags"}
    queue.add_exchange()
    queue.run(EMPTY_SECONDS - 2)
    assert sorted(queue.exchanges) == [1, 2]
    assert queue.placed() == {1: [], 2: ["a", "b"]}
    queue.readers = {"s": "reads"}
    queue.periods(4)
    assert queue.placed() == {2: ["a", "b"]}


def test_the_last_one_left_is_not_dismissed_because_the_other_one_dies_at_the_end() -> None:
    queue = grown()
    queue.readers = {"s": "lags"}
    queue.unwanted = {2}
    queue.run(EMPTY_SECONDS - 2)
    queue.kill(1)
    queue.run(EMPTY_SECONDS)
    assert queue.placed() == {2: ["a", "b"]}


def test_whoever_does_not_leave_it_or_read_it_delays_it_for_a_bounded_time_only() -> None:
    queue = grown()
    for publisher in queue.publishers.values():
        publisher.mood = "ignores"
    queue.readers = {"s": "lags"}
    queue.unwanted = {2}
    queue.run(EMPTY_SECONDS)
    assert sorted(queue.exchanges) == [1, 2]
    queue.run(LONG_ENOUGH + 1)
    assert list(queue.exchanges) == [1]
    assert queue.placed() == {1: ["a", "b"]}


def test_the_same_process_is_not_taken_in_again_and_a_later_one_is() -> None:
    queue = grown()
    gone = queue.exchanges[2]
    queue.unwanted = {2}
    queue.periods(8)
    queue.unwanted = set()
    queue.exchanges[2] = gone
    queue._report_of(gone)
    assert 2 not in queue.exchanges
    gone.epoch += 1
    queue.exchanges[2] = gone
    queue._report_of(gone)
    assert queue.machine._exchanges.numbers() == {1, 2}


def test_an_exchange_that_goes_anyhow_is_not_dismissed_by_a_monitor_that_is_to_be_emptied() -> None:
    queue = grown(3)
    queue.empty(3)
    queue.unwanted = {3}
    queue.periods(8)
    assert sorted(queue.exchanges) == [1, 2]
    queue.machine.check()


def test_nothing_is_remembered_of_what_nobody_says_any_more() -> None:
    unwanted = Orphans()
    assert unwanted.told(range(5_000), 0.0) == []
    assert len(unwanted.told(range(5_000), CERTAIN_SECONDS)) == 1_024
    assert unwanted.told([], CERTAIN_SECONDS + ORPHAN_FORGOTTEN_SECONDS) == []
    assert unwanted._told == {}


def test_what_two_leaders_say_with_a_silence_between_them_is_not_said_for_long() -> None:
    unwanted = Orphans()
    assert unwanted.told([2], 0.0) == []
    assert unwanted.told([2], ORPHAN_FORGOTTEN_SECONDS) == []
    assert unwanted.told([2], ORPHAN_FORGOTTEN_SECONDS + CERTAIN_SECONDS) == [2]


# --- how large a queue gets -----------------------------------------------------------------------


def test_an_exchange_that_is_being_healed_counts_among_those_that_a_queue_may_have() -> None:
    script = Script()
    queue = Queue(3, policy=script, exchanges_max=3)
    queue.periods(3)
    queue.kill(2)
    queue.missing = [2]
    queue.periods(5)
    script.wanted = [Grow("overload", 1)]
    queue.periods(2)
    assert queue.questions(ScaleOut) == []
    queue.missing = []
    queue.periods(2)
    script.wanted = [Grow("overload", 1)]
    queue.periods(2)
    assert len(queue.questions(ScaleOut)) == 1


def test_a_queue_grows_by_no_more_than_there_is_room_for() -> None:
    script = Script()
    queue = Queue(1, policy=script, exchanges_max=4)
    queue.missing = [8, 9]
    queue.periods(3)
    script.wanted = [Grow("overload", 3)]
    queue.periods(2)
    assert len(queue.questions(ScaleOut)) == 1


# --- a queue that is gone -------------------------------------------------------------------------


def test_a_leader_that_knows_no_such_queue_is_heard_and_no_other_refusal_is_mistaken_for_it() -> (
    None
):
    for code in ("queue_not_found", "queue_stopped", "registry_away"):
        queue = Queue(1)
        queue.refusal = Failure(RESULT=1101, COMMENT="no", CODE=code)
        queue.periods(2)
        disowned = any(isinstance(each, Disowned) for each in queue.effects)
        assert disowned is (code == "queue_not_found")
