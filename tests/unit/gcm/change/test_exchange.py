"""Command 2100 takes an exchange out of a queue; what is left half-done is finished later."""

import msgspec
import pytest
from gcm_scaling import answer_of, ask, numbers, out, rule, send, wake
from gcm_script import OTHER, PaperHost, Script

from roq.gcm import events
from roq.gcm.state.records import DEPARTED_MAX, DepartedRecord, QueueRecord
from roq.model import QueueState
from roq.protocol.control import Empty, StartExchange, StopQueue
from roq.timing import EMPTYING_ASKS_SECONDS, OPERATION_WAIT_SECONDS


@pytest.fixture
def script() -> Script:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2))
    script.ask(2003, QName="q", Host="h1")
    return script


# --- command 2100 ---------------------------------------------------------------------------------


@pytest.fixture
def two(script: Script) -> Script:
    """A queue with x1 on h1 and x2 on h2."""
    script.ask(2004, QName="q", Host="h2")
    return script


@pytest.mark.parametrize("given", ["x2", "2", 2])
def test_an_exchange_is_emptied_then_stopped_then_forgotten(two: Script, given: str | int) -> None:
    peer = two.send(2100, QName="q", Exchange=given)
    two.step()
    assert two.monitors["q"].asked == [Empty(queue_id=two.record("q").queue_id, number=2)]
    assert two.record("q").exchange(2).state == "created"
    two.step()
    assert two.record("q").exchange(2).state == "removing"
    assert ("q", 2) in two.hosts["h2"].children
    two.step()
    assert ("q", 2) not in two.hosts["h2"].children
    assert two.record("q").exchange(2) is not None
    two.step()
    assert numbers(two) == [1]
    answer = two.answer(peer)
    assert answer == {"RESULT": 0, "COMMENT": "SUCCESS", "Exchange": "x2", "Number": 2}


def test_where_the_log_of_an_exchange_ended_is_told_when_it_has_gone(two: Script) -> None:
    epoch = two.hosts["h2"].children["q", 2].epoch
    two.monitors["q"].ends[2] = (epoch, 4_711)
    two.send(2100, QName="q", Exchange="x2")
    for _ in range(3):
        two.step()
    gone = {"Number": 2, "Epoch": epoch, "Generation": epoch, "End": 4_711}
    described = two.ask(2104, QName="q")
    assert described["Departed"] == [gone]  # before it stops, so that nobody misses it
    assert numbers(two) == [1]
    two.elect()
    assert two.ask(2104, QName="q")["Departed"] == [gone]


def test_of_an_exchange_that_was_started_anew_meanwhile_nobody_knows_the_end(two: Script) -> None:
    epoch = two.hosts["h2"].children["q", 2].epoch
    two.monitors["q"].ends[2] = (epoch - 1, 4_711)
    two.ask(2100, QName="q", Exchange="x2")
    gone = {"Number": 2, "Epoch": epoch, "Generation": epoch, "End": -1}
    assert two.ask(2104, QName="q")["Departed"] == [gone]


def test_not_more_than_some_exchanges_that_went_are_remembered() -> None:
    record = QueueRecord(name="q", queue_id=b"q", state=QueueState.RUNNING, host="h1", created=1.0)
    for number in range(1, DEPARTED_MAX + 3):
        record = record.departing(DepartedRecord(number=number, epoch=1, end=5))
    assert [each.number for each in record.departed] == list(range(3, DEPARTED_MAX + 3))


def test_what_an_exchange_waits_for_is_told_and_the_command_may_be_repeated(two: Script) -> None:
    two.monitors["q"].waits_for = "2 publishers still there"
    answer = two.ask(2100, QName="q", Exchange="x2")
    assert (answer["RESULT"], answer["CODE"]) == (1101, "not_empty")
    assert "2 publishers still there" in answer["COMMENT"]
    assert ("q", 2) in two.hosts["h2"].children
    two.monitors["q"].waits_for = ""
    assert two.ask(2100, QName="q", Exchange="x2")["RESULT"] == 0


def test_a_monitor_that_says_nothing_leaves_the_exchange_as_it_is(two: Script) -> None:
    two.monitors["q"].mute = True
    answer = two.ask(2100, QName="q", Exchange="x2")
    assert answer["CODE"] == "not_empty"
    assert "monitor of queue 'q' did not say" in answer["COMMENT"]
    assert two.record("q").exchange(2).state == "created"


def test_a_monitor_may_know_that_no_other_exchange_takes_publishers(two: Script) -> None:
    two.monitors["q"].last = 2
    assert two.ask(2100, QName="q", Exchange="x2")["CODE"] == "no_capacity"
    assert numbers(two) == [1, 2]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_queue_keeps_its_last_exchange(script: Script, *, stopped: bool) -> None:
    if stopped:
        script.ask(2002, QName="q")
    answer = script.ask(2100, QName="q", Exchange="x1")
    assert (answer["RESULT"], "last exchange" in answer["COMMENT"]) == (1101, True)
    assert numbers(script) == [1]


@pytest.mark.parametrize("given", ["x3", "", "x", "X2", "x-2", "²", "9" * 5000, -2, 2**70, "x2x"])
def test_an_exchange_that_does_not_exist_is_named_with_those_that_do(
    two: Script, given: str | int
) -> None:
    if isinstance(given, int) and given > 2**63:
        given = str(given)
    answer = two.ask(2100, QName="q", Exchange=given)
    assert (answer["RESULT"], answer["CODE"]) == (1101, "exchange_not_found")
    assert "there are x1, x2" in answer["COMMENT"]
    assert len(answer["COMMENT"]) < 200


def test_an_exchange_of_an_unknown_queue_is_not_removed(script: Script) -> None:
    assert script.ask(2100, QName="nobody", Exchange="x1")["CODE"] == "queue_not_found"


def test_an_exchange_of_a_stopped_queue_needs_no_emptying(two: Script) -> None:
    two.ask(2002, QName="q")
    assert two.ask(2100, QName="q", Exchange="x2")["RESULT"] == 0
    assert two.monitors["q"].asked == []
    assert numbers(two) == [1]


def test_an_exchange_that_failed_for_good_is_removed_without_asking(two: Script) -> None:
    host = two.hosts["h2"]
    host.children["q", 2] = msgspec.structs.replace(host.children["q", 2], state="failed", pid=0)
    two.report(host)
    two.monitors["q"].mute = True
    assert two.ask(2100, QName="q", Exchange="x2")["RESULT"] == 0
    assert numbers(two) == [1]


def test_of_an_exchange_whose_host_is_away_the_monitor_knows_whether_it_is_empty(
    two: Script,
) -> None:
    two.vanish("h2", with_children=False)
    for _ in range(5):
        two.pass_time(1)
        two.report(two.hosts["h1"])
    two.monitors["q"].waits_for = "1 publisher still there"
    assert two.ask(2100, QName="q", Exchange="x2")["CODE"] == "not_empty"
    two.monitors["q"].waits_for = ""
    assert two.ask(2100, QName="q", Exchange="x2")["RESULT"] == 0
    assert ("q", 2) in two.hosts["h2"].children
    two.come_back("h2")
    wake(two)  # the host manager is back, and its exchange unwanted
    assert ("q", 2) not in two.hosts["h2"].children


def test_a_host_that_does_not_confirm_is_named(two: Script) -> None:
    two.hosts["h2"].mute.add(StopQueue)
    answer = two.ask(2100, QName="q", Exchange="x2")
    assert (answer["RESULT"], "h2 did not confirm" in answer["WARNING"]) == (0, True)
    assert numbers(two) == [1]


def test_a_stop_does_not_wait_longer_for_an_emptying_than_a_monitor_may_take(
    two: Script,
) -> None:
    assert EMPTYING_ASKS_SECONDS + 1 < OPERATION_WAIT_SECONDS
    removal = two.send(2100, QName="q", Exchange="x2")
    stop = two.send(2002, QName="q")
    two.pending.clear()  # the monitor never answers
    for _ in range(int(EMPTYING_ASKS_SECONDS) + 1):
        two.pass_time(1)
        for host in two.hosts.values():
            two.report(host)
    assert two.answer(removal)["CODE"] == "not_empty"
    two.settle()
    assert two.answer(stop)["RESULT"] == 0
    assert [host.children for host in two.hosts.values()] == [{}, {}]


def test_no_more_than_one_exchange_goes_at_a_time(two: Script) -> None:
    both = [two.send(2100, QName="q", Exchange=name) for name in ("x1", "x2")]
    two.settle()
    answers = [two.answer(peer) for peer in both]
    assert [answer["RESULT"] for answer in answers] == [0, 1101]
    assert "last exchange" in answers[1]["COMMENT"]


# --- what is left half-done -----------------------------------------------------------------------


@pytest.mark.parametrize("after", [2, 3])
def test_a_later_leader_finishes_a_removal(two: Script, after: int) -> None:
    two.send(2100, QName="q", Exchange="x2")
    for _ in range(after):
        two.step()
    two.pending.clear()
    assert two.record("q").exchange(2).state == "removing"
    two.elect()
    wake(two)
    wake(two)
    assert numbers(two) == [1]
    assert ("q", 2) not in two.hosts["h2"].children


def test_a_removal_that_the_registry_interrupts_is_finished_when_it_is_back(two: Script) -> None:
    peer = two.send(2100, QName="q", Exchange="x2")
    for _ in range(3):
        two.step()
    two.registry_fails = 1
    two.step()
    assert two.answer(peer)["CODE"] == "interrupted"
    wake(two)
    assert numbers(two) == [1]


def test_while_the_registry_is_away_nothing_is_finished(two: Script) -> None:
    two.send(2100, QName="q", Exchange="x2")
    for _ in range(2):
        two.step()
    two.feed(events.Following(OTHER))
    two.pending.clear()
    two.elect()
    two.feed(events.RegistryLost())
    two.pass_time(5)
    assert not two.pending
    two.feed(events.RegistryBack(two.snapshot()))
    wake(two)
    assert numbers(two) == [1]


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_later_leader_completes_an_exchange_that_runs_and_gives_up_one_that_does_not(
    script: Script, *, started: bool, by_hand: bool
) -> None:
    if by_hand:
        script.send(2004, QName="q", Host="h2", TransactionID="t1")
    else:
        send(script, out(script))
    script.step()
    if started:
        script.step()
    script.pending.clear()
    assert script.record("q").exchange(2).state == "creating"
    script.elect()
    script.pass_time(2)
    assert numbers(script) == [1, 2]  # its host has not reported yet
    wake(script)
    assert numbers(script) == ([1, 2] if started else [1])
    if started:
        assert script.record("q").exchange(2).state == "created"
        assert ask(script, out(script)).number == 2


def test_an_exchange_that_is_starting_is_given_time(script: Script) -> None:
    send(script, out(script))
    script.step()
    script.pending.clear()
    script.elect()
    host = script.hosts["h2"]
    child = host.start("q", script.record("q").queue_id, 2)
    host.children["q", 2] = msgspec.structs.replace(child, state="starting", data="", live="")
    wake(script)
    assert numbers(script) == [1, 2]
    host.children["q", 2] = child
    wake(script)
    assert script.record("q").exchange(2).state == "created"


def test_an_undoing_that_the_registry_interrupts_is_finished_later(script: Script) -> None:
    script.hosts["h2"].refuse.add(StartExchange)
    peer = send(script, out(script))
    script.step()
    script.registry_fails = 1
    script.settle()
    assert "left behind" in answer_of(script, peer).COMMENT
    assert numbers(script) == [1, 2]
    wake(script)
    assert numbers(script) == [1]


def test_an_exchange_left_half_made_does_not_count_against_the_next_one(script: Script) -> None:
    rule(script, AUTOSCALING_ROQ_XCHANGE_MAX=2)
    send(script, out(script, "lost"))
    script.step()
    script.pending.clear()
    script.elect()
    for host in script.hosts.values():
        script.report(host)
    assert ask(script, out(script, "next")).number == 3
    assert numbers(script) == [1, 3]


def test_a_queue_starts_without_what_was_being_removed(two: Script) -> None:
    two.send(2100, QName="q", Exchange="x2")
    for _ in range(2):
        two.step()
    two.pending.clear()
    two.elect()
    two.report(two.hosts["h1"])  # and h2 does not
    two.ask(2002, QName="q")
    assert two.ask(2005, QName="q")["RESULT"] == 0
    assert numbers(two) == [1]
    wake(two)
    assert ("q", 2) not in two.hosts["h2"].children


def test_an_exchange_on_its_way_out_does_not_come_back_by_an_old_request(script: Script) -> None:
    send(script, out(script))
    script.step()
    script.step()
    script.pending.clear()
    script.elect()
    for host in script.hosts.values():
        script.report(host)
    script.settle()
    script.send(2100, QName="q", Exchange="x2")
    script.step()
    script.step()
    script.pending.clear()
    script.elect()
    made = ask(script, out(script))
    assert made.number == 3
    wake(script)
    assert numbers(script) == [1, 3]
