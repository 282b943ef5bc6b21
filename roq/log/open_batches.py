"""The part of a log that a consumer group has begun with and not wholly done."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from roq.log.group_changes import Mask, mask_of
from roq.log.leases import bits_at
from roq.log.oldest_messages import Glimpse


class OpenBatches:
    """Batches from `base` to `next`, by offset, and which of their messages are not done.

    Args:
        start: where it begins.

    Attributes:
        base: the first offset that is not wholly done.
        next: the first one that was not looked at.
        messages: of the batches that are not done, done ones included.
        bits: of each batch that is not done, a bit for each message that is not.
        seen: what else is known of it, if that was put there before it was opened.
        moved: `base` has moved since this was reset.
    """

    def __init__(self, start: int) -> None:
        self.bits: dict[int, int] = {}
        self.seen: dict[int, Glimpse] = {}
        self.moved = False
        self.messages = 0
        self._sizes: dict[int, int] = {}
        self._leaps: deque[tuple[int, int]] = deque()
        """Offsets that belong to no batch: from, and behind the last."""
        self.base = self.next = start

    def restart(self, offset: int) -> None:
        """Begin here, with nothing."""
        for held in (self.bits, self.seen, self._sizes, self._leaps):
            held.clear()
        self.messages = 0
        self.base = self.next = offset

    @property
    def span(self) -> int:
        """How many batches lie between `base` and `next`."""
        span = self.next - self.base
        return span - sum(to - start for start, to in self._leaps) if self._leaps else span

    def offsets(self) -> Iterator[int]:
        """All of them, in order."""
        at = self.base
        for start, to in self._leaps:
            yield from range(at, start)
            at = to
        yield from range(at, self.next)

    def size(self, offset: int) -> int:
        """How many messages this one has; 0: it is done, or not looked at."""
        return self._sizes.get(offset, 0)

    def done(self, offset: int) -> Mask:
        """What of one that is not wholly done is done."""
        return mask_of(offset, bits_at(0, self._sizes[offset]) & ~self.bits[offset])

    def leap(self, to: int) -> None:
        """The offsets from `next` to this one belong to no batch."""
        self._leaps.append((self.next, to))
        self.next = to
        self._advance()

    def open(self, size: int, bits: int) -> None:
        """The one at `next` has so many messages, of which these are not done."""
        if bits:
            self.bits[self.next] = bits
            self._sizes[self.next] = size
            self.messages += size
        self.next += 1
        self._advance()

    def finish(self, offset: int, bits: int) -> bool:
        """These messages are done; False: the batch was already."""
        before = self.bits.get(offset)
        if before is None:
            return False
        if before & ~bits:
            self.bits[offset] = before & ~bits
            return True
        self._forget(offset)
        self._advance()
        return True

    def drop_below(self, floor: int) -> int:
        """What is below has left the log; how many batches were not done."""
        gone = [offset for offset in self.bits if offset < floor]
        for offset in gone:
            self._forget(offset)
        while self._leaps and self._leaps[0][0] < floor:
            _, to = self._leaps.popleft()
            if to > floor:
                self._leaps.appendleft((floor, to))
        unseen = max(0, floor - max(self.next, self.base))
        self.base, self.next, self.moved = floor, max(self.next, floor), True
        self._advance()
        return len(gone) + unseen

    def check(self) -> None:
        """Assert the invariants."""
        assert self.base <= self.next  # noqa: S101
        assert all(self.base <= offset < self.next for offset in self.bits)  # noqa: S101
        assert self.base == self.next or self.base in self.bits  # noqa: S101
        assert self.bits.keys() == self._sizes.keys() >= self.seen.keys()  # noqa: S101
        assert self.messages == sum(self._sizes.values())  # noqa: S101
        assert all(self.base < start < to <= self.next for start, to in self._leaps)  # noqa: S101

    def _forget(self, offset: int) -> None:
        del self.bits[offset]
        self.seen.pop(offset, None)
        self.messages -= self._sizes.pop(offset)

    def _advance(self) -> None:
        base, leaps = self.base, self._leaps
        while base < self.next and base not in self.bits:
            base = leaps.popleft()[1] if leaps and leaps[0][0] == base else base + 1
        if base != self.base:
            self.base, self.moved = base, True
