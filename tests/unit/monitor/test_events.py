"""What shell and machine say to each other is said, understood, kept and can be told again."""

from typing import get_args

import pytest
from monitor_driver import QUEUE_ID, Driver
from recorded import flights_of, recorded
from vocabulary import is_kept, kinds, unsaid

from roq.cli.replay import replay
from roq.errors import Unavailable
from roq.machine import Tick
from roq.monitor import events
from roq.protocol.control import Done, HealthRequest, Version

PEER = (b"client", True)
EVENTS: list[events.Event] = [
    events.Received(PEER, HealthRequest(id=1)),
    events.LeaderAnswered(99, Done(id=1)),
    events.LeaderAnswered(99, Unavailable("no answer")),
    events.Listened(anybody=True),
    Tick(),
    events.StopWanted("removed"),
    events.StopWanted(),
]


def test_every_word_is_an_event_or_an_effect() -> None:
    assert unsaid(events) == []
    assert kinds(EVENTS) == set(get_args(events.Event))


def test_the_machine_takes_every_event_and_one_that_is_flown_again_takes_it_likewise() -> None:
    with recorded() as recorders:
        driver = Driver()
        for event in EVENTS:
            driver.handle(event)
    (flight,) = flights_of(recorders)
    assert replay(flight) is None
    assert [each.event for each in flight[2]] == [type(each).__name__ for each in EVENTS]


def test_what_was_said_cannot_be_changed() -> None:
    told = Version(queue_id=QUEUE_ID, epoch=1, version=1)
    effects = [
        events.Send(PEER, told), events.Push((PEER,), told), events.Publish((b"",)),
        events.Ask(1, HealthRequest(id=1), 1.0), events.Note("e", "t"), events.Confirmed(),
        events.Disowned(), events.Finished(),
    ]  # fmt: skip
    assert kinds(effects) == set(get_args(events.Effect))
    said = [each for each in (*EVENTS, *effects) if not isinstance(each, Tick)]
    assert [each for each in said if not is_kept(each)] == []


@pytest.mark.parametrize(("reason", "told"), [("", []), ("stopped", ["stopped"])])
def test_clients_are_told_that_their_queue_goes_if_it_does(reason: str, told: list[str]) -> None:
    driver = Driver()
    driver.report(1)
    driver.join("s")
    driver.advance(8.0, (1, 1))
    stop = events.StopWanted(reason) if reason else events.StopWanted()
    effects = driver.handle(stop)
    topologies = [each.message for each in effects if isinstance(each, events.Push)]
    assert [each.state for each in topologies] == told


def test_a_line_warns_nobody_unless_it_says_so() -> None:
    assert not events.Note("e", "t").warning
