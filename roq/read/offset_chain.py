"""The batches of one exchange, topic by topic, in order and without a hole: pure.

Each entry names the offset of the batch before it in the same topic, so a batch that the fan-out
has dropped is noticed with the next one. Its range is then fetched from the log, and later batches
of the topic wait for it here, within a bound; beyond it they are dropped and fetched as well. What
has left the log is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from roq.protocol.entry import NONE, EntryKind

HOLD_BYTES_MAX: Final = 32 * 1024 * 1024
LAST_MAX: Final = 131_072
TRIES_MAX: Final = 5
RETRY_SECONDS: Final = 0.05
IDLE_RETRY_SECONDS: Final = 0.5
HOLES_MAX: Final = 8
"""More holes than this among the batches of a topic that wait are not mended one by one."""
BEYOND_MAX: Final = 4_096
"""Batches of one fetch that are kept behind a hole in it."""

Passed = tuple[bytes, int, bytes]
"""Topic, offset, batch: in order within the topic."""
Want = tuple[bytes, int, int]
"""Topic, first offset, first offset that is not wanted."""


@dataclass(frozen=True, slots=True)
class LogGap:
    """Batches of a topic that the exchange's log does not hold any more.

    `certain` is False when nobody knows whether there were any.
    """

    topic: bytes
    first: int
    end: int
    certain: bool = True


@dataclass(slots=True)
class _Repair:
    """What of one topic is to be fetched: from `start`, up to a batch that exists at `to - 1`."""

    start: int
    to: int
    held: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    in_flight: bool = False
    broken: int = -1
    """The batch at this offset did not come, though the next one did; -1: nothing of the kind."""
    beyond: list[tuple[int, int, bytes]] = field(default_factory=list)
    """What the same fetch has brought behind that."""
    tries: int = 0
    idle: int = 0
    not_before: float = 0.0

    def mend(self) -> None:
        """Forget what was broken."""
        self.broken = -1
        self.beyond = []


class OffsetChain:
    """All topics of one exchange as one subscriber sees them.

    Attributes:
        verified: every batch below this offset was passed on or reported; None before the start is
            known.
        passed: what is passed on; the reader takes it away.
        gaps: what was lost; taken away likewise.
        duplicates: batches that came twice (by the fan-out and by a fetch, say).
        held_bytes: bytes that wait for a repair.
    """

    def __init__(self, hold_bytes_max: int = HOLD_BYTES_MAX) -> None:
        self.verified: int | None = None
        self.passed: list[Passed] = []
        self.gaps: list[LogGap] = []
        self.duplicates = 0
        self.repairs_started = 0
        self.held_bytes = 0
        self.last: dict[bytes, int] = {}
        self.repairs: dict[bytes, _Repair] = {}
        self._hold_bytes_max = hold_bytes_max

    # --- what the fan-out brings ------------------------------------------------------------------

    def arrived(self, topic: bytes, offset: int, previous: int, batch: bytes | None) -> None:
        """Take a batch of the fan-out; None stands for one that is to be fetched."""
        if self.verified is None:
            return
        repair = self.repairs.get(topic)
        if repair is not None:
            self._hold(repair, offset, previous, batch)
            return
        low = self._low(topic)
        if offset < low:
            self.duplicates += 1
        elif previous != NONE and previous >= low:
            self._repair(topic, low, previous + 1)
            self._hold(self.repairs[topic], offset, previous, batch)
        elif batch is None:
            self._repair(topic, low, offset + 1)
        else:
            self._pass(topic, offset, batch)

    def arrived_forgotten(self, topic: bytes, offset: int, floor: int, batch: bytes | None) -> None:
        """As `arrived`, but the exchange knows no more than that older ones were below `floor`."""
        if self.verified is None:
            return
        if topic not in self.repairs and offset >= self._low(topic) and self.verified < floor:
            self.gaps.append(LogGap(topic, self._low(topic), floor, certain=False))
        self.arrived(topic, offset, NONE, batch)

    def need(self, topic: bytes, head: int) -> bool:
        """A batch exists at `head`; repair if it was not passed on. True if it was."""
        low = self._low(topic)
        if head < low:
            return True
        if topic not in self.repairs:
            self._repair(topic, low, head + 1)
        return False

    def has(self, topic: bytes, head: int) -> bool:
        """Whether everything of this topic up to `head` was passed on."""
        return head < self._low(topic)

    def advance(self, end: int) -> None:
        """Everything below `end` was passed on."""
        self.verified = max(end, self.verified or 0)
        if len(self.last) > LAST_MAX:
            self.last = {
                topic: last
                for topic, last in self.last.items()
                if last >= end or topic in self.repairs
            }

    def surrender(self) -> None:
        """The log is gone: pass on what waits behind holes that nobody can fill any more."""
        for topic, repair in list(self.repairs.items()):
            del self.repairs[topic]
            for offset, _, batch in self._take_held(repair):
                if batch is not None:
                    self._pass(topic, offset, batch)

    # --- what fetches bring -----------------------------------------------------------------------

    def wants(self, most: int, now: float) -> list[Want]:
        """What to fetch next; each topic is in one request at a time."""
        found: list[Want] = []
        for topic, repair in self.repairs.items():
            if not repair.in_flight and repair.not_before <= now:
                repair.in_flight = True
                repair.mend()
                found.append((topic, repair.start, repair.to))
                if len(found) == most:
                    break
        return found

    def retry_at(self) -> float | None:
        """When `wants` has something again that it does not have now."""
        if not self.repairs:
            return None
        return min(
            (repair.not_before for repair in self.repairs.values() if not repair.in_flight),
            default=None,
        )

    def fetched(self, topic: bytes, offset: int, previous: int, batch: bytes) -> None:
        """Take a batch that a fetch has brought."""
        repair = self.repairs.get(topic)
        if repair is None or not (repair.in_flight and repair.start <= offset < repair.to):
            self.duplicates += 1
        elif previous == NONE or previous < repair.start:
            repair.start = offset + 1
            repair.tries = repair.idle = 0
            self._pass(topic, offset, batch)
        else:
            if repair.broken < 0:
                repair.broken = previous  # what lies between is gone or was skipped: see `answered`
            if len(repair.beyond) < BEYOND_MAX:
                repair.beyond.append((offset, previous, batch))

    def fetched_forgotten(self, topic: bytes, offset: int, floor: int, batch: bytes) -> None:
        """As `fetched`; older ones were below `floor` and may be gone."""
        repair = self.repairs.get(topic)
        if repair is not None and repair.in_flight and repair.start < min(floor, offset):
            if repair.broken >= 0:
                return
            self.gaps.append(LogGap(topic, repair.start, min(floor, offset), certain=False))
        self.fetched(topic, offset, NONE, batch)

    def fetched_late(
        self, topic: bytes, offset: int, previous: int, kind: int, batch: bytes
    ) -> None:
        """Take a batch of a fetch that was given up: on a slow network it may be the only one."""
        repair = self.repairs.get(topic)
        follows = previous == NONE or (repair is not None and previous < repair.start)
        if (
            kind != EntryKind.ENTRY
            or not follows
            or repair is None
            or not repair.start <= offset < repair.to
        ):
            self.duplicates += 1
            return
        repair.start = offset + 1
        repair.tries = repair.idle = 0
        self._pass(topic, offset, batch)
        if repair.start >= repair.to:
            self._release(topic, repair)

    def answered(self, wants: list[Want], reached: int, floor: int, done: bool, now: float) -> None:
        """A fetch is complete: everything wanted below `reached` was sent or is below `floor`."""
        for topic, start, to in wants:
            repair = self.repairs.get(topic)
            if repair is not None and repair.in_flight:
                repair.in_flight = False
                self._judge(topic, repair, start, to, done or reached >= to, floor, now)

    def failed(self, wants: list[Want]) -> None:
        """A fetch was not answered."""
        for topic, _, _ in wants:
            repair = self.repairs.get(topic)
            if repair is not None:
                repair.in_flight = False

    def _judge(
        self, topic: bytes, repair: _Repair, asked: int, to: int, all_sent: bool, floor: int,
        now: float,
    ) -> None:  # fmt: skip
        if 0 <= repair.broken < floor:
            self._go_beyond(topic, repair, floor)
        elif repair.start < repair.to <= floor:
            self._lose(topic, repair, repair.to)
        elif repair.broken >= 0 or (all_sent and repair.start < to):
            # It is there, says the log, and still it did not come.
            repair.tries += 1
            repair.not_before = now + RETRY_SECONDS * repair.tries
            if repair.tries > TRIES_MAX:
                self._lose(topic, repair, max(repair.broken + 1, to))
        elif repair.start == asked:
            repair.idle += 1
            repair.not_before = now + min(RETRY_SECONDS * repair.idle, IDLE_RETRY_SECONDS)
        repair.mend()
        if repair.start >= repair.to:
            self._release(topic, repair)

    def _go_beyond(self, topic: bytes, repair: _Repair, floor: int) -> None:
        """What was missing in a fetch has left the log: pass on what has come behind it.

        To fetch that once more would bring nothing if the log forgets faster than it is fetched.
        """
        self._lose(topic, repair, repair.broken + 1)
        for offset, previous, batch in repair.beyond:
            if repair.start <= previous < floor:
                self._lose(topic, repair, previous + 1)
            if previous != NONE and previous >= repair.start:
                return
            repair.start = offset + 1
            self._pass(topic, offset, batch)

    def _lose(self, topic: bytes, repair: _Repair, end: int) -> None:
        self.gaps.append(LogGap(topic, repair.start, end))
        repair.start = end
        repair.tries = repair.idle = 0

    # --- keeping order ----------------------------------------------------------------------------

    def _low(self, topic: bytes) -> int:
        """Everything of this topic below this offset was passed on."""
        return max(self.last.get(topic, -1) + 1, self.verified or 0)

    def _pass(self, topic: bytes, offset: int, batch: bytes) -> None:
        self.passed.append((topic, offset, batch))  # first: a signal handler may raise after it
        self.last[topic] = offset

    def _repair(self, topic: bytes, start: int, to: int) -> None:
        self.repairs_started += 1
        self.repairs[topic] = _Repair(start, to)

    def _hold(self, repair: _Repair, offset: int, previous: int, batch: bytes | None) -> None:
        if offset < repair.to or (repair.held and offset <= repair.held[-1][0]):
            self.duplicates += 1
            return
        size = len(batch) if batch is not None else 0
        if self.held_bytes + size > self._hold_bytes_max:
            self._take_held(repair)
            repair.to = offset + 1
            return
        self.held_bytes += size
        repair.held.append((offset, previous, batch))

    def _take_held(self, repair: _Repair) -> list[tuple[int, int, bytes | None]]:
        held, repair.held = repair.held, []
        self.held_bytes -= sum(len(batch) for _, _, batch in held if batch is not None)
        return held

    def _release(self, topic: bytes, repair: _Repair) -> None:
        del self.repairs[topic]
        self.last[topic] = max(self.last.get(topic, -1), repair.to - 1)
        held = self._take_held(repair)
        if _holes(held) > HOLES_MAX:
            # One by one they would take a round trip each: all of it comes again in one go.
            self._repair(topic, repair.to, held[-1][0] + 1)
            return
        for offset, previous, batch in held:
            self.arrived(topic, offset, previous, batch)

    def check(self) -> None:
        """Assert the invariants."""
        held = 0
        for topic, repair in self.repairs.items():
            assert repair.start <= repair.to, topic  # noqa: S101
            assert not repair.held or repair.held[0][0] >= repair.to, topic  # noqa: S101
            held += sum(len(batch) for _, _, batch in repair.held if batch is not None)
        assert held == self.held_bytes <= self._hold_bytes_max  # noqa: S101


def _holes(held: list[tuple[int, int, bytes | None]]) -> int:
    """How often something is missing between two batches that wait."""
    return sum(
        previous not in (NONE, before) for (before, _, _), (_, previous, _) in pairwise(held)
    )
