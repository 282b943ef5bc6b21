"""A connection to a cluster: manages queues, and makes publishers, subscribers and consumers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from time import monotonic
from typing import Final, Protocol, Self, TypeVar

import msgspec

from roq.client.admin import commands
from roq.client.admin.broadcast import Watch
from roq.client.admin.commands import HostCommands, exchange_request, request
from roq.client.admin.management import Management
from roq.client.admin.statistics import Statistics
from roq.client.admin.views import Listing, ScalingRules, rules_document, rules_of
from roq.client.consume.commands import GroupCommands
from roq.client.consume.consumer import PREFETCH_BYTES, Consumer
from roq.client.consume.dead_letters import SUFFIX as DEAD_SUFFIX
from roq.client.consume.dead_letters import DeadLetters, of_letters
from roq.client.consume.lookup import MessageCommands
from roq.client.io import at_exit as farewell
from roq.client.io.engine import Engine, wait_result
from roq.client.publish.publisher import CLOSE_SECONDS_MAX, Publisher
from roq.client.publish.receipt import Receipt
from roq.client.publish.resume import ExchangeAddress, Identity, Places, resume
from roq.client.request.commands import RequestCommands, Services
from roq.client.session.status_reporter import OnState
from roq.client.subscribe.subscriber import StartOption, Subscriber
from roq.client.transact.commands import TransactionCommands
from roq.errors import (
    InvalidRequest,
    NotEmpty,
    QueueExists,
    QueueNotFound,
    RequestError,
    Unavailable,
)
from roq.model import FLUSH, VOLATILE, Limits, check_client_name, check_name, wait_seconds
from roq.protocol.documents import RawDocument, convert
from roq.protocol.public_answers import (
    NO,
    ExchangeSummary,
    FromMemory,
    HostSummary,
    QueueDescription,
    QueueSummary,
    warning,
)
from roq.read.message import Gap
from roq.runtime import descriptors
from roq.runtime.addresses import Translate, parse_addresses, what_is_at
from roq.timing import AWAY_SECONDS, COMMAND_SECONDS

DESCRIPTORS_MOST: Final = 65_536
"""So far a client raises the limit of its process by itself, if the system lets it."""

REMOVAL_SECONDS: Final = 60.0
"""What an exchange may take to lose its publishers and to be read."""
AGAIN_SECONDS: Final = 1.0
"""Between two requests to go on with it."""

T = TypeVar("T")


class Closable(Protocol):
    """What a cluster closes in the end."""

    def close(self) -> None:
        """Close."""
        ...


class _Queues(msgspec.Struct, rename="pascal"):
    queues: list[QueueSummary]
    from_memory: FromMemory | None = None


class _Hosts(msgspec.Struct, rename="pascal"):
    hosts: list[HostSummary]
    from_memory: FromMemory | None = None


class _Exchanges(msgspec.Struct, rename="pascal"):
    exchanges: list[ExchangeSummary]
    from_memory: FromMemory | None = None


class _Created(msgspec.Struct, rename="pascal"):
    exchange: str = ""


class Cluster(HostCommands, GroupCommands, MessageCommands, RequestCommands, TransactionCommands):
    """One RoQ cluster, seen by a client. Thread-safe; a context manager. Made by `roq.connect`.

    All methods raise `RequestError` subclasses when the cluster refuses, `Unavailable` when none
    answers in time, and `Closed` after `close`.
    """

    def __init__(
        self,
        addresses: str | Iterable[str],
        *,
        timeout: float = 10.0,
        translate: Translate | None = None,
    ) -> None:
        self._closed = True  # until it is open
        self._timeout = timeout = wait_seconds(timeout)
        endpoints = parse_addresses(addresses)
        self._parted = False
        descriptors.raise_limit(DESCRIPTORS_MOST)
        self._engine = Engine(translate=translate)
        self._management = Management(self._engine, endpoints)
        self._children: set[Closable] = set()
        self._lock = threading.RLock()
        self._engine.start()
        try:
            self.info = wait_result(self._management.info(timeout), timeout)
        except Unavailable as error:
            self._engine.close()
            raise Unavailable(f"{error}{what_is_at(endpoints)}") from None
        except BaseException:
            self._engine.close()
            raise
        self._closed = False
        farewell.opened(self)

    @property
    def addresses(self) -> list[str]:
        """Client endpoints of the configuration managers that are known by now."""
        return list(self._management.addresses)

    # --- queues -----------------------------------------------------------------------------------

    def create_queue(
        self,
        name: str,
        *,
        host: str | None = None,
        exists_ok: bool = False,
        durability: str | None = None,
        limits: Limits | Mapping[str, int] | None = None,
        services: Services | None = None,
        timeout: float = COMMAND_SECONDS,
    ) -> None:
        """Create a queue and start it; it serves when this returns.

        Args:
            name: 1 to 128 of the characters A-Z a-z 0-9 . _ -
            host: where its monitor and first exchange run; None: the least loaded host.
            exists_ok: an existing queue is no error; it stays as it is. It is one if it has another
                durability than is asked for, or is not ordered although that is asked for.
            durability: `flush`: each exchange acknowledges what is on its disk, and goes on with it
                after a restart. `async`: likewise, but it acknowledges what is written, and syncs
                it within 100 ms. `none`: messages live in the memory of the exchanges. None: as
                the cluster is set (`queues.durability` of `gcm.toml`); as shipped it is `flush`.
            limits: what the queue allows, where it differs from the defaults of `Limits`.
            services: settings of its services, as of `define_services`.
            timeout: seconds.

        Raises:
            QueueExists: there is one already.
            InvalidName, InvalidRequest: a name, host, limit or setting that cannot be.
            HostNotFound, NoCapacity: no place for it.
        """
        try:
            self._ask(commands.create_request(name, host, durability, limits, services), timeout)
        except QueueExists:
            if not exists_ok:
                raise QueueExists(f"queue {name!r} exists already") from None
            commands.check_existing(name, durability, limits, self.describe)

    def remove_queue(self, name: str, *, timeout: float = COMMAND_SECONDS) -> str:
        """Remove a queue, running or stopped; what it held is gone. Returns what its hosts have
        still to do, such as to remove a log when one is back, in a sentence; empty: nothing."""
        return warning(self._ask(request(2001, QName=check_name(name)), timeout))

    def stop_queue(self, name: str, *, timeout: float = COMMAND_SECONDS) -> None:
        """Stop the monitor and exchanges of a queue; publishers wait until it starts again."""
        self._ask(request(2002, QName=check_name(name)), timeout)

    def start_queue(self, name: str, *, timeout: float = COMMAND_SECONDS) -> str:
        """Start a stopped queue. Returns which of its exchanges do not run, and why, in a sentence;
        empty: all do. A durable queue runs without those, and they are started again."""
        return warning(self._ask(request(2005, QName=check_name(name)), timeout))

    def queue_exists(self, name: str) -> bool:
        """Whether there is a queue of this name, running or not."""
        try:
            self._ask(request(2011, QName=check_name(name)))
        except RequestError as error:
            if isinstance(error, QueueNotFound) or str(error) == NO:
                return False
            raise
        return True

    def queues(self) -> Listing[QueueSummary]:
        """All queues."""
        found = convert(self._ask(request(2101)), _Queues)
        return Listing(found.queues, found.from_memory)

    def describe(self, queue: str) -> QueueDescription:
        """Everything about one queue."""
        return convert(self._ask(request(2104, QName=check_name(queue))), QueueDescription)

    # --- hosts and exchanges ----------------------------------------------------------------------

    def hosts(self) -> Listing[HostSummary]:
        """All hosts and what runs on them."""
        found = convert(self._ask(request(2102)), _Hosts)
        return Listing(found.hosts, found.from_memory)

    def exchanges(self, queue: str) -> Listing[ExchangeSummary]:
        """The exchanges of a queue."""
        found = convert(self._ask(request(2103, QName=check_name(queue))), _Exchanges)
        return Listing(found.exchanges, found.from_memory)

    def add_exchange(
        self,
        queue: str,
        host: str | None = None,
        transaction_id: str | None = None,
        *,
        timeout: float = COMMAND_SECONDS,
    ) -> str:
        """Start one more exchange for a queue.

        Args:
            queue: name of the queue.
            host: where it runs; None: the least loaded, rather one that has none of the queue yet.
            transaction_id: the same id again starts no second exchange; None: a new one.
            timeout: seconds.

        Returns:
            The name of the exchange.
        """
        answer = self._ask(exchange_request(queue, host, transaction_id), timeout)
        return convert(answer, _Created).exchange

    def remove_exchange(
        self,
        queue: str,
        exchange: str,
        *,
        timeout: float = REMOVAL_SECONDS,
        on_wait: Callable[[str], None] | None = None,
    ) -> str:
        """Take an exchange out of a queue: its publishers move away, subscribers read all of it.

        Nothing is lost by it. An exchange that is not empty in time takes publishers again two
        minutes after it was wanted empty for the last time; repeat the call to go on. Returns what
        its host has still to do, in a sentence; empty: nothing.

        Args:
            queue: name of the queue.
            exchange: its name, such as `x2`, or its number.
            timeout: seconds for it to become empty and to stop.
            on_wait: called now and then with what it still waits for.

        Raises:
            NotEmpty: publishers or unread messages were still there in the end; says how many.
            ExchangeNotFound: the queue has no such exchange.
            RequestError: it is the last one.
        """
        document = request(2100, QName=check_name(queue), Exchange=str(exchange))
        deadline = self._now() + wait_seconds(timeout)
        waits: NotEmpty | None = None
        while True:
            remaining = max(AGAIN_SECONDS, deadline - self._now())
            try:
                return warning(self._ask(document, remaining))
            except NotEmpty as error:
                waits = error
            except Unavailable:
                if waits is None:
                    raise
            if self._now() + AGAIN_SECONDS >= deadline:
                raise NotEmpty(f"{waits}; it goes on being emptied, the command may be repeated")
            if on_wait is not None:
                on_wait(str(waits))
            self._pause(AGAIN_SECONDS)

    def forget_exchange(
        self, queue: str, exchange: str, *, timeout: float = COMMAND_SECONDS
    ) -> str:
        """Give up an exchange of a durable queue that is gone with its host and log, or fails.

        What only that log holds is lost: messages that were acknowledged and that somebody has not
        read yet. The log itself is removed if its host is there. A host that is away keeps it when
        it comes back, and no exchange uses it: `roq health` names its folder. Returns what its host
        has still to do, in a sentence; empty: nothing.

        Args:
            queue: name of the queue.
            exchange: its name, such as `x2`, or its number.
            timeout: seconds for the change.

        Raises:
            ExchangeNotFound: the queue has no such exchange.
            RequestError: it is not away and runs; `remove_exchange` empties it.
        """
        document = request(2100, QName=check_name(queue), Exchange=str(exchange), Forget=True)
        return warning(self._ask(document, timeout))

    # --- scaling rules ----------------------------------------------------------------------------

    def set_rules(self, queue: str, rules: ScalingRules) -> None:
        """Set the scaling rules of a queue; they replace the ones before."""
        self._ask(request(2006, QName=check_name(queue), **rules_document(rules)))

    def get_rules(self, queue: str) -> ScalingRules:
        """The scaling rules of a queue.

        Raises:
            RequestError: there are none.
        """
        return rules_of(self._ask(request(2007, QName=check_name(queue))))

    # --- publishing, subscribing, watching --------------------------------------------------------

    def publisher(
        self,
        queue: str,
        *,
        name: str | None = None,
        group: str = "",
        timeout: float = 30.0,
        connect_timeout: float | None = None,
        linger: float = 0.001,
        delivery_timeout: float = 60.0,
        block: bool = True,
        receipt: type[Receipt] = Receipt,
        offsets: bool = False,
        retry_times: int = 2,
        retry_times_async: int = 2,
        retry_refused: bool = False,
        avoid_slower_than: float | None = None,
        on_state: OnState | None = None,
        publisher_id: bytes | None = None,
    ) -> Publisher:
        """A publisher to a queue, connected to one of its exchanges; see `Publisher`.

        Args:
            name: by which people find it in `roq top`; None: program, host and process id. In a
                queue with durability `flush` it says who the publisher is, too: it goes on with the
                sequences of an earlier one of this name (`Publisher.next_sequence`), whose process
                may have died; one that is still open is fenced off (`Fenced`). In other queues
                several of one name go on beside each other.
            group: the publishers that it belongs to; shown before the name.
            connect_timeout: seconds that opening may take; None: as long as `connect` was told.
            offsets: receipts tell the offset of their batch (`SendStatus.offset`).
            retry_times, retry_times_async, retry_refused, avoid_slower_than: see `Publisher`.
            publisher_id: 16 bytes for a publisher that must be the same one when it is tried again:
                what it publishes anew, from the first message on and in the same order, subscribers
                drop as doubles. None: a new random one. Two at once must never share one.
        """
        seconds = wait_seconds(connect_timeout, self._timeout, "connect_timeout")
        resumed = self._resume(queue, name, seconds) if name and not publisher_id else None
        publisher = Publisher(
            self._engine,
            self._management.addresses,
            queue,
            publisher_id=publisher_id or (resumed.id if resumed else os.urandom(16)),
            resumed=resumed,
            timeout=timeout,
            connect_timeout=seconds,
            name=name,
            group=group,
            linger=linger,
            delivery_timeout=delivery_timeout,
            block=block,
            receipt=receipt,
            offsets=offsets,
            retry_times=retry_times,
            retry_times_async=retry_times_async,
            retry_refused=retry_refused,
            avoid_slower_than=avoid_slower_than,
            on_state=on_state,
        )
        return self._adopt(publisher)

    def _resume(self, queue: str, name: str, seconds: float) -> Identity | None:
        """With what a named publisher goes on; None: the queue does not keep everything."""
        check_client_name(name)
        described = self.describe(queue)
        if described.durability != FLUSH:
            return None
        translate = self._engine.translate

        def places() -> Places:
            now = self.describe(queue)
            there = [(each.name, each.data and translate(each.data)) for each in now.exchanges]
            return Places(now.life, [ExchangeAddress(*each) for each in there])

        return resume(bytes.fromhex(described.queue_id), queue, name, places, seconds)

    def subscriber(
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
        """A subscriber to a queue, in force when this returns; see `Subscriber`.

        Args:
            timeout: seconds until it has to be in force; None: as long as `connect` was told.
            away_seconds: how long messages of a durable queue wait for an exchange that is away,
                or for a monitor that is silent.
        """
        subscriber = Subscriber(
            self._engine,
            self._management.addresses,
            check_name(queue),
            topic,
            start=start,
            below_floor=below_floor,
            timeout=self._seconds(timeout),
            on_gap=on_gap,
            on_state=on_state,
            away_seconds=away_seconds,
        )
        return self._adopt(subscriber)

    def consumer(
        self,
        queue: str,
        group: str,
        *,
        topic: str | Sequence[str] = "",
        tags: Sequence[str] = (),
        mode: str = "shared",
        start: str | datetime = "earliest",
        prefetch: int | None = None,
        prefetch_bytes: int = PREFETCH_BYTES,
        lease: float = 30.0,
        attempts: int = 16,
        retry: float = 1.0,
        retry_max: float = 60.0,
        bury_expired: bool = False,
        dead_letters: str | None = None,
        name: str | None = None,
        timeout: float | None = None,
    ) -> Consumer:
        """A member of a group that shares the messages of a queue; see `Consumer`.

        Args:
            dead_letters: the queue for messages that were tried too often, or rejected; None: the
                name of the queue with `.dead` behind it. It is made when it is needed, with the
                durability and limits of the queue.
            timeout: seconds until every exchange has taken it in; None: as `connect` was told.

        Raises:
            InvalidRequest: dead letters cannot go to the queue that they come from.
        """
        check_name(queue)
        check_name(group, "group")
        letters = check_name(dead_letters or f"{queue}{DEAD_SUFFIX}"[-128:])
        if letters == queue:
            raise InvalidRequest(f"dead letters of queue {queue} cannot go to itself: name another")

        def open_publisher() -> Publisher:
            durability, limits = of_letters(self.describe(queue))
            # One that is there may be that of other queues as well, or keep letters better.
            new = None if self.queue_exists(letters) else limits
            if durability != VOLATILE or new:
                self.create_queue(letters, exists_ok=True, durability=durability, limits=new)
            return self.publisher(letters)

        burials = DeadLetters(queue, group, open_publisher)
        consumer = Consumer(
            self._engine,
            self._management.addresses,
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
            bury_expired=bury_expired,
            bury=burials.bury,
            on_closed=burials.close,
            name=name,
            timeout=self._seconds(timeout),
        )
        return self._adopt(consumer)

    def watch(self) -> Watch:
        """The configuration broadcast: the present state, then each change."""
        return self._adopt(Watch(self._engine, self._management))

    def statistics(self, queue: str) -> Statistics:
        """The statistics stream of a queue: one document per exchange each KPI period, and more."""
        return self._adopt(Statistics(self._engine, self._management, queue))

    # --- the end ----------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Close everything that was made here, publishers with a flush; idempotent.

        Args:
            timeout: seconds for all flushes together; None: each publisher's own, from now on.

        Raises:
            DeliveryError: a publisher that was still open could not deliver everything.
        """
        if self._closed:
            return
        self._engine.check_outside()
        wait_seconds(timeout)  # refused before anything is closed
        self._closed = True
        farewell.closed(self)
        if self._engine.forked:
            return  # all of it is the parent's
        with self._lock:
            children, self._children = self._children, set()
        began, errors = monotonic(), list[Exception]()
        try:
            for child in children:
                try:
                    if isinstance(child, Publisher):
                        seconds = wait_seconds(timeout, child.timeout)
                        child.close(max(0.0, seconds - (monotonic() - began)))
                    else:
                        child.close()
                except Exception as error:  # noqa: BLE001 - raised below, when everything is closed
                    errors.append(error)
        finally:  # also if Ctrl-C ends a flush: nothing else would end the background thread
            self._engine.close()
        if errors:
            raise errors[0]

    @property
    def _left_open(self) -> bool:
        """Whether it is still to be closed."""
        return not self._closed and not self._engine.forked

    def _part(self, seconds: float) -> tuple[str, int]:  # noqa: ARG002 - its publishers are flushed on their own
        """The program ends without `close`."""
        self._parted = True
        return "", 0

    def __del__(self) -> None:
        if self._left_open and not self._parted:
            farewell.warn(self)

    def __repr__(self) -> str:
        # From the debugger, from a log line, half made: it neither raises nor waits.
        with suppress(Exception):
            state = "closed" if self._closed else "open"
            return f"<roq.Cluster {', '.join(self._management.addresses)}: {state}>"
        return "<roq.Cluster>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close(None if kind is None else CLOSE_SECONDS_MAX)
        except Exception:
            if kind is None:
                raise

    def _adopt(self, child: T) -> T:
        self._engine.check_process()
        with self._lock:
            self._children -= {c for c in self._children if getattr(c, "_closed", False)}
            self._children.add(child)  # type: ignore[arg-type]
        return child

    def _seconds(self, timeout: float | None) -> float:
        return wait_seconds(timeout, self._timeout)

    def _now(self) -> float:
        return self._engine.reactor.now()

    def _pause(self, seconds: float) -> None:
        wait_result(self._management.pause(seconds), seconds)

    def _ask(self, document: RawDocument, timeout: float | None = None) -> RawDocument:
        seconds = self._seconds(timeout)
        return wait_result(self._management.ask(document, seconds), seconds)


def connect(
    *addresses: str | Iterable[str],
    timeout: float = 10.0,
    translate: Translate | None = None,
) -> Cluster:
    """Connect to a cluster.

    Args:
        addresses: client addresses of one or more configuration managers, `host:port`.
        timeout: seconds for the cluster to answer, now and later. As wherever somebody waits,
            below 0 is not at all, and infinity without an end.
        translate: applied to each address before it is connected to (for relays and tunnels).

    Raises:
        Unavailable: no configuration manager has answered in time.
        InvalidRequest: no valid address.
    """
    given = ([one] if isinstance(one, str) or one is None else one for one in addresses)
    return Cluster(chain.from_iterable(given), timeout=timeout, translate=translate)
