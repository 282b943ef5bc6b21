"""Into which logs a publisher has published: exchanges are told what comes before. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from roq.client.publish.link import Link, LinkPhase
from roq.model import NO_LOG, LogId
from roq.protocol.batch import LOGS_MAX


class PublishedLogs:
    """The newest `LOGS_MAX` of them, and what exchanges were told of them last."""

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
