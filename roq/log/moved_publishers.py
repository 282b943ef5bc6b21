"""Where publishers were before they came to this log, and where their stays here have ended. Pure.

A publisher that is moved leaves messages behind, and what it publishes here comes after them. It
says in its Hello which logs those are; consumer groups that keep order ask there
(`roq.log.ordered_group`). Epochs tell what is earlier: each stay of a publisher has a higher one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from roq.model import LogId, PublisherId
from roq.number_ranges import Offset, Whole
from roq.protocol.batch import LOGS_MAX

ENDS_MAX: Final = 8
"""Stays of one publisher here of which is remembered where they ended: the newest."""


class Before(NamedTuple):
    """From this epoch on a publisher has messages in another log that come before those here."""

    epoch: Whole
    log: LogId


class Stay(NamedTuple):
    """What a publisher has sent here under this epoch, or a lower one, lies below `end`."""

    epoch: Whole
    end: Offset


class _Known:
    __slots__ = ("asked", "before", "ends", "present")

    def __init__(self) -> None:
        self.before: dict[LogId, int] = {}
        self.ends: dict[int, int] = {}
        self.present = 0
        """The epoch of a stay whose end is not known; 0: there is none."""
        self.asked: dict[int, int] = {}
        """What was answered, by the epoch that was asked for."""


class MovedPublishers:
    """Of all publishers.

    Args:
        own: the log of this exchange.
        most: publishers that are remembered; who was heard of longest ago is forgotten first.
            Of each the newest logs, and the newest stays.

    Attributes:
        own: the same log.
    """

    def __init__(self, own: LogId, most: int) -> None:
        self.own = own
        self._most = max(1, most)
        self._known: OrderedDict[PublisherId, _Known] = OrderedDict()

    def came(self, publisher: PublisherId, epoch: int, logs: Iterable[LogId]) -> None:
        """It publishes here under this epoch, and has published into these logs before."""
        others = [log for log in logs if log != self.own]
        if not others:
            return
        before = self._of(publisher).before
        for log in others:
            before[log] = min(epoch, before.get(log, epoch))
        while len(before) > LOGS_MAX:
            del before[next(iter(before))]

    def before(self, publisher: PublisherId, epoch: int) -> tuple[LogId, ...]:
        """The other logs that may have messages that come before those of this epoch."""
        known = self._known.get(publisher)
        if known is None:
            return ()
        return tuple(log for log, since in known.before.items() if since <= epoch)

    def began(self, publisher: PublisherId, epoch: int, end: int | None = None) -> None:
        """It publishes here from now on, under this epoch.

        Args:
            end: of the log; None: it is not known where that was.
        """
        known = self._of(publisher)
        if end is not None and not known.ends:
            self.ended(publisher, 0, end)  # whatever it may have sent before
        known.present = epoch

    def ended(self, publisher: PublisherId, epoch: int, end: int) -> None:
        """A stay here is over, and the log ends there at the moment."""
        known = self._of(publisher)
        ends = known.ends
        ends[epoch] = max(end, ends.get(epoch, end))
        if known.present <= epoch:
            known.present = 0
        if len(ends) > ENDS_MAX:
            first, second, *_ = sorted(ends)
            ends[first] = max(ends[first], ends.pop(second))

    def end_of(self, publisher: PublisherId, epoch: int, end: int) -> int:
        """Below which offset all lies that it has sent here under lower epochs than this one.

        Args:
            end: of the log: who asks has seen the later epoch elsewhere.
        """
        known = self._of(publisher)
        at = known.asked.get(epoch)
        if at is None:
            earlier = [each for stay, each in known.ends.items() if stay < epoch]
            at = end if self.may_stay(publisher, epoch) else max(earlier, default=0)
            known.asked[epoch] = at
            if len(known.asked) > ENDS_MAX:
                del known.asked[next(iter(known.asked))]
        return at

    def may_stay(self, publisher: PublisherId, epoch: int) -> bool:
        """Whether it is not known when it has sent the last here under a lower epoch."""
        known = self._known.get(publisher)
        return known is None or 0 < known.present < epoch or not known.ends

    def over(self, publisher: PublisherId) -> int:
        """The highest epoch of a stay of this publisher that is known to be over; 0: of none."""
        known = self._known.get(publisher)
        return max(known.ends, default=0) if known is not None else 0

    def told(self, publisher: PublisherId) -> tuple[list[Before], list[Stay]]:
        """What a snapshot says of a publisher."""
        known = self._known.get(publisher)
        if known is None:
            return [], []
        before = [Before(epoch, log) for log, epoch in known.before.items()]
        return before, [Stay(*each) for each in known.ends.items()]

    def recover(
        self, publisher: PublisherId, before: Iterable[Before], ends: Iterable[Stay], present: int
    ) -> None:
        """Take in what a snapshot has said.

        Args:
            present: the epoch under which it publishes here; 0: it does not.
        """
        for epoch, log in before:
            self.came(publisher, epoch, [LogId(*log)])
        for epoch, end in ends:
            self.ended(publisher, epoch, end)
        if present:
            self.began(publisher, present)

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._known) <= self._most  # noqa: S101
        for known in self._known.values():
            assert len(known.before) <= LOGS_MAX  # noqa: S101
            assert len(known.ends) <= ENDS_MAX  # noqa: S101
            assert len(known.asked) <= ENDS_MAX  # noqa: S101
            assert not known.ends or known.present == 0 or known.present > max(known.ends)  # noqa: S101
            assert self.own not in known.before  # noqa: S101

    def _of(self, publisher: PublisherId) -> _Known:
        known = self._known.get(publisher)
        if known is None:
            known = self._known[publisher] = _Known()
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        self._known.move_to_end(publisher)
        return known
