"""Which messages a member gives back because one before them has failed. Pure.

In an exclusive group everything of an exchange has one order, in a keyed one everything of a key
group. When a message is to be tried again, nothing behind it is begun before it comes again: what
the member has got already, and what is on its way until the exchange has heard of it, goes back. It
was not tried, and comes behind the one that failed. For that all of it is back before the exchange
sends anything: the member grants it nothing meanwhile (`ConsumerMachine`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from roq.client.consume.holding import GIVEN, OPEN, RETURNED, Holding

ORDERED: Final = frozenset({"exclusive", "keyed"})
"""Modes in which nothing goes on before a message that has failed."""
_Place = tuple[int, int]


class Ordering:
    """The failures of one member that its exchanges may not have heard of."""

    def __init__(self) -> None:
        self._failures: list[tuple[Holding, int]] = []

    def failed(
        self, holding: Holding, indexes: Sequence[int], waiting: Iterable[Holding]
    ) -> list[tuple[Holding, int]]:
        """These messages are to be tried again; gives those that have to go back for that.

        Args:
            waiting: what was not begun, or only in part.
        """
        lowest: dict[int, _Place] = {}
        for index in reversed(indexes):
            lane = _lane(holding, index)
            if lane is not None:
                lowest[lane] = holding.offset, holding.first + index
        self._failures += [(holding, place[1] - holding.first) for place in lowest.values()]
        return [
            (each, index)
            for each in waiting
            if each.log == holding.log
            for lane, place in lowest.items()
            for index in _behind(each, lane, place)
        ]

    def arrived(self, holding: Holding) -> list[int]:
        """Which messages of one that has come have to go back."""
        self._failures = [each for each in self._failures if _unheard(*each)]
        return [
            index
            for failure, failed in self._failures
            if failure.log == holding.log and (lane := _lane(failure, failed)) is not None
            for index in _behind(holding, lane, (failure.offset, failure.first + failed))
        ]


def _unheard(holding: Holding, index: int) -> bool:
    """Whether the exchange may not know yet that this is returned."""
    state = holding.states[index]
    return state == RETURNED or (state == GIVEN and holding.unconfirmed > 0)


def _lane(holding: Holding, index: int) -> int | None:
    """In which order a message stands; None: it has no key, so in none."""
    if holding.lanes is None:
        return 0
    return holding.lanes[index] or None


def _behind(holding: Holding, lane: int, place: _Place) -> Iterator[int]:
    """The messages of a holding that are behind a place of this order, and were not begun."""
    lanes, states = holding.lanes, holding.states
    for index in range(holding.begun, len(states)):
        if (
            states[index] == OPEN
            and (lanes is None or lanes[index] == lane)
            and (holding.offset, holding.first + index) > place
        ):
            yield index
