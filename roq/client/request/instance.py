"""What an instance of a service decides beyond a member of any group: when it begins, what it
answers. Pure.

What it answers travels in the place of an acknowledgement, and is told again until it is confirmed
or the lease is over, as acknowledgements are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from roq.client.consume.holding import Holding
from roq.client.consume.machine import ConsumerMachine
from roq.client.consume.seat import AskExchange, Membership, Return, Seat, SeatPhase, Told
from roq.client.subscribe.message import Batch
from roq.model import LogId
from roq.protocol import requesting
from roq.protocol.consuming import DONE_BYTES, Credit, Done, DoneConfirmed, Run
from roq.protocol.requesting import (
    FIGURES,
    INSTANCE_ORDER,
    REVOKED,
    Answer,
    Begun,
    Figures,
    InstanceOrder,
    RequestState,
    Revoked,
)

ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Answers that travel in one message, unless one alone has more."""
ANSWER_OVERHEAD_BYTES: Final = 64
"""For what an answer has beside its value and its text."""
ALIKE_BYTES: Final = 64 * 1024
"""Values that are told, and kept, together: what is not fetched keeps the others."""


class HandlerResult(msgspec.Struct, frozen=True, gc=False):
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
        orders: what an operator wants, as of `InstanceOrder`, since then.
    """

    holding_type = RequestHolding

    def __init__(self, member: Membership) -> None:
        super().__init__(member)
        self.started: list[RequestHolding] = []
        self.orders: list[str] = []
        self._starting: dict[LogId, list[tuple[int, RequestHolding]]] = {}
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
        return asks + super().tell([], returned, now)

    def _answer(
        self, log: LogId, seat: Seat, holdings: list[RequestHolding], now: float
    ) -> list[AskExchange]:
        asks: list[AskExchange] = []
        answers: list[Answer] = []
        told: list[Told] = []
        size, room = 0, seat.frame_bytes - DONE_BYTES
        most = min(room, ANSWER_BYTES)

        def send() -> None:
            nonlocal size
            asks.extend(self._send(log, seat, Done(0, answers=list(answers)), list(told), now))
            answers.clear()
            told.clear()
            size = 0

        for holding in holdings:
            for run in holding.take_acked():
                self.stats.acknowledged += run.length
                self._told(seat, holding, run.length)
                for lease, first, length in holding.leases_of(run):
                    begin = index = first
                    stop = first + length
                    while index < stop:
                        result, more, bytes_ = _alike(holding.answers, index, stop, room)
                        if answers and size + bytes_ > most:
                            if index > begin:
                                told.append((holding, [Run(run.offset, begin, index - begin)], 0))
                            send()
                            begin = index
                        answers.append(Answer(
                            lease, index, result.state, result.value, result.text, result.silent,
                            more,
                        ))  # fmt: skip
                        size += bytes_
                        index += 1 + len(more)
                    told.append((holding, [Run(run.offset, begin, stop - begin)], 0))
        if answers:
            send()
        return asks

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
        if parts[0] == INSTANCE_ORDER:
            self.orders.append(requesting.decode(parts[1], InstanceOrder).order)
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
        # Whatever there is room for is taken, be it the part of a batch.
        return msgspec.structs.replace(super()._granted(seat), window=1)

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


def _alike(
    answers: Mapping[int, HandlerResult], first: int, stop: int, most: int
) -> tuple[HandlerResult, list[bytes], int]:
    """How a request has ended, the values of those behind it that have ended alike, and what all
    of them take in a message that has room for so many bytes."""
    result, size = _fitting(answers[first], most)
    more: list[bytes] = []
    state, silent, room = result.state, result.silent, min(most, ALIKE_BYTES) - size
    if result.text:
        return result, more, size
    for index in range(first + 1, stop):
        other = answers[index]
        room -= ANSWER_OVERHEAD_BYTES + len(other.value)
        if room < 0 or other.state is not state or other.silent is not silent or other.text:
            break
        more.append(other.value)
        size += ANSWER_OVERHEAD_BYTES + len(other.value)
    return result, more, size


def _fitting(result: HandlerResult, most: int) -> tuple[HandlerResult, int]:
    """A result as far as one message of so many bytes has room for it, and what it takes there."""
    text = result.text.encode() if result.text else b""
    size = ANSWER_OVERHEAD_BYTES + len(result.value) + len(text)
    if size <= most:
        return result, size
    if result.value:
        told = (
            f"its response has {len(result.value)} bytes, and an answer to this exchange of its "
            f"queue has at most {most}"
        )
        failed = HandlerResult(RequestState.FAILED, text=told, silent=result.silent)
        return failed, ANSWER_OVERHEAD_BYTES + len(told)
    cut = text[: most - ANSWER_OVERHEAD_BYTES].decode(errors="ignore")
    return msgspec.structs.replace(result, text=cut), most


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
