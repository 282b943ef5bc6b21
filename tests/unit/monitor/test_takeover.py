"""What was under way when a monitor died ends well under the next one."""

from __future__ import annotations

from monitor_queue import Queue, Script

from roq.model import PublisherId, monitor_epoch
from roq.policy.snapshot import Grow, Move, Shrink, Stripe
from roq.protocol.control import ElasticityRequest, Failure, ScaleOut
from roq.timing import PUBLISHERS_RETURN_SECONDS

A = PublisherId(b"a")


def queue_of(exchanges: int = 2) -> tuple[Queue, Script]:
    """With a publisher `a` at the first one."""
    script = Script()
    queue = Queue(exchanges, policy=script)
    queue.add_publisher("a", 100)
    queue.add_subscriber("s")
    queue.periods(2)
    queue.effects.clear()
    return queue, script


def settled(queue: Queue) -> None:
    """The new monitor has learnt everything and decides again."""
    queue.run(PUBLISHERS_RETURN_SECONDS + 2)


def test_the_next_monitor_learns_from_publishers_where_they_are() -> None:
    queue, script = queue_of()
    queue.take_over()
    settled(queue)
    assert queue.placed() == {1: ["a"], 2: []}
    assert [each.publishers for each in script.views[-1].exchanges] == [1, 0]
    assert len(script.views[-1].exchanges[0].top) == 1


def test_a_publisher_that_had_obeyed_the_old_monitor_is_believed() -> None:
    queue, script = queue_of()
    script.wanted = [Move(A, 1, 2, "test")]
    queue.publishers["a"].mood = "ignores"
    queue.periods(2)
    [told] = {each.epoch for each in queue.publishers["a"].told}
    queue.take_over()
    publisher = queue.publishers["a"]
    publisher.at, publisher.epoch = [(2, 1)], told
    queue.relocated(publisher, told, "accepted")
    settled(queue)
    session = queue.machine._sessions.find(A)
    assert session is not None
    assert (session.exchanges, session.epoch) == (((2, 1),), told)


def test_the_next_monitor_gives_out_higher_epochs_than_the_old_one_ever_did() -> None:
    queue, script = queue_of()
    old = queue.publishers["a"].epoch
    queue.take_over()
    settled(queue)
    script.wanted = [Move(A, 1, 2, "test")]
    queue.periods(2)
    assert queue.placed() == {1: [], 2: ["a"]}
    assert monitor_epoch(queue.publishers["a"].epoch) > monitor_epoch(old)


def test_a_move_of_which_the_publisher_has_not_heard_is_decided_anew() -> None:
    queue, script = queue_of()
    queue.publishers["a"].mood = "ignores"
    script.wanted = [Move(A, 1, 2, "test")]
    queue.periods(2)
    queue.take_over()
    queue.publishers["a"].mood = "obeys"
    settled(queue)
    assert not script.views[-1].exchanges[0].top[0].moving
    script.wanted = [Move(A, 1, 2, "test")]
    queue.periods(2)
    assert queue.placed() == {1: [], 2: ["a"]}


def test_a_striped_publisher_stays_striped() -> None:
    queue, script = queue_of(3)
    script.wanted = [Stripe(A, (1, 3), "test")]
    queue.periods(2)
    queue.take_over()
    settled(queue)
    assert queue.placed() == {1: ["a"], 2: [], 3: ["a"]}
    assert script.views[-1].exchanges[0].top[0].exchanges == (1, 3)


def test_an_exchange_that_was_being_emptied_takes_publishers_until_it_is_wanted_again() -> None:
    queue, _ = queue_of()
    queue.publishers["a"].mood = "ignores"
    queue.empty(1)
    queue.take_over(3.0)
    queue.periods(1)
    [failure] = queue.empty(1, request=10)
    assert isinstance(failure, Failure)
    queue.publishers["a"].mood = "obeys"
    settled(queue)
    assert queue.add_publisher("b", 0).numbers == [2]  # fewer publishers are there
    assert [each.accepting for each in queue.machine._elasticity.rules.policy.views[-1].exchanges]  # type: ignore[union-attr]
    queue.empty(1, request=11)
    queue.periods(2)
    assert queue.emptied(queue.answers_to(11), 11)
    assert queue.placed() == {1: [], 2: ["a", "b"]}


def test_a_queue_that_was_shrinking_goes_on_if_the_policy_still_wants_it() -> None:
    queue, script = queue_of()
    queue.scaled = [1]
    queue.publishers["a"].mood = "ignores"
    script.wanted = [Shrink(1, "test")]
    queue.periods(2)
    queue.take_over()
    queue.publishers["a"].mood = "obeys"
    settled(queue)
    script.wanted = [Shrink(1, "test")]
    queue.periods(4)
    assert list(queue.exchanges) == [2]
    assert queue.placed() == {2: ["a"]}


def test_an_exchange_that_the_old_monitor_had_asked_for_is_used() -> None:
    queue, script = queue_of()
    queue.manager = "silent"
    script.wanted = [Grow("test")]
    queue.periods(2)
    assert len(queue.questions(ScaleOut)) == 1
    queue.take_over()
    queue.add_exchange()
    queue.manager = "obeys"
    settled(queue)
    assert [each.number for each in script.views[-1].exchanges] == [1, 2, 3]
    assert not script.views[-1].scaling


def test_transactions_of_two_monitors_are_never_the_same() -> None:
    queue, script = queue_of()
    for _ in range(2):
        script.wanted = [Grow("test")]
        queue.periods(2)
        queue.take_over()
        settled(queue)
    first, second = queue.questions(ScaleOut)
    assert first.transaction != second.transaction


def test_the_leader_is_told_at_once_who_asks() -> None:
    queue, _ = queue_of()
    queue.asked.clear()
    queue.take_over(4.0, 4.0)
    queue.run(0.25)
    [question] = queue.questions(ElasticityRequest)
    assert (question.epoch, question.exchanges) == (queue.epoch, [])
