"""The synchronous publisher: `publish()` appends, batches fill up, leave and are accounted for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from time import monotonic, time_ns
from types import TracebackType
from typing import Final, cast

import msgspec

from roq.client.driver import LinkDriver
from roq.client.engine import Engine
from roq.client.link import LinkMachine
from roq.client.packer import OpenBatch, Packer
from roq.client.receipt import Receipt
from roq.client.session import Translate
from roq.errors import (
    DeliveryError,
    InvalidRequest,
    MessageTooLarge,
    QueueNotFound,
    QueueStopped,
    RoQError,
    Unavailable,
    WouldBlock,
)
from roq.model import Limits, PublisherId, check_name

Payload = bytes | bytearray | memoryview

DELIVERY_SECONDS_MAX: Final = 600.0
"""Below the time after which an exchange forgets a link, so nothing is doubled by a late replay."""

log = logging.getLogger(__name__)


class PublisherStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the publisher was opened, and its present state."""

    messages: int
    """Sealed into batches."""
    batches: int
    acked_messages: int
    acked_batches: int
    failed_messages: int
    """Given up, certainly not delivered."""
    unknown_messages: int
    """Given up after they had left: delivered or not, nobody knows."""
    unacked_batches: int
    unacked_bytes: int
    open_batches: int
    replayed_batches: int
    connections: int
    moves: int
    """Exchanges assigned, the first one included."""
    resets: int
    refused: int
    forgotten: int
    malformed: int
    window_waits: int
    exchange: str
    """Name of the present exchange; empty if there is none."""
    ready: bool


class Publisher:
    """Publishes to one logical queue. Thread-safe; a context manager.

    Args:
        engine: the client's I/O thread.
        addresses: endpoints of configuration managers.
        queue: name of the queue.
        publisher_id: 16 random bytes.
        timeout: seconds that `publish` waits for room in the window, and leaving `with` for
            acknowledgements.
        connect_timeout: seconds that opening may take.
        linger: seconds that a message waits for others at most, when the link is busy.
        delivery_timeout: seconds after which an unacknowledged batch is given up.
        block: False: `publish` raises `WouldBlock` instead of waiting.
        translate: applied to each address before it is connected to.

    Raises:
        QueueNotFound: no such queue.
        QueueStopped: it was not started within `connect_timeout`.
        Unavailable: no exchange could be reached within `connect_timeout`.
    """

    def __init__(
        self,
        engine: Engine,
        addresses: Sequence[str],
        queue: str,
        *,
        publisher_id: bytes,
        timeout: float = 30.0,
        connect_timeout: float = 10.0,
        linger: float = 0.001,
        delivery_timeout: float = 60.0,
        block: bool = True,
        translate: Translate | None = None,
    ) -> None:
        if not 0 < delivery_timeout <= DELIVERY_SECONDS_MAX or timeout < 0 or linger < 0:
            raise InvalidRequest(
                f"delivery_timeout is above 0 and at most {DELIVERY_SECONDS_MAX:g} s, "
                "timeout and linger are not negative"
            )
        self.queue = check_name(queue)
        self.id = PublisherId(publisher_id)
        self._timeout = timeout
        self._block = block
        self._messages = 0
        self._batches = 0
        self._window_waits = 0
        self._reported = 0
        self._closed = False
        self._message_bytes = 0
        self._driver = LinkDriver(
            engine,
            addresses,
            queue,
            publisher=self.id,
            delivery_seconds=delivery_timeout,
            linger_seconds=linger,
            flush=self._flush_due,
            on_ready=self._adopt,
            translate=translate,
        )
        self._packer = Packer(self, Limits(), linger)
        self._fast = self._packer.fast
        self._small = self._packer.small_bytes
        self._driver.start()
        self._await_exchange(connect_timeout)

    def _await_exchange(self, timeout: float) -> None:
        driver = self._driver
        try:
            if driver.wait_for(lambda: driver.link is not None and driver.link.ready, timeout):
                return
            driver.check()
        except BaseException:
            self.abort()
            raise
        why, stopped = driver.why, driver.stopped
        self.abort()
        if stopped:
            raise QueueStopped(why or f"queue {self.queue} is stopped: start it first")
        raise Unavailable(
            f"no exchange of queue {self.queue} could be reached in {timeout:g} s: {why}"
        )

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, payload: Payload, topic: str = "") -> Receipt:
        """Publish one message.

        On an idle link it leaves at once; under load it waits for the batch to fill, or `linger`.

        Args:
            payload: any bytes, also none.
            topic: for routing; subscribers filter by its beginning. At most 255 bytes of UTF-8.

        Returns:
            The receipt, shared by all messages of the batch.

        Raises:
            TypeError: the payload is not bytes.
            MessageTooLarge: above the queue's limit.
            InvalidName: no valid topic.
            WouldBlock: the window is full and `block` is False.
            Unavailable: the window stayed full for `timeout` seconds; the text says why.
            QueueNotFound: the queue was removed.
            Closed: the publisher is closed.
        """
        batch = self._fast.get(topic)
        if batch is not None and type(payload) is bytes and len(payload) <= self._small:
            items = batch.items
            items.append(payload)
            if len(items) < batch.limit:
                return batch.receipt
            with self._driver.lock:
                if self._packer.keeps(batch, payload):
                    if batch.limit:
                        self._look_at(batch, monotonic())
                    return batch.receipt
        return self._publish_slowly(payload, topic)

    def publish_many(self, payloads: Iterable[Payload], topic: str = "") -> list[Receipt]:
        """Publish many messages of one topic; the fastest way.

        Returns:
            The receipts of the batches that they went into, in order.

        Raises:
            RoQError: as `publish`; the messages before the one that failed are published.
        """
        rest: list[Payload] = payloads if isinstance(payloads, list) else list(payloads)
        receipts: list[Receipt] = []
        position = 0
        deadline: float | None = None
        while position < len(rest):
            with self._driver.lock:
                chunk, size = self._chunk(rest, position)
                receipt = self._publish_chunk(chunk, size, topic) if chunk else None
            if receipt is not None:
                position += len(chunk)
                deadline = None
                if not receipts or receipts[-1] is not receipt:
                    receipts.append(receipt)
            elif chunk:
                deadline = self._wait_for_room(deadline)
            else:
                receipts.append(self._publish_slowly(rest[position], topic))
                position += 1
        return receipts

    def _publish_slowly(self, payload: Payload, topic: str) -> Receipt:
        data = as_bytes(payload)
        deadline: float | None = None
        while True:
            with self._driver.lock:
                self._check(len(data))
                receipt = self._try_publish(data, topic)
            if receipt is not None:
                return receipt
            deadline = self._wait_for_room(deadline)

    def _check(self, size: int) -> None:
        self._driver.check()
        if size > self._message_bytes:
            raise MessageTooLarge(
                f"a message of {size} bytes is above the limit of queue {self.queue} "
                f"({self._message_bytes} bytes): split it, or set message_bytes when creating the "
                "queue"
            )

    def _try_publish(self, data: bytes, topic: str) -> Receipt | None:
        """Put one message into a batch; None if there is no room for one more batch."""
        packer, now = self._packer, monotonic()
        batch = packer.get(topic)
        if batch is not None and packer.fits(batch, len(data)) and packer.add(batch, data):
            if packer.is_full(batch) or len(batch.items) >= batch.limit:
                self._look_at(batch, now)
            return batch.receipt
        if not self._make_room(batch, now):
            return None
        return self._begin(topic, [data], now)

    def _make_room(self, batch: OpenBatch | None, now: float) -> bool:
        """Close what stands before a new batch; False if the window does not allow it."""
        link = self._link
        if batch is None and len(self._packer) >= link.outbox.window_batches:
            batch = next(iter(self._packer))
        if batch is not None:
            if not link.outbox.has_room:
                self._packer.shut(batch)
                return False
            self._seal(batch, now)
            self._driver.push(now)
        return True

    def _begin(self, topic: str, items: list[bytes], now: float) -> Receipt:
        """Open a batch; on an idle link, or if it is full already, send it."""
        link, packer = self._link, self._packer
        link.topics.stream(topic)
        batch = packer.open(topic, items, now)
        idle = link.ready and not len(link.outbox)
        full = packer.is_full(batch)
        if (idle or full) and link.outbox.has_room:
            self._driver.full_batches += full
            self._seal(batch, now)
            self._driver.push(now)
        else:
            if full:
                packer.shut(batch)
            self._driver.need(now + packer.linger_seconds)
        return batch.receipt

    def _look_at(self, batch: OpenBatch, now: float) -> None:
        """A batch has reached its limit: it is full, or it is time to look at the clock."""
        full = self._packer.is_full(batch)
        if not full and not self._packer.stretch(batch, now):
            return
        if not self._link.outbox.has_room:
            if full:
                self._packer.shut(batch)
            else:
                batch.limit = batch.most
            return
        self._driver.full_batches += 1
        self._seal(batch, now)
        self._driver.push(now)

    def _seal(self, batch: OpenBatch, now: float) -> None:
        link = self._link
        payloads = self._packer.close(batch)
        stream = link.topics.stream(batch.topic)
        link.outbox.seal(stream, payloads, batch.receipt, now, time_ns() // 1000)
        self._messages += len(payloads)
        self._batches += 1

    # --- many at once -----------------------------------------------------------------------------

    def _chunk(self, payloads: list[Payload], start: int) -> tuple[list[Payload], int]:
        """The next payloads that fit into one batch, and their size; none: the first is large."""
        packer = self._packer
        self._driver.check()
        chunk = payloads[start : start + packer.most]
        most = min(packer.batch_bytes, self._message_bytes)
        if len(chunk[0]) <= packer.small_bytes:
            size = len(b"".join(chunk))  # one pass in C over both types and sizes
            if size <= most:
                return chunk, size
        sizes = list(accumulate(len(as_bytes(item)) for item in chunk))
        count = sum(1 for size in sizes if size <= most)
        return chunk[:count], sizes[count - 1] if count else 0

    def _publish_chunk(self, mixed: list[Payload], size: int, topic: str) -> Receipt | None:
        packer, now = self._packer, monotonic()
        batch = packer.get(topic)
        if batch is None and len(mixed) >= packer.most and self._link.outbox.has_room:
            return self._seal_chunk(mixed, topic, now)
        chunk = [as_bytes(item) for item in mixed]  # kept for a while: must not change
        if batch is not None and _joins(packer, batch, chunk, size):
            batch = packer.extend(batch, chunk)
            if len(batch.items) >= batch.limit:
                self._look_at(batch, now)
            return batch.receipt
        if not self._make_room(batch, now):
            return None
        return self._begin(topic, chunk, now)

    def _seal_chunk(self, chunk: list[Payload], topic: str, now: float) -> Receipt:
        """A whole batch at once."""
        link = self._link
        receipt = Receipt(self)
        stream = link.topics.stream(topic)
        # Packed before this returns, so bytes-like payloads need no copy.
        payloads = cast("list[bytes]", chunk)
        link.outbox.seal(stream, payloads, receipt, now, time_ns() // 1000)
        self._messages += len(chunk)
        self._batches += 1
        self._driver.full_batches += 1
        self._driver.push(now)
        return receipt

    # --- room, time, limits -----------------------------------------------------------------------

    @property
    def _link(self) -> LinkMachine:
        link = self._driver.link
        if link is None:
            raise Unavailable(f"no exchange of queue {self.queue} was ever assigned")
        return link

    def _adopt(self, link: LinkMachine) -> None:
        self._packer.adopt(link.limits)
        self._small = min(self._packer.small_bytes, link.limits.message_bytes)
        self._message_bytes = link.limits.message_bytes

    def _flush_due(self, now: float) -> float | None:
        """Seal what has lingered, and everything once the link is idle."""
        link, packer = self._driver.link, self._packer
        if link is None or not len(packer):
            return None
        sealed = False
        for batch in packer:
            due_at = batch.opened_at + packer.linger_seconds
            due = link.ready and (now >= due_at or not len(link.outbox))
            old = now >= batch.opened_at + 1.0  # so that its delivery time-out begins
            if not (due or old or packer.is_full(batch)):
                continue
            if not link.outbox.has_room:
                break
            self._seal(batch, now)
            sealed = True
        if sealed:
            self._driver.push(now)
        oldest = next(iter(packer), None)
        if oldest is None or not link.outbox.has_room:
            return None
        return oldest.opened_at + (packer.linger_seconds if link.ready else 1.0)

    def _wait_for_room(self, deadline: float | None) -> float:
        """Wait for the window; gives the deadline for the next call.

        Raises:
            WouldBlock: waiting is not wanted.
            Unavailable: the time is over.
        """
        driver = self._driver
        if not self._block:
            raise WouldBlock(f"the window of queue {self.queue} is full: {driver.why}")
        if deadline is None:
            deadline = monotonic() + self._timeout
            self._window_waits += 1
        if not driver.wait_for(self._has_room, max(0.0, deadline - monotonic())):
            driver.check()
            raise Unavailable(
                f"queue {self.queue} took nothing for {self._timeout:g} s "
                f"({self.stats().unacked_batches} batches are waiting): {driver.why}"
            )
        return deadline

    def _has_room(self) -> bool:
        return self._link.outbox.has_room

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for a receipt; see `Receipt.wait`."""
        return self._driver.wait_for(condition, timeout)

    # --- the end ----------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything published so far has been acknowledged.

        Args:
            timeout: seconds; None: the publisher's own.

        Raises:
            DeliveryError: messages were given up since the last flush.
            Unavailable: `timeout` passed; what is open stays open.
        """
        timeout = self._timeout if timeout is None else timeout
        done = self._driver.wait_for(self._flushed, timeout)
        self._raise_failures()
        if not done:
            self._driver.check()
            raise Unavailable(
                f"{self.stats().unacked_batches} batches to queue {self.queue} were not "
                f"acknowledged within {timeout:g} s: {self._driver.why}"
            )

    def _flushed(self) -> bool:
        self._seal_all()
        link = self._driver.link
        return link is None or (not len(self._packer) and link.outbox.owed_batches == 0)

    def _seal_all(self) -> None:
        link, now = self._driver.link, monotonic()
        if link is None or not len(self._packer):
            return
        for batch in self._packer:
            if not link.outbox.has_room:
                break
            self._seal(batch, now)
        self._driver.push(now)

    def _raise_failures(self) -> None:
        link = self._driver.link
        if link is None:
            return
        failed = link.outbox.failed_messages + link.outbox.unknown_messages
        new, self._reported = failed - self._reported, failed
        if new:
            raise DeliveryError(
                f"{new} messages to queue {self.queue} could not be delivered "
                f"({link.outbox.unknown_messages} of {failed} in all may have been): "
                f"{self._driver.why}",
                new,
            )

    def close(self, timeout: float | None = None) -> None:
        """Flush, say goodbye and release everything; idempotent.

        Args:
            timeout: seconds for the flush; None: the publisher's own.

        Raises:
            DeliveryError: messages could not be delivered.
        """
        if self._closed:
            return
        reason = f"the publisher of queue {self.queue} was closed"
        try:
            self.flush(timeout)
        except DeliveryError:
            self.abort(reason)
            raise
        except RoQError as error:
            self.abort(f"{reason}: {error}")
            self._raise_failures()
            if isinstance(error, QueueNotFound):
                return  # nothing was open
            raise
        self.abort(reason)

    def abort(self, reason: str = "the publisher was aborted") -> None:
        """Close without waiting; what is not acknowledged is given up."""
        if self._closed:
            return
        self._closed = True
        with self._driver.lock:
            self._give_up_open()
        self._driver.close(reason)

    def _give_up_open(self) -> None:
        """Settle the open batches: they are sealed (never sent) and abandoned with the rest."""
        link, now = self._driver.link, monotonic()
        for batch in self._packer:
            if link is not None:
                self._seal(batch, now)
            else:
                self._packer.close(batch)

    def stats(self) -> PublisherStats:
        """Counters and state at this moment."""
        link = self._driver.link
        if link is None:
            link = LinkMachine(self.id, b"", Limits(), delivery_seconds=1.0)
        outbox = link.outbox
        return PublisherStats(
            messages=self._messages,
            batches=self._batches,
            acked_messages=outbox.acked_messages,
            acked_batches=outbox.acked_batches,
            failed_messages=outbox.failed_messages,
            unknown_messages=outbox.unknown_messages,
            unacked_batches=outbox.owed_batches,
            unacked_bytes=outbox.owed_bytes,
            open_batches=len(self._packer),
            replayed_batches=outbox.replayed_batches,
            connections=link.connections,
            moves=link.moves,
            resets=link.resets,
            refused=link.refused,
            forgotten=link.forgotten,
            malformed=link.malformed,
            window_waits=self._window_waits,
            exchange=link.exchange.name if link.exchange is not None else "",
            ready=link.ready,
        )

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close(min(self._timeout, 5.0))
        except RoQError as second:
            # The error in the body is the one to see.
            log.warning("closing the publisher of queue %s: %s", self.queue, second)


def as_bytes(payload: Payload) -> bytes:
    """The payload as immutable bytes.

    Raises:
        TypeError: it is not bytes, bytearray or memoryview.
    """
    if type(payload) is bytes:
        return payload
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise TypeError(
        f"a payload is bytes, bytearray or memoryview, not {type(payload).__name__}: "
        "encode it first"
    )


def _mixed(chunk: Sequence[Payload]) -> bool:
    """Whether anything in it is not plain bytes."""
    return set(map(type, chunk)) != {bytes}


def _joins(packer: Packer, batch: OpenBatch, chunk: list[bytes], size: int) -> bool:
    count = len(batch.items) + len(chunk)
    return count <= batch.most and (
        batch.big_bytes + packer.small_bytes * len(batch.items) + size <= packer.batch_bytes
    )
