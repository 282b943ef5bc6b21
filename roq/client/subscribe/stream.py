"""One publisher's messages of one topic, as far as a subscriber has them: pure data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from roq.model import LogId, PublisherId
from roq.protocol.batch import HEADER_BYTES, Header, Kind, read_floor
from roq.read.message import Gap

LOST: Final = -1
"""The `kind` of what was put aside and has left the log since."""
PLACES_MAX: Final = 4
PLACE_BYTES: Final = 200
"""What is held of a batch besides its data, about."""
BOUNDS: Final = frozenset({int(Kind.MARKER), int(Kind.FENCE)})
"""Kinds that hold no message, only say which sequence is next."""


@dataclass(slots=True, order=True)
class Held:
    """A batch (or marker) above the expected sequence."""

    first: int
    end: int
    kind: int = field(compare=False)
    arrived: float = field(compare=False)
    source: LogId = field(compare=False)
    topic: bytes = field(compare=False)
    offset: int = field(compare=False)
    data: bytes | None = field(compare=False)
    """None: a stub; ask the exchange again."""
    bound: int = field(default=0, compare=False)
    """What is missing below this sequence was in a log before this batch was: see `bound_of`."""
    floored: bool = field(default=False, compare=False)
    """It carries a FLOOR: its publisher is striped."""
    recalled: bool = field(default=False, compare=False)
    elsewhere: tuple[tuple[LogId, int], ...] = field(default=(), compare=False)
    """Exchange and offset of replays."""

    @property
    def size(self) -> int:
        """The memory that it takes, in bytes."""
        return PLACE_BYTES + len(self.data or b"")

    def came_again(self, copy: Held) -> None:
        """A replay of the same batch has arrived."""
        place = (copy.source, copy.offset)
        known = place in self.elsewhere or place == (self.source, self.offset)
        if not known and len(self.elsewhere) < PLACES_MAX:
            self.elsewhere += (place,)

    def not_there(self) -> None:
        """It cannot be fetched from where it was: perhaps from elsewhere, or it is lost."""
        self.recalled = False
        if self.elsewhere:
            (self.source, self.offset), *others = self.elsewhere
            self.elsewhere = tuple(others)
        else:
            self.kind, self.data = LOST, b""


@dataclass(slots=True)
class Stream:
    """One publisher's messages of one topic."""

    publisher: PublisherId
    topic: str
    expected: int = 0
    origin: int = 0
    """The first sequence that this subscriber wants."""
    holders: frozenset[LogId] = frozenset()
    """The exchanges that knew this stream at the start."""
    begun: bool = False
    """Whether anything was delivered or skipped."""
    before: int = 0
    """Missing sequences below this are before the subscriber's start, unless it has begun."""
    look_at: float = 0.0
    """When it is worth while to look for losses again."""
    filled_at: float = float("-inf")
    """When something came last that others had waited for."""
    ways: frozenset[LogId] = frozenset()
    """The exchanges that have brought something since anything waits."""
    used: int = 0
    """What the subscriber had delivered in all when this delivered something last."""
    held: list[Held] = field(default_factory=list)


def missed(stream: Stream, first: int, messages: int, why: str) -> Gap:
    """The report of a loss."""
    return Gap(
        topic=stream.topic,
        text=f"{messages} messages from sequence {first} are lost: {why}",
        publisher=stream.publisher,
        sequence=first,
        messages=messages,
    )


def hold(
    header: Header, source: LogId, topic: bytes, offset: int, batch: bytes, now: float
) -> Held:
    """A batch that has just arrived, as it waits for its turn."""
    floor = None
    if header.ext_bytes:
        floor = read_floor(memoryview(batch)[HEADER_BYTES : HEADER_BYTES + header.ext_bytes])
    return Held(
        header.first_sequence, header.next_sequence, header.kind, now, source, topic, offset, batch,
        bound=bound_of(header, floor), floored=floor is not None,
    )  # fmt: skip


def bound_of(header: Header, floor: int | None) -> int:
    """Below which sequence a batch proves that everything else had been in some log before it.

    A publisher at one exchange appends in order: everything below its batch. A striped one says
    how far (FLOOR). A VOID took the place of a batch whose extensions are gone: it proves nothing.
    """
    if header.kind == Kind.VOID:
        return 0
    return header.first_sequence if floor is None else min(floor, header.first_sequence)
