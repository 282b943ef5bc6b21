"""NATS core with nats-py: no acknowledgement, no store; the server is nats-server (Go).

nats-py sends message by message (its own buffer joins them for the socket); there is no batch call.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roq.benchmarks.case import Case, Run
from roq.benchmarks.clients import age_us, paced_async
from roq.benchmarks.contender import OPEN_SECONDS, Contender
from roq.benchmarks.processes import BenchmarkError, Program

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

MODULE: Final = "nats_core"
# Large enough that the server never takes a subscriber for too slow: then nothing is lost.
PENDING_BYTES: Final = 1 << 30


class NatsServer:
    """A nats-server on a port that it chooses itself."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._url = ""

    def start(self, directory: Path) -> None:
        """Start it and read the file in which it writes down its port."""
        home = directory / "nats"
        home.mkdir(exist_ok=True)
        configuration = home / "nats.conf"
        configuration.write_text(
            f'listen: "127.0.0.1:-1"\nports_file_dir: "{home}"\n'
            f'max_pending: {PENDING_BYTES}\nwrite_deadline: "60s"\n{self.settings(home)}'
        )
        self._program = Program(
            [str(shutil.which("nats-server")), "-c", str(configuration)],
            directory / "nats-server.log",
        )
        ports = home / f"nats-server_{self._program.pid}.ports"
        deadline = time.monotonic() + OPEN_SECONDS
        while not self._url:
            if time.monotonic() > deadline or not self._program.alive():
                raise BenchmarkError(f"nats-server does not start: {self._program.log}")
            try:
                self._url = json.loads(ports.read_text())["nats"][0]
            except (OSError, ValueError):
                self._program.wait(0.02)

    def settings(self, home: Path) -> str:  # noqa: ARG002 - a store needs it
        """What else stands in its configuration."""
        return ""

    def stop(self) -> None:
        """Stop it."""
        if self._program is not None:
            self._program.stop()
            self._program, self._url = None, ""

    def options(self, case: Case) -> dict[str, str]:  # noqa: ARG002 - the same for all
        """Its address."""
        return {"url": self._url}

    def processes(self, case: Case) -> dict[str, int]:  # noqa: ARG002 - the same for all
        """The server."""
        return {"exchange": self._program.pid} if self._program else {}


class NatsClient:
    """A connection and the loop in which it lives."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = asyncio.Runner()
        self._connection: Client | None = None

    def open(self, run: Run) -> None:
        """Connect."""
        self._runner.run(self._open(run))

    def close(self) -> None:
        """Disconnect."""
        self._runner.run(self._close())

    async def _open(self, run: Run) -> None:  # noqa: ARG002 - the subscriber needs it
        import nats  # noqa: PLC0415 - only in the process that uses it

        self._connection = await nats.connect(self._url)

    async def _close(self) -> None:
        await self._client().close()

    def _client(self) -> Client:
        assert self._connection is not None  # noqa: S101 - the harness opens first
        return self._connection


class NatsPublisher(NatsClient):
    """The sending side."""

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Publish message by message, flush at the end."""
        self._runner.run(self._publish(run, payloads))

    def pace(self, run: Run) -> None:
        """Publish at a rate."""
        self._runner.run(self._pace(run))

    async def _publish(self, run: Run, payloads: list[bytes]) -> None:
        client, left = self._client(), run.count
        publish, topic = client.publish, run.topic.rstrip(".")
        while left > 0:
            for payload in payloads[:left]:
                await publish(topic, payload)
            left -= len(payloads)
        await client.flush()

    async def _pace(self, run: Run) -> None:
        client, topic = self._client(), run.topic.rstrip(".")
        async for payload in paced_async(run):
            await client.publish(topic, payload)
        await client.flush()


class NatsSubscriber(NatsClient):
    """The receiving side: a callback per message, the fastest that nats-py offers."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._subscription: Subscription | None = None
        self._done = asyncio.Event()
        self._left = 0
        self._size = 0
        self._ages: list[float] = []

    def receive(self, run: Run) -> None:
        """Wait until the callback has seen every message."""
        self._runner.run(self._done.wait())
        assert self._size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    def ages(self, run: Run) -> list[float]:
        """The same, with the ages that the callback noted."""
        self.receive(run)
        return self._ages

    async def _open(self, run: Run) -> None:
        await super()._open(run)
        self._done, self._left, self._size, self._ages = asyncio.Event(), run.count, 0, []
        self._subscription = await self._client().subscribe(
            run.topic.rstrip("."),
            cb=self._on_stamped if run.rate else self._on_message,
            pending_msgs_limit=-1,
            pending_bytes_limit=-1,
        )
        await self._client().flush()

    async def _on_message(self, message: Msg) -> None:
        self._size += len(message.data)
        self._left -= 1
        if not self._left:
            self._done.set()

    async def _on_stamped(self, message: Msg) -> None:
        self._ages.append(age_us(message.data))
        await self._on_message(message)


def publisher(style: str, options: dict[str, str]) -> NatsPublisher:  # noqa: ARG001
    """The sending side."""
    return NatsPublisher(options["url"])


def subscriber(style: str, options: dict[str, str]) -> NatsSubscriber:  # noqa: ARG001
    """The receiving side."""
    return NatsSubscriber(options["url"])


def missing() -> str | None:
    """Why this contender cannot run here."""
    if shutil.which("nats-server") is None:
        return "nats-server is not installed (Debian: apt-get install nats-server)"
    if importlib.util.find_spec("nats") is None:
        return "nats-py is not installed (pip install 'roq-cluster[bench]')"
    return None


def contenders() -> list[Contender]:
    """The one of this module."""
    return [
        Contender(
            "nats_core",
            "NATS core, nats-py",
            kind="nats_core",
            module=MODULE,
            style="",
            server=NatsServer(),
            missing=missing,
        )
    ]
