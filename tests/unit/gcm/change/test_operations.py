"""One operation at a time works on a queue; each has an answer, and each wait an end."""

from collections.abc import Callable, Hashable

import bson
import pytest
from gcm_script import OTHER, PaperHost, Script

from roq.errors import NotLeader, RegistryAway, RequestError
from roq.gcm import events
from roq.gcm.change.admission import AT_ONCE
from roq.gcm.change.operations import (
    AGAIN_SECONDS,
    OPERATIONS_MAX,
    OWN_MAX,
    WAITING_MAX,
    Operations,
)
from roq.gcm.change.saga_steps import Admit, Call, Calls, Draw, Emit, Saga, Save, Step
from roq.model import Limits
from roq.protocol.control import Control, Done, StartMonitor, StopQueue
from roq.timing import ADMISSION_SECONDS, OPERATION_COMMIT_SECONDS, OPERATION_WAIT_SECONDS


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"), PaperHost("h2", epoch=2))


def test_a_change_that_the_registry_refuses_is_answered(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.registry_fails = 1
    answer = script.ask(2002, QName="orders")
    assert answer["CODE"] == "interrupted", "the registry may have written it down all the same"
    assert "look what is done" in answer["COMMENT"]
    assert script.ask(2000, port=5000, QName="orders")["RESULT"] == 0


def test_what_was_begun_when_the_registry_went_away_is_told_from_what_was_not(
    script: Script,
) -> None:
    begun = script.send(2003, QName="orders", Host="h1")
    waiting = script.send(2002, QName="orders")
    script.feed(events.RegistryLost(session_ended=True))
    assert script.answer(begun)["CODE"] == "interrupted"
    assert script.answer(waiting)["CODE"] == "registry_away"
    assert script.ask(2005, QName="orders")["CODE"] == "registry_away"


def test_a_number_that_cannot_be_drawn_has_begun_nothing() -> None:
    asked: list[object] = []

    def saga() -> Saga:
        asked.append((yield Draw()))
        return {}

    operations = Operations()
    (draw,) = operations.submit("q", "peer", saga, 0.0)
    assert isinstance(draw, events.DrawEpoch)
    (reply,) = operations.commit_failed(draw.token, RegistryAway("registry away"), 0.0)
    assert isinstance(reply, events.Reply)
    assert bson.decode(reply.data)["CODE"] == "registry_away"
    assert asked == []


def test_operations_on_one_queue_take_turns_and_others_do_not_wait(script: Script) -> None:
    create = script.send(2003, QName="a", Host="h1")
    stop = script.send(2002, QName="a")
    other = script.send(2003, QName="b", Host="h2")
    assert len(script.pending) == 2
    script.settle()
    for peer in (create, stop, other):
        assert script.answer(peer)["RESULT"] == 0
    assert script.record("a").state == "stopped"


def test_the_line_before_a_queue_is_short(script: Script) -> None:
    peers = [script.send(2002, QName="a") for _ in range(3)]
    script.send(2003, QName="a", Host="h1")
    peers = [script.send(2005, QName="a") for _ in range(WAITING_MAX + 2)]
    assert sum(1 for peer in peers if peer in script.answers) == 2
    script.settle()
    assert all(len(script.answers[peer]) == 1 for peer in peers)


def test_who_waits_too_long_is_answered(script: Script) -> None:
    script.send(2003, QName="a", Host="h1")
    script.pass_time(OPERATION_COMMIT_SECONDS)
    waiting = script.send(2002, QName="a")
    # The commit never comes back; so is the undoing's.
    script.pass_time(OPERATION_COMMIT_SECONDS + OPERATION_WAIT_SECONDS)
    assert len(script.answers[waiting]) == 1


def test_completions_that_come_too_late_are_ignored(script: Script) -> None:
    peer = script.send(2003, QName="a", Host="h1")
    late = script.pending[0]
    script.pending.clear()
    script.pass_time(OPERATION_COMMIT_SECONDS + 5)
    assert script.answer(peer)["CODE"] == "interrupted"
    script.feed(events.Committed(late.token))
    script.feed(events.Committed(12345))
    assert len(script.answers[peer]) == 1


def test_answers_after_leadership_was_lost_change_nothing(script: Script) -> None:
    peer = script.send(2003, QName="a", Host="h1")
    script.step()
    script.feed(events.Following(OTHER))
    script.settle()
    assert len(script.answers[peer]) == 1


# --- by themselves --------------------------------------------------------------------------------

DONE = Done(id=1)
SAVE = Save((events.Put("/queues/q", b"{}"),))


def saga(*steps: Step, seen: list[object] | None = None) -> Callable[[], Saga]:
    """One that wants these, one after the other, and remembers what came back."""

    def make() -> Saga:
        for step in steps:
            try:
                back: object = yield step
            except RequestError as error:
                if seen is None:
                    raise
                back = error
            if seen is not None:
                seen.append(back)
        return {"RESULT": 0}

    return make


def call(host: str = "h1", message: Control | None = None, *, again: bool = False) -> Call:
    stop = StopQueue(queue="q", leader_epoch=1)
    return Call(host, f"tcp://{host}:5100", message or stop, 10.0, again)


def tokens(effects: list[events.Effect]) -> list[int]:
    asking = events.Commit | events.DrawEpoch | events.AskHost
    return [each.token for each in effects if isinstance(each, asking)]


def replies(effects: list[events.Effect]) -> dict[Hashable, str]:
    told = {each.peer: bson.decode(each.data) for each in effects if isinstance(each, events.Reply)}
    return {peer: each.get("CODE", "") for peer, each in told.items()}


def test_each_step_is_performed_and_what_comes_back_is_handed_in() -> None:
    operations, seen = Operations(), list[object]()
    note = Emit((events.LogLine("e", "begun"),))
    steps = (note, SAVE, Draw(), Calls((call("h1"), call("h2"))), Calls(()))
    effects = operations.submit("q", "peer", saga(*steps, seen=seen), 0.0)
    assert effects[0] == note.effects[0]
    (save,) = tokens(effects)
    assert operations.awaits(save)
    (draw,) = tokens(operations.completed(save, None, 0.0))
    first, second = tokens(operations.completed(draw, 7, 0.0))
    assert operations.completed(second, "no answer", 0.0) == []
    assert operations.busy("q")
    assert replies(operations.completed(first, DONE, 0.0)) == {"peer": ""}
    assert seen == [[], [], [7], [DONE, "no answer"], []]
    assert (operations.busy("q"), operations.queues) == (False, frozenset())
    assert operations.completed(first, DONE, 0.0) == []
    operations.check()


def test_what_the_leader_has_to_do_itself_goes_before_all_that_wait() -> None:
    operations, seen = Operations(), list[object]()
    (save,) = tokens(operations.submit("q", "a", saga(SAVE), 0.0))
    operations.submit("q", "b", saga(SAVE, seen=seen), 0.0)
    ours = saga(Emit((events.LogLine("e", "ours"),)))
    assert operations.submit_own("q", ours, 0.0) == (True, [])
    effects = operations.completed(save, None, 0.0)
    texts = [each.text for each in effects if isinstance(each, events.LogLine)]
    assert (replies(effects), texts, len(tokens(effects))) == ({"a": ""}, ["ours"], 1)
    operations.check()


def test_requests_of_all_leave_room_for_what_the_leader_has_to_do() -> None:
    operations = Operations()
    for number in range(OPERATIONS_MAX):
        operations.submit(f"q{number}", number, saga(SAVE), 0.0)
    refused = operations.submit("one-more", "peer", saga(SAVE), 0.0)
    assert replies(refused) == {"peer": "busy"}
    for number in range(OWN_MAX):
        assert operations.submit_own(f"own{number}", saga(SAVE), 0.0)[0]
    assert operations.submit_own("one-more", saga(SAVE), 0.0) == (False, [])
    operations.check()
    effects = operations.abort(NotLeader("another leads"))
    assert len(replies(effects)) == OPERATIONS_MAX
    assert operations.queues == frozenset()
    assert operations.next_deadline() is None
    operations.check()


def test_who_asks_for_too_much_itself_is_told_how_much_is_its_own() -> None:
    operations = Operations()
    for number in range(OPERATIONS_MAX // 2 + 1):
        last = operations.submit(f"q{number}", number, saga(SAVE), 0.0, party="console")
    assert replies(last) == {OPERATIONS_MAX // 2: "busy"}
    assert replies(operations.submit("other", "peer", saga(SAVE), 0.0)) == {}


def test_what_may_have_been_lost_on_its_way_is_asked_again_until_the_time_is_over() -> None:
    operations = Operations()
    (asked, once) = tokens(
        operations.submit("q", "p", saga(Calls((call(again=True), call("h2")))), 0.0)
    )
    assert operations.next_deadline() == AGAIN_SECONDS
    again = operations.expire(AGAIN_SECONDS)
    assert [(each.token, each.timeout) for each in again] == [(asked, 10.0 - AGAIN_SECONDS)]
    assert operations.expire(AGAIN_SECONDS) == []
    assert len(operations.expire(3 * AGAIN_SECONDS)) == 1
    assert operations.completed(once, DONE, 9.5) == []
    assert replies(operations.expire(11.0)) == {"p": ""}
    assert operations.next_deadline() is None


def test_nobody_waits_for_a_host_that_is_gone_and_no_start_comes_late() -> None:
    operations, seen = Operations(), list[object]()
    start = StartMonitor(queue="q", queue_id=b"q", leader_epoch=1, limits=Limits())
    operations.submit("q", "p", saga(Calls((call("h1", start), call("h2"))), seen=seen), 0.0)
    operations.submit("r", "s", saga(Calls((call("h1"),)), seen=seen), 0.0)
    assert operations.gone("h3", "", 0.0) == []
    assert operations.gone("h1", "tcp://h1:9", 0.0) == [], "another one manages it since"
    effects = operations.gone("h1", "tcp://h1:5100", 0.0)
    assert replies(effects) == {"s": ""}
    assert effects[0] != events.HangUp("tcp://h1:5100"), "a stop is wanted there still"
    assert seen == [["the manager of host h1 is gone"]]
    assert replies(operations.gone("h2", "", 0.0)) == {"p": ""}
    assert seen[1] == ["the manager of host h1 is gone", "host h2 is lost"]
    operations.submit("q", "p", saga(Calls((call("h1", start),))), 0.0)
    assert operations.gone("h1", "", 0.0)[0] == events.HangUp("tcp://h1:5100")


def test_a_registry_that_does_not_answer_is_away_and_what_was_begun_is_interrupted() -> None:
    operations = Operations()

    def writes() -> Saga:
        yield SAVE
        return {}

    operations.submit("q", "p", writes, 0.0)
    assert operations.expire(OPERATION_COMMIT_SECONDS) == []
    assert replies(operations.expire(OPERATION_COMMIT_SECONDS + 1.0)) == {"p": "interrupted"}
    operations.check()


def test_a_saga_that_is_given_up_is_closed() -> None:
    operations, ended = Operations(), list[str]()

    def waits() -> Saga:
        try:
            yield SAVE
        finally:
            ended.append("closed")
        return {}

    operations.submit("q", "p", waits, 0.0)
    waiting = operations.submit("q", "r", waits, 0.0)
    assert waiting == []
    assert replies(operations.abort(RegistryAway("away"))) == {
        "p": "interrupted", "r": "registry_away",
    }  # fmt: skip
    assert ended == ["closed"], "the other one had not begun"


START = saga(Admit("h1"), SAVE)


def full(operations: Operations) -> list[int]:
    """As much is started on a host as may be at once; gives what is waited for."""
    return [
        token
        for number in range(AT_ONCE)
        for token in tokens(operations.submit(f"q{number}", number, START, 0.0))
    ]


def test_a_start_waits_for_its_turn_at_its_host_and_others_do_not() -> None:
    operations = Operations()
    saves = full(operations)
    assert operations.submit("late", "late", START, 1.0) == []
    assert len(tokens(operations.submit("r", "r", saga(Admit("h2"), SAVE), 1.0))) == 1
    operations.check()
    effects = operations.completed(saves[0], None, 2.0)
    assert (replies(effects), len(tokens(effects))) == ({0: ""}, 1)
    assert replies(operations.completed(tokens(effects)[0], None, 2.0)) == {"late": ""}
    operations.check()


def test_a_turn_that_does_not_come_in_time_is_refused_and_nothing_was_begun() -> None:
    operations = Operations()
    for number in range(AT_ONCE):
        operations.submit(f"q{number}", number, saga(Admit("h1"), Calls((slow(),))), 0.0)
    operations.submit("late", "late", START, 0.0)
    assert replies(operations.expire(ADMISSION_SECONDS - 0.1)) == {}
    assert replies(operations.expire(ADMISSION_SECONDS)) == {"late": "busy"}
    operations.check()


def slow() -> Call:
    return Call("h1", "tcp://h1:5100", StopQueue(queue="q", leader_epoch=1), 90.0)


def test_who_waits_for_a_host_that_is_lost_is_told_so_at_once() -> None:
    operations = Operations()
    full(operations)
    operations.submit("late", "late", START, 0.0)
    assert replies(operations.gone("h1", "", 0.0)) == {"late": "host_not_found"}
    operations.check()


def test_what_the_leader_has_to_do_does_not_wait_behind_a_turn_that_has_not_come() -> None:
    operations = Operations()
    saves = full(operations)
    operations.submit("late", "late", START, 0.0)
    _, effects = operations.submit_own("late", saga(SAVE), 0.0)
    (ours,) = tokens(effects)
    assert operations.completed(ours, None, 0.0) == [], "the other one waits anew"
    effects = operations.completed(saves[0], None, 0.0)
    assert (replies(effects), len(tokens(effects))) == ({0: ""}, 1)
    operations.check()


def test_after_an_end_of_everything_all_hosts_take_starts_again() -> None:
    operations = Operations()
    full(operations)
    operations.submit("late", "late", START, 0.0)
    assert replies(operations.abort(RegistryAway("away")))["late"] == "registry_away"
    assert len(full(operations)) == AT_ONCE
    operations.check()
