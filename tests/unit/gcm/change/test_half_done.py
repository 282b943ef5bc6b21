"""What a leader has begun with a queue is completed or undone by the next one, by itself."""

import msgspec
import pytest
from gcm_script import OTHER, PaperHost, Script

from roq.errors import RegistryAway
from roq.gcm import events
from roq.protocol.control import StartExchange, StopQueue
from roq.protocol.documents import RawDocument


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"), PaperHost("h2", epoch=2))


def cut_off(script: Script, steps: int) -> None:
    """The leader does so much more, then another one leads."""
    for _ in range(steps):
        if script.pending:
            script.step()
    script.pending.clear()
    script.feed(events.Following(OTHER))
    script.elect()


def children(script: Script) -> dict[str, list[tuple[str, int]]]:
    return {name: sorted(host.children) for name, host in script.hosts.items()}


CREATE: RawDocument = {"QName": "q", "Host": "h1"}


@pytest.mark.parametrize("steps", range(4))
def test_a_creation_is_completed_by_the_next_leader(script: Script, steps: int) -> None:
    peer = script.send(2003, **CREATE)
    cut_off(script, steps + 1)
    assert len(script.answers[peer]) == 1
    script.live(2)
    assert script.record("q").state == "running"
    assert children(script) == {"h1": [("q", 0), ("q", 1)], "h2": []}
    assert script.hosts["h1"].started == 2
    assert script.ask(2104, QName="q")["Reasons"] == []


@pytest.mark.parametrize("steps", range(5))
@pytest.mark.parametrize("wait", [0.0, 3.0])
@pytest.mark.parametrize("more", [{}, {"TransactionID": "t"}], ids=["old tool", "transaction"])
def test_whoever_repeats_a_creation_finds_it_done(
    script: Script, steps: int, wait: float, more: RawDocument
) -> None:
    peer = script.send(2003, **CREATE, **more)
    cut_off(script, steps)
    script.live(wait)
    answer = script.answer(peer)
    if answer["RESULT"] != 0:
        for host in script.hosts.values():
            script.report(host)
        answer = script.ask(2003, **CREATE, **more)
    assert (answer["RESULT"], answer["Host"]) == (0, "h1")
    assert children(script)["h1"] == [("q", 0), ("q", 1)]


def test_a_creation_whose_answer_was_lost_is_found_by_its_transaction(script: Script) -> None:
    script.ask(2010, QName="q", TransactionID="t")
    host = script.record("q").host
    script.elect()
    assert script.ask(2010, QName="q", TransactionID="t")["Host"] == host
    assert script.ask(2010, QName="q", TransactionID="u")["CODE"] == "queue_exists"
    assert script.ask(2010, QName="q")["CODE"] == "queue_exists"
    assert script.ask(2010, QName="q", TransactionID="x" * 129)["CODE"] == "invalid_request"


def test_a_queue_that_was_completed_is_told_as_new_once_and_only_if_it_fits(
    script: Script,
) -> None:
    script.send(2003, **CREATE)
    cut_off(script, 2)
    script.live(2)
    assert script.ask(2003, QName="q", Host="h2")["CODE"] == "queue_exists"
    assert script.ask(2003, **CREATE, Limits={"topics": 9})["CODE"] == "queue_exists"
    assert script.ask(2003, **CREATE)["RESULT"] == 0
    assert script.ask(2003, **CREATE)["CODE"] == "queue_exists"


def test_a_creation_on_a_host_that_is_lost_is_undone(script: Script) -> None:
    script.send(2003, **CREATE)
    script.vanish("h1")
    script.expire_node("h1")
    cut_off(script, 1)
    script.live(6)
    assert script.registry == {}
    assert script.ask(2003, QName="q", Host="h2")["RESULT"] == 0


def test_a_creation_that_was_refused_is_undone_by_the_same_leader(script: Script) -> None:
    script.hosts["h1"].refuse.add(StartExchange)
    peer = script.send(2003, **CREATE)
    script.step()
    script.registry_fails = 1
    script.settle()
    assert "left behind" in script.answer(peer)["COMMENT"]
    script.hosts["h1"].refuse.clear()
    script.live(3)
    assert script.registry == {}
    assert children(script) == {"h1": [], "h2": []}


@pytest.mark.parametrize("steps", range(5))
def test_a_start_is_completed(script: Script, steps: int) -> None:
    script.ask(2003, **CREATE)
    script.ask(2002, QName="q")
    script.send(2005, QName="q")
    cut_off(script, steps + 1)
    script.live(2)
    assert script.record("q").state == "running"
    assert children(script)["h1"] == [("q", 0), ("q", 1)]


@pytest.mark.parametrize("steps", range(3))
def test_a_stop_is_completed(script: Script, steps: int) -> None:
    script.ask(2003, **CREATE)
    script.send(2002, QName="q")
    cut_off(script, steps + 1)
    script.live(2)
    assert script.record("q").state == "stopped"
    assert children(script)["h1"] == []


@pytest.mark.parametrize("steps", range(3))
def test_a_removal_is_completed(script: Script, steps: int) -> None:
    script.ask(2003, **CREATE)
    script.send(2001, QName="q")
    cut_off(script, steps + 1)
    script.live(2)
    assert script.registry == {}
    assert children(script)["h1"] == []


def test_what_the_registry_has_not_confirmed_is_completed_not_undone(script: Script) -> None:
    peer = script.send(2003, **CREATE)
    for _ in range(3):
        script.step()
    (commit,) = script.pending
    script.pending.clear()
    script.feed(events.CommitFailed(commit.token, RegistryAway("registry away")))
    assert script.answer(peer)["CODE"] == "interrupted"
    script.live(2)
    assert script.record("q").state == "running"
    assert script.hosts["h1"].started == 2


def test_an_exchange_whose_undoing_was_cut_off_does_not_stay_half_made(script: Script) -> None:
    script.ask(2003, **CREATE)
    host = script.hosts["h2"]
    script.send(2004, QName="q", Host="h2")
    script.step()
    script.step()
    script.pending.clear()
    child = host.children["q", 2]
    host.children["q", 2] = msgspec.structs.replace(child, state="stopping")
    script.report(host)
    script.feed(events.RegistryLost(session_ended=True))
    script.elect()
    del host.children["q", 2]
    script.live(3)
    assert [exchange.number for exchange in script.record("q").exchanges] == [1]


def test_nothing_is_finished_before_its_hosts_have_been_heard_of(script: Script) -> None:
    script.send(2003, **CREATE)
    cut_off(script, 2)
    script.pass_time(10)
    assert script.record("q").state == "creating"
    (reason,) = script.ask(2104, QName="q")["Reasons"]
    assert reason == "its creation was left half-done; waits for host h1"
    script.live(2)
    assert script.record("q").state == "running"


def test_a_stop_that_a_host_does_not_confirm_is_tried_again_by_itself(script: Script) -> None:
    script.ask(2003, **CREATE)
    script.hosts["h1"].mute.add(StopQueue)
    assert script.ask(2002, QName="q")["RESULT"] == 1101
    script.live(40)
    (reason,) = script.ask(2104, QName="q")["Reasons"]
    assert "its stop was left half-done; attempt" in reason
    script.hosts["h1"].mute.clear()
    script.live(31)
    assert script.record("q").state == "stopped"


def test_a_stop_waits_for_what_lives_on_a_host_without_a_manager(script: Script) -> None:
    script.ask(2003, **CREATE)
    script.vanish("h1", with_children=False)
    script.live(3)
    script.expire_node("h1")
    script.live(1)
    answer = script.ask(2002, QName="q")
    assert (answer["RESULT"], "h1 has no manager" in answer["COMMENT"]) == (1101, True)
    assert script.ask(2104, QName="q")["State"] == "stopping"
    script.come_back("h1")
    script.live(31)
    assert script.record("q").state == "stopped"
    assert children(script)["h1"] == []


def test_what_the_registry_does_after_it_was_given_up_is_noticed(script: Script) -> None:
    script.ask(2003, **CREATE)
    peer = script.send(2001, QName="q")
    script.pass_time(12)
    assert script.answer(peer)["CODE"] == "interrupted"
    script.settle()  # now the registry has written it down
    script.live(2)
    assert script.registry == {}
    assert script.machine.queues.get("q") is None


def test_a_host_manager_that_was_started_anew_elsewhere_leaves_no_request_waiting(
    script: Script,
) -> None:
    peer = script.send(2003, **CREATE)
    while not isinstance(script.pending[0], events.AskHost):
        script.step()
    script.pending.clear()  # asked of a process that has just ended
    host, before = script.hosts["h1"], script.now
    host.control = "tcp://h1:5199"
    script.report(host)
    script.settle()
    assert script.now == before, "nobody waited"
    answer = script.answer(peer)
    assert answer["RESULT"] != 0
    assert "the manager of host h1 is gone" in str(answer["COMMENT"])
    script.live(3)
    assert script.ask(2003, **CREATE)["RESULT"] == 0


def test_a_host_manager_that_reports_as_before_is_waited_for(script: Script) -> None:
    peer = script.send(2003, **CREATE)
    while not isinstance(script.pending[0], events.AskHost):
        script.step()
    script.report(script.hosts["h1"])
    assert peer not in script.answers
    script.settle()
    assert script.answer(peer)["RESULT"] == 0
