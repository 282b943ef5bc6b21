"""All links of one publisher, and what passes between them. Pure.

A batch is in one link, or acknowledged and kept in the replay buffer of an exchange. When a link
ends, what it held goes to the others, together with the replay buffers of exchanges that may be
dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from roq.client.publish.link import (
    READY_SECONDS,
    READY_SECONDS_MOST,
    Link,
    LinkEffect,
    LinkPhase,
    Say,
    Transmit,
)
from roq.client.publish.link_chooser import LinkChooser
from roq.client.publish.receipt import Receipt
from roq.client.publish.replay import ReplayBuffer, ReplayBuffers
from roq.client.publish.send_window import PendingBatch, SendWindow, Stream
from roq.client.publish.tally import Tally
from roq.client.publish.topics import NOTHING, Topics
from roq.client.session.events import SessionFacts
from roq.client.status.status import PublisherFacts
from roq.model import NO_LOG, ExchangeInfo, Limits, LogId, PublisherId
from roq.protocol import channel, documents
from roq.runtime.backoff import longest_wait


class Links:
    """The links, the streams that they share, and the counters.

    Args:
        publisher: id of the publisher.
        queue_id: exchanges of other queues refuse.
        limits: used until the first exchange tells its own.

    Attributes:
        links: all that have a connection or hold batches.
        chooser: takes new batches.
        topics: the publisher's streams.
        tally: counters.
        replay: acknowledged batches.
        serving: the topology; None before it was told.
        epoch: the highest one under which it publishes.
    """

    def __init__(self, publisher: PublisherId, queue_id: bytes, limits: Limits) -> None:
        self.publisher = publisher
        self.queue_id = queue_id
        self.limits = limits
        self.topics = Topics(limits.topics)
        self.tally = Tally()
        self.replay = ReplayBuffers()
        self.serving: frozenset[LogId] | None = None
        self.epoch = 0
        self._unanswered = 0
        """Exchanges that did not answer in time since one was ready."""
        self._used = False
        self._away_since: float | None = None
        self._last_link = 0
        self._attempt = 0
        self.links: tuple[Link, ...] = ()
        self.chooser = LinkChooser(self._add_link(None, 0), self.topics)

    # --- how they stand ---------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether batches can be sent, or will be as soon as another exchange has drained."""
        return any(link.phase is LinkPhase.READY for link in self.links)

    @property
    def idle(self) -> bool:
        """Whether a batch would be sent at once, and nothing else is under way."""
        for link in self.chooser.links:
            if link.phase is not LinkPhase.READY or len(link.window):
                return False
        return True

    @property
    def reason(self) -> str:
        """Why nothing can be sent at present, in a sentence; empty when it can."""
        if self.ready:
            return ""
        return next((link.reason for link in self.chooser.links if link.reason), "")

    @property
    def owed_messages(self) -> int:
        """Not acknowledged, and not given up."""
        owed = (one for link in self.links for one in link.window if one.owed and not one.void)
        return sum(sealed.count for sealed in owed)

    @property
    def owed_batches(self) -> int:
        """Batches that are not acknowledged."""
        return sum(link.window.owed_batches for link in self.links)

    @property
    def owed_bytes(self) -> int:
        """Their size."""
        return sum(link.window.owed_bytes for link in self.links)

    @property
    def unsettled(self) -> bool:
        """Whether any link holds anything."""
        return any(len(link.window) for link in self.links)

    def facts(self, queue: str, session: SessionFacts, now: float) -> PublisherFacts:
        """What the watchdog wants to know."""
        ready = self.ready
        return PublisherFacts(
            queue,
            session,
            exchange=", ".join(sorted(link.name for link in self.chooser.links)),
            ready=ready,
            used=self._used,
            reason=self.reason,
            away=0.0 if ready or self._away_since is None else now - self._away_since,
            owed=self.owed_batches,
            quiet=max((link.quiet(now) for link in self.links), default=0.0),
            held=next((link.held for link in self.links if link.held), ""),
            stalled=max((now - link.held_at for link in self.links if link.held), default=0.0),
        )

    def holds(self, receipt: Receipt) -> bool:
        """Whether the batch of this receipt was sealed."""
        return receipt.done() or any(link.window.holds(receipt) for link in self.links)

    def recount(self) -> None:
        """Put right what an interrupted `chooser.seal` has left."""
        for link in self.links:
            link.window.recount()
        self.chooser.recount()

    # --- coming and going -------------------------------------------------------------------------

    def _link(self, number: int) -> Link | None:
        for link in self.links:
            if link.number == number:
                return link
        return None

    def _add_link(self, exchange: ExchangeInfo | None, epoch: int, *, waits: bool = False) -> Link:
        window = SendWindow(
            self.publisher, epoch, max(1, self.limits.window_batches),
            max(1, self.limits.window_bytes), self.tally,
            self.replay.of(exchange.log) if exchange is not None else ReplayBuffer(NO_LOG),
        )  # fmt: skip
        self._last_link += 1
        seconds = longest_wait(self._unanswered + 1, READY_SECONDS, READY_SECONDS_MOST)
        link = Link(
            self._last_link, exchange, window, self._hello, waits=waits, ready_seconds=seconds
        )
        self.links = (*self.links, link)
        return link

    def _close(self, links: Sequence[Link]) -> list[LinkEffect]:
        """Leave these links, whose batches were taken, for good."""
        effects: list[LinkEffect] = []
        self.links = tuple(link for link in self.links if link not in links)
        used = {link.log for link in self.links}
        for link in links:
            if link.log in used:
                effects += link.close()
                continue
            effects += link.close(channel.Bye(publisher=self.publisher, epoch=self.epoch))
            self.replay.leave(link.log)
            if self.serving is not None and link.log not in self.serving:
                self.replay.doubt(link.log, lost=True)
        return effects

    def _replay(self, batches: Iterable[PendingBatch]) -> None:
        """Have these and what exchanges in doubt had acknowledged sent again by the others."""
        doubtful = self.replay.take_doubtful(frozenset(link.log for link in self.links))
        self.chooser.redeal([*doubtful, *batches])

    def _send(self, now: float) -> list[LinkEffect]:
        """Send what has become possible."""
        effects: list[LinkEffect] = []
        for link in self.links:
            batches = link.transmit(now)
            if batches:
                effects.append(Transmit(link.number, batches))
        return effects

    def _hello(
        self, link: Link, now: float, since: Mapping[Stream, int] = NOTHING
    ) -> tuple[bytes, bytes]:
        firsts: dict[Stream, int] = {}
        for one in self.links:
            one.window.lower_firsts(firsts)
        self._attempt += 1
        hello = channel.Hello(
            queue=self.queue_id,
            publisher=self.publisher,
            epoch=link.window.epoch,
            attempt=self._attempt,
            streams=self.topics.states(firsts, now, since),
        )
        return channel.HELLO, documents.encode(hello)

    def _introduce(self, now: float, since: Mapping[Stream, int]) -> list[LinkEffect]:
        """Tell the exchanges of the streams that have moved on since the Hello.

        So their logs show where each stream stands, and a reader notices if the exchange that was
        left dies with the end of one.
        """
        if self.topics.heads() == since:
            return []
        return [
            Say(link.number, self._hello(link, now, since))
            for link in self.chooser.links
            if link.phase in {LinkPhase.READY, LinkPhase.WAITING}
        ]
