"""Exchanges whose logs are on the disk of this host."""

from __future__ import annotations

import pytest
from hcm_host import HOST_EPOCH, QUEUE_ID, Host

from roq.hcm.events import Erase, Reply
from roq.model import HOST_EPOCH_MAX, child_number
from roq.protocol.control import Done, Failure, Started
from roq.protocol.spec import ExchangeSpec

X1 = "orders.x1"
LOGS = "/data/logs"
FOLDER = f"{LOGS}/{QUEUE_ID.hex()}/x1"


def durable(durability: str = "flush", **changes: object) -> Host:
    """A host on which one durable exchange runs."""
    host = Host(logs=LOGS, **changes)  # type: ignore[arg-type]
    host.start_exchange(durability=durability)
    host.report(X1)
    return host


def spec(host: Host) -> ExchangeSpec:
    made = host.spawned[-1]
    assert isinstance(made, ExchangeSpec)
    return made


def erased(host: Host) -> list[Erase]:
    return [each for each in host.effects if isinstance(each, Erase)]


@pytest.mark.parametrize("status", ["ended by signal 9", "ended (exit status unknown)"])
def test_one_that_is_killed_while_it_serves_is_started_again_at_once_however_often(
    status: str,
) -> None:
    host = durable()
    for _ in range(20):
        host.advance(1.0)
        host.crash(X1, status)
        assert X1 in host.processes, "no pause"
        host.report(X1)
        assert host.last_report[X1].state == "running"


def test_one_that_is_killed_before_it_has_served_waits_a_second_at_most_and_is_never_given_up() -> (
    None
):
    host = durable()
    pauses = []
    for _ in range(10):
        host.crash(X1, "ended by signal 9")
        began = host.now
        while X1 not in host.processes:
            host.advance(0.1)
        pauses.append(round(host.now - began, 1))
        host.report(X1)
    assert pauses == [0.0, 0.5, *[1.0] * 8]
    host.advance(1.0)
    host.crash(X1, "ended by signal 9")
    assert X1 in host.processes, "it had served: no pause"


@pytest.mark.parametrize(
    "status",
    ["exit code 74", *(f"ended by signal {each}" for each in (4, 6, 7, 8, 11))],
)
def test_one_that_ends_by_itself_again_and_again_is_given_up(status: str) -> None:
    host = durable()
    for _ in range(5):
        host.advance(2.0)
        host.crash(X1, status)
        host.advance(5.0)
        if X1 in host.processes:
            host.report(X1)
    assert host.last_report[X1].state == "failed"


def test_a_volatile_exchange_that_is_killed_again_and_again_is_given_up() -> None:
    host = Host()
    host.running(X1)
    for _ in range(5):
        host.advance(2.0)
        host.crash(X1, "ended by signal 9")
        host.advance(5.0)
        if X1 in host.processes:
            host.report(X1)
    assert host.last_report[X1].state == "failed", "another host can have it"


def test_its_folder_is_named_by_what_is_never_used_again() -> None:
    host = durable()
    assert spec(host).log == FOLDER
    host.start_exchange(2)
    assert spec(host).log == ""


def test_another_process_goes_on_with_the_same_log_under_a_higher_epoch() -> None:
    host = durable()
    before = spec(host).epoch
    host.crash(X1)
    assert spec(host).log == FOLDER
    assert spec(host).epoch > before


@pytest.mark.parametrize("durability", ["flush", "async"])
def test_the_leader_hears_that_it_is_durable_also_from_a_later_life(durability: str) -> None:
    host = durable(durability)
    (started,) = host.start_exchange(durability=durability)
    assert isinstance(started, Started)
    assert started.child.durability == durability
    host.next_life()
    host.report(X1)
    (started,) = host.start_exchange(durability=durability)
    assert isinstance(started, Started)
    assert started.child.durability == durability
    host.crash(X1)
    assert spec(host).log == FOLDER
    assert spec(host).ahead is (durability == "async")


def test_a_durability_that_this_host_does_not_know_is_refused() -> None:
    (refused,) = Host().start_exchange(durability="replicated")
    assert isinstance(refused, Failure)
    assert "knows no durability 'replicated'" in refused.COMMENT


def test_a_disk_that_stays_broken_is_not_tried_in_a_loop() -> None:
    host = durable()
    line = "ended: cannot write its log: No space left on device"
    for _ in range(10):
        if X1 in host.processes:
            host.crash(X1, "exit code 74", line)
        host.advance(12)
        if X1 in host.processes:
            host.report(X1)
    assert len(host.spawned) <= 6
    (child,) = (each for each in host.machine._supervisor.children if each.name == X1)
    assert "No space left on device" in child.reason


MISSING = (
    f"the log of x1 is not in {FOLDER} on host 127.0.0.2: mount the disk, or give it up by `roq "
    "exchange forget orders x1`"
)


def test_where_a_log_must_be_and_is_not_nothing_is_started_and_who_asks_is_told() -> None:
    host = Host(logs=LOGS)
    host.disk_is_there = False
    (refused,) = host.start_exchange(durability="flush", has_log=True)
    assert isinstance(refused, Failure)
    assert (refused.CODE, refused.COMMENT) == ("log_missing", MISSING)
    assert host.processes == {}
    assert X1 not in host.last_report, "this host has nothing of it"
    host.disk_is_there = True
    host.start_exchange(durability="flush", has_log=True)
    assert spec(host).has_log
    host.report(X1)
    assert host.last_report[X1].state == "running"


def test_asking_for_a_log_that_is_not_there_uses_no_epochs_up() -> None:
    host = Host(logs=LOGS)
    host.disk_is_there = False
    for _ in range(5):
        host.start_exchange(durability="flush", has_log=True)
    host.disk_is_there = True
    host.start_exchange(durability="flush", has_log=True)
    assert child_number(spec(host).epoch) == 1


@pytest.mark.parametrize("number", [1, -1])
def test_a_log_that_should_be_here_and_is_not_does_not_count_as_removed(number: int) -> None:
    """It is on a disk that is not there; a later manager may have that."""
    host = durable()
    host.disk_is_there = host.has_log = False
    host.crash(X1)
    asked = {"queue_id": QUEUE_ID, "number": number, "reason": "removed"}
    assert host.stop_queue(**asked, erase=True) == [Done(id=3, no_log_since=HOST_EPOCH_MAX)]
    given_up = host.stop_queue(**asked, erase=True, empty=True)
    assert given_up == [Done(id=3, no_log_since=HOST_EPOCH)]
    host.disk_is_there = True
    host.start_exchange(durability="flush", has_log=True)
    host.report(X1)
    host.stop_queue(queue_id=QUEUE_ID, number=1, reason="stopped")
    host.end_asked()
    assert host.stop_queue(**asked, erase=True) == [Done(id=3, no_log_since=HOST_EPOCH)]


def test_one_that_has_never_run_makes_its_log_however_often_it_is_killed_before() -> None:
    host = Host(logs=LOGS)
    host.disk_is_there = False
    host.start_exchange(durability="flush")
    host.crash(X1, "ended by signal 9")
    host.start_exchange(durability="flush")
    assert X1 in host.processes
    assert not spec(host).has_log
    host.report(X1)
    assert host.last_report[X1].state == "running"


@pytest.mark.parametrize("life", ["same", "later", "later, and it has reported"])
def test_one_whose_disk_goes_while_it_runs_begins_no_other_log(life: str) -> None:
    host = durable()
    if life != "same":
        host.next_life()
    if life == "later, and it has reported":
        host.report(X1)
    host.disk_is_there = False
    host.crash(X1)
    assert host.processes == {}
    host.advance(60.0)
    assert X1 not in host.last_report, "not given up: it is asked for again by who knows of it"
    (refused,) = host.start_exchange(durability="flush", has_log=True)
    assert isinstance(refused, Failure)
    assert refused.COMMENT == MISSING


def test_one_in_memory_needs_no_log() -> None:
    host = Host(logs=LOGS)
    host.disk_is_there = False
    host.running(X1)
    host.crash(X1)
    assert X1 in host.processes
    assert not spec(host).has_log


@pytest.mark.parametrize("reason", ["stopped", "moved", "removed"])
def test_its_log_stays_unless_it_is_to_go(reason: str) -> None:
    host = durable()
    host.stop_queue(queue_id=QUEUE_ID, reason=reason)
    host.end_asked()
    assert erased(host) == []


def test_its_log_goes_when_its_process_has_ended() -> None:
    host = durable()
    host.stop_queue(queue_id=QUEUE_ID, number=1, reason="removed", erase=True)
    assert erased(host) == []
    host.end_asked()
    assert erased(host) == [Erase("orders", QUEUE_ID, 1)]


STAYS = f"{FOLDER} stays: Input/output error"


@pytest.mark.parametrize("runs", [True, False])
def test_who_has_a_log_removed_that_its_disk_keeps_is_told_so(*, runs: bool) -> None:
    host = durable() if runs else Host(logs=LOGS)
    host.log_stays = STAYS
    host.stop_queue(queue_id=QUEUE_ID, number=1, reason="removed", erase=True)
    host.end_asked()
    (told,) = [
        each.message
        for each in host.effects
        if isinstance(each, Reply) and isinstance(each.message, Failure | Done)
    ]
    assert isinstance(told, Failure)
    assert (told.id, told.COMMENT) == (3, STAYS)
    assert host.processes == {}, "it has ended all the same"


def test_who_removes_a_queue_hears_of_each_log_that_stays() -> None:
    """Also of one that is given up here, and of those that do not run."""
    host = durable()
    host.start_exchange(2, durability="flush")
    host.report("orders.x2")
    for _ in range(5):
        host.advance(2.0)
        host.crash(X1, "exit code 74")
        host.advance(5.0)
        if X1 in host.processes:
            host.report(X1)
    assert host.last_report[X1].state == "failed"
    host.log_stays = STAYS
    (told,) = host.stop_queue(queue_id=QUEUE_ID, number=1, reason="removed", erase=True)
    assert isinstance(told, Failure), "it did not run, so there was nothing to wait for"
    host.log_stays, before = STAYS, len(host.effects)
    assert host.stop_queue(queue_id=QUEUE_ID, reason="removed", erase=True) == []
    host.log_stays = ""
    host.end_asked()
    (told,) = [
        each.message
        for each in host.effects[before:]
        if isinstance(each, Reply) and isinstance(each.message, Failure | Done)
    ]
    assert isinstance(told, Failure)
    assert told.COMMENT == STAYS, "that of x2 has gone, and x1, of which nothing runs, stays"


def test_of_one_that_may_have_run_unheard_only_an_empty_log_goes() -> None:
    host = durable()
    host.stop_queue(queue_id=QUEUE_ID, number=1, reason="removed", erase=True, empty=True)
    host.end_asked()
    host.stop_queue(queue_id=QUEUE_ID, number=4, reason="removed", erase=True, empty=True)
    assert [(each.number, each.empty) for each in erased(host)] == [(1, True), (4, True)]


def test_logs_of_those_that_do_not_run_go_at_once() -> None:
    host = Host(logs=LOGS)
    assert host.stop_queue(queue_id=QUEUE_ID, number=4, reason="removed", erase=True) == [
        Done(id=3)
    ]
    assert [(each.number, each.empty) for each in erased(host)] == [(4, False)]
    host.stop_queue(queue_id=QUEUE_ID, reason="removed", erase=True)
    assert [(each.number, each.empty) for each in erased(host)[1:]] == [(-1, False)]


def test_where_there_was_no_log_the_answer_says_how_old_the_folder_is() -> None:
    host = Host(logs=LOGS)
    host.has_log = False
    asked = {"queue_id": QUEUE_ID, "number": 4, "reason": "removed", "erase": True}
    assert host.stop_queue(**asked) == [Done(id=3, no_log_since=HOST_EPOCH)]
    host.since = HOST_EPOCH  # as the shell has written down
    host.next_life(HOST_EPOCH + 5)
    assert host.stop_queue(**asked) == [Done(id=3, no_log_since=HOST_EPOCH)]
    host.since = 0  # by an earlier version
    host.next_life(HOST_EPOCH + 9)
    assert host.stop_queue(**asked) == [Done(id=3)]


def test_a_new_folder_is_younger_than_any_log_also_before_the_host_is_registered() -> None:
    host = Host(logs=LOGS, registered=False)
    host.has_log = False
    answer = host.stop_queue(queue_id=QUEUE_ID, reason="removed", erase=True)
    assert answer == [Done(id=3, no_log_since=HOST_EPOCH_MAX)]


def test_that_there_was_no_log_is_said_when_the_monitor_of_the_queue_has_ended() -> None:
    host = Host(logs=LOGS)
    host.has_log = False
    host.start_monitor()
    host.report("orders.monitor")
    assert host.stop_queue(queue_id=QUEUE_ID, reason="removed", erase=True) == []
    before = len(host.effects)
    host.end_asked()
    answers = [each.message for each in host.effects[before:] if isinstance(each, Reply)]
    assert Done(id=3, no_log_since=HOST_EPOCH) in answers


def test_one_that_runs_here_has_its_log_here() -> None:
    host = durable()
    host.has_log = False
    host.stop_queue(queue_id=QUEUE_ID, reason="removed", erase=True)
    before = len(host.effects)
    host.end_asked()
    answers = [each.message for each in host.effects[before:] if isinstance(each, Reply)]
    assert Done(id=3) in answers
