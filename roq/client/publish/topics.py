"""The topics that one publisher has used, each a stream of sequences. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from roq.errors import InvalidRequest
from roq.model import encode_topic
from roq.protocol.channel import STREAMS_PER_HELLO_MAX, StreamState

IDLE_MAX_US: Final = 1 << 62
_EVER: Final = -1e15


class Stream:
    """One topic of one publisher.

    Attributes:
        topic: as people see it.
        data: as it travels.
        next_sequence: of the next message to be sealed.
        acked_at: when a batch of it was acknowledged last.
        unacked: first sequences of what is not acknowledged; None unless the publisher is striped.
    """

    __slots__ = ("acked_at", "data", "next_sequence", "topic", "unacked")

    def __init__(self, topic: str, data: bytes) -> None:
        self.topic = topic
        self.data = data
        self.next_sequence = 0
        self.acked_at = 0.0
        self.unacked: dict[int, None] | None = None


NOTHING: Final[Mapping[Stream, int]] = {}


class Topics:
    """Streams by topic, at most as many as the queue allows."""

    def __init__(self, most: int) -> None:
        self._streams: dict[str, Stream] = {}
        self.allow(most)

    def allow(self, most: int) -> None:
        """So many from now on; those that are there stay."""
        self._most = min(most, STREAMS_PER_HELLO_MAX)

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams.values())

    def stream(self, topic: str) -> Stream:
        """The stream of a topic, new if the topic is.

        Raises:
            InvalidName: no valid topic.
            InvalidRequest: more topics than the queue allows.
        """
        stream = self._streams.get(topic)
        if stream is None:
            data = encode_topic(topic)
            if len(self._streams) >= self._most:
                raise InvalidRequest(
                    f"this publisher has used {self._most} topics already: topics are for routing, "
                    "put what has many values into the message"
                )
            stream = self._streams[topic] = Stream(topic, data)
        return stream

    def resume(self, streams: Mapping[str, int], taken_over: Mapping[str, int]) -> None:
        """Go on with these sequences; before anything is published.

        Args:
            streams: those of this publisher.
            taken_over: of another one: below them this publisher has nothing, and never had.
        """
        for topic, following in (*streams.items(), *taken_over.items()):
            stream = self._streams[topic] = Stream(topic, encode_topic(topic))
            stream.next_sequence = following
            if topic in taken_over:
                stream.acked_at = _EVER  # so no subscriber waits for what is below

    def next_sequence(self, topic: str) -> int:
        """The sequence of the next message to be sealed; 0 for a topic that was never used."""
        stream = self._streams.get(topic)
        return 0 if stream is None else stream.next_sequence

    def heads(self) -> dict[Stream, int]:
        """The next sequence of each stream."""
        return {stream: stream.next_sequence for stream in self._streams.values()}

    def states(
        self,
        firsts: Mapping[Stream, int],
        now: float,
        since: Mapping[Stream, int] = NOTHING,
    ) -> list[StreamState]:
        """What a Hello says of each stream that has sealed anything.

        Args:
            firsts: the lowest sequence that the link may carry, where it is not the next one.
            now: to tell how long ago the stream was acknowledged last.
            since: former `heads`: streams that have not moved since then are left out.
        """
        return [
            StreamState(
                topic=stream.data,
                first=firsts.get(stream, stream.next_sequence),
                idle_us=_idle_us(stream.acked_at, now),
            )
            for stream in self._streams.values()
            if stream.next_sequence != since.get(stream, 0)
        ]


def _idle_us(acked_at: float, now: float) -> int:
    if acked_at == 0.0:
        return 0
    return min(IDLE_MAX_US, max(1, int((now - acked_at) * 1_000_000)))
