"""Which sequence each (publisher, topic) has reached in this log.

Readers ask for it when they start, so it outlives the publishers' links; it is capped, and gives up
the streams of the publishers that have been away longest. One publisher cannot use it up: its last
part is kept for those that have few.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from roq.model import PublisherId

SCAN_MAX: Final = 20_000
"""Streams that one page may look at."""
SPARE_PARTS: Final = 8
"""The last part of a table that is kept for publishers with few streams, of so many parts."""
FEW_PARTS: Final = 64
"""A publisher has few streams that has less than one of so many parts of a table."""


def spare_of(size: int) -> int:
    """How many places of a table are kept for publishers with few streams."""
    return size // SPARE_PARTS


def few_of(size: int) -> int:
    """With fewer streams than this, a publisher may use what is kept."""
    return max(1, size // FEW_PARTS)


class Stream:
    """One topic of one publisher."""

    __slots__ = ("gone", "next", "publisher", "serial", "topic")

    def __init__(self, serial: int, publisher: PublisherId, topic: bytes) -> None:
        self.serial = serial
        self.publisher = publisher
        self.topic = topic
        self.next = 0
        """The sequence after the highest one in this log."""
        self.gone = False


class StreamTable:
    """All streams, by publisher and in order of their first appearance."""

    def __init__(self, streams_max: int) -> None:
        self._max = streams_max
        self._most = streams_max - spare_of(streams_max)
        self._few = few_of(streams_max)
        self._by_publisher: dict[PublisherId, dict[bytes, Stream]] = {}
        self._away: OrderedDict[PublisherId, None] = OrderedDict()
        self._order: list[Stream] = []
        self._count = 0
        self._serial = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[PublisherId, dict[bytes, Stream]]]:
        """All publishers with their streams by topic, those longest away first."""
        away = list(self._away)
        here = [each for each in self._by_publisher if each not in self._away]
        return ((each, self._by_publisher[each]) for each in away + here)

    def of(self, publisher: PublisherId) -> dict[bytes, Stream]:
        """The streams of a publisher that is here, by topic. Add to it with `add` only."""
        self._away.pop(publisher, None)
        return self._by_publisher.setdefault(publisher, {})

    def left(self, publisher: PublisherId) -> None:
        """The publisher's link is gone; its streams may be given up when room is needed."""
        if self._by_publisher.get(publisher):
            self._away[publisher] = None
            self._away.move_to_end(publisher)
        else:
            self._by_publisher.pop(publisher, None)

    def add(self, publisher: PublisherId, topic: bytes) -> Stream | None:
        """A new stream, or None if the table is full of streams of present publishers.

        For a publisher that has many streams it is full when only the part that is kept is left.
        """
        few = len(self._by_publisher.get(publisher, ())) < self._few
        most = self._max if few else self._most
        while self._count >= most:
            if not self._away:
                return None
            self._forget(self._away.popitem(last=False)[0])
        self._serial += 1
        stream = Stream(self._serial, publisher, topic)
        self._by_publisher.setdefault(publisher, {})[topic] = stream
        self._order.append(stream)
        self._count += 1
        return stream

    def page(
        self, prefixes: tuple[bytes, ...], after: int, most: int
    ) -> tuple[list[tuple[bytes, bytes, int]], int]:
        """Up to `most` streams under the prefixes with a serial above `after`.

        Returns:
            (publisher, topic, next sequence) of each, and the `after` of the next page, 0 if this
            was the last one.
        """
        found: list[tuple[bytes, bytes, int]] = []
        first = bisect_right(self._order, after, key=_serial)
        beyond = min(first + SCAN_MAX, len(self._order))
        for index in range(first, beyond):
            stream = self._order[index]
            if stream.gone or not stream.topic.startswith(prefixes):
                continue
            found.append((stream.publisher, stream.topic, stream.next))
            if len(found) == most:
                beyond = index + 1
                break
        return found, self._order[beyond - 1].serial if first < beyond < len(self._order) else 0

    def check(self) -> None:
        """Assert the invariants."""
        present = [stream for stream in self._order if not stream.gone]
        tabled = [stream for topics in self._by_publisher.values() for stream in topics.values()]
        assert len(present) == self._count <= self._max  # noqa: S101
        assert {id(stream) for stream in present} == {id(s) for s in tabled}  # noqa: S101
        assert self._away.keys() <= self._by_publisher.keys()  # noqa: S101
        serials = [stream.serial for stream in self._order]
        assert serials == sorted(set(serials))  # noqa: S101

    def _forget(self, publisher: PublisherId) -> None:
        streams = self._by_publisher.pop(publisher)
        for stream in streams.values():
            stream.gone = True
        self._count -= len(streams)
        if len(self._order) > 2 * self._count + 1_000:
            self._order = [stream for stream in self._order if not stream.gone]


def _serial(stream: Stream) -> int:
    return stream.serial
