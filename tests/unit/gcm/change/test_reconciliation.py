"""Processes that no definition wants are stopped; an exchange only when nobody needs it."""

import pytest
from gcm_script import PaperHost, Script

from roq.gcm.change.host import READ_SECONDS
from roq.gcm.interfaces.reports import STRAY_SECONDS
from roq.protocol.control import Empty, StopQueue


@pytest.fixture
def script() -> Script:
    """A durable queue with x1, and x7, of which its definition knows nothing."""
    script = Script(PaperHost("h1"), PaperHost("h2", epoch=2), durability="flush")
    script.ask(2003, QName="q", Host="h1")
    queue_id = script.record("q").queue_id
    script.hosts["h1"].start("q", queue_id, 7)
    return script


def stops(script: Script) -> list[tuple[int, bool]]:
    asked = script.hosts["h1"].asked
    return [(each.number, each.empty) for each in asked if isinstance(each, StopQueue)]


def report(script: Script, seconds: float = STRAY_SECONDS) -> None:
    script.pass_time(seconds)
    script.report(script.hosts["h1"])
    script.settle()


def test_an_exchange_whose_start_came_too_late_is_emptied_before_it_is_stopped(
    script: Script,
) -> None:
    monitor, epoch = script.monitors["q"], script.hosts["h1"].children["q", 7].epoch
    monitor.waits_for = "1 subscriber not at its end yet"
    for _ in range(3):
        report(script)
    assert stops(script) == []
    queue_id = script.record("q").queue_id
    assert monitor.asked == [
        Empty(queue_id=queue_id, number=7, at_once=True, read_seconds=READ_SECONDS)
    ] * 3  # fmt: skip
    monitor.waits_for, monitor.ends[7] = "", (epoch, 4_711)
    report(script)
    assert stops(script) == [(7, True)]
    assert ("q", 7) not in script.hosts["h1"].children
    assert [(each.number, each.epoch, each.end) for each in script.record("q").departed] == [
        (7, epoch, 4_711)
    ]


def test_a_monitor_that_does_not_hear_of_it_does_not_know_that_nobody_needs_it(
    script: Script,
) -> None:
    script.monitors["q"].ends[7] = (0, -1)
    report(script)
    assert stops(script) == []


def test_one_that_was_given_up_and_comes_back_is_stopped_at_once(script: Script) -> None:
    script.ask(2004, QName="q", Host="h2")
    script.vanish("h2", with_children=False)
    script.expire_node("h2")
    script.live(12.0, heartbeats=False)
    assert script.ask(2100, QName="q", Exchange="x2", Forget=True)["RESULT"] == 0
    monitor = script.monitors["q"]
    monitor.asked.clear()
    monitor.waits_for = "1 consumer group not at its end yet"
    script.come_back("h2")
    script.report(script.hosts["h2"])
    script.settle()
    assert not any(each.number == 2 for each in monitor.asked if isinstance(each, Empty))
    assert ("q", 2) not in script.hosts["h2"].children


def test_one_that_has_failed_is_stopped_at_once(script: Script) -> None:
    script.hosts["h1"].fail("q", 7, "it ends at once")
    report(script)
    assert script.monitors["q"].asked == []
    assert stops(script) == [(7, True)]


def test_one_of_a_queue_that_is_gone_is_stopped_at_once(script: Script) -> None:
    script.hosts["h1"].start("other", b"n" * 16, 7)
    script.monitors["q"].waits_for = "1 subscriber not at its end yet"
    report(script)
    assert [each for each in stops(script) if each[0] != 7] == [(-1, False)]


def test_a_monitor_that_never_says_that_nobody_needs_it_is_not_waited_for_for_ever(
    script: Script,
) -> None:
    script.monitors["q"].mute = True
    seconds = 0.0
    while not stops(script):
        report(script)
        seconds += STRAY_SECONDS
        assert seconds <= READ_SECONDS + 60.0
    assert stops(script) == [(7, True)]
    assert seconds >= READ_SECONDS
    assert script.record("q").departed[-1].end == -1
    assert any("x7, which is stopped unread" in line for line in script.notes)
