"""What was sent, what was received, and whether the one follows from the other.

    history = History()
    history.sent(publisher, "topic", payload)              # in order of publishing
    history.received("reader-1", message)                  # in order of receipt
    history.gap("reader-1", gap)                           # what the subscriber has reported
    verdict = history.check()
    assert verdict.ok, verdict

The unit is one stream, (publisher, topic), at one subscriber. Payloads are kept as 8-byte digests,
so histories of millions of messages fit in memory. Messages of a stream are told apart by them: of
two with the same payload nobody can say which one came, so give each one its own (`alike` counts
those that have not). Several processes write one file each
(`save`), and one of them merges what it loads, on the same machine since it started: times in files
are of its clock. `in_force`, `gone` and `excuse` are for the process that judges.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import msgspec
import xxhash

from roq.read.message import Batch, Gap, Message
from roq.testing.positions import Positions

_digest = xxhash.xxh3_64_intdigest
_ROWS_SHOWN = 40
_MARK_SECONDS = 0.01
"""So exactly is known later what was sent by when."""


@dataclass(slots=True)
class StreamVerdict:
    """One stream at one subscriber, in messages."""

    subscriber: str
    publisher: bytes
    topic: str
    sent: int = 0
    received: int = 0
    lost: int = 0
    """Not received, and not reported either: never excusable."""
    counted_lost: int = 0
    """Not received, but reported."""
    duplicated: int = 0
    reordered: int = 0
    """Received after a later one."""
    foreign: int = 0
    """Never sent, or with another payload."""
    excused: int = 0
    """Not received, and nobody has promised it; see `History.excuse`."""
    alike: int = 0
    """Sent with the payload of an earlier one: their order is not judged."""

    @property
    def ok(self) -> bool:
        """Everything arrived, once and in order."""
        return not (
            self.lost or self.counted_lost or self.duplicated or self.reordered or self.foreign
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """All streams at all subscribers."""

    rows: list[StreamVerdict]

    def total(self, figure: str) -> int:
        """The sum of a figure (`lost`, `duplicated`, …) over all streams and subscribers."""
        return sum(int(getattr(row, figure)) for row in self.rows)

    @property
    def sent(self) -> int:
        """Messages sent, once for each subscriber that wants them."""
        return self.total("sent")

    @property
    def received(self) -> int:
        """Messages received."""
        return self.total("received")

    @property
    def lost(self) -> int:
        """Messages that are missing without a word."""
        return self.total("lost")

    @property
    def counted_lost(self) -> int:
        """Messages that are missing and were reported."""
        return self.total("counted_lost")

    @property
    def duplicated(self) -> int:
        """Messages that came again."""
        return self.total("duplicated")

    @property
    def reordered(self) -> int:
        """Messages that came after a later one of their stream."""
        return self.total("reordered")

    @property
    def foreign(self) -> int:
        """Messages that nobody sent."""
        return self.total("foreign")

    @property
    def ok(self) -> bool:
        """Everything arrived, once and in order, at every subscriber."""
        return all(row.ok for row in self.rows)

    def __str__(self) -> str:
        names = [field.name for field in fields(StreamVerdict)][3:]
        lines = ["  ".join(f"{name} {self.total(name)}" for name in names)]
        bad = [row for row in self.rows if not row.ok]
        for row in bad[:_ROWS_SHOWN]:
            figures = "  ".join(f"{name} {getattr(row, name)}" for name in names)
            lines.append(f"{row.subscriber} {row.publisher.hex()[:8]} {row.topic!r}: {figures}")
        if len(bad) > _ROWS_SHOWN:
            lines.append(f"… and {len(bad) - _ROWS_SHOWN} more")
        return "\n".join(lines)


Stream = tuple[bytes, str]


@dataclass(slots=True)
class _Wish:
    """What a subscriber should get."""

    prefixes: tuple[str, ...] = ("",)
    from_first: bool = False
    in_force: dict[Stream, int] | None = None
    """What was sent by the time when it was in force; None: it does not matter."""
    gone: bool = False


class _File(msgspec.Struct, array_like=True):
    sent: list[tuple[bytes, str, bytes]]
    received: list[tuple[str, bytes, str, bytes, bytes]]
    gaps: list[tuple[str, bytes, str, int, int]]
    wishes: list[tuple[str, list[str], bool]]
    holes: list[tuple[str, str, float]]
    marks: list[tuple[bytes, str, list[tuple[float, int]]]]


class History:
    """Records and judges; one thread per object.

    Args:
        clock: seconds, the same for all processes of a machine.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sent: dict[Stream, array[int]] = {}
        self._received: dict[tuple[str, Stream], tuple[array[int], array[int]]] = {}
        self._gaps: list[tuple[str, Stream, int, int]] = []
        self._holes: dict[tuple[str, str], tuple[float, dict[Stream, int]]] = {}
        """Reported losses of which only subscriber and topic are known: when the last one was, and
        what this process had recorded as sent by then."""
        self._marks: dict[Stream, list[tuple[float, int]]] = {}
        """When how many had been sent."""
        self._wishes: dict[str, _Wish] = {}
        self._excused: dict[Stream, list[range]] = {}

    # --- recording --------------------------------------------------------------------------------

    def sent(self, publisher: bytes, topic: str, *payloads: bytes) -> None:
        """The publisher has published these, in this order, after what it published before."""
        stream = (publisher, topic)
        digests = self._sent.setdefault(stream, array("Q"))
        digests.extend(map(_digest, payloads))
        marks, now = self._marks.setdefault(stream, []), self._clock()
        if not marks or now >= marks[-1][0] + _MARK_SECONDS:
            marks.append((now, len(digests)))

    def subscribed(
        self, subscriber: str, prefixes: Iterable[str] = ("",), *, from_first: bool = False
    ) -> None:
        """What this subscriber should get.

        Args:
            subscriber: a name of the test's choice.
            prefixes: the topics that it wants.
            from_first: it joined late: what was sent before the first message that it has received
                of a stream is not missing. If it has received nothing at all, everything is.
        """
        self._wishes[subscriber] = _Wish(tuple(prefixes), from_first)

    def in_force(self, subscriber: str) -> None:
        """From now on this one, which joined late, is to get everything that is sent.

        What it has reported as missing of the time before, nobody had promised it.
        """
        wish = self._wishes[subscriber]
        if wish.in_force is None:
            wish.in_force = {stream: len(digests) for stream, digests in self._sent.items()}

    def gone(self, subscriber: str) -> None:
        """This one has died: what it would have received after its last message is not missing."""
        self._wishes[subscriber].gone = True

    def excuse(self, publisher: bytes, topic: str, first: int, end: int) -> None:
        """Nobody has promised these: their publisher has died, or was told that they failed.

        They may be missing, but not without a word where a later one of their stream has come.
        """
        self._excused.setdefault((publisher, topic), []).append(range(first, end))

    def received(self, subscriber: str, *items: Message | Batch) -> None:
        """The subscriber has received these, in this order."""
        for item in items:
            payloads = [item.payload] if isinstance(item, Message) else item.payloads
            self.received_raw(subscriber, item.publisher, item.topic, item.sequence, *payloads)

    def received_raw(
        self, subscriber: str, publisher: bytes, topic: str, sequence: int, *payloads: bytes
    ) -> None:
        """As `received`, for payloads with consecutive sequences."""
        self._wishes.setdefault(subscriber, _Wish())
        sequences, digests = self._received.setdefault(
            (subscriber, (publisher, topic)), (array("Q"), array("Q"))
        )
        sequences.extend(range(sequence, sequence + len(payloads)))
        digests.extend(map(_digest, payloads))

    def gap(self, subscriber: str, gap: Gap) -> None:
        """The subscriber has reported a loss.

        Of a place in a log whose messages nobody knows any more, it can name the topic only.
        """
        if gap.publisher is not None and gap.messages:
            self._gaps.append(
                (subscriber, (gap.publisher, gap.topic), gap.sequence, gap.sequence + gap.messages)
            )
        elif gap.publisher is None:
            self._holes[subscriber, gap.topic] = (
                self._clock(),
                {each: len(sent) for each, sent in self._sent.items() if each[1] == gap.topic},
            )

    def messages(self, prefixes: Iterable[str] = ("",)) -> int:
        """How many messages were sent under these topics."""
        wanted = tuple(prefixes)
        return sum(len(sent) for (_, topic), sent in self._sent.items() if topic.startswith(wanted))

    @property
    def checksum(self) -> str:
        """The same for the same messages and gaps in the same order at the same subscribers."""
        data = self._file()
        data.marks, data.holes = [], [(name, topic, 0.0) for name, topic, _ in data.holes]
        return xxhash.xxh3_64_hexdigest(msgspec.msgpack.encode(data))

    # --- files ------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write everything to a file (replaced as a whole, so a reader never sees half of it)."""
        data = self._file()
        partial = path.with_name(path.name + ".part")
        partial.write_bytes(msgspec.msgpack.encode(data))
        partial.replace(path)

    def load(self, *paths: Path) -> Self:
        """Add what other processes have written; gives this object back."""
        for path in paths:
            self._add(msgspec.msgpack.decode(path.read_bytes(), type=_File))
        return self

    def merge(self, *others: History) -> Self:
        """Add what others have recorded; gives this object back."""
        for other in others:
            self._add(other._file())  # noqa: SLF001 - of its own class
        return self

    def _file(self) -> _File:
        return _File(
            sent=[(*stream, digests.tobytes()) for stream, digests in self._sent.items()],
            received=[
                (subscriber, *stream, sequences.tobytes(), digests.tobytes())
                for (subscriber, stream), (sequences, digests) in self._received.items()
            ],
            gaps=[(name, *stream, first, end) for name, stream, first, end in self._gaps],
            wishes=[
                (name, list(wish.prefixes), wish.from_first) for name, wish in self._wishes.items()
            ],
            holes=[(*key, when) for key, (when, _) in self._holes.items()],
            marks=[(*stream, marks) for stream, marks in self._marks.items()],
        )

    def _add(self, data: _File) -> None:
        for publisher, topic, digests in data.sent:
            self._sent.setdefault((publisher, topic), array("Q")).frombytes(digests)
        for name, publisher, topic, sequences, digests in data.received:
            mine = self._received.setdefault((name, (publisher, topic)), (array("Q"), array("Q")))
            mine[0].frombytes(sequences)
            mine[1].frombytes(digests)
        for name, publisher, topic, first, end in data.gaps:
            self._gaps.append((name, (publisher, topic), first, end))
        for name, topic, when in data.holes:
            self._holes[name, topic] = (when, {})
        for publisher, topic, marks in data.marks:
            self._marks[publisher, topic] = marks
        for name, prefixes, from_first in data.wishes:
            self._wishes[name] = _Wish(tuple(prefixes), from_first)

    # --- judging ----------------------------------------------------------------------------------

    def check(self) -> Verdict:
        """Compare what each subscriber has received with what was sent."""
        return Verdict(list(self._rows()))

    def _rows(self) -> Iterator[StreamVerdict]:
        for name, wish in sorted(self._wishes.items()):
            wanted = {stream for stream in self._sent if stream[1].startswith(wish.prefixes)} | {
                stream for subscriber, stream in self._received if subscriber == name
            }
            for stream in sorted(wanted):
                yield self._judge(name, wish, stream)

    def _judge(self, name: str, wish: _Wish, stream: Stream) -> StreamVerdict:
        sent = self._sent.get(stream, array("Q"))
        sequences, digests = self._received.get((name, stream), (array("Q"), array("Q")))
        row = StreamVerdict(name, *stream, received=len(sequences))
        got = Positions()
        for sequence, digest in zip(sequences, digests, strict=True):
            if sequence >= len(sent) or sent[sequence] != digest:
                row.foreign += 1
            else:
                got.take(sequence)
        row.duplicated, row.reordered = got.doubled, got.reordered
        if not stream[1].startswith(wish.prefixes):
            row.foreign = len(sequences)  # sent perhaps, but not to this one
            return row
        row.alike = len(sent) - len(set(sent))
        first = 0
        if wish.from_first and self._heard(name):
            first = got.first if got.next else len(sent)
        if wish.in_force is not None:
            first = min(first, wish.in_force.get(stream, 0))
        end = max(first, got.next) if wish.gone else len(sent)
        row.sent = end - first
        if missing := set(got.lacking(first, end)):
            promised = (wish.in_force or {}).get(stream, 0) if wish.from_first else 0
            self._account(row, name, missing, promised)
        return row

    def _heard(self, name: str) -> bool:
        """Whether this one has received anything at all."""
        return any(each == name and got[0] for (each, _), got in self._received.items())

    def _account(self, row: StreamVerdict, name: str, missing: set[int], promised: int) -> None:
        """What became of messages that were not received; from `promised` on it was to get all."""
        stream = (row.publisher, row.topic)
        reported = {
            sequence
            for subscriber, of, begin, until in self._gaps
            if subscriber == name and of == stream
            for sequence in range(begin, until)
            if sequence in missing
        } | self._at_the_end(name, stream, missing)
        # What came after it shows that it is missing, and that is to be told, whatever has died.
        last = max(self._received.get((name, stream), (array("Q"),))[0], default=-1)
        excused = {
            sequence
            for each in self._excused.get(stream, ())
            for sequence in each
            if sequence in missing and (sequence in reported or sequence > last)
        } | {sequence for sequence in reported if sequence < promised}
        row.excused = len(excused)
        row.counted_lost = len(reported - excused)
        row.lost = len(missing - reported - excused)

    def _at_the_end(self, name: str, stream: Stream, missing: set[int]) -> set[int]:
        """What is missing after the last message that came, if a hole in its topic was reported.

        Only what comes later shows by its sequence which messages were lost. What was sent after
        the report was not in the hole.
        """
        hole = self._holes.get((name, stream[1]))
        if hole is None:
            return set()
        when, sent = hole
        sequences, _ = self._received.get((name, stream), (array("Q"), array("Q")))
        last = max(sequences, default=-1)
        end = sent.get(stream, self._sent_by(stream, when))
        return {sequence for sequence in missing if last < sequence < end}

    def _sent_by(self, stream: Stream, when: float) -> int:
        """How many were sent by this time at most, by what another process has recorded."""
        marks = self._marks.get(stream, [])
        after = bisect_right(marks, when, key=lambda mark: mark[0])
        return marks[after][1] if after < len(marks) else len(self._sent.get(stream, ()))
