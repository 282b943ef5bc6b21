"""Looks single messages of a queue up, by id and by key, as methods of `roq.Cluster`.

Exchanges tell where a key may be (`roq.log.key_search`), and the batches are looked at here.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from roq.client.consume.delayed import DelayedCommands
from roq.errors import (
    InvalidName,
    QueueStopped,
    RemoteProtocolError,
    RoQError,
    StaleEpoch,
    Unavailable,
)
from roq.log.key_index import keys_in
from roq.model import check_count
from roq.number_ranges import CHILD_EPOCH_MAX, OFFSET_MAX
from roq.protocol.attributes import NO_ATTRIBUTES, attributes_of
from roq.protocol.channel import KeyPlaces
from roq.protocol.columns import key_hash
from roq.protocol.public_answers import QueueDescription
from roq.read.log_reader import LogReader
from roq.read.range_reader import LogBatch

MOST_MAX: Final = 1_000
_ID: Final = re.compile(r"x(\d{1,10})-(\d{1,11})-(\d{1,19})-(\d{1,7})")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class FoundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it stands in the log of an exchange."""

    id: str
    """As `ConsumedMessage.id`: exchange, generation of its log, offset, index."""
    topic: str
    payload: bytes
    key: str | None
    tags: tuple[str, ...]
    properties: dict[str, str]
    priority: int
    publisher: str
    """Hexadecimal."""
    sequence: int
    """Its position in the publisher's stream of this topic."""
    published: datetime
    """When its publisher made the batch, by that one's clock."""
    appended: datetime
    """When the exchange took it in, by that one's clock."""


class FoundMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a key."""

    messages: list[FoundMessage]
    """Those that came last to their exchanges, the newest first."""
    more: bool
    """There are, or may be, older ones."""
    missing: dict[str, str]
    """Exchanges that were not, or not wholly, looked at, and why; empty: the answer is complete."""


class MessageCommands(DelayedCommands):
    """What is asked of single messages. A look-up asks the exchanges one after the other."""

    def find_message(
        self, queue: str, message: str, *, timeout: float | None = None
    ) -> FoundMessage | None:
        """The message with this id.

        Args:
            message: as `ConsumedMessage.id`, a dead letter (`roq.dead.id`) and `find_messages` tell
                it.
            timeout: seconds that the exchange has to answer; None: as `connect` was told.

        Returns:
            None: it has left the log, or there never was one.

        Raises:
            InvalidName: that cannot be an id.
            Unavailable: its exchange does not answer, or is away.
            QueueStopped: the queue does not run.
        """
        number, generation, offset, index = parse_id(message)
        described = _running(self.describe(queue))
        for each in described.exchanges:
            if each.name != f"x{number}":
                continue
            if not each.data:
                raise Unavailable(f"exchange {each.name}, which has it, is {each.state}")
            with self._log(described, each.data, number, generation, timeout) as log:
                try:
                    for batch in log.read(offset, offset + 1):
                        return next(_messages(batch, number, generation, index=index), None)
                except StaleEpoch:
                    return None
        return None

    def find_messages(
        self, queue: str, key: str, *, most: int = 100, timeout: float | None = None
    ) -> FoundMessages:
        """The newest messages of a key, of all that is in the logs of the queue.

        Segments that are complete have an index; what is newer, and all of a queue in memory, is
        read.

        Args:
            key: as it was published.
            most: so many, at most 1,000.
            timeout: seconds for all of it; None: as `connect` was told.

        Raises:
            InvalidName: that cannot be a key.
            InvalidRequest: `most` is out of range.
            QueueStopped: the queue does not run.
        """
        if not isinstance(key, str):
            raise InvalidName(f"a key is text, not {type(key).__name__}")
        attributes_of(key, None, None)  # as a publisher has it checked
        most = check_count("most", most, 1, MOST_MAX)
        deadline = time.monotonic() + self._seconds(timeout)
        described = _running(self.describe(queue))
        found: list[FoundMessage] = []
        missing: dict[str, str] = {}
        for each in described.exchanges:
            number = int(each.name.removeprefix("x"))
            if not each.data:
                missing[each.name] = f"it is {each.state}"
                continue
            with self._log(described, each.data, number, None, deadline - time.monotonic()) as log:
                try:
                    found.extend(_newest(log, number, key, most + 1, deadline))
                except RoQError as error:
                    missing[each.name] = str(error)
        found.sort(key=lambda message: message.appended, reverse=True)
        more = len(found) > most or bool(missing)
        return FoundMessages(messages=found[:most], more=more, missing=missing)

    def _log(
        self,
        described: QueueDescription,
        address: str,
        number: int,
        generation: int | None,
        timeout: float | None,
    ) -> LogReader:
        return LogReader(
            self._engine.translate(address), bytes.fromhex(described.queue_id), number=number,
            generation=generation, timeout=max(0.1, self._seconds(timeout)),
        )  # fmt: skip


def parse_id(message: str) -> tuple[int, int, int, int]:
    """Exchange, generation of its log, offset and index.

    Raises:
        InvalidName: that is no id.
    """
    parts = _ID.fullmatch(message) if isinstance(message, str) else None
    numbers = tuple(map(int, parts.groups())) if parts is not None else ()
    if len(numbers) != 4 or numbers[1] > CHILD_EPOCH_MAX or numbers[2] >= OFFSET_MAX:
        raise InvalidName(
            f"{message!r:.80} is no id of a message: exchange, generation of its log, offset and "
            "index, such as x1-65537-1200-0"
        )
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _running(described: QueueDescription) -> QueueDescription:
    if not described.running:
        raise QueueStopped(f"queue {described.name} is stopped: start it first")
    return described


def _newest(
    log: LogReader, number: int, key: str, most: int, deadline: float
) -> Iterator[FoundMessage]:
    """The newest messages of a key in one log, the newest first.

    Raises:
        Unavailable: the exchange does not answer, or the time is over.
    """
    before, wanted = OFFSET_MAX, key_hash(key)
    generation = log.ends().generation
    while most > 0:
        told = log.find(wanted, before)
        _check(told, before)
        for first, behind in told.places:
            newest: deque[FoundMessage] = deque(maxlen=most)
            for batch in log.read(first, behind):
                if time.monotonic() > deadline:
                    raise Unavailable("the time was over before all of it was read")
                if key in keys_in(batch.data):
                    newest.extend(_messages(batch, number, generation, key=key))
            yield from reversed(newest)
            most -= len(newest)
            if most <= 0:
                return
        if told.reached <= told.floor:
            return
        before = told.reached


def _check(told: KeyPlaces, before: int) -> None:
    """Make sure that each answer goes further down.

    Raises:
        RemoteProtocolError: no exchange says this.
    """
    top = before
    for first, behind in told.places:
        if not told.reached <= first < behind <= top:
            raise RemoteProtocolError(f"it names offsets {first} to {behind}, asked below {top}")
        top = first
    if told.reached >= before and told.reached > told.floor:
        raise RemoteProtocolError(f"it has looked down to {told.reached}, asked below {before}")


def _messages(
    batch: LogBatch, number: int, generation: int, *, index: int = -1, key: str | None = None
) -> Iterator[FoundMessage]:
    """Those of a batch that are asked for: the one at this index, or those of this key.

    What nobody can read has none.
    """
    try:
        payloads, attributes = batch.body()
        for at, payload in enumerate(payloads):
            sequence = batch.header.first_sequence + at
            if index >= 0 and at != index:
                continue
            given = NO_ATTRIBUTES if attributes is None else attributes.of(sequence)
            if key is not None and given.key != key:
                continue
            yield FoundMessage(
                id=f"x{number}-{generation}-{batch.offset}-{at}",
                topic=batch.topic.decode(errors="replace"), payload=payload, key=given.key,
                tags=given.tags, properties=given.properties, priority=given.priority,
                publisher=batch.header.publisher.hex(), sequence=sequence,
                published=_time(batch.header.created_us), appended=_time(batch.appended_us),
            )  # fmt: skip
    except RemoteProtocolError:
        return


def _time(us: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:  # a publisher says what it likes
        return datetime.max.replace(tzinfo=UTC)
