"""Hosts that get nothing new, or are to hold nothing, whatever fails meanwhile."""

import pytest
from gcm_repair import places, row
from gcm_script import OTHER, PaperHost, Script

from roq.gcm import events
from roq.gcm.state import records
from roq.gcm.state.hosts import FORGET_SECONDS, Schedule
from roq.gcm.state.records import HOSTS_PATH, Mark
from roq.protocol.control import Empty, HostReportAck, StartExchange, StartMonitor


@pytest.fixture
def script() -> Script:
    """Queue q with its monitor and x1 on h1; h2 and h3 are empty."""
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2), PaperHost("h3", epoch=3))
    script.ask(2003, QName="q", Host="h1")
    return script


def epoch_of_monitor(script: Script) -> int:
    return script.record("q").epoch


# --- cordon ---------------------------------------------------------------------------------------


def test_what_crashes_on_a_cordoned_host_is_started_there_again(script: Script) -> None:
    script.ask(2110, Host="h1")
    del script.hosts["h1"].children["q", 1]
    script.live(5)
    assert ("q", 1) in script.hosts["h1"].children


def test_a_registry_that_lost_everything_gets_the_cordons_back() -> None:
    documents = {HOSTS_PATH: records.encode({"h1": Mark(cordoned=True)})}
    assert records.readable(documents) == documents
    assert records.readable({HOSTS_PATH: b"?"}) == {}


# --- drain ----------------------------------------------------------------------------------------


def test_everything_leaves_a_host_that_is_drained(script: Script) -> None:
    before = epoch_of_monitor(script)
    assert script.ask(2112, Host="h1")["RESULT"] == 0
    script.live(6)
    assert "h1" not in places(script)
    assert script.hosts["h1"].children == {}
    (exchange,) = script.record("q").exchanges
    assert (exchange.number, exchange.replaces, exchange.origin) == (2, 1, "creation")
    assert epoch_of_monitor(script) > before
    host = row(script, "h1")
    assert (host["Schedule"], host["Left"], host["Stuck"]) == ("draining", [], "")


def test_without_room_elsewhere_it_is_told_and_nothing_is_lost() -> None:
    script = Script(PaperHost("h1", exchange_max=1), PaperHost("h2", epoch=2, exchange_max=1))
    script.ask(2003, QName="q", Host="h1")
    script.ask(2003, QName="full", Host="h2")
    script.ask(2112, Host="h1")
    script.live(6)
    assert places(script) == {"h1"}
    assert "h2 is full" in row(script, "h1")["Stuck"]
    script.ask(2001, QName="full")
    script.live(6)
    assert places(script) == {"h2"}
    assert row(script, "h1")["Stuck"] == ""


def test_the_only_host_cannot_be_drained() -> None:
    script = Script(PaperHost("h1"))
    script.ask(2003, QName="q", Host="h1")
    script.ask(2112, Host="h1")
    script.live(6)
    assert places(script) == {"h1"}
    assert row(script, "h1")["Stuck"]
    cordons = next(each for each in script.machine.health().checks if each.name == "cordons")
    assert "h1 is draining, but cannot" in cordons.detail


@pytest.mark.parametrize("steps", range(1, 14))
def test_a_leader_that_dies_at_any_step_is_followed_by_one_that_goes_on(
    script: Script, steps: int
) -> None:
    script.ask(2112, Host="h1")
    for _ in range(steps):
        if not script.pending:
            script.pass_time(0.5)
        if script.pending:
            script.step()
    script.pending.clear()
    script.feed(events.Following(OTHER))
    script.elect()
    script.live(20)
    assert "h1" not in places(script)
    assert script.hosts["h1"].children == {}
    assert len(script.record("q").exchanges) == 1


def test_a_host_that_dies_while_it_is_drained_holds_nothing_all_the_same(script: Script) -> None:
    script.monitors["q"].waits_for = "1 subscriber not at its end yet"
    script.ask(2112, Host="h1")
    script.live(3)
    script.vanish("h1")
    script.expire_node("h1")
    script.live(30)
    assert "h1" not in places(script)
    assert script.record("q").state.value == "running"


def test_what_is_lost_on_a_draining_host_is_not_started_there_again(script: Script) -> None:
    script.monitors["q"].mute = True
    script.ask(2112, Host="h1")
    script.live(1)
    script.hosts["h1"].children.clear()
    script.hosts["h1"].asked.clear()
    script.live(15)
    starts = [each for each in script.hosts["h1"].asked if isinstance(each, StartMonitor)]
    starts += [each for each in script.hosts["h1"].asked if isinstance(each, StartExchange)]
    assert starts == []
    assert "h1" not in places(script)


# --- a manager that stops -------------------------------------------------------------------------


def test_a_manager_that_stops_drains_its_host(script: Script) -> None:
    ack = script.report(script.hosts["h1"], leaving=True)
    assert isinstance(ack, HostReportAck)
    assert ack.stuck == ""
    script.settle()
    assert script.snapshot().marks == {"h1": Mark(leaving=1)}
    for _ in range(12):
        script.report(script.hosts["h1"], leaving=True)
        script.pass_time(0.5)
        script.settle()
    assert script.hosts["h1"].children == {}
    assert "h1" not in places(script)


def test_its_successor_takes_what_is_placed(script: Script) -> None:
    script.report(script.hosts["h1"], leaving=True)
    script.settle()
    assert script.machine.hosts.schedule("h1") is Schedule.DRAINING
    script.come_back("h1")
    assert script.machine.hosts.schedule("h1") is Schedule.ACTIVE
    script.settle()
    assert script.snapshot().marks == {}


def test_what_was_being_emptied_takes_publishers_again_when_the_successor_is_there(
    script: Script,
) -> None:
    script.monitors["q"].waits_for = "1 subscriber not at its end yet"
    for _ in range(8):
        script.report(script.hosts["h1"], leaving=True)
        script.settle()
        script.pass_time(0.5)
        script.settle()
    script.come_back("h1")
    script.settle()
    told = [each for each in script.monitors["q"].asked if isinstance(each, Empty)]
    assert (told[0].wanted, told[-1].number, told[-1].wanted) == (True, 1, False)


def test_its_successor_stays_cordoned_if_an_operator_wanted_that(script: Script) -> None:
    script.ask(2110, Host="h1")
    script.report(script.hosts["h1"], leaving=True)
    script.settle()
    script.come_back("h1")
    script.settle()
    assert script.snapshot().marks == {"h1": Mark(cordoned=True)}
    assert script.machine.hosts.schedule("h1") is Schedule.CORDONED


def test_the_last_manager_is_told_at_once_that_nothing_can_go() -> None:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2))
    script.ask(2003, QName="q", Host="h1")
    script.ask(2110, Host="h2")
    ack = script.report(script.hosts["h1"], leaving=True)
    assert isinstance(ack, HostReportAck)
    assert "no other host" in ack.stuck
    script.settle()
    assert "h1" not in script.snapshot().marks


def test_a_manager_that_stops_goes_on_while_another_queue_can_still_leave() -> None:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2, exchange_max=1))
    for queue in ("q", "r"):
        script.ask(2003, QName=queue, Host="h1")
        script.monitors[queue].waits_for = "1 subscriber not at its end yet"

    def leave() -> str:
        for _ in range(12):
            for host in script.hosts.values():
                ack = script.report(host, leaving=host.name == "h1")
                if host.name == "h1":
                    assert isinstance(ack, HostReportAck)
                    stuck = ack.stuck
            script.settle()
            script.pass_time(0.5)
            script.settle()
        return stuck

    assert leave() == ""
    assert "h2 is full" in row(script, "h1")["Stuck"]
    for queue in ("q", "r"):
        script.monitors[queue].waits_for = ""
    assert "h2 is full" in leave()
    assert script.record("q").hosts != script.record("r").hosts


def test_managers_that_stop_and_never_come_back_leave_no_marks(script: Script) -> None:
    script.report(script.hosts["h3"], leaving=True)
    script.settle()
    script.vanish("h3")
    script.expire_node("h3")
    script.live(FORGET_SECONDS + 20)
    assert script.machine.hosts.get("h3") is None
    script.ask(2110, Host="h2")
    assert script.snapshot().marks == {"h2": Mark(cordoned=True)}


def test_a_leader_that_has_just_begun_waits_for_the_other_hosts(script: Script) -> None:
    script.feed(events.Following(OTHER))
    script.elect()
    ack = script.report(script.hosts["h1"], leaving=True)
    assert isinstance(ack, HostReportAck)
    assert ack.stuck == ""
    script.settle()
    ack = script.report(script.hosts["h1"], leaving=True)
    assert isinstance(ack, HostReportAck)
    assert ack.drains
    for _ in range(12):
        for host in script.hosts.values():
            script.report(host, leaving=host.name == "h1")
        script.pass_time(0.5)
        script.settle()
    assert script.hosts["h1"].children == {}


# --- hosts that are gone --------------------------------------------------------------------------
