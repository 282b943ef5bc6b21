"""One question to every exchange of a queue, all at once: who has answered in time, and who not."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

import msgspec

from roq.client.io.engine import Engine, wait_result
from roq.client.io.exchange_connections import ExchangeConnection
from roq.errors import QueueStopped
from roq.protocol import documents
from roq.protocol.public_answers import QueueDescription
from roq.runtime.interfaces import Timer


@dataclass(frozen=True, slots=True)
class Answers:
    """What exchanges have answered.

    Attributes:
        letters: by name of the exchange, the parts of the answer.
        missing: those that have not answered in time, and what is known of that.
    """

    letters: dict[str, list[bytes]]
    missing: dict[str, str]


class _Round:
    """One question to several exchanges. I/O thread only, but for `future`."""

    def __init__(self, engine: Engine, frames: list[bytes], seconds: float) -> None:
        self.future: Future[Answers] = Future()
        self._engine = engine
        self._frames = frames
        self._seconds = seconds
        self._connections: dict[str, ExchangeConnection] = {}
        self._letters: dict[str, list[bytes]] = {}
        self._timer: Timer | None = None

    def begin(self, exchanges: Mapping[str, str]) -> None:
        """Ask them; the future has the answers when all are there, or the time is over."""
        self._timer = self._engine.reactor.call_later(self._seconds, self._finish)
        for name, address in exchanges.items():
            self._ask(name, address)
        if not exchanges:
            self._finish()

    def _ask(self, name: str, address: str) -> None:
        def up() -> None:
            self._connections[name].ask(self._frames)

        def take(answers: list[list[bytes]]) -> None:
            self._letters[name] = answers[0]
            if len(self._letters) == len(self._connections):
                self._finish()

        self._connections[name] = self._engine.exchanges.open(
            self._engine.translate(address), on_up=up, on_down=lambda: None, on_answers=take
        )

    def _finish(self) -> None:
        if self.future.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        missing = {
            name: connection.trouble or f"it has not answered within {self._seconds:g} s"
            for name, connection in self._connections.items()
            if name not in self._letters
        }
        for connection in self._connections.values():
            connection.close([])
        self.future.set_result(Answers(self._letters, missing))


def ask_all(
    engine: Engine, queue: QueueDescription, letter: bytes, request: msgspec.Struct, seconds: float
) -> Answers:
    """Ask every exchange of a queue the same, and wait for the answers.

    Raises:
        QueueStopped: the queue does not run.
        Closed: the client is closed.
    """
    if not queue.running:
        raise QueueStopped(f"queue {queue.name} is stopped, and its groups with it: start it first")
    running = {each.name: each.data for each in queue.exchanges if each.data}
    asking = _Round(engine, [letter, documents.encode(request)], seconds)
    engine.call_soon(lambda: asking.begin(running))
    answers = wait_result(asking.future, seconds)
    away = {
        each.name: f"it is {each.state}" + (f", {each.reason}" if each.reason else "")
        for each in queue.exchanges
        if not each.data
    }
    return Answers(answers.letters, answers.missing | away)


def told(missing: Mapping[str, str]) -> str:
    """Exchanges that have not answered, and why."""
    return "; ".join(f"exchange {name}: {why}" for name, why in sorted(missing.items()))
