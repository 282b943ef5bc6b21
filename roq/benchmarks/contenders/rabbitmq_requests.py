"""Requests of RabbitMQ with aio-pika: direct reply-to, which needs no queue for replies.

Requests go through a classic queue in memory; nothing is repeated, and an answer is kept by nobody.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Final

from roq.benchmarks.case import Run
from roq.benchmarks.clients import AsyncAnswering, AsyncClient
from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

MODULE: Final = "rabbitmq_requests"
QUEUE: Final = "bench.echo"
REPLY_TO: Final = "amq.rabbitmq.reply-to"
"""What a broker takes for the connection that a request came from."""


class RabbitRequester(AsyncClient):
    """The asking side."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Future[bytes]] = {}

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
        await self._asked(run, payloads, self._ask)

    async def _pace(self, run: Run) -> None:
        await self._timed(run, self._ask)

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


class RabbitService(AsyncAnswering):
    """The answering side."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._channel: AbstractChannel | None = None

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
