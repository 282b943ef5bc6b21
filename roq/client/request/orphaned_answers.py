"""Answers to requests whose exchange is gone: kept until another exchange has such a request. Pure.

    runs, or is answered --its exchange is gone--> stranded --answered--> kept --offered--> taken
                                                      |                    |         |
                                                      +--- its successor --+         +--> dropped

The requester sends an idempotent request once more, under another name. Whichever exchange has it
then takes the answer, if no instance has begun with it there. If this very instance is given it,
that is the *successor*: it does not run a second time here, and gets the answer.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from roq.client.consume.holding import ACKED, OPEN, STRANDED, TOLD
from roq.client.consume.seat import IN, Seat
from roq.client.io.queue_connections import AskExchange
from roq.client.request.request_holding import RUNS, SAID, HandlerResult, RequestHolding
from roq.errors import RemoteProtocolError
from roq.protocol import requesting
from roq.protocol.consuming import DONE_BYTES
from roq.protocol.orphaned_answers import (
    OFFERED_MAX,
    ORPHANED,
    AnswersOffered,
    AnswersTaken,
    OrphanedAnswer,
    before_of,
    maker_of,
    token_of,
)
from roq.protocol.requesting import (
    ENVELOPE,
    ONCE,
    SILENT,
    Position,
    RequestState,
    ServiceSettings,
    named_by,
)

KEPT_BYTES: Final = 4 * 1024 * 1024
"""Of answers that are kept; what finds no room is dropped. Each goes to all exchanges."""
KEPT_MAX: Final = 10_000
OVERHEAD_BYTES: Final = 96
"""What an answer takes beside its value and its text, here and on its way."""
_ANSWERS: Final = frozenset({RequestState.DONE, RequestState.FAILED})


class HeldAt(NamedTuple):
    """A request, as its instance holds it."""

    holding: RequestHolding
    at: int


@dataclass(slots=True)
class _Kept:
    answer: OrphanedAnswer
    size: int
    until: float
    tries: int = 0
    due: float = 0.0
    """When it is offered next, or dropped."""


class OrphanedAnswers:
    """Those of one instance.

    Attributes:
        settings: of the service, as an exchange has told them last.
        lost_holdings: of exchanges that are gone; something of them was answered since the last
            look; from any thread.
        given_back: likewise, what runs here no more and has no answer.
        answered: successors and their answers, since the shell has looked.
        to_run: successors that have to run after all, since then.
        any: whether there was something to look after when it was looked last.
        taken, dropped: answers that another exchange has taken, and that none has.
    """

    def __init__(self) -> None:
        self.settings = ServiceSettings()
        self.lost_holdings: deque[RequestHolding] = deque()
        self.given_back: deque[HeldAt] = deque()
        self.answered: list[tuple[HeldAt, HandlerResult]] = []
        self.to_run: list[HeldAt] = []
        self.any = False
        self.taken = self.dropped = 0
        self._kept: dict[bytes, _Kept] = {}
        """By token (`roq.protocol.orphaned_answers`)."""
        self._running: dict[bytes, HeldAt | None] = {}
        """By token: what runs here though its exchange is gone, and its successor."""
        self._late: OrderedDict[bytes, tuple[float, HandlerResult]] = OrderedDict()
        """By token: what has run here for too long, until when that is known. Nobody is offered
        it, as another instance may be in time."""
        self._fresh: list[bytes] = []
        """Tokens of answers that were not offered yet."""
        self._next_due = inf
        """When one of the others is to be offered next, or later."""
        self._bytes = 0

    @property
    def count(self) -> int:
        """Answers that are kept."""
        return len(self._kept) + len(self.lost_holdings)

    def lose(self, holding: RequestHolding) -> int:
        """Its exchange is gone: what has an answer that may be wanted elsewhere is stranded.
        Gives how many of these were answered."""
        if not self.settings.reply_attempts:
            return 0
        answered = 0
        for at, payload in enumerate(holding.batch.payloads):
            state, ended = holding.states[at], holding.states[at] in {ACKED, TOLD}
            runs = state == OPEN and holding.stages[at] in {RUNS, SAID}
            if (runs or ended) and _is_sent_again(payload):
                holding.states[at] = STRANDED
                answered += ended
                if runs:
                    self._running[_token(holding, at)] = None
        if STRANDED in holding.states:
            self.any = True
            self.lost_holdings.append(holding)
        return answered

    def collect(self, now: float) -> None:
        """Take in what was answered, or given back, since the last look."""
        for _ in range(len(self.lost_holdings)):
            self._collect(self.lost_holdings.popleft(), now)
        for _ in range(len(self.given_back)):
            held = self.given_back.popleft()
            if self._running:
                self._release(_token(*held))

    def adopt(self, holding: RequestHolding, at: int) -> HandlerResult | bool:
        """Whether a request that has come runs here under an earlier name: it waits for that. Or
        how that has ended, as far as it is collected."""
        for token in _former_tokens(holding, at):
            kept = self._kept.get(token)
            if kept is not None:
                self._forget(token)
                self.taken += 1
                return HandlerResult(kept.answer.state, kept.answer.value, kept.answer.text)
            if token in self._late:
                return self._late.pop(token)[1]
            if token in self._running and self._running[token] is None:
                self._running[token] = HeldAt(holding, at)
                return True
        return False

    def offers(self, seats: Iterable[Seat], now: float) -> list[AskExchange]:
        """What is to be offered now, to all exchanges that are there."""
        self.collect(now)
        places = [seat for seat in seats if seat.phase is IN] if self._kept else []
        due, offered, waiting = self._due(now), list[_Kept](), list[bytes]()
        for token in due[:OFFERED_MAX]:
            kept = self._kept.get(token)
            if kept is None:
                continue
            if kept.tries >= self.settings.reply_attempts or kept.until <= now:
                self._forget(token)
                self.dropped += 1
            elif places:
                kept.tries += 1
                kept.due = min(now + self.settings.reply_wait, kept.until)
                self._next_due = min(self._next_due, kept.due)
                offered.append(kept)
            else:
                waiting.append(token)
        self._fresh = waiting + due[OFFERED_MAX:]
        while self._late and next(iter(self._late.values()))[0] <= now:
            self._late.popitem(last=False)
        self.any = bool(self._kept or self._running or self._late)
        rooms = {seat.frame_bytes - DONE_BYTES for seat in places}
        told = {room: list(_messages(offered, room)) for room in rooms}
        return [
            AskExchange(seat.exchange.log, [ORPHANED, each])
            for seat in places
            for each in told[seat.frame_bytes - DONE_BYTES]
        ]

    def _due(self, now: float) -> list[bytes]:
        """Of these tokens the answers are to be offered, or dropped; all are looked at only when
        one of them is due that was offered before."""
        if now < self._next_due:
            return self._fresh
        self._next_due = min(
            (each.due for each in self._kept.values() if each.due > now), default=inf
        )
        return [token for token, each in self._kept.items() if each.due <= now]

    def told(self, answer: AnswersTaken) -> None:
        """An exchange has said what it takes, and how often it wants to be asked."""
        self.settings = ServiceSettings(
            reply_attempts=answer.attempts, reply_wait=answer.wait,
            result_within=self.settings.result_within,
        )  # fmt: skip
        for token in answer.taken:
            self.taken += self._forget(token)
        for token in answer.outdated:
            self.dropped += self._forget(token)

    def _collect(self, holding: RequestHolding, now: float) -> None:
        for at, state in enumerate(holding.states):
            result = holding.answers.pop(holding.first + at, None) if state == STRANDED else None
            if result is None:
                continue
            token = _token(holding, at)
            if result.state not in _ANSWERS and not result.ran_late:  # it has not run
                self._release(token)
            elif (successor := self._running.pop(token, None)) is not None:
                self.answered.append((successor, result))
            elif result.ran_late:
                self._late[token] = now + self.settings.result_within, result
                if len(self._late) > KEPT_MAX:
                    self._late.popitem(last=False)
            else:
                self._keep(token, result, now)

    def _keep(self, token: bytes, result: HandlerResult, now: float) -> None:
        self._forget(token)
        size = OVERHEAD_BYTES + len(result.value) + len(result.text.encode())
        if len(self._kept) >= KEPT_MAX or self._bytes + size > KEPT_BYTES:
            self.dropped += 1
            return
        answer = OrphanedAnswer(token, result.state, result.value, result.text)
        self._kept[token] = _Kept(answer, size, now + self.settings.result_within)
        self._fresh.append(token)
        self._bytes += size

    def _release(self, token: bytes) -> None:
        successor = self._running.pop(token, None)
        if successor is not None:
            self.to_run.append(successor)

    def _forget(self, token: bytes) -> bool:
        kept = self._kept.pop(token, None)
        self._bytes -= 0 if kept is None else kept.size
        return kept is not None


def _messages(offered: list[_Kept], room: int) -> Iterator[bytes]:
    """What is told of these, in messages of so many bytes; what is larger alone is left out."""
    some: list[OrphanedAnswer] = []
    size = 0
    for kept in offered:
        if kept.size > room:
            continue
        if some and size + kept.size > room:
            yield requesting.encode(AnswersOffered(some))
            some, size = [], 0
        some.append(kept.answer)
        size += kept.size
    if some:
        yield requesting.encode(AnswersOffered(some))


def _is_sent_again(payload: bytes | memoryview) -> bool:
    """Whether the requester sends such a request once more."""
    return len(payload) >= ENVELOPE.size and not payload[1] & (ONCE | SILENT)


def _properties(holding: RequestHolding, at: int) -> dict[str, str]:
    batch = holding.batch
    if batch.attributes is None:
        return {}
    try:
        return batch.attributes.of(batch.sequence + at).properties
    except RemoteProtocolError:
        return {}


def _token(holding: RequestHolding, at: int) -> bytes:
    """By which the requester's next exchange knows it."""
    properties, batch = _properties(holding, at), holding.batch
    name = named_by(properties) or Position(holding.offset, holding.first + at)
    maker = maker_of(properties, batch.publisher)
    return token_of(holding.log, name, maker, batch.payloads[at])


def _former_tokens(holding: RequestHolding, at: int) -> list[bytes]:
    """By which earlier exchanges have known it, the latest one first."""
    properties, batch = _properties(holding, at), holding.batch
    names = reversed(before_of(properties))
    maker = maker_of(properties, batch.publisher)
    return [token_of(*name, maker, batch.payloads[at]) for name in names]
