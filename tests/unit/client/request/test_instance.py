"""What an instance of a service tells exchanges, beyond a member of any group."""

from __future__ import annotations

from typing import Any

import pytest

from roq.client.consume.holding import ACKED
from roq.client.consume.seat import Membership
from roq.client.io.queue_connections import AskExchange
from roq.client.request.instance import (
    FIGURES_SECONDS_MAX,
    InstanceMachine,
)
from roq.client.request.request_holding import RUNS, WAITING, HandlerResult, RequestHolding
from roq.model import ExchangeInfo, LogId, PublisherId
from roq.protocol import consuming, documents, requesting
from roq.protocol.batch import pack
from roq.protocol.consuming import (
    CREDIT,
    DONE,
    JOIN,
    LEASED,
    SETTLED_MAX,
    Credit,
    Done,
    DoneConfirmed,
    GroupSettings,
    Join,
    Joined,
    Run,
    pack_lease,
    requests_in,
)
from roq.protocol.entry import EntryKind, pack_entry
from roq.protocol.requesting import (
    FIGURES,
    INSTANCE_ORDER,
    REVOKED,
    Answer,
    Begun,
    Figures,
    InstanceOrder,
    RequestState,
    Revoked,
    ServiceSettings,
)

QUEUE = b"q" * 16
ONE = LogId(1, 1)


class Script:
    """An instance, and an exchange that says what the test wants."""

    def __init__(self, exchanges: int = 1, frame_bytes: int = 64 * 1024, **given: int) -> None:
        self.used = self.moves = 0
        self.granted: dict[LogId, int] = {}
        at_once = given.pop("at_once", 0)
        member = Membership(
            id=b"m" * 16, name="m", group="s", settings=GroupSettings(service=ServiceSettings()),
            latest=False, start_us=0, prefetch_bytes=1 << 20, **{"prefetch": 10, **given},
        )  # fmt: skip
        self.machine = InstanceMachine(member, lambda: self.used, lambda: self.moves, at_once)
        for number in range(1, exchanges + 1):
            info = ExchangeInfo(number=number, epoch=1, generation=1, host="h", data="d", live="l")
            self.machine.open(info, QUEUE)
            self.joined(self.machine.up(info.log, 0.0), info.log, frame_bytes=frame_bytes)

    def joined(self, asks: list[AskExchange], log: LogId = ONE, **given: Any) -> list[AskExchange]:
        join = documents.decode(asks[0].frames[1], Join)
        answer = Joined(
            id=join.id, generation=1, epoch=1, settings=join.settings, created_us=1, **given
        )
        asks = self.machine.take(log, [JOIN, documents.encode(answer)], 0.0)
        self.note(asks)
        return asks

    def room(self, now: float = 0.1) -> dict[int, int]:
        """By exchange, how much may come, as it was told last."""
        self.note(self.machine.tick(now))
        seats = self.machine.seats.items()
        return {log.number: self.granted[log] - seat.arrived for log, seat in seats}

    def note(self, asks: list[AskExchange]) -> None:
        """Note what exchanges are told to give."""
        for ask in asks:
            if ask.frames[0] == CREDIT:
                self.granted[ask.log] = consuming.decode(ask.frames[1], Credit).messages
            elif ask.frames[0] == DONE and (credit := done_in(ask).credit) is not None:
                self.granted[ask.log] = credit.messages

    def lease(
        self, number: int, count: int = 3, offset: int = 0, log: LogId = ONE, bits: int = 0
    ) -> RequestHolding:
        batch = pack(
            [b"x"] * count, publisher=PublisherId(b"p" * 16), epoch=0, link_number=1,
            first_sequence=0, created_us=0,
        )  # fmt: skip
        frame = pack_entry(EntryKind.ENTRY, log.number, QUEUE, 1, offset, 0, 0)
        head = pack_lease(number, 0, count, 1, bits or (1 << count) - 1)
        self.machine.take(log, [LEASED, head, b"s/do", frame, batch], 0.0)
        holding = self.machine.arrived.pop()
        assert isinstance(holding, RequestHolding)
        return holding

    def confirm(self, serial: int, *refused: int) -> None:
        told = consuming.encode(DoneConfirmed(serial, list(refused)))
        self.machine.take(ONE, [DONE, told], 0.0)

    def answer(self, holding: RequestHolding, *indexes: int) -> Done:
        results = {index: HandlerResult(RequestState.DONE, b"%d" % index) for index in indexes}
        (done,) = self.results(holding, results)
        return done

    def results(self, holding: RequestHolding, results: dict[int, HandlerResult]) -> list[Done]:
        for index, result in results.items():
            holding.answers[index] = result
            holding.settle(index, 1, ACKED)
        return [self.sent(ask) for ask in self.machine.tell([holding], [], 0.0)]

    def sent(self, ask: AskExchange) -> Done:
        seat = self.machine.seats[ask.log]
        assert len(ask.frames[1]) <= seat.frame_bytes, "else the exchange cuts the connection"
        self.note([ask])
        return done_in(ask)


def done_in(ask: AskExchange) -> Done:
    assert ask.frames[0] == DONE
    done = consuming.decode(ask.frames[1], Done)
    assert requests_in(done) <= SETTLED_MAX, "else the exchange refuses it"
    return done


def test_answers_travel_in_the_place_of_acknowledgements() -> None:
    script = Script()
    holding = script.lease(7)
    done = script.answer(holding, 0, 2)
    assert (done.whole, done.parts) == ([], [])
    assert done.answers == [Answer(7, 0, value=b"0"), Answer(7, 2, value=b"2")]
    assert done.credit is not None
    assert done.credit.window == 1, "it takes parts of batches"
    script.confirm(done.serial)
    assert script.machine.stats.confirmed == 2


def test_large_answers_travel_in_messages_that_the_exchange_takes() -> None:
    script = Script()
    holding = script.lease(7, 5)
    large = {index: HandlerResult(RequestState.DONE, bytes(30_000)) for index in range(5)}
    parts = script.results(holding, large)
    told = [[(each.index, len(each.more)) for each in done.answers] for done in parts]
    assert told == [[(0, 1)], [(2, 1)], [(4, 0)]]
    assert [done.serial for done in parts] == [1, 2, 3]
    script.confirm(1)
    assert script.machine.stats.confirmed == 2
    asks = script.machine.up(ONE, 0.0)
    again = script.joined(asks, again=[(20, 0, 2, 3)], done=[Run(0, 0, 2)])
    told = [each.index for ask in again for each in script.sent(ask).answers]
    assert told == [2, 4]
    script.confirm(99)
    assert script.machine.stats.confirmed == 5
    assert not script.machine.seats[ONE].holdings


@pytest.mark.parametrize("kinds", [1, 2])
def test_very_many_answers_travel_in_messages_that_the_exchange_takes(kinds: int) -> None:
    """Alike, so that a few messages have all of them; or each on its own."""
    script = Script(frame_bytes=1 << 24)
    count = 2 * SETTLED_MAX + 7 if kinds == 1 else 2_500
    holding = script.lease(7, count)
    states = (RequestState.DONE, RequestState.FAILED)
    results = {index: HandlerResult(states[index % kinds]) for index in range(count)}
    parts = script.results(holding, results)
    told = [each.index + at for done in parts for each in done.answers
            for at in range(1 + len(each.more))]  # fmt: skip
    assert told == list(range(count)), "each once, in order"
    assert len(parts) == 3
    for done in parts:
        script.confirm(done.serial)
    assert script.machine.stats.confirmed == count
    assert not script.machine.seats[ONE].holdings


def test_lost_leases_are_told_by_the_message_that_names_them() -> None:
    script = Script()
    holding = script.lease(7, 3)
    large = {index: HandlerResult(RequestState.DONE, bytes(40_000)) for index in range(3)}
    script.results(holding, large)
    script.confirm(1, 7)
    script.confirm(3)
    assert (script.machine.stats.confirmed, script.machine.stats.lost) == (0, 3)


def test_an_answer_that_no_message_holds_fails_and_says_why() -> None:
    script = Script()
    holding = script.lease(7)
    (done,) = script.results(holding, {
        0: HandlerResult(RequestState.DONE, bytes(65_000)),
        1: HandlerResult(RequestState.DONE, b"v"),
    })  # fmt: skip
    assert done.answers == [
        Answer(7, 0, RequestState.FAILED, b"", "its response has 65000 bytes, and an answer to "
               "this exchange of its queue has at most 64512"),
        Answer(7, 1, value=b"v"),
    ]  # fmt: skip
    (done,) = script.results(holding, {2: HandlerResult(RequestState.FAILED, text="é" * 60_000)})
    (answer,) = done.answers
    assert answer.state is RequestState.FAILED
    assert 30_000 < len(answer.text) < 33_000, "as much of the text as there is room for"


def test_what_must_not_be_begun_again_starts_when_that_is_kept() -> None:
    script = Script()
    once = script.lease(7)
    (done,) = map(done_in, script.machine.begin([once], 9, 0.0))
    assert done.begun == [Begun(7, 0, 3, True)]
    assert script.machine.begin([once], 9, 0.0) == [], "it is said once"
    assert script.machine.started == []
    script.confirm(done.serial)
    assert script.machine.started == [(once, range(3))]


@pytest.mark.parametrize("once", [False, True])
def test_very_many_that_begin_are_told_in_messages_that_the_exchange_takes(*, once: bool) -> None:
    script = Script()
    each_second = sum(1 << at for at in range(0, 2_500, 2))
    many = [
        script.lease(7, 2_500, bits=each_second),
        *(script.lease(8 + at, 1, offset=1 + at) for at in range(1_200)),
    ]
    large = script.lease(9_000, 2 * SETTLED_MAX, offset=9_000)

    def said(*holdings: RequestHolding) -> list[Done]:
        for holding in holdings:
            holding.stages[:] = bytes((RUNS,)) * len(holding.stages)
        machine = script.machine
        most = 4 * SETTLED_MAX
        asks = machine.begin(holdings, most, 0.0) if once else machine.say_running(holdings, 0.0)
        return [script.sent(ask) for ask in asks]

    parts = said(*many)
    assert len(parts) == 3
    assert [(each.lease, each.first) for done in parts for each in done.begun] == [
        *((7, at) for at in range(0, 2_500, 2)), *((8 + at, 0) for at in range(1_200)),
    ]  # fmt: skip
    begin, middle, last = parts
    script.confirm(begin.serial)
    assert script.machine.started == [], "all of it is to be kept"
    script.confirm(middle.serial, 7)
    script.confirm(last.serial, 8 + 1_199)
    assert len(script.machine.started) == (1_199 if once else 0)
    assert [many[at].lost for at in (0, 1, 1_199, 1_200)] == [True, False, False, True]
    parts = said(large)
    assert [each for done in parts for each in done.begun] == [
        Begun(9_000, 0, SETTLED_MAX, once), Begun(9_000, SETTLED_MAX, SETTLED_MAX, once),
    ]  # fmt: skip


def test_of_a_lease_with_holes_only_what_it_stands_for_begins() -> None:
    script = Script()
    once = script.lease(7, count=7, bits=0b1011101)
    (done,) = map(done_in, script.machine.begin([once], 3, 0.0))
    assert done.begun == [Begun(7, 0, 1, True), Begun(7, 2, 2, True)]
    assert script.machine.starting == 3
    script.confirm(done.serial)
    assert script.machine.started == [(once, range(4))]
    (done,) = map(done_in, script.machine.begin([once], 9, 0.0))
    assert done.begun == [Begun(7, 4, 1, True), Begun(7, 6, 1, True)]
    assert once.begun == 7


def test_what_was_taken_back_meanwhile_does_not_start() -> None:
    script = Script()
    once = script.lease(7)
    (done,) = map(done_in, script.machine.begin([once], 9, 0.0))
    script.confirm(done.serial, 7)
    assert script.machine.started == []
    assert once.lost


def test_single_requests_of_a_lease_may_be_taken_away() -> None:
    script = Script()
    holding = script.lease(7)
    told = requesting.encode(Revoked([(7, 1), (7, 9), (99, 0)]))
    assert script.machine.take(ONE, [REVOKED, told], 0.0) == []
    assert [holding.is_lost(index, 1) for index in range(3)] == [False, True, False]
    assert [each.index for each in script.answer(holding, 0, 1, 2).answers] == [0, 2]


def test_what_is_taken_away_while_it_runs_is_held_no_more() -> None:
    script = Script()
    holding = script.lease(7)
    holding.stages[:] = bytes((RUNS, WAITING, RUNS))
    (done,) = map(done_in, script.machine.say_running([holding], 0.0))
    assert done.begun == [Begun(7, 0, 1), Begun(7, 2, 1)]
    assert script.machine.say_running([holding], 0.0) == [], "once"
    script.confirm(done.serial)
    told = requesting.encode(Revoked([(7, 0), (7, 1), (7, 2)]))
    script.machine.take(ONE, [REVOKED, told], 0.0)
    assert (holding.lost, script.machine.seats[ONE].holdings) == (True, {})


def test_after_a_connection_was_lost_answers_are_told_again() -> None:
    script = Script()
    holding = script.lease(7)
    (begun,) = map(done_in, script.machine.begin([holding], 9, 0.0))
    script.answer(holding, 0)
    script.machine.down(ONE)
    asks = script.machine.up(ONE, 0.0)
    (again,) = script.joined(asks, again=[(20, 0, 0, 3)])
    assert done_in(again).answers == [Answer(20, 0, value=b"0")]
    assert script.machine.started == []
    (done,) = map(done_in, script.machine.begin([holding], 9, 0.0))
    assert done.begun == [Begun(20, 0, 3, True)], "it was not confirmed"
    assert begun.serial < done.serial


def test_figures_go_to_all_exchanges_and_nothing_is_taken_while_unavailable() -> None:
    script = Script()
    (ask,) = script.machine.figures(Figures(False, "no"), 0.0, soon=True)
    assert ask.frames[0] == FIGURES
    assert requesting.decode(ask.frames[1], Figures) == Figures(False, "no")
    (credit,) = script.machine.taking(taking=False, now=0.0)
    assert credit.frames[0] == CREDIT
    assert consuming.decode(credit.frames[1], Credit).messages == 0


def test_figures_wait_until_their_exchange_is_heard_and_no_longer_than_a_moment() -> None:
    def told(asks: list[AskExchange]) -> list[tuple[LogId, int]]:
        return [
            (ask.log, requesting.decode(ask.frames[1], Figures).busy)
            for ask in asks
            if ask.frames[0] == FIGURES
        ]

    script = Script(exchanges=2)
    one, two = script.machine.seats
    assert script.machine.figures(Figures(True, busy=1), 0.0, soon=False) == []
    assert told(script.machine.tick(0.1)) == [(one, 1), (two, 1)], "they know nothing yet"
    assert script.machine.figures(Figures(True, busy=2), 1.0, soon=False) == []
    assert told(script.machine.tick(1.1)) == []
    assert told(script.machine.heard(one, 1.2)) == [(one, 2)]
    assert told(script.machine.heard(one, 1.3)) == [], "it knows"
    assert script.machine.figures(Figures(True, busy=3), 1.3, soon=False) == []
    assert told(script.machine.tick(0.1 + FIGURES_SECONDS_MAX)) == [(two, 3)]
    assert told(script.machine.heard(one, 1.36)) == [(one, 3)]
    script.machine.down(one)
    assert told(script.machine.heard(one, 1.4)) == []
    asks = script.joined(script.machine.up(one, 1.5), one)
    assert told(asks) == [(one, 3)], "who joins again is not known"
    script.machine.figures(Figures(True, busy=4), 2.0, soon=False)
    script.machine.leave(one)
    assert told(script.machine.tick(9.0)) == [(two, 4)]


def test_availability_that_flaps_leaves_the_credit_as_it_is() -> None:
    script = Script()
    script.lease(1)
    granted = []
    for turn in range(1, 101):
        asks = script.machine.taking(taking=not turn % 2, now=0.1)
        granted += [
            consuming.decode(ask.frames[1], Credit).messages
            for ask in asks
            if ask.frames[0] == CREDIT
        ]
    assert granted[::2] == [granted[0]] * 50, "none"
    assert granted[1::2] == [granted[1]] * 50, "all"
    assert granted[0] < granted[1]


def test_what_an_operator_wants_comes_out_of_it() -> None:
    script = Script()
    told = requesting.encode(InstanceOrder("drain"))
    assert script.machine.take(ONE, [INSTANCE_ORDER, told], 0.0) == []
    assert script.machine.orders == ["drain"]


def test_it_takes_at_all_exchanges_what_can_begin_at_once() -> None:
    two = LogId(2, 1)
    script = Script(exchanges=2, prefetch=4, prefetch_quick=8)
    assert script.room() == {1: 4, 2: 4}, "wherever that is"
    assert script.machine.tick(0.2) == [], "it is said once"
    holding = script.lease(1, 3)
    script.used = 3
    assert script.room() == {1: 1, 2: 2}, "each may have its half"
    script.lease(2, 2, log=two)
    script.used = 5
    assert script.room() == {1: 0, 2: 0}
    script.used = 2
    script.answer(holding, 0, 1, 2)
    assert script.granted[ONE] == 3 + 2, "the first one is told with the answers"
    assert script.room() == {1: 2, 2: 2}


def test_a_request_that_was_taken_away_has_its_thread_as_before() -> None:
    script = Script(prefetch=4, prefetch_quick=8)
    script.lease(7, 3)
    script.used = 3
    assert script.room() == {1: 1}
    told = requesting.encode(Revoked([(7, 0), (7, 1)]))
    script.machine.take(ONE, [REVOKED, told], 0.0)
    assert script.room() == {1: 1}
    script.used = 1
    assert script.room() == {1: 3}


def test_it_holds_more_while_it_is_quick() -> None:
    script = Script(prefetch=4, prefetch_quick=8)
    assert script.room() == {1: 4}
    for number in range(10):
        script.machine.tell([], [], 0.0)
        script.answer(script.lease(number + 1, 1, offset=number), 0)
    script.machine.tell([], [], 0.1)
    assert script.room(0.15) == {1: 8}
    assert script.room(1.0) == {1: 4}, "it has told nothing for a while"


@pytest.mark.parametrize(("given", "then"), [({"prefetch_quick": 20}, 10), ({"at_once": 2}, 2)])
def test_who_gives_back_what_did_not_begin_takes_nothing_before_a_thread_was_free(
    given: dict[str, int], then: int
) -> None:
    script = Script(**given)
    assert script.room() == {1: 10}
    script.machine.rest()
    assert script.room() == {1: 0}
    script.moves += 1
    assert script.room() == {1: then}, "what it can begin, or else it gives back the rest again"


def test_a_program_that_says_how_much_it_holds_begins_no_more_than_it_can() -> None:
    script = Script(prefetch=10, at_once=2)
    assert (script.machine.prefetch.messages, script.machine.ahead.messages) == (10, 2)
    holding = script.lease(1, 100)
    script.answer(holding, *range(99))
    script.machine.tell([], [], 1.0)
    assert script.machine.ahead.messages == 9
    script.machine.tick(2.0)
    assert script.machine.ahead.messages == 2
    assert script.machine.prefetch.messages == 10


def test_what_must_not_be_begun_again_is_begun_in_parts() -> None:
    script = Script()
    some, more = script.lease(7), script.lease(8, offset=1)
    (done,) = map(done_in, script.machine.begin([some, more], 2, 0.0))
    assert done.begun == [Begun(7, 0, 2, True)]
    assert script.machine.starting == 2
    (rest,) = map(done_in, script.machine.begin([some, more], 2, 0.0))
    assert rest.begun == [Begun(7, 2, 1, True), Begun(8, 0, 1, True)]
    script.confirm(done.serial)
    assert (script.machine.started, script.machine.starting) == ([(some, range(2))], 4)
    script.machine.started.clear()
    assert script.machine.starting == 2
    script.machine.down(ONE)
    assert script.machine.starting == 0, "nobody knows when that is confirmed"
    script.joined(script.machine.up(ONE, 0.0), again=[(20, 0, 0, 3), (21, 1, 0, 3)])
    assert script.machine.starting == 0
    (again,) = map(done_in, script.machine.begin([some, more], 9, 0.0))
    assert again.begun == [Begun(20, 2, 1, True), Begun(21, 0, 3, True)], "what was not kept"
