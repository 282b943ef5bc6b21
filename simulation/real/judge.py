"""Decides, while everything runs, whether publishers and subscribers got what they were promised.

The unit is one stream (a publisher of chaos has one topic) at one subscriber, as in
`roq.testing.history`, and what is lost, doubled or reordered there is decided by the same
`Positions`. That one keeps whole histories; this one judges for hours. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from roq.simulation.real.answering import Answering
from roq.simulation.real.journal import (
    Accepted,
    Asked,
    Back,
    Begun,
    Entered,
    Finished,
    Got,
    Lease,
    Lost,
    Opened,
    Present,
    Ran,
    Record,
    Refused,
    State,
    Subscribed,
    Told,
    Upto,
    Wrong,
)
from roq.simulation.real.sharing import Sharing
from roq.testing.positions import Positions, Span

LATE_SECONDS: Final = 60.0
"""So late a journal may be read; what publishers wrote down is kept for so long."""


@dataclass(slots=True)
class Stream:
    """What one publisher has published.

    Attributes:
        publisher: name of the worker.
        opened: when.
        upto: at most so many messages.
        published: `publish()` has returned for at least so many.
        acked: at least so many were acknowledged.
        failed: given up by the publisher, or not known to have arrived.
        ended: it publishes no more (killed, closed, or it has raised).
        settled: it had ended by the last check.
        starts: when it was about to publish, and the first sequence of what followed.
    """

    publisher: str
    queue: str
    topic: str
    opened: float
    upto: int = 0
    published: int = 0
    acked: int = 0
    failed: int = 0
    ended: bool = False
    settled: bool = False
    starts: list[tuple[float, int]] = field(default_factory=list)

    def about_to(self, when: float, count: int) -> None:
        """It goes on from here up to `count`."""
        self.starts.append((when, self.upto))
        self.upto = count

    def since(self, when: float) -> int | None:
        """The first sequence that was certainly published after this; None: none is known yet."""
        at = bisect_left(self.starts, (when, 0))
        return self.starts[at][1] if at < len(self.starts) else None

    def forget(self) -> None:
        """Drop what will not be asked for."""
        if self.starts:
            old = bisect_left(self.starts, (self.starts[-1][0] - LATE_SECONDS, 0))
            del self.starts[:old]


@dataclass(slots=True)
class Place:
    """How far one subscriber is in one stream.

    Attributes:
        begin: the first sequence that it received, or reported.
        got: what it has received from there on.
        told: reported as lost by the subscriber.
    """

    begin: int = 0
    got: Positions = field(default_factory=Positions)
    told: list[Span] = field(default_factory=list)

    @classmethod
    def at(cls, begin: int) -> Place:
        """It begins here."""
        return cls(begin, Positions(begin))

    @property
    def reached(self) -> int:
        """Everything below was received or was reported as lost."""
        return max([self.got.next, *(end for _, end in self.told)])

    def settle(self) -> tuple[int, int]:
        """Give how many are missing and how many of them were not reported; begin anew."""
        end = self.got.next
        told = {n for first, last in self.told for n in range(first, min(last, end))}
        missing = list(self.got.lacking(0, end))
        self.got.missing.clear()
        self.told = [span for span in self.told if span[1] > end]
        return len(missing), sum(n not in told for n in missing)


@dataclass(slots=True)
class Reader:
    """One subscription.

    Attributes:
        subscriber: name of the worker.
        opened: when it was in force.
        owed: by stream that was there first, from which sequence on it is to get everything.
        ended: it reads no more.
    """

    subscriber: str
    queue: str
    prefix: str
    opened: float
    owed: dict[str, int] = field(default_factory=dict)
    ended: bool = False
    places: dict[str, Place] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """Sums over everything, in messages; each counted once for each subscriber."""

    published: int = 0
    """By publishers; counted once."""
    received: int = 0
    lost: int = 0
    """Missing without a word."""
    counted_lost: int = 0
    """Missing, and reported."""
    duplicated: int = 0
    reordered: int = 0
    foreign: int = 0
    errors: int = 0
    """Of `publish()`, and of subscribers at work."""
    failed: int = 0
    """Given up by publishers."""
    shared_wrong: int = 0
    """Of consumer groups; see `Sharing.findings`."""
    requests_wrong: int = 0
    """See `Answering.findings`."""

    @property
    def violations(self) -> int:
        """What never may be, however much was broken."""
        return (
            self.lost
            + self.duplicated
            + self.reordered
            + self.foreign
            + self.errors
            + self.failed
            + self.shared_wrong
            + self.requests_wrong
        )


class Expected(NamedTuple):
    """What all subscribers together were to get.

    Attributes:
        sent: messages, counted once for each subscriber that wants them.
        subscribers: how many there are.
        streams: how many each wants, summed up.
    """

    sent: int
    subscribers: int
    streams: int


class Judge:
    """Takes in the records of all workers.

    Attributes:
        tally: the sums so far; losses are added by `check`.
        findings: what was wrong, in sentences; the caller may empty it.
        groups: the consumer group of each queue that has one.
        requests: of each queue that has some; the caller adds them.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self.groups: dict[str, Sharing] = {}
        self.requests: dict[str, Answering] = {}
        self.findings: list[str] = []
        self._slowest = 0.0
        self._streams: dict[str, Stream] = {}
        self._readers: dict[str, Reader] = {}
        self._present: dict[str, str] = {}

    # --- taking in --------------------------------------------------------------------------------

    def take(self, worker: str, queue: str, topic: str, record: Record) -> None:
        """The next record of a worker."""
        match record:
            case Opened() | Subscribed() | Entered() | Present():
                self.end(worker)
                self._present[worker] = self._entered(worker, queue, topic, record)
            case Lease():
                self.groups[queue].take(worker, record)
            case Asked() | Accepted() | Told() | Begun() | Ran():
                self.requests[queue].take(worker, record)
            case Upto() | State():
                self._progress(worker, record)
            case Got():
                self._got(worker, record)
            case Lost():
                self._lost(worker, record)
            case Wrong(stream=stream, sequence=sequence):
                self.tally.foreign += 1
                self.findings.append(f"{worker}: {stream[:8]} {sequence} is not what was sent")
            case Refused(text=text, working=True):
                self.tally.errors += 1
                self.findings.append(f"{worker}: {text}")
                self.end(worker)
            case Finished():
                self.end(worker)
            case Refused() | Back():
                pass

    def end(self, worker: str) -> None:
        """The worker was killed, or begins anew."""
        present = self._present.pop(worker, "")
        if present in self._streams:
            self._streams[present].ended = True
        elif present in self._readers:
            self._readers[present].ended = True
        if present in self.groups:
            self.groups[present].end(worker)
        for requests in self.requests.values():  # also one that was not connected yet
            requests.end(worker)

    def _entered(
        self, worker: str, queue: str, topic: str, record: Opened | Subscribed | Entered | Present
    ) -> str:
        """It begins as what it is; gives by which name its records are known."""
        match record:
            case Opened(when=when, stream=stream):
                self._streams[stream] = Stream(worker, queue, topic, when)
                return stream
            case Subscribed(when=when, subscriber=subscriber):
                self._readers[subscriber] = Reader(worker, queue, topic, when)
                return subscriber
            case Entered():
                self.groups.setdefault(queue, Sharing())
            case Present():
                self.requests[queue].begin(worker)
        return queue

    def _progress(self, worker: str, record: Upto | State) -> None:
        stream = self._streams[self._present[worker]]
        if isinstance(record, Upto):
            stream.about_to(record.when, record.count)
            return
        self.tally.published += record.published - stream.published
        self._slowest = max(self._slowest, record.slowest)
        stream.published, stream.acked = record.published, record.acked
        if record.failed > stream.failed:
            more = record.failed - stream.failed
            stream.failed = record.failed
            self.tally.failed += more
            self.findings.append(f"{worker} has given up {more} messages")

    def _got(self, worker: str, record: Got) -> None:
        reader = self._readers[self._present[worker]]
        place = reader.places.get(record.stream)
        if place is None:
            place = reader.places[record.stream] = self._first(reader, record)
        self.tally.received += record.count
        got, after = place.got, place.got.next - 1
        late, again = got.reordered, got.doubled
        got.take(record.first, record.count)
        late, again = got.reordered - late, got.doubled - again
        self.tally.reordered += late
        self.tally.duplicated += again
        if late or again:
            self.findings.append(
                f"{worker}: {late + again} messages from {record.first} on of {record.stream[:8]} "
                f"have come {'late' if late else 'again'}, after {after}"
            )

    def _first(self, reader: Reader, record: Got) -> Place:
        """Where a subscriber begins: who was there first gets everything."""
        stream = self._streams.get(record.stream)
        if stream is not None and stream.opened < reader.opened:
            return Place.at(record.first)
        return Place()

    def _lost(self, worker: str, record: Lost) -> None:
        reader = self._readers[self._present[worker]]
        if record.stream and record.count:
            place = reader.places.setdefault(record.stream, Place.at(record.first))
            place.told.append((record.first, record.first + record.count))

    # --- judging ----------------------------------------------------------------------------------

    def acked(self, *, ended: bool) -> dict[str, int]:
        """How far each stream was acknowledged, by what is known.

        Args:
            ended: also those that have ended since the last check.
        """
        return {
            name: stream.acked
            for name, stream in self._streams.items()
            if not stream.ended or (ended and not stream.settled)
        }

    def behind(self, marks: Mapping[str, int]) -> list[str]:
        """Subscribers that have not got as far as these marks, in sentences."""
        late = []
        for reader in self._readers.values():
            for name, count in marks.items():
                stream = self._streams[name]
                if reader.ended or not _wants(reader, stream):
                    continue
                place = reader.places.get(name)
                if place is None and not self._owes(stream, name, reader, count):
                    continue  # it may have come too late for this one
                reached = 0 if place is None else place.reached
                if reached < count:
                    late.append(
                        f"{reader.subscriber} has {reached} of {count} messages of "
                        f"{stream.publisher} ({name[:8]})"
                    )
        return late

    def undone(self, marks: Mapping[str, int]) -> list[str]:
        """Groups that have not done everything below these marks, in sentences."""
        return [
            f"{queue}: {each}"
            for queue, group in self.groups.items()
            for each in group.undone(self._marks_of(queue, marks))
        ]

    def give_up(self, marks: Mapping[str, int]) -> None:
        """What groups have not done below these marks will never be done; it is counted."""
        for queue, group in self.groups.items():
            group.give_up(self._marks_of(queue, marks))

    def unanswered(self, since: float) -> list[str]:
        """Requests that were accepted before that and have not ended, in sentences."""
        return [
            f"{queue}: {each}"
            for queue, requests in self.requests.items()
            for each in requests.pending(since)
        ]

    def take_slowest(self) -> float:
        """The longest `publish()` of all publishers since the last such question, seconds."""
        slowest, self._slowest = self._slowest, 0.0
        return slowest

    def check(self) -> None:
        """Count what is missing since the last check; what is missing now will never come."""
        for reader in self._readers.values():
            self._look_at_heads(reader)
            for name, place in reader.places.items():
                missing, silent = place.settle()
                self.tally.counted_lost += missing - silent
                self.tally.lost += silent
                if missing:
                    how = f"{silent} without a word" if silent else "and has said so"
                    self.findings.append(
                        f"{reader.subscriber} has lost {missing} messages of {name[:8]}, {how}"
                    )
        self._readers = {name: each for name, each in self._readers.items() if not each.ended}
        for stream in self._streams.values():
            stream.settled = stream.ended
            stream.forget()
        for group in self.groups.values():
            self.findings += group.findings
            self.tally.shared_wrong += len(group.findings)
            group.findings.clear()
            group.check()
        for requests in self.requests.values():
            found = requests.check()
            self.findings += found
            self.tally.requests_wrong += len(found)

    def finish(self) -> Expected:
        """Nothing more comes: also what is missing at the end of a stream never will."""
        sent = wanted = 0
        for reader in self._readers.values():
            for name, stream in self._streams.items():
                if not _wants(reader, stream):
                    continue
                began = Place() if stream.opened >= reader.opened else Place.at(stream.published)
                place = reader.places.setdefault(name, began)
                place.got.skip_to(stream.published)
                wanted += 1
                sent += stream.published - place.begin
            for name, place in reader.places.items():
                known = self._streams.get(name)
                if known is None or not _wants(reader, known):
                    self.tally.foreign += place.got.next - place.begin
                    self.findings.append(
                        f"{reader.subscriber} has got {name[:8]}, not meant for it"
                    )
        expected = Expected(sent, len(self._readers), wanted)
        self.check()
        return expected

    def _marks_of(self, queue: str, marks: Mapping[str, int]) -> dict[str, int]:
        return {name: n for name, n in marks.items() if self._streams[name].queue == queue}

    def _owes(self, stream: Stream, name: str, reader: Reader, count: int) -> bool:
        """Whether any of the first `count` messages was published when the reader was there."""
        if stream.opened >= reader.opened:
            return not stream.ended
        owed = reader.owed.get(name, stream.since(reader.opened))
        return owed is not None and owed < count

    def _look_at_heads(self, reader: Reader) -> None:
        """Who came later is owed what was published from then on: nothing is missing before it."""
        for name, stream in self._streams.items():
            if stream.opened >= reader.opened or name in reader.owed or not _wants(reader, stream):
                continue
            owed = stream.since(reader.opened)
            if owed is None:
                continue
            reader.owed[name] = owed
            place = reader.places.get(name)
            if place is not None and owed < place.begin:
                place.got.missing.insert(0, (owed, place.begin))
            elif place is None:
                reader.places[name] = Place.at(owed)


def _wants(reader: Reader, stream: Stream) -> bool:
    return reader.queue == stream.queue and stream.topic.startswith(reader.prefix)
