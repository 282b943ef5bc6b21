"""What is published to the queue of traces: JSON, one message each, by topic."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from roq.errors import RoQError

KPI_TOPIC: Final = "kpi"
CLIENT_TOPIC: Final = "client"
EVENT_TOPIC: Final = "event"
VERSION: Final = 1
"""Readers count and skip messages of later versions."""

Text = Annotated[str, Meta(max_length=1_024)]
Count = Annotated[int, Meta(ge=0)]


class BadTrace(RoQError):
    """A message of the queue of traces is not a trace; the text says why."""


class Trace(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base: who tells it, and when.

    Attributes:
        run: id of the run.
        time_us: microseconds since 1970, by the clock of the driver.
        source: who tells it; numbers of one source have no holes.
        number: counts the traces of a source, from 0.
    """

    version: int = VERSION
    run: Text
    time_us: Count
    source: Text
    number: Count


class KpiTrace(Trace, frozen=True, kw_only=True, tag="kpi"):
    """One numeric document of the statistics stream, as it came."""

    document: dict[str, object]
    """With its `CMD`; bytes are base64."""
    dropped: Count = 0
    """Documents that the tap has lost since its beginning, as far as it knows."""


class ClientTrace(Trace, frozen=True, kw_only=True, tag="client"):
    """What one client did in one window. Nothing is told of windows in which it did nothing.

    There may be several about one window of one client: what came later than others is told later.
    They add up.

    Attributes:
        client: its name; the same throughout the run.
        role: publisher or subscriber.
        begin_us: of the window, by the clock of the driver. A message belongs to the window in
            which it was meant to be sent.
        seconds: length of the window.
        messages, bytes: published, or received.
        late: of a publisher: messages that were published more than 10 ms after they should.
        failed: of a publisher: messages that were given up; of a subscriber: reported as lost.
        doubled, reordered: of a subscriber.
        latency: of a subscriber: from the moment at which a message should have been published
            until it was received; of a publisher: until `publish()` had returned. Bucket → count,
            see `roq.demo.latency.Histogram`.
        latency_sum: seconds, the sum of all of them.
        clock_error: seconds by which the times of this client may be wrong.
    """

    client: Text
    role: Literal["publisher", "subscriber"]
    begin_us: Count
    seconds: Annotated[float, Meta(gt=0)]
    messages: Count = 0
    bytes: Count = 0
    late: Count = 0
    failed: Count = 0
    doubled: Count = 0
    reordered: Count = 0
    latency: dict[str, Count] = {}
    latency_sum: Annotated[float, Meta(ge=0)] = 0.0
    clock_error: Annotated[float, Meta(ge=0)] = 0.0


class EventTrace(Trace, frozen=True, kw_only=True, tag="event"):
    """Something that the driver did or saw; names of `archive.document.EventKind`."""

    event: Text
    exchange: Count = 0
    text: Text = ""


AnyTrace = KpiTrace | ClientTrace | EventTrace

_DECODER: Final = msgspec.json.Decoder(AnyTrace)
_ENCODER: Final = msgspec.json.Encoder()


def encode(trace: AnyTrace) -> bytes:
    """The payload of a trace."""
    return _ENCODER.encode(trace)


def decode(payload: bytes) -> AnyTrace:
    """The trace in a payload.

    Raises:
        BadTrace: it is none, or one of a later version.
    """
    try:
        trace: AnyTrace = _DECODER.decode(payload)
    except msgspec.DecodeError as error:
        raise BadTrace(f"not a trace: {error}") from None
    if trace.version > VERSION:
        raise BadTrace(f"a trace of version {trace.version}, written by a later RoQ")
    return trace
