"""The asyncio side of transactions."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from roq.client.publish.batching import Payload
from roq.client.transact import publisher as sync
from roq.client.transact.publisher import OpenTransaction, TransactionMessage
from roq.errors import RoQError
from roq.protocol.transaction import Decision

Check = Callable[[OpenTransaction], Decision | Awaitable[Decision | None] | None]


class Transaction:
    """As `roq.Transaction`; `async with` commits, and an exception in the block rolls back."""

    def __init__(self, transaction: sync.Transaction) -> None:
        self._sync = transaction

    @property
    def id(self) -> str:
        """By which `roq transaction` knows it; see `roq.Transaction.id`."""
        return self._sync.id

    @property
    def exchange(self) -> str:
        """Which exchange keeps it."""
        return self._sync.exchange

    @property
    def decision(self) -> Decision | None:
        """What was decided here; None: nothing yet."""
        return self._sync.decision

    async def commit(self, timeout: float | None = None) -> None:
        """Have its messages published; see `roq.Transaction.commit`."""
        await asyncio.to_thread(self._sync.commit, timeout)

    async def rollback(self, timeout: float | None = None) -> None:
        """Have its messages never be published; see `roq.Transaction.rollback`."""
        await asyncio.to_thread(self._sync.rollback, timeout)

    def leave_open(self) -> None:
        """Decide nothing; see `roq.Transaction.leave_open`."""
        self._sync.leave_open()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._sync.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return repr(self._sync).replace("<roq.", "<roq.aio.", 1)


class TransactionalPublisher:
    """As `roq.TransactionalPublisher`. Made by `Cluster.transactional_publisher`."""

    def __init__(self, publisher: sync.TransactionalPublisher) -> None:
        self._sync = publisher

    @property
    def queue(self) -> str:
        """Name of the queue."""
        return self._sync.queue

    @property
    def group(self) -> str:
        """The producers that may be asked."""
        return self._sync.group

    @property
    def timeout(self) -> float:
        """Seconds that preparing and ending a transaction may take."""
        return self._sync.timeout

    @property
    def trouble(self) -> str:
        """Why nothing goes on; empty: all is well."""
        return self._sync.trouble

    async def prepare(
        self,
        payload: Payload,
        topic: str = "",
        key: str | None = None,
        tags: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        priority: int = 0,
        timeout: float | None = None,
    ) -> Transaction:
        """Have an exchange keep one message; see `roq.TransactionalPublisher.prepare`."""
        message = TransactionMessage(payload, topic, key, tags or (), properties or {}, priority)
        return await self.prepare_many([message], timeout=timeout)

    async def prepare_many(
        self, messages: Sequence[TransactionMessage], *, timeout: float | None = None
    ) -> Transaction:
        """Have an exchange keep several; see `roq.TransactionalPublisher.prepare_many`."""
        given_up = threading.Event()

        def prepare() -> sync.Transaction:
            made = self._sync.prepare_many(messages, timeout=timeout)
            if given_up.is_set():  # nobody waits for it any more
                with suppress(RoQError):
                    made.rollback()
            return made

        try:
            return Transaction(await asyncio.to_thread(prepare))
        except asyncio.CancelledError:
            given_up.set()
            raise

    async def close(self, timeout: float | None = None) -> None:
        """End; see `roq.TransactionalPublisher.close`."""
        await asyncio.to_thread(self._sync.close, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._sync.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return repr(self._sync).replace("<roq.", "<roq.aio.", 1)


def in_loop(check: Check) -> sync.Check:
    """The same, called in the event loop that runs now; it is waited for in another thread."""
    loop = asyncio.get_running_loop()

    async def call(transaction: OpenTransaction) -> Decision | None:
        said = check(transaction)
        return await said if inspect.isawaitable(said) else said

    def ask(transaction: OpenTransaction) -> Decision | None:
        calling = call(transaction)
        try:
            future = asyncio.run_coroutine_threadsafe(calling, loop)
        except RuntimeError:  # the loop was closed meanwhile
            calling.close()
            return None
        return future.result()

    return ask
