"""The asyncio cluster: manages queues, and makes publishers, subscribers and consumers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from roq.aio.consumer import Consumer
from roq.aio.listening import Statistics, Watch
from roq.aio.publisher import Publisher, Receipt
from roq.aio.requests import Pending, Requester, Service
from roq.aio.subscriber import Subscriber
from roq.aio.transactions import Check, TransactionalPublisher, in_loop
from roq.client import cluster as sync
from roq.client.admin.commands import HOST_SECONDS
from roq.client.admin.views import (
    ExchangeSummary,
    HostSummary,
    Listing,
    QueueDescription,
    QueueSummary,
    ScalingRules,
)
from roq.client.cluster import REMOVAL_SECONDS
from roq.client.consume import consumer as sync_consumer
from roq.client.consume.consumer import PREFETCH, PREFETCH_BYTES
from roq.client.consume.delayed import PendingMessages
from roq.client.consume.groups import GroupListing
from roq.client.consume.lookup import FoundMessage, FoundMessages
from roq.client.io.engine import Translate
from roq.client.publish import publisher as sync_publisher
from roq.client.request import requester as sync_requester
from roq.client.request.commands import Settings
from roq.client.request.endpoint import Endpoint
from roq.client.request.service import THREADS, InstanceState
from roq.client.request.views import ServiceView
from roq.client.status.reporter import OnState
from roq.client.subscribe import subscriber as sync_subscriber
from roq.client.subscribe.message import Gap
from roq.client.subscribe.subscriber import StartOption
from roq.client.transact import publisher as sync_transactions
from roq.client.transact.commands import TransactionListing, TransactionSummary
from roq.model import Limits
from roq.protocol.control import ClusterInfo
from roq.timing import AWAY_SECONDS, COMMAND_SECONDS

R = TypeVar("R")
T = TypeVar("T")


class Cluster:
    """One RoQ cluster, seen from an event loop; see `roq.Cluster` for what the methods do."""

    def __init__(self, cluster: sync.Cluster) -> None:
        self._sync = cluster

    @property
    def info(self) -> ClusterInfo:
        """The interfaces of the cluster, as they were found when this was opened."""
        return self._sync.info

    @property
    def addresses(self) -> list[str]:
        """Client endpoints of the configuration managers that are known by now."""
        return self._sync.addresses

    async def create_queue(
        self,
        name: str,
        *,
        host: str | None = None,
        exists_ok: bool = False,
        durability: str | None = None,
        limits: Limits | Mapping[str, int] | None = None,
        timeout: float = COMMAND_SECONDS,
    ) -> None:
        """Create a queue and start it; see `roq.Cluster.create_queue`."""
        await asyncio.to_thread(
            self._sync.create_queue, name, host=host, exists_ok=exists_ok, durability=durability,
            limits=limits, timeout=timeout,
        )  # fmt: skip

    async def remove_queue(self, name: str, *, timeout: float = COMMAND_SECONDS) -> None:
        """Remove a queue, running or stopped; what it held is gone."""
        await asyncio.to_thread(self._sync.remove_queue, name, timeout=timeout)

    async def stop_queue(self, name: str, *, timeout: float = COMMAND_SECONDS) -> None:
        """Stop the monitor and exchanges of a queue; publishers wait until it starts again."""
        await asyncio.to_thread(self._sync.stop_queue, name, timeout=timeout)

    async def start_queue(self, name: str, *, timeout: float = COMMAND_SECONDS) -> None:
        """Start a stopped queue."""
        await asyncio.to_thread(self._sync.start_queue, name, timeout=timeout)

    async def queue_exists(self, name: str) -> bool:
        """Whether there is a queue of this name, running or not."""
        return await asyncio.to_thread(self._sync.queue_exists, name)

    async def queues(self) -> Listing[QueueSummary]:
        """All queues."""
        return await asyncio.to_thread(self._sync.queues)

    async def describe(self, queue: str) -> QueueDescription:
        """Everything about one queue."""
        return await asyncio.to_thread(self._sync.describe, queue)

    async def hosts(self) -> Listing[HostSummary]:
        """All hosts and what runs on them."""
        return await asyncio.to_thread(self._sync.hosts)

    async def exchanges(self, queue: str) -> Listing[ExchangeSummary]:
        """The exchanges of a queue."""
        return await asyncio.to_thread(self._sync.exchanges, queue)

    async def add_exchange(
        self,
        queue: str,
        host: str | None = None,
        transaction_id: str | None = None,
        *,
        timeout: float = COMMAND_SECONDS,
    ) -> str:
        """Start one more exchange for a queue; gives its name."""
        return await asyncio.to_thread(
            self._sync.add_exchange, queue, host, transaction_id, timeout=timeout
        )

    async def remove_exchange(
        self,
        queue: str,
        exchange: str,
        *,
        timeout: float = REMOVAL_SECONDS,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Take an exchange out of a queue without loss; see `roq.Cluster.remove_exchange`.

        `on_wait` is called in the event loop.
        """
        await asyncio.to_thread(
            self._sync.remove_exchange, queue, exchange, timeout=timeout, on_wait=_in_loop(on_wait)
        )

    async def forget_exchange(
        self, queue: str, exchange: str, *, timeout: float = COMMAND_SECONDS
    ) -> None:
        """Give up an exchange that cannot be emptied; see `roq.Cluster.forget_exchange`."""
        await asyncio.to_thread(self._sync.forget_exchange, queue, exchange, timeout=timeout)

    async def cordon_host(self, host: str, *, timeout: float = HOST_SECONDS) -> None:
        """Have nothing new placed on a host; what is there stays."""
        await asyncio.to_thread(self._sync.cordon_host, host, timeout=timeout)

    async def uncordon_host(self, host: str, *, timeout: float = HOST_SECONDS) -> None:
        """Have a host take what is placed again."""
        await asyncio.to_thread(self._sync.uncordon_host, host, timeout=timeout)

    async def drain_host(self, host: str, *, timeout: float = HOST_SECONDS) -> None:
        """Have everything on a host go elsewhere; see `roq.Cluster.drain_host`."""
        await asyncio.to_thread(self._sync.drain_host, host, timeout=timeout)

    async def remove_host(
        self, host: str, *, force: bool = False, timeout: float = HOST_SECONDS
    ) -> None:
        """Forget a host that is gone; see `roq.Cluster.remove_host`."""
        await asyncio.to_thread(self._sync.remove_host, host, force=force, timeout=timeout)

    async def set_rules(self, queue: str, rules: ScalingRules) -> None:
        """Set the scaling rules of a queue; they replace the ones before."""
        await asyncio.to_thread(self._sync.set_rules, queue, rules)

    async def get_rules(self, queue: str) -> ScalingRules:
        """The scaling rules of a queue."""
        return await asyncio.to_thread(self._sync.get_rules, queue)

    async def delayed_messages(
        self, queue: str, *, most: int = 100, timeout: float | None = None
    ) -> PendingMessages:
        """The delayed messages of a queue; see `roq.Cluster.delayed_messages`."""
        return await asyncio.to_thread(
            self._sync.delayed_messages, queue, most=most, timeout=timeout
        )

    async def cancel_message(
        self, queue: str, message: str, *, timeout: float | None = None
    ) -> bool:
        """Have a delayed message not be published; see `roq.Cluster.cancel_message`."""
        return await asyncio.to_thread(self._sync.cancel_message, queue, message, timeout=timeout)

    async def transactional_publisher(
        self,
        queue: str,
        group: str,
        check: Check,
        *,
        check_after: float = 60.0,
        attempts: int = 16,
        patience: float = 7 * 86_400.0,
        otherwise: str = "rollback",
        timeout: float = 30.0,
    ) -> TransactionalPublisher:
        """Publishes what nobody sees until the program's own work is done; see
        `roq.Cluster.transactional_publisher`.

        `check` is called in the event loop, and what it gives is awaited.
        """
        make = partial(
            self._sync.transactional_publisher, queue, group, in_loop(check),
            check_after=check_after, attempts=attempts, patience=patience, otherwise=otherwise,
            timeout=timeout,
        )  # fmt: skip
        return TransactionalPublisher(
            await made(make, sync_transactions.TransactionalPublisher.close)
        )

    async def transactions(
        self, queue: str, group: str = "", *, most: int = 100, timeout: float | None = None
    ) -> TransactionListing:
        """The open transactions of a queue; see `roq.Cluster.transactions`."""
        return await asyncio.to_thread(
            self._sync.transactions, queue, group, most=most, timeout=timeout
        )

    async def transaction(
        self, queue: str, transaction: str, *, timeout: float | None = None
    ) -> TransactionSummary:
        """One transaction; see `roq.Cluster.transaction`."""
        return await asyncio.to_thread(self._sync.transaction, queue, transaction, timeout=timeout)

    async def commit_transaction(
        self, queue: str, transaction: str, *, timeout: float | None = None
    ) -> None:
        """Commit an open one; see `roq.Cluster.commit_transaction`."""
        await asyncio.to_thread(self._sync.commit_transaction, queue, transaction, timeout=timeout)

    async def rollback_transaction(
        self, queue: str, transaction: str, *, timeout: float | None = None
    ) -> None:
        """Roll an open one back; see `roq.Cluster.rollback_transaction`."""
        await asyncio.to_thread(
            self._sync.rollback_transaction, queue, transaction, timeout=timeout
        )

    async def find_message(
        self, queue: str, message: str, *, timeout: float | None = None
    ) -> FoundMessage | None:
        """The message with this id; see `roq.Cluster.find_message`."""
        return await asyncio.to_thread(self._sync.find_message, queue, message, timeout=timeout)

    async def find_messages(
        self, queue: str, key: str, *, most: int = 100, timeout: float | None = None
    ) -> FoundMessages:
        """The newest messages of a key; see `roq.Cluster.find_messages`."""
        return await asyncio.to_thread(
            self._sync.find_messages, queue, key, most=most, timeout=timeout
        )

    async def groups(
        self, queue: str, group: str | None = None, *, timeout: float | None = None
    ) -> GroupListing:
        """The consumer groups of a queue; see `roq.Cluster.groups`."""
        return await asyncio.to_thread(self._sync.groups, queue, group, timeout=timeout)

    async def seek_group(
        self, queue: str, group: str, to: str | datetime, *, timeout: float | None = None
    ) -> list[str]:
        """Have a group go on from elsewhere; see `roq.Cluster.seek_group`."""
        return await asyncio.to_thread(self._sync.seek_group, queue, group, to, timeout=timeout)

    async def pause_group(
        self, queue: str, group: str, *, timeout: float | None = None
    ) -> list[str]:
        """Have a group hand out nothing more; see `roq.Cluster.pause_group`."""
        return await asyncio.to_thread(self._sync.pause_group, queue, group, timeout=timeout)

    async def resume_group(
        self, queue: str, group: str, *, timeout: float | None = None
    ) -> list[str]:
        """Have a paused group go on; see `roq.Cluster.resume_group`."""
        return await asyncio.to_thread(self._sync.resume_group, queue, group, timeout=timeout)

    async def delete_group(
        self, queue: str, group: str, *, timeout: float | None = None
    ) -> list[str]:
        """Forget a group, and what it has done; see `roq.Cluster.delete_group`."""
        return await asyncio.to_thread(self._sync.delete_group, queue, group, timeout=timeout)

    async def publisher(
        self,
        queue: str,
        *,
        name: str | None = None,
        group: str = "",
        timeout: float = 30.0,
        connect_timeout: float | None = None,
        linger: float = 0.001,
        delivery_timeout: float = 60.0,
        offsets: bool = False,
        retry_times: int = 2,
        retry_refused: bool = False,
        avoid_slower_than: float | None = None,
        on_state: OnState | None = None,
        publisher_id: bytes | None = None,
    ) -> Publisher:
        """A publisher to a queue, connected to one of its exchanges; see `roq.Publisher`.

        `on_state` is called in the event loop.
        """
        make = partial(
            self._sync.publisher,
            queue,
            name=name,
            group=group,
            timeout=timeout,
            connect_timeout=connect_timeout,
            linger=linger,
            delivery_timeout=delivery_timeout,
            block=False,
            receipt=Receipt,
            offsets=offsets,
            retry_times=retry_times,
            retry_refused=retry_refused,
            avoid_slower_than=avoid_slower_than,
            on_state=_in_loop(on_state),
            publisher_id=publisher_id,
        )
        return Publisher(await made(make, sync_publisher.Publisher.abort))

    async def subscriber(
        self,
        queue: str,
        topic: str | Sequence[str] = "",
        start: StartOption = "latest",
        *,
        below_floor: str = "earliest",
        timeout: float | None = None,
        on_gap: Callable[[Gap], None] | None = None,
        on_state: OnState | None = None,
        away_seconds: float = AWAY_SECONDS,
    ) -> Subscriber:
        """A subscriber to a queue, in force when this returns; see `roq.Subscriber`.

        `on_gap` and `on_state` are called in the event loop.
        """
        make = partial(
            self._sync.subscriber,
            queue,
            topic,
            start,
            below_floor=below_floor,
            timeout=timeout,
            on_gap=on_gap,
            on_state=_in_loop(on_state),
            away_seconds=away_seconds,
        )
        return Subscriber(await made(make, sync_subscriber.Subscriber.close))

    async def consumer(
        self,
        queue: str,
        group: str,
        *,
        topic: str | Sequence[str] = "",
        tags: Sequence[str] = (),
        mode: str = "shared",
        start: str | datetime = "earliest",
        prefetch: int = PREFETCH,
        prefetch_bytes: int = PREFETCH_BYTES,
        lease: float = 30.0,
        attempts: int = 16,
        retry: float = 1.0,
        retry_max: float = 60.0,
        dead_letters: str | None = None,
        name: str | None = None,
        timeout: float | None = None,
    ) -> Consumer:
        """A member of a group that shares the messages of a queue; see `roq.Cluster.consumer`."""
        make = partial(
            self._sync.consumer,
            queue,
            group,
            topic=topic,
            tags=tags,
            mode=mode,
            start=start,
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
            lease=lease,
            attempts=attempts,
            retry=retry,
            retry_max=retry_max,
            dead_letters=dead_letters,
            name=name,
            timeout=timeout,
        )
        return Consumer(await made(make, sync_consumer.Consumer.close))

    async def services(self, queue: str, *, timeout: float | None = None) -> list[str]:
        """The names of the services of a queue; see `roq.Cluster.services`."""
        return await asyncio.to_thread(self._sync.services, queue, timeout=timeout)

    async def describe_service(
        self, queue: str, name: str, *, timeout: float | None = None
    ) -> ServiceView:
        """How a service stands; see `roq.Cluster.describe_service`."""
        return await asyncio.to_thread(self._sync.describe_service, queue, name, timeout=timeout)

    async def flag_service(
        self, queue: str, name: str, *, available: bool, instance: str | None = None,
        timeout: float | None = None,
    ) -> list[str]:  # fmt: skip
        """Set the flag of instances of a service; see `roq.Cluster.flag_service`."""
        return await asyncio.to_thread(
            self._sync.flag_service, queue, name, available=available, instance=instance,
            timeout=timeout,
        )  # fmt: skip

    async def drain_service(
        self, queue: str, name: str, *, instance: str | None = None, timeout: float | None = None
    ) -> list[str]:
        """Have instances of a service end; see `roq.Cluster.drain_service`."""
        return await asyncio.to_thread(
            self._sync.drain_service, queue, name, instance=instance, timeout=timeout
        )

    async def retry_request(
        self, endpoint: Endpoint[Any, Any], request_id: str, *, timeout: float | None = None
    ) -> None:
        """Have a request that has ended run once more; see `roq.Cluster.retry_request`."""
        await asyncio.to_thread(self._sync.retry_request, endpoint, request_id, timeout=timeout)

    async def requester(
        self,
        queue: str,
        *,
        settings: Settings | None = None,
        collect: bool = True,
        linger: float = 0.001,
        timeout: float | None = None,
    ) -> Requester:
        """Makes requests through a queue; see `roq.Cluster.requester`."""
        make = partial(
            self._sync.requester, queue, settings=settings, collect=collect, linger=linger,
            timeout=timeout, block=False, receipt=Receipt,
        )  # fmt: skip
        return Requester(await made(make, sync_requester.Requester.close))

    def service(
        self,
        name: str,
        queue: str,
        *,
        threads: int = THREADS,
        prefetch: int | None = None,
        available: Callable[[InstanceState], bool] | None = None,
        retry_on: str | None = None,
        retries: int = 1,
        retry: float = 1.0,
        retry_max: float = 60.0,
        lease: float = 10.0,
        settings: Settings | None = None,
        instance: str | None = None,
        version: str = "",
        timeout: float | None = None,
    ) -> Service:
        """An instance of a service; see `roq.Cluster.service`.

        `async def` handlers run in the event loop that starts it.
        """
        return Service(
            self._sync.service(
                name, queue, threads=threads, prefetch=prefetch, available=available,
                retry_on=retry_on, retries=retries, retry=retry, retry_max=retry_max, lease=lease,
                settings=settings, instance=instance, version=version, timeout=timeout,
            )
        )  # fmt: skip

    async def response(self, endpoint: Endpoint[Any, R], request_id: str) -> Pending[R]:
        """The response to a request that somebody has made; see `roq.Cluster.response`."""
        return Pending(await asyncio.to_thread(self._sync.response, endpoint, request_id))

    def watch(self) -> Watch:
        """The configuration broadcast: the present state, then each change."""
        return Watch(self._sync.watch())

    def statistics(self, queue: str) -> Statistics:
        """The statistics stream of a queue: one document per exchange each KPI period, and more."""
        return Statistics(self._sync.statistics(queue))

    async def close(self, timeout: float | None = None) -> None:
        """Close everything that was made here, publishers with a flush; idempotent.

        Args:
            timeout: seconds for all flushes together; None: each publisher's own, from now on.
        """
        await asyncio.to_thread(self._sync.close, timeout)

    def __repr__(self) -> str:
        return repr(self._sync).replace("<roq.", "<roq.aio.", 1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._sync.__exit__, kind, error, traceback)


class Connecting:
    """What `connect` gives: `await` it, or use it in `async with`."""

    def __init__(self, connect: Callable[[], sync.Cluster]) -> None:
        self._connect = connect
        self._cluster: Cluster | None = None

    def __await__(self) -> Generator[Any, None, Cluster]:
        return self._open().__await__()

    async def _open(self) -> Cluster:
        self._cluster = Cluster(await made(self._connect, sync.Cluster.close))
        return self._cluster

    async def __aenter__(self) -> Cluster:
        return await self._open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._cluster is not None:
            await self._cluster.__aexit__(kind, error, traceback)


def connect(
    *addresses: str | Iterable[str],
    timeout: float = 10.0,
    translate: Translate | None = None,
) -> Connecting:
    """Connect to a cluster: `await connect(…)` or `async with connect(…) as cluster`.

    Args:
        addresses: client addresses of one or more configuration managers, `host:port`.
        timeout: seconds for the cluster to answer, now and later.
        translate: applied to each address before it is connected to (for relays and tunnels).

    Raises:
        Unavailable: no configuration manager has answered in time.
        InvalidRequest: no valid address.
    """
    return Connecting(lambda: sync.connect(*addresses, timeout=timeout, translate=translate))


def _in_loop(callback: Callable[[T], None] | None) -> Callable[[T], None] | None:
    """The same, called in the event loop that runs now, from any thread."""
    if callback is None:
        return None
    loop = asyncio.get_running_loop()

    def call(value: T) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(callback, value)

    return call


async def made(make: Callable[[], T], undo: Callable[[T], object]) -> T:
    """What `make` gives, which is called in a thread.

    Args:
        make: may wait; it cannot be interrupted.
        undo: called in a thread with what was made if nobody waits for it any more.
    """
    lock, things, wanted = threading.Lock(), list[T](), True

    def work() -> None:
        thing = make()
        with lock:
            if wanted:
                things.append(thing)
                return
        undo(thing)

    try:
        await asyncio.to_thread(work)
    except asyncio.CancelledError:
        with lock:
            wanted = False
        for thing in things:  # it was made just now
            asyncio.get_running_loop().run_in_executor(None, undo, thing)
        raise
    return things[0]
