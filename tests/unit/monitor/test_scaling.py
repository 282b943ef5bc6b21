from itertools import pairwise

import pytest
from monitor_queue import Queue, Script

from roq.monitor.events import Ask
from roq.monitor.scaling import ARRIVAL_SECONDS, STOP_TRIES
from roq.policy.snapshot import Grow, Shrink
from roq.protocol import kpi
from roq.protocol.control import Done, Failure, ScaledOut, ScaleIn, ScaleOut


def queue_of(exchanges: int = 1, **more: object) -> tuple[Queue, Script]:
    script = Script()
    queue = Queue(exchanges, policy=script, **more)  # type: ignore[arg-type]
    queue.periods(3)
    queue.effects.clear()
    return queue, script


def growth_asked(queue: Queue) -> Ask:
    return next(each for each in queue.asked if isinstance(each.message, ScaleOut))


# --- out ------------------------------------------------------------------------------------------


def test_an_exchange_more_is_asked_for_with_the_reason_and_a_transaction() -> None:
    queue, script = queue_of()
    script.wanted = [Grow("x1 carries 130% of its limit")]
    queue.periods(1)
    [asked] = queue.questions(ScaleOut)
    assert (asked.queue, asked.queue_id) == ("orders", b"q" * 16)
    assert asked.reason == "x1 carries 130% of its limit"
    assert asked.transaction


def test_growth_is_done_when_the_new_exchange_has_reported() -> None:
    queue, script = queue_of()
    script.wanted = [Grow("load")]
    queue.periods(1)
    assert queue.scales() == [("out", "started", 0), ("out", "done", 2)]
    assert queue.documents(kpi.ScaleKpi)[-1].host == "127.0.0.3"
    queue.periods(1)
    assert [each.number for each in script.views[-1].exchanges] == [1, 2]
    assert not script.views[-1].scaling


def test_one_operation_at_a_time() -> None:
    queue, script = queue_of()
    queue.manager = "silent"
    script.wanted = [Grow("load")]
    queue.periods(1)
    queue.periods(1)
    assert script.views[-1].scaling
    script.wanted = [Grow("more load")]
    queue.periods(1)
    assert len(queue.questions(ScaleOut)) == 1
    assert queue.machine._elasticity.policy_errors == 1


def test_several_are_asked_for_at_once_each_under_a_transaction_of_its_own() -> None:
    queue, script = queue_of()
    script.wanted = [Grow("load", 3)]
    queue.periods(1)
    assert len({each.transaction for each in queue.questions(ScaleOut)}) == 3
    assert sorted(queue.scales()) == [
        *(("out", "done", number) for number in (2, 3, 4)),
        *[("out", "started", 0)] * 3,
    ]
    queue.periods(1)
    assert not script.views[-1].scaling


def test_of_several_that_fail_together_the_pause_is_that_of_one_failure() -> None:
    queue, script = queue_of()
    queue.manager = "away"
    script.wanted = [Grow("load", 3)]
    queue.periods(1)
    assert [state for _, state, _ in queue.scales()].count("failed") == 3
    asked = {each.transaction for each in queue.questions(ScaleOut)}
    queue.manager = "obeys"
    queue.periods(5)
    script.wanted = [Grow("load", 2)]
    queue.periods(1)
    again = [each.transaction for each in queue.questions(ScaleOut)[3:]]
    assert len(again) == 2
    assert set(again) < asked


def test_it_is_under_way_until_the_last_one_has_come() -> None:
    queue, script = queue_of()
    queue.manager = "silent"
    script.wanted = [Grow("load", 2)]
    queue.periods(1)
    first, second = (each for each in queue.asked if isinstance(each.message, ScaleOut))
    queue.add_exchange()
    queue.answer(first, ScaledOut(number=2, host="127.0.0.3"))
    assert queue.machine._elasticity.scaling.under_way
    queue.answer(second, Failure(RESULT=1101, COMMENT="no host has room", CODE="no_capacity"))
    assert not queue.machine._elasticity.scaling.under_way
    assert queue.scales()[-2:] == [("out", "done", 2), ("out", "failed", 0)]


def test_a_refusal_is_told_and_the_next_attempt_waits_longer_and_longer() -> None:
    queue, script = queue_of()
    queue.manager = "refuses"
    attempts = []
    for second in range(120):
        script.wanted = [Grow("load")]
        before = len(queue.questions(ScaleOut))
        queue.periods(1)
        if len(queue.questions(ScaleOut)) > before:
            attempts.append(second)
    pauses = [after - before for before, after in pairwise(attempts)]
    assert pauses == [5, 10, 20, 40]
    assert queue.scales()[:2] == [("out", "started", 0), ("out", "failed", 0)]
    assert queue.documents(kpi.ScaleKpi)[1].reason == "no host has room"


def test_each_attempt_after_a_refusal_is_a_transaction_of_its_own() -> None:
    queue, script = queue_of()
    queue.manager = "refuses"
    for _ in range(8):
        script.wanted = [Grow("load")]
        queue.periods(1)
    first, second = queue.questions(ScaleOut)
    assert first.transaction != second.transaction


@pytest.mark.parametrize("mood", ["away", "registry_away", "interrupted"])
def test_what_nobody_knows_the_end_of_is_asked_again_under_the_same_transaction(mood) -> None:
    queue, script = queue_of()
    queue.manager = "away" if mood == "away" else "silent"
    script.wanted = [Grow("load")]
    queue.periods(1)
    if mood != "away":
        refusal = Failure(RESULT=1101, COMMENT="ZooKeeper is away", CODE=mood)
        queue.answer(growth_asked(queue), refusal)
    assert queue.scales()[-1] == ("out", "failed", 0)
    queue.manager = "obeys"
    for _ in range(7):
        script.wanted = [Grow("load")]
        queue.periods(1)
        if queue.scales()[-1][1] == "done":
            break
    first, second = queue.questions(ScaleOut)
    assert first.transaction == second.transaction
    assert sorted(queue.exchanges) == [1, 2]


def test_a_new_exchange_that_never_reports_is_not_waited_for_for_ever() -> None:
    queue, script = queue_of()
    queue.manager = "forgets"
    script.wanted = [Grow("load")]
    queue.run(ARRIVAL_SECONDS)
    assert queue.scales() == [("out", "started", 0)]
    queue.run(2)
    assert queue.scales() == [("out", "started", 0), ("out", "failed", 2)]
    assert "x2 was started on 127.0.0.3" in queue.documents(kpi.ScaleKpi)[-1].reason
    queue.periods(1)
    assert not script.views[-1].scaling


def test_an_answer_to_another_question_changes_nothing() -> None:
    queue, script = queue_of()
    queue.manager = "silent"
    script.wanted = [Grow("load")]
    queue.periods(1)
    ask = growth_asked(queue)
    wrong = type(ask)(ask.serial + 1_000, ask.message, ask.seconds)
    assert queue.answer(wrong, ScaledOut(number=5, host="h")) == []
    assert queue.machine._elasticity.scaling.under_way


@pytest.mark.parametrize(
    "answer", [Done(), ScaledOut(number=0, host=""), ScaledOut(number=-4, host="")]
)
def test_an_answer_that_makes_no_sense_counts_as_a_failure(answer) -> None:
    queue, script = queue_of()
    queue.manager = "silent"
    script.wanted = [Grow("load")]
    queue.periods(1)
    queue.answer(growth_asked(queue), answer)
    assert queue.scales()[-1] == ("out", "failed", 0)


# --- in -------------------------------------------------------------------------------------------


def shrunk(names: str = "ab", mood: str = "obeys") -> tuple[Queue, Script]:
    """Two exchanges, publishers a, b, … and x2 is not wanted any more."""
    queue, script = queue_of(2)
    queue.add_subscriber("s")
    for name in names:
        queue.add_publisher(name, 10)
    queue.scaled.append(2)
    queue.periods(3)
    queue.effects.clear()
    queue.manager = mood
    script.wanted = [Shrink(2, "not needed")]
    return queue, script


def test_an_exchange_less_is_emptied_and_then_stopped() -> None:
    queue, script = shrunk()
    queue.periods(3)
    [asked] = queue.questions(ScaleIn)
    assert (asked.number, asked.reason) == (2, "not needed")
    assert queue.scales() == [("in", "started", 2), ("in", "done", 2)]
    assert queue.placed() == {1: ["a", "b"]}
    queue.periods(1)
    assert [each.number for each in script.views[-1].exchanges] == [1]
    assert not script.views[-1].scaling


def test_an_exchange_that_was_stopped_is_gone_from_the_topology_at_once() -> None:
    queue, _ = shrunk("")
    queue.run(3)
    [topology] = queue.join("t")
    assert [each.number for each in topology.exchanges] == [1]  # type: ignore[attr-defined]


def test_what_could_not_be_stopped_is_tried_again_and_then_stays() -> None:
    queue, script = shrunk("", "away")
    queue.run(200)
    assert len(queue.questions(ScaleIn)) == STOP_TRIES
    assert queue.scales() == [("in", "started", 2), ("in", "failed", 2)]
    queue.periods(1)
    assert all(each.accepting for each in script.views[-1].exchanges)


def test_what_must_not_be_stopped_stays_at_once() -> None:
    queue, script = shrunk("", "refuses")
    queue.run(4)
    assert len(queue.questions(ScaleIn)) == 1
    assert queue.scales() == [("in", "started", 2), ("in", "failed", 2)]
    assert all(each.accepting for each in script.views[-1].exchanges)
