"""Scaling rules: stored, told, pushed."""

import json

import pytest
from gcm_script import OTHER, PaperHost, Script

from roq.gcm import events
from roq.gcm.change.scaling_rules import LISTENERS_MAX, LISTENERS_PER_QUEUE_MAX
from roq.model import ElasticRules

HOST = {"AUTOSCALING_HOST_CPU": 80, "AUTOSCALING_HOST_RAM": 512}
EXCHANGE = {"AUTOSCALING_XCHANGE_THR": 75_000_000}
QUEUE = {"AUTOSCALING_THR_PROD_EXCH": 10, "AUTOSCALING_Q_PROD_EXCH": 4}


@pytest.fixture
def script() -> Script:
    script = Script(PaperHost("h1"))
    script.ask(2003, QName="orders", Host="h1")
    return script


def test_rules_are_read_back_as_they_were_set(script: Script) -> None:
    answer = script.ask(
        2006,
        QName="orders",
        AUTOSCALING_NAME="mine",
        AUTOSCALING_HOST=HOST,
        AUTOSCALING_XCHANGE=EXCHANGE,
        AUTOSCALING_Q=QUEUE,
    )
    assert answer == {"RESULT": 0, "COMMENT": "SUCCESS"}
    told = {
        "RESULT": 0,
        "COMMENT": "SUCCESS",
        "AUTOSCALING_NAME": "mine",
        "AUTOSCALING_HOST": HOST,
        "AUTOSCALING_XCHANGE": EXCHANGE,
        "AUTOSCALING_Q": QUEUE,
    }
    assert script.ask(2007, QName="orders") == told
    script.elect()  # they stand in the registry
    assert script.ask(2007, QName="orders") == told
    assert script.ask(2104, QName="orders")["Rules"]["AUTOSCALING_NAME"] == "mine"


def test_rules_replace_the_ones_before(script: Script) -> None:
    script.ask(2006, QName="orders", AUTOSCALING_NAME="a", AUTOSCALING_HOST=HOST)
    script.ask(2006, QName="orders", AUTOSCALING_NAME="b", AUTOSCALING_Q=QUEUE)
    told = script.ask(2007, QName="orders")
    assert told["AUTOSCALING_NAME"] == "b"
    assert "AUTOSCALING_HOST" not in told


def test_a_queue_without_rules_says_so(script: Script) -> None:
    assert script.ask(2007, QName="orders")["RESULT"] == 1101


def test_rules_for_an_unknown_queue_are_refused(script: Script) -> None:
    answer = script.ask(2006, QName="nobody", AUTOSCALING_NAME="a")
    assert answer["CODE"] == "queue_not_found"


def test_each_listener_gets_the_rules_when_they_are_set(script: Script) -> None:
    for port in (1, 2, 2):
        address = f"tcp://l:{port}"
        assert script.ask(2008, QName="orders", Address=address)["RESULT"] == 0
    script.ask(2006, QName="orders", AUTOSCALING_NAME="a", AUTOSCALING_HOST=HOST)
    assert [address for address, _ in script.pushed] == ["tcp://l:1", "tcp://l:2"]
    assert script.pushed[0][1] == script.ask(2007, QName="orders")


def test_a_listener_that_is_gone_gets_nothing_more(script: Script) -> None:
    script.ask(2008, QName="orders", Address="tcp://l:1")
    script.feed(events.ListenerGone("tcp://l:1"))
    script.ask(2006, QName="orders", AUTOSCALING_NAME="a")
    assert script.pushed == []


def test_a_later_leader_tells_the_listeners_as_well(script: Script) -> None:
    for port in (1, 2):
        script.ask(2008, QName="orders", Address=f"tcp://l:{port}")
    script.feed(events.Following(OTHER))
    assert sorted(script.forgotten) == ["tcp://l:1", "tcp://l:2"]
    script.elect()
    script.ask(2006, QName="orders", AUTOSCALING_NAME="a")
    assert [address for address, _ in script.pushed] == ["tcp://l:1", "tcp://l:2"]


def test_nobody_can_begin_to_listen_while_the_registry_is_away(script: Script) -> None:
    script.feed(events.RegistryLost())
    answer = script.ask(2008, QName="orders", Address="tcp://l:1")
    assert answer["CODE"] == "registry_away"


def test_no_more_listeners_are_taken_over_than_one_leader_may_have(script: Script) -> None:
    for number in range(LISTENERS_MAX // LISTENERS_PER_QUEUE_MAX + 2):
        name = f"q{number}"
        script.ask(2003, QName=name, Host="h1")
        addresses = [f"tcp://l:{number * 100 + port}" for port in range(1, 99)]
        script.registry[f"/queues/{name}/listeners"] = json.dumps(addresses).encode()
    script.elect()
    for number in range(LISTENERS_MAX // LISTENERS_PER_QUEUE_MAX + 2):
        script.ask(2006, QName=f"q{number}", AUTOSCALING_NAME="a")
    assert len(script.pushed) == LISTENERS_MAX


def test_the_oldest_listener_makes_room(script: Script) -> None:
    for port in range(1, LISTENERS_PER_QUEUE_MAX + 2):
        script.ask(2008, QName="orders", Address=f"tcp://l:{port}")
    assert script.forgotten == ["tcp://l:1"]
    script.ask(2006, QName="orders", AUTOSCALING_NAME="a")
    assert len(script.pushed) == LISTENERS_PER_QUEUE_MAX


def test_a_removed_queue_takes_its_rules_and_listeners_along(script: Script) -> None:
    script.ask(2008, QName="orders", Address="tcp://l:1")
    script.ask(2006, QName="orders", AUTOSCALING_NAME="a")
    script.ask(2001, QName="orders")
    assert script.registry == {}
    assert script.forgotten == ["tcp://l:1"]
    script.ask(2003, QName="orders", Host="h1")
    assert script.ask(2007, QName="orders")["RESULT"] == 1101


def test_listening_to_an_unknown_queue_is_refused(script: Script) -> None:
    answer = script.ask(2008, QName="nobody", Address="tcp://l:1")
    assert answer["CODE"] == "queue_not_found"


OURS = {
    "AUTOSCALING_ROQ_POLICY": "static",
    "AUTOSCALING_ROQ_LATENCY": 20,
    "AUTOSCALING_ROQ_XCHANGE_MIN": 2,
    "AUTOSCALING_ROQ_XCHANGE_MAX": 8,
    "AUTOSCALING_ROQ_COOLDOWN": 30,
    "AUTOSCALING_ROQ_SLOW": "drop",
    "AUTOSCALING_ROQ_HOLD": 5,
}


def test_a_queue_without_rules_is_elastic_by_default(script: Script) -> None:
    assert script.machine.rules.elastic("orders") == ElasticRules()


def test_what_old_tools_do_not_say_has_its_default(script: Script) -> None:
    script.ask(2006, QName="orders", AUTOSCALING_NAME="a", AUTOSCALING_HOST=HOST)
    expected = ElasticRules(host_cpu_percent=80, host_memory_mb=512)
    assert script.machine.rules.elastic("orders") == expected


def test_each_field_means_something_for_the_monitor(script: Script) -> None:
    script.ask(
        2006,
        QName="orders",
        AUTOSCALING_NAME="a",
        AUTOSCALING_HOST=HOST,
        AUTOSCALING_XCHANGE=EXCHANGE,
        AUTOSCALING_Q=QUEUE,
        AUTOSCALING_ROQ=OURS,
    )
    assert script.ask(2007, QName="orders")["AUTOSCALING_ROQ"] == OURS
    script.elect()
    assert script.ask(2007, QName="orders")["AUTOSCALING_ROQ"] == OURS
    assert script.machine.rules.elastic("orders") == ElasticRules(
        policy="static",
        exchange_bytes=75_000_000,
        host_cpu_percent=80,
        host_memory_mb=512,
        queue_bytes_per_exchange=10,
        queue_publishers_per_exchange=4,
        latency_ms=20,
        exchanges_min=2,
        exchanges_max=8,
        cooldown_seconds=30,
        slow_subscriber="drop",
        hold_seconds=5,
    )


def test_rules_that_make_no_sense_change_nothing(script: Script) -> None:
    script.ask(2006, QName="orders", AUTOSCALING_NAME="good", AUTOSCALING_ROQ=OURS)
    before = script.ask(2007, QName="orders")
    for part, field, value in (
        ("AUTOSCALING_HOST", "AUTOSCALING_HOST_CPU", -1),
        ("AUTOSCALING_HOST", "AUTOSCALING_HOST_CPU", 101),
        ("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_XCHANGE_MAX", 2**40),
        ("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_COOLDOWN", None),
    ):
        complete = HOST if part == "AUTOSCALING_HOST" else OURS
        asked = {part: {**complete, field: value}}
        answer = script.ask(2006, QName="orders", AUTOSCALING_NAME="bad", **asked)
        assert answer["RESULT"] == 1101
        assert field in answer["COMMENT"]
    assert script.ask(2007, QName="orders") == before
    assert script.machine.rules.elastic("orders").policy == "static"
