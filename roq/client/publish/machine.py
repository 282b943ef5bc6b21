"""What one publisher decides: which batch a message joins, when it is sealed, where it goes. Pure.

    publish --> open batch --full, old, or the links are idle--> window of a link --> transmit
                (batching)                                       (links)

    event --> links --> effects

Nothing waits here: what finds no room gives None, and the shell decides whether to wait. The shell
(`roq.client.publish.shell`) holds the lock for every call, but for the fast path in
`Publisher.publish`; after each it sends what is `unsent`, and calls `seal_due` at `due`.

An exception of a signal handler may end a call at any point. `changing` is set for as long as a
message could get lost or doubled by that; the machine that is found so is not used any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from typing import cast

from roq.client.publish.batching import (
    Attributed,
    OneWay,
    OpenBatch,
    Packer,
    Payload,
    all_bytes,
    as_bytes,
    beside_size,
    lifetime_of,
    one_way,
    part_attributes,
    size_of,
)
from roq.client.publish.events import Assignment, Effect, Elsewhere, Event, Leave
from roq.client.publish.latency import LatencyBook
from roq.client.publish.links import Links
from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.client.publish.resume import Identity
from roq.client.publish.retries import Sends
from roq.client.publish.stats import PublisherStats
from roq.client.session.events import SessionFacts
from roq.client.session.status import PublisherFacts
from roq.errors import MessageTooLarge
from roq.machine import Tick
from roq.model import Limits, PublisherId
from roq.runtime.backoff import Jitter

OLD_SECONDS = 1.0
"""Without a link, batches fill up; one that is this old is sealed, so that its time-out begins."""


class PublisherMachine:
    """Decides for one publisher.

    Args:
        publisher: id of the publisher.
        queue: its name, for messages.
        limits: used until an exchange is assigned.
        linger_seconds: how long a message waits for others at most.
        delivery_seconds: what is not acknowledged for so long is given up.
        new_receipt: makes the receipt of a batch.
        wall_us: the time of day in µs since 1970.
        now: the present time.
        jitter, offsets, latency: see `Links`.
        resumed: with what a named publisher goes on.

    Attributes:
        links: the exchanges that it publishes at.
        packer: the open batches.
        sends: messages that somebody waits for, to be tried elsewhere in time.
        messages, batches: sealed since the start.
        full_batches: those of them that filled up by themselves.
        unsent: something was sealed since this was reset.
        due: when `seal_due` is wanted for a batch that was opened; infinite: not.
        changing: a change is half done.
    """

    def __init__(
        self,
        publisher: PublisherId,
        queue: str,
        limits: Limits,
        *,
        linger_seconds: float,
        delivery_seconds: float,
        new_receipt: Callable[[], Receipt],
        wall_us: Callable[[], int],
        now: float,
        jitter: Jitter | None = None,
        offsets: bool = False,
        latency: LatencyBook | None = None,
        resumed: Identity | None = None,
    ) -> None:
        self.links = Links(
            publisher, limits, delivery_seconds=delivery_seconds, jitter=jitter, now=now,
            offsets=offsets, latency=latency,
            incarnation=0 if resumed is None else resumed.incarnation,
        )  # fmt: skip
        if resumed is not None:
            self.links.topics.resume(resumed.streams, resumed.taken_over)
            self.links.published.resume(resumed.logs)
        self.packer = Packer(new_receipt, limits, linger_seconds)
        self.sends = Sends()
        self.messages = 0
        self.batches = 0
        self.full_batches = 0
        self.unsent = False
        self.due = math.inf
        self.changing = False
        self._queue = queue
        self._new_receipt = new_receipt
        self._wall_us = wall_us
        self._sealing: Receipt | None = None

    @property
    def has_room(self) -> bool:
        """Whether another batch may be sealed."""
        return self.links.chooser.has_room

    # --- one message ------------------------------------------------------------------------------

    def publish(self, data: bytes, topic: str, now: float) -> Receipt | None:
        """Put one message into a batch; None if there is no room for one more batch.

        Raises:
            RoQError: this message cannot be published.
        """
        packer, links = self.packer, self.links
        size = size_of(data)
        if size > packer.message_bytes:
            error = MessageTooLarge(
                f"a message of {size} bytes is above the limit of queue {self._queue} "
                f"({packer.message_bytes} bytes): split it, or set message_bytes when creating "
                "the queue"
            )
            error.limit = packer.message_bytes
            raise error
        batch = packer.get(topic)
        if batch is None:
            if links.idle and links.chooser.has_room and size < packer.batch_bytes:
                # No batch needs to be opened: there is nothing to wait for.
                return self._seal_new(topic, [data], now)
        elif packer.fits(batch, size, lifetime_of(data)) and packer.add(batch, data):
            if packer.is_full(batch) or len(batch.items) >= batch.limit:
                self.look_at(batch, now)
            return batch.receipt
        if not self._make_room(batch, topic, now):
            return None
        return self._begin(topic, [data], now)

    def look_at(self, batch: OpenBatch, now: float) -> None:
        """A batch has reached its limit: it is full, or it is time to look at the clock."""
        full = self.packer.is_full(batch)
        if not full and not self.packer.stretch(batch, now):
            return
        if self.links.chooser.has_room:
            self.full_batches += 1
            self._seal(batch, now)
        elif full:
            self.packer.shut(batch)
        else:
            batch.limit = batch.most

    def _make_room(self, batch: OpenBatch | None, topic: str, now: float) -> bool:
        """Seal what stands before a new batch; False if the window does not allow it.

        Raises:
            RoQError: the new batch is refused; nothing was sealed.
        """
        self.links.topics.stream(topic)
        if batch is None and len(self.packer) >= self.links.limits.window_batches:
            batch = next(iter(self.packer))
        if batch is None:
            return True
        if not self.links.chooser.has_room:
            self.packer.shut(batch)
            return False
        self._seal(batch, now)
        return True

    def _begin(self, topic: str, items: list[bytes], now: float) -> Receipt:
        """Open a batch; on idle links, or if it is full already, seal it."""
        links, packer = self.links, self.packer
        batch = packer.open(topic, items, now)
        full = packer.is_full(batch)
        if (full or links.idle) and links.chooser.has_room:
            self.full_batches += full
            self._seal(batch, now)
        else:
            if full:
                packer.shut(batch)
            self.due = min(self.due, now + packer.linger_seconds)
        return batch.receipt

    def _seal_new(self, topic: str, payloads: list[bytes], now: float) -> Receipt:
        """Seal payloads that were never in an open batch; there must be room."""
        receipt = self._new_receipt()
        attributed = isinstance(payloads[0], Attributed | OneWay)
        receipt.one_way = one_way(payloads[0])
        self._seal_payloads(topic, payloads, receipt, now, attributed=attributed)
        return receipt

    def _seal(self, batch: OpenBatch, now: float) -> None:
        batch.receipt.count = min(len(batch.items), batch.most)
        self._sealing = batch.receipt
        self.changing = True
        payloads = self.packer.close(batch)
        self._seal_payloads(batch.topic, payloads, batch.receipt, now, attributed=batch.attributed)

    def _seal_payloads(
        self, topic: str, payloads: list[bytes], receipt: Receipt, now: float, *, attributed: bool
    ) -> None:
        attributes: bytes | None = None
        extensions = b""
        if attributed:
            payloads, attributes, extensions = part_attributes(payloads)
        chooser, stream = self.links.chooser, self.links.topics.stream(topic)
        receipt.count = len(payloads)
        self._sealing = receipt
        self.changing = True
        self.messages += len(payloads)
        self.batches += 1
        chooser.seal(stream, payloads, receipt, now, self._wall_us(), attributes, extensions)
        self.unsent = True
        self.changing = False

    # --- many messages ----------------------------------------------------------------------------

    def publish_chunk(
        self, payloads: list[Payload], position: int, topic: str, now: float
    ) -> tuple[int, Receipt | None]:
        """Publish the next messages that fit into one batch; how many, and their receipt or None.

        Raises:
            RoQError: as `publish`.
        """
        chunk, size = self._chunk(payloads, position)
        if not chunk:
            first = payloads[position]
            whole = first if isinstance(first, Attributed) else as_bytes(first)
            return 1, self.publish(whole, topic, now)
        packer = self.packer
        batch = packer.get(topic)
        if batch is None and len(chunk) >= packer.most and self.links.chooser.has_room:
            self.full_batches += 1
            # Packed before this returns, so bytes-like payloads need no copy.
            return len(chunk), self._seal_new(topic, cast("list[bytes]", chunk), now)
        plain = all_bytes(chunk)  # kept for a while: must not change
        plain = plain[:] if plain is payloads else plain
        if batch is not None and packer.joins(batch, plain, size) and packer.extend(batch, plain):
            if len(batch.items) >= batch.limit:
                self.look_at(batch, now)
            return len(chunk), batch.receipt
        if not self._make_room(batch, topic, now):
            return 0, None
        return len(chunk), self._begin(topic, plain, now)

    def _chunk(self, payloads: list[Payload], start: int) -> tuple[list[Payload], int]:
        """The next payloads that fit into one batch, and their size; none: the first is large.

        The list may be the caller's own. All have the same beside them.
        """
        packer = self.packer
        whole = start == 0 and len(payloads) <= packer.most
        chunk = payloads if whole else payloads[start : start + packer.most]
        most = min(packer.batch_bytes, packer.message_bytes)
        beside = beside_size(chunk[0])
        if len(as_bytes(chunk[0])) + beside <= packer.small_bytes:
            size = len(b"".join(chunk)) + beside * len(chunk)  # in C over both types and sizes
            if size <= most:
                return chunk, size
        sizes = list(accumulate(len(as_bytes(item)) + beside for item in chunk))
        count = sum(1 for size in sizes if size <= most)
        return chunk[:count], sizes[count - 1] if count else 0

    # --- events, and time -------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in; see `Links`."""
        effects = self.links.handle(event, now)
        if isinstance(event, Assignment):
            self.packer.adopt(self.links.limits)
        if isinstance(event, Tick) and self.sends.take_due(now):
            effects += self.links.handle(Elsewhere("a message waits for its acknowledgement"), now)
        return effects

    def next_deadline(self) -> float | None:
        """When a `Tick` is wanted at the latest."""
        times = (self.links.next_deadline(), self.sends.next_deadline())
        return min((at for at in times if at is not None), default=None)

    def seal_due(self, now: float) -> float | None:
        """Seal what has lingered, and everything once the links are idle; when to look again."""
        links, packer = self.links, self.packer
        self.due = math.inf
        if not len(packer):
            return None
        idle = links.idle
        patience = packer.linger_seconds if links.ready else OLD_SECONDS
        for batch in packer:
            if not (idle or now >= batch.opened_at + patience or packer.is_full(batch)):
                continue
            if not links.chooser.has_room:
                break
            self._seal(batch, now)
        oldest = next(iter(packer), None)
        if oldest is None or not links.chooser.has_room:
            return None
        return oldest.opened_at + patience

    def seal_open(self, now: float) -> bool:
        """Seal what is open as far as there is room; whether everything was acknowledged.

        What nobody waits for may still be under way.
        """
        for batch in self.packer:
            if not self.links.chooser.has_room:
                break
            self._seal(batch, now)
        return not len(self.packer) and not self.links.waited_for

    def leave(self, reason: str, now: float, *, torn: bool = False) -> list[Effect]:
        """The publisher ends: what is open or not acknowledged is given up.

        May be called again if an exception of a signal handler has ended the call itself.

        Args:
            reason: why, for everybody whose messages are given up.
            now: the present time.
            torn: such an exception has left a change half done; the fate of what was in it is told,
                too: unknown.
        """
        tally, failed = self.links.tally, SendStatus(outcome=Outcome.FAILED, reason=reason)
        for batch in self.packer:
            if not batch.receipt.done():
                batch.receipt.count = count = min(len(batch.items), batch.most)
                self.messages += count
                tally.give_up(count, failed, one_way=batch.receipt.one_way)
                batch.receipt.settle(failed)
            self.packer.close(batch)
        effects = self.links.handle(Leave(reason), now)
        self.unsent, self.due = False, math.inf
        if torn:
            unknown = SendStatus(outcome=Outcome.UNKNOWN, reason=reason)
            if self._sealing is not None and not self._sealing.done():
                tally.give_up(self._sealing.count, unknown)
                self._sealing.settle(unknown)
            told = tally.acked_messages + tally.failed_messages + tally.unknown_messages
            told += tally.one_way_lost
            self.messages = max(self.messages, told)
            tally.give_up(self.messages - told, unknown)
        return effects

    # --- how it stands ----------------------------------------------------------------------------

    def next_sequence(self, topic: str) -> int:
        """The sequence of the next message of a topic, behind those of its open batch."""
        batch = self.packer.get(topic)
        waiting = 0 if batch is None else min(len(batch.items), batch.most)
        return waiting + self.links.topics.next_sequence(topic)

    @property
    def unacknowledged(self) -> int:
        """Messages that were accepted and that no exchange has, as far as is known."""
        waiting = sum(min(len(batch.items), batch.most) for batch in self.packer)
        tally = self.links.tally
        return waiting + self.links.owed_messages + tally.failed_messages + tally.unknown_messages

    def stats(self, *, window_waits: int, callback_errors: int) -> PublisherStats:
        """Counters and state at this moment, with what others have counted."""
        links = self.links
        tally = links.tally
        return PublisherStats(
            messages=self.messages,
            batches=self.batches,
            acked_messages=tally.acked_messages,
            acked_batches=tally.acked_batches,
            failed_messages=tally.failed_messages,
            unknown_messages=tally.unknown_messages,
            one_way_lost=tally.one_way_lost,
            unacked_batches=links.owed_batches,
            unacked_bytes=links.owed_bytes,
            open_batches=len(self.packer),
            replayed_batches=tally.replayed_batches,
            connections=tally.connections,
            moves=links.moves,
            resets=tally.resets,
            refused=tally.refused,
            forgotten=tally.forgotten,
            malformed=tally.malformed,
            window_waits=window_waits,
            callback_errors=callback_errors,
            exchange=",".join(sorted(exchange.name for exchange in links.exchanges)),
            ready=links.ready,
        )


def facts_of(
    links: Links, queue: str, session: SessionFacts, now: float, *, late: float, ended: str
) -> PublisherFacts:
    """What the watchdog wants to know."""
    away = 0.0 if links.ready or links.away_since is None else now - links.away_since
    return PublisherFacts(
        queue,
        session,
        exchange=", ".join(sorted(link.name for link in links.chooser.links)),
        ready=links.ready,
        used=links.used,
        reason=links.reason,
        away=away,
        owed=links.owed_batches,
        quiet=max((link.quiet(now) for link in links.all), default=0.0),
        held=next((link.held for link in links.all if link.held), ""),
        stalled=max((now - link.held_at for link in links.all if link.held), default=0.0),
        late=late,
        ended=ended,
    )
