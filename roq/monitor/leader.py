"""Questions to the leading configuration manager, wherever it is at the moment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import zmq

from roq.errors import Unavailable
from roq.protocol.control import NOT_LEADER, Answer, Control, Failure
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import RpcClient

REDIRECTS_MAX: Final = 3
"""Of one question: two managers may name each other for a moment."""
PENDING_MAX: Final = 4_096

log = logging.getLogger(__name__)

Done = Callable[[Answer | Unavailable], None]


@dataclass(slots=True, eq=False)
class _Question:
    message: Control
    deadline: float
    done: Done
    redirects: int = 0


class LeaderClient:
    """Asks one manager after another until one leads; each question has its own deadline.

    What is open when the leader changes is asked again there: all questions of monitors may be.

    Args:
        managers: client addresses of managers, for as long as nobody tells who leads, and when
            the one that is said to does not answer.
    """

    def __init__(
        self,
        reactor: Reactor,
        context: zmq.Context[zmq.Socket[bytes]],
        managers: Sequence[str] = (),
    ) -> None:
        self._reactor = reactor
        self._context = context
        self._managers = list(managers)
        self._client: RpcClient | None = None
        self._told = ""
        self._open: list[_Question] = []

    def move(self, endpoint: str) -> None:
        """The leader is said to be there; empty: nobody knows.

        Saying the same again changes nothing: a manager may have named another one since.
        """
        if endpoint and endpoint != self._told:
            self._told = endpoint
            self._connect(endpoint)

    def _try_next(self) -> None:
        """Ask the next of those who may know, or may lead by now."""
        known = [self._told, *self._managers] if self._told else self._managers
        candidates = list(dict.fromkeys(known))
        here = self._client.endpoint if self._client is not None else ""
        after = candidates.index(here) + 1 if here in candidates else 0
        if candidates:
            self._connect(candidates[after % len(candidates)])

    def ask(self, message: Control, seconds: float, done: Done) -> None:
        """Ask; `done` is called once, in the loop, with the answer or an `Unavailable`.

        Args:
            message: the question; its `id` is replaced.
            seconds: until `Unavailable`.
            done: gets the answer.
        """
        question = _Question(message, self._reactor.now() + seconds, done)
        if len(self._open) >= PENDING_MAX:
            self._reactor.call_soon(lambda: done(Unavailable("too many questions are open")))
            return
        self._open.append(question)
        if self._client is not None:
            self._send(question)
            return
        nobody = Unavailable("no configuration manager is known to lead")
        self._reactor.call_later(seconds, lambda: self._finish(question, nobody))
        self._try_next()

    def close(self) -> None:
        """Ask no more; nobody is called any more."""
        self._open.clear()
        if self._client is not None:
            self._client.close()

    def _connect(self, endpoint: str) -> bool:
        """Ask there from now on, also what is open; False if that is so already."""
        if self._client is not None:
            if self._client.endpoint == endpoint:
                return False
            self._client.close()
        log.debug("the leading configuration manager is at %s", endpoint)
        self._client = RpcClient(self._reactor, self._context, endpoint)
        for question in list(self._open):
            self._send(question)
        return True

    def _send(self, question: _Question) -> None:
        left = question.deadline - self._reactor.now()
        if self._client is None or left <= 0:
            self._finish(question, Unavailable("no manager that leads has answered in time"))
            return

        def answered(answer: Answer | Unavailable) -> None:
            self._answered(question, answer)

        self._client.request(question.message, left, answered)

    def _answered(self, question: _Question, answer: Answer | Unavailable) -> None:
        elsewhere = isinstance(answer, Failure) and answer.RESULT == NOT_LEADER
        if isinstance(answer, Failure) and elsewhere and self._may_follow(question, answer):
            question.redirects += 1
            # Closing the client in its own callback would take the socket from under it.
            self._reactor.call_soon(lambda: self._follow(question, answer.ENDPOINT))
            return
        self._finish(question, answer)
        if elsewhere or isinstance(answer, Unavailable):
            asked = self._client
            self._reactor.call_soon(lambda: self._leave(asked))

    def _leave(self, silent: RpcClient | None) -> None:
        """This one did not answer, or knows nobody who leads."""
        if silent is not None and silent is self._client:
            self._try_next()

    def _may_follow(self, question: _Question, answer: Failure) -> bool:
        return question.redirects < REDIRECTS_MAX and _usable(answer.ENDPOINT)

    def _follow(self, question: _Question, endpoint: str) -> None:
        if question in self._open and not self._connect(endpoint):
            self._send(question)

    def _finish(self, question: _Question, answer: Answer | Unavailable) -> None:
        if question in self._open:
            self._open.remove(question)
            question.done(answer)


def _usable(endpoint: str) -> bool:
    return endpoint.startswith("tcp://") and len(endpoint) <= 300 and endpoint.isprintable()
