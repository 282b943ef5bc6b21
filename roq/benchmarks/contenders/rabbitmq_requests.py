"""Requests of RabbitMQ with aio-pika: direct reply-to, which needs no queue for replies.

Requests go through a classic queue in memory; nothing is repeated, and an answer is kept by nobody.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import TYPE_CHECKING, Final

from roq.benchmarks.case import Run
from roq.benchmarks.clients import paced_async
from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

MODULE: Final = "rabbitmq_requests"
QUEUE: Final = "bench.echo"
REPLY_TO: Final = "amq.rabbitmq.reply-to"
"""What a broker takes for the connection that a request came from."""


class RabbitRequester:
    """The asking side.

    Attributes:
        ack_us: until each response was there, under a light load.
    """

    def __init__(self, url: str) -> None:
        self.ack_us: list[float] = []
        self._url = url
        self._runner = asyncio.Runner()
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Future[bytes]] = {}

    def open(self, run: Run) -> None:
        """Connect; the service answers once."""
        self._runner.run(self._open(run))

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Keep as many requests under way as there are payloads."""
        self._runner.run(self._publish(run, payloads))

    def pace(self, run: Run) -> None:
        """Ask at a rate, one after the other."""
        self._runner.run(self._pace(run))

    def close(self) -> None:
        """Disconnect."""
        self._runner.run(self._close())

    async def _open(self, run: Run) -> None:
        import aio_pika  # noqa: PLC0415 - only in the process that uses it

        self._connection = await aio_pika.connect(self._url, timeout=OPEN_SECONDS)
        self._channel = await self._connection.channel(publisher_confirms=False)
        replies = await self._channel.get_queue(REPLY_TO, ensure=False)
        await replies.consume(self._take, no_ack=True)
        assert len(await self._ask(bytes(run.size))) == run.size  # noqa: S101 - must not go unseen

    async def _close(self) -> None:
        assert self._connection is not None  # noqa: S101 - the harness opens first
        await self._connection.close()

    async def _publish(self, run: Run, payloads: list[bytes]) -> None:
        left, size = run.count, 0

        async def ask(payload: bytes) -> None:
            nonlocal left, size
            while left > 0:
                left -= 1
                answer = await self._ask(payload)
                size += len(answer)

        async with asyncio.TaskGroup() as group:
            for payload in payloads:
                group.create_task(ask(payload))
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    async def _pace(self, run: Run) -> None:
        self.ack_us = []
        async for payload in paced_async(run):
            began = time.monotonic()
            await self._ask(payload)
            self.ack_us.append((time.monotonic() - began) * 1e6)

    async def _ask(self, payload: bytes) -> bytes:
        import aio_pika  # noqa: PLC0415 - only in the process that uses it

        assert self._channel is not None  # noqa: S101 - the harness opens first
        number = str(next(self._numbers))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        await self._channel.default_exchange.publish(
            aio_pika.Message(payload, correlation_id=number, reply_to=REPLY_TO), QUEUE,
            mandatory=False,
        )  # fmt: skip
        return await asyncio.wait_for(answer, RUN_SECONDS)

    async def _take(self, message: AbstractIncomingMessage) -> None:
        waiting = self._waiting.pop(str(message.correlation_id), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message.body)


class RabbitService:
    """The answering side: an asyncio loop in a thread of its own answers whatever comes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._channel: AbstractChannel | None = None

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
        import aio_pika  # noqa: PLC0415 - only in the process that uses it

        connection = await aio_pika.connect(self._url, timeout=OPEN_SECONDS)
        self._channel = await connection.channel(publisher_confirms=False)
        queue = await self._channel.declare_queue(QUEUE)
        await queue.consume(self._respond, no_ack=True)

    async def _respond(self, message: AbstractIncomingMessage) -> None:
        import aio_pika  # noqa: PLC0415 - only in the process that uses it

        assert self._channel is not None  # noqa: S101 - it is what the message has come by
        answer = aio_pika.Message(message.body, correlation_id=message.correlation_id)
        # A reply that is mandatory comes back as if nobody had taken it.
        await self._channel.default_exchange.publish(answer, str(message.reply_to), mandatory=False)


def publisher(style: str, options: dict[str, str]) -> RabbitRequester:  # noqa: ARG001
    """The asking side."""
    return RabbitRequester(options["url"])


def subscriber(style: str, options: dict[str, str]) -> RabbitService:  # noqa: ARG001
    """The answering side."""
    return RabbitService(options["url"])
