"""The producers of transactions at one exchange: who is there, and who is asked next. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeVar

from roq.exchange.readers import RefusedRequest

K = TypeVar("K")

PRODUCERS_MAX: Final = 10_000
AT_ONCE: Final = 4
"""Questions that one producer is asked at a time."""


@dataclass(slots=True, eq=False)
class Producer:
    """One that may be asked, over one connection."""

    route: bytes
    tag: bytes
    group: str
    publisher: bytes
    heard_at: float
    asked: dict[bytes, None] = field(default_factory=dict)
    """About which it has not answered, and has time for that."""


_Line = OrderedDict[Producer, None]


class Producers:
    """All of them."""

    def __init__(self) -> None:
        self._all: OrderedDict[tuple[bytes, bytes, str], Producer] = OrderedDict()
        """Who was heard longest ago is the first."""
        self._by_route: dict[bytes, _Line] = {}
        self._groups: dict[str, _Line] = {}
        """Who was asked last is the last."""
        self._authors: dict[tuple[str, bytes], _Line] = {}
        """Likewise, of each publisher."""

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._all.values())

    def has(self, group: str) -> bool:
        """Whether anybody of this group is here."""
        return group in self._groups

    def of(self, route: bytes) -> list[Producer]:
        """Those of a connection."""
        return list(self._by_route.get(route, ()))

    def heard(self, route: bytes, tag: bytes, group: str, now: float) -> Producer | None:
        """This one was heard; None: it is not here."""
        producer = self._all.get((route, tag, group))
        if producer is not None:
            producer.heard_at = now
            self._all.move_to_end((route, tag, group))
        return producer

    def silent(self, since: float) -> Producer | None:
        """One of which nothing was heard since then; None: there is none."""
        oldest = next(iter(self._all.values()), None)
        return None if oldest is None or oldest.heard_at >= since else oldest

    def add(self, producer: Producer) -> None:
        """One more; it is the next one to be asked.

        Raises:
            RefusedRequest: so many are here that there is no room for it.
        """
        if len(self._all) >= PRODUCERS_MAX:
            raise RefusedRequest(
                "full", f"{PRODUCERS_MAX:,} producers are here already: close some"
            )
        self._all[producer.route, producer.tag, producer.group] = producer
        for line in self._lines(producer):
            line[producer] = None
            line.move_to_end(producer, last=False)

    def remove(self, producer: Producer) -> None:
        """It is not here any more."""
        del self._all[producer.route, producer.tag, producer.group]
        for line in self._lines(producer):
            del line[producer]
        _drop_empty(self._by_route, producer.route)
        _drop_empty(self._groups, producer.group)
        _drop_empty(self._authors, (producer.group, producer.publisher))

    def choose(self, group: str, publisher: bytes, last: Producer | None) -> Producer | None:
        """Who of this group is asked: who publishes as this, if that has room for a question; else
        whoever was asked longest ago. However many are here, the first ones nearly always have.

        Args:
            last: who is asked only if nobody else has room.
        """
        found: Producer | None = None
        authors: Iterable[Producer] = self._authors.get((group, publisher), ())
        for each in chain(authors, self._groups.get(group, ())):
            if len(each.asked) < AT_ONCE:
                if each is not last:
                    return each
                found = each
        return found

    def ask(self, producer: Producer, transaction: bytes) -> None:
        """It is asked about this one."""
        producer.asked[transaction] = None
        for line in self._lines(producer):
            line.move_to_end(producer)

    def check(self) -> None:
        """Assert the invariants."""
        for lines in (self._by_route, self._groups, self._authors):
            assert all(lines.values())  # noqa: S101
            every = [each for line in lines.values() for each in line]
            assert len(every) == len(self._all) == len(set(every))  # noqa: S101
        assert len(self._all) <= PRODUCERS_MAX  # noqa: S101

    def _lines(self, producer: Producer) -> tuple[_Line, ...]:
        return (
            self._by_route.setdefault(producer.route, OrderedDict()),
            self._groups.setdefault(producer.group, OrderedDict()),
            self._authors.setdefault((producer.group, producer.publisher), OrderedDict()),
        )


def _drop_empty(lines: dict[K, _Line], key: K) -> None:
    if not lines[key]:
        del lines[key]
