"""Whom a manager that does not lead names."""

import msgspec
import pytest
from gcm_script import ME, OTHER, PaperHost, Script

from roq.gcm import events
from roq.gcm.state.hosts import REPORT_SECONDS
from roq.gcm.state.role import Role


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"))


@pytest.mark.parametrize("field", ["client", "management"])
def test_nobody_is_sent_to_a_dead_predecessor_at_the_same_address(field: str) -> None:
    script = Script(leads=False)
    same = msgspec.structs.replace(OTHER, **{field: getattr(ME, field)})
    script.feed(events.Following(same))
    for answer in (script.ask(2101), script.ask(2000, port=5000, QName="q")):
        assert (answer["RESULT"], answer["CODE"]) == (1101, "not_leader")
        assert "no configuration manager leads" in answer["COMMENT"]
    assert script.machine.health().state == "electing"


def test_a_manager_never_names_itself_as_the_leader_that_it_is_not() -> None:
    script = Script(leads=False)
    script.feed(events.Following(ME))
    assert script.ask(2101)["RESULT"] == 1101
    assert script.machine.health().state == "electing"


def test_a_follower_names_the_leader_at_each_interface() -> None:
    script = Script(leads=False)
    script.feed(events.Following(OTHER))
    assert script.ask(2101)["COMMENT"] == OTHER.management
    assert script.ask(2000, port=5000, QName="q")["COMMENT"] == OTHER.client
    assert script.machine.health().state == "following"


def test_whoever_knows_no_leader_says_whether_zookeeper_can_be_reached() -> None:
    role = Role(ME, registry_away=True)
    assert "ZooKeeper cannot be reached" in str(role.not_leader("management"))
    role = Role(ME, "the registry /c.db", registry_away=True)
    assert "the registry /c.db cannot be reached" in str(role.not_leader("management"))
    role.registry_away = False
    assert "ZooKeeper" not in str(role.not_leader("management"))


def test_whoever_knows_no_leader_says_why_nobody_can_lead() -> None:
    role = Role(ME, epochs_problem="/base holds 'x'")
    assert "/base holds 'x'" in str(role.not_leader("client"))


def test_what_a_caretaker_does_not_know_may_be_known_to_others(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.feed(events.RegistryLost())
    for command in (2011, 2103, 2104):
        assert script.ask(command, QName="new")["CODE"] == "queue_not_found", "it leads for certain"
    script.feed(events.RegistryLost(session_ended=True))
    for command in (2011, 2103, 2104):
        answer = script.ask(command, QName="new")
        assert answer["CODE"] == "registry_away", "nobody else is known who could tell"
        assert "what was known before" in answer["COMMENT"]
        assert script.ask(command, QName="q")["RESULT"] == 0
    script.feed(events.ManagersChanged((ME, OTHER)))
    for command in (2011, 2103, 2104):
        answer = script.ask(command, QName="new")
        assert (answer["RESULT"], answer["CODE"]) == (1101, "not_leader")
        assert "try the other managers" in answer["COMMENT"]
        assert script.ask(command, QName="q")["RESULT"] == 0
    assert script.ask(2001, QName="new")["CODE"] == "registry_away"
    script.elect()
    assert script.ask(2104, QName="new")["CODE"] == "queue_not_found"


def test_a_caretaker_says_for_how_long_it_has_told_from_memory(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    reads = {2101: {}, 2102: {}, 2103: {"QName": "q"}, 2104: {"QName": "q"}}
    for told in (True, False):
        script.feed(events.RegistryLost())
        script.pass_time(3)
        for command, fields in reads.items():
            assert "FromMemory" not in script.ask(command, **fields), "it leads for certain"
        script.feed(events.RegistryLost(session_ended=True))
        script.pass_time(4)
        for command, fields in reads.items():
            memory = script.ask(command, **fields)["FromMemory"]
            assert memory["Seconds"] in {7, 8}
            assert memory["Reason"] == "ZooKeeper cannot be reached"
        script.elect()
        for command, fields in reads.items():
            assert "FromMemory" not in script.ask(command, **fields), told


def test_a_caretaker_of_another_cluster_says_so(script: Script) -> None:
    problem = "the registry holds cluster x now"
    script.feed(events.RegistryLost(session_ended=True, problem=problem))
    assert script.ask(2101)["FromMemory"] == {"Seconds": 0, "Reason": problem}


def test_a_leader_that_has_just_begun_has_clients_ask_again_instead_of_refusing_them() -> None:
    script = Script(PaperHost("h1"), leads=False)
    script.elect()
    for fields in ({"Host": "h1"}, {"Host": "h9"}):
        answer = script.ask(2003, QName="q", **fields)
        assert (answer["RESULT"], answer["CODE"]) == (1101, "not_leader")
        assert "leadership has just begun" in answer["COMMENT"]
    assert script.ask(2010, QName="q")["CODE"] == "not_leader"
    script.pass_time(REPORT_SECONDS)
    assert script.ask(2010, QName="q")["CODE"] == "no_capacity", "it is away, then"
    script.report(script.hosts["h1"])
    assert script.ask(2010, QName="q")["RESULT"] == 0
    assert script.ask(2003, QName="r", Host="h9")["CODE"] == "host_not_found"


def test_a_registry_of_another_cluster_is_not_said_to_be_out_of_reach(script: Script) -> None:
    problem = "the registry holds cluster x now"
    script.feed(events.RegistryLost(session_ended=True, problem=problem))
    assert _registry(script) == problem
    script.feed(events.Following(None))
    assert problem in script.ask(2101)["COMMENT"]
    script.feed(events.RegistryBack(None))
    assert _registry(script) == "connected"
    script.feed(events.RegistryLost())
    assert "cannot be reached" in _registry(script)


def _registry(script: Script) -> str:
    checks = script.machine.health().checks
    return next(check.detail for check in checks if check.name == "registry")
