"""A host manager that was killed: what its next life makes of the children that still run."""

from __future__ import annotations

from hcm_host import HOST_EPOCH, Host, answers, failure

from roq.hcm.children import QUARANTINE_SECONDS
from roq.hcm.events import Adopted, Discard, Exited, Kill, Spawn, Terminate
from roq.model import child_epoch, host_epoch
from roq.protocol.control import ChildAck, Done, Started

X1 = "orders.x1"
MONITOR = "orders.monitor"


def restarted(*children: str, **changes: object) -> Host:
    """A host whose manager was killed while these ran, and is back."""
    host = Host(**changes)
    host.running(*children)
    host.effects.clear()
    host.next_life()
    return host


def test_what_still_runs_is_known_from_the_start_with_its_epoch() -> None:
    host = restarted(MONITOR, X1)
    child = host.last_report[X1]
    assert (child.state, child.epoch, child.pid) == (
        "starting",
        host.processes[X1].spec.epoch,
        host.processes[X1].pid,
    )
    assert set(host.last_report) == {MONITOR, X1}
    assert not any(isinstance(each, Spawn | Terminate | Kill) for each in host.effects)


def test_it_runs_after_its_first_report() -> None:
    host = restarted(X1)
    assert host.report(X1) == [ChildAck(id=9, monitor="tcp://m:1")]
    told = host.last_report[X1]
    assert (told.state, told.reason, told.data) == ("running", "", "tcp://127.0.0.2:6000")
    host.advance(60)
    assert X1 in host.processes


def test_a_start_of_what_was_adopted_is_answered_when_it_reports() -> None:
    host = restarted(X1)
    assert host.start_exchange() == []
    host.report(X1)
    [started] = answers(host.effects, "gcm")
    assert isinstance(started, Started)
    assert host.spawned[1:] == []


def test_when_it_crashes_it_is_started_again_above_its_epoch() -> None:
    host = restarted(X1)
    host.report(X1)
    host.crash(X1, "ended (exit status unknown)")
    assert host.spawned[1].epoch == child_epoch(HOST_EPOCH + 1, 1)
    assert "exit status unknown" in host.last_report[X1].reason


def test_it_may_crash_before_it_has_reported_and_before_the_host_is_registered() -> None:
    host = Host()
    host.running(X1)
    old = host.processes[X1].spec.epoch
    host.next_life(registered=False)
    host.crash(X1)
    assert host.spawned[1].epoch > old
    assert host_epoch(host.spawned[1].epoch) == HOST_EPOCH


def test_one_that_does_not_report_in_time_is_killed_and_started_again() -> None:
    host = restarted(X1, start_seconds=10.0)
    host.advance(9.9)
    assert Kill(X1) not in host.effects
    host.advance(0.2)
    assert Kill(X1) in host.effects
    assert "did not report within 10 s" in host.last_report[X1].reason
    assert len(host.spawned) == 2


def test_one_that_an_earlier_life_has_asked_to_stop_is_not_started_again() -> None:
    host = restarted(X1)
    host.report(X1, "stopping")
    assert host.last_report[X1].state == "stopping"
    host.start_exchange()
    host.crash(X1)
    # Whoever has asked for it since gets a new one.
    assert len(host.spawned) == 2
    host.report(X1)
    assert isinstance(answers(host.effects, "gcm")[-1], Started)


def test_one_that_stops_and_is_not_asked_for_is_gone() -> None:
    host = restarted(X1)
    host.report(X1, "stopping")
    host.crash(X1)
    assert host.last_report == {}
    assert Discard(X1, with_log=False) in host.effects


def test_one_that_stops_and_does_not_end_is_killed() -> None:
    host = restarted(X1, stop_seconds=5.0)
    host.report(X1, "stopping")
    host.advance(5.1)
    assert Kill(X1) in host.effects
    assert host.last_report == {}


def test_the_end_of_the_host_manager_ends_the_adopted_too() -> None:
    host = restarted(MONITOR, X1)
    host.report(X1)
    host.stop()
    assert [each for each in host.effects if isinstance(each, Terminate)] == [
        Terminate(MONITOR),
        Terminate(X1),
    ]
    host.end_asked()
    assert host.finished


def test_adopted_children_that_ignore_sigterm_are_killed_at_the_end() -> None:
    host = restarted(MONITOR, X1, stop_seconds=5.0)
    host.stop()
    host.advance(5.1)
    assert Kill(MONITOR) in host.effects
    assert Kill(X1) in host.effects
    assert host.finished


def test_a_stop_of_a_queue_means_the_adopted_too() -> None:
    host = restarted(X1)
    assert host.stop_queue() == []
    host.end_asked()
    assert answers(host.effects, "gcm") == [Done(id=3)]


def test_another_life_of_the_queue_replaces_an_adopted_child() -> None:
    host = restarted(X1)
    host.start_exchange(queue_id=b"other" * 3)
    assert Terminate(X1) in host.effects
    host.end_asked()
    assert host.spawned[-1].queue_id == b"other" * 3


def test_ports_of_the_adopted_are_avoided_once_they_have_told_them() -> None:
    host = restarted(X1)
    host.report(X1)
    host.start_exchange(2)
    assert set(host.processes[X1].ports) <= set(host.spawned[-1].avoid_ports)


def test_ports_that_rested_for_the_adopted_rest_on() -> None:
    host = Host()
    host.running(X1)
    resting = set(host.processes[X1].ports)
    host.crash(X1)
    host.report(X1)
    host.next_life()
    host.start_exchange(2)
    assert resting <= set(host.spawned[-1].avoid_ports)
    host.report("orders.x2")
    host.advance(QUARANTINE_SECONDS + 1)
    host.start_exchange(3)
    assert not resting & set(host.spawned[-1].avoid_ports)


def test_ports_of_the_adopted_rest_even_if_they_end_before_they_have_told_them_again() -> None:
    host = restarted(X1)
    ports = set(host.processes[X1].ports)
    host.crash(X1)
    assert ports <= set(host.spawned[-1].avoid_ports)


def test_the_adopted_take_room() -> None:
    host = restarted(X1, exchange_max=1)
    assert failure(host.start_exchange(2)).CODE == "no_capacity"


def test_a_host_manager_may_be_killed_again_and_again() -> None:
    host = restarted(MONITOR, X1)
    epochs = {name: each.spec.epoch for name, each in host.processes.items()}
    for life in range(3):
        host.next_life(HOST_EPOCH + 2 + life)
    host.report(X1)
    host.report(MONITOR)
    assert {name: child.epoch for name, child in host.last_report.items()} == epochs
    host.crash(MONITOR)
    assert host.spawned[-1].epoch > epochs[MONITOR]
    assert host.spawned[-1].restarted


def test_a_second_one_of_the_same_name_is_left_alone() -> None:
    host = restarted(X1)
    process = host.processes[X1]
    host.handle(Adopted(process.spec, 999))
    assert host.last_report[X1].pid == process.pid


def test_one_that_was_started_and_not_written_down_is_told_to_stop() -> None:
    host = Host()
    host.running(X1)
    process = host.processes.pop(X1)
    host.next_life()
    host.processes[X1] = process
    assert host.report(X1) == [ChildAck(id=9, action="stop", child=X1)]


def test_the_end_of_a_process_of_an_earlier_life_means_nothing_to_the_next_one() -> None:
    host = restarted(X1)
    host.report(X1)
    host.handle(Exited(X1, child_epoch(1, 1), "exit code 0", ""))
    assert host.last_report[X1].state == "running"


def test_a_child_whose_place_a_newer_process_has_is_not_started_again() -> None:
    host = restarted(X1)
    host.report(X1)
    host.report(X1, "superseded")
    assert host.last_report[X1].state == "stopping"
    host.crash(X1, "exit code 0")
    assert host.last_report == {}
    assert len(host.spawned) == 1


# --- bases of epochs ------------------------------------------------------------------------------


def test_a_child_from_a_lost_host_counts_under_its_base_for_all_its_life_here() -> None:
    host = Host()
    host.start_exchange(base=8)
    assert host.spawned[-1].epoch == child_epoch(8, 1)
    host.report(X1)
    host.crash(X1)
    assert host.spawned[-1].epoch == child_epoch(8, 2)
    host.report(X1)
    host.next_life(HOST_EPOCH + 1)
    host.report(X1)
    host.crash(X1)
    host.report(X1)
    host.stop_queue()
    host.end_asked()
    host.start_exchange()
    assert host_epoch(host.spawned[-1].epoch) == 8
    assert host.spawned[-1].epoch > host.spawned[-2].epoch


def test_a_base_below_the_epoch_of_the_host_changes_nothing() -> None:
    host = Host()
    host.start_monitor(base=HOST_EPOCH - 1)
    assert host.spawned[-1].epoch == child_epoch(HOST_EPOCH, 1)


def test_a_base_for_a_child_that_runs_counts_from_its_next_process_on() -> None:
    host = Host()
    host.running(X1)
    [started] = host.start_exchange(base=9)
    assert isinstance(started, Started)
    assert host_epoch(started.child.epoch) == HOST_EPOCH
    host.crash(X1)
    assert host_epoch(host.spawned[-1].epoch) == 9


def test_a_base_that_cannot_be_one_is_refused() -> None:
    host = Host()
    assert failure(host.start_exchange(base=-1)).CODE == "invalid_request"
    assert failure(host.start_monitor(base=1 << 20)).CODE == "invalid_request"
    assert host.spawned == []


# --- hung children --------------------------------------------------------------------------------


def test_a_child_that_is_stopped_is_killed_and_replaced_at_once() -> None:
    host = Host()
    host.running(X1)
    host.processes[X1].state = "T"
    host.advance(1.3)
    assert Kill(X1) in host.effects
    assert len(host.spawned) == 2
    told = host.last_report[X1]
    assert (told.state, told.restarts) == ("restarting", 1)
    assert "is stopped" in told.reason
    host.report(X1)
    assert host.last_report[X1].state == "running"


def test_a_child_that_hangs_and_cannot_be_killed_is_shown_with_the_reason() -> None:
    host = Host()
    host.running(X1)
    host.processes[X1].state = "D"
    host.obedient = False
    host.advance(12)
    told = host.last_report[X1]
    assert told.state == "restarting"
    assert "has hung" in told.reason
    assert len(host.spawned) == 1
    # Its late reports change nothing.
    host.report(X1)
    assert host.last_report[X1].state == "restarting"


def test_a_child_that_hangs_again_and_again_has_failed() -> None:
    host = Host()
    host.running(X1)
    for _ in range(20):
        if X1 in host.processes:
            host.report(X1)
            host.processes[X1].state = "T"
        host.advance(1.5)
    told = host.last_report[X1]
    assert told.state == "failed"
    assert "is stopped" in told.reason


def test_a_silent_child_that_works_goes_on() -> None:
    host = Host()
    host.running(X1)
    host.processes[X1].state = "R"
    host.advance(9)
    assert len(host.spawned) == 1
    host.report(X1)
    host.advance(9)
    assert host.last_report[X1].state == "running"


def test_a_child_that_is_being_stopped_has_its_own_time_limit() -> None:
    host = Host(stop_seconds=5.0)
    host.running(X1)
    host.processes[X1].state = "T"
    host.stop_queue()
    host.advance(4.9)
    assert Kill(X1) not in host.effects


# --- what the system refuses ----------------------------------------------------------------------


def test_what_the_system_refuses_to_start_again_is_tried_for_a_minute() -> None:
    host = Host()
    host.running(X1)
    host.spawn_fails = "No space left on device"
    host.crash(X1)
    host.advance(50)
    told = host.last_report[X1]
    assert told.state == "restarting"
    assert "No space left" in told.reason
    host.spawn_fails = ""
    host.advance(10)
    host.report(X1)
    assert host.last_report[X1].state == "running"


def test_what_the_system_refuses_for_longer_has_failed_until_it_is_asked_for() -> None:
    host = Host()
    host.running(X1)
    host.spawn_fails = "Too many open files"
    host.crash(X1)
    host.advance(90)
    told = host.last_report[X1]
    assert told.state == "failed"
    assert "Too many open files" in told.reason
    tries = len(host.spawned)
    assert tries < 20
    host.spawn_fails = ""
    host.advance(600)
    assert len(host.spawned) == tries
    host.start_exchange()
    host.report(X1)
    assert host.last_report[X1].state == "running"
