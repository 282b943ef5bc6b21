"""How far a consumer group is in its log: what was looked at, what of it is open, and what is free.
Pure.

`base` is the first offset that is not wholly done, `next` the first that was never looked at; what
lies between is kept by offset, and is bounded. Who holds what of it is the business of `groups`.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from roq.log.free_messages import FreeMessages
from roq.log.group_filter import GroupFilter, Lifetimes
from roq.log.group_journal import GroupJournal
from roq.log.keyed_messages import KeyedMessages
from roq.log.leases import Piece, bits_at, runs_of, split_by_attempts
from roq.log.log import Log
from roq.log.oldest_messages import AREA_MAX, OldestMessages, glimpse_of
from roq.log.open_batches import OpenBatches
from roq.log.patient_reads import PatientReads
from roq.log.ranked_messages import RankedMessages, RankedRequests
from roq.protocol.columns import PRIORITIES, read_column
from roq.protocol.consuming import GroupSettings, OldestMessage
from roq.protocol.entry import appended_us

B = TypeVar("B")

WINDOW: Final = 20_000
"""Batches between the first that is not done and the last that was handed out."""
MESSAGES_MAX: Final = 20_000_000
"""Messages of these, as far as they are not done: some bits and up to a byte are kept of each."""
PEEK_MAX: Final = 256
PEEK_BYTES: Final = 1 << 20
"""Who asks for the oldest messages has so many batches and bytes more looked at than members had;
the last one may be larger."""
_FREE: Final[dict[str, type[FreeMessages | KeyedMessages | RankedMessages]]] = {
    "keyed": KeyedMessages, "priority": RankedMessages,
}  # fmt: skip


class GroupProgress(Generic[B]):
    """What of a log is a group's, and how that stands.

    Args:
        name: of the group.
        log: what it reads.
        settings: what its first member has said.
        start: where it begins.
        now: the clock, seconds.

    Attributes:
        expired, stale: as `GroupState` says.
        lifetimes: which batches are handed out no more; of the exchange.
        reads: how it reads the log.
    """

    def __init__(
        self, name: str, log: Log[B], settings: GroupSettings, start: int, now: float
    ) -> None:
        self.name, self.settings = name, settings
        self.expired = self.stale = 0
        self.lifetimes = Lifetimes()
        self._log, self._clock = log, now
        self.reads, self._filter = PatientReads(log), GroupFilter(settings)
        self._open = OpenBatches(start)
        free = _FREE.get(settings.mode, FreeMessages)()
        self._free: FreeMessages | KeyedMessages | RankedMessages = free
        self._plain = settings.mode == "shared"
        """One message is as good as another, and goes out as it comes."""
        self._keyed = free if isinstance(free, KeyedMessages) else None
        self._ranked = free if isinstance(free, RankedMessages) else None
        self._journal = GroupJournal(name, self._open)

    @property
    def base(self) -> int:
        """The first offset that is not wholly done."""
        return self._open.base

    @property
    def next(self) -> int:
        """The first offset that was never handed out."""
        return self._open.next

    @property
    def refuses(self) -> bool:
        """Whether the disk has refused it something lately."""
        return self.reads.refuses(self._clock)

    @property
    def oldest_us(self) -> int:
        """When the oldest batch that is not done was appended, µs UTC; 0: everything is done."""
        seen = self._open.seen.get(self.base)
        return self.reads.appended_us(self.base) if seen is None else appended_us(seen[1])

    def oldest(self) -> tuple[list[OldestMessage], int]:
        """The oldest open message of each topic and priority, the oldest first; and when the first
        batch that was not looked at for it was appended, µs UTC, 0: all were.

        What was not handed out yet is looked at as far as `PEEK_MAX` and `PEEK_BYTES` reach.
        """
        found = OldestMessages()
        for offset, bits in self._open.bits.items():
            found.add(self._open.seen[offset], self._open.size(offset), bits)
        peek, left, last_us = GroupFilter(self.settings), PEEK_BYTES, 1
        offset = self._log.following(self.next)
        for _ in range(PEEK_MAX):
            if offset >= self._log.committed or left <= 0:
                break
            done = self._journal.known(offset)
            record = None if done is None else self._log.record(offset)
            if record is not None and done is not None:
                left, last_us = left - record[3], appended_us(record[1])
                count, area = peek.look_at(record)
                bits = bits_at(0, count) & ~done
                if bits and not (self.lifetimes.over(record) and not self.settings.bury_expired):
                    found.add(glimpse_of(record, area, count), count, bits)
            elif done is not None and not self._log.is_lost(offset):
                return found.rows(), last_us  # the disk refuses: who asks waits for that once
            offset = self._log.following(offset + 1)
        if offset >= self._log.committed:
            return found.rows(), 0
        return found.rows(), self.reads.appended_us(offset) or last_us

    def _may_open(self) -> bool:
        more = self.next < self._log.committed and not self._is_full
        return more and not self.reads.waits(self._clock)

    @property
    def _is_full(self) -> bool:
        """Whether nothing more is looked at before something is done."""
        return self._open.span >= WINDOW or self._open.messages >= MESSAGES_MAX

    def _is_done(self, offset: int, first: int, length: int) -> bool:
        """Whether none of these messages is open, as far as that is known."""
        size = self._open.size(offset)
        if not size:
            return offset < self.next or self._journal.known(offset) is None
        mask = bits_at(first, min(length, size - first)) if first < size else 0
        return not self._open.bits[offset] & mask

    def _drop(self, piece: Piece, *, lost: bool) -> None:
        """Nobody can have this any more: the disk has lost it, or its time to live is over."""
        self._free.remove(piece)
        self.expired, self.stale = self.expired + lost, self.stale + piece.amount * (not lost)
        self._finish(piece.offset, piece.bits << piece.first)

    def _open_next(self) -> None:
        """Look at the batch at `next`: what of it is the group's, and not done, is ready."""
        offset = self._log.following(self.next)
        if offset != self.next:
            self._open.leap(offset)
            return
        whole = self._journal.known(offset) is None
        # Nothing has changed if this raises.
        count, area = (0, b"") if whole else self._look_at(offset)
        if self.reads.waits(self._clock):
            return  # it is looked at again
        done, tried = self._journal.take_known(offset)
        open_bits = bits_at(0, count) & ~done
        record = self.reads.last
        if open_bits and record is not None:
            small = len(area) <= AREA_MAX  # built here, as a call costs more than all else of it
            seen = (record[0].name, record[1], area) if small else glimpse_of(record, area, count)
            self._open.seen[offset] = seen
        self._open.open(count, open_bits)
        if open_bits:
            self._read_column(offset, area, count)
        runs = runs_of(open_bits) if done else [(0, count)] if count else []
        self._opened([each for run in runs for each in split_by_attempts(offset, *run, tried)])

    def _read_column(self, offset: int, area: bytes, count: int) -> None:
        """Messages of this batch are open: what it says of them, if the group goes by that."""
        if isinstance(self._free, FreeMessages):
            # Requests are ranked from the first one on that has a priority: to rank takes time.
            if not self.settings.service or not any(read_column(area, PRIORITIES, count)):
                return
            self._free = self._ranked = RankedRequests(self._free)
            self._plain = False
        self._free.open(offset, read_column(area, self._free.column, count), self.base)

    def _opened(self, pieces: list[Piece]) -> None:
        """These of one batch were looked at, and nobody holds them."""
        for piece in pieces:
            self._free.add(piece)

    def _look_at(self, offset: int) -> tuple[int, bytes]:
        """How many messages of the group's this batch has, and what it says of them."""
        if offset < self._log.floor:
            return 0, b""
        record = self.reads.record(offset, self._clock)
        if record is None:
            self.expired += not self.reads.waits(self._clock)
            return 0, b""
        count, area = self._filter.look_at(record)
        lives = self._filter.extended or self.lifetimes.any
        over = count and lives and self.lifetimes.over(record, area)
        if over and not self.settings.bury_expired:
            self.stale += (bits_at(0, count) & ~(self._journal.known(offset) or 0)).bit_count()
            return 0, b""
        return count, area

    def _finish(self, offset: int, bits: int) -> None:
        """These messages are done, whoever says so."""
        if self._open.finish(offset, bits):
            self._journal.note_done(offset)
            if not isinstance(self._free, FreeMessages) and not self._open.size(offset):
                self._free.done(offset)
