"""What a producer tells exchanges, again and again until they have answered."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest

from roq.client.io.queue_connections import AskExchange
from roq.client.transact.machine import (
    ASK_SECONDS,
    Asked,
    EndTold,
    ProducerMachine,
)
from roq.errors import RemoteProtocolError
from roq.model import ExchangeInfo, LogId
from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.transaction import (
    CHECK,
    ENROLL,
    SETTLE,
    CheckHead,
    Decision,
    Enroll,
    Enrolled,
    Fate,
    Half,
    Settle,
    Settled,
    encode_half,
)
from roq.timing import PRODUCER_ALIVE_SECONDS

ONE = LogId(1, 1)
INFO = ExchangeInfo(number=1, epoch=1, generation=1, host="h", data="d", live="l")
A, B, C = (bytes([each]) * 8 for each in b"abc")
COMMIT, ROLLBACK, UNKNOWN, _ = Decision

S = TypeVar("S", bound=msgspec.Struct)


@pytest.fixture
def machine() -> ProducerMachine:
    made = ProducerMachine("g", b"p" * 16)
    made.open(INFO, b"q" * 16)
    return made


def said(asks: list[AskExchange], letter: bytes, kind: type[S]) -> list[S]:
    return [documents.decode(each.frames[1], kind) for each in asks if each.frames[0] == letter]


def settled(question: int, *fates: Fate) -> list[bytes]:
    return [SETTLE, documents.encode(Settled(id=question, generation=1, fates=list(fates)))]


def test_it_says_that_it_is_there_and_goes_on_saying_so(machine: ProducerMachine) -> None:
    assert machine.trouble == "x1: it is away"
    (enroll,) = said(machine.up(ONE, 0.0), ENROLL, Enroll)
    assert (enroll.group, enroll.publisher, enroll.leave) == ("g", b"p" * 16, False)
    assert machine.tick(ASK_SECONDS - 0.1) == []
    assert len(said(machine.tick(ASK_SECONDS), ENROLL, Enroll)) == 1
    machine.take(ONE, [ENROLL, documents.encode(Enrolled(id=2, generation=1))], 4.0)
    assert machine.trouble == ""
    assert machine.tick(3.9 + PRODUCER_ALIVE_SECONDS) == []
    assert len(said(machine.tick(4.0 + PRODUCER_ALIVE_SECONDS), ENROLL, Enroll)) == 1
    (leave,) = said(machine.farewells(), ENROLL, Enroll)
    assert leave.leave
    machine.down(ONE)
    assert machine.farewells() == []
    assert machine.tick(1_000.0) == []


def test_a_decision_is_told_until_it_is_answered(machine: ProducerMachine) -> None:
    asks, ended = machine.decide(ONE, A, COMMIT, 0.0)
    assert (asks, ended) == ([], []), "it is away"
    (first,) = said(machine.up(ONE, 0.0), SETTLE, Settle)
    assert first.ends == [(A, COMMIT)]
    machine.down(ONE)
    (second,) = said(machine.up(ONE, 1.0), SETTLE, Settle)
    (third,) = said(machine.tick(1.0 + ASK_SECONDS), SETTLE, Settle)
    assert first.ends == second.ends == third.ends
    assert machine.take(ONE, settled(first.id, Fate.COMMITTED), 5.0) == ([], [])
    _, events = machine.take(ONE, settled(third.id, Fate.COMMITTED), 5.0)
    assert events == [EndTold(A, Fate.COMMITTED)]
    assert machine.take(ONE, settled(third.id, Fate.COMMITTED), 5.0) == ([], [])
    assert said(machine.tick(60.0), SETTLE, Settle) == []


def test_an_exchange_that_answers_more_slowly_than_it_is_told_again_is_heard(
    machine: ProducerMachine,
) -> None:
    machine.up(ONE, 0.0)
    asks, late, heard = machine.decide(ONE, A, COMMIT, 0.0)[0], 1.5 * ASK_SECONDS, list[object]()
    answers = [(late, each.id) for each in said(asks, SETTLE, Settle)]
    for step in range(1, 40):
        now = step * ASK_SECONDS / 4
        while answers and answers[0][0] <= now:
            asks, events = machine.take(ONE, settled(answers.pop(0)[1], Fate.COMMITTED), now)
            assert asks == [], "an answer to what is answered asks for nothing"
            heard += events
        answers += [(now + late, each.id) for each in said(machine.tick(now), SETTLE, Settle)]
    assert heard == [EndTold(A, Fate.COMMITTED)]
    assert answers == []


def test_what_is_decided_meanwhile_goes_with_the_next_one(machine: ProducerMachine) -> None:
    machine.up(ONE, 0.0)
    (first,) = said(machine.decide(ONE, A, COMMIT, 0.0)[0], SETTLE, Settle)
    assert machine.decide(ONE, B, ROLLBACK, 0.0) == ([], [])
    assert machine.decide(ONE, C, UNKNOWN, 0.0) == ([], [])
    asks, events = machine.take(ONE, settled(first.id, Fate.ROLLED_BACK), 0.1)
    assert events == [EndTold(A, Fate.ROLLED_BACK)]
    (second,) = said(asks, SETTLE, Settle)
    assert second.ends == [(B, ROLLBACK), (C, UNKNOWN)]
    _, events = machine.take(ONE, settled(second.id, Fate.FOREIGN, Fate.OPEN), 0.2)
    assert events == [EndTold(B, Fate.FOREIGN)], "nobody waits for what is unknown"


def test_what_is_decided_otherwise_meanwhile_is_told_next(machine: ProducerMachine) -> None:
    machine.up(ONE, 0.0)
    (first,) = said(machine.decide(ONE, A, UNKNOWN, 0.0)[0], SETTLE, Settle)
    machine.decide(ONE, A, COMMIT, 0.0)
    asks, events = machine.take(ONE, settled(first.id, Fate.OPEN), 0.1)
    assert events == []
    (second,) = said(asks, SETTLE, Settle)
    assert second.ends == [(A, COMMIT)]


def test_what_was_decided_is_not_taken_back_by_a_check_that_does_not_know(
    machine: ProducerMachine,
) -> None:
    machine.decide(ONE, A, COMMIT, 0.0)
    machine.decide(ONE, A, UNKNOWN, 0.0)
    machine.decide(ONE, B, ROLLBACK, 0.0)
    machine.decide(ONE, B, COMMIT, 0.0)
    (first,) = said(machine.up(ONE, 0.0), SETTLE, Settle)
    assert first.ends == [(A, COMMIT), (B, ROLLBACK)]
    machine.decide(ONE, A, UNKNOWN, 0.0)
    _, events = machine.take(ONE, settled(first.id, Fate.COMMITTED, Fate.ROLLED_BACK), 0.1)
    assert events == [EndTold(A, Fate.COMMITTED), EndTold(B, Fate.ROLLED_BACK)]


def test_what_is_decided_for_an_exchange_that_is_not_known_yet_is_told_when_it_is(
    machine: ProducerMachine,
) -> None:
    two = LogId(2, 1)
    assert machine.decide(two, A, COMMIT, 0.0) == ([], [])
    machine.open(msgspec.structs.replace(INFO, number=2), b"q" * 16)
    (settle,) = said(machine.up(two, 0.0), SETTLE, Settle)
    assert settle.ends == [(A, COMMIT)]


def test_what_there_is_no_room_for_is_told_again_a_little_later(machine: ProducerMachine) -> None:
    machine.up(ONE, 0.0)
    (first,) = said(machine.decide(ONE, A, COMMIT, 0.0)[0], SETTLE, Settle)
    assert machine.take(ONE, settled(first.id, Fate.FULL), 0.0) == ([], [])
    assert "no room" in machine.trouble
    (second,) = said(machine.tick(ASK_SECONDS), SETTLE, Settle)
    assert second.ends == [(A, COMMIT)]


def test_while_some_find_room_the_others_are_told_again_at_once(machine: ProducerMachine) -> None:
    machine.decide(ONE, A, COMMIT, 0.0)
    machine.decide(ONE, B, COMMIT, 0.0)
    (first,) = said(machine.up(ONE, 0.0), SETTLE, Settle)
    asks, _ = machine.take(ONE, settled(first.id, Fate.COMMITTED, Fate.FULL), 0.1)
    (second,) = said(asks, SETTLE, Settle)
    assert second.ends == [(B, COMMIT)]


def test_a_log_that_is_gone_has_nothing_any_more(machine: ProducerMachine) -> None:
    machine.decide(ONE, A, COMMIT, 0.0)
    assert machine.leave(ONE) == [EndTold(A, Fate.NOT_HERE)]
    assert machine.leave(ONE) == []
    assert machine.decide(ONE, B, COMMIT, 0.0) == ([], [EndTold(B, Fate.NOT_HERE)])
    assert machine.take(ONE, settled(1, Fate.OPEN), 0.0) == ([], [])
    assert machine.up(ONE, 0.0) == []


def test_it_is_asked(machine: ProducerMachine) -> None:
    head = CheckHead(transaction=A, publisher=b"p" * 16, prepared_us=5, attempt=1)
    half = Half("g", [(b"t", b"1")])
    _, events = machine.take(ONE, [CHECK, documents.encode(head) + encode_half(half)], 0.0)
    assert events == [Asked(ONE, head, half)]


@pytest.mark.parametrize(
    "parts",
    [[CHECK, b""], [CHECK, b"garbage"], [SETTLE, b"garbage"], [b"\xffz", b""], [b"alone"],
     [ENROLL, b""], [REFUSED, b""]],
)  # fmt: skip
def test_garbage_is_refused(machine: ProducerMachine, parts: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError):
        machine.take(ONE, parts, 0.0)


def test_an_answer_about_others_is_refused_and_a_refusal_is_told(machine: ProducerMachine) -> None:
    machine.up(ONE, 0.0)
    (first,) = said(machine.decide(ONE, A, COMMIT, 0.0)[0], SETTLE, Settle)
    with pytest.raises(RemoteProtocolError, match="other transactions"):
        machine.take(ONE, settled(first.id), 0.0)
    refused = Refused(code="full", text="too many wait")
    machine.take(ONE, [REFUSED, documents.encode(refused)], 0.0)
    assert machine.trouble == "x1: too many wait"
    assert len(said(machine.tick(ASK_SECONDS), SETTLE, Settle)) == 1
