"""What is wanted of a host is written down first; then it empties, in steps."""

import pytest
from gcm_repair import places, row
from gcm_script import OTHER, PaperHost, Script

from roq.gcm import events
from roq.gcm.state.hosts import Schedule
from roq.gcm.state.records import HOSTS_PATH, Mark
from roq.protocol.control import Empty


@pytest.fixture
def script() -> Script:
    """Queue q with its monitor and x1 on h1; h2 and h3 are empty."""
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2), PaperHost("h3", epoch=3))
    script.ask(2003, QName="q", Host="h1")
    return script


def test_a_cordoned_host_gets_nothing_new_and_keeps_what_it_has(script: Script) -> None:
    assert script.ask(2110, Host="h1")["RESULT"] == 0
    for number in range(6):
        assert script.ask(2010, QName=f"n{number}")["Host"] != "h1"
    refused = script.ask(2004, QName="q", Host="h1")
    assert refused["CODE"] == "no_capacity"
    assert "`roq host uncordon h1`" in refused["COMMENT"]
    script.live(5)
    assert places(script) == {"h1"}
    assert (row(script, "h1")["Schedule"], row(script, "h1")["Left"]) == ("cordoned", [])
    assert script.ask(2111, Host="h1")["RESULT"] == 0
    assert script.ask(2004, QName="q", Host="h1")["RESULT"] == 0


def test_only_known_hosts_are_cordoned(script: Script) -> None:
    for command in (2110, 2111, 2112, 2113):
        assert script.ask(command, Host="h9")["CODE"] == "host_not_found"
    assert HOSTS_PATH not in script.registry


def test_a_later_leader_knows_what_is_cordoned(script: Script) -> None:
    script.ask(2110, Host="h2")
    script.feed(events.Following(OTHER))
    assert script.machine.hosts.marks == {}
    script.elect()
    assert script.machine.hosts.schedule("h2") is Schedule.CORDONED


def test_marks_that_nobody_can_read_harm_nothing_else(script: Script) -> None:
    script.registry[HOSTS_PATH] = b'{"h2": {"leaving": -1}}'
    script.elect()
    assert script.machine.hosts.schedule("h2") is Schedule.ACTIVE
    assert script.machine.queues.get("q") is not None
    (check,) = [each for each in script.machine.health().checks if not each.ok]
    assert check.detail.startswith("unreadable: which hosts are cordoned is unreadable")
    script.ask(2110, Host="h3")
    assert "unreadable" not in str(script.machine.health().checks)


def test_the_new_exchange_runs_before_the_old_one_is_emptied(script: Script) -> None:
    script.monitors["q"].waits_for = "1 publisher still there"
    script.ask(2112, Host="h1")
    script.live(5)
    (old, new) = script.record("q").exchanges
    assert (old.number, new.replaces, new.state) == (1, 1, "created")
    assert ("q", 1) in script.hosts["h1"].children
    assert ("q", 0) in script.hosts["h1"].children
    left = row(script, "h1")["Left"]
    assert left[0] == "x1 of q (x1 is not removed: x1 is not empty: 1 publisher still there)"
    assert left[1].startswith("the monitor of q")
    script.monitors["q"].waits_for = ""
    script.live(5)
    assert script.hosts["h1"].children == {}


def test_its_publishers_go_to_others_if_no_host_has_room_for_one_more() -> None:
    script = Script(PaperHost("h1", exchange_max=1), PaperHost("h2", epoch=2, exchange_max=1))
    script.ask(2003, QName="q", Host="h1")
    script.ask(2004, QName="q", Host="h2")
    script.ask(2112, Host="h1")
    script.live(6)
    assert [each.number for each in script.record("q").exchanges] == [2]
    assert places(script) == {"h2"}


def test_a_stopped_queue_starts_elsewhere(script: Script) -> None:
    script.ask(2002, QName="q")
    script.ask(2112, Host="h1")
    script.live(3)
    assert "h1" not in places(script)
    script.ask(2005, QName="q")
    assert script.hosts["h1"].children == {}
    assert script.record("q").state.value == "running"


def test_a_drain_that_is_taken_back_leaves_the_rest_where_it_is(script: Script) -> None:
    script.monitors["q"].waits_for = "1 subscriber not at its end yet"
    script.ask(2112, Host="h1")
    script.live(4)
    assert script.ask(2111, Host="h1")["RESULT"] == 0
    told = [each for each in script.monitors["q"].asked if isinstance(each, Empty)]
    assert (told[-1].number, told[-1].wanted) == (1, False)
    script.monitors["q"].waits_for = ""
    script.live(5)
    assert ("q", 1) in script.hosts["h1"].children
    assert script.record("q").exchange(1) is not None


@pytest.mark.parametrize("command", [2110, 2111])
def test_monitors_are_told_nothing_of_a_host_that_was_not_drained(
    script: Script, command: int
) -> None:
    # An earlier version of a monitor would begin to empty what is to stay.
    script.monitors["q"].asked.clear()
    assert script.ask(command, Host="h1")["RESULT"] == 0
    assert [each for each in script.monitors["q"].asked if isinstance(each, Empty)] == []


def test_a_cordon_ends_a_drain_and_nothing_else(script: Script) -> None:
    script.monitors["q"].waits_for = "1 publisher still there"
    script.ask(2112, Host="h1")
    script.live(3)
    script.ask(2110, Host="h1")
    assert script.machine.hosts.schedule("h1") is Schedule.CORDONED


def test_a_host_that_reports_is_not_forgotten(script: Script) -> None:
    answer = script.ask(2113, Host="h2", Force=True)
    assert (answer["RESULT"], "Stop its host manager first" in answer["COMMENT"]) == (1101, True)


def test_a_host_that_is_gone_is_forgotten_with_its_cordon(script: Script) -> None:
    script.ask(2110, Host="h2")
    script.vanish("h2")
    script.expire_node("h2")
    script.live(15)
    assert script.ask(2113, Host="h2")["RESULT"] == 0
    assert "h2" not in [each["Host"] for each in script.ask(2102)["Hosts"]]
    assert script.snapshot().marks == {}


def test_with_force_what_seems_to_live_without_a_manager_is_set_up_elsewhere(
    script: Script,
) -> None:
    script.vanish("h1", with_children=False)
    script.expire_node("h1")
    script.live(15)
    refused = script.ask(2113, Host="h1")
    assert "--force" in refused["COMMENT"]
    assert places(script) == {"h1"}
    assert script.ask(2113, Host="h1", Force=True)["RESULT"] == 0
    script.live(15, heartbeats=False)
    assert "h1" not in places(script)
    assert "h1" not in [each["Host"] for each in script.ask(2102)["Hosts"]]


def test_what_is_wanted_is_written_down_before_it_holds(script: Script) -> None:
    script.registry_fails = 1
    assert script.ask(2110, Host="h2")["CODE"] == "interrupted"
    assert script.machine.hosts.schedule("h2") is Schedule.ACTIVE
    assert script.ask(2110, Host="h2")["RESULT"] == 0
    assert script.snapshot().marks == {"h2": Mark(cordoned=True)}
    assert "host h2 is cordoned now, it was active" in script.notes


def test_what_is_wanted_already_is_not_written_down_again(script: Script) -> None:
    script.ask(2110, Host="h2")
    notes = len(script.notes)
    peer = script.send(2110, Host="h2")
    assert not script.pending
    assert script.answer(peer)["RESULT"] == 0
    assert [each for each in script.notes[notes:] if "now, it was" in each] == []


def test_no_more_hosts_are_cordoned_than_one_document_holds(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roq.gcm.change.host.MARKS_MAX", 1)
    assert script.ask(2110, Host="h2")["RESULT"] == 0
    refused = script.ask(2110, Host="h3")
    assert (refused["CODE"], "uncordon" in refused["COMMENT"]) == ("busy", True)
    assert script.ask(2111, Host="h2")["RESULT"] == 0
    assert script.ask(2110, Host="h3")["RESULT"] == 0


def test_a_host_empties_in_steps_that_the_log_tells_in_their_order(script: Script) -> None:
    script.notes.clear()
    script.ask(2112, Host="h1")
    script.live(10)
    deeds = [
        each.split(": ")[-1].split(" for ")[0]
        for each in script.notes
        if each.startswith("queue q")
    ]
    record = script.record("q")
    assert deeds == [
        "queue q has x2", "x1 is gone from host h1",
        f"its monitor runs on host {record.host}, not on h1",
    ]  # fmt: skip
    assert "h1" not in record.hosts
    assert row(script, "h1")["Left"] == []


def test_a_host_that_has_something_is_not_forgotten_without_force(script: Script) -> None:
    script.vanish("h1")
    script.expire_node("h1")
    script.feed(events.RegistryLost())
    script.feed(events.RegistryBack(script.snapshot()))
    answer = script.ask(2113, Host="h1")
    assert answer["RESULT"] == 1101
    assert places(script) == {"h1"}
