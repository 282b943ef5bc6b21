"""What a worker says to the process that started it: one JSON document a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec


class StreamDigest(msgspec.Struct, frozen=True, kw_only=True):
    """All messages of one publisher and one topic, in order."""

    publisher: str
    """Hexadecimal."""
    topic: str
    messages: int
    bytes: int
    sha256: str
    """Of the payloads, one after the other."""


class _Report(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    pass


class Ready(_Report, frozen=True, kw_only=True, tag="ready"):
    """Connected; a subscription is in force."""


class Progress(_Report, frozen=True, kw_only=True, tag="progress"):
    """So much until now."""

    messages: int
    bytes: int


class Calm(_Report, frozen=True, kw_only=True, tag="calm"):
    """A publisher has sent the lines that go one by one, and all are acknowledged."""


class WorkerFinished(_Report, frozen=True, kw_only=True, tag="finished"):
    """All is done."""

    streams: list[StreamDigest]
    first: float
    """When the first message at full speed was sent or received, seconds since 1970."""
    last: float
    calm_latency: dict[str, int] = {}
    """Creation to receipt of the lines that went one by one, `roq.demo.latency.Histogram`;
    subscribers only."""
    latency: dict[str, int] = {}
    """The same at full speed."""
    lost: int = 0
    duplicates: int = 0


Report: TypeAlias = Ready | Progress | Calm | WorkerFinished

_decoder = msgspec.json.Decoder(Report)


def encode(report: Report) -> bytes:
    """One line."""
    return msgspec.json.encode(report) + b"\n"


def decode(line: bytes) -> Report:
    """The document of one line.

    Raises:
        msgspec.DecodeError: it is none; a worker's own output is at fault then.
    """
    decoded: Report = _decoder.decode(line)
    return decoded


# Whether what came out is what went in: counts and digests, stream by stream.


@dataclass(frozen=True, slots=True)
class Row:
    """One stream, and for each subscriber whether it got exactly that, in order."""

    sent: StreamDigest
    received: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of all streams.

    Attributes:
        rows: every stream that was published.
        strays: streams that a subscriber got and nobody published.
    """

    rows: tuple[Row, ...]
    strays: int

    @property
    def equal(self) -> bool:
        """Whether every subscriber got everything that was sent, in order, and nothing else."""
        return bool(self.rows) and not self.strays and all(all(r.received) for r in self.rows)


def compare(
    publishers: Sequence[WorkerFinished], subscribers: Sequence[WorkerFinished]
) -> Comparison:
    """Compare what the publishers sent with what each subscriber got."""
    sent = {
        (stream.publisher, stream.topic): stream
        for publisher in publishers
        for stream in publisher.streams
    }
    got = [
        {(stream.publisher, stream.topic): stream for stream in subscriber.streams}
        for subscriber in subscribers
    ]
    rows = tuple(
        Row(stream, tuple(streams.get(key) == stream for streams in got))
        for key, stream in sorted(sent.items())
    )
    return Comparison(rows, sum(len(streams.keys() - sent.keys()) for streams in got))
