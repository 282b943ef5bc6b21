"""NATS JetStream with a file store and nats-py: each message is acknowledged by the server.

nats-py waits for the acknowledgement of each publish; as many as RoQ's batch holds messages are
under way at once. The server syncs its files every two minutes, or, where it can, after each write.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roq.benchmarks.case import Run
from roq.benchmarks.clients import parts
from roq.benchmarks.contenders import nats_core
from roq.benchmarks.contenders.nats_core import NatsClient, NatsServer

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

MODULE: Final = "jetstream"
ACK_SECONDS: Final = 30.0
DURABLE: Final = "bench"
ALWAYS_SINCE: Final = (2, 10)
"""The first version of nats-server that can sync after each write."""


class JetStreamServer(NatsServer):
    """A nats-server with a store; `always`: it syncs after each write."""

    def __init__(self, *, always: bool) -> None:
        super().__init__()
        self._always = always

    def settings(self, home: Path) -> str:
        """The store beside what every server is told."""
        sync = "  sync_interval: always\n" if self._always else ""
        return f'jetstream {{\n  store_dir: "{home / "store"}"\n{sync}}}\n'


class JetStreamPublisher(NatsClient):
    """The sending side; it waits for acknowledgements, of a list of publishes at a time."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._context: JetStreamContext | None = None

    async def _open(self, run: Run) -> None:
        await super()._open(run)
        self._context = self._client().jetstream()
        await self._context.add_stream(name=_stream(run), subjects=[run.topic.rstrip(".")])

    async def _publish(self, run: Run, payloads: list[bytes]) -> None:
        context, subject = self._streams(), run.topic.rstrip(".")
        for part in parts(run, payloads):
            async with asyncio.TaskGroup() as group:
                for payload in part:
                    group.create_task(context.publish(subject, payload, timeout=ACK_SECONDS))

    async def _pace(self, run: Run) -> None:
        context, subject = self._streams(), run.topic.rstrip(".")
        await self._timed(run, partial(context.publish, subject, timeout=ACK_SECONDS))

    def _streams(self) -> JetStreamContext:
        assert self._context is not None  # noqa: S101 - the harness opens first
        return self._context


class JetStreamConsumer(NatsClient):
    """A durable pull consumer: it acknowledges each message, and waits for the last flush."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._pull: JetStreamContext.PullSubscription | None = None

    async def _open(self, run: Run) -> None:
        await super()._open(run)
        context, subject = self._client().jetstream(), run.topic.rstrip(".")
        await context.add_stream(name=_stream(run), subjects=[subject])
        self._pull = await context.pull_subscribe(subject, durable=DURABLE)

    async def _receive(self, run: Run) -> None:
        received, size = 0, 0
        while received < run.count:
            for message in await self._fetch(min(run.batch, run.count - received)):
                size += len(message.data)
                received += 1
                await message.ack()
        await self._client().flush()
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    async def _ages(self, run: Run) -> list[float]:
        took = list[float]()
        while len(took) < run.count:
            for message in await self._fetch(1):
                began = time.monotonic()
                await message.ack_sync(timeout=ACK_SECONDS)
                took.append((time.monotonic() - began) * 1e6)
        return took

    async def _fetch(self, most: int) -> list[Msg]:
        assert self._pull is not None  # noqa: S101 - the harness opens first
        return await self._pull.fetch(most, timeout=ACK_SECONDS)


def _stream(run: Run) -> str:
    return run.topic.rstrip(".").replace(".", "-")


def publisher(style: str, options: dict[str, str]) -> JetStreamPublisher:  # noqa: ARG001
    """The sending side."""
    return JetStreamPublisher(options["url"])


def subscriber(style: str, options: dict[str, str]) -> JetStreamConsumer:  # noqa: ARG001
    """The receiving side: a durable pull consumer."""
    return JetStreamConsumer(options["url"])


def missing(*, always: bool) -> str | None:
    """Why this contender cannot run here."""
    reason = nats_core.missing()
    if reason is not None or not always:
        return reason
    told = subprocess.run(
        [str(shutil.which("nats-server")), "--version"], capture_output=True, text=True, check=False
    ).stdout.strip()
    number = told.rpartition("v")[2].split(".")
    if tuple(int(part) for part in number[:2] if part.isdigit()) < ALWAYS_SINCE:
        return f"{told} cannot sync after each write; 2.10 can"
    return None
