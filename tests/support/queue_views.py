"""Views of queues in few words: loads as a part of the limit, publishers by their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queue_model import LIMIT, publisher

from roq.model import ElasticRules
from roq.policy.snapshot import ExchangeView, PublisherView, QueueView


def at(
    number: int,
    *publishers: tuple[int, float],
    others: float = 0.0,
    striped: dict[int, tuple[int, ...]] | None = None,
    moving: Sequence[int] = (),
    **fields: Any,
) -> ExchangeView:
    """An exchange with (number, rate) of its publishers.

    Args:
        number: of the exchange.
        publishers: rates as a part of the limit, for a striped one its share here.
        others: load of publishers that no report lists.
        striped: publisher → all of its exchanges.
        moving: publishers on their way.
        fields: of the ExchangeView; throughput and mean as a part of the limit.
    """
    top = tuple(
        PublisherView(
            publisher(name), rate * LIMIT, (striped or {}).get(name, (number,)), name in moving
        )
        for name, rate in sorted(publishers, key=lambda each: (-each[1], each[0]))
    )
    load = fields.pop("throughput", sum(rate for _, rate in publishers) + others)
    given = {"host": f"h{number}", "publishers": len(top), "age": 100.0, **fields}
    mean = given.pop("mean", load)
    return ExchangeView(number=number, throughput=load * LIMIT, mean=mean * LIMIT, top=top, **given)


def queue(*exchanges: ExchangeView, rules: ElasticRules | None = None, **fields: Any) -> QueueView:
    """A queue of these exchanges, at second 1,000 unless `now` says otherwise."""
    given = {"now": 1000.0, "limit": LIMIT, "rules": rules or ElasticRules(), **fields}
    return QueueView(exchanges=exchanges, **given)
