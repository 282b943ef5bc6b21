"""A NATS of paper, in the place of the library `nats`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any


class PaperNats:
    """Delivers what is published at once, to the callbacks of its subject.

    Attributes:
        published: subject and payload of each message.
        flushed: how many messages had been published at each flush.
    """

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []
        self.flushed: list[int] = []
        self.urls: list[str] = []
        self.limits: dict[str, int] = {}
        self.closed = 0
        self._taken: dict[str, Callable[[Any], Awaitable[None]]] = {}

    async def connect(self, url: str) -> PaperNats:
        self.urls.append(url)
        return self

    async def subscribe(
        self, subject: str, cb: Callable[[Any], Awaitable[None]], **limits: int
    ) -> None:
        self._taken[subject] = cb
        self.limits = limits

    async def publish(self, subject: str, payload: bytes) -> None:
        self.published.append((subject, payload))
        if subject in self._taken:
            await self._taken[subject](SimpleNamespace(data=payload))

    async def request(self, subject: str, payload: bytes, **waits: float) -> Any:
        assert waits["timeout"] > 0
        answers: list[bytes] = []

        async def respond(data: bytes) -> None:
            answers.append(data)

        self.published.append((subject, payload))
        await self._taken[subject](SimpleNamespace(data=payload, respond=respond))
        return SimpleNamespace(data=answers[0])

    async def flush(self) -> None:
        self.flushed.append(len(self.published))

    async def close(self) -> None:
        self.closed += 1
