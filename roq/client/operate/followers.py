"""The queues of a cluster, followed: of each its statistics stream, and what it adds up to.

with Followers(cluster, None) as followers:
    followers.update()                  # again and again, from one thread
    followers.reports()                 # a report for each queue
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

import msgspec

from roq.client.admin.board import Board, QueueView
from roq.client.admin.broadcast import Watch
from roq.client.admin.statistics import Statistics, StreamState
from roq.timing import CLIENTS_TOLD_SECONDS

if TYPE_CHECKING:
    from roq.client.cluster import Cluster

QUEUES_MAX: Final = 100
"""Queues that are followed at once; the others are left out and counted."""


class QueueReport(msgspec.Struct, frozen=True, kw_only=True):
    """One queue for programs."""

    state: str
    """`running`, `stopped`, `removed`, or `searching` while its monitor is not heard."""
    reason: str
    view: QueueView


class Followed:
    """One queue: its stream and its board."""

    def __init__(self, statistics: Statistics) -> None:
        self.statistics = statistics
        self.board = Board(statistics.queue)
        self.since = time.monotonic()

    def update(self) -> None:
        """Take in what has come."""
        for sample in self.statistics.waiting():
            self.board.take(sample.document, sample.when)

    def report(self) -> QueueReport:
        """How it is now."""
        return QueueReport(
            state=self.statistics.state.value,
            reason=self.statistics.reason,
            view=self.board.view(time.monotonic()),
        )

    def settled(self) -> bool:
        """Whether all that there is to show has had the time to show."""
        if self.statistics.state in {StreamState.STOPPED, StreamState.MISSING}:
            return True
        waited = time.monotonic() - self.since
        return self.board.complete() and waited >= CLIENTS_TOLD_SECONDS


class Followers:
    """The queues that are shown: one by its name, or all that there are as they come and go.

    Args:
        cluster: whose queues.
        queue: the one; None: all.
        browse: whether another one may be wanted, so that their names must be known.
    """

    def __init__(self, cluster: Cluster, queue: str | None, *, browse: bool = False) -> None:
        self.hidden = 0
        self.names: list[str] = []
        self._cluster = cluster
        self._queue = queue
        self._followed: dict[str, Followed] = {}
        self._watch: Watch | None = None
        self._known = queue is not None
        if queue is None or browse:
            self._watch = cluster.watch()
        if queue is not None:
            self._follow(queue)

    def show(self, queue: str | None) -> None:
        """From now on show this queue; None: all."""
        if queue != self._queue:
            self._queue = queue
            self._show()

    def update(self) -> None:
        """Take in what has come, and look which queues there are."""
        if self._watch is not None:
            while (state := self._watch.receive(0)) is not None:
                self._known = True
                self.names = sorted(each.name for each in state.queues)
                self._show()
        for followed in self._followed.values():
            followed.update()

    def reports(self) -> list[QueueReport]:
        """All queues by name."""
        return [self._followed[name].report() for name in sorted(self._followed)]

    def settled(self) -> bool:
        """Whether everything that there is can be shown."""
        return self._known and all(each.settled() for each in self._followed.values())

    def ring_limit(self, queue: str) -> int:
        """Bytes that one exchange of this queue keeps; 0: not known yet."""
        limits = self._followed[queue].statistics.limits
        return 0 if limits is None else limits.ring_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for followed in self._followed.values():
            followed.statistics.close()
        if self._watch is not None:
            self._watch.close()

    def _show(self) -> None:
        # The one that is asked for is told of also when it has gone.
        names = self.names if self._queue is None else [self._queue]
        self.hidden = max(0, len(names) - QUEUES_MAX)
        wanted = set(names[:QUEUES_MAX])
        for name in self._followed.keys() - wanted:
            self._followed.pop(name).statistics.close()
        for name in sorted(wanted - self._followed.keys()):
            self._follow(name)

    def _follow(self, name: str) -> None:
        self._followed[name] = Followed(self._cluster.statistics(name))
