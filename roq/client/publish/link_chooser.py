"""Which link gets the next batch. Pure.

With one link there is nothing to decide. Several are served in turn, those that have room, and as
long as any connection works only those that work. While the batches of a stream may be under way on
more than one link, each says how far its stream is acknowledged (the FLOOR extension): a reader
that misses something above it waits for the other links.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roq.client.publish.link import Link, LinkPhase
from roq.client.publish.pending_batch import PendingBatch, age
from roq.client.publish.receipt import Receipt
from roq.client.publish.send_window import SendWindow
from roq.client.publish.topics import Stream, Topics
from roq.protocol.batch import pack_floor


class LinkChooser:
    """Deals batches to links.

    Attributes:
        links: those that get new batches; never empty.
        striped: whether batches say their stream's floor.
    """

    def __init__(self, link: Link, topics: Topics) -> None:
        self.links: tuple[Link, ...] = (link,)
        self.striped = False
        self._topics = topics
        self._others: tuple[Link, ...] = ()
        self._sole: SendWindow | None = link.window
        """Of the only link, for the hot path; None while striped."""
        self._turn = 0

    @property
    def has_room(self) -> bool:
        """Whether another batch may be sealed."""
        sole = self._sole
        if sole is None:
            return self._next() is not None
        return sole.owed_batches < sole.window_batches and sole.owed_bytes < sole.window_bytes

    def seal(
        self,
        stream: Stream,
        payloads: list[bytes],
        receipt: Receipt,
        now: float,
        created_us: int,
        attributes: bytes | None = None,
        extensions: bytes = b"",
    ) -> PendingBatch:
        """Pack the next messages of a stream for the link whose turn it is."""
        if self._sole is not None:
            return self._sole.seal(
                stream, payloads, receipt, now, created_us, attributes, extensions
            )
        link = self._next() or self.links[0]
        self._turn = self.links.index(link) + 1
        unacked = stream.unacked
        if unacked is None:
            unacked = stream.unacked = {}
        unacked[stream.next_sequence] = None
        extensions = pack_floor(next(iter(unacked))) + extensions
        return link.window.seal(stream, payloads, receipt, now, created_us, attributes, extensions)

    def deal_to(self, links: Sequence[Link], others: Iterable[Link] = ()) -> None:
        """From now on new batches go to these links.

        Args:
            links: at least one.
            others: they still deliver what they have, at the same time.
        """
        self.links = tuple(links)
        self._others = tuple(others)
        self.striped = len(self.links) + len(self._others) > 1
        self._sole = None if self.striped else self.links[0].window
        self.recount()

    def redeal(self, batches: Iterable[PendingBatch]) -> None:
        """Give what other links have held to one of these; it sends everything in order if it can.

        To one, because batches that were sealed before there were several links name no floor, and
        must not overtake each other.
        """
        again = sorted(batches, key=age)
        if self._sole is not None and self._sole.untouched:
            self._sole.merge(again)
            return
        working = [link for link in self.links if link.phase is LinkPhase.READY] or self.links
        min(working, key=lambda link: link.window.owed_bytes).window.extend(again)
        self.recount()

    def recount(self) -> None:
        """Find out again what of each stream is not acknowledged, the lowest first."""
        for stream in self._topics:
            stream.unacked = None
        if not self.striped:
            return
        every = [sealed for link in (*self.links, *self._others) for sealed in link.window]
        for sealed in sorted(every, key=_first_sequence):
            stream = sealed.stream
            if stream.unacked is None:
                stream.unacked = {}
            stream.unacked[sealed.first_sequence] = None

    def _next(self) -> Link | None:
        """The next link with room, if any."""
        start = self._turn % len(self.links)
        order = self.links[start:] + self.links[:start]
        works = False
        for link in order:
            if link.phase is LinkPhase.READY:
                works = True
                if link.window.has_room:
                    return link
        return None if works else next((link for link in order if link.window.has_room), None)


def _first_sequence(sealed: PendingBatch) -> int:
    return sealed.first_sequence
