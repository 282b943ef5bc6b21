"""One order out of several logs: per (publisher, topic), by sequence: pure.

Below the expected sequence is a duplicate (a replay after a move); above it waits. A missing
sequence is lost only when every other exchange of the topology was verified as of a time after the
batch above it had arrived: whatever is missing was published before, so it would have been found.
Or when five seconds of active time have passed. Memory is bounded: of what waits too far from its
turn only the place in the log is kept, and it is fetched again when its turn comes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from roq.client.message import MICROSECONDS, Batch, Gap
from roq.errors import RemoteProtocolError
from roq.model import PublisherId
from roq.protocol.batch import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    VERSION,
    Header,
    Kind,
    read_header,
    read_payloads,
    unpack_payloads,
)

Source = tuple[int, int]
"""Number and epoch of an exchange."""

LOSS_SECONDS: Final = 5.0
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
STREAMS_MAX: Final = 100_000
RECALL_AHEAD: Final = 16
_STUB_BYTES: Final = 200

_DATA: Final = int(Kind.DATA)
_LOST: Final = -1
_BOUNDS: Final = frozenset({int(Kind.MARKER), int(Kind.FENCE)})
_unpack = HEADER.unpack_from


@dataclass(slots=True, order=True)
class _Held:
    """A batch (or marker) above the expected sequence."""

    first: int
    end: int
    kind: int = field(compare=False)
    arrived: float = field(compare=False)
    source: Source = field(compare=False)
    topic: bytes = field(compare=False)
    offset: int = field(compare=False)
    data: bytes | None = field(compare=False)
    """None: a stub; ask the exchange again."""
    recalled: bool = field(default=False, compare=False)


@dataclass(slots=True)
class _Stream:
    """One publisher's messages of one topic."""

    publisher: PublisherId
    topic: str
    expected: int = 0
    origin: int = 0
    """The first sequence that this subscriber wants."""
    holders: frozenset[Source] = frozenset()
    """The exchanges that knew this stream at the start."""
    begun: bool = False
    """Whether anything was delivered or skipped."""
    before: int = 0
    """Missing sequences below this are before the subscriber's start, unless it has begun."""
    held: list[_Held] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Recall:
    """A batch that was put aside is wanted again from this exchange."""

    source: Source
    topic: bytes
    offset: int


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


class Merge:
    """All streams that one subscriber sees.

    Args:
        now: the subscriber's own start.
        held_bytes_max: memory for what waits for its turn.
        streams_max: streams that are remembered.
        check_duplicates: off only in tests that prove what it is good for.

    Attributes:
        out: batches in order; whoever drives the merge takes them away.
        gaps: what was lost; taken away likewise.
        recalls: what is to be fetched again; taken away likewise.
    """

    def __init__(
        self,
        now: float,
        *,
        held_bytes_max: int = HELD_BYTES_MAX,
        streams_max: int = STREAMS_MAX,
        check_duplicates: bool = True,
    ) -> None:
        self.out: list[Batch] = []
        self.gaps: list[Gap] = []
        self.recalls: list[Recall] = []
        self.counts = Counts()
        self.held_bytes = 0
        self._started = now
        self._held_bytes_max = held_bytes_max
        self._streams_max = streams_max
        self._check_duplicates = check_duplicates
        self._streams: dict[bytes, _Stream] = {}
        self._waiting: dict[bytes, _Stream] = {}
        self._recalled: dict[tuple[Source, bytes, int], bytes] = {}
        self._lenient = False
        self._tables_complete = False

    # --- in ---------------------------------------------------------------------------------------

    def start(
        self, source: Source, streams: Iterable[tuple[bytes, bytes, int]], *, latest: bool
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

    def tables_complete(self) -> None:
        """All exchanges of the start have told their streams."""
        self._tables_complete = True
        for key, stream in list(self._waiting.items()):
            self._begin(stream, stream.held[0])
            self._advance(key, stream)

    def add(self, source: Source, topic: bytes, offset: int, batch: bytes, now: float) -> None:
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
            or version != VERSION
        ):
            self._add_other(source, topic, offset, batch, now)
            return
        try:
            payloads = unpack_payloads(batch, ext_bytes, checksum, count)
        except RemoteProtocolError:
            self._add_other(source, topic, offset, batch, now)
            return
        stream.begun = True
        stream.expected = first + count
        self.counts.delivered += count
        self.out.append(
            Batch(payloads, stream.topic, stream.publisher, first, created_us, len(batch))
        )

    def gone(self, source: Source, topic: bytes, offset: int) -> None:
        """A batch that was to be fetched again has left the log."""
        key = self._recalled.pop((source, topic, offset), None)
        stream = self._streams.get(key) if key is not None else None
        if key is None or stream is None:
            return
        for held in stream.held:
            if held.data is None and (held.source, held.offset) == (source, offset):
                held.kind, held.data = _LOST, b""
        self._advance(key, stream)

    def forget_source(self, source: Source) -> None:
        """An exchange is gone for good, and with it what was to be fetched from it again."""
        for key, stream in list(self._waiting.items()):
            for held in stream.held:
                if held.data is None and held.source == source:
                    self._recalled.pop((source, held.topic, held.offset), None)
                    held.kind, held.data = _LOST, b""
            self._advance(key, stream)

    # --- losses -----------------------------------------------------------------------------------

    def settle(self, now: float, verified: Mapping[Source, float]) -> float | None:
        """Declare lost what will not come any more.

        An exchange that has brought a batch above the hole has shown by its chain of offsets that
        it does not have what is missing: only the others are looked at.

        Args:
            now: active time: it must not jump when the process was stopped.
            verified: as of when each exchange of the topology was verified.

        Returns:
            As of when the exchanges should be verified, None if nothing is missing.
        """
        wanted: float | None = None
        if not self._tables_complete:
            return None
        for key, stream in list(self._waiting.items()):
            while stream.held and stream.held[0].first > stream.expected:
                since = min(held.arrived for held in stream.held)
                brought = {held.source for held in stream.held}
                known = all(at >= since for source, at in verified.items() if source not in brought)
                if not known and now - since < LOSS_SECONDS:
                    wanted = since if wanted is None else max(wanted, since)
                    break
                self._skip(stream, stream.held[0].first)
                self._advance(key, stream)
        return wanted

    @property
    def waiting(self) -> bool:
        """Whether anything waits for its turn."""
        return bool(self._waiting)

    def _skip(self, stream: _Stream, end: int) -> None:
        """Go on at `end` without what is missing before it."""
        missing = end - stream.expected
        before = 0
        if not stream.begun:
            before = missing if self._lenient else max(0, min(end, stream.before) - stream.expected)
        self.counts.before_start += before
        if before:
            stream.origin = stream.expected + before
        if missing > before:
            self._lose(stream, stream.expected + before, missing - before, "they never arrived")
        stream.expected = end
        stream.begun = True

    def _lose(self, stream: _Stream, first: int, messages: int, why: str) -> None:
        self.counts.lost += messages
        self.gaps.append(
            Gap(
                topic=stream.topic,
                text=f"{messages} messages from sequence {first} are lost: {why}",
                publisher=stream.publisher,
                sequence=first,
                messages=messages,
            )
        )

    def _unreadable(self, topic: bytes, why: str) -> None:
        self.counts.corrupt += 1
        self.gaps.append(Gap(topic=_text(topic), text=f"an unreadable batch was dropped: {why}"))

    # --- order ------------------------------------------------------------------------------------

    def _add_other(
        self, source: Source, topic: bytes, offset: int, batch: bytes, now: float
    ) -> None:
        try:
            header = read_header(batch)
        except RemoteProtocolError as error:
            self._unreadable(topic, str(error))
            return
        key = header.publisher + topic
        stream = self._stream(key, header.publisher, topic)
        self._recalled.pop((source, topic, offset), None)
        if header.kind in _BOUNDS:
            self._bound(stream, header, now)
        elif header.next_sequence <= stream.expected and self._check_duplicates:
            self._count_below(stream, header)
            return
        held = _Held(
            header.first_sequence, header.next_sequence, header.kind, now,
            source, topic, offset, batch,
        )  # fmt: skip
        self._begin(stream, held)
        if header.first_sequence > stream.expected:
            self._hold(key, stream, header, held)
        elif header.kind not in _BOUNDS:
            self._deliver(stream, header, batch)
        self._advance(key, stream)
        if self.held_bytes > self._held_bytes_max:
            self._shed()

    def _bound(self, stream: _Stream, header: Header, now: float) -> None:
        """Everything below a marker was acknowledged `created_us` before it was written."""
        age = header.created_us / MICROSECONDS
        if not stream.begun and age > now - self._started and header.first_sequence:
            stream.expected = max(stream.expected, header.first_sequence)
            stream.origin = stream.expected

    def _begin(self, stream: _Stream, held: _Held) -> None:
        """Reading from an earlier point: the oldest batch of the only log that has the stream."""
        if (
            not stream.begun
            and self._tables_complete
            and stream.expected < held.first < stream.before
            and stream.holders <= {held.source}
        ):
            stream.expected = stream.origin = held.first
            stream.begun = True

    def _count_below(self, stream: _Stream, header: Header) -> None:
        if header.next_sequence <= stream.origin:
            self.counts.before_start += header.count
        else:
            self.counts.duplicates += header.count

    def _stream(self, key: bytes, publisher: PublisherId, topic: bytes) -> _Stream:
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= self._streams_max:
                self._forget_one()
            stream = self._streams[key] = _Stream(publisher, _text(topic))
        return stream

    def _forget_one(self) -> None:
        for key, stream in self._streams.items():
            if not stream.held:
                del self._streams[key]
                break
        # What comes back after having been forgotten must not look like a loss.
        self._lenient = True
        self.counts.streams_forgotten += 1

    def _hold(self, key: bytes, stream: _Stream, header: Header, held: _Held) -> None:
        at = bisect_left(stream.held, held)
        if at < len(stream.held) and stream.held[at] == held:
            present = stream.held[at]
            if present.data is None and held.data is not None:
                present.data, present.source, present.offset = held.data, held.source, held.offset
                self.held_bytes += len(held.data)
            else:
                self.counts.duplicates += header.count
            return
        stream.held.insert(at, held)
        self._waiting[key] = stream
        self.held_bytes += _STUB_BYTES + len(held.data or b"")

    def _advance(self, key: bytes, stream: _Stream) -> None:
        """Deliver what has its turn."""
        held = stream.held
        while held and held[0].first <= stream.expected:
            head = held[0]
            if head.end > stream.expected:
                if head.data is None:
                    self._recall(key, stream)
                    return
                self._take(stream, head)
            elif head.kind not in _BOUNDS and head.data is not None:
                self.counts.duplicates += head.end - head.first
            del held[0]
            self.held_bytes -= _STUB_BYTES + len(head.data or b"")
        if not held:
            self._waiting.pop(key, None)

    def _take(self, stream: _Stream, head: _Held) -> None:
        if head.kind == _LOST or head.data is None:
            first = max(head.first, stream.expected)
            self._lose(stream, first, head.end - first, "they left the log while they waited")
            stream.expected = head.end
        else:
            self._deliver(stream, read_header(head.data), head.data)

    def _deliver(self, stream: _Stream, header: Header, batch: bytes) -> None:
        skip = max(0, stream.expected - header.first_sequence) if self._check_duplicates else 0
        first = header.first_sequence + skip
        stream.expected = max(stream.expected, header.next_sequence)
        stream.begun = True
        if header.kind == Kind.VOID:
            self.counts.void += header.count - skip
            return
        try:
            payloads = read_payloads(batch, header)
        except RemoteProtocolError as error:
            self.counts.corrupt += 1
            self._lose(stream, first, header.count - skip, str(error))
            return
        self.counts.delivered += header.count - skip
        self.counts.duplicates += skip
        self.out.append(
            Batch(
                payloads[skip:], stream.topic, stream.publisher, first, header.created_us,
                len(batch),
            )
        )  # fmt: skip

    # --- memory -----------------------------------------------------------------------------------

    def _shed(self) -> None:
        """Keep only the place in the log of what is farthest from its turn."""
        candidates = sorted(
            (
                (held.first - stream.expected, id(held), held)
                for stream in self._waiting.values()
                for held in stream.held
                if held.data and held.kind not in _BOUNDS
            ),
            reverse=True,
        )
        for _, _, held in candidates:
            if self.held_bytes <= self._held_bytes_max * 3 // 4:
                return
            self.held_bytes -= len(held.data or b"")
            held.data = None
            held.recalled = False
            self.counts.stubbed += 1

    def _recall(self, key: bytes, stream: _Stream) -> None:
        """The next batch is a stub: fetch it, and a few that follow."""
        for held in stream.held[:RECALL_AHEAD]:
            if held.data is None and not held.recalled:
                held.recalled = True
                self._recalled[held.source, held.topic, held.offset] = key
                self.recalls.append(Recall(held.source, held.topic, held.offset))

    def check(self) -> None:
        """Assert the invariants."""
        held_bytes = 0
        for key, stream in self._streams.items():
            assert bool(stream.held) == (key in self._waiting), key  # noqa: S101
            assert stream.held == sorted(stream.held), key  # noqa: S101
            for held in stream.held:
                assert held.end > stream.expected or held.kind in _BOUNDS  # noqa: S101
                held_bytes += _STUB_BYTES + len(held.data or b"")
        assert held_bytes == self.held_bytes  # noqa: S101


def _text(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")
