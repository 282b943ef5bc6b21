"""RoQ for asyncio: the names of `roq`, with `await` where something may take time.

    import roq.aio

    async with roq.aio.connect("127.0.0.1:5000") as cluster:
        await cluster.create_queue("orders", exists_ok=True)
        async with await cluster.publisher("orders") as pub:
            receipt = pub.publish(b"payload", topic="eu.be")    # a plain call
            await receipt                                       # -> SendStatus
            await pub.flush()
        async with await cluster.subscriber("orders", topic="eu.") as sub:
            async for message in sub: ...

It runs on the same I/O thread and the same machines as the synchronous client; the event loop only
hands over and is woken. What is done once (connecting, managing, closing) waits in a worker thread.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from roq.aio.cluster import Cluster, connect
from roq.aio.consumer import Consumer
from roq.aio.listening import Statistics, Watch
from roq.aio.publisher import Publisher, Receipt
from roq.aio.requests import Pending, PendingMany, Requester, Service
from roq.aio.subscriber import Subscriber
from roq.aio.transactions import Transaction, TransactionalPublisher

if TYPE_CHECKING:
    from roq.aio.jobs import JobBatch, JobHandle, Jobs, JobType

_OF_JOBS: Final = frozenset({"JobBatch", "JobHandle", "JobType", "Jobs"})
"""They need the extra `jobs`, and are loaded when they are used first."""

__all__ = [
    "Cluster",
    "Consumer",
    "JobBatch",
    "JobHandle",
    "JobType",
    "Jobs",
    "Pending",
    "PendingMany",
    "Publisher",
    "Receipt",
    "Requester",
    "Service",
    "Statistics",
    "Subscriber",
    "Transaction",
    "TransactionalPublisher",
    "Watch",
    "connect",
]


def __getattr__(name: str) -> object:
    if name not in _OF_JOBS:
        raise AttributeError(f"module 'roq.aio' has no attribute {name!r}")
    value: object = getattr(import_module("roq.aio.jobs"), name)
    globals()[name] = value
    return value
