"""Changes of queues that fail half-way: undone, or left so that they can be repeated."""

import msgspec
import pytest
from gcm_script import PaperHost, Script

from roq.protocol.control import StartExchange, StartMonitor, StopQueue


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
