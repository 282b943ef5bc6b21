"""Exchanges that answer what clients ask all of them, on paper. No test in here."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec

from roq.client.io.engine import Engine
from roq.model import Limits
from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.public_answers import QueueDescription

QUEUE = b"q" * 16
Answer = Callable[[list[bytes]], list[bytes]]


class Timer:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Connection:
    def __init__(self, answer: Answer | None, on_answers: Callable[..., None], log: list[str]):
        self.trouble = "" if answer is not None else "refused by the system"
        self._answer, self._on_answers, self._log = answer, on_answers, log

    def ask(self, frames: list[bytes]) -> None:
        if self._answer is not None:
            self._on_answers([self._answer(frames)])

    def close(self, _farewells: object) -> None:
        self._log.append("closed")


class PaperEngine:
    """Exchanges by address; the time of a question is over as soon as all were asked."""

    def __init__(self, **exchanges: Answer | None) -> None:
        self.answers = exchanges
        self.log: list[str] = []
        self.timers: list[Callable[[], None]] = []
        self.reactor = self.exchanges = self

    def call_soon(self, function: Callable[[], None]) -> None:
        function()
        for up in self.ups:
            up()
        for timer in self.timers:
            timer()

    def call_later(self, _seconds: float, function: Callable[[], None]) -> Timer:
        self.timers.append(function)
        self.ups: list[Callable[[], None]] = []
        return Timer()

    def open(
        self, address: str, *, on_up: Callable[[], None], on_down: object,
        on_answers: Callable[..., None],
    ) -> Connection:  # fmt: skip
        del on_down
        self.ups.append(on_up)
        return Connection(self.answers[address], on_answers, self.log)

    def translate(self, address: str) -> str:
        return address

    @property
    def real(self) -> Engine:
        return cast("Engine", self)


def queue(*exchanges: str, away: str = "", running: bool = True) -> QueueDescription:
    def row(name: str, *, data: str) -> dict[str, object]:
        return {
            "Name": name, "Number": int(name[1:]), "Host": "h", "Data": data, "Live": data,
            "State": "running" if data else "away", "Epoch": 1, "Pid": 1,
        }  # fmt: skip

    rows = [row(name, data=name) for name in exchanges]
    document = {
        "Name": "orders", "Host": "h", "State": "running", "Running": running, "Monitor": "",
        "Durability": "none", "Statistics": "", "Created": 0.0, "QueueId": QUEUE.hex(),
        "Limits": msgspec.to_builtins(Limits()), "Rules": {},
        "Exchanges": rows + ([row(away, data="")] if away else []),
    }  # fmt: skip
    return msgspec.convert(document, QueueDescription)


def refuses(code: str) -> Answer:
    return lambda _: [REFUSED, documents.encode(Refused(code=code, text="no"))]
