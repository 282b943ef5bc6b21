"""What a reader tells its exchange: how far everything was received, and that it is there. Pure.

The exchange waits for who reports, so a position must be true for every topic, and fresh. What the
fan-out has brought last is not enough: the newest batch of a quiet topic may have been dropped on
the way. So with its position a reader asks for the newest batch of each topic below what it has
seen, and counts that as read when it has them all, or as far as what is being fetched again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from roq.protocol import documents
from roq.protocol.channel import POSITION, Position, Reading
from roq.read.offset_chain import OffsetChain
from roq.timing import POSITION_ALIVE_SECONDS

SOON_SECONDS: Final = 0.02
"""Between two reports, if publishers wait and more was received, or if the end was told."""
POSITION_SECONDS: Final = 0.25
"""Likewise, while nobody waits for it."""
LATE_SECONDS: Final = 2.0
"""An answer that has not come by then is not waited for."""


class Positions:
    """The reports of one reader.

    Attributes:
        ended: the exchange has told the end of its log since the last report.
        behind: the exchange does not wait for this reader any more.
        name: of the subscriber, for people.
    """

    def __init__(
        self, chain: OffsetChain, queue: bytes, generation: int, reader: bytes,
        prefixes: Sequence[bytes],
    ) -> None:  # fmt: skip
        self.ended = False
        self.behind = False
        self._near = True
        """Publishers wait for a subscriber, for all that is known here."""
        self.name = b""
        self._chain = chain
        self._queue = queue
        self._generation = generation
        self._reader = reader
        self._prefixes = list(prefixes)
        self._number = 0
        self._asked: Position | None = None
        self._asked_at = float("-inf")
        self._told = -1
        self._known = False
        """Whether the exchange has heard of this reader, over whatever connection."""
        self._checked = 0
        """Below this offset everything was received but what is `_missing`."""
        self._missing: dict[bytes, int] = {}
        """Topics, and up to where something of them is."""
        self._pages: list[tuple[bytes, int]] = []
        self._page = 0
        """Where the next page of a question begins; 0: there is none under way."""
        self._page_until = 0

    @property
    def read(self) -> int:
        """Everything below this offset was received, or is known to be gone."""
        chain = self._chain
        read = max(self._checked, chain.verified or 0)
        if not self._missing:
            return read
        for topic, head in list(self._missing.items()):
            if chain.need(topic, head):
                del self._missing[topic]
            else:
                read = min(read, chain.repairs[topic].start)
        return max(read, chain.verified or 0)

    def deadline(self, seen: int, *, rests: bool) -> float:
        """When the next report is due.

        Args:
            seen: what the fan-out has passed ends here.
            rests: it is known that the log does not go on behind what was told.
        """
        if self._asked is not None:
            return self._asked_at + LATE_SECONDS
        at = self._asked_at
        if self._told < 0:
            return at
        read = self.read
        more = read > self._told
        if self._page or (more and self._near) or (self.ended and seen > read):
            return at + SOON_SECONDS
        if more or seen > read:
            return at + POSITION_SECONDS
        return float("inf") if rests and read <= self._told else at + POSITION_ALIVE_SECONDS

    def report(self, seen: int, now: float, lowest: int | None) -> list[bytes]:
        """The frames of a report.

        Args:
            seen: as above.
            now: the present time.
            lowest: this batch was put aside, and has to be fetched again; None: there is none.
        """
        read = self.read
        since = self._page or (self._chain.verified or 0)
        until = self._page_until if self._page else seen
        self._number += 1
        self._asked_at = now
        self._told = read
        self._known = True
        self.ended = False
        asks = since < until
        self._asked = Position(
            id=self._number, queue=self._queue, generation=self._generation, reader=self._reader,
            name=self.name, read=read if lowest is None else min(read, lowest),
            prefixes=self._prefixes if asks else [],
            since=since if asks else 0, until=until if asks else 0,
        )  # fmt: skip
        return [POSITION, documents.encode(self._asked)]

    def farewell(self) -> list[bytes]:
        """The frames that say that it reads no more; none if the exchange does not know it."""
        if not self._known:
            return []
        leaves = Position(
            id=self._number + 1, queue=self._queue, generation=self._generation,
            reader=self._reader, name=self.name, read=max(0, self._told), leaves=True,
        )  # fmt: skip
        return [POSITION, documents.encode(leaves)]

    def answered(self, answer: Reading) -> None:
        """The exchange has taken note, and says what there is."""
        asked = self._asked
        if asked is None or answer.id != asked.id or answer.generation != self._generation:
            return
        self._asked = None
        self.behind = answer.behind
        self._near = answer.near
        if not asked.until:
            return
        if answer.floor > asked.since:
            self._forget_pages()  # what has left the log is not among the heads
            return
        self._pages += answer.heads
        if answer.next > asked.since:
            self._page, self._page_until = answer.next, asked.until
            return
        for topic, head in self._pages:
            if not self._chain.need(topic, head):
                self._missing[topic] = head
        self._forget_pages()
        self._checked = max(self._checked, min(asked.until, answer.until))
        if not self._missing:
            self._chain.advance(self._checked)

    def refused(self) -> None:
        """The exchange does not want it now."""
        self._asked = None

    def disconnected(self) -> None:
        """What was asked will not be answered."""
        self._asked = None
        self._told = -1
        self._near = True
        self._forget_pages()

    def _forget_pages(self) -> None:
        self._pages = []
        self._page = 0
