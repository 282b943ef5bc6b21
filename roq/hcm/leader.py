"""Whom to report to: the leading configuration manager, found among the configured ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from roq.errors import LocalProtocolError, Unavailable
from roq.protocol.control import NOT_LEADER, Answer, Failure, HostReportAck

REPORT_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 0.3
REDIRECTS_MAX: Final = 3
"""Redirections followed without a pause: two managers may name each other for a moment."""


class LeaderLink:
    """One report at a time; the next one a second later, or at once when something has changed.

    Attributes:
        endpoint: where the next report goes.
        monitors: control addresses of monitors by queue, as the leader told last.
        cluster: name of the cluster; empty until the leader has told it.
        known: the leader has taken a report.
        trouble: why the last report was not taken; empty if it was.
    """

    def __init__(self, managers: Sequence[str]) -> None:
        if not managers:
            raise LocalProtocolError("a host manager needs the address of a configuration manager")
        self._managers = list(managers)
        self._index = 0
        self._redirects = 0
        self._due: float | None = None
        self._in_flight = False
        self._changed = False
        self.endpoint = self._managers[0]
        self.monitors: dict[str, str] = {}
        self.cluster = ""
        self.known = False
        self.trouble = ""

    def start(self, now: float) -> None:
        """The first report is due."""
        self._due = now

    def changed(self, now: float) -> None:
        """Something that the leader wants to know has changed."""
        if self._due is None:
            return
        if self._in_flight:
            self._changed = True
        else:
            self._due = min(self._due, now)

    def take_due(self, now: float) -> bool:
        """Whether a report must be sent now; if so, it counts as sent."""
        if self._due is None or self._in_flight or now < self._due:
            return False
        self._in_flight = True
        self._changed = False
        return True

    def answered(self, answer: Answer | Unavailable, now: float) -> None:
        """Take the answer in, and choose when and to whom the next report goes."""
        if not self._in_flight:
            return
        self._in_flight = False
        match answer:
            case HostReportAck():
                self._accepted(answer, now)
            case Failure() if answer.RESULT == NOT_LEADER and _usable(answer.ENDPOINT):
                self._redirected(answer.ENDPOINT, now)
            case Failure():
                self._refused(answer.COMMENT, now)
            case Unavailable():
                self._refused(str(answer), now)
            case _:
                self._refused(f"{type(answer).__name__} is no answer to a report", now)

    @property
    def leading(self) -> str:
        """Address of the manager that took the last report; empty if that is not known."""
        return self.endpoint if self.known and not self.trouble else ""

    def next_deadline(self) -> float | None:
        """When the next report is due."""
        return None if self._in_flight else self._due

    def _accepted(self, ack: HostReportAck, now: float) -> None:
        self._redirects = 0
        self.trouble = ""
        self.known = True
        self.cluster = ack.cluster or self.cluster
        self.monitors = dict(ack.monitors)
        self._due = now if self._changed else now + REPORT_SECONDS

    def _redirected(self, endpoint: str, now: float) -> None:
        self.endpoint = endpoint
        self._redirects += 1
        if self._redirects <= REDIRECTS_MAX:
            self._due = now
        else:
            self._redirects = 0
            self._due = now + RETRY_SECONDS

    def _refused(self, trouble: str, now: float) -> None:
        self.trouble = trouble
        self._redirects = 0
        self._index = (self._index + 1) % len(self._managers)
        self.endpoint = self._managers[self._index]
        self._due = now + RETRY_SECONDS


def _usable(endpoint: str) -> bool:
    return endpoint.startswith("tcp://") and len(endpoint) <= 300 and endpoint.isprintable()
