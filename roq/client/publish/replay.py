"""Acknowledged batches that a publisher keeps for a while: what an exchange has, it can lose. Pure.

One replay buffer per exchange. A replay buffer ages out while its exchange is known to be well; as
long as that is in doubt it stays whole, and is replayed elsewhere once the exchange is given up. An
exchange that was left by a planned move is no longer watched, so its replay buffer is kept longer:
until the topology must have told if it died. One that went after everything in it had been read
owes nobody anything. All replay buffers together are bounded in bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from roq.model import LogId
from roq.timing import REPLAY_KEEP_SECONDS, REPLAY_LEFT_SECONDS

if TYPE_CHECKING:
    from roq.client.publish.send_window import PendingBatch

KEEP_BYTES: Final = 16 * 1024 * 1024


class ReplayBuffer:
    """What one exchange has acknowledged of late.

    Attributes:
        log: of the exchange.
        doubt: it may be dead, with its memory.
        left: the publisher has moved elsewhere.
        durable: the exchange keeps what it acknowledges on a disk. Nothing is kept here: what is
            replayed would be in two logs.
        seconds: for how long a batch is kept.
        batches: the oldest first.
        bytes: their size.
    """

    __slots__ = ("batches", "bytes", "doubt", "durable", "left", "log", "seconds")

    def __init__(self, log: LogId) -> None:
        self.log = log
        self.doubt = False
        self.left = False
        self.durable = False
        self.seconds = REPLAY_KEEP_SECONDS
        self.batches: deque[PendingBatch] = deque()
        self.bytes = 0

    def confirm(self, *, durable: bool = False) -> None:
        """The exchange is there, with everything that it has acknowledged."""
        self.doubt = False
        self.durable = durable
        self.seconds = REPLAY_KEEP_SECONDS

    def add(self, sealed: PendingBatch) -> None:
        """One more was acknowledged."""
        if self.durable:
            return
        self.batches.append(sealed)
        self.bytes += len(sealed.data)

    def drop_oldest(self) -> None:
        """Let go of one; only if there is one."""
        self.bytes -= len(self.batches.popleft().data)

    def forget(self, now: float) -> None:
        """Let go of what is too old, or more than the allowance."""
        batches = self.batches
        horizon = now - self.seconds
        while batches and (
            self.bytes > KEEP_BYTES or (not self.doubt and batches[0].acked_at < horizon)
        ):
            self.drop_oldest()


class ReplayBuffers:
    """The replay buffers of one publisher, the one that was left first at the front."""

    def __init__(self) -> None:
        self._buffers: dict[LogId, ReplayBuffer] = {}
        self._emptied: frozenset[LogId] = frozenset()

    def __iter__(self) -> Iterator[ReplayBuffer]:
        return iter(self._buffers.values())

    def of(self, log: LogId) -> ReplayBuffer:
        """The replay buffer of an exchange that the publisher begins to use; it is the last to be
        cut."""
        buffer = self._buffers.pop(log, None) or ReplayBuffer(log)
        buffer.left = False
        self._buffers[log] = buffer
        return buffer

    def leave(self, log: LogId) -> None:
        """The publisher has moved away from there."""
        buffer = self._buffers.get(log)
        if buffer is not None:
            buffer.left = True
            buffer.seconds = REPLAY_LEFT_SECONDS

    def doubt(self, log: LogId, *, lost: bool) -> None:
        """Whether this exchange is feared to be lost with its memory."""
        buffer = self._buffers.get(log)
        if buffer is not None:
            buffer.doubt = lost

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
        return [sealed for buffer in owed for sealed in buffer.batches]

    def doubt_missing(self, serving: frozenset[LogId], now: float) -> bool:
        """Doubt the exchanges that were left and do not serve any more; whether there are any."""
        missing = [p for p in self._buffers.values() if p.left and p.log not in serving]
        for buffer in missing:
            buffer.forget(now)
            buffer.doubt = True
        return bool(missing)

    def forget(self, now: float) -> None:
        """Let go of what is too old in any replay buffer, and of the oldest above the allowance."""
        excess = -KEEP_BYTES
        for buffer in list(self._buffers.values()):
            buffer.forget(now)
            if buffer.left and not buffer.batches:
                del self._buffers[buffer.log]
            excess += buffer.bytes
        for buffer in self._buffers.values():
            while excess > 0 and buffer.batches:
                excess -= len(buffer.batches[0].data)
                buffer.drop_oldest()

    def next_deadline(self) -> float | None:
        """When the first replay buffer of an exchange that was left is over."""
        times = [p.batches[0].acked_at for p in self._buffers.values() if p.left and p.batches]
        return min(times) + REPLAY_LEFT_SECONDS if times else None

    def clear(self) -> None:
        """The publisher ends."""
        self._buffers.clear()

    def check(self) -> None:
        """Assert the invariants."""
        for log, buffer in self._buffers.items():
            assert buffer.log == log  # noqa: S101
            assert buffer.bytes == sum(len(s.data) for s in buffer.batches)  # noqa: S101
