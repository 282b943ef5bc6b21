"""The policy "spread": the same number of publishers on each exchange, whatever they bring.

For queues whose publishers are alike or too short-lived to be measured. Only the rule "publishers
per exchange" makes the queue grow, and it shrinks when one exchange less would keep it with a fifth
to spare.
"""

from __future__ import annotations

from typing import Final

from roq.model import exchange_name
from roq.policy.growth import may_grow, may_scale, watch_exchanges
from roq.policy.memory import Marks
from roq.policy.snapshot import (
    Decision,
    ExchangeView,
    Grow,
    Memory,
    Move,
    PublisherView,
    QueueView,
    Shrink,
)

HITS: Final = 2
ROOM: Final = 0.80
SHRINK_SECONDS: Final = 5.0


class Spread:
    """Counts publishers, and nothing else."""

    def decide(self, view: QueueView, memory: Memory) -> tuple[list[Decision], Memory]:
        """Even the counts out once they have been uneven for two rounds in a row."""
        marks = Marks(memory, view.now)
        watch_exchanges(marks, view)
        accepting = [each for each in view.exchanges if each.accepting]
        moves = _even_out(accepting)
        decisions: list[Decision] = []
        if marks.hit("uneven", bool(moves)) >= HITS:
            decisions += moves
            marks.drop("uneven")
        limit = view.rules.queue_publishers_per_exchange
        total = sum(each.publishers for each in accepting)
        crowded = bool(limit) and total > limit * len(accepting)
        if marks.hit("crowded", crowded) >= HITS and may_grow(marks, view):
            decisions.append(Grow(f"{total} publishers are more than {limit} per exchange"))
        elif (spare := _spare(accepting, view, limit)) is not None:
            if marks.lasting("spare", True) >= SHRINK_SECONDS and may_scale(marks, view):
                decisions.append(
                    Shrink(spare.number, f"the others can take all {total} publishers")
                )
                marks.drop("spare")
        else:
            marks.drop("spare")
        return decisions, marks.memory()


def _even_out(accepting: list[ExchangeView]) -> list[Move]:
    """Moves from the fullest to the emptiest until they differ by one at most."""
    counts = {each.number: each.publishers for each in accepting}
    movable = {each.number: _movable(each) for each in accepting}
    moves: list[Move] = []
    while len(counts) > 1:
        source = min(counts, key=lambda number: (-counts[number], number))
        target = min(counts, key=lambda number: (counts[number], number))
        if counts[source] - counts[target] < 2 or not movable[source]:
            break
        publisher = movable[source].pop()
        reason = f"{exchange_name(source)} has {counts[source]} publishers"
        moves.append(Move(publisher.id, source, target, reason))
        counts[source] -= 1
        counts[target] += 1
    return moves


def _movable(exchange: ExchangeView) -> list[PublisherView]:
    alone = [each for each in exchange.top if each.exchanges == (exchange.number,)]
    return [each for each in alone if not each.moving]


def _spare(accepting: list[ExchangeView], view: QueueView, limit: int) -> ExchangeView | None:
    rest = len(accepting) - 1
    if not limit or rest < max(1, view.rules.exchanges_min):
        return None
    if sum(each.publishers for each in accepting) > ROOM * limit * rest:
        return None
    removable = [each for each in accepting if each.removable]
    return min(removable, key=lambda each: (each.publishers, -each.number), default=None)
