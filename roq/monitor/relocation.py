"""One publisher on its way from some exchanges to others."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from roq.model import ExchangeInfo, PublisherId
from roq.monitor.exchanges import Key


@dataclass(slots=True)
class Relocation:
    """What a publisher was told, and how often.

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
