"""Settings of services in the definition of a queue: kept, changed while it runs, told."""

from __future__ import annotations

import json

import pytest
from gcm_script import PaperHost, Script

from roq.protocol import documents
from roq.protocol.control import Configure, Elasticity, ElasticityRequest

SERVICES = {"billing": {"keep_result": 60, "send_attempts": 9}, "*": {"delay": 2.5}}


@pytest.fixture
def script() -> Script:
    script = Script(PaperHost("h1"))
    assert script.ask(2003, QName="orders", Host="h1", Services=SERVICES)["RESULT"] == 0
    return script


def told(script: Script) -> Elasticity:
    request = ElasticityRequest(queue="orders", queue_id=script.record("orders").queue_id)
    answer = documents.convert(
        script.ask(3022, port=5000, queue=request.queue, queue_id=request.queue_id), Elasticity
    )
    assert isinstance(answer, Elasticity)
    return answer


def test_they_are_kept_and_told_to_the_monitor_and_to_whoever_asks(script: Script) -> None:
    for _ in range(2):
        assert script.ask(2104, QName="orders")["Services"] == SERVICES
        assert told(script).services == SERVICES
        script.elect()  # they stand in the registry


def test_they_are_changed_as_a_whole_while_the_queue_runs_and_its_monitor_is_told(
    script: Script,
) -> None:
    monitor = script.answerer(script.record("orders").monitor)
    monitor.asked.clear()
    services = {"stock": {"delay": 1}}
    assert script.ask(2105, QName="orders", Services=services)["RESULT"] == 0
    assert [type(each) for each in monitor.asked] == [Configure]
    assert told(script).services == services
    script.elect()
    assert told(script).services == services
    assert script.ask(2105, QName="orders", Services={})["RESULT"] == 0
    assert told(script).services == {}


def test_those_of_a_stopped_queue_are_changed_as_well(script: Script) -> None:
    script.ask(2002, QName="orders")
    assert script.ask(2105, QName="orders", Services={"s": {"delay": 1}})["RESULT"] == 0
    assert script.ask(2104, QName="orders")["Services"] == {"s": {"delay": 1}}


def test_a_monitor_that_starts_is_to_ask_at_once_if_there_are_any(script: Script) -> None:
    for _ in range(2):
        monitor = script.answerer(script.record("orders").monitor)
        assert [type(each) for each in monitor.asked] == [Configure]
        monitor.asked.clear()
        script.ask(2002, QName="orders")
        script.ask(2005, QName="orders")
    script.ask(2003, QName="none", Host="h1")
    assert script.answerer(script.record("none").monitor).asked == []


def test_a_creation_that_is_repeated_with_others_is_another_one(script: Script) -> None:
    answer = script.ask(2003, QName="orders", Host="h1", TransactionID="t")
    assert answer["CODE"] == "queue_exists"


@pytest.mark.parametrize(
    "services",
    [{"s": {"keep": 1}}, {"s": {"delay": -1}}, {"s": 7}, 7, {"a/b": {}}, {"s": {"delay": "x"}},
     {f"s{each}": {"delay": 1} for each in range(65)}],
)  # fmt: skip
def test_what_cannot_be_in_force_is_refused_and_changes_nothing(
    script: Script, services: object
) -> None:
    for command, name in ((2105, "orders"), (2003, "other"), (2010, "other")):
        answer = script.ask(command, QName=name, Host="h1", Services=services)
        assert (answer["RESULT"], answer["CODE"]) == (1101, "invalid_request")
    assert script.ask(2104, QName="orders")["Services"] == SERVICES
    assert "/queues/other" not in script.registry


def test_nobody_defines_them_for_a_queue_that_is_not_there(script: Script) -> None:
    assert script.ask(2105, QName="nobody", Services={})["CODE"] == "queue_not_found"
    answer = script.ask(2105, QName="orders")
    assert "The Services field is not present" in answer["COMMENT"]


def test_a_registry_of_an_earlier_version_defines_none(script: Script) -> None:
    document = json.loads(script.registry["/queues/orders"])
    del document["services"]
    script.registry["/queues/orders"] = json.dumps(document).encode()
    script.elect()
    assert script.ask(2104, QName="orders")["Services"] == {}


def test_a_registry_that_says_what_cannot_be_is_unreadable_and_says_why(script: Script) -> None:
    document = json.loads(script.registry["/queues/orders"])
    document["services"] = {"s": {"keep": 1}}
    script.registry["/queues/orders"] = json.dumps(document).encode()
    script.elect()
    assert "keep" in script.machine.queues.unreadable["orders"]
