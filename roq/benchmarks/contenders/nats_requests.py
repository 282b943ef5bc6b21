"""Requests of NATS core with nats-py: `request()` and `respond()`; nothing is stored."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Final

from roq.benchmarks.case import Run
from roq.benchmarks.clients import paced_async
from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS
from roq.benchmarks.contenders.nats_core import NatsClient

if TYPE_CHECKING:
    from nats.aio.msg import Msg

MODULE: Final = "nats_requests"
SUBJECT: Final = "bench.echo"


class NatsRequester(NatsClient):
    """The asking side.

    Attributes:
        ack_us: until each response was there, under a light load.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.ack_us: list[float] = []

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Keep as many requests under way as there are payloads."""
        self._runner.run(self._publish(run, payloads))

    def pace(self, run: Run) -> None:
        """Ask at a rate, one after the other."""
        self._runner.run(self._pace(run))

    async def _open(self, run: Run) -> None:
        await super()._open(run)
        answer = await self._client().request(SUBJECT, bytes(run.size), timeout=OPEN_SECONDS)
        assert len(answer.data) == run.size  # noqa: S101 - a broken benchmark must not go unseen

    async def _publish(self, run: Run, payloads: list[bytes]) -> None:
        request, left, size = self._client().request, run.count, 0

        async def ask(payload: bytes) -> None:
            nonlocal left, size
            while left > 0:
                left -= 1
                answer = await request(SUBJECT, payload, timeout=RUN_SECONDS)
                size += len(answer.data)

        async with asyncio.TaskGroup() as group:
            for payload in payloads:
                group.create_task(ask(payload))
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    async def _pace(self, run: Run) -> None:
        self.ack_us = []
        async for payload in paced_async(run):
            began = time.monotonic()
            await self._client().request(SUBJECT, payload, timeout=RUN_SECONDS)
            self.ack_us.append((time.monotonic() - began) * 1e6)


class NatsService:
    """The answering side: an asyncio loop in a thread of its own answers whatever comes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def open(self, run: Run) -> None:  # noqa: ARG002 - it answers whatever comes
        """Serve; the measurements that follow find it."""
        if not self._thread.is_alive():
            self._thread.start()
            asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(OPEN_SECONDS)

    def receive(self, run: Run) -> None:
        """Nothing: it answers anyway."""

    def ages(self, run: Run) -> list[float]:  # noqa: ARG002 - nothing is measured here
        """Nothing: it answers anyway."""
        return []

    def close(self) -> None:
        """Nothing: it serves until its process ends."""

    async def _serve(self) -> None:
        import nats  # noqa: PLC0415 - only in the process that uses it

        connection = await nats.connect(self._url)
        await connection.subscribe(SUBJECT, cb=_respond)
        await connection.flush()


async def _respond(message: Msg) -> None:
    await message.respond(message.data)


def publisher(style: str, options: dict[str, str]) -> NatsRequester:  # noqa: ARG001
    """The asking side."""
    return NatsRequester(options["url"])


def subscriber(style: str, options: dict[str, str]) -> NatsService:  # noqa: ARG001
    """The answering side."""
    return NatsService(options["url"])
