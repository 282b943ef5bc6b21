"""The exchange core: takes batches into the log, and decides every answer. Pure.

The shell calls `begin` once per turn, `append` for each batch, `take_acks` and `take_answers` for
what that has earned; everything else is an event (`events.py`) through `handle`. Readers wait:
their `requests` are answered one by one by `answer_next`, old batches come piece by piece out of
`fetches`, as the shell finds time beside the publishers. So do newcomers who arrive in a crowd.

What is held here: per link no batch is lost, doubled or out of order; the log shows each stream's
position before its first batch; nothing that a peer sends raises, and every request is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from roq.exchange.backlogs import Backlogs
from roq.exchange.backpressure import RESERVE_PARTS, Backpressure
from roq.exchange.commit import CommitGate, LateLog, SyncGate, Uncommitted
from roq.exchange.consumers import Consumers
from roq.exchange.counters import Counters
from roq.exchange.delayed_messages import DelayedMessages
from roq.exchange.disk_room import DiskRoom
from roq.exchange.done_files import GROUP_NAMES_MAX, DoneFiles, groups_digest
from roq.exchange.events import (
    Effect,
    Event,
    Garbled,
    Passed,
    Publish,
    Received,
    Stop,
    Subscribed,
    Unreachable,
    Unsubscribed,
    Woken,
)
from roq.exchange.fetches import Fetches
from roq.exchange.intake import PROBE_PARTS, Intake, batch_bytes_max
from roq.exchange.links import Link, LinkTable
from roq.exchange.publishers import Publishers
from roq.exchange.readers import Readers, refusal, tagged
from roq.exchange.requests import REQUEST_BYTES_MAX, Request, Requests
from roq.exchange.snapshot import decode_snapshot, encode_snapshot
from roq.exchange.subscriptions import Subscriptions, is_presence
from roq.log.leases import NumberedLeases
from roq.log.log import Log, NotAtHand, Record
from roq.log.moved_publishers import MovedPublishers
from roq.log.ring import Ring
from roq.log.streams import StreamTable, spare_of
from roq.machine import Tick
from roq.model import Limits, LogId
from roq.protocol.channel import (
    BYE,
    CLAIM,
    END_TOPIC,
    FIND,
    HEADS,
    HELLO,
    POSITION,
    READER_TAG_BYTES,
    SEEK,
    Ready,
)
from roq.protocol.control import OrderAsk, OrderTold
from roq.protocol.delayed import DELAYED_TOPIC
from roq.protocol.entry import EntryKind, pack_entry
from roq.timing import ACK_PROBE_SECONDS, END_SECONDS, IDLE_AFTER_SECONDS

B = TypeVar("B")

HELLO_BYTES: Final = 4 * 1024
"""So much of Hellos is answered at once in a turn; what comes on top waits among the requests of
readers. So a crowd that arrives in one instant does not hold up those who publish already."""
HELLO_BYTES_MIN: Final = 1_024
"""A small one counts as so much."""
DESERTED_SECONDS: Final = 1.0
"""Between two ticks while nobody is there: no publisher, no subscriber."""
IDLE_SECONDS: Final = 2.0
"""Likewise when nobody has been there for a long time."""
STREAMS_FACTOR: Final = 2
"""Streams that are remembered, as a multiple of the larger of topics and publishers."""
_TAG_SIZES: Final = frozenset({0, READER_TAG_BYTES})

assert END_SECONDS * PROBE_PARTS == ACK_PROBE_SECONDS  # noqa: S101


class ExchangeCore(Generic[B]):
    """One exchange without its sockets.

    Args:
        queue: queue id; a Hello or request for another one is refused.
        number: of the exchange in its queue.
        epoch: of this process.
        limits: what the queue allows.
        log: where batches are kept; None: in a ring. If it is not empty, call `recover`.
        late: the log instead, if it commits later than it accepts: what is committed comes out of
            `take_committed` and is published then.
        place: where it lies, in words.
        ahead: that log commits ahead of its disk: what is synced comes out of `take_synced`.

    Attributes:
        disk: whether there is room for a late log, and whether any log takes something.
        append: takes one batch in; see `Intake.append`.
        memory: what of the log is in memory: all of it, unless it lies on a disk.
        idle: nobody has come, or been there, for `IDLE_AFTER_SECONDS`.
    """

    def __init__(
        self,
        queue: bytes,
        number: int,
        epoch: int,
        limits: Limits,
        log: Log[B | bytes] | None = None,
        late: LateLog[B | bytes] | None = None,
        place: str = "",
        *,
        ahead: bool = False,
    ) -> None:
        self.queue = queue
        self.number = number
        self.epoch = epoch
        self.counters = Counters()
        self.subscriptions = Subscriptions()
        log = log if late is None else late
        if log is None:
            log = Ring(
                queue, number, epoch, capacity_bytes=limits.ring_bytes, topics_max=limits.topics,
                topics_spare=spare_of(limits.topics),
            )  # fmt: skip
        self.log = log
        self.memory = log if late is None else late.hot
        self.streams = StreamTable(STREAMS_FACTOR * max(limits.topics, limits.publishers))
        self.links = LinkTable(limits.publishers)
        self.fetches: Fetches[B | bytes] = Fetches(self.log)
        self.requests = Requests()
        self.backpressure: Backpressure[B | bytes] = Backpressure(self.memory)
        self.backlogs = Backlogs(self.memory, limits.slow_bytes)
        own = LogId(number, log.generation)
        self.stays = MovedPublishers(own, STREAMS_FACTOR * limits.publishers)
        self._readers = Readers(
            queue, self.log, self.streams, self.fetches, self.counters, self.backpressure
        )
        named = epoch if late is None else max(epoch, late.epoch)
        self.consumers: Consumers[B | bytes] = Consumers(
            queue, self.log, epoch, self.counters, self.backpressure, late=late is not None,
            frame_bytes=batch_bytes_max(limits), stays=self.stays, numbers=NumberedLeases(named),
        )  # fmt: skip
        self.consumers.lifetimes.queue_us = limits.message_seconds * 1_000_000
        self.disk = DiskRoom(limits, place)
        self.delayed: DelayedMessages[B] = DelayedMessages(
            queue, number, named, limits, self.log, self.streams, self.counters, self.disk,
            self.backpressure, late,
        )  # fmt: skip
        services = self.consumers.services
        services.keep_delayed(self.delayed)
        services.publish = self.delayed.publish
        services.find_links(self.links.route_of)
        self.delayed.wanted = services.deleted_before
        ready = Ready(
            exchange=number, exchange_epoch=epoch, generation=log.generation, expected=1,
            message_bytes=limits.message_bytes, batch_bytes=limits.batch_bytes,
            batch_messages=limits.batch_messages,
            window_bytes=min(limits.window_bytes, max(1, limits.ring_bytes // RESERVE_PARTS)),
            window_batches=limits.window_batches, durable=late is not None,
            ahead=ahead,
        )  # fmt: skip
        gate: CommitGate[B | bytes] = CommitGate(self.log)
        self._late = late
        self._uncommitted = None if late is None else Uncommitted(late, self.disk)
        self._sync_gate = SyncGate(late) if late is not None and ahead else None
        self._done_files: DoneFiles[B | bytes] | None = None
        if late is not None and limits.log_until_done:
            self._done_files = DoneFiles(late, lambda: self.consumers.groups)
        self._publishers: Publishers[B] = Publishers(
            ready, queue, limits, self.log, gate, self.links, self.streams, self.counters,
            self.stays, late,
        )  # fmt: skip
        self.intake: Intake[B] = Intake(
            limits, self.log, self.memory, gate, self.links, self._publishers, self.subscriptions,
            self.counters, self.backpressure, self.delayed, self.disk, self._uncommitted,
            self._sync_gate,
        )  # fmt: skip
        self.append: Callable[[bytes, bytes, B, int], bytes | None] = (
            self.intake.append if late is None else self._accept
        )
        self.take_acks = self.intake.take_acks
        self._hello_bytes = HELLO_BYTES
        self._now = 0.0
        self._next_end = 0.0
        self.idle = False
        self._batches_before = 0
        """What earlier processes have left in the log."""
        self._used_at: float | None = None
        """When somebody was here last; None: no time has passed yet."""

    def snapshot(self) -> bytes:
        """What another process has to know, beside the log, in order to go on with it from here."""
        return encode_snapshot(
            self._publishers.snapshot(), self.consumers.snapshot(), self.delayed.snapshot(),
            self.delayed.transactions.snapshot(),
        )  # fmt: skip

    def recover(
        self,
        now: float,
        snapshot: bytes | None = None,
        since: int = 0,
        changes: Sequence[bytes] = (),
    ) -> None:
        """Go on with what an earlier process has left in the log, before anything else happens.

        Args:
            snapshot: the newest one that there is; None: there is none.
            since: where the log ended when it was taken.
            changes: of consumer groups, written behind it, in order.

        Raises:
            RemoteProtocolError: the snapshot or the log cannot be read.
            LogRefused: the log cannot be read at the moment.
        """
        publishers, groups, later, ended = (
            ([], [], b"", b"") if snapshot is None else decode_snapshot(snapshot)
        )
        self._publishers.recover(now, publishers, since)
        self.consumers.begin(now)
        self.consumers.recover(groups, changes)
        self.delayed.recover(later, since, ended)
        self._batches_before = self.log.end

    def begin(self, now: float, time_us: int) -> None:
        """A turn of the loop begins: monotonic seconds, and the wall clock in µs UTC."""
        self._now = now
        self._hello_bytes = HELLO_BYTES
        self.intake.begin(now)
        self.consumers.begin(now)
        self.delayed.begin(now, time_us)
        self.log.advance_clock(time_us)
        if self._late is not None:
            self._late.tell_time(now, time_us)
        # Append times do not go back with a clock: what has just come is not old by that.
        self.consumers.lifetimes.now_us = min(self.delayed.clock.now_us, self.log.time_us)

    def _at(self, now: float) -> None:
        if now != self._now:  # else the turn has begun with it
            self._now = now
            self.intake.begin(now)
            self.consumers.begin(now)

    def handle(self, event: Event, now: float) -> list[Effect]:  # noqa: PLR0911 - one per event
        """Take one event in and give the effects to perform, in order."""
        self._at(now)
        match event:
            case Received(route, frames):
                return [*self._used(), *self._received(route, frames)]
            case Garbled(route):
                self.counters.malformed += 1
                return [refusal(route, "malformed", "no message of RoQ has so many frames")]
            case Unreachable(route):
                return self._unreachable(route)
            case Subscribed(prefix):
                return [*self._used(), *self._subscribed(prefix)]
            case Unsubscribed(prefix):
                self.subscriptions.remove(prefix)
                if is_presence(prefix):
                    self.backpressure.presence_ended(prefix)
                return []
            case Passed():
                self._publishers.passed(event)
                return []
            case OrderAsk():
                return self.consumers.order_questions.asked(event)
            case OrderTold():
                self.consumers.order_questions.told(event)
                return []
            case Stop():
                self._publishers.stopping = True
                return [self._end(EntryKind.END, END_TOPIC)]
            case Tick():
                return self._tick()

    def take_answers(self) -> list[Effect]:
        """What else publishers, readers and consumers are to be told since the last call."""
        answers = [
            *self.intake.take_answers(), *self.consumers.take_answers(),
            *self.consumers.order_questions.run(self._now), *self.delayed.run(),
        ]  # fmt: skip
        if self.backpressure.end_due:
            self.backpressure.end_due = False
            return [*answers, self._end(EntryKind.END, END_TOPIC)]
        return answers

    def take_committed(self, most: int) -> list[Record[B | bytes]]:
        """What a late log has committed and nobody was shown: publish it, in this order.

        The log has to be told first that it is committed. Entries that the disk has lost are
        passed over.

        Args:
            most: so many at once; there are more while `all_shown` is False.
        """
        taken = [] if self._uncommitted is None else self._uncommitted.take(most)
        return [each for each in taken if each[0].name != DELAYED_TOPIC]

    def pass_committed(self) -> None:
        """As `take_committed` of all there is, for nobody."""
        if self._uncommitted is not None:
            self._uncommitted.shown = self.log.committed

    def take_synced(self) -> dict[Link, int]:
        """Up to which link number publishers are to be told that all is on the disk."""
        return {} if self._sync_gate is None else self._sync_gate.release()

    @property
    def disk_full(self) -> str:
        """Why nothing is accepted for want of room on the disk; empty: there is room."""
        if self._uncommitted is None or self.disk.retired:
            return ""
        return self._uncommitted.why_full

    @property
    def unread(self) -> str:
        """What readers and groups do not get of a log on the disk, in words; empty: nothing."""
        if self._late is None:
            return ""
        reads, groups = self.fetches.reads, self.consumers.groups
        lost = reads.lost + sum(group.reads.lost for group in groups)
        damaged = self._late.unreadable
        texts = [
            "its disk does not give what is asked for: look at it, and at how many files are open"
        ] * (reads.refuses(self._now) or any(group.refuses for group in groups))
        if lost:
            texts.append(f"{lost} times it has given nothing for long, and that counts as lost")
        if damaged:
            texts.append(f"{damaged} entries are damaged or not there (`roq log verify`)")
        return "; ".join(texts)

    @property
    def groups_digest(self) -> bytes:
        """Which consumer groups are here, if what they have done leaves the log; else empty."""
        if self._done_files is None:
            return b""
        return groups_digest(group.name for group in self.consumers.groups)

    @property
    def group_names(self) -> list[str] | None:
        """Their names, if the monitor is to find out why they are not the same everywhere."""
        groups = self.consumers.groups
        if self._done_files is None or self._done_files.same or len(groups) > GROUP_NAMES_MAX:
            return None
        return sorted(group.name for group in groups)

    @property
    def held(self) -> str:
        """What lets nothing go of the log that groups have done, once that has lasted."""
        return "" if self._done_files is None else self._done_files.held

    def same_groups(self, now: float, *, same: bool) -> None:
        """The monitor says whether all exchanges of the queue have the groups that are here."""
        if self._done_files is not None:
            self._done_files.same_groups(now, same=same)

    @property
    def retired(self) -> bool:
        """Whether nothing more is accepted, as the monitor wants, and nothing more is committed."""
        return self.disk.retired and self.log.committed >= self.log.end

    @property
    def all_shown(self) -> bool:
        """Whether everything that is committed was given out to be published."""
        return self._uncommitted is None or self._uncommitted.shown >= self.log.committed

    def answer_next(self, now: float) -> list[Effect]:
        """Answer the reader, or newcomer, whose turn it is; only when `requests` is not empty.

        Raises:
            NotAtHand: the log is not patient, and something has to be read first: ask again then.
                Only where `asks_the_log`.
        """
        self._now = now
        self.consumers.begin(now)
        request = self.requests.take()
        if request.letter == HELLO:
            return self._welcome(request.route, request.document)
        if self.consumers.serves(request.letter):
            return self.consumers.handle(request)
        if self.delayed.serves(request.letter):
            return self.delayed.handle(request)
        try:
            effects = self._readers.handle(request)
        except NotAtHand:
            self.requests.put_back(request)
            raise
        if request.letter == POSITION:
            self.intake.look()
        return effects

    @property
    def asks_the_log(self) -> bool:
        """Whether the next request is a question that may be asked again if it has to wait."""
        return bool(self.requests) and self.requests.next.letter in {FIND, HEADS, POSITION, SEEK}

    def next_deadline(self) -> float:
        """When a Tick is due, or something else is to be done in a turn."""
        due = self.due
        return self._next_end if due is None else min(self._next_end, due)

    @property
    def due(self) -> float | None:
        """When something is to be done before the next Tick; None: nothing is."""
        times = self.delayed.deadline, self.consumers.order_questions.deadline
        return min((at for at in times if at is not None), default=None)

    def present(self) -> list[Link]:
        """The publishers that are connected."""
        return [link for link in self.links if link.route is not None]

    def totals(self) -> tuple[int, int, int]:
        """Messages, payload bytes and batches of all publishers since the start."""
        links = list(self.links)
        return (
            self.counters.messages + sum(link.messages for link in links),
            self.counters.bytes + sum(link.payload_bytes for link in links),
            self.log.end - self._batches_before - self.counters.own_entries,
        )

    def check(self) -> None:
        """Assert the invariants; called after every event in tests and simulation only."""
        self.log.check()
        self.links.check()
        self.streams.check()
        self.fetches.check()
        self.backpressure.check()
        self.backlogs.check()
        self.requests.check()
        self.intake.check()
        self.consumers.check()
        self.delayed.check()
        self.stays.check()

    def _accept(self, route: bytes, topic: bytes, batch: B, size: int) -> None:
        """As `Intake.append`, for a log that commits late: nothing is published yet."""
        self.intake.append(route, topic, batch, size)

    def _received(self, route: bytes, frames: tuple[bytes, ...]) -> list[Effect]:
        letter = frames[0]
        if len(frames) == 2:
            if letter == HELLO:
                return self._hello(route, frames[1])
            if letter == CLAIM:
                return self._publishers.claim(route, frames[1], self._now)
            if letter == BYE:
                self.requests.drop(route)
                return self._publishers.bye(route, frames[1], self._now)
            kind, tag = letter[:2], letter[2:]
            if len(tag) in _TAG_SIZES:
                if self.consumers.hears(kind):
                    return self.consumers.hear(route, kind, tag, frames[1])
                if any(each.serves(kind) for each in (self._readers, self.consumers, self.delayed)):
                    return self._queue(Request(route, kind, frames[1], tag))
        self.counters.malformed += 1
        return [refusal(route, "invalid_request", f"unknown message {letter[:8]!r}")]

    def _hello(self, route: bytes, document: bytes) -> list[Effect]:
        """Answer it now, if there is time for it in this turn or no other place to wait."""
        if self._hello_bytes <= 0 and self.requests.add(Request(route, HELLO, document)):
            return []
        self._hello_bytes -= max(HELLO_BYTES_MIN, len(document))
        return self._welcome(route, document)

    def _welcome(self, route: bytes, document: bytes) -> list[Effect]:
        self.intake.welcome(route)
        effects = self._publishers.hello(route, document, self._now)
        if self._uncommitted is None:
            return effects
        # Markers and fences are published when they are committed, as everything else.
        return [each for each in effects if not isinstance(each, Publish)]

    def _queue(self, request: Request) -> list[Effect]:
        if (size := len(request.document)) > REQUEST_BYTES_MAX:
            self.counters.malformed += 1
            text = f"a request has {REQUEST_BYTES_MAX:,} bytes at most, and this one {size:,}"
            return [tagged(refusal(request.route, "malformed", text), request)]
        if self.requests.add(request):
            return []
        self.counters.refused_requests += 1
        return [
            tagged(
                refusal(request.route, "full", "too many requests wait here; try again"), request
            )
        ]

    def _unreachable(self, route: bytes) -> list[Effect]:
        link = self.links.routes.get(route)
        if link is not None:
            self._publishers.disconnect(link)
        self.fetches.cancel(route)
        self.requests.drop(route)
        self.consumers.gone(route)
        self.delayed.gone(route)
        return []

    def _subscribed(self, prefix: bytes) -> list[Effect]:
        if not self.subscriptions.add(prefix):
            self.counters.bad_subscriptions += 1
        return [self._end(EntryKind.PRESENCE, prefix)] if is_presence(prefix) else []

    def _end(self, kind: EntryKind, topic: bytes) -> Publish:
        log = self.log
        end = log.committed if self._uncommitted is None else self._uncommitted.shown
        frame = pack_entry(
            kind, self.number, self.queue, log.generation, end, log.floor, log.time_us
        )
        return Publish((topic, frame))

    def _used(self) -> list[Effect]:
        self._used_at = self._now
        if not self.idle:
            return []
        self.idle = False
        self._next_end = self._now
        return [Woken()]

    def _tick(self) -> list[Effect]:
        if self._now < self._next_end:
            return []
        if self.links.routes or self.subscriptions.subscribers or self.consumers:
            self._used_at = self._now
            self._next_end = self._now + END_SECONDS
        else:
            self._used_at = self._now if self._used_at is None else self._used_at
            self.idle = self._now - self._used_at >= IDLE_AFTER_SECONDS
            self._next_end = self._now + (IDLE_SECONDS if self.idle else DESERTED_SECONDS)
        self.intake.probe()
        self._publishers.expire(self._now)
        self.consumers.tick()
        if self._done_files is not None:
            self._done_files.look(self._now)
        self.intake.look_who_waits()
        self.backpressure.tick(self._now)
        self.intake.look()
        return [self._end(EntryKind.END, END_TOPIC), *self.intake.tell_held()]
