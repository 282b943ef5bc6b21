import pytest
from hcm_host import HOST_EPOCH, QUEUE_ID, Host, answers, failure

from roq.errors import Unavailable
from roq.hcm.events import (
    Note,
    Registered,
    ReportToLeader,
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


def test_a_stop_is_answered_even_if_a_process_cannot_be_killed() -> None:
    host = Host(stop_seconds=5.0)
    host.obedient = False
    host.running(X1)
    host.effects.clear()
    host.stop_queue()
    host.advance(9)
    assert X1 in failure(answers(host.effects, "gcm")).COMMENT


def test_two_who_ask_for_the_same_stop_are_both_answered() -> None:
    host = Host()
    host.running(X1)
    host.stop_queue(peer="a")
    host.stop_queue(peer="b")
    host.end_asked()
    assert answers(host.effects, "a") == answers(host.effects, "b") == [Done(id=3)]


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
