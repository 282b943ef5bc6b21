"""What a log is: the batches of one exchange in the order in which they were accepted.

The exchange, its cursors and its accounts know a log by this alone; the ring is one. Batches are
opaque: whatever object was appended is given back.

A log has three positions, floor ≤ committed ≤ end:

* *floor*: below it everything has left; the first offset that is still there, or one that was left
  out before it. It only rises, only to make room, and never beyond what is committed.
* *committed*: below it is what counts as kept. The told end of the log and what readers may ask for
  go up to here. Where nothing outlives the process, this is the end.
* *end*: the offset that the next batch will get. Offsets rise and are never used twice. They follow
  each other, but for some that a log on disk may leave out where a process begins: these belong to
  no batch, and are no loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

B = TypeVar("B")


class NotAtHand(Exception):
    """What is asked for has to be read from the disk first, and the log was told not to wait.

    Attributes:
        load: reads it; to be called in another thread.
        keep: takes what that gave. After it the same question comes further.
    """

    def __init__(self, load: Callable[[], object], keep: Callable[[object], object]) -> None:
        super().__init__("what is asked for is on the disk")
        self.load = load
        self.keep = keep


class NotGiven(Exception):
    """The disk does not give what is asked for now, and may do so in a moment.

    Attributes:
        until: what cannot be asked lies below this offset.
    """

    def __init__(self, until: int) -> None:
        super().__init__("the disk does not give what is asked for")
        self.until = until


class Topic(Protocol):
    """What a log knows of a topic."""

    name: bytes


Record = tuple[Topic, bytes, B, int]
"""One entry as kept: its topic, the entry frame, the batch, the bytes of the batch."""


class Log(Protocol[B]):
    """The log of one exchange."""

    @property
    def generation(self) -> int:
        """Which of the logs that this exchange has had; see `roq.model.LogId`."""
        ...

    @property
    def floor(self) -> int:
        """Below it everything has left; `following` says which offset is the first one there."""
        ...

    @property
    def committed(self) -> int:
        """Below it is what counts as kept."""
        ...

    @property
    def end(self) -> int:
        """The offset of the next batch."""
        ...

    @property
    def capacity(self) -> int:
        """Bytes that it may take; what was appended last stays in any case."""
        ...

    @property
    def kept(self) -> int:
        """Bytes that it takes now, its overhead included."""
        ...

    @property
    def gone(self) -> int:
        """Bytes that have left it, likewise; `gone + kept` only grows."""
        ...

    @property
    def topics(self) -> int:
        """How many topics are remembered, also such whose batches have all left."""
        ...

    @property
    def time_us(self) -> int:
        """The append time of what comes next, µs UTC; never decreases."""
        ...

    def advance_clock(self, time_us: int) -> None:
        """What is appended from now on has this append time, or the last one if that is later."""
        ...

    def make_room(self, topic: bytes, *, spare: bool = False) -> bool:
        """Whether a batch of this topic would be taken now; with `spare`, by `append_spare`."""
        ...

    def append(self, topic: bytes, batch: B, size: int) -> bytes | None:
        """Take a batch of `size` bytes in; gives its entry frame, None if the topic is refused.

        A topic is refused while as many as may be are remembered, and all of them are in the log.
        """
        ...

    def append_spare(self, topic: bytes, batch: B, size: int) -> bytes | None:
        """As `append`, and a new topic may use the part of the table that is kept."""
        ...

    def record(self, offset: int) -> Record[B] | None:
        """The entry at this offset, which must lie in [floor, end); None if the disk has lost it,
        or does not give it now.

        What is not committed is always there.
        """
        ...

    def is_lost(self, offset: int) -> bool:
        """Of an entry for which `record` has given None: whether it will never give it.

        It is not there, or its sum is wrong. Else the disk could not be asked, and is asked again
        by the next `record`.
        """
        ...

    def following(self, offset: int) -> int:
        """This offset, or the first one above it that was not left out."""
        ...

    def next_of(self, topic: bytes, at_least: int) -> int | None:
        """The first offset of the topic at or above `at_least` that is there.

        What the disk has lost may be named until `record` has found that out.

        Raises:
            NotGiven: nobody knows it now; asked again, it is read again.
        """
        ...

    def heads(
        self, prefixes: tuple[bytes, ...], since: int, until: int, most: int
    ) -> tuple[list[tuple[bytes, int]], bool]:
        """Topics under a prefix by their newest batch in [since, until), in order of offset.

        It is the log as it was when it ended at `until`: complete above the floor; a topic whose
        batches have all left is there with its newest one while it is remembered.

        Returns:
            at most `most` pairs (topic, newest offset), and whether there are more.
        """
        ...

    def seek(self, time_us: int) -> int:
        """The first offset appended at or after this time; `end` if nothing is that new."""
        ...

    def find(self, key: int, before: int) -> tuple[list[tuple[int, int]], int]:
        """Where below `before` a batch with a message of a key may be, and what is committed.

        Args:
            key: `roq.protocol.columns.key_hash` of it.

        Returns:
            ranges of offsets [first, behind the last), the newest first, and the offset down to
            which this is all: ask again from there, unless it is the floor.
        """
        ...

    def check(self) -> None:
        """Assert the invariants. Costs O(n): tests and simulation only."""
        ...
