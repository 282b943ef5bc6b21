"""The exchanges of the queue, known by what they report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from roq.errors import InvalidRequest, NoCapacity
from roq.model import ExchangeInfo
from roq.monitor.window import LoadWindow
from roq.policy.assignment import Candidate
from roq.protocol.control import ExchangeLoad, ExchangeReport

LOST_SECONDS: Final = 3.0
"""Without a report for so long, an exchange is lost."""
EXCHANGES_MAX: Final = 1_024
"""Exchanges that one queue may have."""
REMEMBERED_MAX: Final = 4_096
"""Numbers whose highest epoch is remembered after they are gone."""


class Outcome(Enum):
    """What a report has told."""

    STALE = auto()
    """A newer process has this number."""
    SAME = auto()
    """Nothing but new counters."""
    CHANGED = auto()
    """Clients must be told: it is new, another process, or has other addresses."""


@dataclass(slots=True)
class Exchange:
    """One exchange that serves.

    Attributes:
        seen: when it reported last (observed time).
        since: when this process of it became known.
        stopping: it drains; no publisher is sent there any more.
        arrivals: publishers sent there since its last report.
        expected: bytes per minute that these will probably bring.
    """

    info: ExchangeInfo
    seen: float
    since: float
    load: ExchangeLoad
    stopping: bool = False
    window: LoadWindow = field(default_factory=LoadWindow)
    arrivals: int = 0
    expected: float = 0.0

    @property
    def key(self) -> tuple[int, int]:
        """(number, epoch)."""
        return (self.info.number, self.info.epoch)

    def candidate(self, publishers_here: int) -> Candidate:
        """As the assignment rule sees it.

        Args:
            publishers_here: those that this monitor has sent there and that are still alive. They
                may not have arrived yet; others may be there whom this monitor does not know yet.
        """
        return Candidate(
            number=self.info.number,
            epoch=self.info.epoch,
            publishers=max(self.load.publishers + self.arrivals, publishers_here),
            throughput=self.window.rates().bytes_in * 60 + self.expected,
        )

    def count(self, expected: float) -> None:
        """One more publisher is on its way here."""
        self.arrivals += 1
        self.expected += expected


class Exchanges:
    """All exchanges that serve, and the highest epoch of each number ever seen."""

    def __init__(self) -> None:
        self._serving: dict[int, Exchange] = {}
        self._epochs: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._serving)

    def __iter__(self) -> Iterator[Exchange]:
        """By number."""
        return iter(sorted(self._serving.values(), key=lambda each: each.info.number))

    def infos(self) -> list[ExchangeInfo]:
        """What clients are told, by number."""
        return [each.info for each in self]

    def open(self) -> list[Exchange]:
        """Those that take publishers."""
        return [each for each in self if not each.stopping]

    def find(self, key: tuple[int, int]) -> Exchange | None:
        """The exchange with this (number, epoch), if it serves."""
        exchange = self._serving.get(key[0])
        return exchange if exchange is not None and exchange.key == key else None

    def report(self, message: ExchangeReport, now: float) -> Outcome:
        """Take a report in.

        Raises:
            InvalidRequest: number, epoch or addresses that no exchange can have.
            NoCapacity: the queue has too many exchanges already.
        """
        info = message.exchange
        _validate(info)
        if info.epoch < self._epochs.get(info.number, 0):
            return Outcome.STALE
        known = self._serving.get(info.number)
        if known is None or known.info.epoch != info.epoch:
            if known is None and len(self._serving) >= EXCHANGES_MAX:
                raise NoCapacity(f"this queue has {EXCHANGES_MAX} exchanges, which is the most")
            exchange = Exchange(info, now, now, message.load)
            self._serving[info.number] = exchange
            self._remember(info)
            outcome = Outcome.CHANGED
        else:
            exchange = known
            outcome = Outcome.SAME if known.info == info else Outcome.CHANGED
        exchange.info = info
        exchange.seen = now
        exchange.load = message.load
        exchange.stopping = message.stopping
        exchange.arrivals = 0
        exchange.expected = 0.0
        exchange.window.add(message.load, message.top, now)
        return outcome

    def expire(self, now: float) -> list[Exchange]:
        """Drop and give those that have been silent for too long."""
        lost = [each for each in self if now - each.seen >= LOST_SECONDS]
        for exchange in lost:
            del self._serving[exchange.info.number]
        return lost

    def next_deadline(self) -> float | None:
        """When the next one will be lost if it stays silent."""
        if not self._serving:
            return None
        return min(each.seen for each in self._serving.values()) + LOST_SECONDS

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._serving) <= EXCHANGES_MAX  # noqa: S101
        assert len(self._epochs) <= REMEMBERED_MAX + EXCHANGES_MAX  # noqa: S101
        for number, exchange in self._serving.items():
            assert number == exchange.info.number  # noqa: S101
            assert self._epochs[number] == exchange.info.epoch  # noqa: S101

    def _remember(self, info: ExchangeInfo) -> None:
        self._epochs[info.number] = info.epoch
        if len(self._epochs) > REMEMBERED_MAX:
            # The lowest number that is gone: numbers are never used again, so it is the oldest.
            gone = (number for number in sorted(self._epochs) if number not in self._serving)
            oldest = next(gone, None)
            if oldest is not None:
                del self._epochs[oldest]


def _validate(info: ExchangeInfo) -> None:
    if not (0 < info.number < 1 << 31 and 0 < info.epoch < 1 << 62):
        raise InvalidRequest(f"no exchange has number {info.number} and epoch {info.epoch}")
    for address in (info.data, info.live):
        if not address.startswith("tcp://") or len(address) > 300 or not address.isprintable():
            raise InvalidRequest("an exchange's addresses have the form tcp://host:port")
