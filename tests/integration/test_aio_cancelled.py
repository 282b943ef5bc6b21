"""Whoever is cancelled while something is made leaves nothing of it behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from waiting import eventually

import roq.aio
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

DELAYS = (0.0, 0.001, 0.003, 0.01, 0.03)
"""Seconds until it is cancelled: before, while and after it is made."""


@pytest.fixture
def address(emptied: RunningCluster) -> str:
    with emptied.connect() as connection:
        connection.create_queue("orders")
    return emptied.address


def clients() -> int:
    return sum(thread.name == "roq-client" for thread in threading.enumerate())


def test_connections_that_nobody_waits_for_are_closed(address: str) -> None:
    async def main() -> None:
        for delay in DELAYS:
            try:
                async with asyncio.timeout(delay):
                    connection = await roq.aio.connect(address)
                await connection.close()
            except TimeoutError:
                continue

    before = clients()
    asyncio.run(main())
    eventually(lambda: clients() == before)


def test_publishers_and_subscribers_that_nobody_waits_for_are_closed(address: str) -> None:
    async def main() -> None:
        async with roq.aio.connect(address) as connection:
            makes: tuple[Callable[[str], Awaitable[object]], ...] = (
                connection.publisher,
                connection.subscriber,
            )
            for delay in DELAYS:
                for make in makes:
                    task = asyncio.ensure_future(make("orders"))  # noqa: TID251
                    await asyncio.sleep(delay)
                    task.cancel()
                    await asyncio.wait([task])
                    if not task.cancelled():
                        await task.result().close()  # type: ignore[attr-defined]
            children = connection._sync._children
            deadline = asyncio.get_running_loop().time() + 30
            while any(not child._closed for child in list(children)):  # type: ignore[attr-defined]
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.02)

    asyncio.run(main())
