"""Whom to report to: the leading configuration manager, found among the configured ones.

As long as nobody takes the reports, rounds are made: every manager is asked once, and those that
they name; one that did not answer a moment ago is left out. Within a round nothing waits but for
answers, between two of them is a pause. So a new leader is found within a second, and no manager
gets more than a few reports a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from roq.errors import LocalProtocolError, Unavailable
from roq.protocol.control import NOT_LEADER, Answer, Failure, HostReportAck
from roq.timing import HOST_REPORT_SECONDS

ANSWER_SECONDS: Final = 0.5
"""A manager that has not answered within this does not lead, or not well."""
ROUND_SECONDS: Final = 0.25
"""Between two rounds."""
SHUNNED_SECONDS: Final = 1.0
"""A manager that did not answer is not asked for so long, even if others name it."""
NAMED_MAX: Final = 3
"""Asked in one round beside those that are configured."""


class LeaderLink:
    """One report at a time; the next one a second later, or at once when something has changed.

    Attributes:
        endpoint: where the next report goes.
        monitors: control addresses of monitors by queue, as the leader told last.
        cluster: name of the cluster; empty until the leader has told it.
        epoch: the highest of a leader that has taken a report.
        known: the leader has taken a report.
        trouble: why the last report was not taken; empty if it was.
    """

    def __init__(self, managers: Sequence[str]) -> None:
        if not managers:
            raise LocalProtocolError("a host manager needs the address of a configuration manager")
        self._managers = list(dict.fromkeys(managers))
        self._asked: set[str] = set()
        """In this round."""
        self._named = 0
        """Asked in this round because others named them."""
        self._shunned: dict[str, float] = {}
        """Until when."""
        self._due: float | None = None
        self._in_flight = False
        self._changed = False
        self.endpoint = self._managers[0]
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
                self._refused(answer.COMMENT, now, named=answer.ENDPOINT)
            case Failure():
                self._refused(answer.COMMENT, now)
            case Unavailable():
                self._silent(str(answer), now)
            case _:
                self._refused(f"{type(answer).__name__} is no answer to a report", now)

    def lost(self, endpoint: str, reason: str, now: float) -> None:
        """The connection to where reports go has ended: look for who leads now."""
        if self._due is not None and endpoint == self.endpoint:
            self._in_flight = False
            self._silent(reason, now)

    @property
    def leading(self) -> str:
        """Address of the manager that took the last report; empty if that is not known."""
        return self.endpoint if self.known and not self.trouble else ""

    def next_deadline(self) -> float | None:
        """When the next report is due."""
        return None if self._in_flight else self._due

    def _accepted(self, ack: HostReportAck, now: float) -> None:
        self._begin_round()
        self._shunned.clear()
        self.trouble = ""
        self.known = True
        self.cluster = ack.cluster or self.cluster
        self.monitors = dict(ack.monitors)
        self.epoch = max(self.epoch, ack.leader_epoch)
        self._due = now if self._changed else now + HOST_REPORT_SECONDS

    def _silent(self, trouble: str, now: float) -> None:
        self._shunned[self.endpoint] = now + SHUNNED_SECONDS
        self._refused(trouble, now)

    def _refused(self, trouble: str, now: float, named: str = "") -> None:
        self.trouble = trouble
        self._asked.add(self.endpoint)
        self._shunned = {each: until for each, until in self._shunned.items() if now < until}
        following = next(self._candidates(named if self._named < NAMED_MAX else ""), "")
        if following:
            self._named += following not in self._managers
            self.endpoint, self._due = following, now
            return
        self._begin_round()
        # If all are shunned, the one that is so for the longest time.
        fallback = min(self._managers, key=lambda each: self._shunned.get(each, now))
        self.endpoint = next(self._candidates(""), fallback)
        self._due = now + ROUND_SECONDS

    def _begin_round(self) -> None:
        self._asked.clear()
        self._named = 0

    def _candidates(self, named: str) -> Iterator[str]:
        """Whom to ask in this round: who was named by the last one, then all others."""
        for each in [named, *self._managers]:
            if each not in self._asked and each not in self._shunned and _usable(each):
                yield each


def _usable(endpoint: str) -> bool:
    return endpoint.startswith("tcp://") and len(endpoint) <= 300 and endpoint.isprintable()
