"""Hosts whose disks are not there: an exchange that has had a log begins no other one."""

from __future__ import annotations

import pytest
from gcm_durable import checked, described, durable_script, lose, states
from gcm_scaling import ask, out
from gcm_script import PaperHost, Script

from roq.protocol.control import StartExchange


@pytest.fixture
def script() -> Script:
    return durable_script()


@pytest.fixture
def ordered() -> Script:
    """With a queue that has one order."""
    return durable_script(ordered=True)


def unmount(script: Script, name: str) -> dict[tuple[bytes, int], int]:
    """A host is started again without its disk; gives what is on that."""
    host = script.hosts[name]
    disk = host.mount({}, script.numbers + 1)
    script.vanish(name)
    script.come_back(name)
    script.live(3.0)
    return disk


def starts(script: Script, number: int) -> list[bool]:
    """The requests to start an exchange: whether its log must be there."""
    return [
        each.has_log
        for host in script.hosts.values()
        for each in host.asked
        if isinstance(each, StartExchange) and each.number == number
    ]


def test_an_exchange_without_its_disk_is_away_until_that_is_back(script: Script) -> None:
    generation = script.record("q").exchanges[0].generation
    disk = unmount(script, "h1")
    assert states(script)[1] == ("h1", "away")
    assert states(script)[2][1] == "created", "the queue goes on"
    (reason,) = described(script)["Reasons"]
    assert "x1 is away: the log of x1 is not there: mount the disk" in reason
    assert "h1, which is lost" not in reason
    rows = described(script)["Exchanges"]
    assert rows[0]["Reason"] == "is away: the log of x1 is not there: mount the disk"
    assert "the log of x1 is not there" in checked(script, "queues")
    assert any("x1 is away: the log of x1 is not there" in each for each in script.notes)
    script.elect()
    script.live(40.0)
    x1 = (script.record("q").queue_id, 1)
    assert x1 in disk
    assert x1 not in script.hosts["h1"].logs, "no other log was begun"
    assert starts(script, 1)[0] is False
    assert len(starts(script, 1)) < 16, "asked for less and less often"
    script.hosts["h1"].mount(disk, 1)
    script.live(31.0)
    assert [state for _, state in states(script).values()] == ["created", "created"]
    assert script.record("q").exchanges[0].generation == generation
    assert described(script)["Reasons"] == []


def test_a_lost_host_that_is_back_without_its_disk_is_not_back(script: Script) -> None:
    lose(script, "h1")
    disk = unmount(script, "h1")
    script.live(3.0)
    assert states(script)[1] == ("h1", "away")
    assert "the log of x1 is not there" in described(script)["Reasons"][0]
    lose(script, "h1")
    assert described(script)["Reasons"][0].startswith("x1 is away: its log is on host h1, which is")
    script.hosts["h1"].mount(disk, 1)
    script.come_back("h1")
    script.live(3.0)
    assert states(script)[1] == ("h1", "created")


@pytest.fixture
def alone() -> Script:
    """With a queue on the only host."""
    made = Script(PaperHost("h1"))
    made.ask(2003, QName="q", Host="h1", Durability="flush")
    return made


def test_no_other_log_begins_where_a_disk_is_missing(alone: Script) -> None:
    """It would be hidden when the disk is back."""
    script = alone
    disk = unmount(script, "h1")
    script.live(20.0)
    assert states(script) == {1: ("h1", "away")}
    assert "h1 is without a log that it should have" in described(script)["Reasons"][1]
    for command, more in ((2003, {"Host": "h1"}), (2010, {})):
        answer = script.ask(command, QName="other", Durability="flush", **more)
        assert (answer["RESULT"], answer["CODE"]) == (1101, "no_capacity")
        assert "is without a log that it should have" in answer["COMMENT"]
    assert script.ask(2003, QName="volatile", Host="h1", Durability="none")["RESULT"] == 0
    script.hosts["h1"].mount(disk, 1)
    script.live(31.0)
    assert states(script) == {1: ("h1", "created")}
    assert script.ask(2003, QName="other", Host="h1", Durability="flush")["RESULT"] == 0


def test_a_log_whose_disk_is_gone_for_good_may_be_given_up(alone: Script) -> None:
    script = alone
    unmount(script, "h1")
    refused = script.ask(2100, QName="q", Exchange="x1")
    assert "x1 of queue 'q' is away: the log of x1 is not there" in refused["COMMENT"]
    assert script.ask(2100, QName="q", Exchange="x1", Forget=True)["RESULT"] == 0
    assert states(script) == {2: ("h1", "created")}, "as before, where nothing is missing any more"


def test_a_stopped_queue_starts_without_what_has_no_disk(script: Script) -> None:
    script.ask(2004, QName="q", Host="h2")
    script.ask(2002, QName="q")
    disk = unmount(script, "h1")
    answer = script.ask(2005, QName="q")
    assert answer["RESULT"] == 0
    assert answer["WARNING"] == "x1 is away: the log of x1 is not there: mount the disk"
    assert [state for _, state in states(script).values()] == ["away", "created"]
    script.live(3.0)
    assert states(script)[3][1] == "created", "another one stands in"
    assert script.ask(2005, QName="q")["WARNING"] == answer["WARNING"], "it runs without it"
    script.hosts["h1"].mount(disk, 1)
    script.live(31.0)
    assert states(script)[1] == ("h1", "created")
    assert "WARNING" not in script.ask(2005, QName="q")


def test_of_a_stopped_queue_it_is_said_who_looks_again(script: Script) -> None:
    script.ask(2004, QName="q", Host="h2")
    unmount(script, "h1")
    script.ask(2002, QName="q")
    (reason,) = described(script)["Reasons"]
    assert reason.startswith("x1 is away: the log of x1 is not there: mount the disk")
    assert reason.endswith("; `roq queue start q` looks for it again")


def test_what_else_is_lost_is_started_beside_what_has_no_disk(script: Script) -> None:
    script.ask(2004, QName="q", Host="h1")
    script.hosts["h1"].logs.pop((script.record("q").queue_id, 1))
    script.vanish("h1")
    script.come_back("h1")
    script.live(3.0)
    assert states(script)[1] == ("h1", "away")
    assert states(script)[2] == ("h1", "created")
    assert ("q", 2) in script.hosts["h1"].children


def test_who_is_back_with_a_log_does_not_wait_for_who_is_back_without(script: Script) -> None:
    script.ask(2004, QName="q", Host="h1")
    lose(script, "h1")
    assert [state for _, state in states(script).values()][:2] == ["away", "away"]
    script.hosts["h1"].logs.pop((script.record("q").queue_id, 1))
    script.come_back("h1")
    script.live(3.0)
    assert states(script)[1] == ("h1", "away")
    assert states(script)[2] == ("h1", "created")


def test_nor_does_one_begin_there_while_or_after_a_queue_is_stopped(alone: Script) -> None:
    script = alone
    disk = unmount(script, "h1")
    script.ask(2002, QName="q")
    assert script.ask(2003, QName="other", Host="h1", Durability="flush")["CODE"] == "no_capacity"
    assert script.ask(2005, QName="q")["RESULT"] == 0
    script.live(20.0)
    assert states(script) == {1: ("h1", "away")}
    script.hosts["h1"].mount(disk, 1)
    script.live(31.0)
    assert states(script) == {1: ("h1", "created")}


def test_nor_on_a_host_that_is_back_before_it_was_looked_there(alone: Script) -> None:
    script = alone
    script.hosts["h2"] = PaperHost("h2")
    script.report(script.hosts["h2"])
    script.ask(2003, QName="b", Host="h2", Durability="flush")
    lose(script, "h1", "h2")
    script.hosts["h1"].mount({}, script.numbers + 1)
    script.come_back("h1")
    script.live(20.0)
    assert states(script) == {1: ("h1", "away")}
    assert [each.host for each in script.record("b").exchanges] == ["h2"]


def test_of_many_queues_all_logs_may_be_given_up_and_all_go_on(alone: Script) -> None:
    script = alone
    for name in ("r", "s"):
        script.ask(2003, QName=name, Host="h1", Durability="flush")
    unmount(script, "h1")
    told = [
        script.ask(2100, QName=name, Exchange="x1", Forget=True).get("WARNING", "")
        for name in ("q", "r", "s")
    ]
    assert ["as soon as there is room" in each for each in told] == [True, True, False]
    script.live(31.0)
    for name in ("q", "r", "s"):
        assert [each.state for each in script.record(name).exchanges] == ["created"]


def test_an_ordered_queue_waits_for_its_disk(ordered: Script) -> None:
    disk = unmount(ordered, "h1")
    ordered.live(30.0)
    assert states(ordered) == {1: ("h1", "away")}
    ordered.ask(2002, QName="q")
    assert ordered.ask(2005, QName="q")["RESULT"] == 0
    ordered.live(30.0)
    assert states(ordered) == {1: ("h1", "away")}, "no second one, after a stop neither"
    ordered.hosts["h1"].mount(disk, 1)
    ordered.live(31.0)
    assert states(ordered) == {1: ("h1", "created")}


def test_what_was_begun_and_never_told_of_a_log_makes_one(script: Script) -> None:
    script.hosts["h2"].mute.add(StartExchange)
    ask(script, out(script))
    script.hosts["h2"].mute.clear()
    script.live(6.0)
    assert states(script)[2] == ("h2", "created")
    assert set(starts(script, 2)) == {False}
    script.hosts["h2"].restart("q", script.record("q").queue_id, 2)
    script.live(2.0)
    script.vanish("h2")
    script.come_back("h2")
    script.live(3.0)
    assert starts(script, 2)[-1] is True


def test_of_a_queue_in_memory_no_log_must_be_there(script: Script) -> None:
    script.ask(2003, QName="v", Host="h2", Durability="none")
    script.vanish("h2")
    script.come_back("h2")
    script.live(3.0)
    assert starts(script, 1) == [False, False, False][: len(starts(script, 1))]
    assert ("v", 1) in script.hosts["h2"].children
