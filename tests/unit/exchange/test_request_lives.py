"""All lives of requests end, and memory is as before."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from exchange_driver import Publisher, exchange
from service_party import Party, pass_time

from roq.exchange.events import Unreachable
from roq.log.ring import Ring, TopicLog
from roq.protocol.requesting import (
    ENDS,
    Answer,
    Begun,
    Position,
    RequestState,
    ServiceSettings,
)


def held(thing: object, seen: set[int] | None = None) -> int:
    """How much is in all that something holds, but for the log: that keeps what it may."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, Ring | TopicLog | type | str | bytes):
        return 0
    seen.add(id(thing))
    if isinstance(thing, Mapping):
        return sum(1 + held(key, seen) + held(value, seen) for key, value in thing.items())
    if isinstance(thing, list | tuple | set | frozenset | deque):
        return sum(1 + held(each, seen) for each in thing)
    if not type(thing).__module__.startswith("roq"):
        return 0
    slots = [name for each in type(thing).__mro__ for name in getattr(each, "__slots__", ())]
    names = [*getattr(thing, "__dict__", ()), *slots]
    return sum(held(getattr(thing, name, None), seen) for name in names)


class Lives:
    """Requests, ten of each kind, that end in every way there is."""

    def __init__(self) -> None:
        self.there = exchange()
        self.publisher = Publisher(self.there)
        self.publisher.hello()
        self.asker, self.instance = Party(self.there, "asker"), Party(self.there, "instance")
        settings = ServiceSettings(result_within=20.0, keep_result=5.0, chosen=True)
        self.asker.attend(settings=settings)
        self.instance.join(credit=0)
        self.told = set[str]()

    @property
    def held(self) -> int:
        return held(self.there.core.consumers)

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            pass_time(self.there, 1.0)
            self.instance.grant(0)
            self.told |= {each.state for each in self.asker.ends()}

    def leased(self) -> tuple[int, list[Position]]:
        """Requests that the instance has got: its lease, and where they are."""
        self.publisher.send(b"s/do", 10)
        self.instance.leases.clear()
        self.instance.grant(100)
        self.instance.told.clear()  # what was taken from it before
        ((number, *_),) = self.instance.leases
        self.instance.grant(0)
        return number, [Position(self.there.core.log.end - 1, at) for at in range(10)]

    def answered(self, **given: Any) -> list[Position]:
        number, places = self.leased()
        self.instance.done(answers=[Answer(number, at, **given) for at in range(10)])
        return places

    def begun(self) -> list[Position]:
        number, places = self.leased()
        self.instance.done(begun=[Begun(number, 0, 10, once=True)])
        return places

    def play(self) -> None:
        kept = self.answered(value=b"v" * 100)
        fetched = self.answered(value=b"v" * 100)
        self.asker.want(fetched=[(fetched[0].offset, 0, 10)])
        self.answered(state=RequestState.FAILED, text="no")
        self.asker.want(cancelled=self.begun())
        self.asker.want(late=self.begun())
        self.begun()
        self.told |= {each.state for each in self.asker.ends()}
        self.there.tell(Unreachable(self.instance.route))
        pass_time(self.there, 5.0)
        self.told |= {each.state for each in self.asker.ends()}
        self.instance.told.clear()
        self.instance.join(credit=0)
        self.leased()  # and nothing is said of them, so they are taken back
        self.publisher.send(b"s/do", 10)
        self.pass_time(8)
        self.asker.want(*fetched, *kept)


def test_when_all_lives_are_over_nothing_is_left_of_requests_however_they_have_ended() -> None:
    lives = Lives()
    lives.play()
    lives.pass_time(620)
    before = lives.held  # with the counters and the publisher
    for _ in range(2):
        lives.told.clear()
        lives.play()
        assert lives.told >= ENDS
        assert lives.held > before + 70, "of each of them something is kept"
        lives.pass_time(20)
        assert lives.asker.report().requests == [], "results are over"
        assert lives.held > before + 70, "how they have ended is remembered"
        lives.pass_time(600)
        assert lives.held == before
