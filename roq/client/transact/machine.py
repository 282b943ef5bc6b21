"""All that a producer of transactions decides about its exchanges. Pure.

    up --Enroll--> it may be asked there; its decisions go there, and again until they are answered

One Settle is under way to each exchange; what is decided meanwhile goes with the next one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from roq.client.io.queue_connections import AskExchange
from roq.errors import RemoteProtocolError
from roq.model import ExchangeInfo, LogId
from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.transaction import (
    CHECK,
    ENDS_MAX,
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
    decode_half,
    split_document,
)
from roq.timing import PRODUCER_ALIVE_SECONDS

ASK_SECONDS: Final = 3.0
"""What is not answered is said again after so long."""
LEFT_MAX: Final = 1_000
"""Logs of which it is remembered that they are gone."""
ENDS: Final = frozenset({Decision.COMMIT, Decision.ROLLBACK})
NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class EndTold:
    """It is known what has become of a transaction."""

    transaction: bytes
    fate: Fate


@dataclass(frozen=True, slots=True)
class Asked:
    """An exchange asks what has become of a transaction."""

    log: LogId
    head: CheckHead
    half: Half


@dataclass(slots=True)
class Keeper:
    """One exchange, as a producer knows it.

    Attributes:
        decided: what is to be told, and was not answered.
        question: number of the Settle that is under way; 0: none.
        said: what stands in it.
    """

    exchange: ExchangeInfo
    queue: bytes
    up: bool = False
    enroll_at: float = NEVER
    decided: dict[bytes, Decision] = field(default_factory=dict)
    question: int = 0
    said: list[tuple[bytes, Decision]] = field(default_factory=list)
    again_at: float = NEVER
    trouble: str = ""


class ProducerMachine:
    """One producer of a group, at all exchanges of a queue.

    Attributes:
        places: the exchanges.
    """

    def __init__(self, group: str, publisher: bytes) -> None:
        self.places: dict[LogId, Keeper] = {}
        self._group = group
        self._publisher = publisher
        self._questions = 0
        self._early: dict[LogId, dict[bytes, Decision]] = {}
        """Decided for exchanges of which the publisher was told before."""
        self._left: deque[LogId] = deque(maxlen=LEFT_MAX)

    def open(self, exchange: ExchangeInfo, queue: bytes) -> None:
        """The queue has this exchange, or has it at another address."""
        place = self.places.get(exchange.log)
        if place is None:
            decided = self._early.pop(exchange.log, {})
            self.places[exchange.log] = Keeper(exchange, queue, decided=decided)
        else:
            place.exchange = exchange

    def leave(self, log: LogId) -> list[EndTold]:
        """This exchange is gone with its log, and with what was to be told there."""
        self._left.append(log)
        place = self.places.pop(log, None)
        return [] if place is None else [EndTold(each, Fate.NOT_HERE) for each in place.decided]

    def up(self, log: LogId, now: float) -> list[AskExchange]:
        """The connection stands."""
        place = self.places.get(log)
        if place is None:
            return []
        place.up = True
        place.question = 0
        return [self._enroll(log, place, now), *self._say(log, place, now)]

    def down(self, log: LogId) -> None:
        """The connection has ended."""
        place = self.places.get(log)
        if place is not None:
            place.up = False
            place.question = 0
            place.enroll_at = place.again_at = NEVER

    def decide(
        self, log: LogId, transaction: bytes, decision: Decision, now: float
    ) -> tuple[list[AskExchange], list[EndTold]]:
        """This is to become of a transaction that the log has, unless it was decided before."""
        place = self.places.get(log)
        if place is None and log in self._left:
            return [], [EndTold(transaction, Fate.NOT_HERE)]
        decided = self._early.setdefault(log, {}) if place is None else place.decided
        if decided.get(transaction) not in ENDS:
            decided[transaction] = decision
        return [] if place is None else self._say(log, place, now), []

    def take(
        self, log: LogId, parts: list[bytes], now: float
    ) -> tuple[list[AskExchange], list[EndTold | Asked]]:
        """Something came from an exchange.

        Raises:
            RemoteProtocolError: it cannot be read.
        """
        place = self.places.get(log)
        if place is None:
            return [], []
        letter = parts[0]
        if letter == CHECK and len(parts) == 2:
            head, half = split_document(parts[1])
            return [], [Asked(log, documents.decode(head, CheckHead), decode_half(half))]
        if letter == SETTLE and len(parts) == 2:
            return self._settled(log, place, documents.decode(parts[1], Settled), now)
        if letter == ENROLL and len(parts) == 2:
            documents.decode(parts[1], Enrolled)
            place.enroll_at, place.trouble = now + PRODUCER_ALIVE_SECONDS, ""
            return [], []
        if letter == REFUSED:
            place.trouble = documents.decode(parts[-1], Refused).text
            return [], []
        raise RemoteProtocolError(f"no answer to a producer: {letter!r:.20}")

    def tick(self, now: float) -> list[AskExchange]:
        """Time has passed: call it about four times a second."""
        asks: list[AskExchange] = []
        for log, place in self.places.items():
            if place.up and now >= place.enroll_at:
                asks.append(self._enroll(log, place, now))
            if place.up and now >= place.again_at:
                # Under its number: the answer to what was said first counts, however late it is.
                say = self._say_again if place.question else self._say
                asks += say(log, place, now)
        return asks

    def farewells(self) -> list[AskExchange]:
        """What is said last to the exchanges."""
        said: list[AskExchange] = []
        for log, place in self.places.items():
            if place.up:
                leave = Enroll(id=0, queue=place.queue, group=self._group, leave=True)
                said.append(AskExchange(log, [ENROLL, documents.encode(leave)]))
        return said

    @property
    def trouble(self) -> str:
        """Which exchanges cannot be told, and why; empty: all can."""
        return "; ".join(
            f"{place.exchange.name}: {place.trouble or 'it is away'}"
            for place in list(self.places.values())
            if not place.up or place.trouble
        )

    def _enroll(self, log: LogId, place: Keeper, now: float) -> AskExchange:
        self._questions += 1
        place.enroll_at = now + ASK_SECONDS
        enroll = Enroll(
            id=self._questions, queue=place.queue, group=self._group, publisher=self._publisher
        )
        return AskExchange(log, [ENROLL, documents.encode(enroll)])

    def _say(self, log: LogId, place: Keeper, now: float) -> list[AskExchange]:
        """Everything that is decided, unless something is under way."""
        if not place.up or place.question or not place.decided:
            return []
        self._questions += 1
        place.question = self._questions
        place.said = list(place.decided.items())[:ENDS_MAX]
        return self._say_again(log, place, now)

    def _say_again(self, log: LogId, place: Keeper, now: float) -> list[AskExchange]:
        place.again_at = now + ASK_SECONDS
        settle = Settle(id=place.question, queue=place.queue, group=self._group, ends=place.said)
        return [AskExchange(log, [SETTLE, documents.encode(settle)])]

    def _settled(
        self, log: LogId, place: Keeper, answer: Settled, now: float
    ) -> tuple[list[AskExchange], list[EndTold | Asked]]:
        if answer.id != place.question:
            return [], []  # it was said twice, and is answered already
        if len(answer.fates) != len(place.said):
            raise RemoteProtocolError("an answer about other transactions")
        place.question, place.again_at, place.trouble = 0, NEVER, ""
        ended: list[EndTold | Asked] = []
        full = False
        for (transaction, decision), fate in zip(place.said, answer.fates, strict=True):
            if fate is Fate.FULL:
                full = True
            elif place.decided.get(transaction) is decision:
                del place.decided[transaction]
                if decision in ENDS:
                    ended.append(EndTold(transaction, fate))
        if full and not ended:
            place.trouble = "it has no room to keep the end of a transaction"
            place.again_at = now + ASK_SECONDS
            return [], []
        return self._say(log, place, now), ended
