"""Messages on their way into a batch: one open batch per topic. Pure.

`publish()` appends to an open batch without holding a lock, so a batch may be closed by another
thread between two steps of an append. The rule that loses nothing: an append comes first and looks
at `limit` afterwards; closing sets `limit` to 0 first and copies the items afterwards. So an item
that is followed by a limit above its position is in the copy; a thread that sees another limit
takes the publisher's lock and asks `keeps`, which knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Final, Self, cast

from roq.client.publish.receipt import Receipt
from roq.errors import InvalidRequest
from roq.model import Limits
from roq.protocol.attributes import NO_ATTRIBUTES, Attributes, pack_attributes, packed_size
from roq.protocol.columns import (
    COLUMN_MAX,
    KEY_GROUPS,
    LIFETIME_MS_MAX,
    PRIORITIES,
    key_group,
    pack_column,
    pack_lifetime,
    pack_tags,
    tag_bits,
)

Payload = bytes | bytearray | memoryview
Lifetime = float | timedelta
"""Seconds, or a `timedelta`."""

PROBE_MESSAGES: Final = 16
"""After so many messages a batch looks at the clock and estimates when its linger ends."""


class OneWay(bytes):
    """A payload of which nobody waits for the acknowledgement, on its way into a batch."""


class Attributed(bytes):
    """A payload with attributes, on its way into a batch.

    Attributes:
        attributes: key, tags and properties.
        size: bytes of payload and attributes.
        lifetime_ms: its time to live, as all messages of its batch have it; 0: without an end.
    """

    attributes: Attributes
    size: int
    one_way: bool = False
    lifetime_ms: int = 0

    @classmethod
    def of(cls, payload: bytes, attributes: Attributes, packed: int | None = None) -> Self:
        """This payload, with these; `packed` is their `packed_size` if that is known."""
        made = cls(payload)
        made.attributes = attributes
        made.size = len(payload) + (packed_size(attributes) if packed is None else packed)
        return made


def one_way(payload: bytes) -> bool:
    """Whether nobody waits for the acknowledgement of this payload."""
    return isinstance(payload, OneWay) or (isinstance(payload, Attributed) and payload.one_way)


def size_of(payload: bytes) -> int:
    """Bytes that a payload takes in a batch, its attributes included."""
    return payload.size if isinstance(payload, Attributed) else len(payload)


def lifetime_of(payload: bytes) -> int:
    """Its time to live, milliseconds; 0: without an end."""
    return payload.lifetime_ms if isinstance(payload, Attributed) else 0


def lifetime_ms(ttl: Lifetime | None, *, delayed: bool = False) -> int:
    """The time to live that somebody gives, milliseconds; 0: none.

    Raises:
        InvalidRequest: it is less than a millisecond, or more than ten years; or the message is
            delayed as well.
    """
    if ttl is None:
        return 0
    if delayed:
        raise InvalidRequest("a message is delayed, or has a time to live: say one of them")
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else float(ttl)
    if not 0.001 <= seconds <= LIFETIME_MS_MAX / 1_000:
        raise InvalidRequest(f"a message lives for a millisecond to ten years, not {ttl!r:.80} s")
    return round(seconds * 1_000)


def part_attributes(payloads: list[bytes]) -> tuple[list[bytes], bytes | None, bytes]:
    """The plain payloads, the attributes of all of them packed (None: none has any), and what the
    batch says of them to exchanges."""
    given = {
        index: payload.attributes
        for index, payload in enumerate(payloads)
        if isinstance(payload, Attributed) and payload.attributes is not NO_ATTRIBUTES
    }
    plain, lifetime = [bytes(payload) for payload in payloads], lifetime_of(payloads[0])
    area = pack_lifetime(lifetime) if lifetime else b""
    if not given:
        return plain, None, area
    return plain, pack_attributes(given), area + _columns(given, len(plain))


def _columns(given: dict[int, Attributes], count: int) -> bytes:
    groups, priorities, tags = bytearray(count), bytearray(count), 0
    before, group, bits = NO_ATTRIBUTES, 0, 0
    for index, each in given.items():
        if each is not before:  # many messages may share one
            before, group, bits = each, key_group(each.key), tag_bits(each.tags)
        groups[index], priorities[index] = group, each.priority
        tags |= bits
    return (
        pack_column(KEY_GROUPS, bytes(groups))
        + pack_column(PRIORITIES, bytes(priorities))
        + pack_tags(tags)
    )


class OpenBatch:
    """A batch that still takes messages.

    Attributes:
        attributed: whether some of its messages are more than their payload.
        items: the payloads; may hold more than `taken` of them for a moment.
        lifetime_ms: the time to live of its messages; 0: without an end.
        most: messages that it may hold.
        small: payloads up to this size may be appended without adding sizes up.
        limit: with this many items the caller looks more closely; 0 once it is closed.
        receipt: shared by all messages.
    """

    __slots__ = (
        "attributed",
        "big_bytes",
        "items",
        "lifetime_ms",
        "limit",
        "most",
        "opened_at",
        "receipt",
        "small",
        "taken",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        items: list[bytes],
        receipt: Receipt,
        opened_at: float,
        *,
        most: int,
        small: int,
    ) -> None:
        self.topic = topic
        self.items = items
        self.most = most
        self.small = small
        self.receipt = receipt
        self.opened_at = opened_at
        self.limit = 0
        self.big_bytes = 0
        self.taken = 0
        self.attributed = False
        self.lifetime_ms = lifetime_of(next(iter(items), b""))


class Packer:
    """The open batches of one publisher. All methods need the publisher's lock.

    Attributes:
        fast: topic → open batch that may be appended to without the lock.
        small_bytes: payloads up to this size may be appended without adding sizes up: a batch that
            is full of them is not too large.
        most: messages in a batch.
        batch_bytes: payloads of a batch, unless a single one is larger.
        message_bytes: the largest payload.
    """

    def __init__(
        self, new_receipt: Callable[[], Receipt], limits: Limits, linger_seconds: float
    ) -> None:
        self.fast: dict[str, OpenBatch] = {}
        self.linger_seconds = linger_seconds
        self._new_receipt = new_receipt
        self._opened: dict[str, OpenBatch] = {}
        self.adopt(limits)

    def adopt(self, limits: Limits) -> None:
        """Use these limits from the next batch on."""
        self.most = max(1, min(limits.batch_messages, COLUMN_MAX))
        self.batch_bytes = max(1, limits.batch_bytes)
        self.message_bytes = limits.message_bytes
        self.small_bytes = self.batch_bytes // self.most

    def __len__(self) -> int:
        return len(self._opened)

    def __iter__(self) -> Iterator[OpenBatch]:
        """The open batches, the oldest first."""
        return iter(list(self._opened.values()))

    def get(self, topic: str) -> OpenBatch | None:
        """The open batch of a topic."""
        return self._opened.get(topic)

    def open(self, topic: str, items: list[bytes], now: float) -> OpenBatch:
        """Begin a batch with these items, which nobody else may hold.

        With attributes there is one.
        """
        batch = OpenBatch(
            topic,
            items,
            self._new_receipt(),
            now,
            most=self.most,
            small=min(self.small_bytes, self.message_bytes),
        )
        batch.limit = self.most if len(items) >= PROBE_MESSAGES else min(PROBE_MESSAGES, self.most)
        batch.big_bytes = self._big_bytes(items)
        batch.attributed = isinstance(next(iter(items), None), Attributed | OneWay)
        batch.receipt.one_way = one_way(next(iter(items), b""))
        self._opened[topic] = batch
        if len(items) < self.most and not (batch.receipt.one_way or batch.lifetime_ms):
            self.fast[topic] = batch
        return batch

    def fits(self, batch: OpenBatch, size: int, lifetime: int = 0) -> bool:
        """Whether a payload of this size, and time to live, may join the batch."""
        count = len(batch.items)
        return (
            count < batch.most
            and batch.lifetime_ms == lifetime
            and batch.big_bytes + self.small_bytes * count + size <= self.batch_bytes
        )

    def joins(self, batch: OpenBatch, payloads: list[bytes], size: int) -> bool:
        """Whether these payloads, of this size together, may join the batch."""
        count = len(batch.items)
        return (
            count + len(payloads) <= batch.most
            and not batch.lifetime_ms
            and batch.big_bytes + self.small_bytes * count + size <= self.batch_bytes
        )

    def is_full(self, batch: OpenBatch) -> bool:
        """Whether no further message is to be waited for."""
        return (
            len(batch.items) >= batch.most
            or batch.big_bytes + self.small_bytes * len(batch.items) >= self.batch_bytes
        )

    def add(self, batch: OpenBatch, payload: bytes) -> bool:
        """Append a payload that fits; False if another thread was quicker and it did not."""
        size = size_of(payload)
        if size > self.small_bytes:
            batch.big_bytes += size
        if type(payload) is not bytes:
            batch.attributed = True
        if batch.receipt.one_way and not one_way(payload):
            batch.receipt.one_way = False  # somebody waits for one of its messages
        batch.items.append(payload)
        return self.keeps(batch, payload)

    def keeps(self, batch: OpenBatch, payload: bytes) -> bool:
        """Whether an appended payload is (or will be) in the batch; takes it out again if not."""
        end = batch.most if batch.limit else batch.taken
        items = batch.items
        for index in range(end, len(items)):
            if items[index] is payload:
                del items[index]
                return False
        return True

    def withdraw(self, batch: OpenBatch, payload: bytes) -> None:
        """Take an appended payload out again, without the lock, but while this thread has it.

        A signal handler has appended it in the middle of what the thread was about.
        """
        items = batch.items
        for index in range(len(items) - 1, -1, -1):
            if items[index] is payload:
                del items[index]
                return

    def stretch(self, batch: OpenBatch, now: float) -> bool:
        """The batch has reached its first look at the clock: set the next one by its pace.

        Returns:
            Whether its linger has ended.
        """
        elapsed = now - batch.opened_at
        if elapsed >= self.linger_seconds:
            return True
        count = len(batch.items)
        pace = int(count * self.linger_seconds / elapsed) if elapsed > 0 else batch.most
        batch.limit = min(batch.most, max(pace, count + 1))
        return False

    def shut(self, batch: OpenBatch) -> None:
        """Nothing may be appended without the lock any more; the batch itself stays open."""
        self.fast.pop(batch.topic, None)

    def close(self, batch: OpenBatch) -> list[bytes]:
        """End the batch and give its payloads."""
        batch.limit = 0
        payloads = batch.items[: batch.most]
        batch.taken = len(payloads)
        self.fast.pop(batch.topic, None)
        self._opened.pop(batch.topic, None)
        return payloads

    def extend(self, batch: OpenBatch, payloads: list[bytes]) -> bool:
        """Append payloads that fit; False if another thread was quicker and they did not."""
        items, start, count = batch.items, len(batch.items), len(payloads)
        batch.receipt.one_way = False
        batch.big_bytes += self._big_bytes(payloads)
        items.extend(payloads)
        if len(items) > batch.most:
            # What a quicker thread added stands before them or behind them, and stays.
            while items[start : start + count] != payloads:
                start += 1
            if start + count > batch.most:
                del items[start : start + count]
                return False
        return True

    def _big_bytes(self, payloads: list[bytes]) -> int:
        """The size of those that are counted one by one."""
        small = self.small_bytes
        sizes = size_of if isinstance(next(iter(payloads), None), Attributed) else len
        if max(map(sizes, payloads), default=0) <= small:
            return 0
        return sum(size for size in map(sizes, payloads) if size > small)


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


def payload_of(
    payload: Payload, attributes: Attributes | None, lifetime: int, *, wait: bool
) -> bytes:
    """The payload with all that it has beside, as immutable bytes.

    Raises:
        TypeError: as `as_bytes`.
    """
    data = as_bytes(payload)
    if attributes is not None or lifetime:
        made = Attributed.of(data, attributes or NO_ATTRIBUTES)
        made.one_way, made.lifetime_ms = not wait, lifetime
        return made
    return data if wait else OneWay(data)


def with_attributes(
    payloads: Iterable[Payload], attributes: Attributes | None, lifetime: int = 0
) -> list[Payload]:
    """The payloads as a list, each with these attributes, and a time to live, if there are any."""
    if attributes is not None or lifetime:
        given = attributes or NO_ATTRIBUTES
        packed = packed_size(given)
        every = [Attributed.of(as_bytes(payload), given, packed) for payload in payloads]
        for each in every:
            each.lifetime_ms = lifetime
        return cast("list[Payload]", every)
    return payloads if isinstance(payloads, list) else list(payloads)
