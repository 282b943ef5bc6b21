"""Whether what came out is what went in: counts and digests, stream by stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roq.demo.report import Finished, Stream


@dataclass(frozen=True, slots=True)
class Row:
    """One stream, and for each subscriber whether it got exactly that, in order."""

    sent: Stream
    received: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
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


def compare(publishers: Sequence[Finished], subscribers: Sequence[Finished]) -> Verdict:
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
    return Verdict(rows, sum(len(streams.keys() - sent.keys()) for streams in got))
