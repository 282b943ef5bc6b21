"""What the reports of host managers change, and what they are answered."""

import math

import msgspec
import pytest
from gcm_script import CLUSTER, PaperHost, Script

from roq.gcm import events
from roq.gcm.interfaces.reports import STRAY_SECONDS
from roq.model import HOST_EPOCH_MAX
from roq.protocol.control import (
    Failure,
    HostReportAck,
    StopQueue,
)


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"), PaperHost("h2", epoch=2))


def test_the_answer_to_a_report_names_cluster_and_monitors(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.ask(2004, QName="orders", Host="h2")
    ack = script.report(script.hosts["h2"])
    assert isinstance(ack, HostReportAck)
    assert (ack.cluster, ack.monitors) == (CLUSTER, {"orders": "tcp://h1:6001"})


def test_a_restarted_monitor_is_located_at_its_new_address(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    host = script.hosts["h1"]
    child = host.restart("orders", script.record("orders").queue_id, 0)
    script.report(host)
    script.settle()
    assert script.ask(2000, port=5000, QName="orders")["Monitor_host"] == child.control
    assert script.record("orders").monitor == child.control
    assert script.report(host).monitors == {"orders": child.control}


def test_a_report_of_an_older_process_changes_nothing(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    host = script.hosts["h1"]
    old = dict(host.children)
    child = host.restart("orders", script.record("orders").queue_id, 0)
    script.report(host)
    host.children = old
    script.report(host)
    script.settle()
    assert script.ask(2000, port=5000, QName="orders")["Monitor_host"] == child.control


def test_a_leader_hears_that_a_host_obeys_a_later_one(script: Script) -> None:
    host = script.hosts["h2"]
    led = script.report(host).leader_epoch
    for epoch in (-1, 0, led):
        script.report(host, leader_epoch=epoch)
    assert script.outbid == []
    script.report(host, leader_epoch=led + 3)
    assert script.outbid == [led + 3]


def test_a_host_manager_of_a_lower_epoch_is_refused(script: Script) -> None:
    failure = script.report(PaperHost("h2", epoch=1))
    assert isinstance(failure, Failure)
    assert failure.CODE == "stale_epoch"


def test_a_host_of_another_cluster_is_refused(script: Script) -> None:
    failure = script.report(PaperHost("h9", epoch=9), cluster="another")
    assert isinstance(failure, Failure)
    assert "another" in failure.COMMENT


@pytest.mark.parametrize(
    "wrong",
    [
        *({"host": "a b"}, {"control": "ipc:///x"}, {"epoch": 0}, {"host": ""}),
        {"epoch": HOST_EPOCH_MAX + 1},
        *({"memory_bytes": 2**62}, {"memory_free_bytes": -1}, {"cpu_percent": math.nan}),
    ],
)
def test_an_impossible_report_is_refused(script: Script, wrong: dict[str, object]) -> None:
    assert isinstance(script.report(PaperHost("h9", epoch=9), **wrong), Failure)


def test_processes_that_nobody_wants_are_stopped(script: Script) -> None:
    host = script.hosts["h1"]
    host.start("ghost", bytes(16), 0)
    script.report(host)
    script.settle()
    assert [type(message) for message in host.asked] == [StopQueue]
    assert host.children == {}
    script.report(host)
    assert not script.pending


def test_children_of_a_new_queue_are_not_taken_for_strays(script: Script) -> None:
    script.send(2003, QName="orders", Host="h1")
    while script.pending:
        script.step()
        script.report(script.hosts["h1"])
    assert not any(isinstance(each, StopQueue) for each in script.hosts["h1"].asked)


def test_reports_are_taken_in_while_leadership_is_open(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    child = script.hosts["h1"].restart("orders", script.record("orders").queue_id, 0)
    script.feed(events.RegistryLost(session_ended=True))
    assert script.report(script.hosts["h1"]).CODE == "not_leader"
    assert script.ask(2000, port=5000, QName="orders")["Monitor_host"] == child.control


def test_a_host_that_does_not_stop_what_nobody_wants_is_told_again_and_not_all_the_time(
    script: Script,
) -> None:
    host = script.hosts["h1"]
    host.mute.add(StopQueue)
    host.start("ghost", bytes(16), 0)
    for _ in range(2 * int(STRAY_SECONDS)):
        script.report(host)
        script.settle()
        script.pass_time(1.0)
    assert len(host.asked) == 2


def test_what_is_being_stopped_already_is_left_alone(script: Script) -> None:
    host = script.hosts["h1"]
    child = host.start("ghost", bytes(16), 0)
    host.children["ghost", 0] = msgspec.structs.replace(child, state="stopping")
    script.report(host)
    assert not script.pending


def test_without_the_registry_nothing_is_stopped_for_want_of_a_definition(script: Script) -> None:
    script.feed(events.RegistryLost())
    script.hosts["h1"].start("ghost", bytes(16), 0)
    script.report(script.hosts["h1"])
    assert not script.pending


def test_a_host_is_told_whom_it_obeys_and_whether_it_is_being_emptied(script: Script) -> None:
    ack = script.report(script.hosts["h1"])
    assert (ack.leader_epoch, ack.drains, ack.stuck) == (1, False, "")
    script.ask(2112, Host="h1")
    assert script.report(script.hosts["h1"]).drains
    assert not script.report(script.hosts["h2"]).drains


def test_that_a_host_is_live_is_told_once_until_it_is_lost(script: Script) -> None:
    told = [each for each in script.notes if each.startswith("host h1 is live")]
    assert told == ["host h1 is live, its manager at tcp://h1:5100"]
    script.report(script.hosts["h1"])
    assert script.notes.count(told[0]) == 1
    script.live(1)
    script.vanish("h1")
    script.expire_node("h1")
    script.live(10)
    script.come_back("h1")
    assert script.notes.count(told[0]) == 2


def test_a_host_of_no_cluster_may_join_and_one_of_this_stays(script: Script) -> None:
    for cluster in ("", CLUSTER):
        ack = script.report(script.hosts["h1"], cluster=cluster)
        assert isinstance(ack, HostReportAck)
        assert ack.cluster == CLUSTER


def test_what_its_manager_of_before_was_asked_is_answered_when_another_one_reports(
    script: Script,
) -> None:
    peer = script.send(2003, QName="orders", Host="h1")
    script.step()
    script.report(PaperHost("h1", epoch=9, control="tcp://h1:5101"))
    script.settle()
    assert "the manager of host h1 is gone" in script.answer(peer)["COMMENT"]
