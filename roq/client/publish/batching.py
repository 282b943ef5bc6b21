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
from operator import is_
from typing import Final, Self, cast

import msgspec

from roq.client.publish.receipt import Receipt
from roq.errors import InvalidRequest
from roq.model import Limits, as_number, shown
from roq.protocol.attributes import (
    NO_ATTRIBUTES,
    Attributes,
    keyed,
    pack_attributes,
    pack_one,
)
from roq.protocol.columns import (
    COLUMN_MAX,
    KEY_GROUPS,
    LIFETIME_MS_MAX,
    PRIORITIES,
    key_group,
    key_hash,
    pack_column,
    pack_keys,
    pack_lifetime,
    pack_sent_again,
    pack_tags,
    tag_bits,
)

Payload = bytes | bytearray | memoryview
Lifetime = float | timedelta
"""Seconds, or a `timedelta`."""

PROBE_MESSAGES: Final = 16
"""After so many messages a batch looks at the clock and estimates when its linger ends."""
KEYS_MAX: Final = 4_096
"""Keys that a publisher remembers as they travel."""


class OneWay(bytes):
    """A payload of which nobody waits for the acknowledgement, on its way into a batch."""


class Beside(msgspec.Struct, frozen=True, gc=False):
    """What messages have beside their payloads; those of one call, or of one key, share it.

    Attributes:
        attributes: key, tags, properties and priority.
        packed: the same, as they travel.
        size: bytes that this takes in a batch for each message, or a few more.
        group, tags, key_hash: what exchanges are told of them (`roq.protocol.columns`).
        lifetime_ms: the time to live, as all messages of a batch have it; 0: without an end.
        one_way: nobody waits for the acknowledgement.
        again: it is a request that is sent once more.
    """

    attributes: Attributes
    packed: msgspec.Raw
    size: int
    group: int
    tags: int
    key_hash: int
    lifetime_ms: int = 0
    one_way: bool = False
    again: bool = False


def beside_of(given: Attributes, lifetime: int = 0, *, one_way: bool = False) -> Beside:
    """What messages with these attributes, and this time to live, have beside their payloads."""
    packed, size = pack_one(given)
    tags = tag_bits(given.tags) if given.tags else 0
    group, hashed = key_group(given.key), 0 if given.key is None else key_hash(given.key)
    return Beside(given, packed, size, group, tags, hashed, lifetime, one_way)


class Attributed(bytes):
    """A payload that has something beside it, on its way into a batch."""

    beside: Beside

    @classmethod
    def of(cls, payload: bytes, attributes: Attributes) -> Self:
        """This payload, with these."""
        made = cls(payload)
        made.beside = beside_of(attributes)
        return made

    @classmethod
    def sent_again(cls, payload: bytes, attributes: Attributes) -> Self:
        """This request, sent once more, with these, which say as what it was known before."""
        made = cls(payload)
        made.beside = msgspec.structs.replace(beside_of(attributes), again=True)
        return made


def one_way(payload: bytes) -> bool:
    """Whether nobody waits for the acknowledgement of this payload."""
    return isinstance(payload, OneWay) or (
        isinstance(payload, Attributed) and payload.beside.one_way
    )


def beside_size(payload: object) -> int:
    """Bytes that a message takes in a batch beside its payload."""
    return payload.beside.size if isinstance(payload, Attributed) else 0


def size_of(payload: Payload) -> int:
    """Bytes that a payload takes in a batch, with what it has beside."""
    return len(payload) + beside_size(payload)


def lifetime_of(payload: object) -> int:
    """Its time to live, milliseconds; 0: without an end."""
    return payload.beside.lifetime_ms if isinstance(payload, Attributed) else 0


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
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else as_number(ttl)
    if not 0.001 <= seconds <= LIFETIME_MS_MAX / 1_000:
        raise InvalidRequest(
            f"ttl is seconds or a timedelta, of a millisecond to ten years, not {shown(ttl)}"
        )
    return round(seconds * 1_000)


def part_attributes(payloads: list[bytes]) -> tuple[list[bytes], bytes | None, bytes]:
    """The plain payloads, the attributes of all of them packed (None: none has any), and what the
    batch says of them to exchanges."""
    given = {
        index: payload.beside
        for index, payload in enumerate(payloads)
        if isinstance(payload, Attributed) and payload.beside.attributes is not NO_ATTRIBUTES
    }
    plain, lifetime = list(map(bytes, payloads)), lifetime_of(payloads[0])
    area = pack_lifetime(lifetime) if lifetime else b""
    if not given:
        return plain, None, area
    packed = pack_attributes({index: each.packed for index, each in given.items()})
    return plain, packed, area + _columns(given, len(plain))


def _columns(given: dict[int, Beside], count: int) -> bytes:
    groups, priorities, tags, again = bytearray(count), bytearray(count), 0, False
    for index, each in given.items():
        groups[index] = each.group
        priorities[index] = each.attributes.priority
        tags |= each.tags
        again |= each.again
    return (
        pack_column(KEY_GROUPS, bytes(groups))
        + pack_column(PRIORITIES, bytes(priorities))
        + pack_tags(tags)
        + pack_keys({each.key_hash for each in given.values() if each.group})
        + (pack_sent_again() if again else b"")
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
    """The open batches of one publisher. All methods but `keyed` need the publisher's lock.

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
        self._keys: dict[str, Beside] = {}
        """What messages of a key have beside their payloads, for keys that come again."""
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

    def keyed(self, batch: OpenBatch, payload: bytes, key: str) -> Attributed | None:
        """The payload of a message with this key, and nothing else, to be appended to the batch;
        without the lock. None: it is to be looked at first.

        Raises:
            TypeError, InvalidName: as `roq.protocol.attributes.keyed`.
        """
        beside = self._keys.get(key) if type(key) is str else None
        if beside is None:
            beside = beside_of(keyed(key))
            if len(self._keys) >= KEYS_MAX:
                self._keys.clear()
            self._keys[key] = beside
        if len(payload) + beside.size > batch.small:
            return None
        made = Attributed(payload)
        made.beside = beside
        batch.attributed = True  # before it is appended: whoever closes the batch looks afterwards
        return made

    def fits(self, batch: OpenBatch, size: int, lifetime: int = 0) -> bool:
        """Whether a payload of this size, and time to live, may join the batch."""
        count = len(batch.items)
        return (
            count < batch.most
            and batch.lifetime_ms == lifetime
            and batch.big_bytes + self.small_bytes * count + size <= self.batch_bytes
        )

    def joins(self, batch: OpenBatch, payloads: list[bytes], size: int) -> bool:
        """Whether these payloads, of this size together, may join the batch; all have the same
        beside them."""
        count = len(batch.items)
        return (
            count + len(payloads) <= batch.most
            and batch.lifetime_ms == lifetime_of(payloads[0])
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
        pace = count * self.linger_seconds / elapsed if elapsed > 0 else batch.most
        batch.limit = int(min(batch.most, max(pace, count + 1)))  # a linger may be infinite
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
        if isinstance(payloads[0], Attributed):
            batch.attributed = True  # never taken back: another thread may just have set it
        batch.big_bytes += self._big_bytes(payloads)
        items.extend(payloads)
        if len(items) > batch.most:
            # What a quicker thread added stands before them or behind them, and stays; it may be
            # equal to them, but with another key.
            while not all(map(is_, items[start : start + count], payloads)):
                start += 1
            if start + count > batch.most:
                del items[start : start + count]
                return False
        return True

    def _big_bytes(self, payloads: list[bytes]) -> int:
        """The size of those that are counted one by one; all have the same beside them."""
        beside = beside_size(next(iter(payloads), None))
        small = self.small_bytes - beside
        if max(map(len, payloads), default=0) <= small:
            return 0
        return sum(size + beside for size in map(len, payloads) if size > small)


def all_bytes(payloads: list[Payload]) -> list[bytes]:
    """The payloads as immutable bytes, or `Attributed`; the list itself if they are that already.

    Raises:
        TypeError: as `as_bytes`.
    """
    if set(map(type, payloads)) <= {bytes} or isinstance(payloads[0], Attributed):
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
        made = Attributed(data)
        made.beside = beside_of(attributes or NO_ATTRIBUTES, lifetime, one_way=not wait)
        return made
    return data if wait else OneWay(data)


def with_attributes(
    payloads: Iterable[Payload], attributes: Attributes | None, lifetime: int = 0
) -> list[Payload]:
    """The payloads as a list, each with these attributes, and a time to live, if there are any."""
    if attributes is None and not lifetime:
        return payloads if isinstance(payloads, list) else list(payloads)
    beside = beside_of(attributes or NO_ATTRIBUTES, lifetime)
    every: list[Payload] = []
    for payload in payloads:
        made = Attributed(payload if type(payload) is bytes else as_bytes(payload))
        made.beside = beside
        every.append(made)
    return every
