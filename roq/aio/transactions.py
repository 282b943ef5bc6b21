"""The asyncio side of transactions."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from roq.aio.twin import Leaving, Told, awaited, called
from roq.client.publish.batching import Payload
from roq.client.transact import publisher as sync
from roq.client.transact.publisher import OpenTransaction, TransactionMessage
from roq.errors import RoQError
from roq.protocol.transaction import Decision

Check = Callable[[OpenTransaction], Decision | Awaitable[Decision | None] | None]


class Transaction(Leaving[sync.Transaction]):
    """As `roq.Transaction`; `async with` commits, and an exception in the block rolls back."""

    id = Told[str](sync.Transaction.id)
    exchange = Told[str](sync.Transaction.exchange)
    decision = Told[Decision | None](sync.Transaction.decision)
    commit = awaited(sync.Transaction.commit)
    rollback = awaited(sync.Transaction.rollback)
    leave_open = called(sync.Transaction.leave_open)


class TransactionalPublisher(Leaving[sync.TransactionalPublisher]):
    """As `roq.TransactionalPublisher`. Made by `Cluster.transactional_publisher`."""

    queue = Told[str]("Name of the queue.")
    group = Told[str]("The producers that may be asked.")
    timeout = Told[float]("Seconds that preparing and ending a transaction may take.")
    trouble = Told[str](sync.TransactionalPublisher.trouble)

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

    close = awaited(sync.TransactionalPublisher.close)


def asked_in_loop(check: Check) -> sync.Check:
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
