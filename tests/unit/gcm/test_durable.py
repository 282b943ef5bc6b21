"""Queues whose exchanges have logs: each runs where its log is, and nowhere else."""

from __future__ import annotations

import pytest
from gcm_durable import checked, described, durable_script, lose, states
from gcm_scaling import ask, less, out, send
from gcm_script import ME, PaperHost, Script

from roq.gcm.config import GcmConfig
from roq.gcm.events import RegistryLost
from roq.gcm.machine import Settings
from roq.gcm.state.records import QueueRecord
from roq.protocol.control import (
    Done,
    Elasticity,
    ElasticityRequest,
    Failure,
    ScaledOut,
    StartExchange,
    StopQueue,
)
from roq.timing import HOST_SILENT_SECONDS


@pytest.fixture
def script() -> Script:
    return durable_script()


def told(script: Script, queue: str) -> Elasticity:
    """What the monitor of a queue is told when it asks."""
    request = ElasticityRequest(queue=queue, queue_id=script.record(queue).queue_id)
    answer = ask(script, request)
    assert isinstance(answer, Elasticity)
    return answer


def stops(script: Script) -> list[tuple[int, bool]]:
    """Which exchanges were stopped, and whether their logs were removed."""
    return [
        (each.number, each.erase)
        for host in script.hosts.values()
        for each in host.asked
        if isinstance(each, StopQueue)
    ]


def test_the_durability_stands_in_the_definition_and_is_told(script: Script) -> None:
    assert script.record("q").durability == "flush"
    assert described(script)["Durability"] == "flush"
    assert [row["Durability"] for row in script.ask(2101)["Queues"]] == ["flush"]
    assert script.hosts["h1"].durability == {("q", 1): "flush"}


def test_the_log_of_an_exchange_that_is_started_again_is_told_as_the_same_one(
    script: Script,
) -> None:
    def log() -> tuple[int, int]:
        (row,) = described(script)["Exchanges"]
        return row["Epoch"], row["Generation"]

    epoch, generation = log()
    assert generation == epoch
    script.hosts["h1"].restart("q", script.record("q").queue_id, 1)
    script.live(2.0)
    later, same = log()
    assert later > epoch
    assert same == generation
    script.elect()  # nobody has reported to this leader yet
    assert log() == (later, generation)
    script.vanish("h1")
    script.live(HOST_SILENT_SECONDS + 3.0)
    assert log() == (later, generation)


@pytest.mark.parametrize("setting", ["flush", "async", "none"])
def test_a_queue_whose_creator_names_none_has_the_durability_of_the_cluster(setting: str) -> None:
    script = Script(PaperHost("h1"), durability=setting)
    for name in ("default", "empty"):
        given = {} if name == "default" else {"Durability": ""}
        assert script.ask(2010, QName=name, **given)["RESULT"] == 0
        assert script.record(name).durability == setting
    assert script.ask(2003, QName="there", Host="h1")["RESULT"] == 0
    assert script.record("there").durability == setting
    assert script.ask(2010, QName="named", Durability="none")["RESULT"] == 0
    assert script.record("named").durability == "none"


def test_as_shipped_queues_are_on_the_disk() -> None:
    assert Settings(manager=ME).durability == "flush"
    assert GcmConfig().queues.durability == "flush"


def test_a_definition_that_says_nothing_of_it_is_not_durable() -> None:
    fields = {"name": "q", "queue_id": b"i", "state": "running", "host": "h", "created": 0.0}
    assert not QueueRecord(**fields).durable  # type: ignore[arg-type]


def test_a_host_that_knows_no_logs_is_refused(script: Script) -> None:
    class Earlier(dict[tuple[str, int], str]):
        def __setitem__(self, key: tuple[str, int], value: str) -> None:
            return

    script.hosts["h2"].durability = Earlier()
    answer = script.ask(2003, QName="other", Host="h2", Durability="flush")
    assert "runs an earlier RoQ" in answer["COMMENT"]
    assert "/queues/other" not in script.registry


def test_a_lost_exchange_is_away_and_another_one_stands_in(script: Script) -> None:
    lose(script, "h1")
    (old, first), (new, second) = states(script).items()
    assert (old, first) == (1, ("h1", "away"))
    assert (new, second[1]) == (2, "created")
    assert second[0] in {"h2", "h3"}
    described_ = described(script)
    assert described_["Reasons"] == [
        "x1 is away: its log is on host h1, which is lost; it is back when that host is"
    ]
    assert [row["State"] for row in described_["Exchanges"]] == ["away", "running"]
    assert 1 not in {key[1] for host in ("h2", "h3") for key in script.hosts[host].children}


def test_lost_hosts_that_come_back_leave_no_more_exchanges_each_time(script: Script) -> None:
    script.ask(2004, QName="q", Host="h2")
    script.ask(2004, QName="q", Host="h3")
    for _ in range(3):
        for name in ("h1", "h2", "h3"):
            lose(script, name)
            assert sum(state == "created" for _, state in states(script).values()) >= 3
            script.come_back(name)
            script.live(3.0)
    assert len(states(script)) <= 6


def test_who_stands_in_may_go_when_the_other_one_is_back_and_not_before(script: Script) -> None:
    lose(script, "h1")
    assert told(script, "q").scaled == []
    refused = ask(script, less(script, 2, holds_nothing=True))
    assert isinstance(refused, Failure)
    assert refused.COMMENT == "x2 stands in for an exchange that is away"
    script.come_back("h1")
    script.live(3.0)
    assert told(script, "q").scaled == [2]
    assert ask(script, less(script, 2, holds_nothing=True)) == Done(id=8)
    assert set(states(script)) == {1}


def test_what_is_being_emptied_for_a_drain_is_none_of_those_that_a_queue_was_given(
    script: Script,
) -> None:
    """It goes as soon as it is empty, and nothing came in its place later."""
    script.ask(2004, QName="q", Host="h2")
    script.monitors["q"].waits_for = "1 subscriber not at its end yet"
    script.ask(2112, Host="h2")
    script.live(5.0)
    assert set(states(script)) == {1, 2, 3}
    lose(script, "h1")
    assert told(script, "q").scaled == [], "x4 stands in for x1"
    script.monitors["q"].waits_for = ""
    script.live(30.0)
    assert {each: state for each, (_, state) in states(script).items()} == {
        1: "away", 3: "created", 4: "created",
    }  # fmt: skip


@pytest.mark.parametrize("elects", [True, False])
def test_others_stand_in_as_soon_as_it_can_be_if_it_could_not_at_once(
    script: Script, elects: bool
) -> None:
    script.ask(2004, QName="q", Host="h2")
    for host in ("h2", "h3"):
        script.hosts[host].mute.add(StartExchange)
    lose(script, "h1")
    script.live(60.0)
    if elects:
        script.elect()
    for host in ("h2", "h3"):
        script.hosts[host].mute.clear()
        script.report(script.hosts[host])
    script.live(60.0)
    assert sum(state == "created" for _, state in states(script).values()) == 2, states(script)


def test_it_is_back_when_its_host_is(script: Script) -> None:
    lose(script, "h1")
    script.come_back("h1")
    script.live(3.0)
    assert [state for _, state in states(script).values()] == ["created", "created"]
    assert ("q", 1) in script.hosts["h1"].children
    assert described(script)["Reasons"] == []
    assert (1, True) not in stops(script)


def test_its_monitor_is_told_of_all_logs_also_of_those_that_are_away(script: Script) -> None:
    lose(script, "h1")
    assert (told(script, "q").exchanges, told(script, "q").logs) == ([2], [1, 2])
    script.ask(2100, QName="q", Exchange="x1", Forget=True)
    assert told(script, "q").logs == [2]
    assert described(script)["Life"] == 1, "what only x1 knew of named publishers is gone"
    script.ask(2003, QName="volatile", Host="h2")
    volatile = told(script, "volatile")
    assert (volatile.exchanges, volatile.logs) == ([1], [])


def test_while_all_hosts_are_gone_it_waits_and_goes_on_as_soon_as_one_has_room(
    script: Script,
) -> None:
    lose(script, "h1", "h2", "h3")
    assert states(script)[1] == ("h1", "away")
    script.come_back("h2")
    script.live(40.0)
    assert [number for number, (_, state) in states(script).items() if state == "created"] == [2]


def test_one_that_has_failed_stays_with_its_log(script: Script) -> None:
    script.hosts["h1"].fail("q", 1, "cannot write its log: Input/output error")
    script.live(90.0)
    assert set(states(script)) == {1}
    assert states(script)[1][0] == "h1"


def test_a_host_that_restarts_keeps_its_logs(script: Script) -> None:
    assert script.report(script.hosts["h1"], leaving=True).stuck == ""  # type: ignore[union-attr]
    script.live(3.0)
    assert script.record("q").host != "h1", "the monitor has gone"
    assert states(script) == {1: ("h1", "created")}
    answer = script.report(script.hosts["h1"], leaving=True)
    assert answer.stuck == "what is left there are logs, which stay"  # type: ignore[union-attr]


def test_a_host_that_is_drained_by_hand_gives_its_logs_up(script: Script) -> None:
    script.ask(2112, Host="h1")
    script.live(5.0)
    assert "h1" not in script.record("q").hosts
    assert (1, True) in stops(script)


def test_logs_go_with_their_queue_and_with_their_exchange_only(script: Script) -> None:
    script.ask(2004, QName="q", Host="h2")
    script.ask(2100, QName="q", Exchange="x2")
    assert stops(script) == [(2, True)]
    script.ask(2002, QName="q")
    script.ask(2005, QName="q")
    assert sorted(stops(script)) == [(-1, False), (2, True)]
    script.ask(2001, QName="q")
    assert sorted(stops(script)) == [(-1, False), (-1, True), (2, True)]


def test_an_exchange_that_may_run_unheard_is_begun_and_is_started_again(script: Script) -> None:
    """It may have taken something, and what is in its log has to be read."""
    script.hosts["h2"].mute.add(StartExchange)
    answer = ask(script, out(script))
    assert isinstance(answer, Failure)
    assert "x2 is begun, and may run" in answer.COMMENT
    assert states(script)[2] == ("h2", "creating")
    assert stops(script) == []
    script.hosts["h2"].mute.clear()
    script.live(6.0)
    assert states(script)[2] == ("h2", "created")
    assert ("q", 2) in script.hosts["h2"].children


def test_an_exchange_that_its_host_refuses_takes_only_an_empty_log_with_it(script: Script) -> None:
    script.hosts["h2"].refuse.add(StartExchange)
    assert isinstance(ask(script, out(script)), Failure)
    undone = [
        (each.erase, each.empty)
        for host in script.hosts.values()
        for each in host.asked
        if isinstance(each, StopQueue)
    ]
    assert undone == [(True, True)]
    assert 2 not in states(script)


def test_what_another_leader_has_begun_is_started_again_with_what_is_in_its_log(
    script: Script,
) -> None:
    script.hosts["h2"].mute.add(StartExchange)
    script.send(2004, QName="q", Host="h2")
    script.step()
    assert states(script)[2] == ("h2", "creating")
    script.feed(RegistryLost(session_ended=True))
    script.hosts["h2"].mute.clear()
    script.elect()
    script.live(6.0)
    assert states(script)[2] == ("h2", "created")
    assert ("q", 2) in script.hosts["h2"].children


@pytest.mark.parametrize("host", ["h2", ""])
@pytest.mark.parametrize("transaction", [False, True])
def test_however_often_it_is_asked_for_one_exchange_is_begun_on_a_host_that_does_not_answer(
    script: Script, host: str, transaction: bool
) -> None:
    for each in script.hosts.values():
        each.mute.add(StartExchange)
    known = set(states(script))
    texts = []
    for number in range(8):
        more = {"TransactionID": f"t{number}"} if transaction else {}
        texts.append(script.ask(2004, QName="q", Host=host, **more)["COMMENT"])
        script.live(3.0)
    begun = set(states(script)) - known
    assert len({states(script)[each][0] for each in begun}) == len(begun)
    number = min(begun)
    assert f"x{number} is begun, and may run: it is started as soon as its host can" in texts[0]
    assert f"`roq exchange forget q x{number}` gives it up" in texts[0]
    assert "does not run yet" in texts[-1]
    assert f"`roq exchange forget q x{max(begun)}`" in texts[-1] or not host
    assert f"x{number} does not run on host" in checked(script, "queues")
    for each in script.hosts.values():
        each.mute.clear()
    assert script.ask(2100, QName="q", Exchange=f"x{number}", Forget=True)["RESULT"] == 0
    assert script.ask(2004, QName="q", Host="h2")["RESULT"] == 0


def test_another_exchange_goes_to_a_host_that_answers_where_none_is_named(script: Script) -> None:
    script.hosts["h2"].mute.add(StartExchange)
    assert "x2 is begun" in script.ask(2004, QName="q", Host="h2")["COMMENT"]
    for _ in range(4):
        assert script.ask(2004, QName="q")["RESULT"] == 0
    assert [number for number, (host, _) in states(script).items() if host == "h2"] == [2]


def test_what_was_begun_on_a_host_that_is_lost_is_away_with_its_log(script: Script) -> None:
    script.hosts["h2"].mute.add(StartExchange)
    assert isinstance(ask(script, out(script)), Failure)
    lose(script, "h2")
    assert states(script)[2] == ("h2", "away")


def test_what_was_begun_and_its_host_refuses_later_is_kept(script: Script) -> None:
    """It may have run since it was asked for first."""
    script.hosts["h2"].mute.add(StartExchange)
    assert isinstance(ask(script, out(script)), Failure)
    script.hosts["h2"].mute.clear()
    script.hosts["h2"].refuse.add(StartExchange)
    answer = ask(script, out(script))
    assert isinstance(answer, Failure)
    assert "x2 is begun, and may run" in answer.COMMENT
    assert states(script)[2] == ("h2", "creating")
    assert stops(script) == []


def test_what_was_begun_and_does_not_run_is_given_up_by_who_says_so(script: Script) -> None:
    script.hosts["h2"].mute.add(StartExchange)
    assert isinstance(ask(script, out(script)), Failure)
    script.report(script.hosts["h2"])
    refused = script.ask(2100, QName="q", Exchange="x2")
    assert "x2 of queue 'q' does not run on host h2" in refused["COMMENT"]
    assert "roq exchange forget q x2" in refused["COMMENT"]
    assert stops(script) == []
    assert script.ask(2100, QName="q", Exchange="x2", Forget=True)["RESULT"] == 0
    assert set(states(script)) == {1}


def test_where_the_log_ends_of_what_was_begun_nobody_knows(script: Script) -> None:
    """That nobody has heard of a process of it does not prove that it never ran."""
    script.hosts["h2"].mute.add(StartExchange)
    assert isinstance(ask(script, out(script)), Failure)
    lose(script, "h2")
    assert script.ask(2100, QName="q", Exchange="x2", Forget=True)["RESULT"] == 0
    assert [each.end for each in script.record("q").departed] == [-1]


def test_where_the_log_ends_of_what_its_monitor_alone_has_heard_of_it_says(script: Script) -> None:
    script.hosts["h2"].mute.add(StartExchange)
    assert isinstance(ask(script, out(script)), Failure)
    script.monitors["q"].ends[2] = (77, 5)
    script.hosts["h2"].up = False
    script.pass_time(HOST_SILENT_SECONDS + 1.0)
    assert script.ask(2100, QName="q", Exchange="x2")["RESULT"] == 0
    assert [(each.epoch, each.end) for each in script.record("q").departed] == [(77, 5)]


def test_an_exchange_that_its_host_refuses_at_once_has_lost_nothing(script: Script) -> None:
    """What it knew of named publishers is nothing, so they go on as before."""
    life = script.record("q").life
    script.hosts["h2"].refuse.add(StartExchange)
    assert isinstance(ask(script, out(script)), Failure)
    assert not script.record("q").departed
    assert script.record("q").life == life


def test_one_that_did_not_run_in_time_may_have_run(script: Script) -> None:
    life = script.record("q").life
    script.hosts["h2"].late = True
    assert isinstance(ask(script, out(script)), Failure)
    assert [each.end for each in script.record("q").departed] == [0]
    assert script.record("q").life == life + 1


def test_what_an_earlier_attempt_to_grow_has_begun_is_kept(script: Script) -> None:
    script.hosts["h2"].mute.add(StartExchange)
    assert isinstance(ask(script, out(script)), Failure)
    script.hosts["h2"].mute.clear()
    assert not isinstance(ask(script, out(script, "another")), Failure)
    assert [state for _, state in states(script).values()] == ["created"] * 3


def test_an_undone_exchange_that_is_heard_of_later_takes_only_an_empty_log_with_it(
    script: Script,
) -> None:
    """Else nobody would be told of what is left."""
    child = script.hosts["h2"].start("q", script.record("q").queue_id, 7)
    script.monitors["q"].ends[7] = (child.epoch, 0)
    script.report(script.hosts["h2"])
    script.settle()
    told = [each for each in script.hosts["h2"].asked if isinstance(each, StopQueue)]
    assert [(each.number, each.erase, each.empty) for each in told] == [(7, True, True)]


def test_a_process_that_no_definition_knows_is_stopped_and_its_log_stays(script: Script) -> None:
    """Perhaps it is the registry that has forgotten."""
    del script.registry["/queues/q"]
    script.elect()
    for host in script.hosts.values():
        script.report(host)
    script.live(5.0)
    assert ("q", 1) not in script.hosts["h1"].children
    assert stops(script)
    assert not any(erase for _, erase in stops(script))


def test_a_stopped_queue_starts_without_what_is_away(script: Script) -> None:
    script.ask(2002, QName="q")
    lose(script, "h1")
    script.ask(2005, QName="q")
    assert states(script)[1] == ("h1", "away")
    script.live(3.0)
    assert states(script)[2][1] == "created", "another one stands in"
    script.ask(2002, QName="q")
    script.come_back("h1")
    script.ask(2005, QName="q")
    script.live(3.0)
    assert {state for _, state in states(script).values()} == {"created"}


def test_an_exchange_that_is_away_may_be_given_up(script: Script) -> None:
    refused = script.ask(2100, QName="q", Exchange="x1", Forget=True)
    assert "x1 of queue 'q' is not away" in refused["COMMENT"]
    lose(script, "h1")
    refused = script.ask(2100, QName="q", Exchange="x1")
    assert "roq exchange forget q x1" in refused["COMMENT"]
    assert set(states(script)) == {1, 2}
    script.ask(2100, QName="q", Exchange="x1", Forget=True)
    assert set(states(script)) == {2}


def test_a_log_whose_exchange_does_not_run_is_not_erased_by_a_drain(script: Script) -> None:
    script.hosts["h1"].fail("q", 1, "cannot read its log: Input/output error")
    script.report(script.hosts["h1"])
    script.ask(2112, Host="h1")
    script.live(5.0)
    assert states(script)[1] == ("h1", "created")
    assert (1, True) not in stops(script)
    script.hosts["h1"].restart("q", script.record("q").queue_id, 1)
    script.live(5.0)
    assert (1, True) in stops(script), "it has been emptied by its monitor"
    assert 1 not in states(script)


def test_a_log_on_a_host_that_is_lost_while_it_is_drained_is_away(script: Script) -> None:
    script.monitors["q"].waits_for = "1 subscriber not at its end yet"
    script.ask(2112, Host="h1")
    lose(script, "h1")
    script.live(30.0)
    assert states(script)[1] == ("h1", "away")
    script.come_back("h1")
    script.monitors["q"].waits_for = ""
    script.live(10.0)
    assert (1, True) in stops(script)


def test_one_that_another_one_replaces_already_needs_no_stand_in(script: Script) -> None:
    script.monitors["q"].waits_for = "1 subscriber not at its end yet"
    script.ask(2112, Host="h1")
    script.live(5.0)
    assert script.ask(2111, Host="h1")["RESULT"] == 0
    assert {each.replaces for each in script.record("q").exchanges} == {0, 1}
    lose(script, "h1")
    script.live(10.0)
    assert {number: state for number, (_, state) in states(script).items()} == {
        1: "away", 2: "created",
    }  # fmt: skip


def test_a_log_whose_exchange_does_not_run_is_given_up_by_who_says_so(script: Script) -> None:
    script.ask(2004, QName="q", Host="h2")
    script.hosts["h2"].fail("q", 2, "cannot read its log: Input/output error")
    script.report(script.hosts["h2"])
    refused = script.ask(2100, QName="q", Exchange="x2")
    assert "cannot read its log" in refused["COMMENT"]
    assert "roq exchange forget q x2" in refused["COMMENT"]
    assert stops(script) == []
    assert script.ask(2100, QName="q", Exchange="x2", Forget=True)["RESULT"] == 0
    assert stops(script) == [(2, True)]
    assert set(states(script)) == {1}


def test_a_log_of_a_stopped_queue_is_not_given_up_unread(script: Script) -> None:
    script.ask(2004, QName="q", Host="h2")
    script.ask(2002, QName="q")
    refused = script.ask(2100, QName="q", Exchange="x2")
    assert "roq queue start q" in refused["COMMENT"]
    assert set(states(script)) == {1, 2}


def test_scaling_removes_an_exchange_whose_log_holds_nothing_and_the_folder_with_it(
    script: Script,
) -> None:
    assert isinstance(ask(script, out(script)), ScaledOut)
    script.settle()
    refused = ask(script, less(script, 2))
    assert isinstance(refused, Failure)
    assert "keeps a log" in refused.COMMENT
    assert ask(script, less(script, 2, holds_nothing=True)) == Done(id=8)
    assert stops(script) == [(2, True)]
    assert [each.number for each in script.record("q").exchanges] == [1]


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("durability", ["flush", "none"])
@pytest.mark.parametrize("steps", range(6))
def test_a_leader_that_is_lost_between_emptied_and_gone_leaves_nothing_behind(
    durability: str, steps: int, *, by_hand: bool
) -> None:
    script = Script(*(PaperHost(f"h{number}", epoch=number) for number in (1, 2)))
    script.ask(2003, QName="q", Host="h1", Durability=durability)
    assert isinstance(ask(script, out(script)), ScaledOut)
    script.settle()
    h2, queue_id = script.hosts["h2"], script.record("q").queue_id
    epoch = h2.children["q", 2].epoch
    script.monitors["q"].ends[2] = (epoch, 9)
    goes = less(script, 2, holds_nothing=True, epoch=epoch, end=9)
    if by_hand:
        script.send(2100, QName="q", Exchange="x2")
    else:
        send(script, goes)
    for _ in range(steps):
        if script.pending:
            script.step()
    script.pending.clear()
    script.feed(RegistryLost(session_ended=True))
    script.elect()
    script.live(15.0)
    if 2 in states(script):  # nothing was written: the exchange is there, and asked for again
        assert steps < 2
        assert states(script)[2] == ("h2", "created")
        assert ask(script, goes) == Done(id=8)
    assert 2 not in states(script)
    assert ("q", 2) not in h2.children
    assert durability == "none" or (queue_id, 2) not in h2.logs
    assert [(each.number, each.end) for each in script.record("q").departed] == [(2, 9)]
    assert checked(script, "removed") == "all are"
    assert ask(script, goes) == Done(id=8), "who has not heard of it asks again"


@pytest.mark.parametrize("durability", ["flush", "none"])
@pytest.mark.parametrize("fails", range(1, 5))
def test_an_exchange_that_a_host_refuses_is_undone_also_if_that_fails_at_first(
    durability: str, fails: int
) -> None:
    script = Script(*(PaperHost(f"h{number}", epoch=number) for number in (1, 2)))
    script.ask(2003, QName="q", Host="h1", Durability=durability)
    script.hosts["h2"].refuse.add(StartExchange)
    peer = script.send(2004, QName="q", Host="h2")
    while 2 not in states(script):
        script.step()
    script.registry_fails = fails
    script.settle()
    assert "the definition of x2 is left behind" in script.answer(peer)["COMMENT"]
    script.live(60.0)
    assert set(states(script)) == {1}
    assert described(script)["Reasons"] == []


def test_a_queue_in_memory_has_no_log_that_could_let_go_what_is_done(script: Script) -> None:
    wanted = {"QName": "m", "Host": "h1", "Limits": {"log_until_done": 1}}
    refused = script.ask(2003, Durability="none", **wanted)
    assert refused["RESULT"] == 1101
    assert "log_until_done" in str(refused["COMMENT"])
    assert script.ask(2003, Durability="flush", **wanted)["RESULT"] == 0
    assert script.record("m").limits.log_until_done == 1


@pytest.fixture
def ordered() -> Script:
    """With a queue that has one order."""
    return durable_script(ordered=True)


def test_in_the_place_of_an_ordered_queues_exchange_there_is_no_other(ordered: Script) -> None:
    lose(ordered, "h1")
    assert states(ordered) == {1: ("h1", "away")}
    ordered.live(30.0)
    assert states(ordered) == {1: ("h1", "away")}, "publishers wait"
    ordered.come_back("h1")
    ordered.live(3.0)
    assert states(ordered) == {1: ("h1", "created")}
    assert ("q", 1) in ordered.hosts["h1"].children


def test_an_ordered_queue_whose_exchange_is_given_up_goes_on_with_another_one(
    ordered: Script,
) -> None:
    lose(ordered, "h1")
    assert ordered.ask(2100, QName="q", Exchange="x1", Forget=True)["RESULT"] == 0
    ((number, (host, state)),) = states(ordered).items()
    assert (number, state) == (2, "created")
    assert host in {"h2", "h3"}
    assert ("q", 2) in ordered.hosts[host].children


def test_an_ordered_queue_that_has_no_exchange_gets_one_when_there_is_room(
    ordered: Script,
) -> None:
    lose(ordered, "h1", "h2", "h3")
    answer = ordered.ask(2100, QName="q", Exchange="x1", Forget=True)
    assert answer["RESULT"] == 0
    assert "another exchange begins as soon as there is room: " in answer["WARNING"]
    assert states(ordered) == {}
    ordered.come_back("h2")
    ordered.live(30.0)
    assert states(ordered) == {2: ("h2", "created")}


def test_an_ordered_queue_whose_drain_is_called_off_late_has_one_exchange_in_the_end(
    ordered: Script,
) -> None:
    ordered.monitors["q"].waits_for = "1 subscriber not at its end yet"
    ordered.ask(2112, Host="h1")
    ordered.live(5.0)
    assert set(states(ordered)) == {1, 2}
    assert ordered.ask(2111, Host="h1")["RESULT"] == 0
    ordered.live(5.0)
    ordered.monitors["q"].waits_for = ""
    ordered.live(10.0)
    assert set(states(ordered)) == {2}, "its publishers are there"


def test_in_the_place_of_what_is_to_replace_an_ordered_queues_exchange_there_is_no_other(
    ordered: Script,
) -> None:
    """It has two in the end otherwise, and no order any more."""
    for name in ("h2", "h3"):
        ordered.hosts[name].mute.add(StartExchange)
    ordered.ask(2112, Host="h1")
    ordered.live(1.0)
    host = states(ordered)[2][0]
    ordered.monitors["q"].last = 1
    lose(ordered, host)
    for name in ("h2", "h3"):
        ordered.hosts[name].mute.clear()
    ordered.live(20.0)
    assert states(ordered) == {1: ("h1", "created"), 2: (host, "away")}
    ordered.monitors["q"].last = 0
    ordered.come_back(host)
    ordered.live(30.0)
    assert states(ordered) == {2: (host, "created")}


def test_a_stopped_ordered_queue_keeps_its_exchange_until_it_is_started(ordered: Script) -> None:
    lose(ordered, "h1")
    assert ordered.ask(2002, QName="q")["RESULT"] == 0
    answer = ordered.ask(2100, QName="q", Exchange="x1", Forget=True)
    assert "`roq queue start q` first" in answer["COMMENT"]
    assert ordered.ask(2005, QName="q")["RESULT"] == 0
    assert ordered.ask(2100, QName="q", Exchange="x1", Forget=True)["RESULT"] == 0
    assert [state for _, state in states(ordered).values()] == ["created"]


def test_whoever_asks_for_more_than_one_exchange_of_an_ordered_queue_is_told(
    ordered: Script,
) -> None:
    answer = ordered.ask(2004, QName="q", Host="h2")
    assert (answer["RESULT"], answer["CODE"]) == (1101, "invalid_request")
    assert "is ordered, so it has one exchange" in answer["COMMENT"]
    assert isinstance(ask(ordered, out(ordered)), Failure)
    rules = {
        "AUTOSCALING_ROQ_POLICY": "balanced", "AUTOSCALING_ROQ_LATENCY": 0,
        "AUTOSCALING_ROQ_XCHANGE_MIN": 1, "AUTOSCALING_ROQ_XCHANGE_MAX": 2,
        "AUTOSCALING_ROQ_COOLDOWN": 60,
    }  # fmt: skip
    answer = ordered.ask(2006, QName="q", AUTOSCALING_NAME="r", AUTOSCALING_ROQ=rules)
    assert (answer["RESULT"], answer["CODE"]) == (1101, "invalid_request")
    assert "its rules ask for 2" in answer["COMMENT"]
    rules["AUTOSCALING_ROQ_XCHANGE_MAX"] = 1
    answer = ordered.ask(2006, QName="q", AUTOSCALING_NAME="r", AUTOSCALING_ROQ=rules)
    assert answer["RESULT"] == 0
    assert list(states(ordered)) == [1]


def test_an_ordered_queue_never_grows_whatever_its_other_limit_says(ordered: Script) -> None:
    request = ElasticityRequest(queue="q", queue_id=ordered.record("q").queue_id)
    told = ask(ordered, request)
    assert isinstance(told, Elasticity)
    assert (told.rules.exchanges_min, told.rules.exchanges_max) == (1, 1)
