"""The exchanges of the queue, known by what they report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from roq.errors import InvalidRequest, NoCapacity
from roq.model import ExchangeInfo, is_address
from roq.monitor.events import Peer
from roq.monitor.window import LoadWindow
from roq.policy.assignment import Candidate
from roq.protocol.control import (
    ExchangeReport,
)
from roq.protocol.reports import ExchangeLoad
from roq.timing import EXCHANGE_HEARD_SECONDS, EXCHANGE_LOST_SECONDS, IDLE_FACTOR

Key = tuple[int, int]
"""(number, epoch) of an exchange: the process, and not what takes its place."""

EXCHANGES_MAX: Final = 1_024
"""Exchanges that one queue may have."""
COUNTER_END: Final = 1 << 53
"""No counter comes to this; so sums over all exchanges of a queue fit 64 bits."""
REMEMBERED_MAX: Final = 4_096
"""Numbers whose highest epoch is remembered after they are gone."""


class ReportOutcome(Enum):
    """What a report has told."""

    STALE = auto()
    """A newer process has this number."""
    DISMISSED = auto()
    """The queue does not have it any more."""
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
        peer: where its reports come from; None if nobody can be told anything.
        stopping: it drains; no publisher is sent there any more.
        idle: it serves nobody, and reports less often.
        open: subscribers have had the time to find it, so publishers may be moved there.
        doubted: a publisher could not reach it, and it has not reported since.
        arrivals: publishers sent there since its last report.
        expected: bytes per minute that these will probably bring.
        disk_full: why it accepts nothing: for want of room on its disk, or as that has failed.
        unread: what its disk does not give readers and groups; empty: nothing.
        retired: it accepts nothing, as the monitor has wanted, and not before its next report.
        groups, group_names: which consumer groups it has, as `ExchangeReport` says.
        held: what lets nothing go of its log that groups have done; empty: nothing.
        same_groups: when it reported last, all exchanges had these, and what groups have done is to
            go from logs.
    """

    info: ExchangeInfo
    seen: float
    since: float
    load: ExchangeLoad
    peer: Peer | None = None
    stopping: bool = False
    idle: bool = False
    open: bool = False
    doubted: bool = False
    window: LoadWindow = field(default_factory=LoadWindow)
    arrivals: int = 0
    expected: float = 0.0
    disk_full: str = ""
    unread: str = ""
    retired: bool = False
    groups: bytes = b""
    group_names: list[str] | None = None
    held: str = ""
    same_groups: bool = False

    @property
    def number(self) -> int:
        """In its queue."""
        return self.info.number

    @property
    def key(self) -> Key:
        """(number, epoch)."""
        return (self.info.number, self.info.epoch)

    def heard(self, now: float) -> bool:
        """Whether it has reported a moment ago."""
        return now - self.seen < EXCHANGE_HEARD_SECONDS * self._patience

    @property
    def lost_at(self) -> float:
        """When it will be lost if it stays silent."""
        return self.seen + EXCHANGE_LOST_SECONDS * self._patience

    @property
    def _patience(self) -> int:
        return IDLE_FACTOR if self.idle else 1

    def publishers(self, placed: int) -> int:
        """How many publish here, newcomers included.

        Args:
            placed: those that this monitor knows to be here and that are still alive. They may not
                have arrived yet; others may be there whom this monitor does not know yet.
        """
        return max(self.load.publishers + self.arrivals, placed)

    def candidate(self, placed: int, shift: float) -> Candidate:
        """As the assignment rule sees it.

        Args:
            placed: as above.
            shift: bytes per minute that moves under way will bring, or take away.
        """
        return Candidate(
            number=self.info.number,
            epoch=self.info.epoch,
            publishers=self.publishers(placed),
            throughput=max(0.0, self.window.mean().bytes_in * 60 + self.expected + shift),
        )

    def count(self, expected: float) -> None:
        """One more publisher is on its way here."""
        self.arrivals += 1
        self.expected += expected


class Exchanges:
    """All exchanges that serve, and the highest epoch of each number ever seen.

    Attributes:
        leaving: numbers of those that are being emptied, serving at the moment or not.
    """

    def __init__(self) -> None:
        self.leaving: set[int] = set()
        self._serving: dict[int, Exchange] = {}
        self._epochs: dict[int, int] = {}
        self._dismissed: set[Key] = set()
        self._groups_left: dict[int, bytes] = {}
        """The groups of those that serve no more: nobody changes them meanwhile."""

    def __len__(self) -> int:
        return len(self._serving)

    def __iter__(self) -> Iterator[Exchange]:
        """By number."""
        return iter(sorted(self._serving.values(), key=lambda each: each.info.number))

    @property
    def idle(self) -> bool:
        """Whether all of them are, and there is one."""
        return bool(self._serving) and all(each.idle for each in self._serving.values())

    def numbers(self) -> set[int]:
        """Of all that serve."""
        return set(self._serving)

    def infos(self) -> list[ExchangeInfo]:
        """What clients are told, by number."""
        return [each.info for each in self]

    def heard(self, now: float) -> list[Key]:
        """Those that have reported a moment ago."""
        return [each.key for each in self if each.heard(now)]

    def accepting(self) -> list[Exchange]:
        """Those that take publishers."""
        return [each for each in self if self.accepts(each)]

    def accepts(self, exchange: Exchange) -> bool:
        """Whether it takes publishers: its disk does, and it neither stops nor is emptied."""
        return self._stays(exchange) and not exchange.disk_full

    def staying(self) -> list[Exchange]:
        """Those that neither stop nor are emptied, whatever their disks say."""
        return [each for each in self if self._stays(each)]

    def _stays(self, exchange: Exchange) -> bool:
        return not exchange.stopping and exchange.number not in self.leaving

    def takes(self, number: int) -> bool:
        """Whether this one serves, and would take publishers if it did not leave."""
        exchange = self._serving.get(number)
        return exchange is not None and not exchange.stopping and not exchange.disk_full

    def numbered(self, number: int) -> Exchange | None:
        """The exchange with this number, if it serves."""
        return self._serving.get(number)

    def find(self, key: Key) -> Exchange | None:
        """The exchange with this (number, epoch), if it serves."""
        exchange = self._serving.get(key[0])
        return exchange if exchange is not None and exchange.key == key else None

    def report(self, message: ExchangeReport, peer: Peer, now: float) -> ReportOutcome:
        """Take a report in.

        Args:
            message: the report.
            peer: where it came from.
            now: the present time.

        Raises:
            InvalidRequest: number, epoch, addresses or counters that no exchange can have.
            NoCapacity: the queue has too many exchanges already.
        """
        info = message.exchange
        _validate(info)
        _validate_load(message)
        if info.epoch < self._epochs.get(info.number, 0):
            return ReportOutcome.STALE
        if (info.number, info.epoch) in self._dismissed:
            return ReportOutcome.DISMISSED
        known = self._serving.get(info.number)
        if known is None or known.info.epoch != info.epoch:
            if known is None and len(self._serving) >= EXCHANGES_MAX:
                raise NoCapacity(f"this queue has {EXCHANGES_MAX} exchanges, which is the most")
            exchange = Exchange(info, now, now, message.load)
            self._serving[info.number] = exchange
            self._remember(info)
            outcome = ReportOutcome.CHANGED
        else:
            exchange = known
            outcome = ReportOutcome.SAME if known.info == info else ReportOutcome.CHANGED
        exchange.info = info
        exchange.peer = peer
        exchange.seen = now
        exchange.doubted = False
        exchange.load = message.load
        exchange.disk_full = message.disk_full
        exchange.unread = message.unread
        exchange.retired = message.retired
        exchange.groups, exchange.group_names = message.groups, message.group_names
        exchange.held = message.held
        exchange.stopping = message.stopping
        exchange.idle = message.idle
        exchange.arrivals = 0
        exchange.expected = 0.0
        exchange.window.add(message.load, message.top, now)
        return outcome

    def serves_on(self, number: int) -> None:
        """It is told that it may accept something, whatever it has reported."""
        exchange = self._serving.get(number)
        if exchange is not None:
            exchange.retired = False

    def retire(self, number: int) -> None:
        """It was stopped for good: it counts as lost now."""
        exchange = self._serving.get(number)
        if exchange is not None:
            exchange.seen = float("-inf")

    def dismiss(self, number: int) -> None:
        """The queue does not have it: it counts as lost now, and is told so when it reports."""
        exchange = self._serving.get(number)
        if exchange is not None:
            if len(self._dismissed) >= EXCHANGES_MAX:
                self._dismissed.clear()
            self._dismissed.add(exchange.key)
            exchange.seen = float("-inf")

    def expire(self, now: float) -> list[Exchange]:
        """Drop and give those that have been silent for too long."""
        lost = [each for each in self if now >= each.lost_at]
        for exchange in lost:
            del self._serving[exchange.info.number]
            self._groups_left.pop(exchange.number, None)
            self._groups_left[exchange.number] = exchange.groups
        while len(self._groups_left) > REMEMBERED_MAX:
            del self._groups_left[next(iter(self._groups_left))]
        return lost

    def compare_groups(self, number: int, logs: Iterable[int], now: float) -> bool:
        """Find out whether all exchanges have the consumer groups of this one, as they have told.

        Args:
            number: of one that has just reported.
            logs: numbers of those that the queue has with their logs, serving or not.
            now: the present time.
        """
        exchange = self._serving.get(number)
        if exchange is None:
            return False
        exchange.same_groups = False
        if not exchange.groups:  # as of most queues: nobody asks
            return False
        told = [each.groups if each.heard(now) else b"" for each in self._serving.values()]
        told += [self._groups_left.get(each, b"") for each in logs if each not in self._serving]
        exchange.same_groups = set(told) == {exchange.groups}
        return exchange.same_groups

    def groups_apart(self, logs: Iterable[int]) -> tuple[dict[str, list[int]], list[int]]:
        """What makes the consumer groups of exchanges differ.

        Args:
            logs: as above.

        Returns:
            Groups that some exchange lacks, with the numbers of those; and the numbers of those
            that do not name theirs, or that are away and had others.
        """
        told = {each.number: set(each.group_names) for each in self if each.group_names is not None}
        lacking = {}
        for name in sorted(set().union(*told.values())):
            without = sorted(number for number, there in told.items() if name not in there)
            if without:
                lacking[name] = without
        digests = {each.groups for each in self}
        unknown = [each.number for each in self if each.number not in told and len(digests) > 1]
        unknown += [
            number
            for number in sorted(logs)
            if number not in self._serving and self._groups_left.get(number) not in digests
        ]
        return lacking, unknown

    def next_deadline(self) -> float | None:
        """When the next one will be lost if it stays silent."""
        if not self._serving:
            return None
        return min(each.lost_at for each in self._serving.values())

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
    if not (is_address(info.data) and is_address(info.live)):
        raise InvalidRequest("an exchange's addresses have the form tcp://host:port")


def _validate_load(message: ExchangeReport) -> None:
    for counted in (message.load, *message.top):
        for name in counted.__struct_fields__:
            value = getattr(counted, name)
            # Written so that what is no number at all is out of range, too.
            if isinstance(value, int | float) and not 0 <= value < COUNTER_END:
                raise InvalidRequest(f"no exchange has a {name} of {value}")
