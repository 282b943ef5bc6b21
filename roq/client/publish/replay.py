"""Acknowledged batches that a publisher keeps for a while: what an exchange has, it can lose. Pure.

One replay buffer per exchange. A replay buffer ages out while its exchange is known to be well; as
long as that is in doubt it stays whole, and is replayed elsewhere once the exchange is given up. An
exchange that was left by a planned move is no longer watched, so its replay buffer is kept longer,
and ages by the word of the monitor alone: while there is none, nobody tells if it has died. One
that went after everything in it had been read owes nobody anything. All replay buffers together are
bounded in bytes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Iterator, Mapping
from typing import Final

from roq.client.publish.pending_batch import PendingBatch
from roq.client.publish.topics import Stream
from roq.model import LogId
from roq.timing import REPLAY_KEEP_SECONDS, REPLAY_LEFT_SECONDS

KEEP_BYTES: Final = 16 * 1024 * 1024


class ReplayBuffer:
    """What one exchange has acknowledged of late.

    Args:
        bound: see `ReplayBuffers`.

    Attributes:
        log: of the exchange.
        doubt: it may be dead, with its memory.
        left: the publisher has moved elsewhere.
        durable: the exchange keeps what it acknowledges on a disk. Nothing is kept here: what is
            replayed would be in two logs.
        ahead: likewise, but it acknowledges ahead of the disk. What is not synced is kept here.
        keeps: False: nothing is kept here, whatever the exchange does.
        epoch: of the process that has spoken for the exchange last.
        seconds: for how long a batch is kept.
        batches: the oldest first.
        bytes: their size.
    """

    __slots__ = (
        "_bound",
        "ahead",
        "batches",
        "bytes",
        "doubt",
        "durable",
        "epoch",
        "keeps",
        "left",
        "log",
        "seconds",
    )

    def __init__(self, log: LogId, bound: Container[str] = ()) -> None:
        self._bound = bound
        self.log = log
        self.doubt = False
        self.left = False
        self.durable = False
        self.ahead = False
        self.keeps = True
        self.epoch = 0
        self.seconds = REPLAY_KEEP_SECONDS
        self.batches: deque[PendingBatch] = deque()
        self.bytes = 0

    def confirm(self, *, durable: bool = False, ahead: bool = False, epoch: int = 0) -> None:
        """The exchange is there, with everything that it has acknowledged.

        But for what is not synced, if it acknowledges `ahead` of the disk: see `take_lost`.
        """
        self.doubt = False
        self.durable = durable
        self.ahead = ahead
        self.epoch = epoch
        self.seconds = REPLAY_KEEP_SECONDS

    def synced(self, number: int, link: int) -> None:
        """Everything up to this link number is on the disk, and with it what was before.

        Args:
            link: the epoch of the link.
        """
        upto = link, number
        while self.batches and (self.batches[0].epoch, self.batches[0].link_number) <= upto:
            self.drop_oldest()

    def take_lost(self, expected: int, epoch: int, link: int) -> list[PendingBatch]:
        """What was acknowledged ahead of the disk and is lost: it is gone here, and to be sent.

        Args:
            expected: the link number that the exchange wants next.
            epoch: of its process.
            link: the epoch of the link.
        """
        if not self.ahead:
            return []
        # A process that knows nothing of this link may know nothing of earlier ones: what must not
        # be in a log twice is not sent for that.
        unknown = expected == 1 and epoch != self.epoch
        kept: deque[PendingBatch] = deque()
        lost: list[PendingBatch] = []
        for sealed in self.batches:
            if sealed.epoch == link:
                stays = sealed.link_number < expected
            else:
                stays = not unknown or sealed.stream.topic in self._bound
            (kept if stays else lost).append(sealed)
        self.batches = kept
        self.bytes = sum(len(sealed.data) for sealed in kept)
        return lost

    def lower_firsts(self, firsts: dict[Stream, int]) -> None:
        """Lower each stream's sequence to the first one that the exchange may have lost."""
        for sealed in self.batches if self.ahead else ():
            stream, first = sealed.stream, sealed.first_sequence
            if first < firsts.get(stream, stream.next_sequence):
                firsts[stream] = first

    def misses(self, serving: Mapping[LogId, int]) -> bool:
        """Whether the process that has acknowledged this does not serve any more.

        Args:
            serving: the logs that are served, and the epoch of the process that does.
        """
        epoch = serving.get(self.log)
        return epoch is None or epoch > self.epoch

    def add(self, sealed: PendingBatch) -> None:
        """One more was acknowledged."""
        if (self.durable and not self.ahead) or not self.keeps:
            return
        self.batches.append(sealed)
        self.bytes += len(sealed.data)

    def drop_oldest(self) -> None:
        """Let go of one; only if there is one."""
        self.bytes -= len(self.batches.popleft().data)

    def forget(self, now: float) -> None:
        """Let go of what is too old, or more than the allowance."""
        batches = self.batches
        horizon = now - self.seconds if self.left or not self.ahead else -math.inf
        while batches and (
            self.bytes > KEEP_BYTES or (not self.doubt and batches[0].acked_at < horizon)
        ):
            self.drop_oldest()


class ReplayBuffers:
    """The replay buffers of one publisher, the one that was left first at the front.

    Args:
        bound: topics of what must not be in two logs: what a durable exchange has acknowledged of
            them goes to no other, also if it may lose it.
    """

    def __init__(self, bound: Container[str] = ()) -> None:
        self._bound = bound
        self._buffers: dict[LogId, ReplayBuffer] = {}
        self._emptied: frozenset[LogId] = frozenset()
        self._told_at = -math.inf
        """When the monitor has said last which exchanges serve."""
        self._keeps = True

    def __iter__(self) -> Iterator[ReplayBuffer]:
        return iter(self._buffers.values())

    def of(self, log: LogId) -> ReplayBuffer:
        """The replay buffer of an exchange that the publisher begins to use; it is the last to be
        cut."""
        buffer = self._buffers.pop(log, None) or ReplayBuffer(log, self._bound)
        buffer.left = False
        buffer.keeps = self._keeps
        self._buffers[log] = buffer
        return buffer

    def keep_nothing(self) -> None:
        """What was acknowledged is never published again."""
        self._keeps = False
        for buffer in self._buffers.values():
            buffer.keeps = False

    def leave(self, log: LogId, serving: Mapping[LogId, int] | None = None) -> None:
        """The publisher has moved away from there.

        Args:
            serving: as in `ReplayBuffer.misses`; None: that is not known.
        """
        buffer = self._buffers.get(log)
        if buffer is not None:
            buffer.left = True
            buffer.seconds = REPLAY_LEFT_SECONDS
            buffer.doubt |= serving is not None and buffer.misses(serving)

    def absolve(self, emptied: frozenset[LogId]) -> None:
        """Everything in these exchanges has been read: what they had acknowledged is not needed."""
        self._emptied = emptied
        for log in emptied:
            buffer = self._buffers.get(log)
            if buffer is not None and buffer.left:
                del self._buffers[log]

    def take_doubtful(self, present: frozenset[LogId]) -> list[PendingBatch]:
        """Everything of exchanges that are in doubt and not among those in use; it is gone here."""
        doubtful = [p for p in self._buffers.values() if p.doubt and p.log not in present]
        for buffer in doubtful:
            del self._buffers[buffer.log]
        owed = [buffer for buffer in doubtful if buffer.log not in self._emptied]
        return [
            sealed
            for buffer in owed
            for sealed in buffer.batches
            if not (buffer.durable and sealed.stream.topic in self._bound)
        ]

    def doubt_missing(self, serving: Mapping[LogId, int], now: float) -> bool:
        """Doubt the exchanges that were left and are gone, or were away meanwhile: a power cut may
        have taken what was not synced. Whether there are any; see `ReplayBuffer.misses`."""
        missing = [p for p in self._buffers.values() if p.left and p.misses(serving)]
        for buffer in missing:
            buffer.forget(self._told_at)
            buffer.doubt = True
        self._told_at = now
        self.forget(now)
        return bool(missing)

    def forget(self, now: float) -> None:
        """Let go of what is too old in any replay buffer, and of the oldest above the allowance."""
        excess = -KEEP_BYTES
        for buffer in list(self._buffers.values()):
            buffer.forget(self._told_at if buffer.left else now)
            if buffer.left and not buffer.batches:
                del self._buffers[buffer.log]
            excess += buffer.bytes
        for buffer in self._buffers.values():
            while excess > 0 and buffer.batches:
                excess -= len(buffer.batches[0].data)
                buffer.drop_oldest()

    def clear(self) -> None:
        """The publisher ends."""
        self._buffers.clear()

    def check(self) -> None:
        """Assert the invariants."""
        for log, buffer in self._buffers.items():
            assert buffer.log == log  # noqa: S101
            assert buffer.bytes == sum(len(s.data) for s in buffer.batches)  # noqa: S101
