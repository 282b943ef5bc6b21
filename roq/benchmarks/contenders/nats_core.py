"""NATS core with nats-py: no acknowledgement, no store; the server is nats-server (Go).

nats-py sends message by message (its own buffer joins them for the socket); there is no batch call.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roq.benchmarks.case import Run
from roq.benchmarks.clients import AsyncClient, age_us, paced_async, parts
from roq.benchmarks.contender import Contender, ProgramServer

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

MODULE: Final = "nats_core"
# Large enough that the server never takes a subscriber for too slow: then nothing is lost.
PENDING_BYTES: Final = 1 << 30


class NatsServer(ProgramServer):
    """A nats-server on a port that it chooses itself."""

    def __init__(self) -> None:
        super().__init__("nats-server")

    def start(self, directory: Path) -> None:
        """Start it and read the file in which it writes down its port."""
        home = directory / "nats"
        home.mkdir(exist_ok=True)
        configuration = home / "nats.conf"
        configuration.write_text(
            f'listen: "127.0.0.1:-1"\nports_file_dir: "{home}"\n'
            f'max_pending: {PENDING_BYTES}\nwrite_deadline: "60s"\n{self.settings(home)}'
        )
        command = [str(shutil.which("nats-server")), "-c", str(configuration)]
        program = self._run(command, directory / "nats-server.log")
        ports = home / f"nats-server_{program.pid}.ports"

        def serves() -> bool:
            with suppress(OSError, ValueError):
                self._options = {"url": json.loads(ports.read_text())["nats"][0]}
                return True
            return False

        self._await(serves)

    def settings(self, home: Path) -> str:  # noqa: ARG002 - a store needs it
        """What else stands in its configuration."""
        return ""


class NatsClient(AsyncClient):
    """A connection and the loop in which it lives."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._connection: Client | None = None

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

    async def _publish(self, run: Run, payloads: list[bytes]) -> None:
        client, topic = self._client(), run.topic.rstrip(".")
        publish = client.publish
        for part in parts(run, payloads):
            for payload in part:
                await publish(topic, payload)
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
        self._ages_us: list[float] = []

    async def _open(self, run: Run) -> None:
        await super()._open(run)
        self._done, self._left, self._size, self._ages_us = asyncio.Event(), run.count, 0, []
        self._subscription = await self._client().subscribe(
            run.topic.rstrip("."),
            cb=self._on_stamped if run.rate else self._on_message,
            pending_msgs_limit=-1,
            pending_bytes_limit=-1,
        )
        await self._client().flush()

    async def _receive(self, run: Run) -> None:
        await self._done.wait()
        assert self._size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    async def _ages(self, run: Run) -> list[float]:
        await self._receive(run)
        return self._ages_us

    async def _on_message(self, message: Msg) -> None:
        self._size += len(message.data)
        self._left -= 1
        if not self._left:
            self._done.set()

    async def _on_stamped(self, message: Msg) -> None:
        self._ages_us.append(age_us(message.data))
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
