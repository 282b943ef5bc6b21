"""A policy that is never content: publishers are moved and striped all the time, at random."""

from __future__ import annotations

from random import Random
from typing import Final

from roq.policy.snapshot import Decision, Memory, Move, PublisherView, QueueView, Stripe

MOVES: Final = 0.5
"""How likely each publisher is moved in each period."""
STRIPES: Final = 0.3
"""How many of these moves go to two exchanges."""


class Restless:
    """See the module.

    Args:
        random: where chance comes from.
    """

    def __init__(self, random: Random) -> None:
        self._random = random

    def decide(self, view: QueueView, memory: Memory) -> tuple[list[Decision], Memory]:
        """Moves only."""
        targets = [each.number for each in view.exchanges if each.accepting]
        found: list[Decision] = []
        seen: set[bytes] = set()
        for exchange in view.exchanges:
            for publisher in exchange.top:
                if len(targets) < 2 or publisher.moving or publisher.id in seen:
                    continue
                seen.add(publisher.id)
                if self._random.random() < MOVES:
                    found.append(self._elsewhere(publisher, exchange.number, targets))
        return found, memory

    def _elsewhere(self, publisher: PublisherView, number: int, targets: list[int]) -> Decision:
        if self._random.random() < STRIPES:
            return Stripe(publisher.id, tuple(self._random.sample(targets, 2)), "restless")
        target = self._random.choice([each for each in targets if each != number])
        if publisher.exchanges == (number,):
            return Move(publisher.id, number, target, "restless")
        return Stripe(publisher.id, (target,), "restless")
