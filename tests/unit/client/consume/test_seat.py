"""A seat begins with nothing."""

from __future__ import annotations

from roq.client.consume.seat import Seat, SeatPhase
from roq.model import ExchangeInfo


def test_seats_share_nothing() -> None:
    info = ExchangeInfo(number=1, epoch=1, generation=1, host="h", data="d", live="l")
    one, other = Seat(info, b"q"), Seat(info, b"q")
    one.holdings[1] = None  # type: ignore[assignment]
    one.returns.append(None)  # type: ignore[arg-type]
    assert (other.holdings, other.returns, other.phase) == ({}, [], SeatPhase.AWAY)
    assert one.extensions is not other.extensions
