"""A requester: makes requests to services, and gets their responses."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from roq.client.io import at_exit as farewell
from roq.client.publish.batching import Attributed, Payload, with_attributes
from roq.client.publish.delayed import When, due_of
from roq.client.publish.publisher import Publisher
from roq.client.publish.receipt import Receipt
from roq.client.request.context import CURRENT, RequestContext
from roq.client.request.endpoint import Endpoint
from roq.client.request.many import ManyPart, PendingMany
from roq.client.request.pending import Pending
from roq.client.request.shell import OPEN_MAX, Collector
from roq.client.request.waiting_requests import Sent, Waiter
from roq.errors import MessageTooLarge, RoQError, Unavailable, WouldBlock
from roq.model import LogId, check_seconds, wait_seconds
from roq.protocol.attributes import NO_ATTRIBUTES, Attributes, attributes_of
from roq.protocol.delayed import DELAYED_TOPIC, MESSAGE_ID_BYTES, Delayed, encode_delayed
from roq.protocol.orphaned_answers import sent_again
from roq.protocol.requesting import (
    DELAYED_FROM,
    ENVELOPE,
    ENVELOPE_VERSION,
    ONCE,
    SILENT,
    WITHIN_SECONDS_MAX,
    Position,
    ServiceSettings,
)

Q = TypeVar("Q")
R = TypeVar("R")

SECOND_US: Final = 1_000_000
LATER: Final = DELAYED_TOPIC.decode()
"""Topic of requests that are delayed."""
CLOSE_SECONDS: Final = 5.0


@dataclass(slots=True, frozen=True, kw_only=True)
class RequesterStats:
    """How a requester stands.

    Attributes:
        open: requests that are accepted, and of which it is not known how they have ended.
        kept_bytes: what is kept of idempotent ones, to send it once more if a volatile exchange
            dies with them; 64 MiB at most.
        not_kept: idempotent requests so far that found no room there: of those that an exchange
            takes along it is told that they may have run (`RequestUnknown`).
    """

    open: int
    kept_bytes: int
    not_kept: int


class Making(Generic[R]):
    """Requests of one `request_many`, of which some are not made yet.

    Args:
        publish: as `Requester.publish_chunk`.
        many: all of them.
        payloads: what is sent.
    """

    def __init__(
        self, publish: Callable[[PendingMany[Any], list[Payload], int, Sequence[int]], int],
        many: PendingMany[R], payloads: list[Payload],
    ) -> None:  # fmt: skip
        self.many = many
        self._publish = publish
        self._payloads = payloads
        self._position = 0

    def publish(self) -> bool:
        """Make them as far as there is room; False: for some there was none.

        Raises:
            RoQError: as `give_up`.
        """
        members = range(len(self._payloads))
        while self._position < len(members):
            try:
                count = self._publish(self.many, self._payloads, self._position, members)
            except MessageTooLarge as error:
                self.many.settle(self._position, None, error)
                count = 1
            except RoQError as error:
                self.give_up(error)
                return True
            if not count:
                return False
            self._position += count
        return True

    def give_up(self, error: RoQError) -> None:
        """Those that are not made end with this.

        Raises:
            RoQError: this, if none was made.
        """
        made, self._position = self._position, len(self._payloads)
        for member in range(made, self._position):
            self.many.settle(member, None, error)  # of the last one, nothing is kept any more
        if not made:
            raise error


class Requester:
    """Makes requests through one queue. Thread-safe; a context manager. Made by
    `Cluster.requester`.

        pending = requester.request(create, Order(7), within=60)
        invoice = pending.result()

    Args:
        publisher: sends the requests; the requester closes it.
        make_collector: makes what waits for their ends; it is given what is to be done about a
            request whose exchange is gone.
        settings: for services that are not there yet; chosen ones replace those that a service has.
        timeout: seconds that a request waits for room, and a service for its exchanges.
        block: False: it raises `WouldBlock` instead of waiting for room.
        collect: False: it waits for no responses.
    """

    def __init__(
        self,
        publisher: Publisher,
        make_collector: Callable[[Callable[[Waiter], bool]], Collector],
        *,
        settings: ServiceSettings,
        timeout: float,
        block: bool,
        collect: bool = True,
    ) -> None:
        self.queue = publisher.queue
        self._publisher = publisher
        self._settings = settings
        self._timeout = timeout
        self._block = block
        self._collects = collect
        self._lock = threading.RLock()
        self._last: dict[str, Sent] = {}
        """By topic: the batch that its requests join."""
        self._attended: set[str] = set()
        self._made = 0
        self._closed = False
        # A request that was accepted is not published again by itself if its exchange dies, and one
        # that must not be begun twice is not sent to two durable ones.
        self._shell = publisher._shell  # noqa: SLF001 - made for this
        links = self._shell.machine.links
        links.replay.keep_nothing()
        self._once = links.bound.topics
        self._collector = make_collector(self._was_lost)
        if collect:
            self._collector.read_by(self._shell)
        farewell.opened(self)

    def request(
        self,
        endpoint: Endpoint[Q, R],
        value: Q,
        *,
        within: float | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: When | None = None,
        inherit: bool = True,
    ) -> Pending[R]:
        """Make a request; returns at once.

        Args:
            endpoint: what is requested.
            value: what is sent.
            within: seconds until its result has to be there; None: as long as the service allows,
                which is also the most.
            headers: texts that the handler is given, as the properties of a message.
            priority: 0 to 9. What waits for an instance goes to it in the order of priorities, the
                highest first; of ten requests one is of a lower priority, if any waits.
            delay: nobody gets it before: seconds, a `timedelta`, or an aware `datetime`, as of
                `Publisher.publish_later`. None: what the service has as its setting `delay`.
                `within` counts from then on.
            inherit: in a handler, it has at most the time that is left to that one's own request,
                and is cancelled soon after that one is, or was given to another instance.

        Raises:
            InvalidRequest: it cannot be encoded, or no such time or priority can be.
            MessageTooLarge: above the queue's limit.
            WouldBlock: there is no room and `block` is False.
            Unavailable: there is no room, or the exchanges do not answer, for too long.
            RoQError: as `Publisher.publish`.
        """
        context = CURRENT.get() if inherit else None
        data = self._payload(endpoint, value, within, headers, priority, 0, context)
        return self._make(endpoint, data, delay, context)

    def request_many(
        self,
        endpoint: Endpoint[Q, R],
        values: Iterable[Q],
        *,
        within: float | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        inherit: bool = True,
    ) -> PendingMany[R]:
        """Make many requests, in order; gives one object for all of them.

        Args:
            endpoint, within, headers, priority, inherit: of all of them, as in `request`.
            values: what is sent.

        Raises:
            InvalidRequest: one of them cannot be encoded, or no such time or priority can be; none
                is made.
            RoQError: as `request`, if none was made; else those that were not made end with this,
                and one that is too large ends so alone.
        """
        making = self.begin_many(endpoint, values, within, headers, priority, inherit=inherit)
        while not making.publish():
            try:
                if not self._block:
                    raise WouldBlock(f"there is no room for more requests: {self.trouble}")
                self.wait_for_room()
            except RoQError as error:
                making.give_up(error)
        return making.many

    def begin_many(
        self, endpoint: Endpoint[Q, R], values: Iterable[Q], within: float | None,
        headers: Mapping[str, str] | None, priority: int, *, inherit: bool,
    ) -> Making[R]:  # fmt: skip
        """Requests that are to be made, as far as there is room for them; for `request_many`."""
        given = _beside(headers, priority)
        context = CURRENT.get() if inherit else None
        head = self._head(endpoint, within, 0, context)
        encode = endpoint.encode_request
        payloads = with_attributes([head + encode(value) for value in values], given)
        self.prepare(endpoint.service)
        many: PendingMany[R] = PendingMany(self._collector, self.queue, endpoint, len(payloads))
        seconds = _within(self._collector.settings(endpoint.service), head)
        if self._collects and endpoint.idempotent:
            self._collector.kept.keep_many(many, payloads)
        if context is not None and self._collects:
            self._collector.inner.add(context, many)

        def publish(
            many: PendingMany[Any], payloads: list[Payload], position: int, members: Sequence[int]
        ) -> int:
            if self._collects:  # the time of those counts that leave now: others may wait for room
                self._collector.expect(many, seconds)
            return self.publish_chunk(many, payloads, position, members)

        return Making(publish, many, payloads)

    def publish_chunk(
        self, many: PendingMany[Any], payloads: list[Payload], position: int,
        members: Sequence[int],
    ) -> int:  # fmt: skip
        """Publish the next of these that fit into one batch; how many, 0: there is no room.

        Args:
            members: which of all each of them is.
        """
        collector = self._collector
        if collector.open_count >= OPEN_MAX:
            return 0
        topic = many.endpoint.topic
        self._shell.guard.check()
        with self._lock:
            count, receipt = self._shell.publish_chunk(payloads, position, topic)
            if receipt is None:
                return 0
            sent, fresh = self._sent(topic, receipt)
            part = ManyPart(many, receipt, len(sent.pendings), members[position : position + count])
            many.went(part)
            sent.pendings.extend([part if self._collects else None] * count)
            self._made += count
            self._noted(sent, fresh=fresh)
        return count

    def send(
        self,
        endpoint: Endpoint[Q, Any],
        value: Q,
        *,
        within: float | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: When | None = None,
        inherit: bool = True,
    ) -> Receipt:
        """Make a request whose response nobody wants; gives the receipt. Raises as `request`.

        Args:
            endpoint, value, within, headers, priority, delay: as in `request`.
            inherit: in a handler, it has at most the time that is left to that one's own request.
                It is not cancelled with that one.
        """
        context = CURRENT.get() if inherit else None
        data = self._payload(endpoint, value, within, headers, priority, SILENT, context)
        self.prepare(endpoint.service)
        return self._publish(endpoint, data, None, self._delayed(endpoint, delay))

    def wait_for_room(self) -> None:
        """Wait until there may be room for another request; raises `Unavailable` if there is none
        in time."""
        self._publisher.flush(self._timeout)
        collector = self._collector
        if not collector.wait_for(lambda: collector.open_count < OPEN_MAX, self._timeout):
            raise Unavailable(f"{OPEN_MAX} requests are open, and none ends: {self.trouble}")

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every request so far is accepted; raises as `Publisher.flush`."""
        self._publisher.flush(timeout)

    @property
    def open(self) -> int:
        """Requests that are accepted, and of which it is not known how they have ended."""
        return self._collector.open_count

    @property
    def stats(self) -> RequesterStats:
        """How it stands."""
        kept = self._collector.kept
        return RequesterStats(open=self.open, kept_bytes=kept.bytes, not_kept=kept.left_out)

    @property
    def trouble(self) -> str:
        """Why nothing goes on; empty: all is well."""
        return self._publisher.trouble or self._collector.trouble

    def close(self, timeout: float | None = None) -> None:
        """End; what is open is told to be so (`Closed`), and can be fetched by its id. Idempotent.

        Args:
            timeout: seconds for requests to be accepted; None: as the publisher's.
        """
        if self._closed:
            return
        wait_seconds(timeout)  # refused before anything is closed
        self._closed = True
        farewell.closed(self)
        try:
            self._publisher.close(timeout)
        finally:
            with suppress(RoQError):
                self._collector.close()

    @property
    def _left_open(self) -> bool:
        return not self._closed

    def _part(self, seconds: float) -> tuple[str, int]:
        """The program ends without `close`."""
        self.close(max(0.0, min(seconds, CLOSE_SECONDS)))
        return self.queue, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(None if kind is None else CLOSE_SECONDS)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<roq.Requester of {self.queue}: {state}, {self._made:,} requested>"

    # --- inside -----------------------------------------------------------------------------------

    def _make(
        self, endpoint: Endpoint[Any, R], data: bytes, delay: When | None,
        context: RequestContext | None,
    ) -> Pending[R]:  # fmt: skip
        self.prepare(endpoint.service)
        self._need_room()
        collector = self._collector
        pending: Pending[R] = Pending(collector, self.queue, endpoint)
        settings = collector.settings(endpoint.service)
        delayed = None
        if settings.delay or delay is not None:
            pending.delayed = delayed = self._delayed(endpoint, delay)
        if self._collects:
            seconds = _within(settings, data)
            if delayed is not None:
                seconds += max(0.0, delayed[0] / SECOND_US - collector.wall_clock())
            collector.expect(pending, seconds)
        keep = data if self._collects and endpoint.idempotent else None
        self._publish(endpoint, data, pending, delayed, keep)
        if context is not None and self._collects:
            collector.inner.add(context, pending)
        with self._lock:
            self._made += 1
        return pending

    def _delayed(
        self, endpoint: Endpoint[Any, Any], delay: When | None
    ) -> tuple[int, bytes] | None:
        """When a request is to be handed out, and the id of its message; None: at once."""
        seconds = self._collector.settings(endpoint.service).delay if delay is None else delay
        if seconds == 0:
            return None
        now = self._collector.wall_clock()
        due_us = due_of(seconds, now)
        if due_us <= now * SECOND_US:
            return None
        if not endpoint.idempotent:
            self._once.add(LATER)
        number = int.from_bytes(os.urandom(MESSAGE_ID_BYTES)) % DELAYED_FROM
        return due_us, (DELAYED_FROM + number).to_bytes(MESSAGE_ID_BYTES, "big")

    def _publish(
        self, endpoint: Endpoint[Any, Any], data: bytes, pending: Pending[Any] | None,
        delayed: tuple[int, bytes] | None, keep: bytes | None = None,
    ) -> Receipt:  # fmt: skip
        topic, sent = endpoint.topic, data
        if delayed is not None:
            due_us, message = delayed
            sent = encode_delayed(Delayed(due_us, topic.encode(), bytes(data), message))
            if isinstance(data, Attributed):
                sent = Attributed.of(sent, data.beside.attributes)
            topic = LATER
        publisher = self._publisher
        publish = publisher.publish_raw if isinstance(sent, Attributed) else publisher.publish
        with self._lock:
            receipt = publish(sent, topic)
            if pending is not None and keep is not None:
                self._collector.kept.keep(pending, keep)  # before it can end
            self._note(topic, receipt, pending)
        return receipt

    def _payload(
        self, endpoint: Endpoint[Q, Any], value: Q, within: float | None,
        headers: Mapping[str, str] | None, priority: int, flags: int,
        context: RequestContext | None,
    ) -> bytes:  # fmt: skip
        """A request as it is published; `flags`, `context` as of `_head`."""
        given = _beside(headers, priority)
        data = self._head(endpoint, within, flags, context) + endpoint.encode_request(value)
        return data if given is None else Attributed.of(data, given)

    def _head(
        self, endpoint: Endpoint[Any, Any], within: float | None, flags: int,
        context: RequestContext | None,
    ) -> bytes:  # fmt: skip
        """With what a request begins.

        Args:
            context: of the handler whose time it has; None: of none.
        """
        if within is not None:
            within = check_seconds("within", within, 0, WITHIN_SECONDS_MAX, above=True)
        milliseconds = 0
        if within is not None or context is not None:
            seconds = math.inf if within is None else within
            if context is not None:
                seconds = min(seconds, max(0.001, context.remaining))
            milliseconds = 0 if math.isinf(seconds) else max(1, int(seconds * 1_000))
        if not endpoint.idempotent:
            flags |= ONCE
            self._once.add(endpoint.topic)
        return ENVELOPE.pack(ENVELOPE_VERSION, flags, milliseconds)

    def knows(self, service: str) -> bool:
        """Whether the service is known at every exchange, so that requests to it do not wait."""
        return service in self._attended

    def prepare(self, service: str) -> None:
        """Have the service known at every exchange; the first request to it does so by itself.

        Raises:
            Unavailable: the exchanges do not answer.
        """
        self._collector.check_process()
        if service in self._attended:
            return
        self._collector.need_exchanges(self._timeout)
        self._collector.attend(service, self._settings, self._timeout)
        self._attended.add(service)

    def _need_room(self) -> None:
        if self._collector.open_count < OPEN_MAX:
            return
        if not self._block:
            raise WouldBlock(f"{OPEN_MAX} requests are open")
        self.wait_for_room()

    def _note(self, topic: str, receipt: Receipt, pending: Pending[Any] | None) -> None:
        """This is the next request of its batch."""
        sent, fresh = self._sent(topic, receipt)
        if pending is not None:
            pending.sent(receipt, len(sent.pendings))
        sent.pendings.append(pending if self._collects else None)
        self._noted(sent, fresh=fresh)

    def _sent(self, topic: str, receipt: Receipt) -> tuple[Sent, bool]:
        """The requests of the batch with this receipt, and whether they are the first ones."""
        sent = self._last.get(topic)
        if sent is not None and sent.receipt is receipt:
            return sent, False
        made = self._last[topic] = Sent(receipt)
        return made, True

    def _noted(self, sent: Sent, *, fresh: bool) -> None:
        """It is known which requests these are."""
        if fresh:
            if self._collects:
                self._collector.left(sent)
            ring = sent.receipt._ring_when_settled  # noqa: SLF001 - once, in whatever thread
            ring(lambda: self._collector.accepted(sent))
        elif sent.receipt.done():
            self._collector.accepted(sent)

    def _was_lost(self, waiter: Waiter) -> bool:
        """An exchange is gone that had this one, or these; whether they are sent once more."""
        pending = waiter.many if isinstance(waiter, ManyPart) else waiter
        if pending.repeat is None or self._closed:
            return False
        untold = Unavailable(
            f"{pending.endpoint.name}: its exchange is gone, and the client ends, or too many "
            "others wait, before it was sent once more"
        )
        self._collector.repeat(
            lambda: self._repeat_any(waiter), lambda: self._collector.fail(waiter, untold)
        )
        return True

    def _repeat_any(self, waiter: Waiter) -> None:
        if isinstance(waiter, ManyPart):
            self._repeat_part(waiter)
        elif waiter.repeat is not None:
            self._repeat(waiter, waiter.repeat)

    def _repeat_part(self, part: ManyPart) -> None:
        many, members = part.many, part.open_members()
        if many.repeat is None:
            return
        plain = [many.repeat[member] for member in members]
        data, position = plain, 0
        if (at := part.place()) is not None:
            firsts = range(part.first, part.first + len(part.members))
            index_of = dict(zip(part.members, firsts, strict=True))
            data = [
                _once_more(each, at[0], Position(at[1], index_of[member]))
                for member, each in zip(members, plain, strict=True)
            ]
        try:
            while position < len(data):
                try:
                    count = self.publish_chunk(many, data, position, members)
                    sent = slice(position, position + count)
                    again = dict(zip(members[sent], data[sent], strict=True))
                    self._collector.kept.renew_some(many, again)
                except MessageTooLarge:
                    count = self.publish_chunk(many, plain, position, members)
                if not count:
                    self.wait_for_room()
                position += count
        except RoQError as error:
            rest = ManyPart(many, part.receipt, part.first, members[position:])
            self._collector.fail(rest, error)

    def _repeat(self, pending: Pending[Any], data: bytes) -> None:
        publish = partial(self._publish, pending.endpoint)
        sent = data if pending.at is None else _once_more(data, *pending.at)

        def once_more() -> None:
            try:
                publish(sent, pending, pending.delayed)
                self._collector.kept.renew(pending, sent)
            except MessageTooLarge:  # that it was known before finds no room
                publish(data, pending, pending.delayed)

        try:
            try:
                once_more()
            except WouldBlock:
                self.wait_for_room()
                once_more()
        except RoQError as error:
            self._collector.fail(pending, error)


def _beside(headers: Mapping[str, str] | None, priority: int) -> Attributes | None:
    """What a request has beside its value; nothing is looked at where nothing is given."""
    return attributes_of(None, None, headers, priority) if headers or priority != 0 else None


def _once_more(data: Payload, log: LogId, at: Position) -> bytes:
    """What is sent once more of a request that was known so, and is lost with its exchange."""
    given = data.beside.attributes if isinstance(data, Attributed) else NO_ATTRIBUTES
    told = msgspec.structs.replace(given, properties=sent_again(given.properties, log, at))
    return Attributed.sent_again(bytes(data), told)


def _within(settings: ServiceSettings, data: bytes) -> float:
    """Seconds until a request is over, by what it begins with and what its service allows."""
    most = settings.result_within
    return min(ENVELOPE.unpack_from(data)[2] / 1_000 or most, most)
