"""A transaction as a program has it: kept first, then decided once, and told so."""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

import roq
from roq.client.publish.receipt import PENDING, Outcome, SendStatus
from roq.client.transact.machine import Asked
from roq.client.transact.publisher import (
    TOPIC,
    Terms,
    TransactionalPublisher,
    TransactionMessage,
    check_terms,
)
from roq.model import LogId
from roq.protocol.delayed import DELAYED_TOPIC, decode_delayed
from roq.protocol.transaction import OPEN_US, CheckHead, Decision, Fate, decode_half

ONE = LogId(1, 1)
KEPT = SendStatus(outcome=Outcome.OK, exchange="x1", log=ONE)


@dataclass
class PaperShell:
    """Notes what is told, and answers so."""

    fate: Fate | None = Fate.COMMITTED
    known: bool = True
    busy: set[bytes] = field(default_factory=set)
    forgotten: list[bytes] = field(default_factory=list)
    told: list[tuple[bytes, Decision]] = field(default_factory=list)
    closed: int = 0
    begun: int = 0
    trouble: str = ""

    def check_process(self) -> None:
        """It is no forked child."""

    deciding: Any = field(default_factory=threading.RLock)

    def need_exchanges(self, timeout: float) -> None:
        if not self.known:
            raise roq.Unavailable("not known")

    def begin(self) -> bytes:
        self.begun += 1
        name = self.begun.to_bytes(8, "big")
        self.busy.add(name)
        return name

    def leave_open(self, name: bytes) -> None:
        self.busy.discard(name)

    def forget(self, name: bytes) -> None:
        self.busy.discard(name)
        self.forgotten.append(name)

    def decide(self, place: LogId, name: bytes, decision: Decision) -> Future[Fate]:
        assert place == ONE
        self.busy.discard(name)
        self.told.append((name, decision))
        future: Future[Fate] = Future()
        if self.fate is not None:
            future.set_result(self.fate)
        return future

    def close(self) -> None:
        self.closed += 1


@dataclass
class PaperPublisher:
    """Publishes nowhere."""

    status: SendStatus = KEPT
    queue: str = "orders"
    trouble: str = ""

    def check_process(self) -> None:
        """It is no forked child."""

    sent: list[tuple[bytes, str]] = field(default_factory=list)
    closed: int = 0

    def __post_init__(self) -> None:
        self.kept_nothing = 0
        self.bound: set[str] = set()
        replay = SimpleNamespace(keep_nothing=self.keep_nothing)
        links = SimpleNamespace(replay=replay, bound=SimpleNamespace(topics=self.bound))
        self._shell = SimpleNamespace(machine=SimpleNamespace(links=links))

    def keep_nothing(self) -> None:
        self.kept_nothing += 1

    def publish_raw(self, data: bytes, topic: str) -> Any:
        self.sent.append((data, topic))
        return SimpleNamespace(wait=lambda _seconds: self.status)

    def close(self, timeout: float | None) -> None:
        self.closed += 1


class Scene:
    def __init__(self, **shell: Any) -> None:
        self.shell = PaperShell(**shell)
        self.paper = PaperPublisher()
        self.said: object = Decision.COMMIT
        self.asked: list[roq.OpenTransaction] = []
        self.made = TransactionalPublisher(
            cast("Any", self.paper), self.open, group="g", check=cast("Any", self.check),
            terms=Terms(2.0, 3, 4.0, "keep"), timeout=0.0,
        )  # fmt: skip

    def open(self, ask: Any) -> Any:
        self.ask = ask
        return self.shell

    def check(self, transaction: roq.OpenTransaction) -> object:
        self.asked.append(transaction)
        return self.said


def test_all_messages_of_a_transaction_travel_as_one_that_is_never_due() -> None:
    scene = Scene()
    made = scene.made.prepare_many([
        TransactionMessage(b"1", "t", "k", ["a"], {"p": "v"}, 3),
        TransactionMessage(bytearray(b"2")),
    ])  # fmt: skip
    ((data, topic),) = scene.paper.sent
    assert topic.encode() == DELAYED_TOPIC
    delayed = decode_delayed(data)
    assert (delayed.due_us, delayed.id.hex()) == (OPEN_US, made.id)
    half = decode_half(delayed.payload)
    assert half.messages == [(b"t", b"1"), (b"", b"2")]
    assert (half.group, half.check_seconds, half.attempts) == ("g", 2.0, 3)
    assert (half.patience_seconds, half.otherwise) == (4.0, "keep")
    assert scene.shell.busy == {delayed.id}
    assert (made.exchange, made.decision) == ("x1", None)


def test_it_is_decided_once_whoever_decides_at_the_same_time() -> None:
    scene = Scene()
    made = scene.made.prepare(b"1")
    decide, errors = scene.shell.decide, []

    def other() -> None:
        try:
            made.rollback()
        except roq.InvalidRequest as error:
            errors.append(str(error))

    thread = threading.Thread(target=other)

    def slow(place: LogId, name: bytes, decision: Decision) -> Future[Fate]:
        if decision is Decision.COMMIT:
            thread.start()
            thread.join(0.2)  # it waits
        return decide(place, name, decision)

    cast("Any", scene.shell).decide = slow
    made.commit()
    thread.join(30)
    assert [decision for _, decision in scene.shell.told] == [Decision.COMMIT]
    assert len(errors) == 1


def test_a_half_message_is_in_one_log() -> None:
    scene = Scene()
    assert (scene.paper.bound, scene.paper.kept_nothing) == ({TOPIC}, 1)


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.REFUSED, Outcome.PENDING])
def test_what_is_not_certainly_kept_is_no_transaction_and_is_to_be_rolled_back(
    outcome: Outcome,
) -> None:
    scene = Scene()
    scene.paper.status = SendStatus(outcome=outcome) if outcome is not Outcome.PENDING else PENDING
    with pytest.raises(roq.DeliveryError):
        scene.made.prepare(b"1")
    assert (len(scene.shell.forgotten), scene.shell.busy) == (1, set())


@pytest.mark.parametrize("count", [0, 101])
def test_a_transaction_has_so_many_messages(count: int) -> None:
    scene = Scene()
    with pytest.raises(roq.InvalidRequest, match="1 to 100"):
        scene.made.prepare_many([TransactionMessage(b"")] * count)
    with pytest.raises(roq.InvalidName):
        scene.made.prepare(b"", properties={"roq.x": "y"})
    assert (scene.paper.sent, scene.shell.busy) == ([], set())


def test_leaving_the_block_commits_and_an_exception_rolls_back() -> None:
    scene = Scene()
    with scene.made.prepare(b"1"):
        pass
    scene.shell.fate = Fate.ROLLED_BACK
    with pytest.raises(ZeroDivisionError), scene.made.prepare(b"2"):
        raise ZeroDivisionError
    with scene.made.prepare(b"3") as third:
        third.rollback()
    with scene.made.prepare(b"4") as fourth:
        fourth.leave_open()
    assert [decision for _, decision in scene.shell.told] == [
        Decision.COMMIT, Decision.ROLLBACK, Decision.ROLLBACK,
    ]  # fmt: skip
    assert scene.shell.busy == set()


def test_what_is_raised_in_the_block_goes_on_whatever_the_exchange_says() -> None:
    scene = Scene(fate=Fate.COMMITTED)
    with pytest.raises(ZeroDivisionError), scene.made.prepare(b"1"):
        raise ZeroDivisionError


def test_an_end_may_take_for_ever() -> None:
    scene = Scene(fate=None)
    made = scene.made.prepare(b"1")
    told: Future[Fate] = Future()
    scene.shell.decide = lambda *_: told  # type: ignore[method-assign]
    answer = threading.Timer(0.05, told.set_result, [Fate.COMMITTED])
    answer.start()
    made.commit(math.inf)
    answer.join()


def test_an_end_may_be_repeated_and_another_one_is_refused() -> None:
    scene = Scene()
    made = scene.made.prepare(b"1")
    made.commit()
    made.commit()
    with pytest.raises(roq.InvalidRequest, match="commit was decided"):
        made.rollback()
    assert len(scene.shell.told) == 1


@pytest.mark.parametrize(
    ("fate", "error", "told"),
    [
        (Fate.ROLLED_BACK, roq.TransactionEnded, "rolled back before"),
        (Fate.NOT_HERE, roq.TransactionNotFound, "x1 does not have"),
        (Fate.FOREIGN, roq.TransactionNotFound, "does not have"),
        (None, roq.Unavailable, "it is slow.*goes on being told"),
    ],
)
def test_another_end_than_was_decided_is_raised(
    fate: Fate | None, error: type[roq.RoQError], told: str
) -> None:
    scene = Scene(fate=fate)
    with pytest.raises(error, match=told):
        scene.made.prepare(b"1").commit()


def test_one_that_nobody_has_any_more_is_left_to_the_check() -> None:
    scene = Scene()
    made = scene.made.prepare(b"1")
    assert scene.shell.busy
    del made
    assert scene.shell.busy == set()


@pytest.mark.parametrize(
    ("said", "decision"),
    [(Decision.ROLLBACK, Decision.ROLLBACK), ("commit", Decision.COMMIT),
     (None, Decision.UNKNOWN)],
)  # fmt: skip
def test_the_program_says_what_has_become_of_it(said: object, decision: Decision) -> None:
    scene = Scene()
    scene.made.prepare(b"1", "t", "k")
    half = decode_half(decode_delayed(scene.paper.sent[0][0]).payload)
    head = CheckHead(transaction=b"a" * 8, publisher=b"p" * 16, prepared_us=5_000_000, attempt=2)
    scene.said = said
    assert scene.ask(Asked(ONE, head, half)) is decision
    (transaction,) = scene.asked
    assert transaction.messages == [TransactionMessage(b"1", "t", "k")]
    assert (transaction.id, transaction.attempt) == ((b"a" * 8).hex(), 2)
    assert transaction.prepared == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    scene.said = "perhaps"
    with pytest.raises(ValueError, match="perhaps"):
        scene.ask(Asked(ONE, head, half))


def test_it_is_closed_once_and_with_what_it_is_made_of() -> None:
    scene = Scene()
    with scene.made as made:
        assert "open" in repr(made)
    made.close()
    assert (scene.paper.closed, scene.shell.closed) == (1, 1)
    with pytest.raises(roq.Unavailable):
        Scene(known=False)


@pytest.mark.parametrize(
    "terms",
    [Terms(0.0), Terms(check_after=1e6), Terms(attempts=0), Terms(patience=0.0),
     Terms(otherwise="perhaps")],
)  # fmt: skip
def test_terms_that_cannot_be_are_refused(terms: Terms) -> None:
    assert check_terms(Terms()) == Terms()
    with pytest.raises(roq.InvalidRequest):
        check_terms(terms)
