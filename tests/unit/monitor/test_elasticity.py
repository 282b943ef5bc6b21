from dataclasses import dataclass

import pytest
from monitor_driver import EPOCH, pushes
from monitor_queue import PERIOD, Queue, Script

from roq.errors import ConfigError
from roq.model import ElasticRules, publisher_epoch
from roq.monitor.emptying import CERTAIN_SECONDS, EMPTY_SECONDS, Orphans
from roq.monitor.events import Disowned
from roq.monitor.scaling_rules import NOTED_REFUSALS
from roq.policy.snapshot import Grow, Memory, Move, Shrink, Stripe
from roq.protocol import kpi
from roq.protocol.control import (
    Configure,
    Done,
    Elasticity,
    ElasticityRequest,
    Failure,
    Relocate,
    ScaleOut,
)
from roq.timing import (
    EXCHANGE_OPENING_SECONDS,
    ORPHAN_FORGOTTEN_SECONDS,
    PUBLISHERS_RETURN_SECONDS,
)

P = b"p"


def events(queue: Queue) -> list[str]:
    return [each.event for each in queue.notes]


# --- timing ---------------------------------------------------------------------------------------


def test_an_overload_is_answered_within_two_periods() -> None:
    queue = Queue(2, cooldown_seconds=0)
    for name in "abcd":
        queue.add_publisher(name, 100)
    queue.periods(5)
    at_one = queue.placed()[1]
    for name in at_one:
        queue.publishers[name].rate = 700
    began = queue.now
    while not any(pushes(queue.effects, name, Relocate) for name in at_one):
        queue.run(0.25)
    assert queue.now - began <= 2 * PERIOD


def test_a_round_comes_with_the_last_report_and_not_later() -> None:
    script = Script()
    queue = Queue(3, policy=script)
    queue.periods(3)
    rounds = len(script.views)
    for exchange in (1, 2):
        queue._report_of(queue.exchanges[exchange])
    assert len(script.views) == rounds
    queue._report_of(queue.exchanges[3])
    assert len(script.views) == rounds + 1
    assert script.views[-1].now == queue.now


def test_there_is_one_round_in_a_period() -> None:
    script = Script()
    queue = Queue(3, policy=script)
    queue.periods(3)
    before = len(script.views)
    queue.periods(10)
    assert len(script.views) == before + 10


def test_a_round_does_not_wait_for_an_exchange_that_hangs() -> None:
    script = Script()
    queue = Queue(2, policy=script)
    queue.periods(3)
    queue.exchanges[2].reports = False
    before = len(script.views)
    queue.run(1.5)
    assert len(script.views) == before + 1


def test_a_new_exchange_takes_publishers_as_soon_as_all_subscribers_have_found_it() -> None:
    script = Script()
    queue = Queue(1, policy=script)
    queue.add_subscriber("s")
    queue.periods(3)
    queue.add_exchange()
    assert [each.accepting for each in script.views[-1].exchanges] == [True]
    queue.run(0.25)
    queue.alive("s", version=queue.machine.version, read=[(1, 1, 0), (2, 1, 0)])
    assert [each.accepting for each in script.views[-1].exchanges] == [True, True]


def test_a_new_exchange_does_not_wait_for_a_subscriber_that_never_connects() -> None:
    script = Script()
    queue = Queue(1, policy=script)
    queue.add_subscriber("s", "deaf")
    queue.periods(3)
    queue.readers.clear()  # it says nothing about what it reads any more
    queue.add_exchange()
    began = queue.now
    while not all(each.accepting for each in script.views[-1].exchanges) or (
        len(script.views[-1].exchanges) == 1
    ):
        queue.run(0.25)
        assert queue.now - began <= EXCHANGE_OPENING_SECONDS + 0.25


def test_publishers_leave_an_exchange_whose_disk_takes_nothing() -> None:
    queue = Queue(3, policy=Script())
    for name in "abcdef":
        queue.add_publisher(name, 10)
    queue.periods(3)
    assert queue.placed()[2]
    queue.exchanges[2].disk_full = queue.exchanges[3].disk_full = "disk_full: 1 MB are free"
    queue.periods(4)
    assert {number for number, names in queue.placed().items() if names} == {1}
    queue.add_publisher("new", 10)
    queue.periods(2)
    assert "new" in queue.placed()[1]
    queue.exchanges[1].disk_full = "sealed: cannot write its log"
    queue.periods(2)
    before = queue.placed()
    queue.add_publisher("last", 10)
    queue.periods(4)
    after = queue.placed()
    assert sum(map(len, after.values())) == sum(map(len, before.values())) + 1, "it waits there"
    assert set(before[1]) <= set(after[1]), "where none has room nobody is moved"
    queue.exchanges[2].disk_full = ""
    queue.periods(4)
    assert {number for number, names in queue.placed().items() if names} == {2}


def test_a_queue_grows_and_shrinks_with_its_load() -> None:
    queue = Queue(1, cooldown_seconds=2)
    queue.add_subscriber("s")
    for number in range(8):
        queue.add_publisher(f"p{number}", 400)
    queue.periods(25)
    assert len(queue.exchanges) == 4
    assert {len(names) for names in queue.placed().values()} == {2}
    settled = len(queue.moves())
    queue.periods(60)
    assert len(queue.moves()) == settled
    for publisher in queue.publishers.values():
        publisher.rate = 5
    queue.periods(120)
    assert sorted(queue.exchanges) == [1]
    assert [state for _, state, _ in queue.scales()].count("failed") == 0
    assert all(state in {"started", "accepted"} for _, state, *_ in queue.moves())


# --- policies that are wrong ----------------------------------------------------------------------


class Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def decide(self, view, memory):  # type: ignore[no-untyped-def]
        raise self.error


class Wordless(Exception):
    """Even what it says raises."""

    def __str__(self) -> str:
        raise ValueError


class Undecided:
    """No number, and no answer to the question whether it is the same as another one."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


@dataclass
class Gives:
    """Whatever it is told to give, once there is something to decide about."""

    given: object

    def decide(self, view, memory):  # type: ignore[no-untyped-def]
        return self.given if any(each.top for each in view.exchanges) else ([], memory)


NONSENSE = {
    "unknown publisher": ([Move(b"?", 1, 2, "")], Memory()),
    "unknown target": ([Move(P, 1, 99, "")], Memory()),
    "not from there": ([Move(P, 2, 1, "")], Memory()),
    "to where it is": ([Move(P, 1, 1, "")], Memory()),
    "twice": ([Move(P, 1, 2, ""), Move(P, 1, 2, "")], Memory()),
    "nowhere": ([Stripe(P, (), "")], Memory()),
    "twice the same": ([Stripe(P, (2, 2), "")], Memory()),
    "an exchange that scaling has not made": ([Shrink(2, "")], Memory()),
    "an exchange that is not there": ([Shrink(-1, "")], Memory()),
    "two of one kind": ([Grow(""), Grow("")], Memory()),
    "a number that cannot be compared": ([Move(P, Undecided(), 2, "")], Memory()),
    "a reason that cannot be sent": ([Move(P, 1, 2, "\ud800")], Memory()),
    "a reason of the wrong type": ([Move(P, 1, 2, b"load")], Memory()),
    "no decision": (["move p"], Memory()),
    "no list": (None, Memory()),
    "no memory": ([], None),
    "nothing": None,
    "three": ([], Memory(), 3),
}


def watched(policy: object) -> Queue:
    queue = Queue(2, policy=policy)  # type: ignore[arg-type]
    queue.add_publisher("p", 100)
    queue.periods(4)
    return queue


@pytest.mark.parametrize("given", NONSENSE.values(), ids=NONSENSE.keys())
def test_a_policy_that_decides_nonsense_changes_nothing(given) -> None:
    queue = watched(Gives(given))
    assert queue.placed() == {1: ["p"], 2: []}
    assert queue.moves() == queue.scales() == []
    assert queue.questions(ScaleOut) == []
    assert queue.machine._elasticity.policy_errors >= 2
    assert "policy_failed" in events(queue)


def test_one_senseless_decision_spoils_its_round() -> None:
    queue = watched(Gives(([Move(P, 1, 2, ""), Shrink(2, "")], Memory())))
    assert queue.moves() == []


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), RecursionError(), MemoryError(), Wordless(), ValueError("\ud800" * 999)],
)
def test_whatever_a_policy_raises_the_monitor_goes_on(error: BaseException) -> None:
    queue = watched(Raises(error))
    elasticity = queue.machine._elasticity
    assert elasticity.policy_errors >= 2
    assert any(type(error).__name__ in each.text for each in queue.notes)
    assert type(error).__name__ in elasticity.policy_trouble
    assert elasticity.policy_trouble.encode()
    elasticity.rules.policy = Script()
    queue.periods(2)
    assert elasticity.policy_trouble == ""


def test_a_policy_that_raises_is_counted_and_told_and_data_goes_on() -> None:
    queue = watched(Raises(ZeroDivisionError("rate of nobody")))
    assert queue.placed() == {1: ["p"], 2: []}
    [note] = {each.text for each in queue.notes if each.event == "policy_failed"}
    assert "ZeroDivisionError" in note
    assert queue.documents(kpi.QueueKpi)[-1].policy_errors >= 2
    assert queue.add_publisher("late", 10).numbers == [2]


def test_an_unknown_policy_is_told_and_roqs_own_is_used() -> None:
    script = Script()

    def named(name: str) -> Script:
        if name == "balanced":
            return script
        raise ConfigError(f"nobody offers policy {name!r}")

    queue = Queue(1, policy=script)
    queue.machine._elasticity.rules._policy_named = named
    queue.rules = ElasticRules(policy="dreamt of")
    queue.receive("gcm", Configure(id=3, queue_id=b"q" * 16))
    queue.periods(2)
    [note] = [each for each in queue.notes if each.event == "unknown_policy"]
    assert "'dreamt of'" in note.text
    assert script.views
    assert queue.documents(kpi.QueueKpi)[-1].policy == "dreamt of"
    assert "policy balanced is used" in queue.machine._elasticity.policy_trouble
    queue.rules = ElasticRules()
    queue.receive("gcm", Configure(id=4, queue_id=b"q" * 16))
    queue.periods(2)
    assert queue.machine._elasticity.policy_trouble == ""


def test_without_any_policy_publishers_are_still_assigned() -> None:
    queue = Queue(2, policy=Script())

    def named(name: str) -> Script:
        raise ConfigError("no")

    queue.machine._elasticity.rules._policy_named = named
    queue.rules = ElasticRules(policy="x")
    queue.receive("gcm", Configure(id=3, queue_id=b"q" * 16))
    queue.periods(2)
    assert {number for name in "ab" for number in queue.add_publisher(name, 0).numbers} == {1, 2}


# --- rules ----------------------------------------------------------------------------------------


def test_before_the_rules_are_known_nothing_is_decided_but_assignment() -> None:
    script = Script()
    queue = Queue(1, policy=script)
    queue.machine._elasticity.rules.known = False
    queue._elasticity = Done  # type: ignore[method-assign,assignment,return-value]
    queue.add_publisher("p", 5_000)
    script.views.clear()
    queue.periods(5)
    assert script.views == []
    assert events(queue).count("no_rules") == 1


def test_the_rules_are_asked_for_every_second_and_at_once_when_they_change() -> None:
    queue = Queue(1, policy=Script())
    before = len(queue.questions(ElasticityRequest))
    queue.run(10)
    assert len(queue.questions(ElasticityRequest)) == before + 10
    assert queue.receive("gcm", Configure(id=3, queue_id=b"q" * 16)) == [Done(id=3)]
    assert len(queue.questions(ElasticityRequest)) == before + 11


def test_the_limit_of_the_rules_counts_for_assignment_and_is_told() -> None:
    script = Script()
    queue = Queue(2, limit=500, policy=script)
    queue.periods(2)
    assert script.views[-1].limit == 500 * 60
    assert queue.documents(kpi.QueueKpi)[-1].limit_bytes_per_second == 500


@pytest.mark.parametrize("wrong", [{"exchange_bytes": -1}, {"exchanges_max": 1 << 60}])
def test_rules_with_impossible_numbers_change_nothing(wrong) -> None:
    queue = Queue(1, policy=Script())
    good = queue.machine._elasticity.rules.in_force
    queue.rules = ElasticRules(**wrong)
    queue.periods(3)
    assert queue.machine._elasticity.rules.in_force == good
    assert queue.machine._elasticity.rules.trouble
    assert "no_rules" not in events(queue), "as it is while a queue is being created"
    queue.periods(NOTED_REFUSALS)
    assert events(queue).count("no_rules") == 1


def test_the_rules_of_another_queue_are_not_taken() -> None:
    queue = Queue(1, policy=Script())
    good = queue.machine._elasticity.rules.in_force
    strange = Elasticity(queue_id=b"x" * 16, rules=ElasticRules(exchanges_max=9))
    queue._elasticity = lambda: strange  # type: ignore[method-assign]
    queue.periods(3)
    assert queue.machine._elasticity.rules.in_force == good


# --- several monitors -----------------------------------------------------------------------------


def test_a_monitor_that_meets_the_epoch_of_a_newer_one_decides_nothing_any_more() -> None:
    script = Script()
    queue = Queue(2, policy=script)
    publisher = queue.add_publisher("p", 100)
    queue.periods(3)
    newer = publisher_epoch(EPOCH + 1, 4)
    publisher.epoch = newer
    queue.periods(2)
    [note] = [each for each in queue.notes if each.event == "superseded"]
    assert "two monitors believe that they are active" in note.text
    script.views.clear()
    queue.empty(1)
    queue.periods(5)
    assert script.views == []
    assert queue.moves() == []
    assert queue.placed()[1] == ["p"]
    # Who asks is served, under an epoch that counts.
    [assigned] = queue.attach("p", failed=[(1, 1)])
    assert assigned.epoch > newer  # type: ignore[attr-defined]


def test_a_monitor_that_meets_a_newer_one_gives_up_what_it_has_begun() -> None:
    script = Script()
    queue = Queue(3, policy=script)
    for name in "pqr":
        queue.add_publisher(name, 100, mood="ignores")
    queue.scaled.append(3)
    queue.periods(3)
    script.wanted = [Move(P, 1, 2, "because"), Shrink(3, "not needed")]
    queue.periods(1)
    queue.publishers["q"].epoch = publisher_epoch(EPOCH + 1, 1)
    queue.effects.clear()
    queue.periods(2)
    assert {state for _, state, *_ in queue.moves()} == {"failed"}
    assert queue.scales() == [("in", "failed", 3)]
    queue.effects.clear()
    queue.periods(8)
    assert not any(pushes(queue.effects, name, Relocate) for name in "pqr")


def test_an_epoch_without_a_place_proves_nothing() -> None:
    script = Script()
    queue = Queue(2, policy=script)
    epoch = publisher_epoch(EPOCH + 1, 4)
    queue.alive("liar", role="publisher", at=[(9, 9)], epoch=epoch)
    queue.alive("liar", role="publisher", at=[], epoch=epoch)
    queue.alive("liar", role="publisher", at=[(1, 1)], epoch=1 << 70 >> 8)
    assert "superseded" not in events(queue)


def test_a_new_monitor_learns_where_publishers_are_and_gives_them_higher_epochs() -> None:
    old = publisher_epoch(EPOCH - 1, 77)
    queue = Queue(2, policy=Script(), restarted=True)
    queue.alive("p", role="publisher", at=[(2, 1)], epoch=old)
    assert queue.machine._sessions.find(P).exchanges == ((2, 1),)
    [assigned] = queue.attach("p")
    assert assigned.exchange.number == 2  # type: ignore[attr-defined]
    assert assigned.epoch > old  # type: ignore[attr-defined]


def test_a_new_monitor_waits_for_publishers_before_it_moves_any() -> None:
    script = Script()
    queue = Queue(2, policy=script, restarted=True)
    queue.run(PUBLISHERS_RETURN_SECONDS - 0.5)
    assert script.views == []
    queue.run(2)
    assert script.views


def test_what_a_publisher_says_about_an_older_epoch_changes_nothing() -> None:
    queue = Queue(2, policy=Script())
    publisher = queue.add_publisher("p", 0)
    queue.alive("p", role="publisher", at=[(2, 1)], epoch=publisher.epoch - 1)
    assert queue.machine._sessions.find(P).exchanges == ((1, 1),)


def test_an_epoch_that_was_never_given_is_not_believed() -> None:
    queue = Queue(2, policy=Script())
    publisher = queue.add_publisher("p", 0)
    queue.alive("p", role="publisher", at=[(2, 1)], epoch=publisher.epoch + 100)
    assert queue.machine._sessions.find(P).exchanges == ((1, 1),)
    assert publisher.epoch < queue.attach("p")[0].epoch < publisher.epoch + 100  # type: ignore[attr-defined]


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


# --- exchanges that report here although the queue does not have them ----------------------------

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
