"""Publishers on their way from one exchange to another, and what becomes of it.

    told --accepted--> it is there                     counted at the targets
    told --failed--> it stays, and rests               may be sent elsewhere afterwards
    told five times, no word --> given up, and rests   counted where it was

A publisher is told once more in each KPI period, with the same epoch. Each attempt has a higher
epoch than all before it, so an answer that comes late belongs to nothing and is ignored: where the
publisher really is it says in `Alive`. Whatever is under way is counted where it will be, at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from roq.model import ExchangeInfo, PublisherId
from roq.monitor.events import Effect, Push
from roq.monitor.exchanges import Exchange, Exchanges, Key
from roq.monitor.publishers import PublisherEpochs
from roq.monitor.sessions import Session, Sessions
from roq.monitor.statistics_events import StatisticsEvents
from roq.monitor.window import WINDOW_SECONDS
from roq.protocol.control import Passed, Relocate, Relocated
from roq.runtime.backoff import longest_wait

RELOCATE_TRIES: Final = 5
"""Periods in which a publisher is told before it is given up."""
UNDER_WAY_MAX: Final = 256
REMEMBERED_MAX: Final = 8_192
"""Publishers that rest, and moves whose load has not settled yet."""
FAILED_REST_SECONDS: Final = 2.0
"""Doubled with each further failure."""
REST_MAX_SECONDS: Final = 60.0
GIVEN_UP_REST_SECONDS: Final = 30.0
SETTLED_SECONDS: Final = WINDOW_SECONDS + 2.0
"""After so long a move is part of all rates."""
REASON_MAX: Final = 300
PAUSE_US_MAX: Final = 3_600_000_000


@dataclass(slots=True)
class Relocation:
    """One publisher on its way from some exchanges to others: what it was told, and how often.

    Attributes:
        publisher: who.
        epoch: under which it is to publish at the targets.
        sources: where it is now.
        targets: where it is to go; several: it is striped.
        infos: the targets as the publisher is told.
        load: payload bytes per minute that it brings.
        reason: a sentence for people.
        repeat_at: when it is told once more.
        told: how often it was.
        accepted_at: when it said that it has gone there; infinite before.
    """

    publisher: PublisherId
    epoch: int
    sources: tuple[Key, ...]
    targets: tuple[Key, ...]
    infos: list[ExchangeInfo] = field(repr=False)
    load: float
    reason: str
    repeat_at: float
    told: int = 1
    accepted_at: float = inf

    @property
    def left(self) -> list[Key]:
        """Where it publishes no more."""
        return [key for key in self.sources if key not in self.targets]

    def change_at(self, key: Key) -> float:
        """Bytes per minute by which the load of an exchange changes."""
        change = 0.0
        if key in self.targets:
            change += self.load / len(self.targets)
        if key in self.sources:
            change -= self.load / len(self.sources)
        return change


@dataclass(frozen=True, slots=True)
class _Rest:
    until: float
    failures: int


class Moves:
    """All relocations of one queue."""

    def __init__(
        self,
        queue_id: bytes,
        exchanges: Exchanges,
        sessions: Sessions,
        epochs: PublisherEpochs,
        news: StatisticsEvents,
        kpi_seconds: float,
    ) -> None:
        self._queue_id = queue_id
        self._exchanges = exchanges
        self._sessions = sessions
        self._epochs = epochs
        self._news = news
        self._kpi_seconds = kpi_seconds
        self.begun = 0
        """Since the start."""
        self._under_way: dict[bytes, Relocation] = {}
        self._settling: list[Relocation] = []
        self._resting: dict[bytes, _Rest] = {}
        self._by_exchange: dict[Key, list[Relocation]] = {}
        """Those under way and those that settle; empty when it has to be made anew."""

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._under_way)

    def room(self) -> int:
        """How many more may be begun."""
        return UNDER_WAY_MAX - len(self._under_way)

    def busy(self, publisher: bytes, now: float) -> bool:
        """Whether this publisher is on its way, or rests after a way that led nowhere."""
        rest = self._resting.get(publisher)
        return publisher in self._under_way or (rest is not None and now < rest.until)

    def shift(self, exchange: Exchange) -> float:
        """What moves will change of an exchange's mean, bytes per minute."""
        return sum(
            each.change_at(exchange.key) * exchange.window.mean_before(each.accepted_at)
            for each in self._concerning(exchange.key)
        )

    def shift_last(self, exchange: Exchange) -> float:
        """The same for the throughput of the last period."""
        return sum(
            each.change_at(exchange.key) * exchange.window.last_before(each.accepted_at)
            for each in self._concerning(exchange.key)
        )

    def newcomers(self, exchange: Exchange) -> dict[PublisherId, float]:
        """Who came by a move so short ago that no report tells all of what he brings.

        Returns:
            Publisher → bytes per minute that he brings here.
        """
        key = exchange.key
        return {
            each.publisher: each.load / len(each.targets)
            for each in self._concerning(key)
            if each.publisher not in self._under_way
            and key in each.targets
            and exchange.window.last_before(each.accepted_at) > 0
        }

    # --- the course of a move ---------------------------------------------------------------------

    def begin(
        self, session: Session, targets: Sequence[Exchange], load: float, reason: str, now: float
    ) -> list[Effect]:
        """Tell a publisher to go there; nothing if it is on its way already, or too many are.

        Args:
            session: of the publisher.
            targets: where to.
            load: bytes per minute that it brings.
            reason: a sentence for people.
            now: the present time.
        """
        if session.client in self._under_way or not self.room():
            return []
        relocation = Relocation(
            publisher=PublisherId(session.client),
            epoch=self._epochs.next(above=session.epoch),
            sources=session.exchanges,
            targets=tuple(each.key for each in targets),
            infos=[each.info for each in targets],
            load=load,
            reason=reason,
            repeat_at=now + self._kpi_seconds,
        )
        self._under_way[session.client] = relocation
        self.begun += 1
        self._by_exchange.clear()
        return [self._tell(session, relocation), *self._news.move(relocation, "started", reason)]

    def answered(self, message: Relocated, now: float) -> list[Effect]:
        """A publisher says what has become of it."""
        relocation = self._under_way.get(message.publisher)
        session = self._sessions.find(message.publisher)
        if relocation is None or session is None or relocation.epoch != message.epoch:
            return []
        if message.outcome == "accepted":
            pause_us = min(max(0, message.pause_us), PAUSE_US_MAX)
            return self._accepted(session, relocation, now, pause_us)
        if message.outcome == "failed":
            return self._failed(session, relocation, message, now)
        return []

    def seen(self, session: Session, epoch: int, now: float) -> list[Effect]:
        """A publisher publishes under this epoch: its word that it has moved may have been lost."""
        relocation = self._under_way.get(session.client)
        if relocation is None or epoch != relocation.epoch:
            return []
        return self._accepted(session, relocation, now, 0)

    def forget(self, publisher: bytes, reason: str) -> list[Effect]:
        """It has left, or was sent elsewhere under a higher epoch on its own demand."""
        relocation = self._drop(publisher)
        return self._news.move(relocation, "failed", reason) if relocation is not None else []

    def forget_all(self, reason: str) -> list[Effect]:
        """All of them."""
        return [each for one in list(self._under_way) for each in self.forget(one, reason)]

    def time_passed(self, now: float) -> list[Effect]:
        """Tell again, and give up."""
        effects: list[Effect] = []
        for relocation in [each for each in self._under_way.values() if now >= each.repeat_at]:
            session = self._sessions.find(relocation.publisher)
            if session is None:
                effects += self.forget(relocation.publisher, "the publisher has left")
            elif relocation.told >= RELOCATE_TRIES:
                effects += self._given_up(relocation, now)
            else:
                relocation.told += 1
                relocation.repeat_at = now + self._kpi_seconds
                effects.append(self._tell(session, relocation))
        return effects

    def tidy(self, now: float) -> None:
        """Forget what says nothing any more; once a period."""
        self._by_exchange.clear()
        self._settling = [
            each for each in self._settling if now < each.accepted_at + SETTLED_SECONDS
        ][-REMEMBERED_MAX:]
        self._resting = {
            publisher: rest
            for publisher, rest in self._resting.items()
            if now < rest.until + REST_MAX_SECONDS
        }

    def next_deadline(self) -> float | None:
        """When a publisher is to be told once more."""
        return min((each.repeat_at for each in self._under_way.values()), default=None)

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._under_way) <= UNDER_WAY_MAX  # noqa: S101
        assert len(self._resting) <= REMEMBERED_MAX  # noqa: S101
        for publisher, relocation in self._under_way.items():
            assert publisher == relocation.publisher  # noqa: S101
            assert relocation.targets  # noqa: S101
            assert relocation.told <= RELOCATE_TRIES  # noqa: S101

    def _concerning(self, key: Key) -> list[Relocation]:
        """The moves that change the load of an exchange."""
        if not self._by_exchange:
            for relocation in (*self._under_way.values(), *self._settling):
                for touched in {*relocation.sources, *relocation.targets}:
                    self._by_exchange.setdefault(touched, []).append(relocation)
        return self._by_exchange.get(key, [])

    def _drop(self, publisher: bytes) -> Relocation | None:
        """This one is not under way any more."""
        self._by_exchange.clear()
        return self._under_way.pop(publisher, None)

    def _tell(self, session: Session, relocation: Relocation) -> Push:
        message = Relocate(
            queue_id=self._queue_id,
            publisher=relocation.publisher,
            epoch=relocation.epoch,
            exchanges=relocation.infos,
        )
        return Push((session.peer,), message)

    def _accepted(
        self, session: Session, relocation: Relocation, now: float, pause_us: int
    ) -> list[Effect]:
        self._drop(relocation.publisher)
        relocation.accepted_at = now
        self._settling.append(relocation)
        self._resting.pop(relocation.publisher, None)
        self._sessions.place(session, relocation.targets, relocation.epoch)
        passed = Passed(
            queue_id=self._queue_id,
            publisher=relocation.publisher,
            epoch=relocation.epoch,
            addresses=[info.data for info in relocation.infos],
        )
        left = [self._exchanges.find(key) for key in relocation.left]
        peers = tuple(each.peer for each in left if each is not None and each.peer is not None)
        effects: list[Effect] = [Push(peers, passed)] if peers else []
        return effects + self._news.move(relocation, "accepted", relocation.reason, pause_us)

    def _failed(
        self, session: Session, relocation: Relocation, message: Relocated, now: float
    ) -> list[Effect]:
        self._drop(relocation.publisher)
        failed = {(number, epoch) for number, epoch in message.failed}
        targets = {key: self._exchanges.find(key) for key in relocation.targets}
        for key in failed & targets.keys():
            exchange = targets[key]
            if exchange is not None:
                exchange.doubted = True
        failures = self._failures(relocation.publisher) + 1
        rest = longest_wait(failures, FAILED_REST_SECONDS, REST_MAX_SECONDS)
        self._rest(relocation, now + rest, failures)
        reason = message.reason[:REASON_MAX] or "the publisher could not go there"
        effects = self._news.move(relocation, "failed", reason)
        left = [each for key, each in targets.items() if each is not None and key not in failed]
        if not 0 < len(left) < len(targets) or {each.key for each in left} == {*session.exchanges}:
            return effects
        # A stripe does without those that could not be reached.
        return effects + self.begin(session, left, relocation.load, relocation.reason, now)

    def _given_up(self, relocation: Relocation, now: float) -> list[Effect]:
        self._drop(relocation.publisher)
        failures = self._failures(relocation.publisher) + 1
        self._rest(relocation, now + GIVEN_UP_REST_SECONDS, failures)
        reason = f"the publisher was told {RELOCATE_TRIES} times and has said nothing"
        return self._news.move(relocation, "given_up", reason)

    def _failures(self, publisher: bytes) -> int:
        rest = self._resting.get(publisher)
        return rest.failures if rest is not None else 0

    def _rest(self, relocation: Relocation, until: float, failures: int) -> None:
        self._resting.pop(relocation.publisher, None)
        self._resting[relocation.publisher] = _Rest(until, failures)
        if len(self._resting) > REMEMBERED_MAX:
            del self._resting[next(iter(self._resting))]
