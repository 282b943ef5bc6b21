"""A requester: makes requests to services, and gets their responses."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from roq.client.io import at_exit as farewell
from roq.client.publish.publisher import Publisher
from roq.client.publish.receipt import Receipt
from roq.client.request.context import CURRENT
from roq.client.request.endpoint import Endpoint
from roq.client.request.pending import Pending
from roq.client.request.shell import OPEN_MAX, Collector, Sent
from roq.errors import InvalidRequest, RoQError, Unavailable, WouldBlock
from roq.protocol.requesting import (
    ENVELOPE,
    ENVELOPE_VERSION,
    ONCE,
    SILENT,
    WITHIN_SECONDS_MAX,
    ServiceSettings,
)

Q = TypeVar("Q")
R = TypeVar("R")

CLOSE_SECONDS: Final = 5.0


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
        make_collector: Callable[[Callable[[Pending[Any]], bool]], Collector],
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
        links = publisher._shell.machine.links  # noqa: SLF001 - made for this
        links.replay.keep_nothing()
        self._once = links.bound.topics
        self._collector = make_collector(self._was_lost)
        farewell.opened(self)

    def request(
        self,
        endpoint: Endpoint[Q, R],
        value: Q,
        *,
        within: float | None = None,
        headers: Mapping[str, str] | None = None,
        inherit: bool = True,
    ) -> Pending[R]:
        """Make a request; returns at once.

        Args:
            endpoint: what is requested.
            value: what is sent.
            within: seconds until its result has to be there; None: as long as the service allows,
                which is also the most.
            headers: texts that the handler is given, as the properties of a message.
            inherit: in a handler, it has at most the time that is left to that one's own request.

        Raises:
            InvalidRequest: it cannot be encoded, or no such time can be.
            MessageTooLarge: above the queue's limit.
            WouldBlock: there is no room and `block` is False.
            Unavailable: there is no room, or the exchanges do not answer, for too long.
            RoQError: as `Publisher.publish`.
        """
        return self._make(endpoint, value, within, headers, inherit=inherit)

    def request_many(
        self,
        endpoint: Endpoint[Q, R],
        values: Iterable[Q],
        *,
        within: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> list[Pending[R]]:
        """Make many requests, in order; as `request`."""
        return [self._make(endpoint, value, within, headers, inherit=True) for value in values]

    def send(
        self,
        endpoint: Endpoint[Q, Any],
        value: Q,
        *,
        within: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Make a request whose response nobody wants; gives the receipt. Raises as `request`."""
        data = self._envelope(endpoint, value, within, SILENT, inherit=True)
        self.prepare(endpoint.service)
        return self._publish(endpoint.topic, data, headers, None)

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
        self, endpoint: Endpoint[Q, R], value: Q, within: float | None,
        headers: Mapping[str, str] | None, *, inherit: bool,
    ) -> Pending[R]:  # fmt: skip
        data = self._envelope(endpoint, value, within, 0, inherit=inherit)
        self.prepare(endpoint.service)
        self._need_room()
        pending: Pending[R] = Pending(self._collector, self.queue, endpoint)
        most = self._collector.settings(endpoint.service).result_within
        wanted = ENVELOPE.unpack_from(data)[2] / 1_000 or most
        if self._collects:
            self._collector.expect(pending, min(wanted, most))
        keep = data if self._collects and endpoint.idempotent and not headers else None
        self._publish(endpoint.topic, data, headers, pending, keep)
        with self._lock:
            self._made += 1
        return pending

    def _publish(
        self, topic: str, data: bytes, headers: Mapping[str, str] | None,
        pending: Pending[Any] | None, keep: bytes | None = None,
    ) -> Receipt:  # fmt: skip
        with self._lock:
            receipt = self._publisher.publish(data, topic, properties=headers)
            if pending is not None and keep is not None:
                self._collector.keep(pending, keep)  # before it can end
            self._note(topic, receipt, pending)
        return receipt

    def _envelope(
        self, endpoint: Endpoint[Q, Any], value: Q, within: float | None, flags: int, *,
        inherit: bool,
    ) -> bytes:  # fmt: skip
        if within is not None and not (
            isinstance(within, int | float) and 0 < within <= WITHIN_SECONDS_MAX
        ):
            raise InvalidRequest(
                f"within is above 0 and at most {WITHIN_SECONDS_MAX:g} s, not {within!r}"
            )
        context = CURRENT.get() if inherit else None
        seconds = math.inf if within is None else within
        if context is not None:
            seconds = min(seconds, max(0.001, context.remaining))
        milliseconds = 0 if math.isinf(seconds) else max(1, int(seconds * 1_000))
        if not endpoint.idempotent:
            flags |= ONCE
            self._once.add(endpoint.topic)
        head = ENVELOPE.pack(ENVELOPE_VERSION, flags, milliseconds)
        return head + endpoint.encode_request(value)

    def knows(self, service: str) -> bool:
        """Whether the service is known at every exchange, so that requests to it do not wait."""
        return service in self._attended

    def prepare(self, service: str) -> None:
        """Have the service known at every exchange; the first request to it does so by itself.

        Raises:
            Unavailable: the exchanges do not answer.
        """
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
        sent = self._last.get(topic)
        waits = pending if self._collects else None
        if sent is not None and sent.receipt is receipt:
            if pending is not None:
                pending.sent(receipt, len(sent.pendings))
            sent.pendings.append(waits)
            if receipt.done():
                self._collector.accepted(sent)
            return
        self._last[topic] = made = Sent(receipt)
        if pending is not None:
            pending.sent(receipt, 0)
        made.pendings.append(waits)
        ring = receipt._ring_when_settled  # noqa: SLF001 - once per batch, in whatever thread
        ring(lambda: self._collector.accepted(made))

    def _was_lost(self, pending: Pending[Any]) -> bool:
        """An exchange is gone that had this one; whether it is sent once more."""
        data = pending.repeat
        if data is None or self._closed:
            return False
        untold = Unavailable(
            f"{pending.endpoint.name}: its exchange is gone, and the client ends, or its callbacks "
            "take too long, before it was sent once more"
        )
        self._collector.later(
            lambda: self._repeat(pending, data), lambda: self._collector.fail(pending, untold)
        )
        return True

    def _repeat(self, pending: Pending[Any], data: bytes) -> None:
        topic = pending.endpoint.topic
        try:
            try:
                self._publish(topic, data, None, pending)
            except WouldBlock:
                self.wait_for_room()
                self._publish(topic, data, None, pending)
        except RoQError as error:
            self._collector.fail(pending, error)
