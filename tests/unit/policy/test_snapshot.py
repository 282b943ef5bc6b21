"""What a policy is shown: plain data that can be compared, copied and sent."""

from __future__ import annotations

import msgspec

from roq.model import ElasticRules
from roq.policy.snapshot import ExchangeView, Memory, QueueView


def view(serving: int, missing: int) -> QueueView:
    exchanges = tuple(ExchangeView(number, "h1", 60.0, 60.0, 1) for number in range(1, serving + 1))
    return QueueView(0.0, 600.0, ElasticRules(), exchanges, missing=missing)


def test_an_exchange_that_failed_counts_for_how_many_there_are() -> None:
    assert view(serving=2, missing=0).size == 2
    assert view(serving=2, missing=3).size == 5


def test_a_view_is_the_same_on_the_other_side_of_a_wire() -> None:
    shown = view(serving=2, missing=1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(shown), type=QueueView) == shown


def test_one_memory_does_not_show_in_another() -> None:
    assert Memory({"grown": 1.0}) != Memory()
    assert Memory().marks == {}
