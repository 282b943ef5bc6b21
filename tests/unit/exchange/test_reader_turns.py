"""Readers have a moment in each turn of the loop, whatever they want and however much is there."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from roq.exchange import reader_turns
from roq.exchange.events import Effect, Send, Woken
from roq.exchange.reader_turns import READERS_SECONDS, READS_MAX, ReaderTurns
from roq.runtime.interfaces import Timer
from roq.runtime.zmtp_server import Outcome

PIECE = SimpleNamespace(route=b"r", parts=(b"p",), batch=b"batch", size=5)


class Line:
    """Fetches, or consumers: what waits, and what has become of it."""

    def __init__(self) -> None:
        self.waiting = self.done = self.full = self.read = 0
        self.later: list[object] = []
        self.retry_at: float | None = None

    def __len__(self) -> int:
        return self.waiting

    def runnable(self, _now: float = 0.0) -> bool:
        return self.waiting > 0

    def next_deadline(self) -> float | None:
        return self.retry_at

    def begin(self, now: float) -> None: ...

    def next_piece(self) -> Any:
        return PIECE

    def next_delivery(self) -> Any:
        return PIECE

    def sent(self, _: object) -> None:
        self.waiting, self.done = self.waiting - 1, self.done + 1

    def blocked(self, _: object) -> int:
        self.waiting, self.full, self.retry_at = self.waiting - 1, self.full + 1, 9.0
        return 1

    def wait(self) -> None:
        self.waiting -= 1

    def go_on(self) -> None:
        self.read += 1

    def answer_later(self, route: bytes, parts: object) -> None:
        self.later.append((route, parts))


class Turns:
    """A loop that turns when it is told to, and time that passes with what is sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, disk: bool = False) -> None:
        self.now, self.seconds = 1.0, 0.0001
        self.outcome = Outcome.SENT
        self.sent: list[bytes] = []
        self.performed: list[Effect] = []
        self.served = 0
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Timer] = []
        self.reads: list[Callable[[], None]] = []
        self.on_disk = disk
        self.fetches, self.consumers = Line(), Line()
        self.effects: list[Effect] = [Send(b"q", (b"answer",))]
        self.core: Any = SimpleNamespace(
            fetches=self.fetches, consumers=self.consumers, requests=0, asks_the_log=True,
            answer_next=self._answer, counters=SimpleNamespace(bytes_out=0, fetches_abandoned=0),
        )  # fmt: skip
        reactor: Any = SimpleNamespace(call_soon=self.soon.append, call_at=self._call_at)
        monkeypatch.setattr(reader_turns.time, "monotonic", lambda: self.now)
        self.turns = ReaderTurns(
            reactor, self.core, self._send, self.performed.extend, self._served,
            self._at_hand if disk else None,
        )  # fmt: skip

    def turn(self) -> int:
        """One turn of the loop; gives how much was sent in it."""
        before, calls = len(self.sent), self.soon[:]
        self.soon.clear()
        for call in calls:
            call()
        return len(self.sent) - before

    def _send(self, route: bytes, _parts: object, _batch: object) -> Outcome:
        self.now += self.seconds
        self.sent.append(route)
        return self.outcome

    def _answer(self, _now: float) -> list[Effect]:
        self.core.requests -= 1
        return self.effects

    def _served(self) -> None:
        self.served += 1

    def _call_at(self, when: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(when, call))
        return self.timers[-1]

    def _at_hand(self, ask: Callable[[], Any], then: Callable[[], None]) -> Any:
        if self.on_disk:
            self.reads.append(then)
            if ask == self.consumers.next_delivery:
                self.consumers.waiting = 0  # it is asked again when that was read
            return None
        return ask()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Turns:
    return Turns(monkeypatch)


def test_whoever_asks_is_answered_in_the_next_turn_and_the_loop_is_told_once(loop: Turns) -> None:
    loop.turns.look()
    assert loop.soon == []
    loop.core.requests = 1
    loop.turns.look()
    loop.turns.look()
    assert (loop.sent, len(loop.soon)) == ([], 1)
    assert (loop.turn(), loop.sent, loop.soon, loop.served) == (1, [b"q"], [], 1)


def test_nobody_gets_more_than_a_moment_of_a_turn_and_all_of_it_in_the_end(loop: Turns) -> None:
    loop.fetches.waiting = 25
    loop.turns.look()
    sent = [loop.turn(), loop.turn(), loop.turn()]
    assert sum(sent) == loop.fetches.done == 25
    assert max(sent) <= READERS_SECONDS / loop.seconds + 1
    assert loop.core.counters.bytes_out == 25 * PIECE.size
    assert loop.soon == []


def test_publishers_that_are_busy_leave_readers_a_fifth_and_consumers_half(loop: Turns) -> None:
    loop.seconds = 0.000_05
    loop.fetches.waiting = 100
    loop.turns.look()
    loop.turns.burst(0.000_8)
    assert loop.turn() == 4  # for 0.2 ms: a quarter of what publishers took
    loop.fetches.waiting, loop.consumers.waiting = 0, 100
    loop.turns.burst(0.000_8)
    assert loop.turn() == 16


def test_a_turn_that_took_too_long_is_paid_for_by_the_next_ones(loop: Turns) -> None:
    loop.fetches.waiting, loop.seconds = 10, 0.002_4
    loop.turns.look()
    sent = []
    for _ in range(5):
        loop.turns.burst(0.004)
        sent.append(loop.turn())
    assert sent == [1, 0, 1, 0, 1]
    assert loop.turn() == 1, "nobody is busy"


def test_an_answer_for_which_there_is_no_room_is_sent_later(loop: Turns) -> None:
    loop.core.requests, loop.outcome = 1, Outcome.BLOCKED
    loop.turns.look()
    loop.turn()
    assert loop.fetches.later == [(b"q", (b"answer",))]


def test_what_is_no_message_to_a_reader_is_performed(loop: Turns) -> None:
    loop.core.requests, loop.effects = 1, [Woken()]
    loop.turns.look()
    loop.turn()
    assert (loop.performed, loop.sent) == ([Woken()], [])


def test_a_full_connection_is_tried_again_when_it_is_time(loop: Turns) -> None:
    for line in (loop.fetches, loop.consumers):
        line.waiting, line.retry_at = 1, None
        loop.outcome = Outcome.BLOCKED
        loop.turns.look()
        loop.turn()
        assert (line.full, loop.timers[-1].when, loop.soon) == (1, 9.0, [])
        line.waiting, line.retry_at, loop.outcome = 1, None, Outcome.SENT
        assert loop.timers[-1].call is not None
        loop.timers[-1].call()
        assert line.done == 1
    assert loop.core.counters.fetches_abandoned == 1


def test_what_has_just_come_is_handed_out_at_once_unless_somebody_waits_for_a_turn(
    loop: Turns,
) -> None:
    loop.turns.hand_out()
    assert loop.sent == []
    loop.consumers.waiting = 2
    loop.turns.hand_out()
    assert (len(loop.sent), loop.soon) == (1, [])
    for other in ("fetch", "question", "turn"):
        loop.fetches.waiting, loop.core.requests = other == "fetch", other == "question"
        if other == "turn":
            loop.turns.look()
        loop.turns.hand_out()
        assert len(loop.sent) == 1, other


def test_what_is_handed_out_into_a_full_connection_is_tried_again(loop: Turns) -> None:
    loop.consumers.waiting, loop.outcome = 1, Outcome.BLOCKED
    loop.turns.hand_out()
    assert len(loop.soon) == 1


def test_who_asks_for_what_has_to_be_read_waits_for_that_and_the_loop_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Turns(monkeypatch, disk=True)
    loop.core.requests = loop.fetches.waiting = loop.consumers.waiting = 1
    loop.turns.look()
    assert (loop.turn(), len(loop.reads), loop.soon) == (0, 3, [])
    loop.on_disk, loop.fetches.waiting = False, 1
    loop.reads[0]()
    assert loop.fetches.read == loop.consumers.read == 1
    assert loop.turn() == 2


def test_what_takes_many_reads_is_answered_at_once_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Turns(monkeypatch, disk=True)
    loop.core.requests = 1
    loop.turns.look()
    for _ in range(READS_MAX):
        assert loop.turn() == 0
        loop.reads.pop()()
    assert (loop.turn(), loop.reads) == (1, [])


def test_what_asks_no_log_does_not_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Turns(monkeypatch, disk=True)
    loop.core.requests, loop.core.asks_the_log = 1, False
    loop.turns.look()
    assert loop.turn() == 1
