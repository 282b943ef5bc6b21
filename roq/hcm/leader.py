"""The configuration manager to which a host reports: when, and what it has told.

As long as none takes the reports, all managers are asked, round after round. Within a round nothing
waits but for answers, between two of them is a pause. So a new leader is found within a second, and
no manager gets more than a few reports a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from roq.errors import LocalProtocolError, Unavailable
from roq.protocol.control import NOT_LEADER, Answer, Failure, HostReportAck
from roq.runtime.leader_finder import LeaderFinder
from roq.timing import HOST_REPORT_SECONDS

ANSWER_SECONDS: Final = 0.5
"""A manager that has not answered within this does not lead, or not well."""
ROUND_SECONDS: Final = 0.25
"""Between two rounds."""


class Leader:
    """One report at a time; the next one a second later, or at once when something has changed.

    Attributes:
        monitors: control addresses of monitors by queue, as the leader told last.
        cluster: name of the cluster; empty until the leader has told it.
        epoch: the highest of a leader that has taken a report.
        known: the leader has taken a report.
        trouble: why the last report was not taken; empty if it was.
    """

    def __init__(self, managers: Sequence[str]) -> None:
        if not managers:
            raise LocalProtocolError("a host manager needs the address of a configuration manager")
        self._finder = LeaderFinder(managers)
        self._due: float | None = None
        self._in_flight = False
        self._changed = False
        self.monitors: dict[str, str] = {}
        self.cluster = ""
        self.epoch = 0
        self.known = False
        self.trouble = ""

    def start(self, now: float) -> None:
        """The first report is due."""
        self._due = now

    def changed(self, now: float) -> None:
        """Something that the leader wants to know has changed."""
        if self._due is None or self.trouble:
            return  # it will be in the next report, and a search has its own pace
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
        self._finder.ask(now)
        return True

    def answered(self, answer: Answer | Unavailable, now: float) -> None:
        """Take the answer in, and choose when and to whom the next report goes."""
        if not self._in_flight:
            return
        self._in_flight = False
        match answer:
            case HostReportAck():
                self._accepted(answer, now)
            case Failure() if answer.RESULT == NOT_LEADER:
                more = self._finder.refused(now, answer.ENDPOINT)
                self._not_taken(answer.COMMENT, now, more)
            case Failure():
                self._not_taken(answer.COMMENT, now, self._finder.refused(now))
            case Unavailable():
                self._not_taken(str(answer), now, self._finder.silent(now))
            case _:
                nonsense = f"{type(answer).__name__} is no answer to a report"
                self._not_taken(nonsense, now, self._finder.refused(now))

    def lost(self, endpoint: str, reason: str, now: float) -> None:
        """The connection to where reports go has ended: look for who leads now."""
        if self._due is not None and endpoint == self.endpoint:
            self._in_flight = False
            self._not_taken(reason, now, self._finder.silent(now))

    @property
    def endpoint(self) -> str:
        """Where the next report goes."""
        return self._finder.address

    @property
    def leading(self) -> str:
        """Address of the manager that took the last report; empty if that is not known."""
        return self.endpoint if self.known and not self.trouble else ""

    def next_deadline(self) -> float | None:
        """When the next report is due."""
        return None if self._in_flight else self._due

    def _accepted(self, ack: HostReportAck, now: float) -> None:
        self._finder.found()
        self.trouble = ""
        self.known = True
        self.cluster = ack.cluster or self.cluster
        self.monitors = dict(ack.monitors)
        self.epoch = max(self.epoch, ack.leader_epoch)
        self._due = now if self._changed else now + HOST_REPORT_SECONDS

    def _not_taken(self, trouble: str, now: float, more: bool) -> None:
        self.trouble = trouble
        self._due = now if more else now + ROUND_SECONDS
