"""What was removed while its host was away goes when the host is back, and nothing else does."""

import msgspec
import pytest
from gcm_script import OTHER, PaperHost, Script

from roq.gcm.events import Commit, Following, Put
from roq.gcm.interfaces.reports import STRAY_SECONDS
from roq.gcm.state import records
from roq.gcm.state.hosts import FORGET_SECONDS
from roq.gcm.state.queues import Queues
from roq.gcm.state.removed_logs import MISSING_SECONDS, REFUSED_SECONDS, RemovedLogs
from roq.model import QueueState
from roq.protocol.control import StartExchange, StopQueue
from roq.timing import HOST_SILENT_SECONDS

ALL = -1


def back(script: Script, name: str) -> None:
    """A host comes back, and what comes of that is written down."""
    script.come_back(name)
    script.settle()
    script.live(1.0)


def back_without_disk(script: Script, name: str) -> dict[tuple[bytes, int], int]:
    """A host comes back, and its data.dir is an empty folder, as the disk of it is not mounted."""
    disk = script.hosts[name].mount({}, since=script.numbers + 1)
    back(script, name)
    return disk


@pytest.fixture
def script() -> Script:
    """A durable queue with x1 on h1 and x2 on h2; the monitor is on h1."""
    made = Script(*(PaperHost(f"h{number}", epoch=number) for number in (1, 2, 3)))
    made.ask(2003, QName="q", Host="h1", Durability="flush")
    made.ask(2004, QName="q", Host="h2")
    return made


def lose(script: Script, name: str) -> None:
    script.vanish(name)
    script.live(HOST_SILENT_SECONDS)
    script.expire_node(name)
    script.live(3.0)


def erased(script: Script, name: str) -> list[tuple[bytes, int, bool]]:
    """What a host was told to remove: queue id, number, only if it has never held anything."""
    return [
        (each.queue_id, each.number, each.empty)
        for each in script.hosts[name].asked
        if isinstance(each, StopQueue) and each.erase
    ]


def noted(script: Script) -> list[tuple[str, int, bool]]:
    data = script.registry.get(records.LOGS_PATH, b"[]")
    found = msgspec.json.decode(data, type=tuple[records.RemovedLog, ...])
    return [(each.host, each.number, each.spared) for each in found]


def checked(script: Script) -> str:
    (check,) = [each for each in script.machine.health().checks if each.name == "removed"]
    assert not check.essential
    assert check.ok == (check.detail == "all are")
    return check.detail


def test_the_logs_of_a_queue_go_when_their_host_is_back(script: Script) -> None:
    queue_id = script.record("q").queue_id
    lose(script, "h2")
    warning = script.ask(2001, QName="q")["WARNING"]
    assert warning == "host h2 removes its logs of queue q when it is back"
    assert noted(script) == [("h2", ALL, False)]
    assert checked(script) == (
        "logs that go when their hosts are back: queue q on host h2; `roq host remove HOST` if one "
        "is gone for good"
    )
    back(script, "h2")
    assert erased(script, "h2") == [(queue_id, ALL, False)]
    assert noted(script) == []
    assert checked(script) == "all are"
    script.live(2 * STRAY_SECONDS)
    assert len(erased(script, "h2")) == 1


def test_a_host_that_does_not_answer_is_asked_again(script: Script) -> None:
    script.hosts["h2"].mute.add(StopQueue)
    warning = script.ask(2001, QName="q")["WARNING"]
    assert "host h2 did not confirm" in warning
    assert "host h2 removes its logs of queue q when it is back" in warning
    before = len(erased(script, "h2"))
    script.live(2 * STRAY_SECONDS)
    assert before < len(erased(script, "h2")) <= before + 3
    assert noted(script) == [("h2", ALL, False)]
    script.hosts["h2"].mute.clear()
    script.live(2 * STRAY_SECONDS)
    assert noted(script) == []


STAYS = "/data/logs/71/x2 stays: Input/output error"


def test_a_host_whose_disk_refuses_is_told_again_each_minute_for_a_day(script: Script) -> None:
    script.hosts["h2"].log_stays = STAYS
    warning = script.ask(2100, QName="q", Exchange="x2")["WARNING"]
    assert f"host h2 refused: {STAYS}" in warning
    assert "of x2 of queue q as soon as it can" in warning
    assert noted(script) == [("h2", 2, True)]
    script.live(2.0)
    assert f"x2 of queue q on host h2 ({STAYS})" in checked(script)
    before = len(erased(script, "h2"))
    script.live(2 * REFUSED_SECONDS)
    assert before < len(erased(script, "h2")) <= before + 3
    assert sum(f"h2 does not remove its logs of x2 of queue q: {STAYS}" in n for n in script.notes)
    script.hosts["h2"].log_stays = ""
    script.live(REFUSED_SECONDS + STRAY_SECONDS)
    assert noted(script) == []
    assert checked(script) == "all are"


def test_what_a_disk_has_refused_for_a_day_is_forgotten_and_told(script: Script) -> None:
    script.hosts["h2"].log_stays = STAYS
    script.ask(2100, QName="q", Exchange="x2")
    script.live(2.0)
    for _ in range(2):
        assert noted(script) == [("h2", 2, True)]
        script.now += MISSING_SECONDS / 2
        script.live(2 * STRAY_SECONDS)
    assert noted(script) == []
    (told,) = [each for each in script.notes if "is not told any more" in each]
    assert "/x2 in its data.dir" in told


def test_the_log_of_a_stray_that_its_disk_refuses_to_remove_is_kept_in_mind(
    script: Script,
) -> None:
    """Its process is gone, so no report tells of it again."""
    script.hosts["h2"].log_stays = STAYS
    child = script.hosts["h2"].start("q", script.record("q").queue_id, 7)
    script.monitors["q"].ends[7] = (child.epoch, 0)
    script.report(script.hosts["h2"])
    script.settle()
    assert ("q", 7) not in script.hosts["h2"].children
    assert noted(script) == [("h2", 7, True)]


def test_a_later_leader_goes_on_also_with_a_host_of_which_it_has_not_heard(script: Script) -> None:
    """It knows no address to ask at, nor that the host is lost."""
    queue_id = script.record("q").queue_id
    script.hosts["h2"].up = False
    script.nodes.discard("h2")
    script.feed(Following(OTHER))
    script.elect()
    for name in ("h1", "h3"):
        script.report(script.hosts[name])
    script.ask(2001, QName="q")
    assert noted(script) == [("h2", ALL, False)]
    script.feed(Following(OTHER))
    script.elect()
    back(script, "h2")
    assert (queue_id, ALL, False) in erased(script, "h2")


def test_what_still_runs_there_goes_with_its_log(script: Script) -> None:
    """A process that no definition knows is stopped, and its log stays: this one is known."""
    lose(script, "h2")
    queue_id = script.record("q").queue_id
    script.ask(2001, QName="q")
    script.hosts["h2"].start("q", queue_id, 2)
    back(script, "h2")
    assert [each.erase for each in script.hosts["h2"].asked if isinstance(each, StopQueue)] == [
        True
    ]


def test_a_queue_of_that_name_that_was_made_since_keeps_its_logs(script: Script) -> None:
    lose(script, "h2")
    old = script.record("q").queue_id
    script.ask(2001, QName="q")
    script.ask(2003, QName="q", Host="h1", Durability="flush")
    back(script, "h2")
    assert erased(script, "h2") == [(old, ALL, False)]
    assert script.record("q").queue_id != old


def test_what_a_registry_knows_again_that_was_restored_stays(script: Script) -> None:
    lose(script, "h2")
    kept = script.registry["/queues/q"]
    script.ask(2001, QName="q")
    script.registry["/queues/q"] = kept
    script.elect()
    script.come_back("h2")
    script.live(2 * STRAY_SECONDS)
    assert erased(script, "h2") == []


def test_what_a_registry_does_not_know_that_was_restored_stays(script: Script) -> None:
    lose(script, "h2")
    del script.registry["/queues/q"]
    script.elect()
    script.come_back("h2")
    script.live(2 * STRAY_SECONDS)
    assert erased(script, "h2") == []


def test_a_definition_that_nobody_can_read_may_be_the_one(script: Script) -> None:
    lose(script, "h2")
    script.ask(2001, QName="q")
    script.registry["/queues/q"] = b"{"
    script.elect()
    script.come_back("h2")
    script.live(2 * STRAY_SECONDS)
    assert erased(script, "h2") == []


def test_a_log_that_was_given_up_unread_is_left_on_its_host_that_tells_of_it(
    script: Script,
) -> None:
    lose(script, "h2")
    queue_id = script.record("q").queue_id
    warning = script.ask(2100, QName="q", Exchange="x2", Forget=True)["WARNING"]
    assert "host h2 keeps what is in its log of x2 of queue q when it is back" in warning
    assert "back: x2 of queue q on host h2; " in checked(script)
    back(script, "h2")
    assert erased(script, "h2") == [(queue_id, 2, True)]
    assert noted(script) == []


def test_of_an_exchange_that_was_read_to_its_end_nothing_is_left(script: Script) -> None:
    queue_id = script.record("q").queue_id
    child = script.hosts["h2"].children["q", 2]
    script.monitors["q"].ends[2] = (child.epoch, 7)
    script.hosts["h2"].mute.add(StopQueue)
    script.ask(2100, QName="q", Exchange="x2")
    assert noted(script) == [("h2", 2, False)]
    script.hosts["h2"].mute.clear()
    script.live(2 * STRAY_SECONDS)
    assert erased(script, "h2")[-1] == (queue_id, 2, False)
    assert noted(script) == []


def test_what_was_given_up_goes_with_its_queue(script: Script) -> None:
    queue_id = script.record("q").queue_id
    lose(script, "h2")
    script.ask(2100, QName="q", Exchange="x2", Forget=True)
    script.ask(2001, QName="q")
    assert noted(script) == [("h2", ALL, False)]
    back(script, "h2")
    assert erased(script, "h2") == [(queue_id, ALL, False)]


def test_a_host_that_is_forgotten_is_not_waited_for(script: Script) -> None:
    lose(script, "h2")
    folder = f"logs/{script.record('q').queue_id.hex()}"
    script.ask(2001, QName="q")
    script.pass_time(FORGET_SECONDS + 1.0)
    script.live(1.0)
    assert script.machine.hosts.get("h2") is None
    assert script.ask(2113, Host="h2")["RESULT"] == 0
    assert noted(script) == []
    assert f"host h2 is not told any more to remove {folder} in its data.dir" in script.notes
    assert script.ask(2113, Host="h2")["RESULT"] != 0


def test_an_exchange_of_a_stopped_queue_is_noted_too(script: Script) -> None:
    lose(script, "h2")
    script.ask(2002, QName="q")
    script.ask(2100, QName="q", Exchange="x2", Forget=True)
    assert noted(script) == [("h2", 2, True)]


def test_an_exchange_whose_removal_a_later_leader_ends_is_noted(script: Script) -> None:
    record = script.record("q")
    exchange = record.exchange(2)
    assert exchange is not None
    half = record.replacing(msgspec.structs.replace(exchange, state="removing"))
    script.registry["/queues/q"] = records.encode(half)
    script.vanish("h2")
    script.elect()
    script.live(3.0)
    assert script.record("q").exchange(2) is None
    assert noted(script) == [("h2", 2, True)]


def test_a_queue_in_memory_leaves_nothing(script: Script) -> None:
    script.ask(2003, QName="m", Host="h2", Durability="none")
    script.hosts["h2"].mute.add(StopQueue)
    assert "did not confirm" in script.ask(2001, QName="m")["WARNING"]
    assert noted(script) == []


def test_whether_it_is_gone_is_looked_at_when_it_is_removed(script: Script) -> None:
    queue_id = script.record("q").queue_id
    record = records.RemovedLog(queue="q", queue_id=queue_id, host="h2")
    steps = list(script.machine._sagas.upkeep.remove_log(record))
    assert steps == []


def test_what_cannot_be_read_is_told_and_nothing_of_it_is_done(script: Script) -> None:
    script.registry[records.LOGS_PATH] = b'[{"queue": "q", "queue_id": "", "host": "h2"}]'
    snapshot = script.snapshot()
    assert not snapshot.removed
    assert "which logs were removed" in snapshot.defects[records.LOGS][0]
    assert records.LOGS_PATH not in records.readable(script.registry)
    script.elect()
    checks = {each.name: each for each in script.machine.health().checks}
    assert "which logs were removed" in checks["definitions"].detail


def test_the_number_of_a_monitor_is_impossible() -> None:
    made = records.RemovedLog(queue="q", queue_id=b"i", host="h", number=0)
    snapshot = records.decode_snapshot({records.LOGS_PATH: records.encode((made,))})
    assert records.LOGS in snapshot.defects


def test_what_is_noted_is_written_back_into_a_registry_that_has_lost_it(script: Script) -> None:
    lose(script, "h2")
    script.ask(2001, QName="q")
    assert records.LOGS_PATH in records.readable(script.registry)


def test_what_was_begun_is_removed_unless_there_is_something_in_its_log(script: Script) -> None:
    script.hosts["h3"].mute.add(StartExchange)
    script.ask(2004, QName="q", Host="h3")
    lose(script, "h3")
    assert script.ask(2100, QName="q", Exchange="x3", Forget=True)["RESULT"] == 0
    assert noted(script) == [("h3", 3, True)]


@pytest.mark.parametrize("starts", [False, True])
def test_the_log_of_what_was_being_removed_goes_also_if_its_queue_stops_or_starts(
    script: Script, starts: bool
) -> None:
    lose(script, "h2")
    script.send(2100, QName="q", Exchange="x2", Forget=True)
    script.step()
    if starts:  # after a stop that was cut off
        queue = script.record("q")
        stopping = msgspec.structs.replace(queue, state=QueueState.STOPPING)
        script.registry["/queues/q"] = records.encode(stopping)
    script.pending.clear()
    script.feed(Following(OTHER))
    script.elect()
    for name in ("h1", "h3"):
        script.report(script.hosts[name])
    assert script.ask(2005 if starts else 2002, QName="q")["RESULT"] == 0
    assert 2 not in {each.number for each in script.record("q").exchanges}
    assert noted(script) == [("h2", 2, True)]


def test_what_could_not_be_read_is_replaced_by_what_is_noted_next(script: Script) -> None:
    lose(script, "h2")
    script.registry[records.LOGS_PATH] = b"?"
    script.elect()
    for name in ("h1", "h3"):
        script.report(script.hosts[name])
    assert records.LOGS in script.machine.queues.defects
    script.ask(2001, QName="q")
    assert records.LOGS not in script.machine.queues.defects


def test_so_many_are_kept_in_mind_and_the_oldest_goes_first() -> None:
    logs = RemovedLogs(Queues())
    made = [
        records.RemovedLog(queue="q", queue_id=b"i", host="h", number=number)
        for number in range(1, records.REMOVED_MAX + 3)
    ]
    assert logs.add(made) == made[:2]
    assert list(logs) == made[2:]
    assert logs.due("h", 1, 0.0) == made[2:]
    logs.drop(made[2])
    logs.drop(made[2])
    assert list(logs) == made[3:]
    logs.clear()
    assert not list(logs)
    assert not logs.due("h", 1, 0.0)


def test_a_log_that_its_host_does_not_find_as_its_disk_is_not_there_goes_later(
    script: Script,
) -> None:
    queue_id = script.record("q").queue_id
    lose(script, "h2")
    script.ask(2001, QName="q")
    disk = back_without_disk(script, "h2")
    assert (queue_id, 2) in disk
    assert noted(script) == [("h2", ALL, False)]
    assert "back: queue q on host h2 (it has another data.dir now); " in checked(script)
    assert script.notes[-1].startswith("host h2 has another data.dir than the one with its logs of")
    script.live(10 * STRAY_SECONDS)
    assert len(erased(script, "h2")) == 1, "nothing changes before its manager is started anew"
    script.vanish("h2")
    script.hosts["h2"].mount(disk, since=1)
    back(script, "h2")
    assert (queue_id, 2) not in disk
    assert noted(script) == []
    assert checked(script) == "all are"


def test_a_disk_that_does_not_come_back_is_waited_for_for_a_day(script: Script) -> None:
    folder = f"logs/{script.record('q').queue_id.hex()}"
    lose(script, "h2")
    script.ask(2001, QName="q")
    back_without_disk(script, "h2")
    for _ in range(2):  # however often it is started anew
        script.now += MISSING_SECONDS / 2 - 60.0
        script.vanish("h2")
        back(script, "h2")
    assert noted(script) == [("h2", ALL, False)]
    script.now += 120.0
    script.live(2 * STRAY_SECONDS)
    assert noted(script) == []
    assert f"host h2 is not told any more to remove {folder} in its data.dir" in script.notes
    assert len(erased(script, "h2")) == 4


@pytest.mark.parametrize("number", [ALL, 2])
def test_what_is_removed_while_the_disk_of_its_host_is_not_there_is_noted(
    script: Script, number: int
) -> None:
    script.ask(2002, QName="q")
    script.vanish("h2")
    back_without_disk(script, "h2")
    if number == ALL:
        answer = script.ask(2001, QName="q")
        text = "host h2 removes its logs of queue q when its data.dir is back"
    else:
        record = script.record("q")
        exchange = record.exchange(2)
        assert exchange is not None
        removing = record.replacing(msgspec.structs.replace(exchange, state="removing"))
        script.registry["/queues/q"] = records.encode(removing)
        script.elect()
        script.live(1.0)
        answer, text = script.ask(2005, QName="q"), ""
        script.live(1.0)
    assert answer["RESULT"] == 0
    assert answer.get("WARNING", "") == text
    script.live(2 * STRAY_SECONDS)
    assert [each[:2] for each in noted(script)] == [("h2", number)]


@pytest.mark.parametrize("since", [0, 2])
def test_a_log_that_was_not_there_on_its_own_disk_is_waited_for_no_more(
    script: Script, since: int
) -> None:
    """It may have been removed before, and the answer was lost; or by hand."""
    lose(script, "h2")
    script.ask(2001, QName="q")
    script.hosts["h2"].mount({}, since)
    back(script, "h2")
    assert noted(script) == []


def test_of_what_nobody_has_heard_to_run_no_log_is_waited_for(script: Script) -> None:
    host = script.hosts["h3"]
    host.mount({}, since=host.epoch)
    host.refuse.add(StartExchange)
    assert script.ask(2004, QName="q", Host="h3")["RESULT"] != 0
    assert noted(script) == []


def test_the_logs_of_many_queues_that_go_at_once_are_written_down_together() -> None:
    script = Script(*(PaperHost(f"h{number}", epoch=number) for number in (1, 2)))
    for number in range(40):
        script.ask(2003, QName=f"q{number}", Host="h2", Durability="flush")
    lose(script, "h2")
    for number in range(40):
        script.ask(2001, QName=f"q{number}")
    assert len(noted(script)) == 40
    script.come_back("h2")
    written = 0
    for _ in range(6):
        script.report(script.hosts["h2"])
        while script.pending:
            effect = script.pending[0]
            if isinstance(effect, Commit):
                written += any(
                    isinstance(each, Put) and each.path == records.LOGS_PATH
                    for each in effect.changes
                )
            script.step()
        script.pass_time(0.5)
    assert noted(script) == []
    assert 1 <= written <= 2


def test_what_could_not_be_written_down_is_written_down_later(script: Script) -> None:
    lose(script, "h2")
    script.ask(2001, QName="q")
    script.come_back("h2")
    script.settle()
    script.registry_fails = 1
    script.pass_time(0.5)
    script.settle()
    assert noted(script) == [("h2", ALL, False)]
    script.live(1.0)
    assert noted(script) == []


def test_what_a_host_has_said_last_is_what_is_told() -> None:
    logs = RemovedLogs(Queues())
    record = records.RemovedLog(queue="q", queue_id=b"q" * 16, host="h1", number=1)
    logs.add([record])
    logs.refused(record, STAYS, 1.0)
    assert logs.trouble(record) == STAYS
    logs.missed(record, 7, 2.0)
    assert logs.trouble(record) == "it has another data.dir now"
