"""Transactions in an event loop: checks run there, and what was cancelled is undone."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any, cast

from roq.aio.transactions import TransactionalPublisher, asked_in_loop
from roq.client.transact.publisher import OpenTransaction
from roq.protocol.transaction import Decision

ASKED = OpenTransaction("ab" * 8, [], "g", "cd" * 16, datetime(2030, 1, 1, tzinfo=UTC), 1)


def test_a_check_runs_in_the_loop_whether_it_is_a_coroutine_or_not() -> None:
    here = threading.get_ident()

    async def slow(transaction: OpenTransaction) -> Decision:
        assert threading.get_ident() == here
        await asyncio.sleep(0)
        return Decision.COMMIT

    def quick(transaction: OpenTransaction) -> Decision | None:
        assert (threading.get_ident(), transaction) == (here, ASKED)
        return None

    async def scene() -> None:
        assert await asyncio.to_thread(asked_in_loop(slow), ASKED) is Decision.COMMIT
        assert await asyncio.to_thread(asked_in_loop(quick), ASKED) is None

    asyncio.run(scene())


def test_without_its_loop_a_check_says_nothing() -> None:
    async def make() -> Any:
        return asked_in_loop(lambda _: Decision.COMMIT)

    assert asyncio.run(make())(ASKED) is None


class PaperPublisher:
    """Prepares when it is told to."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.begun, self.undone = threading.Event(), threading.Event()

    def prepare_many(self, _messages: Any, *, timeout: float | None) -> PaperPublisher:
        self.begun.set()
        assert self.go_on.wait(20)
        return self

    def rollback(self) -> None:
        self.undone.set()


def test_one_that_nobody_waits_for_any_more_is_rolled_back() -> None:
    paper = PaperPublisher()

    async def scene() -> None:
        publisher = TransactionalPublisher(cast("Any", paper))
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(publisher.prepare(b"1"))
            assert await asyncio.to_thread(paper.begun.wait, 20)
            task.cancel()
        assert task.cancelled()
        paper.go_on.set()
        assert await asyncio.to_thread(paper.undone.wait, 20)

    asyncio.run(scene())
