"""Connections of a client to exchanges, on paper. No test in here."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from roq.model import ExchangeInfo
from roq.protocol.control import Topology


class PaperConnections:
    """Of one engine, and that engine; by address what is open, and what was asked there."""

    def __init__(self) -> None:
        self.open_at: list[str] = []
        self.asked: list[list[bytes]] = []
        self.said_last: list[list[bytes]] = []
        self.ups: list[Callable[[], None]] = []
        self.downs: list[Callable[[], None]] = []
        self.answers: list[Callable[[list[list[bytes]]], None]] = []
        self.trouble = ""
        self.now = 0.0

    @property
    def engine(self) -> Any:
        return SimpleNamespace(
            exchanges=self, translate=str, reactor=SimpleNamespace(now=lambda: self.now)
        )

    def open(
        self, address: str, *, on_up: Callable[[], None], on_down: Callable[[], None],
        on_answers: Callable[[list[list[bytes]]], None], **_: Any,
    ) -> Any:  # fmt: skip
        self.open_at.append(address)
        self.ups.append(on_up)
        self.downs.append(on_down)
        self.answers.append(on_answers)

        def close(farewells: list[list[bytes]]) -> None:
            self.said_last += farewells
            self.open_at.remove(address)

        return SimpleNamespace(ask=self.asked.append, close=close, trouble=self.trouble)


def topology(
    *data: str, logs: list[int] | None = None, number: int = 1, generation: int = 1
) -> Topology:
    """Exchanges with these addresses, numbered from `number` on."""
    exchanges = [
        ExchangeInfo(
            number=each, epoch=generation, generation=generation, host="h", data=address, live="l"
        )
        for each, address in enumerate(data, number)
    ]
    return Topology(queue_id=b"q" * 16, epoch=1, version=1, exchanges=exchanges, logs=logs or [])
