"""The life of a child: how it starts, crashes, is given up, and ends; and who is told."""

import pytest
from hcm_host import Host, answers, failure

from roq.hcm.events import (
    Discard,
    Exited,
    Forget,
    Kill,
    Note,
    Spawn,
)
from roq.hcm.supervisor import CHILDREN_MAX, LAST_LINE_MAX, UNENDING_SECONDS
from roq.protocol.control import (
    ChildAck,
    Done,
    Started,
)

X1 = "orders.x1"
MONITOR = "orders.monitor"


def test_a_start_is_answered_when_the_child_reports_for_the_first_time() -> None:
    host = Host()
    assert host.start_exchange() == []
    [ack] = host.report(X1)
    assert ack == ChildAck(id=9, monitor="tcp://m:1")
    [started] = answers(host.effects, "gcm")
    assert isinstance(started, Started)
    assert started.id == 2
    assert started.child == host.last_report[X1]
    assert (started.child.state, started.child.data) == ("running", "tcp://127.0.0.2:6000")


def test_all_who_wait_for_the_same_child_are_answered() -> None:
    host = Host()
    host.start_exchange(peer="a")
    host.start_exchange(peer="b")
    host.report(X1)
    assert len(host.spawned) == 1
    for peer in "ab":
        assert isinstance(answers(host.effects, peer)[0], Started)


def test_a_start_that_ends_at_once_fails_with_the_last_line_of_the_log() -> None:
    host = Host()
    host.start_exchange()
    host.crash(X1, "exit code 69", "no free port on 127.0.0.2 from 6000 to 6099")
    text = failure(answers(host.effects, "gcm")).COMMENT
    assert "orders.x1" in text
    assert "exit code 69" in text
    assert "no free port on 127.0.0.2" in text
    assert host.last_report == {}
    assert len(host.spawned) == 1


def test_a_start_that_never_reports_is_killed_and_fails_within_the_bound() -> None:
    host = Host(start_seconds=10.0)
    host.start_exchange()
    host.advance(9.9)
    assert answers(host.effects, "gcm") == []
    host.advance(0.2)
    assert Kill(X1) in host.effects
    assert "did not report within 10 s" in failure(answers(host.effects, "gcm")).COMMENT


def test_a_start_is_answered_even_if_the_process_cannot_be_killed() -> None:
    host = Host(start_seconds=10.0)
    host.obedient = False
    host.start_exchange()
    host.advance(14)
    assert failure(answers(host.effects, "gcm")).CODE == "unavailable"


def test_a_process_that_cannot_even_be_started_fails_the_start() -> None:
    host = Host()
    host.spawn_fails = "[Errno 11] Resource temporarily unavailable"
    assert "Resource temporarily" in failure(host.start_exchange()).COMMENT


def test_after_a_failed_start_the_next_one_begins_anew() -> None:
    host = Host()
    host.start_exchange()
    host.crash(X1)
    host.effects.clear()
    host.start_exchange()
    host.report(X1)
    assert isinstance(answers(host.effects, "gcm")[0], Started)


def test_a_full_host_refuses_exchanges_and_says_why_but_takes_monitors() -> None:
    host = Host(exchange_max=2)
    host.running("orders.x1", "orders.x2")
    refused = failure(host.start_exchange(3))
    assert refused.CODE == "no_capacity"
    assert "exchange.max_perhost" in refused.COMMENT
    assert host.start_monitor() == []
    assert isinstance(host.start_exchange(2)[0], Started)


def test_room_is_free_again_once_an_exchange_is_stopped() -> None:
    host = Host(exchange_max=1)
    host.running(X1)
    host.stop_queue()
    host.end_asked()
    assert host.start_exchange(2) == []


def test_a_child_that_crashes_is_started_again_at_once_with_a_higher_epoch() -> None:
    host = Host()
    host.running(X1)
    effects = host.crash(X1)
    assert any(isinstance(each, Spawn) for each in effects)
    assert host.spawned[1].epoch > host.spawned[0].epoch
    assert host.last_report[X1].state == "restarting"
    host.report(X1)
    assert (host.last_report[X1].state, host.last_report[X1].restarts) == ("running", 1)
    assert host.last_report[X1].epoch == host.spawned[1].epoch


def test_the_leader_hears_of_a_crash_and_of_the_restart_at_once() -> None:
    host = Host()
    host.running(X1)
    host.advance(0.5)
    host.reports.clear()
    host.crash(X1)
    assert host.reports
    host.reports.clear()
    host.report(X1)
    assert host.reports


def test_from_the_second_crash_on_the_restart_waits_longer_and_longer() -> None:
    host = Host()
    host.running(X1)
    delays = []
    for _ in range(4):
        crashed_at = host.now
        count = len(host.spawned)
        host.crash(X1)
        while len(host.spawned) == count:
            host.advance(0.25)
        delays.append(host.now - crashed_at)
        host.report(X1)
    assert delays == [0.0, 0.5, 1.0, 2.0]


def test_too_many_crashes_within_the_window_and_the_child_has_failed() -> None:
    host = Host()
    host.running(X1)
    for _ in range(5):
        host.crash(X1, "exit code 70", "MemoryError")
        host.advance(3)
        if X1 in host.processes:
            host.report(X1)
    child = host.last_report[X1]
    assert child.state == "failed"
    assert "5 times within 60 s" in child.reason
    assert "MemoryError" in child.reason
    assert len(host.spawned) == 5
    host.advance(600)
    assert len(host.spawned) == 5


def test_a_failed_child_that_is_asked_for_again_gets_all_its_chances_again() -> None:
    host = Host()
    host.running(X1)
    for _ in range(5):
        host.crash(X1)
        host.advance(3)
        if X1 in host.processes:
            host.report(X1)
    host.effects.clear()
    assert host.start_exchange() == []
    host.report(X1)
    assert isinstance(answers(host.effects, "gcm")[0], Started)


def test_crashes_that_are_long_past_do_not_count() -> None:
    host = Host()
    host.running(X1)
    for _ in range(10):
        host.crash(X1)
        host.report(X1)
        host.advance(61)
        assert host.last_report[X1].state == "running"


def test_a_start_asked_for_while_the_child_restarts_is_answered_when_it_runs() -> None:
    host = Host()
    host.running(X1)
    host.crash(X1)
    host.effects.clear()
    assert host.start_exchange() == []
    host.report(X1)
    assert isinstance(answers(host.effects, "gcm")[0], Started)


def test_a_restarted_monitor_is_told_that_there_was_one_before() -> None:
    host = Host()
    host.running(MONITOR)
    host.crash(MONITOR)
    assert [spec.restarted for spec in host.spawned] == [False, True]


def test_an_end_of_an_earlier_process_means_nothing() -> None:
    host = Host()
    host.running(X1)
    old = host.spawned[0].epoch
    host.crash(X1)
    host.report(X1)
    host.handle(Exited(X1, old, "exit code 1", ""))
    assert host.last_report[X1].state == "running"


def test_ports_are_not_given_out_again_for_ten_minutes() -> None:
    host = Host()
    host.running(X1)
    first = host.processes[X1].ports
    host.crash(X1)
    assert set(first) <= set(host.spawned[1].avoid_ports)
    host.report(X1)
    host.advance(590)
    host.start_exchange(2)
    assert set(first) <= set(host.spawned[2].avoid_ports)
    host.advance(11)
    host.start_exchange(3)
    assert not set(first) & set(host.spawned[3].avoid_ports)


def test_ports_in_use_are_avoided_as_well() -> None:
    host = Host()
    host.running(X1)
    host.start_exchange(2)
    assert set(host.processes[X1].ports) <= set(host.spawned[1].avoid_ports)


def test_an_exchange_hears_at_once_where_its_restarted_local_monitor_is() -> None:
    host = Host()
    host.running(MONITOR, X1)
    assert host.report(X1)[0].monitor == "tcp://127.0.0.2:5500"
    host.crash(MONITOR)
    host.effects.clear()
    host.report(MONITOR)
    assert answers(host.effects, X1) == [ChildAck(monitor="tcp://127.0.0.2:5501")]
    assert host.report(X1)[0].monitor == "tcp://127.0.0.2:5501"


def test_what_does_not_end_is_killed_after_the_grace() -> None:
    host = Host(stop_seconds=5.0)
    host.running(X1)
    host.stop_queue()
    host.advance(4.9)
    assert Kill(X1) not in host.effects
    host.advance(0.2)
    assert Kill(X1) in host.effects
    assert answers(host.effects, "gcm")[-1] == Done(id=3)


def test_a_process_that_nothing_ends_makes_its_child_failed_for_others_to_take_over() -> None:
    host = Host()
    host.running(X1)
    host.obedient = False
    host.processes[X1].state = "D"
    host.advance(30)
    told = host.last_report[X1]
    assert told.state == "failed"
    assert "does not end, not even when killed" in told.reason
    host.effects.clear()
    host.start_exchange()
    assert "cannot be started here" in failure(answers(host.effects, "gcm")).COMMENT
    host.crash(X1, status="ended by signal 9")
    host.effects.clear()
    assert host.start_exchange() == []
    host.report(X1)
    assert isinstance(answers(host.effects, "gcm")[0], Started)


def test_a_child_that_is_stopped_is_not_started_again() -> None:
    host = Host()
    host.running(X1)
    host.stop_queue()
    host.end_asked()
    host.advance(60)
    assert len(host.spawned) == 1


def test_a_stop_while_starting_answers_the_start_too() -> None:
    host = Host()
    host.start_exchange(peer="starter")
    host.stop_queue()
    host.end_asked()
    assert failure(answers(host.effects, "starter")).CODE == "unavailable"
    assert answers(host.effects, "gcm") == [Done(id=3)]


def test_a_stop_while_waiting_for_the_next_start_needs_no_process() -> None:
    host = Host()
    host.running(X1)
    host.crash(X1)
    host.report(X1)
    host.crash(X1)
    assert X1 not in host.processes
    assert host.stop_queue() == [Done(id=3)]
    host.advance(60)
    assert X1 not in host.processes


def test_only_a_removed_queue_loses_its_logs() -> None:
    host = Host()
    host.running(X1, "other.x1")
    host.stop_queue(reason="stopped")
    host.stop_queue(queue="other", reason="removed")
    host.end_asked()
    assert Discard(X1, with_log=False) in host.effects
    assert Discard("other.x1", with_log=True) in host.effects
    assert [each for each in host.effects if isinstance(each, Forget)] == [Forget("other")]


def test_a_start_while_the_old_process_still_ends_waits_for_its_end() -> None:
    host = Host()
    host.running(X1)
    host.stop_queue()
    host.effects.clear()
    assert host.start_exchange(peer="starter") == []
    host.end_asked()
    assert len(host.spawned) == 2
    host.report(X1)
    assert isinstance(answers(host.effects, "starter")[0], Started)


def test_a_new_life_of_a_queue_replaces_what_is_left_of_the_old_one() -> None:
    host = Host()
    host.running(X1)
    assert host.start_exchange(peer="starter", queue_id=b"n" * 16) == []
    assert host.processes[X1].asked_to_end
    host.end_asked()
    assert host.spawned[-1].queue_id == b"n" * 16
    host.report(X1)
    assert isinstance(answers(host.effects, "starter")[0], Started)


def test_the_last_line_of_a_long_log_is_cut() -> None:
    host = Host()
    host.start_exchange()
    host.crash(X1, last_line="x" * 10_000)
    [refused] = answers(host.effects, "gcm")
    assert "its log ends with: " + "x" * LAST_LINE_MAX in refused.COMMENT
    assert len(refused.COMMENT) < LAST_LINE_MAX + 200


def test_who_asks_twice_for_the_place_of_one_that_still_ends_is_heard_last() -> None:
    host = Host()
    host.running(X1)
    host.start_exchange(queue_id=b"n" * 16, peer="first")
    host.start_exchange(queue_id=b"m" * 16, peer="second")
    [refused] = answers(host.effects, "first")
    assert "asked for again since" in refused.COMMENT
    host.end_asked()
    host.report(X1)
    [started] = answers(host.effects, "second")
    assert started.child.queue_id == b"m" * 16


def test_no_more_processes_are_started_than_one_host_manager_watches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert CHILDREN_MAX == 2_000
    monkeypatch.setattr("roq.hcm.supervisor.CHILDREN_MAX", 1)
    host = Host()
    host.running(MONITOR)
    refused = failure(host.start_exchange())
    assert (refused.CODE, "runs 1 processes already" in refused.COMMENT) == ("no_capacity", True)


def test_a_process_that_was_killed_and_does_not_end_is_waited_for_so_long() -> None:
    host = Host()
    host.running(X1)
    host.obedient = False
    host.stop_queue()
    host.advance(5.0)
    assert any(isinstance(each, Kill) for each in host.effects)
    host.effects.clear()
    host.advance(UNENDING_SECONDS - 0.5)
    assert not any(isinstance(each, Note) for each in host.effects)
    host.advance(1.0)
    [told] = [each for each in host.effects if isinstance(each, Note)]
    assert (told.event, told.warning) == ("child_unending", True)
    assert "does not end, not even when killed: does a disk" in told.text


def test_what_an_earlier_life_has_left_counts_as_one_that_may_be_asked_for() -> None:
    host = Host()
    host.running(X1)
    host.next_life()
    assert any(isinstance(each, Note) and each.event == "child_adopted" for each in host.effects)
    host.spawned.clear()
    host.report(X1)
    [started] = host.start_exchange(peer="later")
    assert isinstance(started, Started)
    assert host.spawned == []
