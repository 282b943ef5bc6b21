"""Where a publisher publishes: assignment, relocation, striping, replay. Pure.

    DETACHED --Assignment, Relocate--> OPENING --Ready--> READY --connection lost--> OPENING
        ^                                 | refused, no answer, unreachable  |
        +---------------------------------+<---- the last link has failed ---+

A publisher holds one link (`roq.client.publish.link`) for each exchange that it publishes at,
usually one; striped over several exchanges it holds several. Effects and events name the link they
concern, and each link has a connection of its own.

Events:
    Assignment      the monitor's answer to AskAttach: publish there, and nowhere else
    Relocate        the monitor moves (one exchange) or stripes (several) a publisher that works
    Serving         the topology: an exchange that is missing is gone
    Received        a message from the exchange of a link
    ConnectionLost  the connection of a link is gone, or was not established
    Elsewhere       what waits for its acknowledgement is to be tried at another exchange
    Leave           the publisher closes
    Tick            `next_deadline` has come

Effects:
    Open, Drop      a link's connection
    Transmit        batches on a link; Say: anything else
    AskAttach       no link works: the monitor is to assign an exchange, under a higher epoch
    TellRelocated   what became of a Relocate, for the monitor

A relocation (`roq.client.publish.relocation`) opens its targets first while the links that are
there go on; its failure leaves everything as it was. Of two, the one with the higher epoch wins. A
connection that breaks is opened again at the same exchange; an exchange that does not answer is
given up, and what its link held goes to the other links, or waits for the monitor to assign another
exchange. The acknowledged batches of an exchange that may be dead are replayed elsewhere
(`roq.client.publish.replay`). Nothing is dropped here but what the delivery time-out gives up.
Batches come in by `chooser.seal`, and go out by `transmit` of each link.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from roq.client.publish.bound_batches import BoundLinks
from roq.client.publish.events import (
    AskAttach,
    Assignment,
    ConnectionLost,
    Effect,
    Elsewhere,
    Event,
    Leave,
    Received,
    Relocate,
    Serving,
    TellRelocated,
)
from roq.client.publish.latency import LatencyBook
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
from roq.client.publish.pending_batch import PendingBatch
from roq.client.publish.relocation import LINKS_MAX, PublishedLogs, Relocation
from roq.client.publish.replay import ReplayBuffer, ReplayBuffers
from roq.client.publish.send_window import SendWindow
from roq.client.publish.stats import Tally
from roq.client.publish.topics import NOTHING, Stream, Topics
from roq.machine import Tick
from roq.model import NO_LOG, ExchangeInfo, Limits, LogId, PublisherId
from roq.protocol import channel, documents
from roq.runtime.backoff import Backoff, Jitter, longest_wait

STEADY_SECONDS: Final = 5.0
"""A link that has worked for so long works: the next exchange is asked for at once."""


class Links:
    """All links of one publisher: which there are, and what passes between them.

    Args:
        publisher: id of the publisher.
        limits: used until the first exchange is assigned.
        delivery_seconds: what is not acknowledged for so long is given up.
        jitter: spreads publishers that have lost the same exchange; None: they wait the longest.
        offsets: exchanges are asked for the offset of each batch.
        latency: by which exchanges that are too slow are left alone; None: none is.
        incarnation: see `roq.client.publish.resume`.
        now: the present time.

    Attributes:
        all: the links that have a connection or hold batches.
        chooser: takes new batches.
        topics: the publisher's streams.
        tally: counters.
        replay: acknowledged batches.
        bound: links that were left, with what must not be sent elsewhere.
        published: the logs into which it has published.
        serving: the logs of the topology, and the epoch of the process that serves each; None
            before it was told.
        epoch: the highest one under which it publishes; 0: no exchange was ever assigned.
        used, away_since: whether a link ever worked; since when none does.
        moves: exchanges assigned and relocations done.
        closed: it is over.
    """

    def __init__(
        self, publisher: PublisherId, limits: Limits, *, delivery_seconds: float,
        jitter: Jitter | None = None, now: float = 0.0, offsets: bool = False,
        latency: LatencyBook | None = None, incarnation: int = 0,
    ) -> None:  # fmt: skip
        self.publisher, self._incarnation = publisher, incarnation
        self.queue_id, self._offsets, self._latency = b"", offsets, latency
        self.limits, self.delivery_seconds = limits, delivery_seconds
        self.topics, self.tally, self.published = Topics(limits.topics), Tally(), PublishedLogs()
        self.bound = BoundLinks(delivery_seconds)
        self.replay = ReplayBuffers(self.bound.topics)
        self.serving: Mapping[LogId, int] | None = None
        self.epoch, self.used, self.moves, self.closed = 0, False, 0, False
        self._unanswered = 0  # exchanges that did not answer in time since one was ready
        self.away_since: float | None = now
        self._last_link = self._attempt = 0
        self.all: tuple[Link, ...] = ()
        self.chooser = LinkChooser(self._add_link(None, 0), self.topics)
        self._highest = 0
        """The highest epoch that was heard of."""
        self._relocation: Relocation | None = None
        self._next: Relocate | None = None
        """Came while another one was draining."""
        self._told: TellRelocated | None = None
        self._backoff = Backoff(jitter or (lambda: 1.0))
        self._ready_since: float | None = None
        self._unsteady = True
        """No link works, or none has for long."""
        self._failed: tuple[tuple[int, int], ...] = ()
        """(number, epoch) of exchanges that were of no use since one was."""
        self._asked = True
        """Whether the monitor was asked, or will be at `_ask_at`; the session begins by itself."""
        self._ask_at: float | None = None

    # --- how they stand ---------------------------------------------------------------------------

    @property
    def _used(self) -> Sequence[Link]:
        """All but those that only wait for what is bound to them."""
        bound = self.bound.links
        return [link for link in self.all if link not in bound] if bound else self.all

    @property
    def detached(self) -> bool:
        """Whether no link has a connection, nor is about to get one."""
        return all(link.phase is LinkPhase.IDLE for link in self._used)

    @property
    def pausing(self) -> bool:
        """Whether batches wait for another exchange to drain."""
        return self._relocation is not None and self._relocation.collects

    @property
    def exchanges(self) -> tuple[ExchangeInfo, ...]:
        """The exchanges that it is to publish at now; none if none is assigned."""
        relocation = self._relocation
        links = relocation.leaving if relocation and relocation.collects else self.chooser.links
        return tuple(link.exchange for link in links if link.exchange is not None)

    @property
    def at(self) -> list[tuple[int, int]]:
        """(number, epoch) of the exchanges of which it believes that they take its batches."""
        relocation = self._relocation
        links = relocation.leaving if relocation and relocation.collects else self.chooser.links
        return [link.process for link in links if link.phase is not LinkPhase.IDLE]

    def next_deadline(self) -> float | None:
        """When a `Tick` is wanted at the latest."""
        times = [self._ask_at, self.bound.next_deadline(self.serving)]
        if self._relocation is not None:
            times.append(self._relocation.deadline)
        for link in self.all:
            times.append(link.next_deadline())
            if (oldest := link.window.oldest_owed()) is not None:
                times.append(oldest + self.delivery_seconds)
        return min((at for at in times if at is not None), default=None)

    def check(self) -> None:
        """Assert the invariants."""
        self.replay.check()
        for link in self.all:
            link.check()
            assert link.failure is None  # noqa: S101
        assert set(self.chooser.links) <= set(self.all)  # noqa: S101
        relocation = self._relocation
        roles = {*self.chooser.links, *self.bound.links, *(relocation.opened if relocation else ())}
        roles.update(relocation.leaving if relocation else ())
        assert roles == set(self.all)  # noqa: S101
        assert self._next is None or relocation is not None  # noqa: S101
        assert self.epoch <= self._highest  # noqa: S101

    @property
    def ready(self) -> bool:
        """Whether batches can be sent, or will be as soon as another exchange has drained."""
        return any(link.phase is LinkPhase.READY for link in self._used)

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
        return sum(s.count for link in self.all for s in link.window if s.owed and not s.void)

    @property
    def owed_batches(self) -> int:
        """Batches that are not acknowledged."""
        return sum(link.window.owed_batches for link in self.all)

    @property
    def waited_for(self) -> bool:
        """Whether anything is not acknowledged that somebody waits for."""
        return any(link.window.waited_for for link in self.all)

    @property
    def owed_bytes(self) -> int:
        """Their size."""
        return sum(link.window.owed_bytes for link in self.all)

    @property
    def unsettled(self) -> bool:
        """Whether any link holds anything."""
        return any(len(link.window) for link in self.all)

    # --- events -----------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:  # noqa: PLR0911 - one per event
        """Take one event in; see `roq.machine`."""
        if self.closed:
            return []
        match event:
            case Received(number, frames):
                return self.receive(number, frames, now)
            case Assignment():
                return self._assigned(event, now)
            case Relocate():
                return self._relocate(event, now)
            case Serving():
                return self._topology(event, now)
            case ConnectionLost(number, reason):
                link = self._link(number)
                return [] if link is None else self._after(link.connection_lost(reason, now), now)
            case Elsewhere():
                return self._elsewhere(event, now)
            case Leave(reason):
                return self._leave(reason)
            case Tick():
                return self._tick(now)

    def receive(self, number: int, frames: list[bytes], now: float) -> list[Effect]:
        """A message from the exchange of a link; the plain call for the hot path."""
        link = self._link(number)
        if link is None or self.closed:
            return []
        effects = link.received(frames, now)
        plain = link.failure is None and self._relocation is None and not self._unsteady
        if not plain or self.bound.links:
            return self._after(effects, now)
        return cast("list[Effect]", effects)

    def _after(self, effects: Iterable[Effect], now: float) -> list[Effect]:
        """What follows from what has just happened."""
        every: list[Effect] = list(effects)
        for link in self.all:
            if link.failure is not None:
                every += self._link_failed(link, now)
        if self._relocation is not None:
            every += self._proceed(self._relocation, now)
        if self.bound.links:
            if late := self.bound.take_late(now):
                self._replay(late)
                every += self._send(now)
            every += self._close(self.bound.take_over())
        if self.ready:
            self._works(now)
            return every
        if self.away_since is None:
            self.away_since = now
        self._ready_since, self._unsteady = None, True
        if self._relocation is None and not self._asked and self.detached:
            every += self._want_exchange(now)
        return every

    def _works(self, now: float) -> None:
        self._failed = ()
        self._unanswered = 0
        if self._ready_since is None:
            self._ready_since, self.away_since, self.used = now, None, True
        elif now >= self._ready_since + STEADY_SECONDS:
            self._backoff.reset()
            self._unsteady = False

    def _tick(self, now: float) -> list[Effect]:
        self.replay.forget(now)
        effects: list[LinkEffect] = []
        for link in self.all:
            link.expire(now - self.delivery_seconds, self.delivery_seconds)
            effects += link.tick(now)
        effects += self.bound.ask(self.serving, self._ready_seconds(), now)
        every = self._after(effects, now)
        if self._ask_at is not None and now >= self._ask_at:
            every.append(self._ask(now))
        return every

    def _topology(self, event: Serving, now: float) -> list[Effect]:
        exchanges, emptied = event.exchanges, event.emptied
        self.bound.topology(exchanges, event.logs)
        serving = {exchange.log: exchange for exchange in exchanges}
        self.serving = {exchange.log: exchange.epoch for exchange in exchanges}
        if self._latency is not None:
            self._latency.serving = tuple((each.number, each.epoch) for each in exchanges)
        self.replay.absolve(emptied)
        effects: list[LinkEffect] = []
        opened = self._relocation.opened if self._relocation is not None else []
        for link in self.all:
            exchange = serving.get(link.log)
            if exchange is not None:
                effects += link.serves(exchange, now)
            elif link.phase is not LinkPhase.IDLE and link not in opened:
                effects += link.gone(now, elsewhere=bool(exchanges))
        effects += self.bound.ask(self.serving, self._ready_seconds(), now)
        every = self._after(effects, now)
        if self.replay.doubt_missing(self.serving, now):
            self._replay(())
            every += self._send(now)
        return every

    def _elsewhere(self, event: Elsewhere, now: float) -> list[Effect]:
        """Leave links as if they had failed, unless it is going elsewhere anyway."""
        if self._relocation is not None:
            return []
        effects: list[LinkEffect] = []
        for link in self.chooser.links:
            if link.name == event.exchange or (not event.exchange and link.window.owed_batches):
                effects += link.give_up(event.reason)
        return self._after(effects, now)

    def _leave(self, reason: str) -> list[Effect]:
        self._ask_at = self._relocation = self._next = None
        effects: list[Effect] = []
        for link in self.all:
            effects += link.close(channel.Bye(publisher=self.publisher))
            link.window.abandon(reason)
            link.reason = reason
        self.replay.clear()
        self.closed = True
        return effects

    # --- assignment -------------------------------------------------------------------------------

    def _assigned(self, assignment: Assignment, now: float) -> list[Effect]:
        """Publish there and nowhere else, at once: whatever there was before did not work.

        If one of its links was to the same durable log, or is bound to that, it goes on there
        under its numbers: what that log has of it is not sent into it once more.
        """
        if assignment.epoch <= self._highest:
            return []  # an answer that was overtaken
        self._highest = self.epoch = assignment.epoch
        self.queue_id = assignment.queue_id
        self.limits = assignment.limits
        self.topics.allow(assignment.limits.topics)
        self.moves += 1
        self._ask_at = self._relocation = self._next = None
        self._asked = False
        before, exchange, seconds = self._used, assignment.exchange, self._ready_seconds()
        there = [each for each in before if each.goes_on_at(exchange)]
        same = there[-1] if there else self.bound.take_back(exchange)  # the newest passes others
        link = same or self._add_link(exchange, assignment.epoch)
        effects, batches = self._part([each for each in before if each is not same], now)
        self.chooser.deal_to([link])
        self._replay(batches)
        return [*effects, *(same.go_on(exchange, seconds, now) if same else link.open(now))]

    def _link_failed(self, link: Link, now: float) -> list[Effect]:
        """A link is of no use: others take over, or the monitor is asked, soon or later."""
        failure, link.failure = link.failure, None
        if link in self.bound.links:
            return []
        self._unanswered = min(self._unanswered + failure.late, 8) if failure else 0
        self._failed = (*self._failed, link.process)[-LINKS_MAX:]
        relocation = self._relocation
        if relocation is not None and link in relocation.opened:
            return self._abort(relocation, link, now)
        if link not in self.chooser.links:
            return []  # it was leaving
        others = [one for one in self.chooser.links if one.phase is not LinkPhase.IDLE]
        if not others:
            return []  # it holds its batches until there is another one
        dead = [one for one in self.chooser.links if one not in others]
        effects, batches = self._part(dead, now)
        self.chooser.deal_to(others, relocation.leaving if relocation is not None else ())
        self._replay(batches)
        return [*effects, *self._send(now)]

    def _want_exchange(self, now: float) -> list[Effect]:
        """No link works: the monitor is asked for an exchange, at once or after a while."""
        self._asked = True
        delay = self._backoff.wait()
        if delay:
            self._ask_at = now + delay
            return []
        return [self._ask(now)]

    def _ask(self, now: float) -> AskAttach:
        self._ask_at = None
        slow = () if self._latency is None else self._latency.avoided(now)
        failed, self._failed = (*self._failed, *slow), ()
        return AskAttach(tuple(dict.fromkeys(failed)))

    # --- relocation -------------------------------------------------------------------------------

    def _relocate(self, event: Relocate, now: float) -> list[Effect]:
        if event.epoch <= self._highest:
            again = self._told is not None and self._told.epoch == event.epoch
            return [self._told] if again and self._told is not None else []
        self._highest = event.epoch
        relocation = self._relocation
        if relocation is not None and relocation.draining:
            self._next = event
            return []
        effects = self._close(relocation.opened) if relocation is not None else []
        self._relocation = None
        return self._after([*effects, *self._begin(event, now)], now)

    def _begin(self, event: Relocate, now: float) -> list[Effect]:
        """Open what is not open yet."""
        targets = {info.log: info for info in event.exchanges}
        if not 0 < len(targets) <= LINKS_MAX:
            return [self._tell(event.epoch, reason=f"cannot publish at {len(targets)} exchanges")]
        if any(link.log in targets and self.bound.waits(link) for link in self.all):
            return [self._tell(event.epoch, reason="an earlier link to it is not over")]
        open_ = {link.log for link in self.chooser.links if link.phase is not LinkPhase.IDLE}
        relocation = Relocation(event.epoch, tuple(targets.values()), self.topics.heads())
        self._relocation = relocation
        self._ask_at = None
        self._asked = False
        effects: list[LinkEffect] = []
        for log, info in targets.items():
            if log not in open_:
                link = self._add_link(info, event.epoch, waits=True)
                relocation.opened.append(link)
                effects += link.open(now)
        return [*effects, *self._proceed(relocation, now)]

    def _proceed(self, relocation: Relocation, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if not relocation.draining and relocation.targets_ready():
            effects += self._switch(relocation, now)
        if relocation.draining and relocation.drained(now):
            effects += self._finish(relocation, now)
        return effects

    def _switch(self, relocation: Relocation, now: float) -> list[Effect]:
        """New batches are for the targets from here on."""
        before = self.chooser.links
        logs = {info.log for info in relocation.targets}
        stays = [one for one in before if one.log in logs and one.phase is not LinkPhase.IDLE]
        links = [*stays, *relocation.opened]
        relocation.leaving = [link for link in before if link not in stays]
        relocation.draining = True
        relocation.since = now
        relocation.bound = any(self.bound.binds(link) for link in relocation.leaving)
        if len(before) == len(links) == len(relocation.leaving) == 1:
            relocation.collects = True
            self.chooser.deal_to(links)
            return []
        effects: list[Effect] = [one for link in links for one in link.release(now)]
        relocation.opened.clear()
        self.chooser.deal_to(links, relocation.leaving)
        return effects

    def _finish(self, relocation: Relocation, now: float) -> list[Effect]:
        """Nothing is on its way to the exchanges that are left, or has been for too long."""
        leaving, self._relocation = relocation.leaving, None
        self.epoch = relocation.epoch
        self.moves += 1
        effects: list[Effect]
        effects, batches = self._part(leaving, now)
        self.chooser.deal_to(self.chooser.links)
        self._replay(batches)
        if leaving:
            effects += self._introduce(now, relocation.heads)
        for link in relocation.opened:
            effects += link.release(now)
        effects += self._send(now)
        pause = now - relocation.since if relocation.collects else 0.0
        effects.append(self._tell(relocation.epoch, accepted=True, pause=pause))
        return [*effects, *self._begin_next(now)]

    def _abort(self, relocation: Relocation, link: Link, now: float) -> list[Effect]:
        """A target cannot be used: everything is as before."""
        self._relocation = None
        batches = [sealed for one in relocation.opened for sealed in one.window.take_all()]
        effects: list[Effect] = [*self._close(relocation.opened)]
        if relocation.draining:
            self.chooser.deal_to(relocation.leaving)
        self._replay(batches)
        effects += self._send(now)
        effects.append(self._tell(relocation.epoch, failed=(link.process,), reason=link.reason))
        return [*effects, *self._begin_next(now)]

    def _begin_next(self, now: float) -> list[Effect]:
        event, self._next = self._next, None
        return self._begin(event, now) if event is not None else []

    def _tell(
        self, epoch: int, *, accepted: bool = False, failed: tuple[tuple[int, int], ...] = (),
        reason: str = "", pause: float = 0.0,
    ) -> TellRelocated:  # fmt: skip
        self._told = TellRelocated(epoch, accepted, failed, reason, int(pause * 1_000_000))
        return self._told

    # --- coming and going -------------------------------------------------------------------------

    def _link(self, number: int) -> Link | None:
        for link in self.all:
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
        link = Link(
            self._last_link, exchange, window, self._hello, waits=waits,
            ready_seconds=self._ready_seconds(), latency=self._latency,
        )  # fmt: skip
        self.all = (*self.all, link)
        return link

    def _ready_seconds(self) -> float:
        """How long an exchange may take to answer: the longer, the more have not."""
        return longest_wait(self._unanswered + 1, READY_SECONDS, READY_SECONDS_MOST)

    def _part(self, links: Sequence[Link], now: float) -> tuple[list[Effect], list[PendingBatch]]:
        """Leave these links, but for those to which something is bound; what others are to send."""
        batches = [sealed for link in links for sealed in self.bound.take(link, now)]
        return [*self._close([each for each in links if each not in self.bound.links])], batches

    def _close(self, links: Sequence[Link]) -> list[LinkEffect]:
        """Leave these links, whose batches were taken, for good."""
        effects: list[LinkEffect] = []
        self.all = tuple(link for link in self.all if link not in links)
        used = {link.log for link in self.all}
        self.published.note(links)
        for link in links:
            if link.log in used:
                effects += link.close()
                continue
            effects += link.close(channel.Bye(publisher=self.publisher, epoch=self.epoch))
            self.replay.leave(link.log, self.serving)
        return effects

    def _replay(self, batches: Iterable[PendingBatch]) -> None:
        """Have these and what exchanges in doubt had acknowledged sent again by the others."""
        doubtful = self.replay.take_doubtful(frozenset(link.log for link in self.all))
        self.chooser.redeal([*doubtful, *batches])

    def _send(self, now: float) -> list[LinkEffect]:
        """Send what has become possible."""
        effects: list[LinkEffect] = []
        for link in self.all:
            batches = link.transmit(now)
            if batches:
                effects.append(Transmit(link.number, batches))
        return effects

    def _hello(
        self, link: Link, now: float, since: Mapping[Stream, int] = NOTHING
    ) -> tuple[bytes, bytes]:
        firsts: dict[Stream, int] = {}
        for one in self.all:
            one.window.lower_firsts(firsts)
        link.window.buffer.lower_firsts(firsts)
        self._attempt += 1
        hello = channel.Hello(
            queue=self.queue_id, publisher=self.publisher, epoch=link.window.epoch,
            attempt=self._attempt, streams=self.topics.states(firsts, now, since),
            places=link.window.low if self._offsets else 0, incarnation=self._incarnation,
            logs=self.published.before(self.all, link.log),
        )  # fmt: skip
        return channel.HELLO, documents.encode(hello)

    def _introduce(self, now: float, since: Mapping[Stream, int]) -> list[LinkEffect]:
        """Tell the exchanges of streams and logs that moved on since the Hello, so that readers
        notice if the exchange that was left dies with the end of a stream."""
        if self.topics.heads() == since and not self.published.changed:
            return []
        return [
            Say(link.number, self._hello(link, now, since))
            for link in self.chooser.links
            if link.phase in {LinkPhase.READY, LinkPhase.WAITING}
        ]
