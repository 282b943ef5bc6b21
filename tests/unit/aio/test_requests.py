"""Callbacks of requests in an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

import roq.aio
from roq.aio.requests import Pending
from roq.client.request import pending as sync_pending
from roq.client.request.endpoint import endpoint
from roq.protocol.requesting import RequestEnd, RequestState

ECHO = endpoint("s.echo", request=bytes, response=bytes)
END = RequestEnd(3, 1, RequestState.DONE, b"v")


class Waits:
    """Notes what is confirmed; nothing may wait in the thread for callbacks."""

    def __init__(self) -> None:
        self.confirmed = asyncio.Event()

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        return condition()

    def later(self, call: Callable[[], object]) -> None:
        raise AssertionError("an event loop calls its own callbacks")

    def confirm(self, pending: sync_pending.Pending[Any]) -> None:
        self.confirmed.set()

    def cancel(self, pending: sync_pending.Pending[Any], *, late: bool = False) -> None: ...

    def let_go(self, pending: sync_pending.Pending[Any]) -> None: ...


def made() -> tuple[Pending[bytes], sync_pending.Pending[bytes], Waits]:
    waits = Waits()
    of_client = sync_pending.Pending(waits, "work", ECHO)
    return Pending(of_client), of_client, waits


def test_a_callback_that_waits_holds_up_no_other_and_is_confirmed_when_it_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play() -> None:
        pending, of_client, waits = made()
        gate, called = asyncio.Event(), list[bytes]()
        seen = asyncio.Event()

        async def waiting(done: roq.aio.Pending[bytes]) -> None:
            await gate.wait()
            called.append(await done.result())

        def plain(done: roq.aio.Pending[bytes]) -> None:
            seen.set()
            raise ZeroDivisionError

        pending.on_done(waiting)
        pending.on_done(plain)
        await asyncio.to_thread(of_client.settle, END)
        async with asyncio.timeout(20):
            await seen.wait()
            assert not waits.confirmed.is_set()
            gate.set()
            await waits.confirmed.wait()
        assert called == [b"v"]

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    assert "ZeroDivisionError" in caplog.text


def test_a_loop_that_is_gone_neither_raises_nor_confirms() -> None:
    async def register() -> tuple[sync_pending.Pending[bytes], Waits]:
        pending, of_client, waits = made()

        async def callback(_: object) -> None: ...

        pending.on_done(callback)
        return of_client, waits

    of_client, waits = asyncio.run(register())
    assert of_client.settle(END)
    assert not waits.confirmed.is_set()
