"""The asyncio cluster: manages queues, and makes publishers, subscribers and consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, TypeVar

from roq.aio.consumer import Consumer
from roq.aio.listening import Statistics, Watch
from roq.aio.publisher import Publisher, Receipt
from roq.aio.requests import Pending, Requester, Service
from roq.aio.subscriber import Subscriber
from roq.aio.transactions import Check, TransactionalPublisher, asked_in_loop
from roq.aio.twin import Leaving, Told, awaited, in_loop, made, made_of, opened
from roq.client import cluster as sync
from roq.client.consume import consumer as sync_consumer
from roq.client.publish import publisher as sync_publisher
from roq.client.request import requester as sync_requester
from roq.client.request.commands import Settings
from roq.client.request.endpoint import Endpoint
from roq.client.session.status_reporter import OnState
from roq.client.subscribe import subscriber as sync_subscriber
from roq.client.transact import publisher as sync_transactions
from roq.protocol.control import ClusterInfo
from roq.runtime.addresses import Translate

R = TypeVar("R")
T = TypeVar("T")


class Cluster(Leaving[sync.Cluster]):
    """One RoQ cluster, seen from an event loop; see `roq.Cluster` for what the methods do."""

    info = Told[ClusterInfo](
        "The interfaces of the cluster, as they were found when this was opened."
    )
    addresses = Told[list[str]](sync.Cluster.addresses)
    create_queue = awaited(sync.Cluster.create_queue)
    remove_queue = awaited(sync.Cluster.remove_queue)
    stop_queue = awaited(sync.Cluster.stop_queue)
    start_queue = awaited(sync.Cluster.start_queue)
    queue_exists = awaited(sync.Cluster.queue_exists)
    queues = awaited(sync.Cluster.queues)
    describe = awaited(sync.Cluster.describe)
    hosts = awaited(sync.Cluster.hosts)
    exchanges = awaited(sync.Cluster.exchanges)
    add_exchange = awaited(sync.Cluster.add_exchange)
    remove_exchange = awaited(sync.Cluster.remove_exchange, callback="on_wait")
    forget_exchange = awaited(sync.Cluster.forget_exchange)
    cordon_host = awaited(sync.Cluster.cordon_host)
    uncordon_host = awaited(sync.Cluster.uncordon_host)
    drain_host = awaited(sync.Cluster.drain_host)
    remove_host = awaited(sync.Cluster.remove_host)
    set_rules = awaited(sync.Cluster.set_rules)
    get_rules = awaited(sync.Cluster.get_rules)
    delayed_messages = awaited(sync.Cluster.delayed_messages)
    cancel_message = awaited(sync.Cluster.cancel_message)

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
            self._sync.transactional_publisher, queue, group, asked_in_loop(check),
            check_after=check_after, attempts=attempts, patience=patience, otherwise=otherwise,
            timeout=timeout,
        )  # fmt: skip
        return TransactionalPublisher(
            await made(make, sync_transactions.TransactionalPublisher.close)
        )

    transactions = awaited(sync.Cluster.transactions)
    transaction = awaited(sync.Cluster.transaction)
    commit_transaction = awaited(sync.Cluster.commit_transaction)
    rollback_transaction = awaited(sync.Cluster.rollback_transaction)
    find_message = awaited(sync.Cluster.find_message)
    find_messages = awaited(sync.Cluster.find_messages)
    groups = awaited(sync.Cluster.groups)
    seek_group = awaited(sync.Cluster.seek_group)
    pause_group = awaited(sync.Cluster.pause_group)
    resume_group = awaited(sync.Cluster.resume_group)
    delete_group = awaited(sync.Cluster.delete_group)

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
            on_state=in_loop(on_state),
            publisher_id=publisher_id,
        )
        return Publisher(await made(make, sync_publisher.Publisher.abort))

    subscriber = opened(
        sync.Cluster.subscriber, Subscriber, sync_subscriber.Subscriber.close, callback="on_state"
    )
    consumer = opened(sync.Cluster.consumer, Consumer, sync_consumer.Consumer.close)
    services = awaited(sync.Cluster.services)
    define_services = awaited(sync.Cluster.define_services)
    describe_service = awaited(sync.Cluster.describe_service)
    flag_service = awaited(sync.Cluster.flag_service)
    drain_service = awaited(sync.Cluster.drain_service)
    retry_request = awaited(sync.Cluster.retry_request)
    describe_request = awaited(sync.Cluster.describe_request)

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

    service = made_of(sync.Cluster.service, Service)

    async def response(self, endpoint: Endpoint[Any, R], request_id: str) -> Pending[R]:
        """The response to a request that somebody has made; see `roq.Cluster.response`."""
        return Pending(await asyncio.to_thread(self._sync.response, endpoint, request_id))

    watch = made_of(sync.Cluster.watch, Watch)
    statistics = made_of(sync.Cluster.statistics, Statistics)
    close = awaited(sync.Cluster.close)


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

    async def __aexit__(self, *raised: Any) -> None:
        if self._cluster is not None:
            await self._cluster.__aexit__(*raised)


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
