"""Everything that a publisher can be told is taken in, and everything that it wants is wanted."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from publisher_script import X2, X3, Script, accepted, acked

from roq.client.publish.events import (
    Effect,
    Elsewhere,
    Event,
    Leave,
    Relocate,
    Serving,
)
from roq.machine import Tick


class Told(Script):
    """Notes which events had an effect, and which effects there were."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[type] = set()
        self.wanted: set[type] = set()

    def feed(self, event: object) -> list[Effect]:
        effects = super().feed(event)
        if effects:
            self.told.add(type(event))
        self.wanted |= {type(each) for each in effects}
        return effects


@pytest.fixture(scope="module")
def life() -> Told:
    """A publisher leaves a slow exchange, moves while it publishes, and follows a log."""
    script = Told()
    script.assign()
    script.publish()
    script.accept()
    script.feed(Elsewhere("slow"))
    script.assign(X2, 2)
    script.accept(exchange=X2)
    script.feed(Relocate(3, (X3,)))
    script.publish("new")
    acked(script, X2, 1)
    acked(script, X2, 2)
    accepted(script, X3)
    script.feed(Serving((msgspec.structs.replace(X3, epoch=X3.epoch + 1),)))
    script.lost("gone")
    script.now += 60.0
    script.feed(Tick())
    script.assign(X2, 4)
    script.accept(exchange=X2)
    script.feed(Leave("the end"))
    return script


def test_the_machine_takes_in_every_event(life: Told) -> None:
    assert life.told == set(get_args(Event))


def test_the_machine_wants_every_effect(life: Told) -> None:
    assert life.wanted == set(get_args(Effect))
