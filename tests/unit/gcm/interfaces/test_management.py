"""What consoles and the command line ask, and which of it changes something."""

import bson
import pytest
from gcm_script import PaperHost, Script

from roq.gcm import events
from roq.gcm.interfaces.management import CONFIGURE_SECONDS
from roq.gcm.provision.hosts import ProvisionSettings
from roq.protocol.control import Configure


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"), PaperHost("h2", epoch=2))


@pytest.mark.parametrize("data", [b"", b"garbage", bson.encode({"CMD": 77}), bson.encode({})])
@pytest.mark.parametrize("port", [5000, 5003])
def test_garbage_is_answered(script: Script, port: int, data: bytes) -> None:
    answer = script.answer(script.send_raw(data, port=port))
    assert answer["RESULT"] == 1101
    assert answer["COMMENT"]


def test_what_anybody_can_provoke_is_marked_so_that_its_log_lines_are_limited(
    script: Script,
) -> None:
    asker = object()
    garbage = script.machine.handle(events.ClientFrame(asker, b"garbage"), script.now)
    unknown = script.machine.handle(
        events.ManagementFrame(asker, bson.encode({"CMD": 2005, "QName": "q"}), b"u" * 16, 1.0),
        script.now,
    )
    notes = [each for each in (*garbage, *unknown) if isinstance(each, events.LogLine)]
    assert [(note.event, note.provoked) for note in notes] == [
        ("malformed_request", True),
        ("queue_refused", True),
    ]


@pytest.mark.parametrize("command", [2001, 2002, 2005, 2007, 2103, 2104])
def test_commands_on_an_unknown_queue_fail(script: Script, command: int) -> None:
    answer = script.ask(command, QName="nobody")
    assert (answer["RESULT"], answer["CODE"]) == (1101, "queue_not_found")


def test_exists_says_yes_or_no(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    assert script.ask(2011, QName="orders") == {"RESULT": 0, "COMMENT": "YES"}
    answer = script.ask(2011, QName="nobody")
    assert (answer["RESULT"], answer["COMMENT"]) == (1101, "NO")


def test_without_any_leader_the_caller_is_asked_to_try_again() -> None:
    script = Script(leads=False)
    answer = script.ask(2101)
    assert (answer["RESULT"], answer["CODE"]) == (1101, "not_leader")


def test_while_the_registry_is_away_reads_go_on_and_changes_are_refused(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    for lost in (events.RegistryLost(), events.RegistryLost(session_ended=True)):
        script.feed(lost)
        assert script.ask(2000, port=5000, QName="orders")["RESULT"] == 0
        assert script.ask(2101)["Queues"][0]["Name"] == "orders"
        for command in (2001, 2002, 2003, 2004, 2005, 2010):
            answer = script.ask(command, QName="orders", Host="h1")
            assert (answer["COMMENT"], answer["CODE"]) == ("registry away", "registry_away")
    before = len(script.broadcasts)
    script.pass_time(11)
    assert len(script.broadcasts) > before


def test_cloud_properties_are_told(script: Script) -> None:
    assert script.ask(2009) == {
        "RESULT": 0,
        "COMMENT": "SUCCESS",
        "cloud.use": False,
        "cloud.user": "u",
    }


def test_a_policy_that_nobody_offers_is_refused_and_nothing_changes(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    ours = {
        "AUTOSCALING_ROQ_POLICY": "spread", "AUTOSCALING_ROQ_LATENCY": 0,
        "AUTOSCALING_ROQ_XCHANGE_MIN": 1, "AUTOSCALING_ROQ_XCHANGE_MAX": 4,
        "AUTOSCALING_ROQ_COOLDOWN": 10,
    }  # fmt: skip
    script.ask(2006, QName="orders", AUTOSCALING_NAME="a", AUTOSCALING_ROQ=ours)
    wrong = {**ours, "AUTOSCALING_ROQ_POLICY": "sprad"}
    answer = script.ask(2006, QName="orders", AUTOSCALING_NAME="b", AUTOSCALING_ROQ=wrong)
    assert answer["CODE"] == "invalid_request"
    assert "'sprad'" in answer["COMMENT"]
    assert "balanced, known, spread, static" in answer["COMMENT"]
    assert script.ask(2007, QName="orders")["AUTOSCALING_NAME"] == "a"


RULES = {
    "AUTOSCALING_ROQ_POLICY": "balanced", "AUTOSCALING_ROQ_LATENCY": 0,
    "AUTOSCALING_ROQ_XCHANGE_MIN": 1, "AUTOSCALING_ROQ_XCHANGE_MAX": 4,
    "AUTOSCALING_ROQ_COOLDOWN": 10,
}  # fmt: skip


def test_the_monitor_of_a_queue_that_runs_is_told_of_new_rules_and_is_not_waited_for(
    script: Script,
) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.monitors["orders"].mute = True
    asked = script.send(2006, QName="orders", AUTOSCALING_NAME="a", AUTOSCALING_ROQ=RULES)
    script.step()
    (call,) = script.pending
    assert isinstance(call.message, Configure)
    assert call.timeout == CONFIGURE_SECONDS < 1
    script.settle()
    assert script.answer(asked)["RESULT"] == 0
    script.ask(2002, QName="orders")
    script.send(2006, QName="orders", AUTOSCALING_NAME="b", AUTOSCALING_ROQ=RULES)
    script.step()
    assert not script.pending


@pytest.mark.parametrize(
    ("command", "fields", "deed"),
    [
        (2004, {"TransactionID": "t"}, "given an exchange exchange=x2"),
        (2005, {}, "started"),
        (2006, {"AUTOSCALING_NAME": "a", "AUTOSCALING_ROQ": RULES}, "given scaling rules"),
        (2008, {"Address": "tcp://127.0.0.1:9"}, "given a listener"),
        (2105, {"Services": {}}, "given settings of services"),
        (2002, {}, "stopped"),
        (2001, {}, "removed"),
    ],
)
def test_every_change_stands_in_the_log_with_what_was_changed(
    script: Script, command: int, fields: dict[str, object], deed: str
) -> None:
    assert script.ask(2003, QName="orders", Host="h1")["RESULT"] == 0
    assert script.notes[-1].startswith("queue orders created host=h1")
    assert script.ask(command, QName="orders", **fields)["RESULT"] == 0
    assert script.notes[-1].startswith(f"queue orders {deed}")


@pytest.mark.parametrize(
    ("command", "deed"), [(2110, "cordoned"), (2112, "to be drained"), (2111, "uncordoned")]
)
def test_what_is_wanted_of_a_host_stands_in_the_log(
    script: Script, command: int, deed: str
) -> None:
    script.ask(command, Host="h1")
    assert f"host h1 {deed}" in script.notes


def test_a_change_that_is_refused_stands_in_the_log_with_the_reason(script: Script) -> None:
    script.ask(2005, QName="nobody")
    assert script.notes[-1].startswith("queue nobody not started: ")
    assert "nobody" in script.notes[-1].removeprefix("queue nobody not started: ")


def test_a_command_of_another_port_is_refused(script: Script) -> None:
    answer = script.ask(2000, QName="orders")
    assert (answer["RESULT"], bool(answer["COMMENT"])) == (1101, True)


def test_a_queue_without_a_host_gets_one_of_a_provider_at_the_next_attempt() -> None:
    script = Script(provision=ProvisionSettings())
    refused = script.ask(2010, QName="orders")
    assert refused["CODE"] == "no_capacity"
    assert script.calls


def test_queues_without_a_definition_that_can_be_read_exist_and_can_be_removed(
    script: Script,
) -> None:
    script.registry["/queues/bad"] = b"{"
    script.elect()
    assert script.ask(2011, QName="bad")["COMMENT"] == "YES"
    assert script.ask(2001, QName="bad")["RESULT"] == 0
    assert script.ask(2011, QName="bad")["COMMENT"] == "NO"
