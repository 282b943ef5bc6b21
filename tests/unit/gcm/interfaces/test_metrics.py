"""The figures of a configuration manager: what concerns the cluster the leader tells alone."""

import pytest
from gcm_script import ME, OTHER, PaperHost, Script

from roq.gcm import events
from roq.gcm.interfaces.metrics import METRICS
from roq.protocol.control import StartExchange, StartMonitor


@pytest.fixture
def script() -> Script:
    return Script(PaperHost("h1"), PaperHost("h2", epoch=2))


def test_only_the_leader_counts_hosts_and_queues(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    told = script.figures()
    assert told["roq_gcm_leader",] == 1
    assert told["roq_gcm_hosts", "live"] == 2
    assert told["roq_gcm_queues", "running"] == 1
    assert told["roq_gcm_exchanges",] == 1
    script.feed(events.Following(OTHER))
    told = script.figures()
    assert told["roq_gcm_leader",] == 0
    assert told["roq_gcm_hosts", "live"] == told["roq_gcm_exchanges",] == 0


def test_every_sample_has_the_labels_that_its_metric_names(script: Script) -> None:
    samples = list(script.machine.figures())
    assert all(len(each.labels) == len(each.metric.labels) for each in samples)
    assert {each.metric for each in samples} == set(METRICS)


def test_what_was_lost_and_runs_again_is_counted(script: Script) -> None:
    script.ask(2003, QName="orders", Host="h1")
    for _ in range(60):
        script.feed(events.HostsPresent(frozenset({"h2"})))
        script.pass_time(1.0)
        script.report(script.hosts["h2"])
        script.settle()
    told = script.figures()
    assert told["roq_gcm_queues_mended_total",] == 1
    assert told["roq_gcm_queues_degraded",] == told["roq_gcm_queues_not_mended_total",] == 0


def test_whoever_takes_care_without_the_registry_does_not_say_that_it_leads(script: Script) -> None:
    assert script.figures()["roq_gcm_registry_connected",] == 1
    script.feed(events.RegistryLost())
    told = script.figures()
    assert (told["roq_gcm_leader",], told["roq_gcm_registry_connected",]) == (1, 0)
    script.feed(events.RegistryLost(session_ended=True))
    assert script.figures()["roq_gcm_leader",] == 0


def test_who_stands_for_election_what_is_changed_and_what_cannot_be_read_is_counted(
    script: Script,
) -> None:
    script.registry["/queues/bad"] = b"{"
    script.elect()
    script.feed(events.ManagersChanged((ME, OTHER)))
    script.send(2003, QName="orders", Host="h1")
    told = script.figures()
    assert told["roq_gcm_managers",] == 2
    assert told["roq_gcm_operations",] == told["roq_gcm_queues_unreadable",] == 1
    script.settle()
    assert script.figures()["roq_gcm_operations",] == 0


def test_what_is_mended_in_vain_is_counted() -> None:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2))
    script.ask(2003, QName="orders", Host="h1")
    script.hosts["h2"].refuse |= {StartMonitor, StartExchange}
    script.vanish("h1")
    script.expire_node("h1")
    script.live(20)
    told = script.figures()
    assert told["roq_gcm_queues_not_mended_total",] > 0 == told["roq_gcm_queues_mended_total",]
    assert told["roq_gcm_queues_degraded",] == 1
    assert told["roq_gcm_hosts", "lost"] == told["roq_gcm_hosts", "live"] == 1
