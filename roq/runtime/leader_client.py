"""Questions to the configuration manager that leads, wherever it is at the moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from roq.errors import Unavailable
from roq.protocol.control import NOT_LEADER, Answer, Control, Failure
from roq.runtime.interfaces import Dialer, Loop, Socket
from roq.runtime.leader_finder import LeaderFinder
from roq.runtime.rpc_connections import RpcConnections

PENDING_MAX: Final = 4_096
AGAIN_SECONDS: Final = 0.25
"""Before managers that could not be reached are tried again."""

Done = Callable[[Answer | Unavailable], None]


@dataclass(slots=True, eq=False)
class _Question:
    message: Control
    deadline: float
    done: Done
    at: str = ""
    """Where it is asked; empty: it waits."""
    rounds: int | None = None
    """Those that were over when it was refused for the first time."""


class LeaderClient:
    """Asks one manager after another until one leads; each question has its own deadline.

    What is open when the leader changes is asked again there, and so is what went to a manager that
    is silent: only questions that may be asked twice belong here.

    Args:
        managers: client addresses of managers, for as long as nobody tells who leads, and when
            the one that is said to does not answer.
    """

    def __init__(
        self,
        loop: Loop,
        dialer: Dialer[Socket],
        managers: Sequence[str] = (),
    ) -> None:
        self._loop = loop
        self._finder = LeaderFinder(managers)
        self._connections = RpcConnections(loop, dialer)
        self._open: list[_Question] = []

    def move(self, endpoint: str) -> None:
        """The leader is said to be there; empty: it is not known.

        Saying the same again changes nothing: a manager may have named another one since.
        """
        if self._finder.told(endpoint):
            self._ask_elsewhere()

    def ask(self, message: Control, seconds: float, done: Done) -> None:
        """Ask; `done` is called once, in the loop.

        Args:
            message: the question; its `id` is replaced.
            seconds: until `Unavailable`.
            done: gets the answer; it is the refusal of the last one if all say that they do not
                lead.
        """
        question = _Question(message, self._loop.now() + seconds, done)
        if len(self._open) >= PENDING_MAX:
            self._loop.call_soon(lambda: done(Unavailable("too many questions are open")))
            return
        self._open.append(question)
        self._send(question)

    def doubt(self) -> None:
        """The last answer was of no help: another manager is asked the next time."""
        self._finder.refused(self._loop.now())

    def close(self) -> None:
        """Ask no more; nobody is called any more."""
        self._open.clear()
        self._connections.close()

    def _send(self, question: _Question) -> None:
        now = self._loop.now()
        left = question.deadline - now
        at = question.at = self._finder.ask(now)
        if at and left > 0:
            self._connections.ask(
                at, question.message, left, lambda answer: self._answered(question, at, answer)
            )
            return
        late = "no manager that leads has answered in time"
        why = Unavailable(late if at else "no configuration manager is known to lead")
        self._loop.call_later(left, lambda: self._finish(question, why))

    def _answered(self, question: _Question, at: str, answer: Answer | Unavailable) -> None:
        if question not in self._open or question.at != at:
            return  # it was asked elsewhere meanwhile
        if isinstance(answer, Failure) and answer.RESULT == NOT_LEADER:
            self._refused(question, answer)
        elif isinstance(answer, Unavailable):
            self._silent(question, answer)
        else:
            if at == self._finder.address:
                self._finder.found()
            self._finish(question, answer)

    def _refused(self, question: _Question, refusal: Failure) -> None:
        finder = self._finder
        if question.rounds is None:
            question.rounds = finder.rounds
        if question.at == finder.address:
            finder.refused(self._loop.now(), refusal.ENDPOINT)
        if finder.rounds == question.rounds:
            self._send(question)
        else:
            self._finish(question, refusal)

    def _silent(self, question: _Question, silence: Unavailable) -> None:
        now = self._loop.now()
        others = question.at != self._finder.address or self._finder.silent(now)
        if now >= question.deadline:
            self._finish(question, silence)
            self._ask_elsewhere()
        else:
            question.at = ""
            self._loop.call_later(0.0 if others else AGAIN_SECONDS, lambda: self._again(question))

    def _again(self, question: _Question) -> None:
        if question in self._open and not question.at:
            self._send(question)

    def _ask_elsewhere(self) -> None:
        for question in list(self._open):
            if question.at != self._finder.address:
                self._send(question)

    def _finish(self, question: _Question, answer: Answer | Unavailable) -> None:
        if question in self._open:
            self._open.remove(question)
            question.done(answer)
