"""How a configuration manager says it is, and what it tells about its cluster."""

from __future__ import annotations

import msgspec
import pytest
from gcm_script import ME, OTHER, PaperHost, Script

from roq.gcm import events
from roq.protocol import documents
from roq.protocol.control import Health, HealthRequest
from roq.protocol.reports import Check


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"), PaperHost("h2", epoch=2))


def ask(script: Script) -> Health:
    peer = script.send_raw(documents.encode(HealthRequest(id=7)), port=5000)
    return documents.decode(script.answers[peer][0], Health)


def checks(health: Health) -> dict[str, Check]:
    return {check.name: check for check in health.checks}


def test_a_leader_with_its_hosts_and_queues_is_ready(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    health = ask(script)
    assert (health.id, health.role, health.name) == (7, "gcm", ME.client)
    assert (health.ready, health.state) == (True, "leading")
    assert all(check.ok for check in health.checks)
    assert checks(health)["hosts"].detail == "2 live"


def test_a_follower_is_ready_if_it_knows_who_leads() -> None:
    script = Script(leads=False)
    assert ask(script).state == "electing"
    assert not ask(script).ready
    script.feed(events.Following(OTHER))
    health = ask(script)
    assert (health.ready, health.state) == (True, "following")
    assert checks(health)["leader"].detail == OTHER.client
    assert "hosts" not in checks(health)


def test_without_the_registry_nobody_is_ready(script: Script) -> None:
    script.feed(events.RegistryLost(session_ended=False))
    health = ask(script)
    assert not health.ready
    assert "ZooKeeper cannot be reached" in checks(health)["registry"].detail


def test_whoever_led_when_its_session_ended_says_that_it_is_open_who_leads(script: Script) -> None:
    script.feed(events.RegistryLost(session_ended=True))
    health = ask(script)
    assert (health.ready, health.state) == (False, "caretaker")
    assert "open" in checks(health)["leader"].detail


@pytest.mark.parametrize("leads", [True, False])
def test_whoever_cannot_draw_epochs_says_why_until_it_can(leads: bool) -> None:
    script = Script(PaperHost("h1"), leads=leads)
    if not leads:
        script.feed(events.Following(OTHER))
    assert checks(ask(script))["epochs"].ok
    script.feed(events.EpochsDamaged("/base holds 'x': set it to 0"))
    health = ask(script)
    assert checks(health)["epochs"] == Check(
        name="epochs", ok=False, detail="/base holds 'x': set it to 0"
    )
    assert not health.ready
    script.feed(events.EpochsDamaged(""))
    assert ask(script).ready


def test_a_cluster_without_hosts_is_a_warning() -> None:
    health = ask(Script())
    assert health.ready
    assert "`roq host` starts one" in checks(health)["hosts"].detail


def keep_reporting(script: Script, name: str, seconds: int) -> None:
    """Only this host reports, and only it stands in the registry."""
    script.feed(events.HostsPresent(frozenset({name})))
    for _ in range(seconds):
        script.pass_time(1.0)
        script.report(script.hosts[name])


def test_a_host_that_does_not_report_is_named(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    script.feed(events.HostsPresent(frozenset({"h1", "h2"})))
    for _ in range(5):
        script.pass_time(1.0)
        script.report(script.hosts["h2"])
    health = ask(script)
    assert health.ready, "the manager itself does all of its work"
    assert checks(health)["hosts"].detail == "h1 is silent"
    assert script.figures()["roq_gcm_hosts", "silent"] == 1


def test_a_lost_host_of_which_nothing_is_missing_is_named_as_such(script: Script) -> None:
    keep_reporting(script, "h2", 30)
    assert checks(ask(script))["hosts"].detail == "h1 is lost, nothing is missing of it"


def test_a_queue_that_lacks_something_is_named_with_what_becomes_of_it(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    host = script.hosts["h1"]
    host.children["orders", 1] = msgspec.structs.replace(
        host.children["orders", 1], state="failed", reason="exit code 1"
    )
    script.report(host)
    script.pass_time(1.0)
    script.report(host)
    detail = checks(ask(script))["queues"].detail
    assert detail.startswith("orders: x1 has failed on host h1: exit code 1; a second attempt")
    assert script.figures()["roq_gcm_queues_degraded",] == 1


def test_what_the_shell_has_measured_is_told(script: Script) -> None:
    few = Check(name="files", ok=False, detail="few are left", essential=False)
    script.feed(events.Measured((few,)))
    health = ask(script)
    assert health.ready
    assert checks(health)["files"] == few


def test_a_host_that_gets_too_little_processor_is_named(script: Script) -> None:
    script.report(script.hosts["h1"], starved=True)
    check = checks(ask(script))["hosts"]
    assert not check.ok
    assert "h1 gets too little processor" in check.detail
