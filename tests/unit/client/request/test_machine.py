"""What a client says to exchanges about the requests it waits for."""

from __future__ import annotations

from typing import Any

import pytest

from roq.client.io.queue_connections import AskExchange
from roq.client.request.machine import (
    AGAIN_SECONDS,
    ASK_SECONDS,
    SURE_SECONDS,
    RequesterMachine,
)
from roq.client.request.waiting_requests import TICK_SECONDS
from roq.model import ExchangeInfo, LogId
from roq.protocol import documents, requesting
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.requesting import (
    ATTEND,
    DELAYED_FROM,
    DELAYED_LOOKS,
    OUTCOMES,
    UNASKED,
    WANT,
    WANT_MAX,
    Attend,
    Attended,
    Position,
    RequestEnd,
    RequestEnds,
    RequestState,
    ServiceSettings,
    Want,
)

QUEUE = b"q" * 16
ONE = LogId(1, 1)


class Script:
    """A client, and exchanges that say what the test wants."""

    def __init__(self) -> None:
        self.machine = RequesterMachine()
        self.now = 1.0

    def open(self, number: int = 1) -> list[AskExchange]:
        info = ExchangeInfo(number=number, epoch=1, generation=1, host="h", data="d", live="l")
        self.machine.open(info, QUEUE)
        return self.machine.up(LogId(number, 1), self.now)

    def attend(self, **given: Any) -> list[AskExchange]:
        settings = given.get("settings", ServiceSettings())
        return self.machine.attend("s", settings, given.get("publisher", b"p" * 16), self.now)

    def attended(self, ask: AskExchange, **given: Any) -> None:
        asked = documents.decode(ask.frames[1], Attend)
        fields = {"id": asked.id, "generation": 1, "settings": ServiceSettings()}
        answer = documents.encode(Attended(**{**fields, **given}))
        self.machine.take(ask.log, [ATTEND, answer], self.now)

    def ready(self) -> None:
        self.open()
        (ask,) = self.attend()
        self.attended(ask)

    def said(self) -> list[Want]:
        asks = self.machine.say()
        assert all(ask.frames[0] == WANT for ask in asks)
        return [requesting.decode(ask.frames[1], Want) for ask in asks]

    def ticked(self, seconds: float) -> list[AskExchange]:
        self.now += seconds
        return self.machine.tick(self.now)


def at(offset: int) -> Position:
    return Position(offset, 0)


def wanted(ask: AskExchange) -> list[Position]:
    return requesting.decode(ask.frames[1], Want).wanted


def test_every_exchange_knows_the_service_before_it_is_used() -> None:
    script = Script()
    script.open(1)
    asks = script.attend()
    assert [ask.log.number for ask in asks] == [1]
    assert not script.machine.attended("s")
    script.attended(asks[0], settings=ServiceSettings(keep_result=9.0))
    assert script.machine.attended("s")
    assert script.machine.settings["s"].keep_result == 9.0
    assert script.attend() == [], "it is known"
    (late,) = script.open(2)
    assert not script.machine.attended("s"), "one more exchange"
    script.attended(late)
    assert script.machine.attended("s")


def test_what_is_not_answered_is_asked_again() -> None:
    script = Script()
    script.open()
    script.attend()
    assert script.ticked(ASK_SECONDS - 0.1) == []
    (again,) = script.ticked(0.2)
    assert again.frames[0] == ATTEND
    script.attended(again)
    assert script.ticked(ASK_SECONDS + 1) == []


def test_an_answer_counts_that_comes_after_it_was_asked_again() -> None:
    script = Script()
    script.open()
    (first,) = script.attend()
    assert len(script.ticked(ASK_SECONDS)) == 1
    script.attended(first)
    assert script.machine.attended("s")
    assert script.ticked(ASK_SECONDS + 1) == []


def test_a_refusal_is_kept_with_its_reason() -> None:
    script = Script()
    script.open()
    (ask,) = script.attend()
    refused = documents.encode(Refused(code="group_differs", text="no service"))
    script.machine.take(ONE, [REFUSED, refused], script.now)
    assert script.machine.refusals == {"s": "no service (group_differs)"}
    script.attended(ask)
    assert script.machine.refusals == {}, "until it is taken in"


def test_what_is_accepted_is_told_unasked_and_asked_for_to_be_sure() -> None:
    script = Script()
    script.ready()
    assert script.machine.wait("s", ONE, at(1), script.now, ask=False)
    assert script.said() == []
    (ask,) = script.ticked(SURE_SECONDS)
    assert wanted(ask) == [at(1)]
    assert script.ticked(AGAIN_SECONDS - 0.1) == []
    (ask,) = script.ticked(0.1)
    assert wanted(ask) == [at(1)], "and again, in case it was not heard"
    end = RequestEnd(1, 0, RequestState.DONE)
    told = requesting.encode(RequestEnds("s", [end]))
    assert script.machine.take(ONE, [OUTCOMES, told], script.now) == ("s", [end])
    assert script.machine.open_count == 0


def test_what_others_have_requested_is_asked_for_at_once() -> None:
    script = Script()
    script.open()
    assert script.machine.wait("s", ONE, at(1), script.now, ask=True)
    (want,) = script.said()
    assert want.wanted == [at(1)]
    assert not script.machine.wait("s", LogId(0, 1), at(1), script.now, ask=True), "no such log"


def test_after_a_connection_was_lost_everything_is_asked_for_again() -> None:
    script = Script()
    script.ready()
    script.machine.wait("s", ONE, at(1), script.now, ask=False)
    script.machine.wait("s", ONE, at(2), script.now, ask=False)
    script.machine.fetched("s", ONE, at(0))
    script.machine.down(ONE)
    assert script.said() == [], "nobody is there"
    (ask,) = script.machine.up(ONE, script.now)
    script.attended(ask)
    (want,) = script.said()
    assert (want.wanted, want.fetched) == ([at(1), at(2)], [(*at(0), 1)])


def test_what_others_have_requested_is_asked_for_again_when_the_connection_is_back() -> None:
    script = Script()
    script.open()
    assert script.machine.wait("s", ONE, at(1), script.now, ask=True)
    assert len(script.said()) == 1
    script.machine.down(ONE)
    assert script.machine.up(ONE, script.now) == []
    (want,) = script.said()
    assert want.wanted == [at(1)]


def test_nothing_is_asked_of_an_exchange_that_does_not_know_the_service_yet() -> None:
    """It would say that there was no such request."""
    script = Script()
    script.open()
    (ask,) = script.attend()
    script.machine.wait("s", ONE, at(1), script.now, ask=False)
    script.machine.cancel("s", ONE, at(1), script.now, late=False)
    script.machine.wait("other", ONE, at(2), script.now, ask=True)
    assert [want.service for want in script.said()] == ["other"]
    script.attended(ask)
    (want,) = script.said()
    assert (want.wanted, want.cancelled) == ([at(1)], [at(1)])


def test_what_is_not_wanted_any_more_is_said() -> None:
    script = Script()
    script.ready()
    script.machine.cancel("s", ONE, at(1), script.now, late=False)
    script.machine.cancel("s", ONE, at(2), script.now, late=True)
    script.machine.fetched("s", LogId(9, 1), at(3))
    (want,) = script.said()
    assert (want.cancelled, want.late, want.fetched) == ([at(1)], [at(2)], [])
    assert script.said() == []


def test_what_is_not_wanted_is_said_again_to_an_exchange_that_is_back() -> None:
    """The one before may have heard it, and not kept it."""
    script = Script()
    script.ready()
    machine, delayed = script.machine, Position(DELAYED_FROM + 1, 0)
    for place in (at(1), at(2), at(3), at(4)):
        machine.wait("s", ONE, place, script.now, ask=False)
        machine.cancel("s", ONE, place, script.now, late=place == at(2))
    machine.wait("s", ONE, delayed, script.now, ask=False, after=60.0)
    machine.cancel("s", ONE, delayed, script.now, late=False)
    assert script.said()
    machine.forget("s", ONE, at(3))
    ends = RequestEnds("s", [RequestEnd(*at(4), RequestState.CANCELLED)])
    machine.take(ONE, [OUTCOMES, requesting.encode(ends)], script.now)
    for _ in range(2):
        machine.down(ONE)
        (ask,) = machine.up(ONE, script.now)
    script.attended(ask)
    (want,) = script.said()
    assert (want.cancelled, want.late) == ([at(1), delayed], [at(2)])
    assert want.wanted == [at(1), at(2), delayed], "nobody knows there who has made a delayed one"


def test_what_is_not_wanted_is_said_again_until_it_has_ended() -> None:
    """Its exchange has no room to say so, or does not look that far yet."""
    script = Script()
    script.ready()
    machine, delayed = script.machine, Position(DELAYED_FROM + 1, 0)
    for place, after in ((at(1), 0.0), (at(2), 0.0), (delayed, 600.0)):
        machine.wait("s", ONE, place, script.now, ask=False, after=after)
    machine.cancel("s", ONE, at(1), script.now, late=True)
    machine.cancel("s", ONE, delayed, script.now, late=False)
    script.said()
    for _ in range(3):
        assert script.ticked(SURE_SECONDS - 0.1) == []
        ((want,),) = [[requesting.decode(ask.frames[1], Want)] for ask in script.ticked(0.1)]
        assert (want.late, want.cancelled) == ([at(1)], [delayed])
        assert {at(1), delayed} <= set(want.wanted) <= {at(1), delayed, at(2)}
    ends = [RequestEnd(*place, RequestState.CANCELLED) for place in (at(1), delayed)]
    machine.take(ONE, [OUTCOMES, requesting.encode(RequestEnds("s", ends))], script.now)
    assert script.ticked(SURE_SECONDS) == []


@pytest.mark.parametrize(("first", "most"), [(0, WANT_MAX), (DELAYED_FROM, DELAYED_LOOKS)])
def test_of_very_many_that_are_not_wanted_some_are_said_again_at_once_and_all_in_turn(
    first: int, most: int
) -> None:
    script = Script()
    script.ready()
    places = [Position(first + number, 0) for number in range(10 * most)]
    for place in places:
        script.machine.wait("s", ONE, place, script.now, ask=False)
        script.machine.cancel("s", ONE, place, script.now, late=False)
    script.said()
    script.now += SURE_SECONDS
    told: list[Position] = []
    for _ in range(10):
        wants = [requesting.decode(ask.frames[1], Want) for ask in script.ticked(TICK_SECONDS)]
        some = [place for want in wants for place in want.cancelled]
        assert len(some) == most
        told += some
    assert sorted(told) == places


def test_what_is_open_is_not_noted_again_and_again_for_an_exchange_that_is_away() -> None:
    script = Script()
    script.ready()
    script.machine.wait("s", ONE, at(1), script.now, ask=False)
    script.machine.cancel("s", ONE, at(1), script.now, late=False)
    script.machine.down(ONE)
    for _ in range(100):
        assert script.ticked(AGAIN_SECONDS) == []
    words = script.machine.places[ONE].words
    assert sum(len(each.wanted) for each in words.values()) <= 1
    (ask,) = script.machine.up(ONE, script.now)
    script.attended(ask)
    (want,) = script.said()
    assert (want.cancelled, want.wanted) == ([at(1)], [at(1)])


def test_an_exchange_that_is_gone_gives_what_was_open_there() -> None:
    script = Script()
    script.ready()
    script.machine.wait("s", ONE, at(1), script.now, ask=False)
    script.machine.wait("s", ONE, at(2), script.now, ask=False)
    script.machine.forget("s", ONE, at(2))
    assert script.machine.leave(ONE) == [("s", at(1))]
    assert script.machine.leave(ONE) == []
    assert script.machine.take(ONE, [OUTCOMES, b""], script.now) == ("", [])


def test_many_words_go_in_several_messages() -> None:
    script = Script()
    script.ready()
    for offset in range(2_500):
        script.machine.wait("s", ONE, Position(offset, 0), script.now, ask=True)
    for offset in range(1_200):
        script.machine.fetched("s", ONE, Position(offset, 1))
    said = script.said()
    assert [(len(each.wanted), len(each.fetched)) for each in said] == [
        (1_000, 1_000), (1_000, 200), (500, 0),
    ]  # fmt: skip
    assert [each.offset for want in said for each in want.wanted] == list(range(2_500))
    assert script.said() == []


def test_what_is_delayed_is_not_asked_for_before_it_is_due() -> None:
    script = Script()
    script.ready()
    machine, place = script.machine, Position(DELAYED_FROM + 1, 0)
    assert machine.wait("s", ONE, place, script.now, ask=False, after=60.0)
    script.ticked(30.0)
    machine.down(ONE)
    script.said()
    (ask,) = machine.up(ONE, script.now)
    script.attended(ask)
    assert script.said() == []
    assert [wanted(each) for each in script.ticked(30.0 + SURE_SECONDS)] == [[place]]


def test_who_cancels_what_is_delayed_asks_how_it_ends() -> None:
    """Its exchange does not know who has made it before it is due."""
    script = Script()
    script.ready()
    place = Position(DELAYED_FROM + 1, 0)
    script.machine.wait("s", ONE, place, script.now, ask=False, after=60.0)
    script.machine.cancel("s", ONE, place, script.now, late=False)
    (want,) = script.said()
    assert (want.cancelled, want.wanted) == ([place], [place])


def test_who_cancels_many_that_are_delayed_says_so_in_messages_that_exchanges_take() -> None:
    script = Script()
    script.ready()
    places = [Position(DELAYED_FROM + number, 0) for number in range(2 * DELAYED_LOOKS)]
    for number, place in enumerate(places):
        script.machine.cancel("s", ONE, place, script.now, late=bool(number % 2))
    said = script.said()
    assert all(len(want.cancelled) + len(want.late) <= DELAYED_LOOKS for want in said)
    assert sorted(at for want in said for at in (*want.cancelled, *want.late)) == places


def test_settings_that_change_are_told_unasked() -> None:
    script = Script()
    script.open()
    (ask,) = script.attend()
    script.attended(ask)
    later = ServiceSettings(delay=5.0, defined=("delay",))
    script.attended(ask, id=UNASKED, service="other", settings=later)
    assert script.machine.settings == {"s": ServiceSettings()}
    script.attended(ask, id=UNASKED, service="s", settings=later)
    assert script.machine.settings == {"s": later}
    assert script.machine.attended("s")
