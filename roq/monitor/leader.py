"""Questions to the leading configuration manager, wherever it is at the moment."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import zmq

from roq.errors import Unavailable
from roq.protocol.control import NOT_LEADER, Answer, Control, Failure
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import RpcClient

REDIRECTS_MAX: Final = 3
"""Of one question: two managers may name each other for a moment."""
PENDING_MAX: Final = 64

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

    What is open when the leader changes is asked again there: all questions of a monitor may be.
    """

    def __init__(self, reactor: Reactor, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._reactor = reactor
        self._context = context
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

    def ask(self, message: Control, seconds: float, done: Done) -> None:
        """Ask; `done` is called once, in the loop, with the answer or an `Unavailable`.

        Args:
            message: the question; its `id` is replaced.
            seconds: until `Unavailable`.
            done: gets the answer.
        """
        question = _Question(message, self._reactor.now() + seconds, done)
        if self._client is None or len(self._open) >= PENDING_MAX:
            reason = "too many questions are open" if self._client else "nobody is known to lead"
            self._reactor.call_soon(lambda: done(Unavailable(reason)))
            return
        self._open.append(question)
        self._send(question)

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
        if isinstance(answer, Unavailable):
            self._told = ""  # the next word of the host manager counts, even if it is the same
        self._finish(question, answer)

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
