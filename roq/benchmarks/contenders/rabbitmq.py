"""RabbitMQ with aio-pika: quorum queues and streams, each publish confirmed by the broker.

As many publishes as RoQ's batch holds messages are under way at once. A quorum queue of one node
confirms what is synced to its disk, a stream what is written: it leaves syncing to the system.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roq.benchmarks.case import Case, Run
from roq.benchmarks.clients import AsyncClient, parts
from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS, until_serves
from roq.benchmarks.processes import Program, answers, free_port

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractQueue

MODULE: Final = "rabbitmq"
QUORUM: Final = "quorum"
STREAM: Final = "stream"
PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Itself: the one of that name in the PATH changes the user."""


class RabbitServer:
    """A broker of one node, with a port mapper of its own, so that none is left behind."""

    def __init__(self) -> None:
        self._programs: list[Program] = []
        self._port = 0

    def start(self, directory: Path) -> None:
        """Start both, and wait until the broker serves."""
        home = directory / "rabbitmq"
        home.mkdir()
        (home / "rabbitmq.conf").touch()
        (home / "enabled_plugins").write_text("[].\n")
        self._port, distribution, mapper = free_port(), free_port(), free_port()
        shared = {
            "HOME": str(home), "ERL_EPMD_PORT": str(mapper), "ERL_EPMD_ADDRESS": "127.0.0.1",
        }  # fmt: skip
        node = {
            "RABBITMQ_NODENAME": f"roq-bench-{self._port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(home / "db"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
        }
        log = directory / "rabbitmq.log"
        # A broker that does not find its port mapper starts one that stays.
        self._run([str(shutil.which("epmd"))], log, shared, mapper)
        self._run([str(PROGRAM)], log, shared | node, self._port)

    def _run(self, argv: list[str], log: Path, env: dict[str, str], port: int) -> None:
        program = Program(argv, log, env=env)
        self._programs.append(program)
        until_serves("RabbitMQ", program, lambda: answers(port))

    def stop(self) -> None:
        """Stop both."""
        while self._programs:
            self._programs.pop().stop()

    def options(self, case: Case) -> dict[str, str]:  # noqa: ARG002 - the same for all
        """Its address."""
        return {"url": f"amqp://guest:guest@127.0.0.1:{self._port}/"}

    def processes(self, case: Case) -> dict[str, int]:  # noqa: ARG002 - the same for all
        """The broker."""
        return {"exchange": self._programs[-1].pid} if self._programs else {}


class RabbitClient(AsyncClient):
    """A connection with a channel, and the loop in which they live.

    Args:
        url: of the broker.
        kind: of its queues.
        prefetch: messages that the broker sends before the first of them is acknowledged; 0: all.
    """

    def __init__(self, url: str, kind: str = QUORUM, prefetch: int = 0) -> None:
        super().__init__()
        self._url = url
        self._kind = kind
        self._prefetch = prefetch
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._queue: AbstractQueue | None = None

    async def _open(self, run: Run) -> None:
        import aio_pika  # noqa: PLC0415 - only in the process that uses it

        self._connection = await aio_pika.connect(self._url, timeout=OPEN_SECONDS)
        self._channel = await self._connection.channel(publisher_confirms=True)
        if self._prefetch:
            await self._channel.set_qos(prefetch_count=self._prefetch)
        self._queue = await self._channel.declare_queue(
            run.topic.rstrip("."), durable=True, arguments={"x-queue-type": self._kind}
        )

    async def _close(self) -> None:
        assert self._connection is not None  # noqa: S101 - the harness opens first
        await self._connection.close()


class RabbitPublisher(RabbitClient):
    """The sending side; it waits for confirmations, of a list of publishes at a time."""

    async def _publish(self, run: Run, payloads: list[bytes]) -> None:
        for part in parts(run, payloads):
            async with asyncio.TaskGroup() as group:
                for payload in part:
                    group.create_task(self._send(run, payload))

    async def _pace(self, run: Run) -> None:
        await self._timed(run, partial(self._send, run))

    async def _send(self, run: Run, payload: bytes) -> None:
        import aio_pika  # noqa: PLC0415 - only in the process that uses it

        assert self._channel is not None  # noqa: S101 - the harness opens first
        await self._channel.default_exchange.publish(
            aio_pika.Message(payload, delivery_mode=aio_pika.DeliveryMode.PERSISTENT),
            run.topic.rstrip("."),
            timeout=RUN_SECONDS,
        )


class RabbitConsumer(RabbitClient):
    """A consumer of a quorum queue that acknowledges each message."""

    async def _ages(self, run: Run) -> list[float]:
        """Nothing: the broker does not confirm acknowledgements."""
        await self._receive(run)
        return []

    async def _receive(self, run: Run) -> None:
        assert self._queue is not None  # noqa: S101 - the harness opens first
        received, size = 0, 0
        async with self._queue.iterator(timeout=RUN_SECONDS) as messages:
            async for message in messages:
                size += len(message.body)
                received += 1
                await message.ack()
                if received == run.count:
                    break
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen


def publisher(style: str, options: dict[str, str]) -> RabbitPublisher:
    """The sending side, to a queue of the kind that the style names."""
    return RabbitPublisher(options["url"], STREAM if style == STREAM else QUORUM)


def subscriber(style: str, options: dict[str, str]) -> RabbitConsumer:
    """The receiving side; the style is how many messages it may hold."""
    return RabbitConsumer(options["url"], QUORUM, int(style))


def missing() -> str | None:
    """Why this contender cannot run here."""
    if not PROGRAM.exists() or shutil.which("epmd") is None:
        return "RabbitMQ is not installed (Debian: apt-get install rabbitmq-server)"
    if importlib.util.find_spec("aio_pika") is None:
        return "aio-pika is not installed (pip install 'roq-cluster[bench]')"
    return None
