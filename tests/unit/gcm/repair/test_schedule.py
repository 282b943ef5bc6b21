"""What is lost is set up again: on its host if that is live, else on another one."""

import msgspec
import pytest
from gcm_repair import lose, reasons, where
from gcm_script import OTHER, PaperHost, Script

from roq.gcm import events
from roq.gcm.change.operations import AGAIN_SECONDS
from roq.gcm.repair.schedule import AT_ONCE, FAILED_SECONDS, HELD_SECONDS
from roq.model import child_epoch, host_epoch
from roq.protocol.control import StartMonitor, StopQueue
from roq.protocol.documents import RawDocument
from roq.timing import HOST_SILENT_SECONDS, REPAIR_CONFIRM_SECONDS


@pytest.fixture
def script() -> Script:
    return Script(*(PaperHost(f"h{number}", epoch=number) for number in (1, 2, 3)))


def hosts(script: Script) -> dict[str, RawDocument]:
    return {row["Host"]: row for row in script.ask(2102)["Hosts"]}


def state(script: Script, name: str) -> str:
    return hosts(script)[name]["State"]


# --- hosts that are lost --------------------------------------------------------------------------


def test_nothing_moves_while_the_node_is_there_or_the_host_reports(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.vanish("h1")
    script.live(60)
    assert script.record("q").hosts == ["h1"]
    assert state(script, "h1") == "silent"
    script.nodes.discard("h2")
    script.feed(events.HostsPresent(frozenset(script.nodes)))
    script.live(60)
    assert state(script, "h2") == "live"


def test_nothing_moves_while_the_registry_is_away_and_it_says_why(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    lose(script, "h1", "h2", "h3")
    script.live(2)
    script.feed(events.RegistryLost())
    script.hosts["h2"].up = True
    script.live(40)
    assert script.record("q").hosts == ["h1"]
    assert any("ZooKeeper is away" in reason for reason in reasons(script))
    script.feed(events.RegistryBack(script.snapshot()))
    script.feed(events.HostsPresent(frozenset(script.nodes)))
    script.live(2)
    assert script.record("q").hosts == ["h2"]


def test_hosts_are_not_lost_before_the_registry_has_told_again_who_is_there(
    script: Script,
) -> None:
    script.vanish("h1")
    script.feed(events.RegistryLost())
    script.feed(events.RegistryBack(script.snapshot()))
    script.nodes.clear()
    script.live(20)
    assert state(script, "h1") == "silent"
    script.feed(events.HostsPresent(frozenset()))
    script.live(1)
    assert state(script, "h1") == "lost"


def test_a_manager_that_stood_still_itself_takes_nobody_for_lost(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.expire_node("h1")
    script.now += 30
    script.feed(events.Tick())
    assert state(script, "h1") == "live"
    script.live(5)
    assert script.record("q").hosts == ["h1"]


def test_without_a_host_that_has_room_the_queue_says_so_and_is_healed_later(
    script: Script,
) -> None:
    script.ask(2003, QName="q", Host="h1")
    lose(script, "h1", "h2", "h3")
    script.live(5)
    (monitor, exchange) = reasons(script)
    assert "the monitor was on host h1, which is lost" in monitor
    assert "no host can take" in exchange
    assert "next one in" in exchange
    script.come_back("h3")
    script.live(2)
    assert where(script) == {0: "h3", 1: "h3"}
    assert reasons(script) == []


def test_attempts_that_fail_are_made_on_another_host_and_less_and_less_often(
    script: Script,
) -> None:
    script.ask(2003, QName="q", Host="h1")
    for name in ("h2", "h3"):
        script.hosts[name].refuse.add(StartMonitor)
    lose(script, "h1")
    script.live(120)
    attempts = [
        (name, message)
        for name in ("h2", "h3")
        for message in script.hosts[name].asked
        if isinstance(message, StartMonitor)
    ]
    assert {name for name, _ in attempts} == {"h2", "h3"}
    assert 6 <= len(attempts) <= 10
    assert len({message.base for _, message in attempts}) <= 2, "numbers are drawn for moves alone"
    script.hosts["h2"].refuse.clear()
    script.hosts["h3"].refuse.clear()
    script.live(31)
    assert sorted(where(script)) == [0, 1]


def test_a_host_with_many_queues_is_emptied_a_few_at_a_time_monitors_first() -> None:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2), PaperHost("h3", epoch=3))
    for number in range(30):
        script.ask(2003, QName=f"a{number:02}", Host="h2")
        script.ask(2004, QName=f"a{number:02}", Host="h1")
        script.ask(2003, QName=f"b{number:02}", Host="h1")
    lose(script, "h1")
    script.pass_time(1)
    assert len(script.machine.operations.queues) == AT_ONCE
    assert all(name.startswith("b") for name in script.machine.operations.queues)
    script.live(5)
    assert all(queue.place(0) != "h1" for queue in script.machine.queues)
    assert all(queue.place(2) != "h1" for queue in script.machine.queues)
    assert all(reasons(script, queue.name) == [] for queue in script.machine.queues)


def test_a_host_lost_in_the_middle_of_a_healing_is_not_waited_for(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    for host in script.hosts.values():
        host.mute.add(StartMonitor)
    lose(script, "h1")
    script.live(2)
    target = script.record("q").host
    assert target != "h1"
    script.hosts[target].mute.clear()
    other = ({"h2", "h3"} - {target}).pop()
    script.hosts[other].mute.clear()
    lose(script, target)
    script.live(3)
    assert where(script) == {0: other, 1: other}


def test_what_gets_lost_on_its_way_to_a_host_is_asked_again(script: Script) -> None:
    peer = script.send(2003, QName="q", Host="h1")
    script.step()
    script.pending.clear()  # into a connection whose other end has died
    script.live(AGAIN_SECONDS + 0.5)
    assert script.answer(peer)["RESULT"] == 0
    assert script.hosts["h1"].started == 2


# --- a later leader -------------------------------------------------------------------------------


def test_a_leader_that_knows_nobody_yet_gives_the_cluster_time_to_arrive(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    fresh = Script(leads=False)
    fresh.registry, fresh.hosts, fresh.numbers = script.registry, script.hosts, 9
    fresh.elect()
    fresh.vanish("h1")
    fresh.live(20)
    assert fresh.record("q").hosts == ["h1"]
    assert state(fresh, "h1") == "awaited"
    fresh.live(15)
    assert "h1" not in fresh.record("q").hosts


def test_a_later_leader_hears_from_all_hosts_before_it_judges(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.feed(events.Following(OTHER))
    script.elect()
    script.pass_time(20)
    assert state(script, "h1") == "awaited"
    assert reasons(script) == []
    script.live(2)
    assert state(script, "h1") == "live"


# --- hosts that come back -------------------------------------------------------------------------


def test_what_a_host_still_runs_when_it_comes_back_is_stopped_as_moved(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.ask(2004, QName="q", Host="h2")
    script.vanish("h1", with_children=False)
    script.live(HOST_SILENT_SECONDS, heartbeats=False)
    script.expire_node("h1")
    script.live(3, heartbeats=False)
    moved = {number: place for number, place in where(script).items() if place != "h1"}
    assert "h1" not in script.record("q").hosts
    script.come_back("h1")
    script.live(2)
    assert script.hosts["h1"].children == {}
    stops = [each for each in script.hosts["h1"].asked if isinstance(each, StopQueue)]
    assert {(each.number, each.reason) for each in stops} == {(0, "moved"), (1, "moved")}
    assert where(script).keys() == moved.keys() | {0, 1, 2}
    assert reasons(script) == []
    located = script.ask(2000, port=5000, QName="q")
    assert located["Monitor_host"] == script.hosts[script.record("q").host].children["q", 0].control


def test_a_process_of_before_is_not_taken_for_the_one_that_replaced_it(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.vanish("h1", with_children=False)
    script.live(HOST_SILENT_SECONDS, heartbeats=False)
    script.expire_node("h1")
    script.live(3, heartbeats=False)
    new = script.ask(2000, port=5000, QName="q")["Monitor_host"]
    script.feed(events.Following(OTHER))
    script.elect()
    script.come_back("h1")  # the first to report to the new leader
    assert script.ask(2000, port=5000, QName="q")["Monitor_host"] == new


# --- hosts without a manager ----------------------------------------------------------------------


def kill_manager(script: Script, name: str) -> None:
    script.vanish(name, with_children=False)
    script.live(HOST_SILENT_SECONDS)
    script.expire_node(name)


def test_a_host_without_its_manager_goes_on_as_long_as_there_is_proof(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    before = where(script)
    kill_manager(script, "h1")
    script.live(60)
    row = hosts(script)["h1"]
    assert (row["State"], "2 processes on it live" in row["Reason"]) == ("unmanaged", True)
    assert where(script) == before
    script.come_back("h1")
    assert state(script, "h1") == "live"
    assert where(script) == before


def test_of_an_unmanaged_host_only_that_moves_which_is_not_heard_of(script: Script) -> None:
    script.ask(2003, QName="q", Host="h2")
    script.ask(2004, QName="q", Host="h1")
    script.ask(2003, QName="other", Host="h1")
    kill_manager(script, "h1")
    script.live(5)
    assert script.record("q").exchange(2).host == "h1"
    del script.hosts["h1"].children["q", 2]
    script.live(5)
    assert script.record("q").exchange(2).host != "h1"
    assert script.record("other").hosts == ["h1"]
    assert state(script, "h1") == "unmanaged"


def test_a_monitor_that_dies_on_an_unmanaged_host_runs_elsewhere_and_its_exchange_stays(
    script: Script,
) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.ask(2003, QName="other", Host="h1")
    kill_manager(script, "h1")
    script.live(3)
    del script.hosts["h1"].children["q", 0]
    script.live(20)
    assert script.record("q").host != "h1"
    assert script.record("q").exchange(1).host == "h1"
    assert where(script)[1] == "h1"


def test_an_exchange_gets_time_to_find_a_monitor_that_was_restarted(script: Script) -> None:
    script.ask(2003, QName="q", Host="h2")
    script.ask(2004, QName="q", Host="h1")
    kill_manager(script, "h1")
    script.live(5)
    script.live(4, heartbeats=False)  # the monitor is being restarted
    script.hosts["h2"].restart("q", script.record("q").queue_id, 0)
    script.live(10)
    assert script.record("q").exchange(2).host == "h1"
    assert state(script, "h1") == "unmanaged"


def test_a_superseded_monitor_is_told(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    queue_id = script.record("q").queue_id
    old = script.hosts["h1"].children["q", 0]
    script.hosts["h1"].restart("q", queue_id, 0)
    script.report(script.hosts["h1"])
    fields = {"id": 1, "queue": "q", "queue_id": queue_id}
    answer = script.ask(3022, port=5000, **fields, epoch=old.epoch)
    assert (answer["RESULT"], answer["CODE"]) == (1101, "stale_epoch")
    assert "superseded" in answer["COMMENT"]
    assert script.ask(3022, port=5000, **fields)["RESULT"] == 0
    assert script.ask(3022, port=5000, **fields, epoch=old.epoch + 100)["RESULT"] == 0


@pytest.mark.parametrize("epoch", [-1, 1 << 53, (1 << 63) - 1])
def test_impossible_proofs_prove_nothing(script: Script, epoch: int) -> None:
    script.ask(2003, QName="q", Host="h1")
    queue_id = script.record("q").queue_id
    script.vanish("h1")
    script.live(HOST_SILENT_SECONDS, heartbeats=False)
    script.expire_node("h1")
    request = {
        "id": 1, "queue": "q", "queue_id": queue_id, "epoch": epoch, "control": "nonsense",
        "exchanges": [[1, -5], [77, 3], [1, 1 << 62]],
    }  # fmt: skip
    script.ask(3022, port=5000, **request)
    script.live(2, heartbeats=False)
    assert script.record("q").host != "h1"


def test_where_no_host_manager_tells_a_monitor_tells_its_address_itself(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    kill_manager(script, "h1")
    child = script.hosts["h1"].restart("q", script.record("q").queue_id, 0)
    script.live(2)
    assert script.ask(2000, port=5000, QName="q")["Monitor_host"] == child.control


# --- children that are missing or have failed -----------------------------------------------------


@pytest.mark.parametrize("number", [0, 1])
def test_what_a_restarted_host_manager_does_not_know_starts_there_again(
    script: Script, number: int
) -> None:
    script.ask(2003, QName="q", Host="h1")
    before = script.hosts["h1"].children.pop(("q", number))
    script.come_back("h1")
    script.live(1)
    assert where(script) == {0: "h1", 1: "h1"}
    assert script.hosts["h1"].children["q", number].epoch > before.epoch


def test_a_report_that_was_under_way_loses_nothing(script: Script) -> None:
    host = script.hosts["h1"]
    stale = host.report()
    script.ask(2003, QName="q", Host="h1")
    started = host.started
    script.report(host, children=stale.children)
    script.pass_time(REPAIR_CONFIRM_SECONDS - 0.5)
    script.report(host)
    script.live(3)
    assert host.started == started


def test_what_has_failed_for_good_is_set_up_on_another_host_once(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.hosts["h1"].fail("q", 1, "ended 5 times within 60 s")
    script.live(FAILED_SECONDS - 5)
    assert script.record("q").exchange(1).host == "h1"
    (reason,) = reasons(script)
    assert "has failed on host h1: ended 5 times" in reason
    assert "a second attempt is made in" in reason
    script.live(8)
    second = script.record("q").exchange(1).host
    assert second != "h1"
    assert where(script) == {0: "h1", 1: second}
    assert ("q", 1) not in script.hosts["h1"].children
    script.hosts[second].fail("q", 1, "again")
    script.live(3 * FAILED_SECONDS)
    assert script.record("q").exchange(1).host == second
    (reason,) = reasons(script)
    assert "`roq queue start q` makes another" in reason
    assert script.ask(2005, QName="q")["RESULT"] == 0
    assert where(script) == {0: "h1", 1: second}
    assert reasons(script) == []


def test_what_has_failed_leaves_its_host_even_if_all_others_have_more_to_do(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    for number in range(6):
        script.ask(2003, QName=f"other{number}", Host=f"h{2 + number % 2}")
    script.hosts["h1"].fail("q", 1, "ended 5 times within 60 s")
    script.live(FAILED_SECONDS + 3)
    assert where(script)[1] != "h1"


def test_what_has_failed_gets_its_second_chance_where_it_is_if_there_is_no_other_host() -> None:
    script = Script(PaperHost("h1"))
    script.ask(2003, QName="q", Host="h1")
    host = script.hosts["h1"]
    host.fail("q", 0, "ended 5 times within 60 s")
    script.live(FAILED_SECONDS + 2)
    assert where(script) == {0: "h1", 1: "h1"}
    started = host.started
    host.fail("q", 0, "ended 5 times within 60 s")
    script.live(4 * FAILED_SECONDS)
    assert host.started == started
    (reason,) = reasons(script)
    assert "has failed on host h1" in reason
    assert "did not help" in reason


def test_the_epoch_of_what_takes_the_place_of_another_is_always_higher(script: Script) -> None:
    script.ask(2003, QName="q", Host="h3")
    epochs = [script.record("q").exchanges[0].epoch]
    for _ in range(6):
        host = script.record("q").exchanges[0].host
        lose(script, host)
        script.live(2)
        script.come_back(host)
        script.live(2)
        epochs.append(script.record("q").exchanges[0].epoch)
    assert epochs == sorted(set(epochs))
    assert host_epoch(epochs[-1]) > 3


def test_a_counter_that_has_run_out_is_said_and_stops_nobody(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.numbers = 1 << 20
    lose(script, "h1")
    script.live(2)
    assert any("counter of epochs" in reason for reason in reasons(script))
    assert script.ask(2003, QName="r", Host="h2")["RESULT"] == 0


def test_a_host_that_starts_an_earlier_process_has_not_started_it(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    old = script.hosts["h2"].restart("q", script.record("q").queue_id, 0)
    script.hosts["h2"].children["q", 0] = msgspec.structs.replace(old, epoch=child_epoch(1, 1))
    script.hosts["h3"].up = False
    lose(script, "h1", "h3")
    script.live(5)
    assert where(script)[0] == "h2"
    assert script.hosts["h2"].children["q", 0].epoch >= script.record("q").epoch
    stops = [each for each in script.hosts["h2"].asked if isinstance(each, StopQueue)]
    assert {each.reason for each in stops} == {"moved"}, "for clients the queue goes on"


def test_nothing_is_set_up_again_on_a_host_that_is_being_given_back(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.machine.hosts.closed.add("h1")
    script.hosts["h1"].children.clear()
    script.live(REPAIR_CONFIRM_SECONDS + 1.5)
    assert set(where(script).values()) <= {"h2", "h3"}
    assert set(where(script)) == {0, 1}


# --- people who want something meanwhile ----------------------------------------------------------


def test_what_is_lost_is_mended_before_requests_that_wait_for_the_queue(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.ask(2004, QName="q", Host="h2", TransactionID="t")
    script.monitors["q"].mute = True
    removals = [script.send(2100, QName="q", Exchange="x2") for _ in range(5)]
    assert len(script.pending) == 1  # the monitor is asked to empty it
    script.pending.clear()  # its answer does not come
    script.vanish("h1")
    for _ in range(4):
        script.report(script.hosts["h2"])
        script.pass_time(1.0)
    script.expire_node("h1")
    script.pass_time(1.0)
    assert "h1 is lost" in script.answer(removals[0])["COMMENT"]
    script.settle()
    assert set(where(script)) == {0, 1, 2}
    assert "h1" not in where(script).values()


def test_an_exchange_is_not_removed_by_a_monitor_that_is_lost(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.ask(2004, QName="q", Host="h2", TransactionID="t")
    for host in script.hosts.values():
        host.refuse.add(StartMonitor)
    lose(script, "h1")
    script.live(3)
    before = len(script.monitors["q"].asked)
    answer = script.ask(2100, QName="q", Exchange="x2")
    assert (answer["CODE"], "does not run at the moment" in answer["COMMENT"]) == (
        "not_empty",
        True,
    )
    assert len(script.monitors["q"].asked) == before


def test_a_monitor_on_a_host_whose_manager_alone_is_gone_is_waited_for(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.ask(2004, QName="q", Host="h2", TransactionID="t")
    peer = script.send(2100, QName="q", Exchange="x2")
    script.vanish("h1", with_children=False)
    for _ in range(4):
        script.report(script.hosts["h2"])
        script.prove()
        script.pass_time(1.0)
    script.expire_node("h1")
    script.prove()
    script.pass_time(1.0)
    host = script.machine.hosts.get("h1")
    assert host is not None
    assert (host.state, script.answers[peer]) == ("unmanaged", [])
    script.settle()
    assert script.answer(peer)["RESULT"] == 0


def test_a_healing_that_waits_for_its_turn_is_ended_with_all_the_others(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    peer = script.send(2003, QName="q", Host="h2")  # refused
    script.send(2004, QName="q", Host="h2", TransactionID="t")
    script.pass_time(0.1)
    script.vanish("h1")
    for _ in range(4):
        script.report(script.hosts["h2"])
        script.pass_time(1.0)
    script.expire_node("h1")
    script.pass_time(1.0)
    assert script.answers[peer]
    assert script.machine.repairs._active == {"q": None}
    script.feed(events.RegistryLost(session_ended=True))  # and checks the machine
    assert script.machine.repairs._active == {}
    script.pending.clear()
    script.elect()
    script.live(6)
    assert set(where(script).values()) <= {"h2", "h3"}


# --- queues that cannot be healed do not keep others waiting --------------------------------------


def many(script: Script, host: str) -> list[str]:
    """More queues on this host than are mended side by side; all come before "z"."""
    names = [f"a{number:02}" for number in range(3 * AT_ONCE)]
    for name in names:
        script.ask(2003, QName=name, Host=host)
    return names


def live_but(script: Script, seconds: float, silent: str) -> None:
    """Let time pass while nobody at this host gets to answering; it reports all the same."""
    for _ in range(int(seconds / 0.5)):
        for host in script.hosts.values():
            if host.up:
                script.report(host)
        while waiting := [
            which
            for which, each in enumerate(script.pending)
            if not (isinstance(each, events.AskHost) and silent in each.endpoint)
        ]:
            script.step(waiting[0])
        script.pass_time(0.5)


def test_queues_for_which_there_is_no_room_do_not_delay_one_for_which_there_is() -> None:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2))
    many(script, "h1")
    script.ask(2003, QName="z", Host="h2")
    script.hosts["h2"].exchange_max = 1
    lose(script, "h1")
    script.live(40.0)
    script.hosts["h2"].children.clear()
    script.live(REPAIR_CONFIRM_SECONDS + 1.5)
    assert where(script, "z") == {0: "h2", 1: "h2"}
    assert where(script, "a00") == {0: "h2"}


def test_a_host_that_reports_but_starts_nothing_delays_other_hosts_for_moments() -> None:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2))
    many(script, "h1")
    script.ask(2003, QName="z", Host="h2")
    script.hosts["h1"].children.clear()
    live_but(script, REPAIR_CONFIRM_SECONDS + 2.0, "h1")
    assert len(script.pending) == AT_ONCE, "these wait for their host"
    script.hosts["h2"].children.clear()
    live_but(script, REPAIR_CONFIRM_SECONDS + 2 * HELD_SECONDS + 1.0, "h1")
    assert where(script, "z") == {0: "h2", 1: "h2"}


def test_what_was_tried_in_vain_is_tried_again_after_what_was_not_tried_yet() -> None:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2))
    names = many(script, "h1")
    script.ask(2003, QName="z", Host="h2")
    script.hosts["h1"].refuse.add(StartMonitor)
    script.hosts["h2"].refuse.add(StartMonitor)
    script.hosts["h1"].children.clear()
    script.live(60.0)
    assert all("attempt" in reasons(script, name)[0] for name in names)
    script.hosts["h2"].children.clear()
    script.feed(events.RegistryLost())
    script.live(31.0)
    script.feed(events.RegistryBack(script.snapshot()))  # all may be tried now
    for _ in range(10):  # and nobody gets an answer
        for host in script.hosts.values():
            script.report(host)
        script.pass_time(0.5)
    asked = [each.message.queue for each in script.pending if isinstance(each, events.AskHost)]
    assert "z" in asked


def test_queues_that_others_work_on_do_not_delay_the_rest(script: Script) -> None:
    names = many(script, "h1")
    for name in names:
        script.ask(2004, QName=name, Host="h2", TransactionID="t")
        script.monitors[name].mute = True
    removals = [script.send(2100, QName=name, Exchange="x2") for name in names]
    script.pending.clear()  # their monitors say nothing
    script.ask(2003, QName="z", Host="h3")
    script.hosts["h2"].children.clear()
    script.hosts["h3"].children.clear()
    live_but(script, REPAIR_CONFIRM_SECONDS + 2.0, "nobody")
    assert not any(script.answers[peer] for peer in removals)
    assert where(script, "z") == {0: "h3", 1: "h3"}
    live_but(script, 40.0, "nobody")
    assert all(where(script, name)[2] == "h2" for name in names)
