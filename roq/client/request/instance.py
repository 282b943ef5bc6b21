"""What an instance of a service decides beyond a member of any group: when it begins, what it
answers. Pure.

What it answers travels in the place of an acknowledgement, and is told again until it is confirmed
or the lease is over, as acknowledgements are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from roq.client.consume.holding import Holding
from roq.client.consume.machine import (
    AskExchange,
    ConsumerMachine,
    Membership,
    Seat,
    SeatPhase,
    Told,
)
from roq.client.subscribe.message import Batch
from roq.model import LogId
from roq.protocol import requesting
from roq.protocol.consuming import Credit, Done, DoneConfirmed
from roq.protocol.requesting import (
    FIGURES,
    REVOKED,
    Answer,
    Begun,
    Figures,
    RequestState,
    Revoked,
)

ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Answers that travel in one message, at most."""


class HandlerResult(NamedTuple):
    """What has become of a request."""

    state: RequestState
    value: bytes = b""
    text: str = ""
    silent: bool = False


class RequestHolding(Holding):
    """Requests of one batch that were leased together.

    Attributes:
        answers: by index in the batch, of those that have ended.
        begun: the exchange was told that they are begun.
    """

    __slots__ = ("answers", "begun")

    def __init__(
        self, log: LogId, offset: int, lease: int, first: int, attempt: int, batch: Batch
    ) -> None:
        super().__init__(log, offset, lease, first, attempt, batch)
        self.answers: dict[int, HandlerResult] = {}
        self.begun = False


class InstanceMachine(ConsumerMachine):
    """One instance at all exchanges of its queue.

    Attributes:
        started: holdings that are begun, as their exchanges have confirmed since the shell has
            looked.
    """

    holding_type = RequestHolding

    def __init__(self, member: Membership) -> None:
        super().__init__(member)
        self.started: list[RequestHolding] = []
        self._starting: dict[LogId, list[tuple[int, RequestHolding]]] = {}
        """By exchange: serial of what it was told, and what it is to confirm."""

    def begin(
        self, holdings: Iterable[tuple[RequestHolding, bool]], now: float
    ) -> list[AskExchange]:
        """Tell exchanges that these are begun.

        Args:
            holdings: each with whether it must not be begun again; then it comes out of `started`
                when that is kept.
        """
        asks: list[AskExchange] = []
        by_log: dict[LogId, list[tuple[RequestHolding, bool]]] = {}
        for holding, once in holdings:
            if not holding.begun and not holding.lost:
                by_log.setdefault(holding.log, []).append((holding, once))
        for log, some in by_log.items():
            seat = self._seats.get(log)
            if seat is None or seat.phase is not SeatPhase.IN:
                continue
            begun = [
                Begun(each.lease, each.first, each.length, once)
                for holding, once in some
                for each in holding.segments
            ]
            for holding, _ in some:
                holding.begun = True
            told: list[Told] = [(holding, [], 0) for holding, _ in some]
            asks += self._send(log, seat, Done(0, [], [], [], None, [], begun), told, now)
            self._starting.setdefault(log, []).extend(
                (seat.serial, holding) for holding, once in some if once
            )
        return asks

    def figures(self, figures: Figures) -> list[AskExchange]:
        """Tell all exchanges how this instance is."""
        told = requesting.encode(figures)
        return [
            AskExchange(log, [FIGURES, told])
            for log, seat in self._seats.items()
            if seat.phase is SeatPhase.IN
        ]

    def take(self, log: LogId, parts: list[bytes], now: float) -> list[AskExchange]:
        """Something came from an exchange."""
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
        # Whatever there is room for is taken, be it the part of a batch.
        return msgspec.structs.replace(super()._granted(seat), window=1)

    def _collect(
        self,
        holding: Holding,
        by_seat: dict[LogId, Done],
        told: dict[LogId, list[Told]],
    ) -> None:
        seat = self._seats.get(holding.log)
        holding.dirty = False
        if seat is None or holding.lost or seat.phase is not SeatPhase.IN:
            return
        runs = holding.take_acked()
        if not runs or not isinstance(holding, RequestHolding):
            return
        done = by_seat.setdefault(holding.log, Done(0, [], [], [], None, [], []))
        for run in runs:
            for lease, first, length in holding.leases_of(run):
                for index in range(first, first + length):
                    done.answers.append(Answer(lease, index, *holding.answers[index]))
        count = sum(run.length for run in runs)
        self._told(seat, holding, count)
        told.setdefault(holding.log, []).append((holding, runs, 0))
        self.stats.acknowledged += count

    def _confirmed(self, seat: Seat, confirmed: DoneConfirmed) -> None:
        super()._confirmed(seat, confirmed)
        starting = self._starting.get(seat.exchange.log, [])
        while starting and starting[0][0] <= confirmed.serial:
            _, holding = starting.pop(0)
            if not holding.lost:
                self.started.append(holding)

    def _forget_told(self, seat: Seat) -> None:
        """What was begun and not confirmed is begun anew, if it is still held."""
        super()._forget_told(seat)
        for _, holding in self._starting.pop(seat.exchange.log, []):
            holding.begun = False


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
