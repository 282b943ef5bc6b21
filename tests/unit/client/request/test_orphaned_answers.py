"""What an instance does with answers whose exchange is gone."""

from __future__ import annotations

import pytest

from roq.client.consume.holding import ACKED, KEPT, LOST, OPEN, RETURNED, STRANDED, TOLD
from roq.client.consume.seat import Seat, SeatPhase
from roq.client.io.queue_connections import AskExchange
from roq.client.request import orphaned_answers
from roq.client.request.orphaned_answers import HeldAt, OrphanedAnswers
from roq.client.request.request_holding import RUNS, SAID, WAITING, HandlerResult, RequestHolding
from roq.model import ExchangeInfo, LogId, PublisherId
from roq.protocol import requesting
from roq.protocol.attributes import Attributes, BatchAttributes, pack_attributes
from roq.protocol.orphaned_answers import (
    ORPHANED,
    AnswersOffered,
    AnswersTaken,
    OrphanedAnswer,
    sent_again,
    token_of,
)
from roq.protocol.requesting import (
    ENVELOPE,
    ENVELOPE_VERSION,
    ONCE,
    SILENT,
    Position,
    RequestState,
    ServiceSettings,
)
from roq.read.message import Batch

GONE, HERE = LogId(1, 1), LogId(2, 1)
MAKER = PublisherId(b"p" * 16)


def request(number: int = 0, flags: int = 0) -> bytes:
    return ENVELOPE.pack(ENVELOPE_VERSION, flags, 0) + bytes([number])


def held(
    *payloads: bytes, log: LogId = GONE, offset: int = 5, before: dict[int, Position] | None = None
) -> RequestHolding:
    """Requests of one batch; `before`: as what some were known at `GONE`."""
    told = {
        index: Attributes(None, (), sent_again({}, GONE, at), 0)
        for index, at in (before or {}).items()
    }
    given = BatchAttributes(pack_attributes(told), 0, len(payloads)) if told else None
    batch = Batch(list(payloads), "s/do", MAKER, 0, 0, 0, given)
    return RequestHolding(log, offset, 1, 0, 1, batch)


def runs(holding: RequestHolding, *indexes: int) -> RequestHolding:
    for index in indexes:
        holding.stages[index] = RUNS
    return holding


def seat(log: LogId = HERE, frame_bytes: int = 1 << 20) -> Seat:
    info = ExchangeInfo(
        number=log.number, epoch=1, generation=log.generation, host="h", data="d", live="l"
    )
    return Seat(info, b"q" * 16, SeatPhase.IN, frame_bytes=frame_bytes)


def answer(answers: OrphanedAnswers, holding: RequestHolding, index: int, value: bytes) -> None:
    holding.answers[index] = HandlerResult(RequestState.DONE, value)
    answers.lost_holdings.append(holding)


def offered(asks: list[AskExchange]) -> list[tuple[LogId, list[bytes]]]:
    """To which exchange, and which values."""
    assert {ask.frames[0] for ask in asks} <= {ORPHANED}
    told = [(ask.log, requesting.decode(ask.frames[1], AnswersOffered)) for ask in asks]
    return [(log, [each.value for each in some.answers]) for log, some in told]


def kept(answers: OrphanedAnswers, value: bytes = b"v", payload: bytes | None = None) -> bytes:
    """An answer is kept whose exchange is gone; gives its token."""
    payload = request() if payload is None else payload
    holding = runs(held(payload), 0)
    answers.lose(holding)
    answer(answers, holding, 0, value)
    return token_of(GONE, Position(5, 0), MAKER, payload)


def test_only_what_runs_or_is_answered_and_will_be_sent_once_more_is_an_orphan() -> None:
    answers = OrphanedAnswers()
    holding = held(
        *[request()] * 4, request(flags=ONCE), request(flags=SILENT), b"short", *[request()] * 4
    )
    states = [OPEN, OPEN, OPEN, OPEN, OPEN, OPEN, OPEN, ACKED, TOLD, KEPT, RETURNED]
    stages = [RUNS, SAID, WAITING, 0, RUNS, RUNS, RUNS, RUNS, SAID, SAID, SAID]
    holding.states[:], holding.stages[:] = bytes(states), bytes(stages)
    assert answers.lose(holding) == 2, "those are settled, and resolved by that"
    stranded = [index for index, state in enumerate(holding.states) if state == STRANDED]
    assert stranded == [0, 1, 7, 8]
    assert not holding.is_lost(0, 2), "its handler is not told to end"
    holding.lose(range(11))
    assert [index for index, state in enumerate(holding.states) if state == LOST] == [
        2, 3, 4, 5, 6, 10,
    ]  # fmt: skip


def test_an_answer_is_offered_to_every_exchange_so_often_and_then_dropped() -> None:
    answers = OrphanedAnswers()
    answers.settings = ServiceSettings(reply_attempts=3, reply_wait=2.0)
    kept(answers)
    other = LogId(3, 1)
    both = [seat(), seat(other)]
    away = seat(LogId(4, 1))
    away.phase = SeatPhase.JOINING
    assert offered(answers.offers([*both, away], 10.0)) == [(HERE, [b"v"]), (other, [b"v"])]
    assert answers.offers(both, 11.9) == []
    assert len(answers.offers(both, 12.0)) == 2
    assert len(answers.offers(both, 14.0)) == 2
    assert (answers.count, answers.dropped) == (1, 0)
    assert answers.offers(both, 15.9) == []
    assert (answers.count, answers.dropped) == (1, 0), "the last one has its time, too"
    assert answers.offers(both, 16.0) == []
    assert (answers.count, answers.dropped, answers.any) == (0, 1, False)


def test_as_long_as_no_exchange_is_there_no_attempt_is_counted_but_the_time_of_a_request() -> None:
    answers = OrphanedAnswers()
    answers.settings = ServiceSettings(reply_attempts=1, result_within=5.0)
    kept(answers)
    kept(answers, payload=request(1))
    assert answers.offers([], 0.0) == []
    assert len(offered(answers.offers([seat()], 4.0))[0][1]) == 2
    kept(answers, payload=request(2))
    assert answers.offers([], 4.0) == []
    answers.offers([], 9.0)
    assert (answers.count, answers.dropped) == (0, 3)


def test_no_exchange_can_have_an_answer_kept_for_longer_than_its_request_may_take() -> None:
    answers = OrphanedAnswers()
    answers.settings = ServiceSettings(result_within=5.0)
    kept(answers)
    answers.told(AnswersTaken([], [], 1 << 62, 1e18))
    assert len(answers.offers([seat()], 0.0)) == 1
    assert answers.offers([seat()], 5.0) == []
    assert (answers.count, answers.dropped) == (0, 1)


def test_what_is_taken_or_outdated_is_offered_no_more() -> None:
    answers = OrphanedAnswers()
    tokens = [kept(answers, payload=request(number)) for number in range(3)]
    answers.offers([seat()], 0.0)
    answers.told(AnswersTaken(tokens[:1], tokens[1:2], 2, 0.5))
    assert (answers.taken, answers.dropped, answers.count) == (1, 1, 1)
    answers.told(AnswersTaken(tokens[:1], tokens[1:2], 2, 0.5))
    assert (answers.taken, answers.dropped, answers.count) == (1, 1, 1), "told twice"
    assert answers.settings.reply_wait == 0.5, "as the exchange says now"
    assert len(answers.offers([seat()], 1.0)) == 1
    answers.told(AnswersTaken([], [], 0, 0.5))
    answers.offers([seat()], 1.5)
    assert (answers.dropped, answers.count) == (2, 0), "the service wants none any more"


def test_if_the_service_says_never_nothing_is_kept() -> None:
    answers = OrphanedAnswers()
    answers.settings = ServiceSettings(reply_attempts=0)
    holding = runs(held(request()), 0)
    assert answers.lose(holding) == 0
    assert holding.states[0] == OPEN
    assert not answers.any


def test_what_has_not_run_is_no_answer() -> None:
    answers = OrphanedAnswers()
    holding = runs(held(request(), request()), 0, 1)
    answers.lose(holding)
    holding.answers[0] = HandlerResult(RequestState.LATE)
    holding.answers[1] = HandlerResult(RequestState.FAILED, text="it raised")
    answers.lost_holdings.append(holding)
    (ask,) = answers.offers([seat()], 0.0)
    (told,) = requesting.decode(ask.frames[1], AnswersOffered).answers
    assert (told.state, told.text) == ("failed", "it raised")


def test_what_is_kept_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphaned_answers, "KEPT_BYTES", 3 * orphaned_answers.OVERHEAD_BYTES + 10)
    monkeypatch.setattr(orphaned_answers, "KEPT_MAX", 2)
    answers = OrphanedAnswers()
    kept(answers, bytes(1_000), request(0))
    for number in range(1, 4):
        kept(answers, b"v", request(number))
    answers.offers([], 0.0)
    assert (answers.count, answers.dropped) == (2, 2)


def test_answers_travel_in_messages_that_their_exchange_takes() -> None:
    answers = OrphanedAnswers()
    for number in range(3):
        kept(answers, bytes([number]) * 3_000, request(number))
    kept(answers, b"large" * 2_000, request(3))
    small, large = seat(frame_bytes=10_000), seat(LogId(3, 1))
    asks = answers.offers([small, large], 0.0)
    assert [(log, len(values)) for log, values in offered(asks)] == [
        (HERE, 2), (HERE, 1), (LogId(3, 1), 4),
    ]  # fmt: skip
    assert all(len(ask.frames[1]) <= 10_000 for ask in asks[:2])


def test_a_request_that_was_answered_here_before_is_not_run_again() -> None:
    answers = OrphanedAnswers()
    kept(answers)
    answers.offers([], 0.0)
    again = held(request(), request(1), log=HERE, before={0: Position(5, 0), 1: Position(5, 0)})
    assert answers.adopt(again, 1) is False, "something else was requested"
    assert answers.adopt(again, 0) == HandlerResult(RequestState.DONE, b"v")
    assert (answers.count, answers.taken) == (0, 1)
    assert answers.adopt(again, 0) is False


def test_a_request_that_runs_here_is_waited_for_by_one_heir() -> None:
    answers = OrphanedAnswers()
    holding = runs(held(request()), 0)
    answers.lose(holding)
    again = held(request(), log=HERE, before={0: Position(5, 0)})
    assert answers.adopt(again, 0) is True
    assert answers.adopt(again, 0) is False, "it has one"
    answer(answers, holding, 0, b"v")
    assert answers.offers([seat()], 0.0) == []
    assert answers.answered == [(HeldAt(again, 0), HandlerResult(RequestState.DONE, b"v"))]
    assert answers.count == 0


@pytest.mark.parametrize("late", [True, False])
def test_what_has_no_answer_leaves_its_heir_to_run(*, late: bool) -> None:
    answers = OrphanedAnswers()
    holding = runs(held(request()), 0)
    answers.lose(holding)
    again = held(request(), log=HERE, before={0: Position(5, 0)})
    assert answers.adopt(again, 0) is True
    if late:
        holding.answers[0] = HandlerResult(RequestState.LATE)
        answers.lost_holdings.append(holding)
    else:
        answers.given_back.append(HeldAt(holding, 0))
    answers.offers([seat()], 0.0)
    assert answers.to_run == [HeldAt(again, 0)]
    assert not answers.any


@pytest.mark.parametrize("waits", [True, False])
def test_what_has_run_for_too_long_does_not_run_again_and_is_offered_to_nobody(
    *, waits: bool
) -> None:
    """Others may be in time with it."""
    answers = OrphanedAnswers()
    answers.settings = ServiceSettings(result_within=5.0)
    holding = runs(held(request()), 0)
    answers.lose(holding)
    again = held(request(), log=HERE, before={0: Position(5, 0)})
    late = HandlerResult(RequestState.LATE, text="too late", ran_late=True)
    if waits:
        assert answers.adopt(again, 0) is True
    holding.answers[0] = late
    answers.lost_holdings.append(holding)
    assert answers.offers([seat()], 1.0) == []
    assert (answers.count, answers.dropped, answers.to_run) == (0, 0, [])
    if waits:
        assert answers.answered == [(HeldAt(again, 0), late)]
        return
    assert answers.any
    assert answers.adopt(again, 0) == late
    assert answers.adopt(again, 0) is False
    answers.offers([seat()], 1.0)
    assert not answers.any


def test_that_something_has_run_for_too_long_is_known_as_long_as_a_request_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(orphaned_answers, "KEPT_MAX", 2)
    answers = OrphanedAnswers()
    answers.settings = ServiceSettings(result_within=5.0)
    holding = runs(held(*[request(number) for number in range(3)]), 0, 1, 2)
    answers.lose(holding)
    late = HandlerResult(RequestState.LATE, ran_late=True)
    holding.answers.update(dict.fromkeys(range(3), late))
    answers.lost_holdings.append(holding)
    answers.offers([], 1.0)
    again = held(
        *[request(number) for number in range(3)], log=HERE,
        before={at: Position(5, at) for at in range(3)},
    )  # fmt: skip
    assert answers.adopt(again, 0) is False, "the oldest one has made room"
    assert answers.adopt(again, 1) == late
    answers.offers([], 6.0)
    assert answers.adopt(again, 2) is False
    assert not answers.any


def test_the_answer_of_the_first_run_finds_the_third_home() -> None:
    """Two exchanges are gone, one after the other: what is known of the first is still found."""
    answers = OrphanedAnswers()
    holding = runs(held(request()), 0)
    answers.lose(holding)
    told = sent_again(sent_again({}, GONE, Position(5, 0)), LogId(7, 1), Position(1, 0))
    batch = Batch(
        [request()], "s/do", MAKER, 0, 0, 0,
        BatchAttributes(pack_attributes({0: Attributes(None, (), told, 0)}), 0, 1),
    )  # fmt: skip
    assert answers.adopt(RequestHolding(HERE, 9, 1, 0, 1, batch), 0) is True


def test_attributes_that_cannot_be_read_name_nothing() -> None:
    answers = OrphanedAnswers()
    kept(answers)
    answers.offers([], 0.0)
    batch = Batch([request()], "s/do", MAKER, 0, 0, 0, BatchAttributes(b"\xc1", 0, 1))
    assert answers.adopt(RequestHolding(HERE, 9, 1, 0, 1, batch), 0) is False
    holding = runs(RequestHolding(GONE, 9, 1, 0, 1, batch), 0)
    answers.lose(holding)
    answer(answers, holding, 0, b"w")
    assert [values for _, values in offered(answers.offers([seat()], 0.0))] == [[b"v", b"w"]]


def test_an_answer_as_it_travels() -> None:
    answers = OrphanedAnswers()
    token = kept(answers)
    (ask,) = answers.offers([seat()], 0.0)
    assert requesting.decode(ask.frames[1], AnswersOffered) == AnswersOffered(
        [OrphanedAnswer(token, RequestState.DONE, b"v")]
    )
