"""One order out of several logs: per (publisher, topic), by sequence: pure.

Below the expected sequence is a duplicate (a replay after a move); above it waits, until what is
missing has come or is lost (`roq.client.subscribe.losses`). Memory is bounded: of what waits too
far from its turn only the place in the log is kept, and it is fetched again when its turn comes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from roq.client.subscribe.losses import LossRules
from roq.client.subscribe.recalls import Recall, Recalls
from roq.client.subscribe.stream import BOUNDS, LOST, Held, Stream, hold, missed
from roq.client.subscribe.streams import STREAMS_MAX, Streams
from roq.errors import RemoteProtocolError
from roq.model import LogId, PublisherId
from roq.number_ranges import saturated
from roq.protocol.attributes import BatchAttributes
from roq.protocol.batch import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    Header,
    Kind,
    read_body,
    read_header,
    unpack_body,
)
from roq.protocol.version import WIRE_VERSION
from roq.read.message import MICROSECONDS, Batch, Gap
from roq.timing import AWAY_SECONDS

HELD_BYTES_MAX: Final = 64 * 1024 * 1024
RECALL_AHEAD: Final = 16

_DATA: Final = int(Kind.DATA)
_unpack = HEADER.unpack_from


@dataclass(slots=True)
class Counts:
    """What has happened since the start, in messages unless the name says otherwise."""

    delivered: int = 0
    duplicates: int = 0
    """Batches below the expected sequence: replays."""
    before_start: int = 0
    void: int = 0
    lost: int = 0
    corrupt: int = 0
    """Batches whose checksum or body is wrong; their messages are in `lost`."""
    stubbed: int = 0
    """Batches that were put aside for want of memory."""
    streams_forgotten: int = 0


class Resequencer:
    """All streams that one subscriber sees.

    Args:
        now: the subscriber's own start.
        elapsed: seconds since then by a clock that never stops, unlike that of `now`.
        held_bytes_max: memory for what waits for its turn.
        streams_max: streams that are remembered.
        check_duplicates: off only in tests that prove what it is good for.
        early: what was there before the start is wanted, too.
        away_seconds: see `LossRules`.

    Attributes:
        out: batches in order; the subscriber's machine takes them away.
        gaps: what was lost; taken away likewise.
        recalls: what is to be fetched again; taken away likewise.
    """

    def __init__(
        self,
        now: float,
        *,
        elapsed: Callable[[], float] | None = None,
        held_bytes_max: int = HELD_BYTES_MAX,
        streams_max: int = STREAMS_MAX,
        check_duplicates: bool = True,
        early: bool = False,
        away_seconds: float = AWAY_SECONDS,
    ) -> None:
        self.out: list[Batch] = []
        self.gaps: list[Gap] = []
        self.recalls: list[Recall] = []
        self.counts = Counts()
        self.held_bytes = 0
        self._started = now
        self._elapsed = elapsed
        self._held_bytes_max = held_bytes_max
        self._check_duplicates = check_duplicates
        self._early = early
        self._memory = Streams(streams_max)
        self._streams = self._memory.known
        self._waiting: dict[bytes, Stream] = {}
        self._recall_queue = Recalls()
        self._rules = LossRules(away_seconds)
        self._shed_to = held_bytes_max * 3 // 4
        self._shed_all = False
        self._given_up_at: dict[LogId, float] = {}
        self._left: set[LogId] = set()
        """Exchanges that are gone: what waits and is theirs cannot be fetched again."""
        self._tables_complete = False

    # --- in ---------------------------------------------------------------------------------------

    def start(
        self, source: LogId, streams: Iterable[tuple[bytes, bytes, int]], *, latest: bool
    ) -> None:
        """Take a page of streams that one exchange knew at the start.

        Args:
            source: the exchange.
            streams: publisher, topic, next sequence.
            latest: what is below the next sequence is not wanted; else it is, as far as it exists.
        """
        for publisher, topic, following in streams:
            if len(publisher) != 16:
                continue
            stream = self._stream(publisher + topic, PublisherId(publisher), topic)
            if stream.begun:
                continue
            stream.before = max(stream.before, following)
            stream.holders |= {source}
            if latest and following > stream.expected:
                stream.expected = stream.origin = following
                self._advance(publisher + topic, stream)

    def tables_complete(self, now: float) -> None:
        """All exchanges of the start have told their streams; what is missing is looked for now."""
        self._tables_complete = True
        self._rules.read_again(now)
        for key, stream in list(self._waiting.items()):
            self._begin(stream, stream.held[0])
            self._advance(key, stream)

    def add(self, source: LogId, topic: bytes, offset: int, batch: bytes, now: float) -> None:
        """Take a batch that one exchange's log holds. The hot path."""
        if len(batch) < HEADER_BYTES:
            self._unreadable(topic, f"{len(batch)} bytes are no batch")
            return
        (
            magic, version, kind, codec, _, ext_bytes, count, checksum,
            publisher, _, _, first, created_us,
        ) = _unpack(batch)  # fmt: skip
        stream = self._streams.get(publisher + topic)
        if (
            stream is None
            or stream.expected != first
            or stream.held
            or kind != _DATA
            or codec
            or magic != MAGIC
            or version != WIRE_VERSION
        ):
            self._add_other(source, topic, offset, batch, now)
            return
        try:
            payloads, packed = unpack_body(batch, ext_bytes, checksum, count)
        except RemoteProtocolError:
            self._add_other(source, topic, offset, batch, now)
            return
        attributes = None if packed is None else BatchAttributes(packed, first, count)
        self.out.append(  # first: `recount` mends the rest if this is interrupted
            Batch(
                payloads, stream.topic, stream.publisher, first, created_us, len(batch), attributes
            )
        )
        stream.begun = True
        stream.expected = first + count
        self.counts.delivered = stream.used = self.counts.delivered + count

    def gone(self, source: LogId, topic: bytes, offset: int) -> None:
        """A batch that was to be fetched again has left the log."""
        key = self._recall_queue.done(source, topic, offset)
        stream = self._waiting.get(key) if key is not None else None
        if key is None or stream is None:
            self._grant()
            return
        for held in stream.held:
            if held.data is None and (held.source, held.offset) == (source, offset):
                held.not_there()
        self._advance(key, stream)
        self._grant()

    def source_gone(self, source: LogId, now: float) -> None:
        """An exchange has left the topology, and with it what was to be fetched from it again."""
        self._rules.replaying(now)
        if not self._waiting:
            self._given_up_at.clear()
            self._left.clear()
        self._given_up_at[source] = now
        self._left.add(source)

    @property
    def doubtful(self) -> bool:
        """Whether `settle` could decide more if it knew that the topology is still the one."""
        return self._rules.doubtful

    def topology_known(self, now: float, *, durable: bool) -> None:
        """The exchanges are known as of now; `durable`: their logs outlive them."""
        self._rules.topology_known(now)
        self._rules.durable = durable

    @property
    def crowded(self) -> bool:
        """Whether the places alone of what waits take most of the memory for it."""
        self._shed_all &= self.held_bytes > self._shed_to // 2
        return self._shed_all

    def source_missing(self, source: LogId, now: float) -> None:
        """What is to be fetched again is at an exchange that has gone long ago."""
        self._given_up_at.setdefault(source, now)

    def source_came(self, source: LogId, now: float, *, alone: bool) -> None:
        """An exchange is in the topology (again); `alone`: there was none before it."""
        if alone:
            self._rules.replaying(now)
        self._left.discard(source)
        if self._given_up_at.pop(source, None) is not None:
            self._recall_queue.drop(source)
            for key, stream in list(self._waiting.items()):
                for held in stream.held:
                    held.recalled = held.recalled and held.source != source
                self._advance(key, stream)

    # --- losses -----------------------------------------------------------------------------------

    def settle(
        self,
        now: float,
        verified: Mapping[LogId, float],
        *,
        unread: Collection[LogId] = (),
        away: bool = False,
    ) -> float | None:
        """Declare lost what will not come any more.

        Args:
            now: active time: it must not jump when the process was stopped.
            verified: as of when each exchange of the topology was verified, and each that is away.
            unread: those of them that were away from the start on: for what is older than the
                start nobody waits.
            away: one of them, of a durable queue, does not answer.

        Returns:
            As of when the exchanges should be verified, None if nothing depends on it.
        """
        rules = self._rules
        rules.wanted, rules.doubtful = None, False
        if away:
            rules.away(now)
        self._give_up_stubs(now, verified)
        if not self._tables_complete:
            return None
        at_start = {source: at for source, at in verified.items() if source not in unread}
        crowded = self.crowded
        for key, stream in list(self._waiting.items()):
            while now >= stream.look_at and stream.held[0].first > stream.expected:
                below = stream.expected < stream.before
                older = below and not stream.begun
                excused = below and bool(unread)
                asked = at_start if excused else verified
                end = rules.lost_until(stream, now, asked, patient=not (older or crowded))
                if end is None:
                    break
                self._skip(stream, min(end, stream.before) if excused or older else end)
                self._advance(key, stream)
                if not stream.held:
                    break
        return rules.wanted

    def _give_up_stubs(self, now: float, verified: Mapping[LogId, float]) -> None:
        """What was put aside at an exchange that is gone, and was not replayed, is lost."""
        for source, at in list(self._given_up_at.items()):
            if now < at:
                continue
            stubs = [
                (key, stream, held)
                for key, stream in self._waiting.items()
                for held in stream.held
                if held.data is None and held.source == source
            ]
            if stubs and not self._rules.over(at, now, verified):
                continue
            del self._given_up_at[source]
            self._recall_queue.drop(source)
            for key, stream, held in stubs:
                held.not_there()
                self._advance(key, stream)

    def put_aside(self) -> dict[LogId, int]:
        """The lowest offset, by exchange, of what waits for its turn.

        It may have to be fetched again, now or if memory is short before its turn.
        """
        lowest: dict[LogId, int] = {}
        for stream in self._waiting.values():
            for held in stream.held:
                if held.kind not in BOUNDS and held.kind != LOST:
                    lowest[held.source] = min(lowest.get(held.source, held.offset), held.offset)
        return lowest

    @property
    def waiting(self) -> bool:
        """Whether anything waits for its turn."""
        return bool(self._waiting)

    def waiting_streams(self) -> Iterable[Stream]:
        """The streams of which something waits for its turn."""
        return self._waiting.values()

    def read_again(self, now: float) -> None:
        """Nobody has read for a while: what waits is not older for it."""
        self._rules.read_again(now)

    def _skip(self, stream: Stream, end: int) -> None:
        """Go on at `end` without what is missing before it."""
        missing = end - stream.expected
        before = 0
        if not stream.begun:
            before = max(0, min(end, stream.before) - stream.expected)
        self.counts.before_start += before
        if before:
            stream.origin = stream.expected + before
        if missing > before:
            self._lose(stream, stream.expected + before, missing - before, "they never arrived")
        stream.expected = end
        stream.begun |= end >= min(stream.before, stream.held[0].first)

    def _lose(self, stream: Stream, first: int, messages: int, why: str) -> None:
        self.counts.lost = saturated(self.counts.lost + messages)
        self.gaps.append(missed(stream, first, messages, why))

    def _unreadable(self, topic: bytes, why: str) -> None:
        self.counts.corrupt += 1
        self.gaps.append(Gap(topic=_text(topic), text=f"an unreadable batch was dropped: {why}"))

    # --- order ------------------------------------------------------------------------------------

    def _add_other(
        self, source: LogId, topic: bytes, offset: int, batch: bytes, now: float
    ) -> None:
        try:
            header = read_header(batch)
        except RemoteProtocolError as error:
            self._unreadable(topic, str(error))
            return
        key = header.publisher + topic
        stream = self._stream(key, header.publisher, topic)
        self._recall_queue.done(source, topic, offset)
        if header.kind in BOUNDS:
            self._bound(stream, header, now)
        elif header.next_sequence <= stream.expected and self._check_duplicates:
            self._count_below(stream, header)
            self._grant()
            return
        held = hold(header, source, topic, offset, batch, now)
        self._begin(stream, held)
        if header.first_sequence > stream.expected:
            self._hold(key, stream, header, held)
        elif header.kind not in BOUNDS:
            self._deliver(stream, header, batch)
            if stream.held:
                stream.ways |= {source}
                stream.filled_at = now
        self._advance(key, stream)
        self._grant()
        if self.held_bytes > self._held_bytes_max:
            self._shed()

    def _bound(self, stream: Stream, header: Header, now: float) -> None:
        """Everything below a marker was acknowledged `created_us` before it was written."""
        age = header.created_us / MICROSECONDS
        elapsed = now - self._started if self._elapsed is None else self._elapsed()
        if not stream.begun and age > elapsed and header.first_sequence:
            stream.before = max(stream.before, header.first_sequence)
            if not self._early:  # else it may still be found in another log
                stream.expected = max(stream.expected, header.first_sequence)
                stream.origin = stream.expected

    def _begin(self, stream: Stream, held: Held) -> None:
        """Reading from an earlier point: the oldest batch of the only log that has the stream."""
        if (
            not stream.begun
            and self._tables_complete
            and stream.expected < held.first < stream.before
            and stream.holders == {held.source}
        ):
            stream.expected = stream.origin = held.first
            stream.begun = True

    def _count_below(self, stream: Stream, header: Header) -> None:
        if header.next_sequence <= stream.origin:
            self.counts.before_start += header.count
        else:
            self.counts.duplicates += header.count

    def _stream(self, key: bytes, publisher: PublisherId, topic: bytes) -> Stream:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._memory.meet(key, publisher, _text(topic), self.counts.delivered)
            self.counts.streams_forgotten = self._memory.forgotten
        return stream

    def _hold(self, key: bytes, stream: Stream, header: Header, held: Held) -> None:
        at = bisect_left(stream.held, held)
        if at < len(stream.held) and stream.held[at] == held:
            present = stream.held[at]
            present.came_again(held)
            if not present.data:
                self._recall_queue.done(present.source, present.topic, present.offset)
                present.kind, present.data = held.kind, held.data
                self.held_bytes += len(held.data or b"")
            else:
                self.counts.duplicates += header.count
            return
        stream.ways = stream.ways | {held.source} if stream.held else frozenset({held.source})
        stream.held.insert(at, held)
        self._waiting[key] = stream
        self.held_bytes += held.size

    def _advance(self, key: bytes, stream: Stream) -> None:
        """Deliver what has its turn."""
        held = stream.held
        while held and held[0].first <= stream.expected:
            head = held[0]
            if head.end > stream.expected:
                if head.data is None:
                    self._recall(key, stream)
                    return
                self._take(stream, head)
            elif head.kind not in BOUNDS and head.data is not None:
                self.counts.duplicates += head.end - head.first
            del held[0]
            self.held_bytes -= head.size
        if not held:
            self._waiting.pop(key, None)

    def _take(self, stream: Stream, head: Held) -> None:
        if head.kind == LOST or head.data is None:
            first = max(head.first, stream.expected)
            self._lose(stream, first, head.end - first, "they left the log while they waited")
            stream.expected = head.end
        else:
            self._deliver(stream, read_header(head.data), head.data)

    def _deliver(self, stream: Stream, header: Header, batch: bytes) -> None:
        skip = max(0, stream.expected - header.first_sequence) if self._check_duplicates else 0
        first = header.first_sequence + skip
        if header.kind == Kind.VOID:
            self.counts.void += header.count - skip
        else:
            try:
                payloads, packed = read_body(batch, header)
            except RemoteProtocolError as error:
                self.counts.corrupt += 1
                self._lose(stream, first, header.count - skip, str(error))
            else:
                attributes = None
                if packed is not None:
                    attributes = BatchAttributes(packed, header.first_sequence, header.count)
                self.out.append(  # first: `recount` mends the rest if this is interrupted
                    Batch(
                        payloads[skip:], stream.topic, stream.publisher, first, header.created_us,
                        len(batch), attributes,
                    )
                )  # fmt: skip
                self.counts.delivered += header.count - skip
                self.counts.duplicates += skip
        stream.expected = max(stream.expected, header.next_sequence)
        stream.begun = True
        stream.used = self.counts.delivered

    # --- memory -----------------------------------------------------------------------------------

    def _shed(self) -> None:
        """Keep only the place in the log of what is farthest from its turn."""
        candidates = sorted(
            (
                (held.first - stream.expected, id(held), held)
                for stream in self._waiting.values()
                for held in stream.held
                if held.data and held.kind not in BOUNDS and held.source not in self._left
            ),
            reverse=True,
        )
        for _, _, held in candidates:
            if self.held_bytes <= self._shed_to:
                return
            self.held_bytes -= len(held.data or b"")
            held.data = None
            held.recalled = False
            self.counts.stubbed += 1
        self._shed_all |= self.held_bytes > self._shed_to

    def _recall(self, key: bytes, stream: Stream) -> None:
        """The next batch is a stub: fetch it, and a few that follow."""
        for held in stream.held[:RECALL_AHEAD]:
            if held.data is None and not held.recalled:
                recall = self._recall_queue.make(key, held)
                if recall is not None:
                    held.recalled = True
                    self.recalls.append(recall)

    def _grant(self) -> None:
        """Have those fetched that had to wait, if there is room now."""
        if self._recall_queue.queued:
            for key in self._recall_queue.ready():
                if key in self._waiting:
                    self._advance(key, self._waiting[key])

    def recount(self) -> None:
        """Put right what follows from `out` and from what is held, after an interrupted `add`."""
        for batch in self.out:
            stream = self._streams.get(batch.publisher + batch.topic.encode())
            if stream is not None:
                stream.begun = True
                stream.expected = max(stream.expected, batch.sequence + len(batch))
        self.recalls.clear()
        self._recall_queue.clear()
        self._waiting = {key: stream for key, stream in self._streams.items() if stream.held}
        self.held_bytes = sum(
            held.size for stream in self._waiting.values() for held in stream.held
        )
        for key, stream in list(self._waiting.items()):
            for held in stream.held:
                held.recalled = False
            self._advance(key, stream)

    def check(self) -> None:
        """Assert the invariants."""
        held_bytes = 0
        for key, stream in self._streams.items():
            assert bool(stream.held) == (key in self._waiting), key  # noqa: S101
            assert stream.held == sorted(stream.held), key  # noqa: S101
            for held in stream.held:
                passed = held.end <= stream.expected and held.kind not in BOUNDS
                # What is behind a batch that is fetched again goes with it.
                assert not passed or stream.held[0].data is None  # noqa: S101
                held_bytes += held.size
        assert held_bytes == self.held_bytes  # noqa: S101


def _text(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")
