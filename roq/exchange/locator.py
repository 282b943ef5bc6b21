"""Where the monitor is, asked of configuration managers when nobody else tells.

    idle --look--> asking --found, or nobody knows--> resting --a while later--> idle

A host manager tells an exchange where its monitor is. This is for the time when that one, too, is
away: one question at a time, to one manager after another, less and less often.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Final

import zmq

from roq.errors import QueueNotFound, Unavailable
from roq.protocol.control import NOT_LEADER, Answer, Failure, Located, LocateRequest
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import RpcClient

ANSWER_SECONDS: Final = 1.0
REDIRECTS_MAX: Final = 3
PAUSE_SECONDS: Final = 0.5
PAUSE_MAX_SECONDS: Final = 5.0
"""The pause between two searches doubles from the one to the other; half of it is by chance."""

_UNKNOWN: Final = QueueNotFound.code

log = logging.getLogger(__name__)


def _chance() -> float:
    return os.urandom(1)[0] / 256


class Locator:
    """Asks for the monitor of one queue.

    Args:
        managers: client addresses of configuration managers; without any nothing is ever asked.
        queue: name of the queue.
        queue_id: of this life of it.
        found: called with the control address of its monitor.
        gone: called when the manager that leads knows no such queue.
        chance: gives a number in [0, 1), another one each time.
    """

    def __init__(
        self,
        reactor: Reactor,
        context: zmq.Context[zmq.Socket[bytes]],
        managers: Sequence[str],
        queue: str,
        queue_id: bytes,
        found: Callable[[str], None],
        gone: Callable[[], None] = lambda: None,
        chance: Callable[[], float] = _chance,
    ) -> None:
        self._reactor = reactor
        self._context = context
        self._managers = list(managers)
        self._question = LocateRequest(QName=queue)
        self._queue_id = queue_id
        self._found = found
        self._gone = gone
        self._chance = chance
        self._client: RpcClient | None = None
        self._next = 0
        self._redirects = 0
        self._pause = PAUSE_SECONDS
        self._rests_until = 0.0

    def look(self) -> None:
        """Ask, unless that is under way or was done a short while ago."""
        resting = self._reactor.now() < self._rests_until
        if self._client is None and self._managers and not resting:
            self._redirects = 0
            self._ask(self._managers[self._next])

    def reset(self) -> None:
        """The monitor has answered: the next search may begin at once."""
        self._pause, self._rests_until = PAUSE_SECONDS, 0.0

    def close(self) -> None:
        """Ask no more."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _ask(self, manager: str) -> None:
        self._client = RpcClient(self._reactor, self._context, manager)
        self._client.request(self._question, ANSWER_SECONDS, self._answered)

    def _answered(self, answer: Answer | Unavailable) -> None:
        # Closing the client in its own callback would take the socket from under it.
        self._reactor.call_soon(lambda: self._take(answer))

    def _take(self, answer: Answer | Unavailable) -> None:
        if self._client is None:
            return  # closed meanwhile
        self.close()
        if isinstance(answer, Located) and answer.queue_id == self._queue_id:
            self._rest()
            if _usable(answer.monitor):
                self._found(answer.monitor)
            return
        unknown = isinstance(answer, Failure) and answer.CODE == _UNKNOWN
        if unknown or isinstance(answer, Located):
            self._gone()
        elsewhere = isinstance(answer, Failure) and answer.RESULT == NOT_LEADER
        if isinstance(answer, Failure) and elsewhere and self._redirects < REDIRECTS_MAX:
            self._redirects += 1
            if _usable(answer.ENDPOINT):
                self._ask(answer.ENDPOINT)
                return
        self._next = (self._next + 1) % len(self._managers)
        self._rest()
        log.debug("nobody tells where the monitor is: %s", answer)

    def _rest(self) -> None:
        self._rests_until = self._reactor.now() + self._pause * (0.5 + self._chance() / 2)
        self._pause = min(2 * self._pause, PAUSE_MAX_SECONDS)


def _usable(endpoint: str) -> bool:
    return endpoint.startswith("tcp://") and len(endpoint) <= 300 and endpoint.isprintable()
