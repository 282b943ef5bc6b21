"""In which way a process of a queue is lost, from what is known at the moment."""

import msgspec
import pytest
from gcm_script import PaperHost, Script

from roq.gcm.change.saga_steps import _start_call
from roq.gcm.state.heartbeats import Heartbeats
from roq.gcm.state.hosts import STARVED_SECONDS
from roq.gcm.state.losses import Loss, LossKind, loss
from roq.gcm.state.queues import MONITOR
from roq.model import Limits, child_epoch
from roq.protocol.control import StartExchange, StartMonitor, StopQueue
from roq.timing import REPAIR_CONFIRM_SECONDS, START_ASKS_SECONDS, START_STARVED_ASKS_SECONDS


@pytest.fixture
def script() -> Script:
    script = Script(*(PaperHost(f"h{number}", epoch=number) for number in (1, 2)))
    script.ask(2003, QName="q", Host="h1")
    script.report(script.hosts["h1"])
    return script


def found(script: Script, number: int) -> Loss | None:
    machine = script.machine
    queue = machine.queues.get("q")
    assert queue is not None
    return loss(queue, number, machine.hosts, Heartbeats(machine.hosts))


@pytest.mark.parametrize("number", [MONITOR, 1])
def test_what_its_host_runs_is_not_lost(script: Script, number: int) -> None:
    assert found(script, number) is None


@pytest.mark.parametrize("number", [MONITOR, 1])
def test_a_process_of_an_epoch_below_the_definition_is_none_of_the_queue(
    script: Script, number: int
) -> None:
    host = script.hosts["h1"]
    child = host.children["q", number]
    host.children["q", number] = msgspec.structs.replace(child, epoch=child_epoch(1, 0))
    script.report(host)
    lost = found(script, number)
    assert lost is not None
    assert (lost.kind, lost.certain) == (LossKind.MISSING, False)
    assert "superseded" in lost.why


@pytest.mark.parametrize("number", [MONITOR, 1])
def test_a_superseded_process_is_stopped_as_moved_before_another_one_is_started(
    script: Script, number: int
) -> None:
    host, floor = script.hosts["h1"], script.hosts["h1"].children["q", number].epoch
    host.children["q", number] = msgspec.structs.replace(
        host.children["q", number], epoch=child_epoch(1, 0)
    )
    host.asked.clear()
    script.live(REPAIR_CONFIRM_SECONDS + 1.0)
    stop, start = host.asked
    assert isinstance(stop, StopQueue)
    assert (stop.number, stop.reason) == (number, "moved"), "for clients the queue goes on"
    assert isinstance(start, StartExchange if number else StartMonitor)
    assert host.children["q", number].epoch >= floor


def test_what_a_report_leaves_out_is_missed_for_sure_only_by_a_later_manager(
    script: Script,
) -> None:
    host = script.hosts["h1"]
    del host.children["q", 1]
    script.report(host)
    lost = found(script, 1)
    assert lost is not None
    assert (lost.kind, lost.certain) == (LossKind.MISSING, False)
    host.epoch = script.draw()
    script.report(host)
    lost = found(script, 1)
    assert lost is not None
    assert lost.certain


def test_one_report_without_a_process_starts_nothing(script: Script) -> None:
    host = script.hosts["h1"]
    host.asked.clear()
    complete = host.report().children
    for _ in range(10):
        script.report(host, children=complete[:1])
        script.pass_time(REPAIR_CONFIRM_SECONDS / 2)
        script.settle()
        script.report(host, children=complete)
        script.pass_time(REPAIR_CONFIRM_SECONDS / 2)
        script.settle()
    assert host.asked == []


def test_what_is_left_out_for_long_enough_is_started_again(script: Script) -> None:
    host = script.hosts["h1"]
    del host.children["q", 1]
    script.live(REPAIR_CONFIRM_SECONDS + 1.0)
    assert host.children["q", 1].state == "running"


@pytest.mark.parametrize("starved", [False, True])
def test_a_host_that_said_it_is_starved_is_given_longer_before_it_is_lost(
    script: Script, starved: bool
) -> None:
    script.report(script.hosts["h1"], starved=starved)
    script.vanish("h1")
    script.expire_node("h1")
    script.live(STARVED_SECONDS - 5.0)
    assert script.machine.hosts.lost("h1") is not starved
    assert (("q", 1) in script.hosts["h2"].children) is not starved
    script.live(6.0)
    assert script.machine.hosts.lost("h1")


def test_what_is_lost_on_a_starved_host_is_set_up_elsewhere_though_other_things_there_live(
    script: Script,
) -> None:
    script.report(script.hosts["h1"], starved=True)
    script.vanish("h1", with_children=False)
    script.expire_node("h1")
    del script.hosts["h1"].children["q", 1]
    script.live(STARVED_SECONDS - 5.0)
    assert ("q", 1) not in script.hosts["h2"].children
    script.live(20.0)
    assert not script.machine.hosts.lost("h1")
    assert ("q", 1) in script.hosts["h2"].children


def test_a_starved_host_is_asked_to_start_something_for_a_longer_time() -> None:
    script = Script(PaperHost("h1"))
    message = StartMonitor(queue="q", queue_id=b"q", leader_epoch=1, limits=Limits())
    for starved, seconds in ((False, START_ASKS_SECONDS), (True, START_STARVED_ASKS_SECONDS)):
        script.report(script.hosts["h1"], starved=starved)
        assert _start_call(script.machine.hosts.demand("h1"), message).timeout == seconds
