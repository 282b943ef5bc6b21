"""What all tasks have counted, put together: what was lost, doubled and reordered; pure.

A message is lost at a subscriber if it was published, the subscriber was owed it, and it has not
come. What its publisher was told to have failed (or what is not known to have arrived) is not lost
but failed: so many of what is missing of that stay are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from roq.demo.latency import Histogram
from roq.simulation.lab.live.plan import Plan, SubscriberStay
from roq.testing.positions import Span, first_of, lost

WRONG_MAX: Final = 20
PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}


class StreamTally(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one subscriber got of one stream; see `roq.testing.positions.Positions`.

    Attributes:
        source: stay of the publisher.
        topic: of the stream.
    """

    source: int
    topic: str
    next: int
    missing: list[Span]
    doubled: int
    reordered: int

    def lost(self, begin: int, end: int) -> int:
        """How many of the numbers [begin, end) have not come."""
        return lost(self.missing, self.next, begin, end)

    @property
    def first(self) -> int:
        """The lowest number that came."""
        return first_of(self.missing)


class SentTally(msgspec.Struct, frozen=True, kw_only=True):
    """What one stay of a publisher has published.

    Attributes:
        source: the stay.
        topics: messages by topic; numbers of a topic are those below.
        marks: the same at each mark of the plan, of what was meant to be sent before it; empty if
            it had not begun by then.
        messages, bytes: all of it.
        late: published more than 10 ms after they should.
        late_most: seconds; the latest.
        unsent: were due, but not published when it ended.
        failed: given up, or not known to have arrived.
        latency, latency_sum, latency_most: until `publish()` had returned.
    """

    source: int
    topics: dict[str, int] = {}
    marks: list[dict[str, int]] = []
    messages: int = 0
    bytes: int = 0
    late: int = 0
    late_most: float = 0.0
    unsent: int = 0
    failed: int = 0
    latency: dict[str, int] = {}
    latency_sum: float = 0.0
    latency_most: float = 0.0


class ReceivedTally(msgspec.Struct, frozen=True, kw_only=True):
    """What one stay of a subscriber has got.

    Attributes:
        name, begins: of the stay.
        in_force: when it was in force; seconds since the load began, may be negative.
        streams: one by one.
        messages, bytes: all that came.
        foreign: messages that are not of this run.
        reported: messages that the subscriber has reported as lost.
        latency, latency_sum, latency_most: from when it should have been sent until it came.
    """

    name: str
    begins: float
    in_force: float
    streams: list[StreamTally] = []
    messages: int = 0
    bytes: int = 0
    foreign: int = 0
    reported: int = 0
    latency: dict[str, int] = {}
    latency_sum: float = 0.0
    latency_most: float = 0.0


class TaskTally(msgspec.Struct, frozen=True, kw_only=True):
    """What one task has counted, or why it could not.

    Attributes:
        task: its number.
        trouble: why it could not go on; empty if all went well.
        cpu_seconds: of its process, while the load went on.
    """

    task: int
    trouble: str = ""
    sent: list[SentTally] = []
    received: list[ReceivedTally] = []
    cpu_seconds: float = 0.0
    host: str = ""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """All subscribers together, in messages.

    Attributes:
        sent: once for each message; `owed` once for each subscriber that was to get it.
        unjudged: subscribers that were in force later than they should have been: what they are
            owed begins with the first message that they got of a stream.
        wrong: the subscribers and streams where something is wrong, in sentences.
    """

    sent: int
    owed: int
    received: int
    lost: int
    doubled: int
    reordered: int
    failed: int
    foreign: int
    reported: int
    late: int
    late_most: float
    unsent: int
    unjudged: list[str] = []
    wrong: list[str] = []


def count(plan: Plan, tallies: Sequence[TaskTally]) -> Counts:
    """Put the tallies of all tasks together."""
    sent = {each.source: each for tally in tallies for each in tally.sent}
    received = [each for tally in tallies for each in tally.received]
    stays = {(each.name, each.begins): each for each in plan.subscribers}
    owed = lacking = 0
    unjudged, wrong = [], []
    for subscriber in received:
        stay = stays[subscriber.name, subscriber.begins]
        late = subscriber.in_force > stay.due_from
        if late:
            unjudged.append(subscriber.name)
        judged = _judged(plan, stay, subscriber, sent.values(), from_first=late)
        for publisher, theirs, missing in judged:
            owed += theirs
            mine = max(0, missing - publisher.failed)
            lacking += mine
            if mine:
                wrong.append(f"{subscriber.name} lacks {mine} of stay {publisher.source}")
        for what in ("doubled", "reordered"):
            number = sum(getattr(each, what) for each in subscriber.streams)
            if number:
                wrong.append(f"{subscriber.name} got {number} {what}")
    return Counts(
        sent=sum(each.messages for each in sent.values()),
        owed=owed,
        received=sum(each.messages for each in received),
        lost=lacking,
        doubled=sum(stream.doubled for each in received for stream in each.streams),
        reordered=sum(stream.reordered for each in received for stream in each.streams),
        failed=sum(each.failed for each in sent.values()),
        foreign=sum(each.foreign for each in received),
        reported=sum(each.reported for each in received),
        late=sum(each.late for each in sent.values()),
        late_most=max((each.late_most for each in sent.values()), default=0.0),
        unsent=sum(each.unsent for each in sent.values()),
        unjudged=unjudged,
        wrong=wrong[:WRONG_MAX],
    )


def figures(
    counts: Counts, tallies: Sequence[TaskTally], *, seconds: float, offered: float
) -> dict[str, float]:
    """The figures of a run that follow from tallies alone.

    Args:
        counts: of these tallies.
        tallies: of all tasks.
        seconds: how long the load lasted.
        offered: messages that were to be sent in that time.
    """
    sent = [each for tally in tallies for each in tally.sent]
    received = [each for tally in tallies for each in tally.received]
    found: dict[str, float] = {
        "sent": counts.sent,
        "received": counts.received,
        "failed": counts.failed,
        "messages_per_second": counts.sent / seconds,
        "bytes_per_second": sum(each.bytes for each in sent) / seconds,
        "received_messages_per_second": counts.received / seconds,
        "load_reached": counts.sent / offered if offered else 1.0,
        "generator_late_share": counts.late / max(1, counts.sent),
        "generator_late_most_ms": 1000 * counts.late_most,
        "unsent": counts.unsent,
        "generator_cpu_seconds": sum(each.cpu_seconds for each in tallies),
    }
    if received:
        found |= {
            "lost": counts.lost,
            "doubled": counts.doubled,
            "reordered": counts.reordered,
            "foreign": counts.foreign,
            "reported_lost": counts.reported,
        }
        found |= latency_figures("latency", received)
    return found | latency_figures("publish_latency", sent)


def latency_figures(
    name: str, tallies: Sequence[SentTally] | Sequence[ReceivedTally]
) -> dict[str, float]:
    """Mean, percentiles and the most of all of them together; nothing if there is none."""
    histogram = Histogram()
    for each in tallies:
        histogram.merge(Histogram(each.latency))
    messages = sum(sum(each.latency.values()) for each in tallies)
    if not messages:
        return {}
    most = max(each.latency_most for each in tallies)
    found = {f"{name}_mean_ms": 1000 * sum(each.latency_sum for each in tallies) / messages}
    for label, percent in PERCENTILES.items():
        # A bucket is 2 % wide: its middle may lie above the highest value.
        found[f"{name}_{label}_ms"] = 1000 * min(histogram.percentile(percent), most)
    found[f"{name}_max_ms"] = 1000 * most
    return found


def _judged(
    plan: Plan,
    stay: SubscriberStay,
    subscriber: ReceivedTally,
    sent: Iterable[SentTally],
    *,
    from_first: bool,
) -> Iterator[tuple[SentTally, int, int]]:
    """For each publisher: how many messages the subscriber was owed, and how many it lacks."""
    streams = {(each.source, each.topic): each for each in subscriber.streams}
    for publisher in sent:
        owed = missing = 0
        begin = _numbers_at(plan, publisher, stay.due_from)
        end = _numbers_at(plan, publisher, stay.due_until)
        for topic, last in end.items():
            if not topic.startswith(stay.topic):
                continue
            first = begin.get(topic, 0)
            found = streams.get((publisher.source, topic))
            if from_first:
                first = max(first, found.first if found is not None else last)
            owed += max(0, last - first)
            missing += found.lost(first, last) if found is not None else max(0, last - first)
        yield publisher, owed, missing


def _numbers_at(plan: Plan, publisher: SentTally, when: float) -> dict[str, int]:
    """How many messages of each topic a stay was to have published by a moment."""
    if when <= 0:
        return {}
    if when >= plan.seconds:
        return publisher.topics
    place = plan.marks.index(when)
    # Who has gone before a mark has noted nothing there: all that it has sent was before.
    return publisher.marks[place] if place < len(publisher.marks) else publisher.topics
