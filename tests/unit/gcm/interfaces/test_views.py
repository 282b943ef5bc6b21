"""How queues, hosts and exchanges are described to people."""

import pytest
from gcm_repair import lose
from gcm_script import PaperHost, Script

from roq.gcm.interfaces.views import UNREADABLE


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"), PaperHost("h2", epoch=2))


def test_queues_hosts_and_a_queue_are_described(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.report(script.hosts["h1"])
    assert script.ask(2101)["Queues"] == [
        {
            "Name": "orders",
            "Host": "h1",
            "State": "running",
            "Running": True,
            "Exchanges": 1,
            "Durability": "none",
            "Reasons": [],
            "SlowSubscriber": "hold",
            "HoldSeconds": 10,
        }
    ]
    first = script.ask(2102)["Hosts"][0]
    assert (first["Host"], first["Exchanges"], first["Monitors"], first["State"]) == (
        "h1",
        1,
        1,
        "live",
    )
    assert [child["State"] for child in first["Children"]] == ["running", "running"]
    described = script.ask(2104, QName="orders")
    assert described["Monitor"] == "tcp://h1:6001"
    assert described["Created"] == 1e9
    assert described["Limits"]["batch_messages"] == 500
    assert described["Rules"] == {}


def exchange(script: Script, number: int = 1) -> dict[str, object]:
    rows = script.ask(2103, QName="orders")["Exchanges"]
    return {each["Number"]: each for each in rows}[number]


def test_an_exchange_is_told_as_it_runs_and_as_it_is_defined(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    child = script.hosts["h1"].children["orders", 1]
    row = exchange(script)
    assert (row["Name"], row["Host"], row["State"], row["Reason"]) == ("x1", "h1", "running", "")
    assert (row["Data"], row["Live"], row["Pid"]) == (child.data, child.live, child.pid)
    assert row["Epoch"] == child.epoch
    script.ask(2002, QName="orders")
    script.report(script.hosts["h1"])
    row = exchange(script)
    assert (row["State"], row["Data"], row["Live"]) == ("stopped", "", "")


def test_an_exchange_that_no_leader_has_heard_of_waits_for_its_host(
    script: Script,
) -> None:
    script.ask(2003, QName="orders", Host="h1")
    later = Script(leads=False)
    later.registry = script.registry
    later.elect()
    assert exchange(later)["State"] == "host awaited"
    later.report(script.hosts["h1"])
    assert exchange(later)["State"] == "running"


def test_an_exchange_whose_host_is_silent_says_so(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.vanish("h1")
    script.live(4)
    row = exchange(script)
    assert row["State"] == "host silent"
    assert row["Reason"].startswith("is on host h1: ")


def test_an_exchange_that_its_host_has_lost_is_missing_and_one_that_has_failed_says_why(
    script: Script,
) -> None:
    script.ask(2003, QName="orders", Host="h1")
    host = script.hosts["h1"]
    child = host.children.pop(("orders", 1))
    script.report(host)
    assert exchange(script)["State"] == "missing"
    host.children["orders", 1] = child
    host.fail("orders", 1, "exit code 70")
    script.report(host)
    row = exchange(script)
    assert row["State"] == "failed"
    assert "exit code 70" in row["Reason"]


def test_an_exchange_whose_log_is_on_a_lost_host_is_away() -> None:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2), durability="flush")
    script.ask(2003, QName="orders", Host="h1")
    script.ask(2004, QName="orders", Host="h2")
    lose(script, "h2")
    script.live(3)
    row = exchange(script, 2)
    assert "h2" in row["Reason"]
    assert row["State"] == "away"


def test_a_queue_that_nobody_can_read_stands_in_its_place_with_what_to_do(script: Script) -> None:
    for name in ("a", "z"):
        script.ask(2003, QName=name, Host="h1")
    script.registry["/queues/bad"] = b"{"
    script.elect()
    rows = script.ask(2101)["Queues"]
    assert [row["Name"] for row in rows] == ["a", "bad", "z"]
    assert (rows[1]["State"], rows[1]["Running"]) == (UNREADABLE, False)
    assert "`roq queue remove bad`" in rows[1]["Reasons"][0]
    told = {each.Name: (each.Host, each.State) for each in script.broadcasts[-1].queues}
    assert told == {"a": ("h1", True), "bad": ("", False), "z": ("h1", True)}


def test_a_host_is_told_with_what_belongs_there_and_what_it_says(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.ask(2004, QName="orders", Host="h2")
    script.report(script.hosts["h2"], cpu_percent=12.34, memory_bytes=700, exchange_max=5)
    first, second = script.ask(2102)["Hosts"]
    assert (first["Exchanges"], first["Monitors"]) == (1, 1)
    assert (second["Exchanges"], second["Monitors"]) == (1, 0)
    assert (second["Cpu"], second["MemoryBytes"], second["ExchangeMax"]) == (12.3, 700, 5)
    assert (second["Epoch"], second["Control"]) == (2, "tcp://h2:5100")
    assert (second["Schedule"], second["Left"], second["Provided"]) == ("active", [], False)
    assert [each["Number"] for each in second["Children"]] == [2]
    script.ask(2112, Host="h2")
    assert script.ask(2102)["Hosts"][1]["Left"] != []


def test_hosts_that_are_gone_are_told_to_nobody_who_listens(script: Script) -> None:
    assert script.broadcasts[-1].hosts == ("h1", "h2")
    script.vanish("h2")
    script.expire_node("h2")
    script.live(12)
    assert script.broadcasts[-1].hosts == ("h1",)
