"""Between `publish()` and the link: which batch a message joins, and when a batch is sealed.

All methods but those of the fast path in `Publisher.publish` need the driver's lock. Nothing waits
here: what finds no room gives None, and the publisher decides whether to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from time import monotonic, time_ns
from typing import cast

from roq.client.io.engine import Engine
from roq.client.publish.batching import Attributed, OpenBatch, Packer, part_attributes, size_of
from roq.client.publish.machine import PublisherMachine
from roq.client.publish.receipt import Receipt
from roq.client.publish.shell import PublisherShell
from roq.errors import MessageTooLarge, Unavailable
from roq.model import Limits, PublisherId

Payload = bytes | bytearray | memoryview

OLD_SECONDS = 1.0
"""Without a link, batches fill up; one that is this old is sealed, so that its time-out begins."""


class Writer:
    """Seals batches and hands them to the link.

    Args:
        engine, addresses, queue, publisher, name, delivery_seconds, on_change: see
            `PublisherShell`.
        linger_seconds: how long a message waits for others at most.
        new_receipt: makes the receipt of a batch.

    Attributes:
        shell: the link with everything around it.
        packer: the open batches.
        messages, batches: sealed since the start.
    """

    def __init__(
        self,
        engine: Engine,
        addresses: Sequence[str],
        queue: str,
        *,
        publisher: PublisherId,
        name: str,
        delivery_seconds: float,
        linger_seconds: float,
        on_change: Callable[[], None],
        new_receipt: Callable[[], Receipt],
    ) -> None:
        self.messages = 0
        self.batches = 0
        self._sealing: OpenBatch | None = None
        self._unsettled = False
        self._queue = queue
        self._new_receipt = new_receipt
        self.packer = Packer(new_receipt, Limits(), linger_seconds)
        self.shell = PublisherShell(
            engine,
            addresses,
            queue,
            publisher=publisher,
            name=name,
            delivery_seconds=delivery_seconds,
            flush=self._flush_due,
            on_ready=lambda machine: self.packer.adopt(machine.limits),
            give_up=self._give_up,
            on_change=on_change,
        )

    @property
    def machine(self) -> PublisherMachine:
        """The link.

        Raises:
            Unavailable: no exchange was ever assigned.
        """
        machine = self.shell.machine
        if machine is None:
            raise Unavailable(f"no exchange of queue {self._queue} was ever assigned")
        return machine

    def has_room(self) -> bool:
        """Whether another batch may be sealed."""
        return self.machine.chooser.has_room

    # --- one message ------------------------------------------------------------------------------

    def publish(self, data: bytes, topic: str) -> Receipt | None:
        """Put one message into a batch; None if there is no room for one more batch.

        Raises:
            RoQError: this message cannot be published, or none can any more.
        """
        packer, now = self.packer, monotonic()
        self.shell.check()
        if self._unsettled or self._sealing is not None:
            self._recover()
        size = size_of(data)
        if size > packer.message_bytes:
            raise MessageTooLarge(
                f"a message of {size} bytes is above the limit of queue {self._queue} "
                f"({packer.message_bytes} bytes): split it, or set message_bytes when creating "
                "the queue"
            )
        batch = packer.get(topic)
        if batch is None:
            machine = self.machine
            if machine.idle and machine.chooser.has_room and size < packer.batch_bytes:
                # No batch needs to be opened: there is nothing to wait for.
                return self._send(topic, [data], now)
        elif packer.fits(batch, size) and packer.add(batch, data):
            if packer.is_full(batch) or len(batch.items) >= batch.limit:
                self.look_at(batch, now)
            return batch.receipt
        if not self._make_room(batch, now):
            return None
        return self._begin(topic, [data], now)

    def look_at(self, batch: OpenBatch, now: float) -> None:
        """A batch has reached its limit: it is full, or it is time to look at the clock."""
        if self._unsettled or self._sealing is not None:
            self._recover()
        full = self.packer.is_full(batch)
        if not full and not self.packer.stretch(batch, now):
            return
        if self.machine.chooser.has_room:
            self.shell.full_batches += 1
            self._seal(batch, now)
            self.shell.push(now)
        elif full:
            self.packer.shut(batch)
        else:
            batch.limit = batch.most

    def _make_room(self, batch: OpenBatch | None, now: float) -> bool:
        """Seal what stands before a new batch; False if the window does not allow it."""
        machine = self.machine
        if batch is None and len(self.packer) >= machine.limits.window_batches:
            batch = next(iter(self.packer))
        if batch is None:
            return True
        if not machine.chooser.has_room:
            self.packer.shut(batch)
            return False
        self._seal(batch, now)
        self.shell.push(now)
        return True

    def _begin(self, topic: str, items: list[bytes], now: float) -> Receipt:
        """Open a batch; on an idle link, or if it is full already, send it."""
        machine, packer = self.machine, self.packer
        machine.topics.stream(topic)
        batch = packer.open(topic, items, now)
        full = packer.is_full(batch)
        if (full or machine.idle) and machine.chooser.has_room:
            self.shell.full_batches += full
            self._seal(batch, now)
            self.shell.push(now)
        else:
            if full:
                packer.shut(batch)
            self.shell.need(now + packer.linger_seconds)
        return batch.receipt

    def _send(self, topic: str, payloads: list[bytes], now: float) -> Receipt:
        """Seal and send payloads that were never in an open batch; there must be room."""
        receipt = self._new_receipt()
        attributed = isinstance(payloads[0], Attributed)
        self._seal_payloads(topic, payloads, receipt, now, attributed=attributed)
        self.shell.push(now)
        return receipt

    def _seal(self, batch: OpenBatch, now: float) -> None:
        self._sealing = batch
        payloads = self.packer.close(batch)
        self._seal_payloads(batch.topic, payloads, batch.receipt, now, attributed=batch.attributed)
        self._sealing = None

    def _seal_payloads(
        self, topic: str, payloads: list[bytes], receipt: Receipt, now: float, *, attributed: bool
    ) -> None:
        machine = self.machine
        attributes: bytes | None = None
        if attributed:
            payloads, attributes = part_attributes(payloads)
        stream = machine.topics.stream(topic)
        self._unsettled = True
        machine.chooser.seal(stream, payloads, receipt, now, time_ns() // 1000, attributes)
        self.messages += len(payloads)
        self.batches += 1
        self._unsettled = False

    def _recover(self) -> None:
        """Finish what a raising signal handler (Ctrl-C) has interrupted.

        No message is dropped but, maybe, those whose own publishing was interrupted.
        """
        batch, machine = self._sealing, self.machine
        machine.recount()
        self._unsettled = False
        if batch is not None and not machine.holds(batch.receipt):
            self._seal(batch, monotonic())
        elif batch is not None:
            self.packer.close(batch)
            self._sealing = None

    # --- many messages ----------------------------------------------------------------------------

    def publish_chunk(
        self, payloads: list[Payload], position: int, topic: str
    ) -> tuple[int, Receipt | None]:
        """Publish the next messages that fit into one batch; how many, and their receipt or None.

        Raises:
            RoQError: as `publish`.
        """
        self.shell.check()
        if self._unsettled or self._sealing is not None:
            self._recover()
        first = payloads[position]
        if isinstance(first, Attributed):
            return 1, self.publish(first, topic)
        chunk, size = self._chunk(payloads, position)
        if not chunk:
            return 1, self.publish(as_bytes(first), topic)
        packer, now = self.packer, monotonic()
        batch = packer.get(topic)
        if batch is None and len(chunk) >= packer.most and self.machine.chooser.has_room:
            self.shell.full_batches += 1
            # Packed before this returns, so bytes-like payloads need no copy.
            return len(chunk), self._send(topic, cast("list[bytes]", chunk), now)
        plain = all_bytes(chunk)  # kept for a while: must not change
        plain = plain[:] if plain is payloads else plain
        if batch is not None and packer.joins(batch, plain, size) and packer.extend(batch, plain):
            if len(batch.items) >= batch.limit:
                self.look_at(batch, now)
            return len(chunk), batch.receipt
        if not self._make_room(batch, now):
            return 0, None
        return len(chunk), self._begin(topic, plain, now)

    def _chunk(self, payloads: list[Payload], start: int) -> tuple[list[Payload], int]:
        """The next payloads that fit into one batch, and their size; none: the first is large.

        The list may be the caller's own.
        """
        packer = self.packer
        whole = start == 0 and len(payloads) <= packer.most
        chunk = payloads if whole else payloads[start : start + packer.most]
        most = min(packer.batch_bytes, packer.message_bytes)
        if len(as_bytes(chunk[0])) <= packer.small_bytes:
            size = len(b"".join(chunk))  # one pass in C over both types and sizes
            if size <= most:
                return chunk, size
        sizes = list(accumulate(len(as_bytes(item)) for item in chunk))
        count = sum(1 for size in sizes if size <= most)
        return chunk[:count], sizes[count - 1] if count else 0

    # --- time, and the end ------------------------------------------------------------------------

    def _flush_due(self, now: float) -> float | None:
        """Seal what has lingered, and everything once the link is idle; when to look again."""
        machine, packer = self.shell.machine, self.packer
        if machine is None:
            return None
        if self._unsettled or self._sealing is not None:
            self._recover()
        if not len(packer):
            return None
        idle = machine.idle
        patience = packer.linger_seconds if machine.ready else OLD_SECONDS
        sealed = False
        for batch in packer:
            if not (idle or now >= batch.opened_at + patience or packer.is_full(batch)):
                continue
            if not machine.chooser.has_room:
                break
            self._seal(batch, now)
            sealed = True
        if sealed:
            self.shell.push(now)
        oldest = next(iter(packer), None)
        if oldest is None or not machine.chooser.has_room:
            return None
        return oldest.opened_at + patience

    def is_flushed(self) -> bool:
        """Seal what is open as far as there is room; whether everything was acknowledged."""
        machine, now = self.shell.machine, monotonic()
        if machine is None:
            return True
        if self._unsettled or self._sealing is not None:
            self._recover()
        if len(self.packer):
            for batch in self.packer:
                if not machine.chooser.has_room:
                    break
                self._seal(batch, now)
            self.shell.push(now)
        return not len(self.packer) and machine.owed_batches == 0

    @property
    def unacknowledged(self) -> int:
        """Messages that were accepted and that no exchange has, as far as is known."""
        machine = self.shell.machine
        if machine is None:
            return 0
        waiting = sum(min(len(batch.items), batch.most) for batch in self.packer)
        given_up = machine.tally.failed_messages + machine.tally.unknown_messages
        return waiting + machine.owed_messages + given_up

    def _give_up(self) -> None:
        for batch in self.packer:
            self._seal(batch, monotonic())


def all_bytes(payloads: list[Payload]) -> list[bytes]:
    """The payloads as immutable bytes; the list itself if they are that already.

    Raises:
        TypeError: as `as_bytes`.
    """
    if set(map(type, payloads)) <= {bytes}:
        return cast("list[bytes]", payloads)
    return [as_bytes(payload) for payload in payloads]


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
