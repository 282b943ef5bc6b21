"""What is lost runs again on its host, or on another one; what has a log stays with it."""

import pytest
from gcm_repair import lose, reasons, where
from gcm_script import OTHER, PaperHost, Script

from roq.gcm import events
from roq.gcm.repair.schedule import FAILED_SECONDS
from roq.protocol.control import Control, StartExchange, StartMonitor, StopQueue


@pytest.fixture
def script() -> Script:
    return Script(*(PaperHost(f"h{number}", epoch=number) for number in (1, 2, 3)))


def test_the_monitor_and_the_exchange_of_a_lost_host_run_elsewhere(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    old = script.record("q")
    lose(script, "h1")
    script.live(1.5)
    record = script.record("q")
    assert "h1" not in record.hosts
    assert where(script) == {0: record.host, 1: record.exchanges[0].host}
    assert record.exchanges[0].number == 1
    assert record.queue_id == old.queue_id
    assert record.epoch > old.epoch
    assert record.exchanges[0].epoch > old.exchanges[0].epoch
    located = script.ask(2000, port=5000, QName="q")
    assert located["Monitor_host"] == script.hosts[record.host].children["q", 0].control
    assert reasons(script) == []


def test_the_monitor_is_started_first_and_told_that_exchanges_may_run(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    lose(script, "h1")
    script.live(1.5)
    monitor = next(
        message
        for host in script.hosts.values()
        for message in host.asked
        if isinstance(message, StartMonitor) and message.restarted
    )
    exchange = next(
        message
        for name in ("h2", "h3")
        for message in script.hosts[name].asked
        if isinstance(message, StartExchange)
    )
    assert exchange.monitor == script.hosts[script.record("q").host].children["q", 0].control
    assert exchange.base == monitor.base > 3


def test_only_what_was_on_the_lost_host_moves(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.ask(2004, QName="q", Host="h2")
    script.ask(2004, QName="q", Host="h3")
    lose(script, "h2")
    script.live(1.5)
    assert (where(script)[0], where(script)[1], where(script)[3]) == ("h1", "h1", "h3")
    assert where(script)[2] in {"h1", "h3"}


def test_two_of_three_hosts_are_lost_at_once(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.ask(2004, QName="q", Host="h2")
    lose(script, "h1", "h2")
    script.live(2)
    assert where(script) == {0: "h3", 1: "h3", 2: "h3"}


@pytest.mark.parametrize("steps", range(12))
def test_a_later_leader_goes_on_with_a_healing(script: Script, steps: int) -> None:
    script.ask(2003, QName="q", Host="h1")
    lose(script, "h1")
    script.pass_time(1)
    for _ in range(steps):
        if script.pending:
            script.step()
    script.pending.clear()
    script.feed(events.Following(OTHER))
    script.elect()
    script.live(6)
    record = script.record("q")
    assert where(script) == {0: record.host, 1: record.exchanges[0].host}
    assert "h1" not in record.hosts
    assert reasons(script) == []


def test_a_monitor_needs_no_slot_and_an_exchange_waits_for_one() -> None:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2, exchange_max=1))
    script.ask(2003, QName="full", Host="h2")
    script.ask(2003, QName="q", Host="h1")
    lose(script, "h1")
    script.live(2)
    assert where(script) == {0: "h2"}
    assert any("is full" in reason for reason in reasons(script))


def test_what_its_own_host_can_start_again_does_not_move(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    del script.hosts["h1"].children["q", 1]
    script.live(3)
    assert where(script) == {0: "h1", 1: "h1"}
    assert script.numbers == 3, "no number is drawn for what stays"


def test_what_has_failed_is_tried_on_another_host_and_the_log_says_what_was_done(
    script: Script,
) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.hosts["h1"].fail("q", 1, "exit code 70")
    script.live(FAILED_SECONDS + 3)
    assert where(script)[0] == "h1"
    assert where(script)[1] in {"h2", "h3"}
    told = [each for each in script.notes if "exit code 70" in each and "to be started" in each]
    assert told[0].startswith("queue q: x1 ")
    assert f"queue q: started: x1 on {where(script)[1]}" in script.notes


def test_what_was_superseded_is_stopped_where_its_successor_is_to_run(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    lose(script, "h1")
    old = script.hosts["h2"].start("q", script.record("q").queue_id, 0)
    script.hosts["h3"].refuse |= {StartMonitor, StartExchange}
    script.live(10)
    asked = [each for each in script.hosts["h2"].asked if isinstance(each, StopQueue)]
    assert (asked[0].reason, asked[0].number) == ("moved", 0)
    assert script.hosts["h2"].children["q", 0].epoch > old.epoch


def test_an_exchange_with_a_log_waits_for_its_host_and_another_one_stands_in() -> None:
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2), durability="flush")
    script.ask(2003, QName="q", Host="h1")
    script.ask(2004, QName="q", Host="h2")
    script.hosts["h2"].fail("q", 2, "exit code 70")
    script.live(FAILED_SECONDS + 3)
    assert where(script)[2] == "h2", "where its log is"
    lose(script, "h2")
    script.live(5)
    record = script.record("q")
    assert (record.exchange(2).host, record.exchange(2).state) == ("h2", "away")
    assert where(script) == {0: "h1", 1: "h1", 3: "h1"}


def test_a_monitor_that_moves_serves_until_the_other_one_does(script: Script) -> None:
    script.ask(2003, QName="q", Host="h1")
    script.ask(2004, QName="q", Host="h2")
    script.ask(2112, Host="h1")
    asked: list[tuple[str, str]] = []
    for host in script.hosts.values():
        answer = host.answer

        def noted(message: Control, name: str = host.name, answer=answer) -> Control | None:
            if isinstance(message, StartMonitor) or getattr(message, "number", -1) == 0:
                asked.append((type(message).__name__, name))
            return answer(message)

        host.answer = noted  # type: ignore[method-assign]
    script.live(15)
    target = script.record("q").host
    assert target != "h1"
    assert asked[:2] == [("StartMonitor", target), ("StopQueue", "h1")]
