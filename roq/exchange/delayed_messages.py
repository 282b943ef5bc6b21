"""Delayed messages of one exchange: taken in, kept out of sight, published when they are due. Pure.

    batch under `DELAYED_TOPIC` in the log -> pending -> due: batch of the exchange in the log

What waits stands in the log itself, as the batch that its publisher has sent; here is only where it
lies and when it is due (`roq.log.timing_wheel`), which is written down in each snapshot. When
messages are due the exchange publishes them under their topic, as a publisher whose id belongs to
this process, and the same record says which ones they were: so one that is in the log was published
and waits no more, and after a crash neither is known without the other. In the same way one that is
cancelled stands in the log.

A late log keeps the segments in which something waits; when it wants one to leave, what waits there
is appended again. Where nothing outlives the process, what waits is kept here, and is bounded.

Half messages of transactions are kept likewise, as messages that are never due by themselves; what
becomes of them decides `roq.exchange.transactions`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final, Generic, TypeVar

from roq.errors import RemoteProtocolError
from roq.exchange.backpressure import Backpressure
from roq.exchange.commit import NO_PIN, LateLog, OwedAnswers, left_since
from roq.exchange.counters import Counters
from roq.exchange.delayed_message import (
    NOTHING,
    ROOM,
    KeptMessage,
    Outgoing,
    Wanted,
    crowded,
    in_batches,
    messages_of,
    published,
    row_of,
    settled_by,
    waiting,
)
from roq.exchange.disk_room import DiskRoom
from roq.exchange.events import Effect, Publish, Send
from roq.exchange.own_batches import OwnBatches
from roq.exchange.readers import RefusedRequest, answer_or_refuse, check_queue
from roq.exchange.requests import Request
from roq.exchange.transactions import COMMITTED_MAX, NotNow, TransactionTable
from roq.log.log import Log
from roq.log.steady_clock import SteadyClock
from roq.log.streams import StreamTable
from roq.log.timing_wheel import Row, TimingWheel
from roq.model import Limits
from roq.protocol import documents
from roq.protocol.delayed import (
    CANCEL_DELAYED,
    DELAY_SECONDS_MAX,
    DELAYED,
    DELAYED_TOPIC,
    CancelDelayed,
    CancelledDelayed,
    DelayedList,
    DelayedRequest,
    Place,
    pack_settled,
)
from roq.protocol.transaction import OPEN_US, pack_ended

B = TypeVar("B")

PENDING_MAX: Final = 1_000_000
"""Delayed messages that wait at one exchange; each takes 32 bytes in memory and in each snapshot of
the log, which must stay well below a segment."""
MEMORY_PARTS: Final = 4
"""Of a log in memory: what waits takes so large a part of its capacity beside it at most."""
DISK_PARTS: Final = 2
"""Likewise of a log on disk, in it."""
NEAR_US: Final = 3_000_000
"""What is due within this is read, and stands in memory,"""
NEAR_BYTES: Final = 64 * 1024 * 1024
"""as far as there is room for it; the rest a little later."""
LOAD_BATCHES: Final = 64
"""Batches that are read in one turn."""
TURN_MESSAGES: Final = 500
TURN_BYTES: Final = 256 * 1024
"""What is published in one turn."""
UNSYNCED_MAX: Final = 20_000
"""With so many entries on their way to the disk nothing more is published."""
RETRY_US: Final = 1_000_000
"""A message for whose topic there is no room is tried again after so long."""
UNREAD_US: Final = 10_000_000
"""What the disk did not give is read again after so long."""
HELD_SECONDS: Final = 0.1
"""While a slow reader leaves no room for what is due, so long is waited between two looks."""
FULL_SECONDS: Final = 0.05
"""Between looks whether the disk has caught up."""
COPIES_MAX: Final = 2_000
COPIES_BYTES: Final = 1024 * 1024
"""What is appended again in one turn."""
NEVER: Final = float("inf")
_place: Final = attrgetter("place")
_DUE_SLACK_US: Final = 24 * 3_600 * 1_000_000
"""So far beyond the bound a publisher's clock may be."""


class DelayedMessages(Generic[B]):
    """What waits at one exchange.

    Args:
        queue, limits: id of the queue, and what it allows.
        number, streams, counters, disk, backpressure: of the exchange.
        epoch: of this process; no other one that has written to this log had it.
        log: where everything is appended.
        late: the log, if it commits later than it accepts.

    Attributes:
        clock: by which messages become due.
        published, cancelled, refused, lost: messages since the start; lost is what the disk has
            not kept.
        wanted: what of it is published.
        unread: batches that are damaged behind the snapshot that it went on with: what was delayed
            in them is lost, and what they say to be published comes again.
    """

    def __init__(
        self,
        queue: bytes,
        number: int,
        epoch: int,
        limits: Limits,
        log: Log[B | bytes],
        streams: StreamTable,
        counters: Counters,
        disk: DiskRoom,
        backpressure: Backpressure[B | bytes],
        late: LateLog[B | bytes] | None = None,
    ) -> None:
        self.clock = SteadyClock()
        self.published = self.cancelled = self.refused = self.lost = self.unread = 0
        self._queue, self._limits, self._log, self._late = queue, limits, log, late
        self._counters, self._disk, self._backpressure = counters, disk, backpressure
        self._own = OwnBatches(queue, number, epoch, log, streams, counters)
        self.publisher = self._own.publisher
        self._bytes_max = (
            limits.ring_bytes // MEMORY_PARTS if late is None else limits.log_bytes // DISK_PARTS
        )
        self._pending = TimingWheel()
        self._now, self._near_bytes = 0.0, 0
        self._heap: list[tuple[int, Place]] = []
        """What is near and was read, by when it is to be published."""
        self._near: dict[Place, tuple[Row, KeptMessage]] = {}
        self._near_ids: dict[bytes, Row] = {}
        self._loading: OrderedDict[Place, Row] = OrderedDict()
        """What is near and is to be read, in order of its place."""
        self._kept: dict[Place, KeptMessage] = {}
        """Of a log in memory: what is not near."""
        self._taken: list[KeptMessage] = []
        """Of the batch that was looked at last."""
        self._owed = OwedAnswers(log)
        self._pin: tuple[int, int] | None = None
        """When the log is synced so far, nothing below the other offset waits."""
        self._clear_below = 0
        """Nothing waits below it, as was found by looking at each."""
        self._read_at = self._copy_at = 0.0
        """Nothing is read before: the disk has just refused that."""
        self._copying = self._more = False
        """Whether there may be more that is to be appended again, and that is near."""
        self._publish_at = 0.0
        """Nothing is published before: a slow reader leaves no room for it."""
        self.wanted = Wanted()
        self.transactions = TransactionTable(queue, self._half, self._settle, self._owed, log)
        self._handlers: Final[dict[bytes, Callable[[Request], list[Effect]]]] = {
            DELAYED: self._list,
            CANCEL_DELAYED: self._cancel,
            **self.transactions.handlers,
        }

    def __len__(self) -> int:
        """Messages that wait for their time."""
        return self._pending.count - len(self.transactions)

    def begin(self, now: float, time_us: int) -> None:
        """What follows happens at this time: monotonic seconds, and the wall clock in µs UTC."""
        self._now = self.transactions.now = now
        self.clock.look(now, time_us)

    # --- taking in --------------------------------------------------------------------------------

    def why_not(self, batch: B | bytes) -> tuple[str, str] | None:
        """Why a batch of delayed messages is refused: code and sentence; None: it is not.

        If it is appended, `accept` is to be called next.
        """
        self._taken = []
        try:
            taken = messages_of(batch)
        except RemoteProtocolError as error:
            self._counters.malformed += 1
            return "malformed", str(error)
        latest = self.clock.now_us + DELAY_SECONDS_MAX * 1_000_000 + _DUE_SLACK_US
        halves = [each.message.id for each in taken if each.message.due_us == OPEN_US]
        if any(latest < each.message.due_us < OPEN_US for each in taken):
            self.refused += len(taken)
            return "invalid_request", (
                f"a message is delayed by {DELAY_SECONDS_MAX // 86_400} days at most"
            )
        if any(map(crowded, taken)):
            self.refused += len(taken)
            return "invalid_request", f"a message that is kept has {ROOM} properties at most"
        size = sum(each.bytes for each in taken)
        pending = self._pending
        if pending.count + len(taken) > PENDING_MAX or pending.bytes + size > self._bytes_max:
            self.refused += len(taken)
            return "full", (
                f"{pending.count:,} delayed messages of {pending.bytes:,} bytes wait at this "
                f"exchange, which keeps {PENDING_MAX:,} of {self._bytes_max:,} bytes at most: "
                "publish it later, or with another queue"
            )
        if halves and (refused := self.transactions.why_not(halves)) is not None:
            self.refused += len(taken)
            return refused
        self._taken = taken
        return None

    def accept(self, offset: int) -> None:
        """The batch that `why_not` let pass is in the log, at this offset."""
        taken, self._taken = self._taken, []
        self._keep(taken, offset)
        for index, held in enumerate(taken):
            if held.message.due_us == OPEN_US:
                self.transactions.opened(row_of(held, offset, index), held)

    def _keep(self, messages: list[KeptMessage], offset: int) -> None:
        """These are in the log, as the batch at this offset."""
        for index, held in enumerate(messages):
            self._add(row_of(held, offset, index), held)
        if self._late is not None:
            self._late.pinned_from = min(self._late.pinned_from, offset)
            if self._pin is not None:
                self._pin = self._pin[0], min(self._pin[1], offset)

    def _add(self, row: Row, held: KeptMessage | None) -> None:
        now_us, room = self.clock.now_us, self._near_bytes < NEAR_BYTES
        if held is not None and row.due_us < now_us + NEAR_US and (room or self._late is None):
            self._pending.note(row)
            self._hold(row, held)
            return
        self._pending.add(row, now_us)
        if held is not None and self._late is None:
            self._kept[row.place] = held

    def _hold(self, row: Row, held: KeptMessage, due_us: int = 0) -> None:
        self._near[row.place] = row, held
        self._near_ids[row.id] = row
        self._near_bytes += held.bytes
        heappush(self._heap, (due_us or held.message.due_us, row.place))

    # --- what outlives the process ----------------------------------------------------------------

    def snapshot(self) -> bytes:
        """What waits, for `recover`; only of a late log."""
        return self._pending.pack(self._given_out())

    def recover(self, snapshot: bytes, since: int, ended: bytes = b"") -> None:
        """Go on with what waited in an earlier process.

        Args:
            snapshot: what `snapshot` gave; empty: there is none.
            since: where the log ended at that time.
            ended: what `transactions.snapshot` gave.

        Raises:
            RemoteProtocolError: it cannot be read, or the log holds what is no batch.
            LogRefused: the log cannot be read at the moment.
        """
        self._pending.unpack(snapshot, self.clock.now_us)
        self.transactions.recover(ended)
        settled: set[Place] = set()
        for offset, record in left_since(self._log, since):
            if record is None:
                self.unread += 1
                continue
            topic, _, batch, _ = record
            places, ends = settled_by(batch)
            settled.update(places)
            self.transactions.were_ended(ends)
            if topic.name == DELAYED_TOPIC:
                for index, held in enumerate(messages_of(batch)):
                    self._pending.add(row_of(held, offset, index), self.clock.now_us)
        if settled:
            self._pending.settle(settled)
        self.transactions.recovered(row for row in self._pending if row.due_us == OPEN_US)
        if self._late is not None and self._pending.oldest is not None:
            self._late.pinned_from = self._pending.oldest

    # --- publishing -------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When `run` has something to do, monotonic seconds; None: nothing soon."""
        times = self._own_deadline(), self.transactions.deadline
        return min((each for each in times if each is not None), default=None)

    def _own_deadline(self) -> float | None:
        if not (self._heap or self._loading or self._more or self._copying):
            return None
        if not self._has_room():
            return self._now + FULL_SECONDS
        due = max(self._now + FULL_SECONDS, self._copy_at) if self._copying else NEVER
        if (self._loading or self._more) and self._near_bytes < NEAR_BYTES:
            due = max(self._now, self._read_at)
        if self._heap:
            ahead_us = max(0, self._heap[0][0] - self.clock.now_us)
            due = min(due, max(self._now + ahead_us / 1_000_000, self._publish_at))
        return None if due == NEVER else due

    def run(self) -> list[Effect]:
        """Publish what is due, some of it; and what is to be told by now."""
        effects = self.transactions.run()
        self._copying = False
        if self._pending.count or (self._late is not None and self._late.pinned_from < NO_PIN):
            self._look_at_pin()
            if self._has_room():
                self._copy()
                self._load()
                effects += self._publish_due()
        return effects + self._owed.take()

    def _has_room(self) -> bool:
        if (late := self._late) is None:
            return True
        few = late.end - late.synced < UNSYNCED_MAX
        return few and self._disk.takes_own(late.unsynced_bytes + TURN_BYTES)

    def _load(self) -> None:
        """Read some of what is near."""
        if self._near_bytes >= NEAR_BYTES or self._now < self._read_at:
            return
        if not self._loading:
            rows = self._pending.advance(self.clock.now_us + NEAR_US)
            self._more = bool(rows)
            self._loading.update((row.place, row) for row in sorted(rows, key=_place))
        messages: list[KeptMessage] | None = []
        batches, read = 0, -1
        while self._loading and self._near_bytes < NEAR_BYTES:
            place, row = next(iter(self._loading.items()))
            kept = self._kept.pop(place, None)
            if kept is None and row.offset != read:
                batches += 1
                if batches > LOAD_BATCHES:
                    return
                read, messages = row.offset, self._read(row.offset)
            if kept is None:
                if messages is None:
                    self._put_off(row.offset)
                    return
                kept = messages[row.at] if row.at < len(messages) else None
            del self._loading[place]
            if kept is None:
                self._pending.forget(row)
                self.lost += 1
            else:
                self._hold(row, kept)

    def _put_off(self, offset: int) -> None:
        """The disk does not give this batch: it is read again later, and others meanwhile."""
        self._read_at = self._now + FULL_SECONDS
        again_us = self.clock.now_us + NEAR_US + UNREAD_US
        for row in [row for row in self._loading.values() if row.offset == offset]:
            del self._loading[row.place]
            self._pending.forget(row)
            self._pending.add(row._replace(due_us=again_us), self.clock.now_us)

    def _read(self, offset: int) -> list[KeptMessage] | None:
        """The messages of a batch; none, if it is lost; None: the disk does not give it now."""
        record = self._log.record(offset)
        if record is None and not self._log.is_lost(offset):
            return None
        with suppress(RemoteProtocolError):
            return [] if record is None else messages_of(record[2])
        return []

    def _read_all(self, rows: list[Row]) -> tuple[list[tuple[Row, KeptMessage]], list[Row]]:
        """The messages that the disk gives, and the rows of the others; what is lost is gone."""
        found: list[tuple[Row, KeptMessage]] = []
        back, read = list[Row](), -1
        messages: list[KeptMessage] | None = None
        for row in sorted(rows, key=_place):
            if row.offset != read and not back:
                read, messages = row.offset, self._read(row.offset)
            if back or messages is None:
                back.append(row)
            elif row.at < len(messages):
                found.append((row, messages[row.at]))
            else:
                self._pending.forget(row)
                self.lost += 1
                if row.due_us == OPEN_US:
                    self.transactions.lost(row)
        return found, back

    def _publish_due(self) -> list[Effect]:
        heap, now_us, taken, size = self._heap, self.clock.now_us, 0, 0
        by_topic: dict[bytes, list[tuple[Row, KeptMessage]]] = {}
        if self._now < self._publish_at:
            return []
        while heap and heap[0][0] <= now_us and taken < TURN_MESSAGES and size < TURN_BYTES:
            found = self._near.pop(heappop(heap)[1], None)
            if found is None:
                continue  # it was cancelled
            self._near_bytes -= found[1].bytes
            self._near_ids.pop(found[0].id, None)
            by_topic.setdefault(self.wanted.topic_of(*found), []).append(found)
            taken += 1
            size += found[1].bytes
        return [
            effect
            for topic, found_here in by_topic.items()
            for part in in_batches(found_here, self._limits)
            for effect in self._publish(topic, part)
        ]

    def _publish(self, topic: bytes, part: list[tuple[Row, KeptMessage]]) -> list[Effect]:
        """Append these as one batch of the exchange's own, if there is room for it."""
        size = sum(held.bytes for _, held in part)
        if self._now < self._publish_at or not self._backpressure.room(size):
            self._publish_at = self._now + HELD_SECONDS
            for each in part:
                self._hold(*each)
            return []
        messages = NOTHING if topic == DELAYED_TOPIC else published(held for _, held in part)
        appended = self._append(topic, messages, [row.place for row, _ in part])
        if appended is None:
            again_us = self.clock.now_us + RETRY_US
            for each in part:
                self._hold(*each, again_us)
            return []
        for row, _ in part:
            self._pending.forget(row)
        if topic == DELAYED_TOPIC:
            self.cancelled += self.wanted.left(part)
            return []
        self.published += len(part)
        return [] if self._late is not None else [Publish(appended)]

    def publish(self, topic: bytes, messages: Outgoing) -> list[Effect] | None:
        """Append this as what is due; None: there is no room."""
        if not self._has_room() or (appended := self._append(topic, messages, [])) is None:
            return None
        return [Publish(appended)] if self._late is None else []

    def _append(
        self, topic: bytes, messages: Outgoing, settles: list[Place], ended: bytes = b""
    ) -> tuple[bytes, bytes, bytes] | None:
        """Append a batch of the exchange's own; None: there is no room for its topic."""
        return self._own.append(topic, messages, ended + pack_settled(settles), self.clock.now_us)

    # --- the log below ----------------------------------------------------------------------------

    def _look_at_pin(self) -> None:
        """Have the log keep what waits, and no more."""
        if (late := self._late) is None:
            return
        if self._pin is not None and late.synced >= self._pin[0]:
            late.pinned_from, self._pin = self._pin[1], None
        oldest = self._pending.oldest
        lowest = NO_PIN if oldest is None else max(oldest, self._clear_below)
        if self._pin is None and late.pinned_from < lowest:
            self._pin = late.end, lowest

    def _copy(self) -> None:
        """Append again what waits in the segment that is to leave, some of it."""
        late = self._late
        if late is None or late.pressed_below <= max(self._clear_below, late.pinned_from):
            return
        self._copying = True
        if self._now < self._copy_at:
            return
        has = self.transactions.has
        rows = self._pending.below(late.pressed_below, COPIES_MAX, COPIES_BYTES)
        self._copying = rows is not None
        if rows is None:
            if all(row.offset >= late.pressed_below for row in self._given_out()):
                self._clear_below = late.pressed_below
            return
        topic_of, (found, back) = self.wanted.topic_of, self._read_all(rows)
        for part in in_batches(found, self._limits):
            offset, places = late.end, [row.place for row, _ in part]
            leaves = [each for each in part if topic_of(*each) == DELAYED_TOPIC]
            wanted = [
                held for row, held in {row.place: (row, held) for row, held in part}.values()
                if topic_of(row, held) != DELAYED_TOPIC and (row.due_us < OPEN_US or has(row))
            ]  # fmt: skip
            again = waiting(wanted) if wanted else NOTHING
            if self._append(DELAYED_TOPIC, again, places) is None:
                back += (row for row, _ in part)
                continue
            for row, _ in part:
                self._pending.forget(row)
            self.cancelled += self.wanted.left(leaves)
            for index, held in enumerate(wanted):
                moved = row_of(held, offset, index)
                self._pending.add(moved, self.clock.now_us)
                if moved.due_us == OPEN_US:
                    self.transactions.moved(moved)
        for row in back:
            self._pending.put_back(row, self.clock.now_us)
            self._copy_at = self._now + UNREAD_US / 1_000_000

    # --- what is asked ----------------------------------------------------------------------------

    def gone(self, route: bytes) -> None:
        """Nothing is owed to this reader any more: it is not there."""
        self._owed.gone(route)
        self.transactions.gone(route)

    def serves(self, letter: bytes) -> bool:
        """Whether this first frame is a request about delayed messages."""
        return letter in self._handlers

    def handle(self, request: Request) -> list[Effect]:
        """Answer one request."""
        return answer_or_refuse(request, self._handlers[request.letter], self._counters)

    def _list(self, asked: Request) -> list[Effect]:
        request = documents.decode(asked.document, DelayedRequest)
        check_queue(request.queue, self._queue)
        rows = self._pending.soonest(request.most, self._given_out())
        answer = DelayedList(
            id=request.id, generation=self._log.generation, pending=len(self),
            size=self._pending.bytes,
            messages=[(row.id, row.due_us) for row in rows if row.due_us < OPEN_US],
        )  # fmt: skip
        return [Send(asked.route, (DELAYED + asked.reader, documents.encode(answer)))]

    def _cancel(self, asked: Request) -> list[Effect]:
        request = documents.decode(asked.document, CancelDelayed)
        check_queue(request.queue, self._queue)
        self._owed.check_room()
        waits = self._find(request.message) is not None
        if waits and not self.withdraw(request.message):
            raise RefusedRequest("full", "this exchange has no room for it; try again")
        answer = CancelledDelayed(id=request.id, generation=self._log.generation, found=waits)
        told = Send(asked.route, (CANCEL_DELAYED + asked.reader, documents.encode(answer)))
        if not waits and not self._owed:
            return [told]
        # Of what is not found the cancellation may be one of those that are not kept yet.
        self._owed.add(told)
        return []

    def request(self, message: bytes) -> int | None:
        """Where the request with this id waits: the offset of its batch; None: it does not."""
        return self._pending.request(message)

    def withdraw(self, message: bytes) -> bool:
        """It is not to be published; False: it does not wait, or there is no room to say so."""
        if (row := self._find(message)) is None or not self._has_room():
            return False
        kept = self._append(DELAYED_TOPIC, NOTHING, [row.place]) is not None
        if kept:
            self._drop(row)
        return kept

    def _find(self, message: bytes) -> Row | None:
        loading = (row for row in self._loading.values() if row.id == message)
        found = self._near_ids.get(message) or next(loading, None) or self._pending.find(message)
        return None if found is None or found.due_us == OPEN_US else found

    def _half(self, row: Row) -> KeptMessage | None:
        """A half message; None: it is lost. Raises `NotNow`: the disk does not give it now."""
        if (held := self._kept.get(row.place)) is not None:
            return held
        if (messages := self._read(row.offset)) is None:
            raise NotNow
        if row.at < len(messages):
            return messages[row.at]
        self._pending.remove(row)
        self.lost += 1
        self.transactions.lost(row)
        return None

    def _settle(self, row: Row, due: list[KeptMessage], committed: bool) -> None:
        """One record ends a transaction, with what is due by it. Raises `NotNow`: no room."""
        room = self._late is not None or self._backpressure.room(sum(each.bytes for each in due))
        full = self._pending.count + len(due) > PENDING_MAX + COMMITTED_MAX
        if full or not (room and self._has_room()):
            raise NotNow
        offset, ended = self._log.end, pack_ended([(row.id, committed)])
        packed = waiting(due) if due else NOTHING
        if self._append(DELAYED_TOPIC, packed, [row.place], ended) is None:
            raise NotNow
        self._pending.remove(row)
        self._kept.pop(row.place, None)
        if due:
            self._keep(due, offset)

    def _drop(self, row: Row) -> None:
        place = row.place
        near = self._near.pop(place, None)
        self._near_bytes -= 0 if near is None else near[1].bytes
        self._near_ids.pop(row.id, None)
        given_out = near is not None or self._loading.pop(place, None) is not None
        (self._pending.forget if given_out else self._pending.remove)(row)
        self._kept.pop(place, None)
        self.cancelled += 1

    def _given_out(self) -> Iterable[Row]:
        return [*(row for row, _ in self._near.values()), *self._loading.values()]

    def check(self) -> None:
        """Assert the invariants."""
        self._pending.check()
        waiting = sum(1 for _ in self._pending) + len(self._near) + len(self._loading)
        most = PENDING_MAX + COMMITTED_MAX + TURN_MESSAGES
        assert waiting == self._pending.count <= most  # noqa: S101
        self.transactions.check()
        assert self._near_bytes == sum(held.bytes for _, held in self._near.values())  # noqa: S101
