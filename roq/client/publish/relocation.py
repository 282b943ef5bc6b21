"""A change of the exchanges that a publisher publishes at, while it is under way. Pure.

    OPENING --all targets Ready--> DRAINING --acknowledged, too long, or lost--> over: accepted
       | one cannot be used           | the only target is lost
       +------------------------------+--> over: failed, everything as before

From one exchange to one other nothing new is sent while the old one drains: batches collect at the
target, so that the logs stay in order. Wherever several exchanges are involved, the readers put the
order together anyway, and new batches go to the targets at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from roq.client.publish.link import Link, LinkPhase
from roq.client.publish.topics import Stream
from roq.model import NO_LOG, ExchangeInfo, LogId
from roq.protocol.batch import LOGS_MAX

DRAIN_SECONDS: Final = 0.25
"""The old exchange may take so long to acknowledge what is on its way to it."""
DRAIN_BOUND_SECONDS: Final = 3.0
"""What must not be sent elsewhere as well is waited for so long."""
LINKS_MAX: Final = 16


@dataclass(slots=True)
class Relocation:
    """One relocation.

    Attributes:
        epoch: under which new links are opened.
        targets: where the publisher is to publish.
        heads: where its streams stood when the new links were opened.
        opened: the new links.
        draining: the targets are ready and `leaving` get no new batches.
        leaving: the links that are given up.
        collects: what is sealed while draining waits at the target.
        since: when draining began.
        bound: what is not acknowledged must not be sent elsewhere.
    """

    epoch: int
    targets: tuple[ExchangeInfo, ...]
    heads: Mapping[Stream, int]
    opened: list[Link] = field(default_factory=list)
    draining: bool = False
    leaving: list[Link] = field(default_factory=list)
    collects: bool = False
    since: float = 0.0
    bound: bool = False

    @property
    def drain_seconds(self) -> float:
        """What draining may take."""
        return DRAIN_BOUND_SECONDS if self.bound else DRAIN_SECONDS

    @property
    def deadline(self) -> float | None:
        """When draining is given up; None before it has begun."""
        return self.since + self.drain_seconds if self.draining else None

    def targets_ready(self) -> bool:
        """Whether every new exchange has said Ready."""
        return all(link.phase is LinkPhase.WAITING for link in self.opened)

    def drained(self, now: float) -> bool:
        """Whether nothing is waited for any more."""
        return now >= self.since + self.drain_seconds or all(
            link.phase is not LinkPhase.READY or not len(link.window) for link in self.leaving
        )


class PublishedLogs:
    """Into which logs a publisher has published, so that each exchange knows what comes before.

    The newest `LOGS_MAX` are remembered, and what was told of them last.
    """

    def __init__(self) -> None:
        self._logs: dict[LogId, None] = {}
        self._told: list[LogId] = []

    @property
    def changed(self) -> bool:
        """Whether there are others than an exchange was told last."""
        return list(self._logs) != self._told

    def resume(self, logs: Iterable[LogId]) -> None:
        """An earlier publisher of the same name has published into these."""
        self._add(logs)

    def note(self, links: Iterable[Link]) -> None:
        """These links were used, or may be at any moment, as far as they ever could be."""
        self._add(
            link.log for link in links if link.window.sent_high or link.phase is LinkPhase.READY
        )

    def before(self, links: Iterable[Link], log: LogId) -> list[LogId]:
        """What the exchange with this log is told.

        Args:
            links: all of the publisher.
        """
        self.note(links)
        self._told = list(self._logs)
        return [each for each in self._told if each != log]

    def _add(self, logs: Iterable[LogId]) -> None:
        for log in logs:
            if log != NO_LOG:
                self._logs.pop(log, None)
                self._logs[log] = None
        while len(self._logs) > LOGS_MAX:
            del self._logs[next(iter(self._logs))]
