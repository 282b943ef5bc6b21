"""Everything that a session can be told is taken in, and everything that it wants is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from roq.client.session.events import (
    AliveWanted,
    AskManager,
    AskMonitor,
    AttachWanted,
    Cause,
    ClientState,
    Close,
    Effect,
    Event,
    ManagerAnswered,
    MonitorAnswered,
    MonitorLost,
    Pushed,
    Start,
    StateChange,
    Tell,
    TopologyWanted,
)
from roq.client.session.machine import SessionMachine
from roq.errors import Unavailable
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits
from roq.protocol.control import Alive, Assigned, Located, Relocate, Topology

DOCS = Path(__file__).parents[4] / "docs"
QUEUE_ID = b"q" * 16
EXCHANGE = ExchangeInfo(
    number=1, epoch=1, generation=1, host="h", data="tcp://h:1", live="tcp://h:2"
)
LOCATED = Located(
    QName="q", queue_id=QUEUE_ID, monitor="tcp://m:1", statistics="", limits=Limits()
)  # fmt: skip
ASSIGNED = Assigned(exchange=EXCHANGE, epoch=1, limits=Limits())
TOPOLOGY = Topology(
    queue_id=QUEUE_ID, epoch=1, version=1, exchanges=[EXCHANGE], state="running"
)  # fmt: skip
ALIVE = Alive(queue_id=QUEUE_ID, client=b"c" * 16, role="publisher", epoch=0)


class Life:
    """A session, and all that it was told and has wanted."""

    def __init__(self, role: str) -> None:
        self.machine = SessionMachine(
            queue="q", client=b"c" * 16, role=role, managers=["tcp://a:1"], jitter=lambda: 0.0
        )
        self.now = 0.0
        self.told: set[type] = set()
        self.wanted: set[type] = set()
        self.asked: AskMonitor | None = None

    def tell(self, *events: Event) -> None:
        """All of these have an effect."""
        for event in events:
            effects = self.machine.handle(event, self.now)
            assert effects, f"{event} has none"
            self.told.add(type(event))
            self.wanted |= {type(each) for each in effects}
            for each in effects:
                self.asked = each if isinstance(each, AskMonitor) else self.asked

    def answered(self, answer: Assigned | Topology) -> None:
        assert self.asked is not None
        self.tell(MonitorAnswered(self.asked.serial, answer))

    def wait(self) -> None:
        wake = self.machine.next_deadline()
        assert wake is not None
        self.now = wake
        self.tell(Tick())


@pytest.fixture(scope="module")
def lives() -> tuple[Life, Life]:
    """A publisher that is moved and loses its monitor, and a subscriber that asks and leaves."""
    publisher, subscriber = Life("publisher"), Life("subscriber")
    publisher.tell(Start(), ManagerAnswered(Unavailable("away"), late=True))
    publisher.tell(ManagerAnswered(LOCATED))
    publisher.answered(ASSIGNED)
    publisher.wait()
    publisher.tell(
        Pushed(Relocate(publisher=b"c" * 16, epoch=2, exchanges=[EXCHANGE], queue_id=QUEUE_ID)),
        Tell(ALIVE), AliveWanted(), AttachWanted(((1, 1),)), MonitorLost("gone"),
    )  # fmt: skip
    subscriber.tell(Start(), ManagerAnswered(LOCATED))
    subscriber.answered(TOPOLOGY)
    subscriber.tell(TopologyWanted(), Close())
    return publisher, subscriber


def test_the_machine_takes_in_every_event(lives: tuple[Life, Life]) -> None:
    assert lives[0].told | lives[1].told == set(get_args(Event))


def test_the_machine_wants_every_effect(lives: tuple[Life, Life]) -> None:
    assert lives[0].wanted | lives[1].wanted == set(get_args(Effect))


def test_a_manager_has_the_time_to_answer_that_nobody_is_overloaded() -> None:
    life = Life("publisher")
    (asked,) = life.machine.handle(Start(), 0.0)
    assert asked == AskManager("tcp://a:1")


def test_what_is_told_of_a_state_is_well_if_nothing_is_said() -> None:
    change = StateChange(state=ClientState.CONNECTED)
    assert (change.cause, change.reason, change.messages) == (Cause.NONE, "", 0)
    assert not change.cause


def test_states_and_causes_that_programs_are_told_are_written_down() -> None:
    text = "\n".join(path.read_text() for path in DOCS.glob("*.md"))
    missing = [each for each in (*ClientState, *Cause) if each and f"`{each}`" not in text]
    assert missing == []
