"""All lanes of one publisher, and what passes between them. Pure.

A batch is in one lane, or acknowledged and kept in the pile of an exchange. When a lane ends, what
it held goes to the others, together with the piles of exchanges that may be dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from roq.client.dealer import Dealer
from roq.client.kept import Kept, Pile, Source
from roq.client.lane import (
    READY_SECONDS,
    READY_SECONDS_MOST,
    Lane,
    LaneEffect,
    LanePhase,
    Say,
    Transmit,
)
from roq.client.outbox import Outbox, Sealed, Stream
from roq.client.receipt import Receipt
from roq.client.tally import Tally
from roq.client.topics import NOTHING, Topics
from roq.client.watchdog import PublisherFacts, SessionFacts
from roq.model import ExchangeInfo, Limits, PublisherId
from roq.protocol import channel, documents


class Lanes:
    """The lanes, the streams that they share, and the counters.

    Args:
        publisher: id of the publisher.
        queue_id: exchanges of other queues refuse.
        limits: used until the first exchange tells its own.

    Attributes:
        lanes: all that have a connection or hold batches.
        dealer: takes new batches.
        topics: the publisher's streams.
        tally: counters.
        kept: acknowledged batches.
        serving: the topology; None before it was told.
        epoch: the highest one under which it publishes.
    """

    def __init__(self, publisher: PublisherId, queue_id: bytes, limits: Limits) -> None:
        self.publisher = publisher
        self.queue_id = queue_id
        self.limits = limits
        self.topics = Topics(limits.topics)
        self.tally = Tally()
        self.kept = Kept()
        self.serving: frozenset[Source] | None = None
        self.epoch = 0
        self._unanswered = 0
        """Exchanges that did not answer in time since one was ready."""
        self._used = False
        self._away_since: float | None = None
        self._lane_number = 0
        self._attempt = 0
        self.lanes: tuple[Lane, ...] = ()
        self.dealer = Dealer(self._add_lane(None, 0), self.topics)

    # --- how they stand ---------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether batches can be sent, or will be as soon as another exchange has drained."""
        return any(lane.phase is LanePhase.READY for lane in self.lanes)

    @property
    def idle(self) -> bool:
        """Whether a batch would be sent at once, and nothing else is under way."""
        for lane in self.dealer.lanes:
            if lane.phase is not LanePhase.READY or len(lane.outbox):
                return False
        return True

    @property
    def reason(self) -> str:
        """Why nothing can be sent at present, in a sentence; empty when it can."""
        if self.ready:
            return ""
        return next((lane.reason for lane in self.dealer.lanes if lane.reason), "")

    @property
    def owed_messages(self) -> int:
        """Not acknowledged, and not given up."""
        owed = (one for lane in self.lanes for one in lane.outbox if one.owed and not one.void)
        return sum(sealed.count for sealed in owed)

    @property
    def owed_batches(self) -> int:
        """Batches that are not acknowledged."""
        return sum(lane.outbox.owed_batches for lane in self.lanes)

    @property
    def owed_bytes(self) -> int:
        """Their size."""
        return sum(lane.outbox.owed_bytes for lane in self.lanes)

    @property
    def unsettled(self) -> bool:
        """Whether any lane holds anything."""
        return any(len(lane.outbox) for lane in self.lanes)

    def facts(self, queue: str, session: SessionFacts, now: float) -> PublisherFacts:
        """What the watchdog wants to know."""
        ready = self.ready
        return PublisherFacts(
            queue,
            session,
            exchange=", ".join(sorted(lane.name for lane in self.dealer.lanes)),
            ready=ready,
            used=self._used,
            reason=self.reason,
            away=0.0 if ready or self._away_since is None else now - self._away_since,
            owed=self.owed_batches,
            quiet=max((lane.quiet(now) for lane in self.lanes), default=0.0),
            held=next((lane.held for lane in self.lanes if lane.held), ""),
            stalled=max((now - lane.held_at for lane in self.lanes if lane.held), default=0.0),
        )

    def holds(self, receipt: Receipt) -> bool:
        """Whether the batch of this receipt was sealed."""
        return receipt.done() or any(lane.outbox.holds(receipt) for lane in self.lanes)

    def recount(self) -> None:
        """Put right what an interrupted `dealer.seal` has left."""
        for lane in self.lanes:
            lane.outbox.recount()
        self.dealer.recount()

    # --- coming and going -------------------------------------------------------------------------

    def _lane(self, number: int) -> Lane | None:
        for lane in self.lanes:
            if lane.number == number:
                return lane
        return None

    def _add_lane(self, exchange: ExchangeInfo | None, epoch: int, *, waits: bool = False) -> Lane:
        source = (exchange.number, exchange.epoch) if exchange is not None else (0, 0)
        outbox = Outbox(
            self.publisher, epoch, max(1, self.limits.window_batches),
            max(1, self.limits.window_bytes), self.tally,
            self.kept.of(source) if exchange is not None else Pile(source),
        )  # fmt: skip
        self._lane_number += 1
        seconds = min(READY_SECONDS_MOST, READY_SECONDS * 2.0**self._unanswered)
        lane = Lane(
            self._lane_number, exchange, outbox, self._hello, waits=waits, ready_seconds=seconds
        )
        self.lanes = (*self.lanes, lane)
        return lane

    def _close(self, lanes: Sequence[Lane]) -> list[LaneEffect]:
        """Leave these lanes, whose batches were taken, for good."""
        effects: list[LaneEffect] = []
        self.lanes = tuple(lane for lane in self.lanes if lane not in lanes)
        used = {lane.source for lane in self.lanes}
        for lane in lanes:
            if lane.source in used:
                effects += lane.close()
                continue
            effects += lane.close(channel.Bye(publisher=self.publisher, epoch=self.epoch))
            self.kept.leave(lane.source)
            if self.serving is not None and lane.source not in self.serving:
                self.kept.doubt(lane.source, lost=True)
        return effects

    def _replay(self, batches: Iterable[Sealed]) -> None:
        """Have these and what exchanges in doubt had acknowledged sent again by the others."""
        doubtful = self.kept.take_doubtful(frozenset(lane.source for lane in self.lanes))
        self.dealer.redeal([*doubtful, *batches])

    def _send(self, now: float) -> list[LaneEffect]:
        """Send what has become possible."""
        effects: list[LaneEffect] = []
        for lane in self.lanes:
            batches = lane.transmit(now)
            if batches:
                effects.append(Transmit(lane.number, batches))
        return effects

    def _hello(
        self, lane: Lane, now: float, since: Mapping[Stream, int] = NOTHING
    ) -> tuple[bytes, bytes]:
        firsts: dict[Stream, int] = {}
        for one in self.lanes:
            one.outbox.lower_firsts(firsts)
        self._attempt += 1
        hello = channel.Hello(
            version=channel.CHANNEL_VERSION,
            queue=self.queue_id,
            publisher=self.publisher,
            epoch=lane.outbox.epoch,
            attempt=self._attempt,
            streams=self.topics.states(firsts, now, since),
        )
        return channel.HELLO, documents.encode(hello)

    def _introduce(self, now: float, since: Mapping[Stream, int]) -> list[LaneEffect]:
        """Tell the exchanges of the streams that have moved on since the Hello.

        So their logs show where each stream stands, and a reader notices if the exchange that was
        left dies with the end of one.
        """
        if self.topics.heads() == since:
            return []
        return [
            Say(lane.number, self._hello(lane, now, since))
            for lane in self.dealer.lanes
            if lane.phase in {LanePhase.READY, LanePhase.WAITING}
        ]
