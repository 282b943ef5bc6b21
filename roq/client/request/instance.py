"""What an instance of a service decides beyond a member of any group: when it begins, what it
answers. Pure.

What it answers travels in the place of an acknowledgement, and is told again until it is confirmed
or the lease is over, as acknowledgements are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from math import inf
from typing import Final

from roq.client.consume.holding import LOST, Holding
from roq.client.consume.machine import ConsumerMachine
from roq.client.consume.seat import IN, Membership, Prefetch, Return, Seat, SeatPhase, Told
from roq.client.io.queue_connections import AskExchange
from roq.client.request.orphaned_answers import OrphanedAnswers
from roq.client.request.request_holding import (
    RUNS,
    SAID,
    HeldBegun,
    RequestHolding,
    alike,
    begun_of,
    portions,
)
from roq.model import LogId
from roq.protocol import requesting
from roq.protocol.consuming import (
    ANSWERS_MAX,
    BEGUN_MAX,
    DONE_BYTES,
    SETTLED_BYTES,
    SETTLED_MAX,
    Credit,
    Done,
    DoneConfirmed,
    Joined,
    Run,
)
from roq.protocol.orphaned_answers import ORPHANED, AnswersTaken
from roq.protocol.requesting import (
    FIGURES,
    INSTANCE_ORDER,
    REVOKED,
    Answer,
    Figures,
    InstanceOrder,
    Revoked,
)

ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Answers that travel in one message, unless one alone has more."""
FIGURES_SECONDS_MAX: Final = 1.25
"""An exchange is told how the instance is after so long, though it was not heard."""


class InstanceMachine(ConsumerMachine):
    """One instance at all exchanges of its queue.

    With `prefetch_quick` it takes at all exchanges together what can begin at once (`prefetch`),
    wherever that is, and each exchange may have its part of it in any case; more only while it is
    quick. When it has given back what did not begin, it takes nothing before a thread was free, and
    from then on never more than it is quick enough for.

    Args:
        member: who it is.
        used: gives how many requests wait for handlers, or have a thread, lost or not.
        moves: changes whenever a thread of the handlers was free.
        at_once: so many requests can begin at once; 0: as `prefetch` says.

    Attributes:
        ahead: how many it may say to be begun, and not begin again, by how quick it is.
        started: what is begun, as exchanges have confirmed since the shell has looked: which of a
            holding.
        orders: what an operator wants, as of `InstanceOrder`, since then.
        orphaned: answers to requests whose exchange is gone.
    """

    holding_type = RequestHolding

    def __init__(
        self,
        member: Membership,
        used: Callable[[], int] = lambda: 0,
        moves: Callable[[], int] = lambda: 0,
        at_once: int = 0,
    ) -> None:
        super().__init__(member)
        self.ahead = self.prefetch
        if not member.prefetch_quick:
            self.ahead = Prefetch(at_once or member.prefetch, member.prefetch)
        self._used = used
        self._moves = moves
        self._rests_at = -1
        """What `moves` was when it has given something back that waited; -1: it never has."""
        self._credits: dict[LogId, Credit] = {}
        """What each exchange was told last."""
        self.started: list[tuple[RequestHolding, range]] = []
        self.orders: list[str] = []
        self.orphaned = OrphanedAnswers()
        self._figures = b""
        """How this instance is,"""
        self._untold: set[LogId] = set()
        """which exchanges do not know that yet,"""
        self._figures_at: dict[LogId, float] = {}
        """and when they were told last how it was."""
        self._starting: dict[LogId, list[tuple[int, RequestHolding, range]]] = {}
        """By exchange: serial of what it was told, and what it is to confirm."""

    def tell(
        self, holdings: Iterable[Holding], returned: list[Return], now: float
    ) -> list[AskExchange]:
        """As of any member; answers go in messages that their exchange takes."""
        asks = self._rejoin(now)
        ended: dict[LogId, list[RequestHolding]] = {}
        for holding in holdings:
            holding.dirty = False
            if isinstance(holding, RequestHolding) and not holding.lost:
                ended.setdefault(holding.log, []).append(holding)
        for log, some in ended.items():
            seat = self._seats.get(log)
            if seat is not None and seat.phase is SeatPhase.IN:
                asks += self._answer(log, seat, some, now)
        asks += super().tell([], returned, now)
        if self.ahead is not self.prefetch:
            self.ahead.look(self.stats.acknowledged, now)
        return asks

    def tick(self, now: float) -> list[AskExchange]:
        """As of any member; what it takes may be something else now."""
        asks = super().tick(now)
        if self.ahead is not self.prefetch:
            self.ahead.idle(now)
        for log, seat in self._seats.items():
            told = self._credits.get(log)
            if seat.phase is SeatPhase.IN and self._granted(seat) != told:
                asks.append(self._credit(log, seat, now))
        for log in list(self._untold):
            if now - self._figures_at.get(log, -inf) >= FIGURES_SECONDS_MAX:
                asks += self._tell_figures(log, now)
        return asks

    def heard(self, log: LogId, now: float) -> list[AskExchange]:
        """As of any member; and how this instance is."""
        return [*super().heard(log, now), *self._tell_figures(log, now)]

    def leave(self, log: LogId) -> None:
        """As of any member; what runs runs on, and the answers are offered elsewhere."""
        seat = self._seats.get(log)
        held = [] if seat is None else list(seat.holdings.values())
        for holding in held:
            if isinstance(holding, RequestHolding):
                self.resolved += self.orphaned.lose(holding)
        super().leave(log)
        for holding in held:
            holding.lost = True
        self._credits.pop(log, None)
        self._figures_at.pop(log, None)
        self._untold.discard(log)

    @property
    def starting(self) -> int:
        """Requests said to be begun, where that may be confirmed soon, or has just been."""
        told = (
            (holding, run)
            for log, some in self._starting.items()
            if self._seats[log].phase is SeatPhase.IN
            for _, holding, run in some
        )
        every = chain(told, self.started)
        return sum(
            len(run) - holding.states.count(LOST, run.start, run.stop) for holding, run in every
        )

    def offer(self, now: float) -> list[AskExchange]:
        """Offer answers whose exchange is gone, as far as it is time."""
        return self.orphaned.offers(self._seats.values(), now)

    def rest(self) -> None:
        """Something is about to be given back: take nothing before a thread was free."""
        self._rests_at = self._moves()

    def _answer(
        self, log: LogId, seat: Seat, holdings: list[RequestHolding], now: float
    ) -> list[AskExchange]:
        asks: list[AskExchange] = []
        answers: list[Answer] = []
        told: list[Told] = []
        size, count, room = 0, 0, seat.frame_bytes - DONE_BYTES
        most = min(room, ANSWER_BYTES)

        def send() -> None:
            nonlocal size, count
            asks.extend(self._send(log, seat, Done(0, answers=list(answers)), list(told), now))
            answers.clear()
            told.clear()
            size = count = 0

        for holding in holdings:
            for run in holding.take_acked():
                self.stats.acknowledged += run.length
                self._told(seat, holding, run.length)
                for lease, first, length in holding.leases_of(run):
                    begin = index = first
                    stop = first + length
                    while index < stop:
                        result, more, bytes_ = alike(holding.answers, index, stop, room)
                        full = len(answers) >= ANSWERS_MAX or count + len(more) >= SETTLED_MAX
                        if answers and (full or size + bytes_ > most):
                            if index > begin:
                                told.append((holding, [Run(run.offset, begin, index - begin)], 0))
                            send()
                            begin = index
                        answers.append(Answer(
                            lease, index, result.state, result.value, result.text, result.silent,
                            more,
                        ))  # fmt: skip
                        size += bytes_
                        count += 1 + len(more)
                        index += 1 + len(more)
                    told.append((holding, [Run(run.offset, begin, stop - begin)], 0))
        if answers:
            send()
        return asks

    def begin(self, holdings: Iterable[RequestHolding], most: int, now: float) -> list[AskExchange]:
        """Tell exchanges that of these so many at most are about to begin, and must not be begun
        again; they come out of `started` when that is kept."""
        asks: list[AskExchange] = []
        for log, seat, some in self._by_seat(holdings):
            begun: list[HeldBegun] = []
            starting: list[tuple[RequestHolding, range]] = []
            for holding in some:
                run, runs = holding.next_unbegun(most)
                if run:
                    starting.append((holding, run))
                    holding.begun = run.stop
                    for first, count in runs:
                        most -= count
                        begun += zip(repeat(holding), begun_of(holding, first, count, once=True))
            if begun:
                asks += self._say(log, seat, begun, now)
                self._starting.setdefault(log, []).extend((seat.serial, *each) for each in starting)
        return asks

    def say_running(self, holdings: Iterable[RequestHolding], now: float) -> list[AskExchange]:
        """Tell exchanges which of these run, as far as they do not know it."""
        asks: list[AskExchange] = []
        for log, seat, some in self._by_seat(holdings):
            begun: list[HeldBegun] = []
            for holding in some:
                for index, count in holding.open_at(RUNS):
                    holding.stages[index : index + count] = bytes((SAID,)) * count
                    begun += zip(repeat(holding), begun_of(holding, index, count))
            if begun:
                asks += self._say(log, seat, begun, now)
        return asks

    def _by_seat(
        self, holdings: Iterable[RequestHolding]
    ) -> list[tuple[LogId, Seat, list[RequestHolding]]]:
        """These, where something can be said of them now."""
        by_log: dict[LogId, list[RequestHolding]] = {}
        for holding in holdings:
            if not holding.lost:
                by_log.setdefault(holding.log, []).append(holding)
        return [
            (log, seat, some)
            for log, some in by_log.items()
            if (seat := self._seats.get(log)) is not None and seat.phase is SeatPhase.IN
        ]

    def _say(self, log: LogId, seat: Seat, begun: list[HeldBegun], now: float) -> list[AskExchange]:
        """In messages that the exchange takes."""
        most = max(1, min(BEGUN_MAX, (seat.frame_bytes - DONE_BYTES) // SETTLED_BYTES))
        asks: list[AskExchange] = []
        for some in portions(begun, most):
            told: list[Told] = [(holding, [], 0) for holding in dict.fromkeys(h for h, _ in some)]
            done = Done(0, [], [], [], None, [], [each for _, each in some])
            asks += self._send(log, seat, done, told, now)
        return asks

    def figures(self, figures: Figures, now: float, *, soon: bool) -> list[AskExchange]:
        """How this instance is: exchanges are told when they are heard next, so that a hundred
        instances without work do not wake each of them a hundred times a second.

        Args:
            soon: they are told now.
        """
        self._figures = requesting.encode(figures)
        self._untold = set(self._seats)
        return [ask for log in self._seats if soon for ask in self._tell_figures(log, now)]

    def _resume(self, log: LogId, seat: Seat, joined: Joined, now: float) -> list[AskExchange]:
        self.orphaned.settings = joined.settings.service or self.orphaned.settings
        if self._figures:
            self._untold.add(log)  # it has forgotten them
        return super()._resume(log, seat, joined, now) + self._tell_figures(log, now)

    def _tell_figures(self, log: LogId, now: float) -> list[AskExchange]:
        if log not in self._untold or self._seats[log].phase is not IN:
            return []
        self._untold.discard(log)
        self._figures_at[log] = now
        return [AskExchange(log, [FIGURES, self._figures])]

    def take(self, log: LogId, parts: list[bytes], now: float) -> list[AskExchange]:
        """Something came from an exchange."""
        if parts[0] == INSTANCE_ORDER:
            self.orders.append(requesting.decode(parts[1], InstanceOrder).order)
            return []
        if parts[0] == ORPHANED:
            self.orphaned.told(requesting.decode(parts[1], AnswersTaken))
            return []
        if parts[0] != REVOKED:
            return super().take(log, parts, now)
        seat = self._seats.get(log)
        if seat is not None:
            for lease, index in requesting.decode(parts[1], Revoked).requests:
                holding = _holding_of(seat, lease)
                if holding is not None and 0 <= index - holding.first < len(holding.batch):
                    self._lose(seat, holding, [index])
        return []

    def _granted(self, seat: Seat) -> Credit:
        granted = super()._granted(seat)
        room = granted.messages - seat.arrived
        rests = self._rests_at
        if rests == self._moves():
            room = 0
        elif (self._member.prefetch_quick or rests >= 0) and not self._waits(seat):
            held = sum(each.open for each in self._seats.values())
            # A request that was taken away while it ran has its thread as before.
            cap = self.ahead.messages - max(0, self._used() - held)
            room = max(0, -(-cap // len(self._seats)) - seat.open, cap - held)
        # Whatever there is room for is taken, be it the part of a batch.
        credit = Credit(seat.arrived + room, granted.bytes, 1)
        self._credits[seat.exchange.log] = credit
        return credit

    def _confirmed(self, seat: Seat, confirmed: DoneConfirmed) -> None:
        super()._confirmed(seat, confirmed)
        starting = self._starting.get(seat.exchange.log, [])
        while starting and starting[0][0] <= confirmed.serial:
            _, holding, run = starting.pop(0)
            holding.started = run.stop
            if not holding.lost:
                self.started.append((holding, run))

    def _forget_told(self, seat: Seat) -> None:
        """What was begun and not confirmed is begun anew, if it is still held."""
        super()._forget_told(seat)
        for _, holding, _ in self._starting.pop(seat.exchange.log, []):
            holding.begun = holding.started


def _holding_of(seat: Seat, lease: int) -> Holding | None:
    found = seat.holdings.get(lease)
    if found is not None:
        return found
    return next(
        (
            holding
            for holding in seat.holdings.values()
            if any(each.lease == lease for each in holding.segments)
        ),
        None,
    )
