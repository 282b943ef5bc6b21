"""Callbacks of requests in an event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

import roq.aio
from roq.aio.requests import Pending, PendingMany, Service
from roq.client.request import many as sync_many
from roq.client.request import pending as sync_pending
from roq.client.request.endpoint import endpoint
from roq.client.request.requester import Making
from roq.protocol.requesting import RequestEnd, RequestState

ECHO = endpoint("s.echo", request=bytes, response=bytes)
END = RequestEnd(3, 1, RequestState.DONE, b"v")


class Waits:
    """Notes what is confirmed; nothing may wait in the thread for callbacks."""

    def __init__(self) -> None:
        self.confirmed = asyncio.Event()

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        return condition()

    def check_process(self) -> None: ...

    def later(self, call: Callable[[], object]) -> None:
        raise AssertionError("an event loop calls its own callbacks")

    def confirm(self, pending: sync_pending.Pending[Any]) -> None:
        self.confirmed.set()

    def cancel(self, pending: sync_pending.Pending[Any], *, late: bool = False) -> None: ...

    def let_go(self, pending: sync_pending.Pending[Any]) -> None: ...

    def ring(self, rings: Sequence[Callable[[], None]]) -> None:
        for ring in rings:
            ring()


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


def test_many_that_do_not_end_in_time_say_how_long_that_was() -> None:
    async def play() -> None:
        many = PendingMany(sync_many.PendingMany(Waits(), "work", ECHO, 2))
        with pytest.raises(roq.Unavailable, match=r"to 2 of 2 requests within 0\.05 s"):
            await many.results(0.05)

    asyncio.run(play())


def test_many_that_are_cancelled_while_they_wait_for_room_are_given_up() -> None:
    waits, began, gate = Waits(), threading.Event(), threading.Event()
    many: sync_many.PendingMany[bytes] = sync_many.PendingMany(waits, "work", ECHO, 2)
    made_of_them = iter([1, 0])

    class PaperRequester:
        """Has room for one."""

        def knows(self, _service: str) -> bool:
            return True

        def begin_many(self, *_: object, **__: object) -> Making[bytes]:
            return Making(lambda *_: next(made_of_them), many, [b"a", b"b"])

        def wait_for_room(self) -> None:
            began.set()
            gate.wait(20)

    async def play() -> None:
        requester = roq.aio.Requester(cast("Any", PaperRequester()))
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(requester.request_many(ECHO, [b"a", b"b"]))
                assert await asyncio.to_thread(began.wait, 20)
                task.cancel()
            assert task.cancelled()
        finally:
            gate.set()

    asyncio.run(play())
    assert many.ends[0] is None
    assert "cancelled" in str(many.ends[1]), "when the first has ended, nothing is kept of them"


class Serves:
    """A service that runs until it is stopped."""

    _shell: object = None

    def __init__(self) -> None:
        self.began, self.ended, self.drained = threading.Event(), threading.Event(), False

    def start(self, loop: asyncio.AbstractEventLoop) -> None: ...

    def wait_stopped(self) -> None:
        self.began.set()
        assert self.ended.wait(30)

    def stop(self) -> None:
        self.ended.set()

    def drain(self) -> None:
        self.drained = True


def test_sigterm_drains_all_services_of_a_loop() -> None:
    async def play() -> None:
        both = [Serves(), Serves()]
        async with asyncio.TaskGroup() as running:
            for each in both:
                running.create_task(Service(cast("Any", each)).run())
            for each in both:
                assert await asyncio.to_thread(each.began.wait, 30)
            os.kill(os.getpid(), signal.SIGTERM)
        assert all(each.drained for each in both)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    asyncio.run(play())


def test_a_program_that_handles_sigterm_itself_goes_on_doing_so() -> None:
    told: list[int] = []

    async def play() -> None:
        service = Serves()
        async with asyncio.TaskGroup() as running:
            running.create_task(Service(cast("Any", service)).run())
            assert await asyncio.to_thread(service.began.wait, 30)
            os.kill(os.getpid(), signal.SIGTERM)
            assert told == [signal.SIGTERM]
            assert not service.ended.is_set()
            service.stop()

    before = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    try:
        asyncio.run(play())
    finally:
        signal.signal(signal.SIGTERM, before)
