"""What shall happen, and when: drawn from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

TWO_FAULTS: Final = 0.3
"""Share of the steps in which two things happen at once."""
CHANGES: Final = 0.3
"""Share of the steps in which a program creates a queue meanwhile."""
CALM_SECONDS: Final = (0.3, 1.5)
APART_SECONDS: Final = (0.0, 1.5)
"""Between the beginnings of two faults of one step."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of fault."""

    name: str
    weight: float = 1.0
    """How often it is drawn, compared with others."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """How long it lasts, between these two; then it is healed."""
    alone: bool = False
    """Never at the same time as another one: together they may do more than is promised."""


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """One fault."""

    kind: str
    after: float
    """Seconds from the beginning of the step."""
    seconds: float
    """How long it lasts."""
    dice: float
    """Which of those that are there it hits, 0 to 1."""
    strength: float
    """How bad it is, 0 to 1."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What happens between two moments at which everything has to be well."""

    number: int
    calm: float
    """Seconds before it."""
    draws: tuple[Draw, ...]
    change_after: float | None
    """A queue is created so long after the beginning; None: not in this step."""


def plan(seed: int, kinds: Sequence[Kind], more: int = 0) -> Iterator[Step]:
    """The steps of a seed, without end.

    Args:
        more: so many faults come on top in each step, one after the other.

    Each kind comes once, in some order, before any comes again by its weight: a short run shows as
    many as it can.
    """
    chance = random.Random(seed)
    first, beside = list(kinds), [kind for kind in kinds if not kind.alone]
    chance.shuffle(first)
    number = 0
    while True:
        number += 1
        drawn = [first.pop() if first else _weighted(chance, kinds)]
        others = [kind for kind in kinds if kind is not drawn[0] and not kind.alone]
        if chance.random() < TWO_FAULTS and others and not drawn[0].alone:
            drawn.append(_weighted(chance, others))
        for _ in range(0 if drawn[0].alone else more):
            fresh = [kind for kind in first if not kind.alone]
            drawn.append(fresh[-1] if fresh else _weighted(chance, beside))
            first = [kind for kind in first if kind is not drawn[-1]]
        change = chance.uniform(*APART_SECONDS) if chance.random() < CHANGES else None
        yield Step(
            number=number,
            calm=chance.uniform(*CALM_SECONDS),
            draws=tuple(_draw(chance, kind, late) for late, kind in enumerate(drawn)),
            change_after=None if change is None else round(change, 2),
        )


def chosen(kinds: Mapping[str, Kind], only: Sequence[str]) -> list[Kind]:
    """Kinds by the beginnings of their names; all if none is given.

    Raises:
        KeyError: there is none of that name.
    """
    for start in only:
        if not any(name.startswith(start) for name in kinds):
            raise KeyError(start)
    return [kind for name, kind in kinds.items() if not only or name.startswith(tuple(only))]


def _weighted(chance: random.Random, kinds: Sequence[Kind]) -> Kind:
    return chance.choices(kinds, [kind.weight for kind in kinds])[0]


def _draw(chance: random.Random, kind: Kind, late: int) -> Draw:
    # The same numbers are drawn for every kind, so that a plan changes little when a kind does.
    after, seconds = chance.uniform(*APART_SECONDS), chance.uniform(*kind.seconds)
    return Draw(
        kind=kind.name,
        after=round(late * after, 2),
        seconds=round(seconds, 2),
        dice=round(chance.random(), 4),
        strength=round(chance.random(), 3),
    )
