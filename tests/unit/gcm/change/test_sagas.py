"""Changes of queues that fail half-way: undone, or left so that they can be repeated."""

import bson
import msgspec
import pytest
from gcm_script import CLUSTER, OTHER, PaperHost, Script

from roq.errors import RegistryAway
from roq.gcm import events
from roq.gcm.change.operations import WAITING_MAX, Operations
from roq.gcm.change.steps import Draw, Saga
from roq.protocol.control import StartExchange, StartMonitor, StopQueue
from roq.timing import OPERATION_COMMIT_SECONDS, OPERATION_WAIT_SECONDS


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"), PaperHost("h2", epoch=2))


@pytest.mark.parametrize("kind", [StartMonitor, StartExchange])
@pytest.mark.parametrize("how", ["refuse", "mute"])
def test_a_queue_that_cannot_start_is_removed_again(script: Script, how: str, kind: type) -> None:
    host = script.hosts["h1"]
    getattr(host, how).add(kind)
    answer = script.ask(2003, QName="orders", Host="h1")
    assert answer["RESULT"] == 1101
    assert "h1" in answer["COMMENT"]
    assert ("no room" in answer["COMMENT"]) is (how == "refuse")
    assert script.registry == {}
    assert host.children == {}
    assert script.machine.queues.reserved == {}
    getattr(host, how).clear()
    assert script.ask(2003, QName="orders", Host="h1")["RESULT"] == 0


def test_a_creation_whose_undoing_fails_can_be_repeated(script: Script) -> None:
    host = script.hosts["h1"]
    host.mute.add(StartExchange)
    peer = script.send(2003, QName="orders", Host="h1")
    script.step()
    script.registry_fails = 1
    script.settle()
    assert "left behind" in script.answer(peer)["COMMENT"]
    assert script.record("orders").state == "creating"
    host.mute.clear()
    assert script.ask(2003, QName="orders", Host="h2")["RESULT"] == 0
    assert script.record("orders").host == "h2"
    assert host.children == {}


@pytest.mark.parametrize("after", range(5))
def test_a_creation_cut_off_by_a_new_leader_can_be_repeated(script: Script, after: int) -> None:
    peer = script.send(2003, QName="orders", Host="h1")
    for _ in range(min(after, 4)):
        if script.pending:
            script.step()
    script.pending.clear()
    script.elect()
    for host in script.hosts.values():
        script.report(host)
    script.settle()
    assert len(script.answers[peer]) == 1
    if script.answer(peer)["RESULT"] != 0:
        assert script.ask(2003, QName="orders", Host="h1")["RESULT"] == 0
    assert sorted(script.hosts["h1"].children) == [("orders", 0), ("orders", 1)]
    located = script.ask(2000, port=5000, QName="orders")
    assert located["Monitor_host"] == script.hosts["h1"].children["orders", 0].control


def test_an_exchange_that_cannot_start_is_undone_and_its_number_not_used_again(
    script: Script,
) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.hosts["h2"].refuse.add(StartExchange)
    answer = script.ask(2004, QName="orders", Host="h2", TransactionID="t")
    assert answer["CODE"] == "no_capacity"
    assert [exchange.number for exchange in script.record("orders").exchanges] == [1]
    script.hosts["h2"].refuse.clear()
    assert script.ask(2004, QName="orders", Host="h2", TransactionID="t")["Number"] == 3


def test_an_exchange_half_made_by_an_earlier_leader_is_completed(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.send(2004, QName="orders", Host="h2", TransactionID="t")
    script.step()
    script.pending.clear()
    script.elect()
    assert script.ask(2004, QName="orders", Host="h2", TransactionID="t")["Number"] == 2
    assert len(script.record("orders").exchanges) == 2


def test_a_queue_that_cannot_be_started_is_stopped_again(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.ask(2002, QName="orders")
    script.hosts["h1"].refuse.add(StartExchange)
    assert script.ask(2005, QName="orders")["CODE"] == "no_capacity"
    assert script.record("orders").state == "stopped"
    assert script.hosts["h1"].children == {}


def test_a_queue_does_not_start_while_its_host_is_silent(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.ask(2002, QName="orders")
    script.vanish("h1")
    script.live(4)
    answer = script.ask(2005, QName="orders")
    assert (answer["CODE"], "silent" in answer["COMMENT"]) == ("host_not_found", True)
    assert script.record("orders").state == "stopped"


def test_a_stopped_queue_whose_host_is_lost_starts_on_another_one(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.ask(2002, QName="orders")
    script.vanish("h1")
    script.expire_node("h1")
    script.live(4)
    assert script.ask(2005, QName="orders")["RESULT"] == 0
    record = script.record("orders")
    assert (record.state, record.hosts) == ("running", ["h2"])
    assert sorted(script.hosts["h2"].children) == [("orders", 0), ("orders", 1)]


def test_a_host_that_does_not_confirm_a_stop_is_named_and_the_stop_repeatable(
    script: Script,
) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.hosts["h1"].mute.add(StopQueue)
    answer = script.ask(2002, QName="orders")
    assert (answer["RESULT"], "h1 did not confirm" in answer["COMMENT"]) == (1101, True)
    assert script.ask(2000, port=5000, QName="orders")["CODE"] == "queue_stopped"
    script.hosts["h1"].mute.clear()
    assert script.ask(2002, QName="orders")["RESULT"] == 0
    assert script.hosts["h1"].children == {}


def test_a_removal_does_not_wait_for_a_host_and_reaches_it_later(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.hosts["h1"].mute.add(StopQueue)
    answer = script.ask(2001, QName="orders")
    assert (answer["RESULT"], "did not confirm" in answer["WARNING"]) == (0, True)
    script.hosts["h1"].mute.clear()
    script.report(script.hosts["h1"])
    script.settle()
    assert script.hosts["h1"].children == {}


def test_a_host_that_comes_back_is_told_to_stop_what_was_stopped_meanwhile(
    script: Script,
) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.vanish("h1", with_children=False)
    script.expire_node("h1")
    script.pass_time(10)
    assert script.ask(2002, QName="orders")["RESULT"] == 0
    assert len(script.hosts["h1"].children) == 2
    script.come_back("h1")
    script.settle()
    assert script.hosts["h1"].children == {}
    assert script.hosts["h1"].asked[-1].reason == "stopped"


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


def test_an_unexpected_answer_of_a_host_fails_the_request(script: Script) -> None:
    peer = script.send(2003, QName="a", Host="h1")
    script.step()
    ask = script.pending.popleft()
    script.feed(events.Answered(ask.token, script.hosts["h1"].report()))
    script.settle()
    assert "unexpected" in script.answer(peer)["COMMENT"]


def test_answers_after_leadership_was_lost_change_nothing(script: Script) -> None:
    peer = script.send(2003, QName="a", Host="h1")
    script.step()
    script.feed(events.Following(OTHER))
    script.settle()
    assert len(script.answers[peer]) == 1


# --- what was lost --------------------------------------------------------------------------------


def test_start_of_a_running_queue_restores_what_a_restarted_host_manager_does_not_know(
    script: Script,
) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.ask(2004, QName="q", Host="h2")
    for host in script.hosts.values():
        script.report(host)
    host = script.hosts["h1"]
    host.children.clear()
    host.epoch += 1
    script.report(host)
    states = [row["State"] for row in script.ask(2103, QName="q")["Exchanges"]]
    assert states == ["missing", "running"]
    asked = len(script.hosts["h2"].asked)
    assert script.ask(2005, QName="q")["RESULT"] == 0
    assert sorted(host.children) == [("q", 0), ("q", 1)]
    monitor = next(each for each in reversed(host.asked) if isinstance(each, StartMonitor))
    assert monitor.restarted
    assert len(script.hosts["h2"].asked) == asked
    states = [row["State"] for row in script.ask(2103, QName="q")["Exchanges"]]
    assert states == ["running", "running"]
    assert script.ask(2000, port=5000, QName="q")["Monitor_host"] == host.children["q", 0].control


def test_start_of_a_running_queue_asks_again_for_what_failed_for_good(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    host = script.hosts["h1"]
    key = ("q", 1)
    host.children[key] = msgspec.structs.replace(host.children[key], state="failed", pid=0)
    script.report(host)
    before = len(host.asked)
    script.ask(2005, QName="q")
    assert [type(each) for each in host.asked[before:]] == [StartExchange]


def test_start_of_a_complete_queue_asks_nobody(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    before = len(script.hosts["h1"].asked)
    assert script.ask(2005, QName="q")["RESULT"] == 0
    assert len(script.hosts["h1"].asked) == before


def test_whatever_a_host_is_told_names_the_cluster(script: Script) -> None:
    script.ask(2003, QName="a", Host="h1")
    script.ask(2004, QName="a", Host="h2", TransactionID="t")
    script.ask(2100, QName="a", Exchange="x2")
    script.ask(2001, QName="a")
    script.hosts["h1"].start("nobody", b"n" * 16, 0)  # a stray
    script.report(script.hosts["h1"])
    script.settle()
    told = [message for host in script.hosts.values() for message in host.asked]
    assert {type(message) for message in told} == {StartMonitor, StartExchange, StopQueue}
    assert {message.cluster for message in told} == {CLUSTER}
