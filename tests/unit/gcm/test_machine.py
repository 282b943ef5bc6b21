"""The configuration manager decides: public commands, locating, reports, leadership."""

import pytest
from gcm_script import OTHER, PaperHost, Script

from roq.gcm import events
from roq.machine import Tick
from roq.protocol import documents
from roq.protocol.control import (
    Failure,
    LocateRequest,
)


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"), PaperHost("h2", epoch=2))


def control(script: Script, message: object, kind: type) -> object:
    peer = script.send_raw(documents.encode(message), port=5000)
    return documents.decode(script.answers[peer][0], kind)


# --- the client port ------------------------------------------------------------------------------


# --- queue life -----------------------------------------------------------------------------------


def test_a_created_queue_runs_with_a_monitor_and_one_exchange(script: Script) -> None:
    answer = script.ask(2003, QName="orders", Host="h1")
    assert (answer["RESULT"], answer["COMMENT"]) == (0, "SUCCESS")
    assert sorted(script.hosts["h1"].children) == [("orders", 0), ("orders", 1)]
    assert script.record("orders").state == "running"
    assert script.broadcasts[-1].queues[0].State is True


def test_a_queue_is_written_down_before_anything_of_it_starts(script: Script) -> None:
    script.send(2003, QName="orders", Host="h1")
    assert not script.hosts["h1"].asked
    script.step()
    assert script.record("orders").state == "creating"
    assert not script.hosts["h1"].asked
    script.settle()
    assert script.record("orders").monitor == "tcp://h1:6001"
    assert script.record("orders").exchanges[0].data == "tcp://h1:6002"


def test_a_queue_is_created_once(script: Script) -> None:
    first = script.send(2003, QName="orders", Host="h1")
    second = script.send(2010, QName="orders")
    script.settle()
    assert script.answer(first)["RESULT"] == 0
    assert script.answer(second) == {
        "RESULT": 1101,
        "COMMENT": "The queue already exists",
        "CODE": "queue_exists",
    }


def test_an_unknown_host_is_refused(script: Script) -> None:
    answer = script.ask(2003, QName="orders", Host="nowhere")
    assert (answer["RESULT"], answer["CODE"]) == (1101, "host_not_found")
    assert "orders" not in str(script.registry)


def test_the_least_loaded_host_is_chosen(script: Script) -> None:
    assert [script.ask(2010, QName=name)["Host"] for name in "abcd"] == ["h1", "h2", "h1", "h2"]


def test_queues_created_at_once_spread_too(script: Script) -> None:
    peers = [script.send(2010, QName=name) for name in "abcd"]
    script.settle()
    assert sorted(script.answer(peer)["Host"] for peer in peers) == ["h1", "h1", "h2", "h2"]


def test_a_full_host_refuses_with_the_reason() -> None:
    script = Script(PaperHost("h1", exchange_max=1))
    assert script.ask(2010, QName="a")["RESULT"] == 0
    for answer in (script.ask(2010, QName="b"), script.ask(2003, QName="b", Host="h1")):
        assert answer["CODE"] == "no_capacity"
        assert "full (1 of 1 exchanges)" in answer["COMMENT"]


def test_two_requests_do_not_share_the_last_slot() -> None:
    script = Script(PaperHost("h1", exchange_max=1))
    first, second = script.send(2010, QName="a"), script.send(2010, QName="b")
    script.settle()
    assert script.answer(first)["RESULT"] == 0
    assert script.answer(second)["CODE"] == "no_capacity"


def test_a_stopped_queue_keeps_its_definition_and_starts_again(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    assert script.ask(2002, QName="orders")["COMMENT"] == "SUCCESS"
    assert script.hosts["h1"].children == {}
    assert script.record("orders").state == "stopped"
    assert script.broadcasts[-1].queues[0].State is False
    assert script.ask(2005, QName="orders")["COMMENT"] == "SUCCESS"
    assert len(script.hosts["h1"].children) == 2
    assert script.ask(2000, port=5000, QName="orders")["Monitor_host"] == "tcp://h1:6003"


def test_stopping_and_starting_twice_is_no_error(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    assert script.ask(2005, QName="orders")["RESULT"] == 0
    script.ask(2002, QName="orders")
    assert script.ask(2002, QName="orders")["RESULT"] == 0


@pytest.mark.parametrize("stopped", [False, True])
def test_a_removed_queue_is_gone(script: Script, *, stopped: bool) -> None:
    script.ask(2003, QName="orders", Host="h1")
    if stopped:
        script.ask(2002, QName="orders")
    assert script.ask(2001, QName="orders")["COMMENT"] == "SUCCESS"
    assert script.registry == {}
    assert script.hosts["h1"].children == {}
    assert script.ask(2011, QName="orders")["COMMENT"] == "NO"
    assert script.ask(2001, QName="orders")["CODE"] == "queue_not_found"
    assert script.broadcasts[-1].queues == ()


# --- exchanges ------------------------------------------------------------------------------------


def test_an_exchange_is_added_on_a_named_host(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    answer = script.ask(2004, QName="orders", Host="h2", TransactionID="t1")
    assert (answer["RESULT"], answer["Exchange"], answer["Number"]) == (0, "x2", 2)
    assert ("orders", 2) in script.hosts["h2"].children
    rows = script.ask(2103, QName="orders")["Exchanges"]
    assert [(row["Name"], row["Host"], row["State"]) for row in rows] == [
        ("x1", "h1", "running"),
        ("x2", "h2", "running"),
    ]


def test_the_same_transaction_makes_one_exchange(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    peers = [script.send(2004, QName="orders", Host="h2", TransactionID="t1") for _ in range(3)]
    script.settle()
    assert [script.answer(peer)["Number"] for peer in peers] == [2, 2, 2]
    script.elect()  # a later leader remembers as well
    assert script.ask(2004, QName="orders", Host="h2", TransactionID="t1")["Number"] == 2
    assert script.ask(2004, QName="orders", Host="h2", TransactionID=7)["Number"] == 3


def test_a_thousand_transactions_are_remembered(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    queue = script.machine.queues.demand("orders")
    queue.transactions = {f"t{n}": 1 for n in range(1000)}
    script.ask(2004, QName="orders", Host="h2", TransactionID="new")
    assert len(queue.transactions) == 1000
    assert "t0" not in queue.transactions
    assert queue.transactions["new"] == 2


def test_an_exchange_needs_a_running_queue(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.ask(2002, QName="orders")
    assert script.ask(2004, QName="orders", Host="h2")["CODE"] == "queue_stopped"
    assert script.ask(2004, QName="nobody", Host="h2")["CODE"] == "queue_not_found"


# --- hosts and their children ---------------------------------------------------------------------


def test_hosts_that_stand_in_the_registry_are_told_before_they_report_to_a_new_leader() -> None:
    script = Script(leads=False)
    script.feed(events.HostsPresent(frozenset({"h1", "h2"})))
    script.elect()
    assert script.broadcasts[-1].hosts == ("h1", "h2")
    comment = script.ask(2010, QName="q")["COMMENT"]
    assert "h1 is not heard of yet, h2 is not heard of yet" in comment
    assert "not heard of yet" in script.ask(2003, QName="q", Host="h1")["COMMENT"]
    script.report(PaperHost("h1"))
    assert script.broadcasts[-1].hosts == ("h1", "h2")


def test_a_silent_host_is_not_chosen_and_later_lost(script: Script) -> None:
    script.feed(events.HostsPresent(frozenset({"h1", "h2"})))
    for _ in range(4):
        script.pass_time(1)
        script.report(script.hosts["h2"])
    states = {row["Host"]: row["State"] for row in script.ask(2102)["Hosts"]}
    assert states == {"h1": "silent", "h2": "live"}
    assert script.ask(2010, QName="a")["Host"] == "h2"
    assert "silent" in script.ask(2003, QName="b", Host="h1")["COMMENT"]
    script.feed(events.HostsPresent(frozenset({"h2"})))
    script.pass_time(1)
    script.report(script.hosts["h2"])
    states = {row["Host"]: row["State"] for row in script.ask(2102)["Hosts"]}
    assert states == {"h1": "lost", "h2": "live"}
    assert script.broadcasts[-1].hosts == ("h2",)
    script.report(script.hosts["h1"])
    assert script.broadcasts[-1].hosts == ("h1", "h2")


# --- leadership and registry ----------------------------------------------------------------------


def test_a_follower_names_the_leader() -> None:
    script = Script(leads=False)
    script.feed(events.Following(OTHER))
    assert script.ask(2101) == {"RESULT": 8, "COMMENT": OTHER.management, "CODE": "not_leader"}
    assert script.ask(2000, port=5000, QName="q")["RESULT"] == 8
    failure = control(script, LocateRequest(id=3, QName="q"), Failure)
    assert (8, "not_leader", OTHER.client) == (failure.RESULT, failure.CODE, failure.ENDPOINT)
    assert OTHER.client == script.report(PaperHost("h1")).ENDPOINT


def test_a_later_leader_knows_the_queues(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    located = script.ask(2000, port=5000, QName="orders")
    later = Script(leads=False)
    later.registry = script.registry
    later.elect()
    assert later.ask(2000, port=5000, QName="orders") == located
    assert later.ask(2104, QName="orders")["State"] == "running"


def test_losing_leadership_answers_everybody_at_once(script: Script) -> None:
    peers = [script.send(2003, QName="orders", Host="h1") for _ in range(3)]
    script.feed(events.Following(OTHER))
    assert [script.answer(peer)["COMMENT"] for peer in peers] == [OTHER.management] * 3


def test_a_leader_that_stood_still_answers_and_does_nothing(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.feed(events.Doubted())
    assert script.ask(2000, port=5000, QName="orders")["CODE"] == "not_leader"
    for command in (2101, 2003):
        answer = script.ask(command, QName="more", Host="h1")
        assert answer["CODE"] == "not_leader"
    assert script.report(script.hosts["h1"]).CODE == "not_leader"
    assert script.machine.next_deadline() is None
    before = len(script.broadcasts)
    script.feed(Tick())
    script.feed(events.Subscribed())
    assert len(script.broadcasts) == before


def test_what_a_leader_that_stood_still_was_doing_is_given_up(script: Script) -> None:
    peer = script.send(2003, QName="orders", Host="h1")
    script.feed(events.Doubted())
    assert script.answer(peer)["CODE"] == "not_leader"
    script.settle()
    assert script.hosts["h1"].children == {}


def test_a_leader_in_doubt_that_cannot_find_out_takes_care_of_what_there_is(
    script: Script,
) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.feed(events.Doubted())
    script.feed(events.RegistryLost())
    assert script.ask(2101)["CODE"] == "not_leader", "it may still hear"
    script.feed(events.RegistryLost(session_ended=True))
    assert script.ask(2101)["Queues"][0]["Name"] == "orders"
    assert script.ask(2002, QName="orders")["CODE"] == "registry_away"
    assert script.report(script.hosts["h1"]).CODE == "not_leader"


def test_whoever_takes_care_goes_on_when_the_registry_says_that_its_session_has_ended(
    script: Script,
) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.feed(events.RegistryLost(session_ended=True))
    script.feed(events.Doubted())
    assert script.ask(2101)["Queues"][0]["Name"] == "orders"


def test_a_leader_that_leads_again_goes_on_with_higher_versions(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    before = script.broadcasts[-1].version
    script.feed(events.Doubted())
    script.feed(events.Elected(script.epoch, script.snapshot()))
    assert script.ask(2101)["Queues"][0]["Name"] == "orders"
    assert script.broadcasts[-1].version >= before


def test_when_the_registry_is_back_it_is_right(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.feed(events.RegistryLost())
    script.registry.clear()
    script.feed(events.RegistryBack(script.snapshot()))
    assert script.ask(2011, QName="orders")["COMMENT"] == "NO"
    assert script.ask(2010, QName="orders")["RESULT"] == 0


# --- what is told ---------------------------------------------------------------------------------


def test_the_broadcast_comes_by_period_at_a_change_and_to_a_newcomer(script: Script) -> None:
    script.broadcasts.clear()
    script.pass_time(11)
    assert len(script.broadcasts) >= 2
    for host in script.hosts.values():
        script.report(host)
    script.broadcasts.clear()
    script.ask(2003, QName="orders", Host="h1")
    versions = [told.version for told in script.broadcasts]
    assert len(versions) == 2
    assert versions[1] == versions[0] + 1
    script.feed(events.Subscribed())
    assert script.broadcasts[-1] == script.broadcasts[-2]


def test_a_follower_broadcasts_nothing() -> None:
    script = Script(leads=False)
    script.feed(events.Following(OTHER))
    script.feed(events.Subscribed())
    script.pass_time(20)
    assert script.broadcasts == []
