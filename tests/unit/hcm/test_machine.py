import pytest
from hcm_host import HOST_EPOCH, QUEUE_ID, Host, answers, failure

from roq.errors import Unavailable
from roq.hcm.events import (
    Discard,
    Exited,
    Forget,
    Kill,
    Note,
    Registered,
    ReportToLeader,
    Spawn,
    Terminate,
)
from roq.machine import Tick
from roq.model import HOST_EPOCH_MAX, Limits, child_epoch
from roq.protocol.control import (
    NOT_LEADER,
    ChildAck,
    ChildReport,
    Done,
    Failure,
    HostReport,
    HostReportAck,
    Inventory,
    Started,
    StartExchange,
    StartMonitor,
    StopQueue,
)

X1 = "orders.x1"
MONITOR = "orders.monitor"


# --- starting -------------------------------------------------------------------------------------


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


def test_a_monitor_hears_who_leads_as_long_as_that_is_known() -> None:
    host = Host()
    host.start_monitor()
    host.running(MONITOR)
    host.advance(1.0)
    assert host.report(MONITOR) == [
        ChildAck(id=9, leader=host.machine._leader.endpoint, child=MONITOR)
    ]
    host.answers_leader = False
    host.advance(1.0)
    host.leader(Unavailable("no answer"))
    assert host.report(MONITOR) == [ChildAck(id=9, child=MONITOR)]


def test_a_child_is_told_all_it_needs() -> None:
    host = Host(orphan_seconds=10.0, kpi_seconds=0.5)
    host.start_exchange(4)
    [spec] = host.spawned
    assert (spec.child, spec.queue, spec.queue_id) == ("orders.x4", "orders", QUEUE_ID)
    assert spec.epoch == child_epoch(HOST_EPOCH, 1)
    assert (spec.bind, spec.advertise, spec.manager) == (
        "127.0.0.2", "127.0.0.2", "tcp://127.0.0.2:5100",
    )  # fmt: skip
    assert (spec.orphan_seconds, spec.kpi_seconds) == (10.0, 0.5)
    assert spec.monitor == "tcp://m:1"


def test_starting_again_what_runs_is_answered_at_once_with_the_same() -> None:
    host = Host()
    host.running(X1)
    [started] = host.start_exchange()
    assert isinstance(started, Started)
    assert len(host.spawned) == 1


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


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"queue": "../etc"}, "invalid_request"),
        ({"queue": ""}, "invalid_request"),
        ({"queue_id": b""}, "invalid_request"),
        ({"number": 0}, "invalid_request"),
        ({"number": -3}, "invalid_request"),
    ],
)
def test_a_start_that_makes_no_sense_is_refused(changes, code) -> None:
    host = Host()
    assert code == failure(host.start_exchange(**changes)).CODE
    assert host.spawned == []


def test_nothing_is_started_before_the_host_is_registered() -> None:
    host = Host(registered=False)
    assert failure(host.start_monitor()).CODE == "registry_away"
    host.handle(Registered(1))
    assert host.start_monitor() == []


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


# --- leaders --------------------------------------------------------------------------------------


def test_a_leader_is_known_by_its_answers_to_reports_as_well() -> None:
    host = Host()
    host.answers_leader = False
    host.advance(2.0)
    host.leader(HostReportAck(cluster="c1", leader_epoch=9))
    assert failure(host.start_monitor(leader_epoch=8)).CODE == "stale_epoch"
    assert host.start_monitor(leader_epoch=9) == []


def test_a_host_reports_which_leader_it_has_obeyed_last() -> None:
    host = Host()
    host.advance(2.0)
    assert host.reports[-1].report.leader_epoch == 0
    host.leader(HostReportAck(cluster="c1", leader_epoch=5))
    host.start_exchange(1, leader_epoch=9)
    host.advance(2.0)
    assert host.reports[-1].report.leader_epoch == 9


def test_a_host_writes_down_under_which_epoch_it_starts_something_before_it_does() -> None:
    host = Host()
    assert host.counted == HOST_EPOCH
    host.start_exchange(1, base=HOST_EPOCH + 7)
    assert "orders.x1" in host.processes, "and it looks when it starts one"
    assert host.counted == HOST_EPOCH + 7
    host.next_life(HOST_EPOCH + 8)
    assert host.counted == HOST_EPOCH + 8


def test_a_later_life_obeys_no_leader_before_the_one_that_the_earlier_life_has_obeyed() -> None:
    host = Host()
    host.answers_leader = False
    host.advance(2.0)
    host.leader(HostReportAck(cluster="c1", leader_epoch=9))
    host.next_life()
    host.advance(2.0)
    assert host.reports[-1].report.leader_epoch == 9
    assert failure(host.start_monitor(leader_epoch=8)).CODE == "stale_epoch"
    assert host.start_monitor(leader_epoch=9) == []


def test_a_lower_leader_epoch_is_refused_everywhere() -> None:
    host = Host()
    host.start_exchange(1, leader_epoch=5)
    assert failure(host.start_exchange(2, leader_epoch=4)).CODE == "stale_epoch"
    assert failure(host.start_monitor(leader_epoch=4)).CODE == "stale_epoch"
    assert failure(host.stop_queue(leader_epoch=4)).CODE == "stale_epoch"
    assert len(host.spawned) == 1


def test_an_epoch_that_no_leader_can_have_locks_nobody_out() -> None:
    host = Host()
    refused = failure(host.start_exchange(1, leader_epoch=HOST_EPOCH_MAX + 1))
    assert refused.CODE == "invalid_request"
    assert host.start_exchange(1, leader_epoch=1) == []


@pytest.mark.parametrize("kind", [StartMonitor, StartExchange, StopQueue])
def test_a_leader_of_another_cluster_is_not_obeyed(kind: type) -> None:
    """The address that it knows for its own host may have been given to this one."""
    host = Host()
    host.start_monitor()
    told = {"queue": "orders", "queue_id": QUEUE_ID, "leader_epoch": 9}
    more = {
        StartMonitor: {"limits": Limits()},
        StartExchange: {"limits": Limits(), "number": 2, "monitor": "tcp://m:1"},
        StopQueue: {},
    }[kind]
    refusal = failure(host.ask("gcm", kind(id=5, cluster="c2", **told, **more)))
    assert refusal.CODE == "invalid_request"
    assert "belongs to cluster c1, not to c2" in refusal.COMMENT
    assert len(host.spawned) == 1
    mine = StopQueue(id=6, queue="none", leader_epoch=1, cluster="c1")
    assert host.ask("gcm", mine) == [Done(id=6)]


def test_a_refused_start_does_not_raise_the_leader_epoch() -> None:
    host = Host()
    host.start_exchange(1, queue="a/b", leader_epoch=9)
    assert host.start_exchange(1, leader_epoch=2) == []


# --- crashes --------------------------------------------------------------------------------------


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


# --- reports of children --------------------------------------------------------------------------


def test_an_unknown_child_is_told_to_stop() -> None:
    host = Host()
    host.running(X1)
    info = host.processes[X1].info()
    host.stop_queue()
    host.end_asked()
    assert host.ask("x", ChildReport(id=4, child=info)) == [ChildAck(id=4, action="stop", child=X1)]


def test_a_child_of_an_earlier_epoch_is_told_to_stop() -> None:
    host = Host()
    host.running(X1)
    info = host.processes[X1].info()
    host.crash(X1)
    assert host.ask("x", ChildReport(id=4, child=info)) == [ChildAck(id=4, action="stop", child=X1)]


def test_a_child_that_is_being_stopped_hears_the_reason() -> None:
    host = Host()
    host.running(MONITOR)
    host.stop_queue(reason="removed")
    assert host.report(MONITOR, "stopping") == [
        ChildAck(id=9, action="stop", reason="removed", child=MONITOR)
    ]


def test_an_address_that_cannot_be_one_is_refused() -> None:
    host = Host()
    host.start_exchange()
    host.processes[X1].ports = (0, 99_999)
    assert failure(host.report(X1)).CODE == "invalid_request"
    assert host.last_report[X1].state == "starting"


# --- monitors that move ---------------------------------------------------------------------------


def test_an_exchange_hears_at_once_where_its_restarted_local_monitor_is() -> None:
    host = Host()
    host.running(MONITOR, X1)
    assert host.report(X1)[0].monitor == "tcp://127.0.0.2:5500"
    host.crash(MONITOR)
    host.effects.clear()
    host.report(MONITOR)
    assert answers(host.effects, X1) == [ChildAck(monitor="tcp://127.0.0.2:5501")]
    assert host.report(X1)[0].monitor == "tcp://127.0.0.2:5501"


def test_an_exchange_hears_at_once_what_the_leader_says_about_a_monitor_elsewhere() -> None:
    host = Host()
    host.running(X1)
    host.answers_leader = False
    host.advance(1)
    host.effects.clear()
    host.leader(HostReportAck(cluster="c1", monitors={"orders": "tcp://new:1", "other": "tcp://o"}))
    assert answers(host.effects, X1) == [ChildAck(monitor="tcp://new:1")]
    host.crash(X1)
    assert host.spawned[-1].monitor == "tcp://new:1"


def test_the_leaders_older_word_does_not_replace_the_local_monitors() -> None:
    host = Host()
    host.running(MONITOR, X1)
    host.answers_leader = False
    host.advance(1)
    host.leader(HostReportAck(cluster="c1", monitors={"orders": "tcp://old:1"}))
    assert host.report(X1)[0].monitor == "tcp://127.0.0.2:5500"


# --- stopping -------------------------------------------------------------------------------------


def test_a_stop_is_answered_when_the_last_process_is_gone() -> None:
    host = Host()
    host.running(MONITOR, "orders.x1", "orders.x2", "other.x1")
    assert host.stop_queue() == []
    assert [each for each in host.effects if isinstance(each, Terminate)] == [
        Terminate(MONITOR), Terminate("orders.x1"), Terminate("orders.x2"),
    ]  # fmt: skip
    host.crash("orders.x1", "exit code 0")
    host.crash(MONITOR, "exit code 0")
    assert answers(host.effects, "gcm")[-1] != Done(id=3)
    host.crash("orders.x2", "exit code 0")
    assert answers(host.effects, "gcm")[-1] == Done(id=3)
    assert set(host.last_report) == {"other.x1"}


def test_a_stop_of_nothing_is_answered_at_once() -> None:
    assert Host().stop_queue() == [Done(id=3)]


def test_one_exchange_can_be_stopped_alone() -> None:
    host = Host()
    host.running("orders.x1", "orders.x2")
    host.stop_queue(number=2)
    host.end_asked()
    assert set(host.last_report) == {"orders.x1"}


def test_a_stop_for_another_life_of_the_queue_touches_nothing() -> None:
    host = Host()
    host.running(X1)
    assert host.stop_queue(queue_id=b"x" * 16) == [Done(id=3)]
    assert host.last_report[X1].state == "running"


def test_what_does_not_end_is_killed_after_the_grace() -> None:
    host = Host(stop_seconds=5.0)
    host.running(X1)
    host.stop_queue()
    host.advance(4.9)
    assert Kill(X1) not in host.effects
    host.advance(0.2)
    assert Kill(X1) in host.effects
    assert answers(host.effects, "gcm")[-1] == Done(id=3)


def test_a_stop_is_answered_even_if_a_process_cannot_be_killed() -> None:
    host = Host(stop_seconds=5.0)
    host.obedient = False
    host.running(X1)
    host.effects.clear()
    host.stop_queue()
    host.advance(9)
    assert X1 in failure(answers(host.effects, "gcm")).COMMENT


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


def test_two_who_ask_for_the_same_stop_are_both_answered() -> None:
    host = Host()
    host.running(X1)
    host.stop_queue(peer="a")
    host.stop_queue(peer="b")
    host.end_asked()
    assert answers(host.effects, "a") == answers(host.effects, "b") == [Done(id=3)]


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


# --- the leader -----------------------------------------------------------------------------------


def test_a_report_goes_out_every_second() -> None:
    host = Host()
    host.reports.clear()
    host.advance(5)
    assert len(host.reports) == 5
    assert host.reports[0].report.host == "127.0.0.2"
    assert host.reports[0].report.epoch == HOST_EPOCH


def test_no_report_goes_out_before_the_host_is_registered() -> None:
    host = Host(registered=False)
    host.advance(5)
    assert host.reports == []


def test_the_first_answer_makes_the_host_ready_once() -> None:
    host = Host()
    host.advance(3)
    assert host.announced == ["c1"]
    assert host.reports[-1].report.cluster == "c1"


def test_a_manager_that_does_not_lead_names_the_one_that_does() -> None:
    host = Host()
    host.answers_leader = False
    host.advance(1)
    host.reports.clear()
    host.leader(Failure(RESULT=NOT_LEADER, COMMENT="no", CODE="not_leader", ENDPOINT="tcp://l:1"))
    assert [each.endpoint for each in host.reports] == ["tcp://l:1"]


def test_managers_that_name_each_other_are_not_asked_without_a_pause() -> None:
    host = Host()
    host.answers_leader = False
    host.advance(1)
    host.reports.clear()
    for _ in range(20):
        host.leader(Failure(RESULT=NOT_LEADER, COMMENT="no", ENDPOINT="tcp://l:1"))
    assert len(host.reports) <= 5


@pytest.mark.parametrize(
    "answer",
    [
        Unavailable("no answer"),
        Failure(RESULT=1101, COMMENT="no leader"),
        Failure(RESULT=NOT_LEADER, COMMENT="nobody leads", ENDPOINT=""),
        Failure(RESULT=NOT_LEADER, COMMENT="nonsense", ENDPOINT="file:///etc"),
        Done(),
    ],
)
def test_without_a_leader_all_configured_managers_are_tried_in_turn(answer) -> None:
    host = Host()
    host.answers_leader = False
    host.advance(1)
    host.reports.clear()
    for _ in range(3):
        host.leader(answer)
        host.advance(1)
    assert [each.endpoint for each in host.reports] == [
        "tcp://127.0.0.1:5010", "tcp://127.0.0.1:5000", "tcp://127.0.0.1:5010",
    ]  # fmt: skip
    warnings = [each for each in host.effects if isinstance(each, Note) and each.warning]
    assert len(warnings) == 1


def test_changes_while_a_report_is_under_way_are_reported_right_after_it() -> None:
    host = Host()
    host.answers_leader = False
    host.advance(1)
    host.reports.clear()
    host.start_exchange()
    host.report(X1)
    assert host.reports == []
    host.leader(HostReportAck(cluster="c1"))
    assert host.last_report[X1].state == "running"


def test_the_inventory_tells_of_all_children() -> None:
    host = Host()
    host.running(MONITOR, X1)
    [inventory] = host.ask("gcm", Inventory(id=8))
    assert isinstance(inventory, HostReport)
    assert inventory.id == 8
    assert {child.child for child in inventory.children} == {MONITOR, X1}


# --- the end --------------------------------------------------------------------------------------


def test_the_host_manager_ends_when_all_children_are_gone() -> None:
    host = Host()
    host.running(MONITOR, X1)
    host.stop()
    assert not host.finished
    host.end_asked()
    assert host.finished


def test_children_of_a_host_that_goes_are_not_told_that_the_queue_ends() -> None:
    host = Host()
    host.running(MONITOR)
    host.stop()
    assert host.report(MONITOR, "stopping") == [
        ChildAck(id=9, action="stop", reason="", child=MONITOR)
    ]


def test_the_end_is_bounded_even_if_a_process_cannot_be_killed() -> None:
    host = Host(stop_seconds=5.0)
    host.obedient = False
    host.running(X1)
    host.stop()
    host.advance(9)
    assert host.finished


def test_a_host_manager_without_children_ends_at_once() -> None:
    host = Host()
    host.stop()
    assert host.finished
    assert failure(host.start_monitor()).CODE == "failed"


def test_a_host_manager_that_is_not_registered_ends_at_once() -> None:
    host = Host(registered=False)
    host.stop()
    assert host.finished


def test_a_new_session_of_the_registry_keeps_children_and_epochs() -> None:
    host = Host()
    host.running(X1)
    host.handle(Registered(HOST_EPOCH))
    host.start_exchange(2)
    assert host.spawned[1].epoch == child_epoch(HOST_EPOCH, 2)


def test_a_tick_that_comes_early_does_nothing() -> None:
    host = Host()
    assert [each for each in host.handle(Tick()) if not isinstance(each, ReportToLeader)] == []


def test_epochs_that_are_used_up_are_not_given_twice() -> None:
    host = Host()
    host.machine._supervisor._epochs._number = (1 << 16) - 2
    host.running(X1)
    assert "restart it" in failure(host.start_exchange(2)).COMMENT
    host.crash(X1)
    assert host.last_report[X1].state == "failed"
