"""Which lane gets the next batch. Pure.

With one lane there is nothing to decide. Several are served in turn, those that have room, and as
long as any connection works only those that work. While the batches of a stream may be under way on
more than one lane, each says how far its stream is acknowledged (the FLOOR extension): a reader
that misses something above it waits for the other lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roq.client.lane import Lane, LanePhase
from roq.client.outbox import Outbox, Sealed, Stream, age
from roq.client.receipt import Receipt
from roq.client.topics import Topics
from roq.protocol.extensions import pack_floor


class Dealer:
    """Deals batches to lanes.

    Attributes:
        lanes: those that get new batches; never empty.
        striped: whether batches say their stream's floor.
    """

    def __init__(self, lane: Lane, topics: Topics) -> None:
        self.lanes: tuple[Lane, ...] = (lane,)
        self.striped = False
        self._topics = topics
        self._others: tuple[Lane, ...] = ()
        self._sole: Outbox | None = lane.outbox
        """Of the only lane, for the hot path; None while striped."""
        self._turn = 0

    @property
    def has_room(self) -> bool:
        """Whether another batch may be sealed."""
        sole = self._sole
        if sole is None:
            return self._next() is not None
        return sole.owed_batches < sole.window_batches and sole.owed_bytes < sole.window_bytes

    def seal(
        self, stream: Stream, payloads: list[bytes], receipt: Receipt, now: float, created_us: int
    ) -> Sealed:
        """Pack the next messages of a stream for the lane whose turn it is."""
        if self._sole is not None:
            return self._sole.seal(stream, payloads, receipt, now, created_us)
        lane = self._next() or self.lanes[0]
        self._turn = self.lanes.index(lane) + 1
        unacked = stream.unacked
        if unacked is None:
            unacked = stream.unacked = {}
        unacked[stream.next_sequence] = None
        floor = pack_floor(next(iter(unacked)))
        return lane.outbox.seal(stream, payloads, receipt, now, created_us, floor)

    def deal_to(self, lanes: Sequence[Lane], others: Iterable[Lane] = ()) -> None:
        """From now on new batches go to these lanes.

        Args:
            lanes: at least one.
            others: they still deliver what they have, at the same time.
        """
        self.lanes = tuple(lanes)
        self._others = tuple(others)
        self.striped = len(self.lanes) + len(self._others) > 1
        self._sole = None if self.striped else self.lanes[0].outbox
        self.recount()

    def redeal(self, batches: Iterable[Sealed]) -> None:
        """Give what other lanes have held to one of these; it sends everything in order if it can.

        To one, because batches that were sealed before there were several lanes name no floor, and
        must not overtake each other.
        """
        again = sorted(batches, key=age)
        if self._sole is not None and self._sole.untouched:
            self._sole.merge(again)
            return
        working = [lane for lane in self.lanes if lane.phase is LanePhase.READY] or self.lanes
        min(working, key=lambda lane: lane.outbox.owed_bytes).outbox.extend(again)
        self.recount()

    def recount(self) -> None:
        """Find out again what of each stream is not acknowledged, the lowest first."""
        for stream in self._topics:
            stream.unacked = None
        if not self.striped:
            return
        every = [sealed for lane in (*self.lanes, *self._others) for sealed in lane.outbox]
        for sealed in sorted(every, key=_first_sequence):
            stream = sealed.stream
            if stream.unacked is None:
                stream.unacked = {}
            stream.unacked[sealed.first_sequence] = None

    def _next(self) -> Lane | None:
        """The next lane with room, if any."""
        start = self._turn % len(self.lanes)
        order = self.lanes[start:] + self.lanes[:start]
        works = False
        for lane in order:
            if lane.phase is LanePhase.READY:
                works = True
                if lane.outbox.has_room:
                    return lane
        return None if works else next((lane for lane in order if lane.outbox.has_room), None)


def _first_sequence(sealed: Sealed) -> int:
    return sealed.first_sequence
