"""Which messages of a lease are settled, and what the exchange knows of it."""

from __future__ import annotations

from roq.client.consume.holding import ACKED, RETURNED, Holding, Segment
from roq.model import LogId, PublisherId
from roq.protocol.consuming import Run
from roq.read.message import Batch


def holding(count: int = 5, first: int = 10) -> Holding:
    batch = Batch([b"x"] * count, "t", PublisherId(b"p" * 16), 0, 0, 1, None)
    return Holding(LogId(1, 1), 7, 3, first, 1, batch)


def test_a_message_is_settled_once() -> None:
    held = holding()
    assert held.settle(1, 1, ACKED) == 1
    assert held.settle(1, 1, RETURNED) == 0
    assert held.settle(0, 5, RETURNED) == 4
    assert (held.open, held.is_open(1)) == (0, False)
    assert held.take_acked() == [Run(7, 11, 1)]


def test_what_is_acknowledged_is_told_once_in_runs() -> None:
    held = holding()
    for index in (0, 1, 4):
        held.settle(index, 1, ACKED)
    assert held.take_acked() == [Run(7, 10, 2), Run(7, 14, 1)]
    assert held.take_acked() == []
    held.settle(0, 5, ACKED)
    assert held.take_acked() == [Run(7, 12, 2)]


def test_what_was_told_is_told_again_after_a_lost_connection() -> None:
    held = holding()
    held.settle(0, 2, ACKED)
    held.take_acked()
    held.untell()
    assert held.untold == 5
    assert held.take_acked() == [Run(7, 10, 2)]


def test_messages_may_be_held_by_several_leases_later() -> None:
    held = holding()
    assert held.leases_of(Run(7, 11, 2)) == [(3, 11, 2)]
    held.segments = [Segment(8, 10, 2), Segment(9, 13, 2)]
    assert held.leases_of(Run(7, 11, 3)) == [(8, 11, 1), (9, 13, 1)]
