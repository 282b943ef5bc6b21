"""A line in which there is room for each party, however many times another one stands in it.

Two rules, and no memory of parties that do not wait: none may hold more places than are left, so
there is one for the next party; and those who wait are served in turn, one of each, so nobody
waits for all that another party wants.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def has_share(held: int, taken: int, most: int) -> bool:
    """Whether a party that holds so many of the places that are taken gets one more of them all."""
    return held < most - taken


class FairLine(Generic[T]):
    """What waits, by whom it is wanted.

    Args:
        most: places in it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._parties: dict[Hashable, deque[T]] = {}
        """The first one is served next; what each of them wants stays in its order."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        for wanted in self._parties.values():
            yield from wanted

    def put(self, party: Hashable, item: T) -> bool:
        """Have it wait; False if there is no room for more of this party."""
        wanted = self._parties.get(party)
        if not has_share(len(wanted) if wanted is not None else 0, self._size, self._most):
            return False
        self._parties.setdefault(party, deque()).append(item)
        self._size += 1
        return True

    def take(self) -> T:
        """Who is next.

        Raises:
            IndexError: nobody waits.
        """
        if not self._parties:
            raise IndexError("nobody waits")
        party = next(iter(self._parties))
        wanted = self._parties.pop(party)
        item = wanted.popleft()
        if wanted:
            self._parties[party] = wanted  # behind all others
        self._size -= 1
        return item

    def remove(self, party: Hashable, item: T) -> bool:
        """It does not wait any longer; False if it did not."""
        wanted = self._parties.get(party)
        if wanted is None or item not in wanted:
            return False
        wanted.remove(item)
        if not wanted:
            del self._parties[party]
        self._size -= 1
        return True

    def check(self) -> None:
        """Assert the invariants."""
        assert self._size == sum(map(len, self._parties.values()))  # noqa: S101 - for tests
        assert self._size <= self._most  # noqa: S101
        assert all(self._parties.values())  # noqa: S101
