"""Transactions of all exchanges are one answer, and one of them is settled where it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from roq.client.io.exchange_questions import Answers
from roq.client.transact import commands
from roq.client.transact.commands import TransactionCommands
from roq.client.transact.publisher import TransactionMessage
from roq.errors import (
    InvalidName,
    InvalidRequest,
    TransactionEnded,
    TransactionNotFound,
    Unavailable,
)
from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.transaction import (
    SETTLE,
    TRANSACTIONS,
    Fate,
    Half,
    Settled,
    TransactionFigures,
    Transactions,
    TransactionState,
    encode_half,
)

NAME = "61" * 8


class Paper(TransactionCommands):
    """A queue whose exchanges answer so."""

    _engine: Any = None
    publisher: Any = None
    addresses: Any = None

    def describe(self, queue: str) -> Any:
        assert queue == "q"
        return msgspec.defstruct("Queue", ["queue_id"])("00" * 16)

    def _seconds(self, timeout: float | None) -> float:
        return timeout or 1.0

    def _adopt(self, child: Any) -> Any:
        return child


def answers(
    patch: pytest.MonkeyPatch, missing: dict[str, str], *rounds: dict[str, list[bytes]]
) -> None:
    left = list(rounds)
    patch.setattr(commands, "ask_all", lambda *_: Answers(left.pop(0), missing))


def state(name: str = NAME, fate: Fate = Fate.OPEN, **more: Any) -> TransactionState:
    return TransactionState(transaction=bytes.fromhex(name), fate=fate, **more)


def listing(*states: TransactionState, half: bytes = b"", **figures: int) -> list[bytes]:
    answer = Transactions(
        id=1, generation=1, figures=TransactionFigures(**figures), transactions=list(states)
    )
    return [TRANSACTIONS, documents.encode(answer) + half]


def settled(fate: Fate) -> list[bytes]:
    return [SETTLE, documents.encode(Settled(id=1, generation=1, fates=[fate]))]


def test_the_oldest_of_all_are_listed_and_counts_are_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    one = listing(state("01" * 8, seconds=3.0, group="g"), state("02" * 8, seconds=1.0), open=5)
    two = listing(state("03" * 8, seconds=2.0, kept=True), open=2, kept=1, by_policy=4)
    answers(monkeypatch, {"x3": "away"}, {"x1": one, "x2": two})
    found = Paper().transactions("q", most=2)
    assert [(each.id[:2], each.exchange, each.state) for each in found.transactions] == [
        ("01", "x1", "open"), ("03", "x2", "kept"),
    ]  # fmt: skip
    assert (found.open, found.kept, found.by_policy, found.missing) == (7, 1, 4, {"x3": "away"})
    answers(monkeypatch, {"x3": "away"}, {})
    with pytest.raises(Unavailable, match="exchange x3: away"):
        Paper().transactions("q")


def test_one_is_found_with_its_messages_or_as_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    half = encode_half(Half("g", [(b"t", b"1")]))
    not_here = listing(state(fate=Fate.NOT_HERE))
    answers(monkeypatch, {}, {"x1": not_here, "x2": listing(state(), half=half)})
    found = Paper().transaction("q", NAME)
    assert (found.state, found.group, found.exchange) == ("open", "g", "x2")
    assert found.messages == [TransactionMessage(b"1", "t")]
    answers(monkeypatch, {}, {"x1": listing(state(fate=Fate.COMMITTED))})
    assert Paper().transaction("q", NAME).state == "committed"
    answers(monkeypatch, {}, {"x1": not_here})
    with pytest.raises(TransactionNotFound):
        Paper().transaction("q", NAME)
    answers(monkeypatch, {"x2": "away"}, {"x1": not_here})
    with pytest.raises(Unavailable, match="x2: away"):
        Paper().transaction("q", NAME)


@pytest.mark.parametrize("name", ["", "xyz", "61" * 7, "61" * 9])
def test_what_cannot_be_an_id_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        Paper().commit_transaction("q", name)


def test_one_is_settled_by_hand_once(monkeypatch: pytest.MonkeyPatch) -> None:
    half = encode_half(Half("g", [(b"t", b"1")]))
    there = {"x1": listing(state(), half=half)}
    answers(monkeypatch, {}, there, {"x1": settled(Fate.COMMITTED)})
    Paper().commit_transaction("q", NAME)
    answers(monkeypatch, {}, there, {"x1": settled(Fate.ROLLED_BACK)})
    Paper().rollback_transaction("q", NAME)
    answers(monkeypatch, {}, there, {"x1": settled(Fate.COMMITTED)})
    with pytest.raises(TransactionEnded, match="committed before"):
        Paper().rollback_transaction("q", NAME)
    answers(monkeypatch, {}, {"x1": listing(state(fate=Fate.COMMITTED))})
    Paper().commit_transaction("q", NAME)
    answers(monkeypatch, {}, {"x1": listing(state(fate=Fate.ROLLED_BACK))})
    with pytest.raises(TransactionEnded):
        Paper().commit_transaction("q", NAME)


@pytest.mark.parametrize(
    ("answer", "told"),
    [({"x1": settled(Fate.FULL)}, "says full"), ({}, "says nothing"),
     ({"x1": [SETTLE, b"garbage"]}, "cannot be read"),
     ({"x1": [REFUSED, documents.encode(Refused(code="full", text="too many"))]}, "too many"),
     ({"x1": [b"\xffz", b""]}, "none")],
)  # fmt: skip
def test_what_is_not_done_is_to_be_repeated(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, list[bytes]], told: str
) -> None:
    half = encode_half(Half("g", [(b"t", b"1")]))
    answers(monkeypatch, {}, {"x1": listing(state(), half=half)}, answer)
    with pytest.raises(Unavailable, match=f"{told}.*Repeat it"):
        Paper().commit_transaction("q", NAME)


def test_one_that_the_disk_does_not_give_is_to_be_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers(monkeypatch, {}, {"x1": listing(state())})
    with pytest.raises(Unavailable, match="repeat it"):
        Paper().commit_transaction("q", NAME)


def test_a_publisher_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidName):
        Paper().transactional_publisher("q", "no group!", lambda _: None)
    with pytest.raises(InvalidRequest, match="otherwise"):
        Paper().transactional_publisher("q", "g", lambda _: None, otherwise="perhaps")
