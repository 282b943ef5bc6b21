"""Who answers a check: what this process knows, else the program, which may take its time."""

from __future__ import annotations

import math
import threading
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec
import pytest
from commands import until

import roq
from roq.client.io.engine import Engine
from roq.client.transact import shell
from roq.client.transact.machine import Asked
from roq.client.transact.shell import ProducerShell
from roq.model import ExchangeInfo, LogId
from roq.protocol import documents
from roq.protocol.control import Topology
from roq.protocol.transaction import (
    CHECK,
    ENROLL,
    SETTLE,
    CheckHead,
    Decision,
    Fate,
    Half,
    Settle,
    Settled,
    encode_half,
)

ONE = LogId(1, 1)
INFO = ExchangeInfo(number=1, epoch=1, generation=1, host="h", data="d", live="l")
A, B = b"a" * 8, b"b" * 8
COMMIT, ROLLBACK, UNKNOWN, BUSY = Decision


class PaperLines:
    """Connections that stand at once and note what is asked."""

    def __init__(self) -> None:
        self.asked: list[list[bytes]] = []

    def open(self, _address: str, *, on_up: Any, on_answers: Any, **_: Any) -> PaperLines:
        self.up, self.answer = on_up, on_answers
        return self

    def end(self) -> None:
        """The client has ended."""

    def ask(self, frames: list[bytes]) -> None:
        self.asked.append(frames)

    def close(self, farewells: list[list[bytes]]) -> None:
        self.asked += farewells


class Scene:
    """A producer whose exchange is on paper."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.lines = engine.exchanges = cast("Any", PaperLines())
        self.calls: list[bytes] = []
        self.answer: Callable[[Asked], Decision] = lambda _: COMMIT
        self.shell = ProducerShell(engine, ["127.0.0.1:1"], "work", "g", b"p" * 16, self.check)
        self.topology([INFO])
        self.shell.need_exchanges(1.0)
        self.inside(self.lines.up)

    def check(self, asked: Asked) -> Decision:
        self.calls.append(asked.head.transaction)
        return self.answer(asked)

    def topology(self, exchanges: list[ExchangeInfo], logs: Sequence[int] = ()) -> None:
        told = Topology(
            queue_id=b"q" * 16, epoch=1, version=1, exchanges=exchanges, logs=list(logs)
        )
        self.inside(lambda: self.shell._topology(told))

    def inside(self, call: Callable[[], object]) -> None:
        self.engine.run_sync(call)

    def ask(self, transaction: bytes) -> None:
        head = CheckHead(transaction=transaction, publisher=b"", prepared_us=5, attempt=1)
        half = encode_half(Half("g", [(b"t", b"1")]))
        self.inside(lambda: self.lines.answer([[CHECK, documents.encode(head) + half]]))

    def settles(self) -> list[tuple[bytes, Decision]]:
        """All that was said so far; each is answered, so that the next one is said."""
        self.inside(lambda: None)
        found = []
        for letter, document in self.lines.asked:
            if letter == SETTLE:
                said = documents.decode(document, Settle)
                found += said.ends
        return found

    def reply(self, fate: Fate) -> None:
        self.inside(lambda: None)
        document = [each for letter, each in self.lines.asked if letter == SETTLE][-1]
        said = documents.decode(document, Settle)
        answer = Settled(id=said.id, generation=1, fates=[fate] * len(said.ends))
        self.inside(lambda: self.lines.answer([[SETTLE, documents.encode(answer)]]))


@pytest.fixture
def scene(engine: Engine) -> Iterator[Scene]:
    made = Scene(engine)
    yield made
    made.shell.close()


def test_a_decision_is_told_and_its_answer_comes(scene: Scene) -> None:
    told = scene.shell.decide(ONE, A, COMMIT)
    assert scene.settles() == [(A, COMMIT)]
    assert not told.done()
    scene.reply(Fate.COMMITTED)
    assert told.result(10) is Fate.COMMITTED


def test_the_program_is_asked_about_what_this_process_does_not_know(scene: Scene) -> None:
    scene.ask(A)
    assert until(lambda: scene.settles() == [(A, COMMIT)])
    assert scene.calls == [A]


def test_of_its_own_work_that_goes_on_the_program_is_not_asked(scene: Scene) -> None:
    mine = scene.shell.begin()
    assert mine != scene.shell.begin()
    scene.ask(mine)
    assert scene.settles() == [(mine, BUSY)]
    scene.reply(Fate.OPEN)
    scene.shell.leave_open(mine)
    scene.ask(mine)
    assert until(lambda: scene.settles() == [(mine, BUSY), (mine, COMMIT)])
    assert scene.calls == [mine]


def test_what_was_decided_here_is_said_again_and_what_was_not_prepared_is_rolled_back(
    scene: Scene,
) -> None:
    mine = scene.shell.begin()
    scene.shell.decide(ONE, mine, COMMIT)
    assert scene.settles() == [(mine, COMMIT)]
    scene.reply(Fate.COMMITTED)
    scene.ask(mine)
    assert scene.settles() == [(mine, COMMIT)] * 2
    scene.reply(Fate.COMMITTED)
    scene.shell.forget(B)
    scene.ask(B)
    assert scene.settles()[2:] == [(B, ROLLBACK)]
    assert scene.calls == []


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, CancelledError])
def test_a_check_that_raises_counts_as_unknown(
    scene: Scene, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    def fail(_: Asked) -> Decision:
        raise error

    scene.answer = fail
    scene.ask(A)
    assert until(lambda: scene.settles() == [(A, UNKNOWN)])
    assert A.hex() in caplog.text


def test_a_check_that_hangs_holds_up_no_decision_and_what_waits_is_bounded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "CHECKS_MAX", 3)
    free = threading.Event()

    def hang(_: Asked) -> Decision:
        free.wait(30)
        return COMMIT

    scene.answer = hang
    scene.ask(A)
    assert until(lambda: scene.calls == [A])
    for _ in range(9):
        scene.ask(A)
    told = scene.shell.decide(ONE, B, ROLLBACK)
    assert scene.settles() == [(B, ROLLBACK)]
    scene.reply(Fate.ROLLED_BACK)
    assert told.result(10) is Fate.ROLLED_BACK
    free.set()
    assert until(lambda: len(scene.calls) == 4)


def test_the_program_is_not_asked_about_what_is_decided_while_it_is_looked_for(
    scene: Scene,
) -> None:
    class Meanwhile(set[bytes]):
        def __contains__(self, name: object) -> bool:
            scene.shell._note(mine, COMMIT, ONE)
            return super().__contains__(name)

    mine = scene.shell.begin()
    scene.shell._busy = Meanwhile([mine])
    scene.ask(mine)
    assert scene.settles() == [(mine, COMMIT)]
    assert scene.calls == []


def test_a_copy_in_another_log_is_rolled_back_and_what_becomes_of_it_is_no_answer(
    scene: Scene,
) -> None:
    mine = scene.shell.begin()
    told = scene.shell.decide(LogId(2, 1), mine, COMMIT)
    scene.ask(mine)
    assert scene.settles() == [(mine, ROLLBACK)]
    scene.reply(Fate.ROLLED_BACK)
    assert not told.done()
    assert scene.calls == []


def test_when_it_is_closed_the_program_is_asked_no_more(scene: Scene) -> None:
    free = threading.Event()

    def hang(_: Asked) -> Decision:
        free.wait(30)
        return COMMIT

    scene.answer = hang
    scene.ask(A)
    assert until(lambda: scene.calls == [A])
    scene.ask(B)
    scene.shell.close()
    free.set()
    assert scene.shell._checking is not None
    scene.shell._checking.join(30)
    assert scene.calls == [A]


def test_what_it_remembers_is_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "DECIDED_MAX", 2)
    for number in range(5):
        scene.shell.forget(bytes([number]) * 8)
    assert len(scene.shell._decided) == 2


def test_an_exchange_that_is_gone_with_its_log_does_not_have_it(scene: Scene) -> None:
    told = scene.shell.decide(ONE, A, COMMIT)
    scene.topology([])
    assert told.result(10) is Fate.NOT_HERE


def test_an_exchange_that_is_back_with_another_log_does_not_have_it(scene: Scene) -> None:
    told = scene.shell.decide(ONE, A, COMMIT)
    scene.topology([], logs=[1])
    assert not told.done(), "it comes back"
    scene.topology([msgspec.structs.replace(INFO, epoch=2, generation=2)], logs=[1])
    assert told.result(10) is Fate.NOT_HERE


def test_who_opens_one_may_wait_for_ever(engine: Engine) -> None:
    shell = ProducerShell(engine, ["127.0.0.1:1"], "work", "g", b"p" * 16, lambda _: COMMIT)
    closes = threading.Timer(0.05, shell.close)
    closes.start()
    with pytest.raises(roq.Closed):
        shell.need_exchanges(math.inf)
    closes.join()


def test_when_it_is_closed_it_leaves_and_nobody_waits(scene: Scene) -> None:
    told = scene.shell.decide(ONE, A, COMMIT)
    scene.shell.close()
    with pytest.raises(roq.Closed):
        told.result(10)
    assert [letter for letter, _ in scene.lines.asked] == [ENROLL, SETTLE, ENROLL]
    with pytest.raises(roq.Closed):
        scene.shell.decide(ONE, B, COMMIT).result(10)
    with pytest.raises(roq.Closed):
        scene.shell.need_exchanges(0.0)
