"""Where the monitor is, asked of configuration managers when nothing else tells.

    idle --look--> asking --found, or none knows--> resting --a while later--> idle

A host manager tells an exchange where its monitor is. This is for the time when that one, too, is
away: one question at a time, less and less often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from roq.errors import QueueNotFound, Unavailable
from roq.model import is_address
from roq.protocol.control import NOT_LEADER, Answer, Failure, Located, LocateRequest
from roq.runtime.backoff import Backoff, Jitter
from roq.runtime.interfaces import Dialer, Loop, Socket
from roq.runtime.leader_client import LeaderClient
from roq.runtime.leader_finder import SEARCH_MOST_SECONDS

ANSWER_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.5
"""The longest pause after the first search; it doubles."""


class MonitorFinder:
    """Asks for the monitor of one queue.

    Args:
        managers: client addresses of configuration managers; without any nothing is ever asked.
        queue: name of the queue.
        queue_id: of this life of it.
        found: called with the control address of its monitor.
        gone: called when the manager that leads knows no such queue.
        jitter: spreads the exchanges that have lost the same monitor.
    """

    def __init__(
        self,
        loop: Loop,
        dialer: Dialer[Socket],
        managers: Sequence[str],
        queue: str,
        queue_id: bytes,
        found: Callable[[str], None],
        gone: Callable[[], None],
        jitter: Jitter,
    ) -> None:
        self._loop = loop
        self._leader = LeaderClient(loop, dialer, managers)
        self._question = LocateRequest(QName=queue)
        self._queue_id = queue_id
        self._found = found
        self._gone = gone
        self._backoff = Backoff(jitter, SEARCH_MOST_SECONDS, PAUSE_SECONDS)
        self._idle = bool(managers)
        self.reset()

    def look(self) -> None:
        """Ask, unless that is under way or was done a short while ago."""
        if self._idle and self._loop.now() >= self._rests_until:
            self._idle = False
            self._leader.ask(self._question, ANSWER_SECONDS, self._answered)

    def reset(self) -> None:
        """The monitor has answered: the next search may begin at once."""
        self._rests_until = 0.0
        self._backoff.reset()
        self._backoff.wait()  # none: the next search begins at once

    def close(self) -> None:
        """Ask no more."""
        self._leader.close()

    def _answered(self, answer: Answer | Unavailable) -> None:
        self._idle = True
        self._rests_until = self._loop.now() + self._backoff.wait()
        match answer:
            case Located(queue_id=queue_id, monitor=monitor) if queue_id == self._queue_id:
                if is_address(monitor):
                    self._found(monitor)
            case Located() | Failure(CODE=QueueNotFound.code):
                self._gone()
                self._leader.doubt()  # one that is cut off knows less than others do
            case Failure() if answer.RESULT != NOT_LEADER:
                self._leader.doubt()
            case _:
                return
