"""What an instance of a service tells exchanges, beyond a member of any group."""

from __future__ import annotations

from typing import Any

from roq.client.consume.holding import ACKED
from roq.client.consume.seat import AskExchange, Membership
from roq.client.request.instance import HandlerResult, InstanceMachine, RequestHolding
from roq.model import ExchangeInfo, LogId, PublisherId
from roq.protocol import consuming, documents, requesting
from roq.protocol.batch import pack
from roq.protocol.consuming import (
    CREDIT,
    DONE,
    JOIN,
    LEASED,
    Credit,
    Done,
    DoneConfirmed,
    GroupSettings,
    Join,
    Joined,
    Run,
    pack_lease,
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

    def __init__(self) -> None:
        member = Membership(
            id=b"m" * 16, name="m", group="s", settings=GroupSettings(service=ServiceSettings()),
            latest=False, start_us=0, prefetch=10, prefetch_bytes=1 << 20,
        )  # fmt: skip
        self.machine = InstanceMachine(member)
        info = ExchangeInfo(number=1, epoch=1, generation=1, host="h", data="d", live="l")
        self.machine.open(info, QUEUE)
        self.joined(self.machine.up(ONE, 0.0))

    def joined(self, asks: list[AskExchange], **given: Any) -> list[AskExchange]:
        join = documents.decode(asks[0].frames[1], Join)
        answer = Joined(
            id=join.id, generation=1, epoch=1, settings=join.settings, created_us=1, **given
        )
        return self.machine.take(ONE, [JOIN, documents.encode(answer)], 0.0)

    def lease(self, number: int, count: int = 3, offset: int = 0) -> RequestHolding:
        batch = pack(
            [b"x"] * count, publisher=PublisherId(b"p" * 16), epoch=0, link_number=1,
            first_sequence=0, created_us=0,
        )  # fmt: skip
        frame = pack_entry(EntryKind.ENTRY, 1, QUEUE, 1, offset, 0, 0)
        head = pack_lease(number, 0, count, 1, (1 << count) - 1)
        self.machine.take(ONE, [LEASED, head, b"s/do", frame, batch], 0.0)
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
        (seat,) = self.machine.seats.values()
        assert len(ask.frames[1]) <= seat.frame_bytes, "else the exchange cuts the connection"
        return done_in(ask)


def done_in(ask: AskExchange) -> Done:
    assert ask.frames[0] == DONE
    return consuming.decode(ask.frames[1], Done)


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
    once, again = script.lease(7), script.lease(8, offset=1)
    asks = script.machine.begin([(once, True), (again, False)], 0.0)
    (done,) = map(done_in, asks)
    assert done.begun == [Begun(7, 0, 3, True), Begun(8, 0, 3, False)]
    assert script.machine.begin([(once, True)], 0.0) == [], "it is said once"
    assert script.machine.started == []
    script.confirm(done.serial)
    assert script.machine.started == [once]


def test_what_was_taken_back_meanwhile_does_not_start() -> None:
    script = Script()
    once = script.lease(7)
    (done,) = map(done_in, script.machine.begin([(once, True)], 0.0))
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
    (done,) = map(done_in, script.machine.begin([(holding, False)], 0.0))
    script.confirm(done.serial)
    told = requesting.encode(Revoked([(7, 0), (7, 1), (7, 2)]))
    script.machine.take(ONE, [REVOKED, told], 0.0)
    assert (holding.lost, script.machine.seats[ONE].holdings) == (True, {})


def test_after_a_connection_was_lost_answers_are_told_again() -> None:
    script = Script()
    holding = script.lease(7)
    (begun,) = map(done_in, script.machine.begin([(holding, True)], 0.0))
    script.answer(holding, 0)
    script.machine.down(ONE)
    asks = script.machine.up(ONE, 0.0)
    (again,) = script.joined(asks, again=[(20, 0, 0, 3)])
    assert done_in(again).answers == [Answer(20, 0, value=b"0")]
    assert script.machine.started == []
    (done,) = map(done_in, script.machine.begin([(holding, True)], 0.0))
    assert done.begun == [Begun(20, 0, 3, True)], "it was not confirmed"
    assert begun.serial < done.serial


def test_figures_go_to_all_exchanges_and_nothing_is_taken_while_unavailable() -> None:
    script = Script()
    (ask,) = script.machine.figures(Figures(False, "no"))
    assert ask.frames[0] == FIGURES
    assert requesting.decode(ask.frames[1], Figures) == Figures(False, "no")
    (credit,) = script.machine.taking(taking=False, now=0.0)
    assert credit.frames[0] == CREDIT
    assert consuming.decode(credit.frames[1], Credit).messages == 0


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
