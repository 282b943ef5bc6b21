"""An exchange whose process refuses its log keeps nothing else of its queue from going on."""

from __future__ import annotations

import msgspec
import pytest
from gcm_durable import described, durable_script, lose, states
from gcm_scaling import ask, out
from gcm_script import PaperHost, Script

from roq.gcm.state.records import encode, queue_path
from roq.protocol.control import Failure, StartExchange, StopQueue

DAMAGED = "host h1 refused: q.x1 does not run: ended: exit code 74; log.json is damaged"


@pytest.fixture
def script() -> Script:
    """A queue with x1 on h1, whose log is damaged, and x2 on h2."""
    made = durable_script()
    made.ask(2004, QName="q", Host="h2")
    made.hosts["h1"].bad_logs = {("q", 1)}
    return made


def test_a_stopped_queue_starts_with_the_logs_that_can_be_read(script: Script) -> None:
    script.ask(2002, QName="q")
    answer = script.ask(2005, QName="q")
    assert answer["RESULT"] == 0
    assert answer["WARNING"] == f"x1 does not run: {DAMAGED}"
    assert ("q", 2) in script.hosts["h2"].children
    script.live(3.0)
    assert any("x1 does not run on host h1" in each for each in described(script)["Reasons"])
    script.hosts["h1"].bad_logs.clear()
    script.live(60.0)
    assert ("q", 1) in script.hosts["h1"].children, "it is started again by itself"
    assert described(script)["Reasons"] == []


def test_one_whose_host_does_not_answer_is_named_as_well(script: Script) -> None:
    script.ask(2002, QName="q")
    script.hosts["h1"].bad_logs.clear()
    script.hosts["h1"].mute.add(StartExchange)
    assert script.ask(2005, QName="q")["WARNING"] == "x1 does not run: host h1 did not answer"


def test_a_queue_of_which_no_log_can_be_read_stays_stopped_and_says_why(script: Script) -> None:
    script.ask(2002, QName="q")
    script.hosts["h2"].bad_logs = {("q", 2)}
    answer = script.ask(2005, QName="q")
    assert answer["RESULT"] == 1101
    assert DAMAGED in answer["COMMENT"]
    assert script.record("q").state == "stopped"


def test_of_a_stopped_queue_a_log_may_be_given_up_and_stays_on_its_disk(script: Script) -> None:
    script.ask(2002, QName="q")
    assert "`roq queue start q` first" in script.ask(2100, QName="q", Exchange="x1")["COMMENT"]
    assert script.ask(2100, QName="q", Exchange="x1", Forget=True)["RESULT"] == 0
    assert list(states(script)) == [2]
    assert (script.record("q").queue_id, 1) in script.hosts["h1"].logs
    assert "last exchange" in script.ask(2100, QName="q", Exchange="x2", Forget=True)["COMMENT"]


def test_one_that_is_refused_keeps_no_other_one_away(script: Script) -> None:
    lose(script, "h1", "h2")
    assert [state for _, state in states(script).values()][:2] == ["away", "away"]
    script.come_back("h1")
    script.come_back("h2")
    script.live(3.0)
    assert states(script)[2] == ("h2", "created")
    assert states(script)[1] == ("h1", "away")
    assert described(script)["Reasons"] == [f"x1 is away: {DAMAGED}"]
    assert script.ask(2005, QName="q")["WARNING"] == f"x1 is away: {DAMAGED}"
    assert script.ask(2003, QName="new", Host="h1", Durability="flush")["RESULT"] == 0


def test_one_that_was_given_up_while_it_was_away_keeps_its_log_on_a_host_that_is_there(
    script: Script,
) -> None:
    lose(script, "h1")
    script.come_back("h1")
    script.live(3.0)
    assert script.ask(2100, QName="q", Exchange="x1", Forget=True)["RESULT"] == 0
    told = [each for each in script.hosts["h1"].asked if isinstance(each, StopQueue)]
    assert (told[-1].number, told[-1].erase, told[-1].empty) == (1, True, True)
    assert (script.record("q").queue_id, 1) in script.hosts["h1"].logs


def test_what_is_to_start_it_is_named_and_is_not_called_lost(script: Script) -> None:
    lose(script, "h1")
    script.hosts["h1"].mute.add(StartExchange)
    script.come_back("h1")
    script.live(1.0)
    reason = described(script)["Reasons"][0]
    assert "x1 is away: its log is on host h1, which is to start it" in reason


def test_what_stands_in_is_tried_on_another_host_than_the_one_that_refused() -> None:
    script = Script(*(PaperHost(f"h{number}", epoch=number) for number in (1, 2, 3)))
    script.ask(2003, QName="other", Host="h3", Durability="flush")
    script.ask(2003, QName="q", Host="h1", Durability="flush")
    script.hosts["h2"].refuse.add(StartExchange)
    lose(script, "h1")
    script.live(60.0)
    assert [host for host, state in states(script).values() if state == "created"] == ["h3"]
    asked = [each for each in script.hosts["h2"].asked if isinstance(each, StartExchange)]
    assert len(asked) == 1


def test_growing_avoids_a_host_that_has_refused_until_it_starts_one_again(script: Script) -> None:
    script.hosts["h1"].bad_logs.clear()
    script.hosts["h3"].refuse.add(StartExchange)
    assert isinstance(ask(script, out(script)), Failure)
    assert not isinstance(ask(script, out(script, "another")), Failure)
    assert states(script)[4][0] in {"h1", "h2"}
    script.hosts["h3"].refuse.clear()
    assert script.ask(2100, QName="q", Exchange="x4")["RESULT"] == 0
    script.ask(2004, QName="q", Host="h3")
    script.ask(2100, QName="q", Exchange="x5")
    assert not isinstance(ask(script, out(script, "a third one")), Failure)
    assert states(script)[6][0] == "h3", "it has started one since"


def test_a_process_that_was_removed_takes_no_other_log_with_it_when_its_queue_is_stopped() -> None:
    """The removal of x2 was begun when its host did not answer, and the registry went away."""
    script = durable_script()
    for _ in range(2):
        script.ask(2004, QName="q", Host="h2")
    exchanges = [
        msgspec.structs.replace(each, state="removing") if each.number == 2 else each
        for each in script.record("q").exchanges
    ]
    record = msgspec.structs.replace(
        script.record("q"), state="stopping", exchanges=tuple(exchanges)
    )
    script.registry[queue_path("q")] = encode(record)
    script.hosts["h2"].mute.add(StopQueue)
    script.elect()
    script.settle()
    assert script.record("q").state == "stopping"
    script.hosts["h2"].asked.clear()
    script.hosts["h2"].mute.clear()
    script.report(script.hosts["h2"])
    script.settle()
    told = [each for each in script.hosts["h2"].asked if isinstance(each, StopQueue)]
    assert [each.number for each in told if each.erase] == [2]
    assert (record.queue_id, 3) in script.hosts["h2"].logs


def test_a_report_with_an_impossible_address_is_refused() -> None:
    script = durable_script()
    host = script.hosts["h1"]
    child = host.children[("q", 1)]
    for wrong in ({"data": "junk"}, {"live": "tcp://h1:0"}, {"number": 0}):
        host.children[("q", 1)] = msgspec.structs.replace(child, epoch=child.epoch + 1, **wrong)
        script.report(host)
        script.settle()
    assert script.record("q").exchanges[0].data == child.data
    assert described(script)["Reasons"] == []
