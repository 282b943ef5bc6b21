"""Requests of NATS core with nats-py: `request()` and `respond()`; nothing is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roq.benchmarks.case import Run
from roq.benchmarks.clients import AsyncAnswering
from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS
from roq.benchmarks.contenders.nats_core import NatsClient

if TYPE_CHECKING:
    from nats.aio.msg import Msg

MODULE: Final = "nats_requests"
SUBJECT: Final = "bench.echo"


class NatsRequester(NatsClient):
    """The asking side."""

    async def _open(self, run: Run) -> None:
        await super()._open(run)
        answer = await self._client().request(SUBJECT, bytes(run.size), timeout=OPEN_SECONDS)
        assert len(answer.data) == run.size  # noqa: S101 - a broken benchmark must not go unseen

    async def _publish(self, run: Run, payloads: list[bytes]) -> None:
        await self._asked(run, payloads, self._ask)

    async def _pace(self, run: Run) -> None:
        await self._timed(run, self._ask)

    async def _ask(self, payload: bytes) -> bytes:
        answer = await self._client().request(SUBJECT, payload, timeout=RUN_SECONDS)
        return answer.data


class NatsService(AsyncAnswering):
    """The answering side."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

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
