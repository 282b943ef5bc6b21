"""The statistics stream of a queue: what its monitor publishes every KPI period.

Two kinds of messages share one PUB socket, and every frame of both is a BSON document, so a reader
that subscribes to everything and knows only the old ones never meets a frame it cannot decode.

    old consoles    {CMD 20, X_ID, QName} {CMD 21, Minute, TotalProcessed, …} {CMD 22, CPU, MEMORY}
                    {CMD 23, QName, XChanges, Producers, Throughput}
                    {CMD 31, QName, Minute, TotalReceived, Received, SubsriberID, MeanLat}
                    `CMD` is an int32, everything else a string
    programs        {CMD 40} {CMD 41 | 42 | 43 | 44 | 45, numbers…}

The first frame of the second kind is always the same 14 bytes, `NUMERIC_TOPIC`: subscribe to them
to get the numeric documents alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from roq.errors import RemoteProtocolError
from roq.number_ranges import Amount, ChildEpoch, ExchangeNumber, Real, Whole
from roq.protocol import documents
from roq.protocol.requesting import DiscardCounts, Durations

FRAMES_MAX: Final = 4
"""Frames of one message; anything longer is not ours."""

NUMERIC_TOPIC: Final = documents.encode_raw({"CMD": 40})
"""First frame of every numeric message; a subscription to these bytes matches nothing else."""


class Kpi(msgspec.Struct, frozen=True, kw_only=True, tag_field="CMD"):
    """Base of all documents of the stream."""


# --- what old consoles read: names and types are theirs -------------------------------------------


class OldExchange(Kpi, frozen=True, kw_only=True, tag=20):
    """Which exchange the next two frames speak of."""

    X_ID: str
    QName: str


class OldCounts(Kpi, frozen=True, kw_only=True, tag=21):
    """Messages and payload bytes of one exchange."""

    Minute: str
    """Whole minutes since the exchange is known."""
    TotalProcessed: str
    """Messages since its start."""
    Processed: str
    """Messages in this KPI period."""
    TotalThroughput: str
    """Payload bytes since its start."""
    Throughput: str
    """Payload bytes in this KPI period."""
    Producers: str


class OldUsage(Kpi, frozen=True, kw_only=True, tag=22):
    """What the exchange costs its host."""

    CPU: str
    """Percent of one core."""
    MEMORY: str
    """MB."""


class OldQueue(Kpi, frozen=True, kw_only=True, tag=23):
    """The queue as a whole."""

    QName: str
    XChanges: str
    Producers: str
    Throughput: str
    """Payload bytes in this KPI period, all exchanges."""


class OldSubscriber(Kpi, frozen=True, kw_only=True, tag=31):
    """One subscriber, as it tells about itself."""

    QName: str
    Minute: str
    TotalReceived: str
    Received: str
    """Messages since the last document about this subscriber."""
    SubsriberID: str
    """Spelled as the old consoles spell it."""
    MeanLat: str
    """Milliseconds."""


# --- what programs read ---------------------------------------------------------------------------


class NumericHeader(Kpi, frozen=True, kw_only=True, tag=40):
    """The first frame of a numeric message."""


class PublisherRate(msgspec.Struct, frozen=True, kw_only=True):
    """What one busy publisher brings to an exchange."""

    publisher: str
    """Publisher id in hexadecimal digits."""
    messages: Whole
    """Since it joined the exchange."""
    bytes: Whole
    messages_per_second: Amount
    bytes_per_second: Amount
    name: str = ""
    """As it calls itself; empty: it has not told."""


class ExchangeKpi(Kpi, frozen=True, kw_only=True, tag=41):
    """One exchange: rates over the last seconds, totals since its start."""

    queue: str
    queue_id: bytes
    exchange: str
    number: ExchangeNumber
    epoch: ChildEpoch
    host: str
    uptime_seconds: Amount
    """Since this monitor knows the exchange."""
    messages_in_per_second: Amount
    bytes_in_per_second: Amount
    messages_out_per_second: Amount
    bytes_out_per_second: Amount
    messages_in: Whole
    bytes_in: Whole
    messages_out: Whole
    bytes_out: Whole
    publishers: Whole
    subscribers: Whole
    cpu_percent: Amount
    memory_bytes: Whole
    ring_bytes: Whole
    end_offset: Whole
    floor_offset: Whole
    malformed: Whole
    duplicates: Whole
    resets: Whole
    fetches: Whole
    acks_pending: Whole = 0
    lag_ms: Amount = 0.0
    """The longest turn of the exchange's loop in the last period."""
    holding: Whole = 0
    """1: its publishers wait for a slow subscriber at the moment."""
    held_seconds: Amount = 0.0
    """For how long they have, all in all."""
    behind: Whole = 0
    """Subscribers that nobody waits for any more until they have caught up."""
    left_behind: Whole = 0
    """How often that has happened."""
    requests_open: Whole = 0
    """Requests to services that have not ended."""
    requests_accepted: Whole = 0
    requests_done: Whole = 0
    requests_failed: Whole = 0
    requests_discarded: Whole = 0
    requests_discarded_by: DiscardCounts = {}
    """By reason; none: 0."""
    requests_otherwise: Whole = 0
    """Cancelled, late or unknown."""
    requests_retried: Whole = 0
    requests_oldest_seconds: Amount = 0.0
    """Age of the oldest one that is open."""
    responses_stored: Whole = 0
    """Outcomes that nobody has fetched yet, and what they take:"""
    responses_bytes: Whole = 0
    responses_fetched: Whole = 0
    responses_expired: Whole = 0
    """Outcomes that nobody has fetched in time."""
    requests_waiting: Durations = Durations()
    """Until requests were handed out, since the exchange has begun."""
    requests_running: Durations = Durations()
    """Until those that were handed out were answered."""
    responses_unfetched: Durations = Durations()
    """Until outcomes were fetched."""
    leaving: bool = False
    """It is being emptied, and will be stopped."""
    top: list[PublisherRate] = []
    others: Whole = 0
    """Publishers that are not in `top`, and what these bring together."""
    others_messages_per_second: Amount = 0.0
    others_bytes_per_second: Amount = 0.0


class QueueKpi(Kpi, frozen=True, kw_only=True, tag=42):
    """The queue as a whole, summed over its exchanges."""

    queue: str
    queue_id: bytes
    monitor_epoch: ChildEpoch
    version: Whole
    """Of the topology."""
    exchanges: Whole
    publishers: Whole
    subscribers: Whole
    waiting: Whole
    """Publishers that wait for an exchange."""
    limit_bytes_per_second: Amount
    """The limit of one exchange."""
    moving: Whole = 0
    """Publishers that are being moved."""
    policy: str = ""
    """Name of the policy that the rules want."""
    policy_errors: Whole = 0
    """Rounds of decisions in which it has raised or decided the impossible."""
    messages_in_per_second: Amount
    bytes_in_per_second: Amount
    messages_out_per_second: Amount
    bytes_out_per_second: Amount


class SubscriberKpi(Kpi, frozen=True, kw_only=True, tag=43):
    """One subscriber, as it tells about itself."""

    queue: str
    queue_id: bytes
    subscriber: str
    """Subscriber id in hexadecimal digits."""
    received: Whole
    received_per_second: Amount
    latency_ms: Real
    lost: Whole


class MoveKpi(Kpi, frozen=True, kw_only=True, tag=44):
    """A publisher is being moved, was moved, or was not."""

    queue: str
    queue_id: bytes
    publisher: str
    """Publisher id in hexadecimal digits."""
    sources: list[ExchangeNumber]
    """Numbers of the exchanges that it leaves."""
    targets: list[ExchangeNumber]
    """Numbers of those that it goes to; several: it is striped."""
    epoch: Whole
    state: str
    """`started`, `accepted`, `failed`, or `given_up` when the publisher never said anything."""
    reason: str
    pause_ms: Amount = 0.0
    """With `accepted`: how long nothing was sent."""
    bytes_per_second: Amount = 0.0


class ScaleKpi(Kpi, frozen=True, kw_only=True, tag=45):
    """An exchange is being added or removed by itself, or could not be."""

    queue: str
    queue_id: bytes
    direction: str
    """`out` or `in`."""
    state: str
    """`started`, `done` or `failed`."""
    reason: str
    number: ExchangeNumber = 0
    """Of the exchange, as soon as it is known."""
    host: str = ""
    seconds: Amount = 0.0
    """With `done`: since the decision."""


OldDocument = OldExchange | OldCounts | OldUsage | OldQueue | OldSubscriber
NumericDocument = ExchangeKpi | QueueKpi | SubscriberKpi | MoveKpi | ScaleKpi
Document = OldDocument | NumericHeader | NumericDocument


def numeric_frames(document: NumericDocument) -> list[bytes]:
    """The message that carries one numeric document."""
    return [NUMERIC_TOPIC, documents.encode(document)]


def old_frames(*parts: OldDocument) -> list[bytes]:
    """The message that carries these documents, one frame each."""
    return [documents.encode(part) for part in parts]


def old_exchange_frames(identity: OldExchange, counts: OldCounts, usage: OldUsage) -> list[bytes]:
    """The three frames that old consoles expect for one exchange, in their order."""
    return old_frames(identity, counts, usage)


def decode(frames: Sequence[bytes]) -> list[Document]:
    """The documents of one message, one per frame.

    Raises:
        RemoteProtocolError: not a message of this stream; says what is wrong.
    """
    if not 0 < len(frames) <= FRAMES_MAX:
        raise RemoteProtocolError(f"a KPI message has 1 to {FRAMES_MAX} frames, not {len(frames)}")
    return [documents.decode(frame, Document) for frame in frames]  # type: ignore[arg-type]


def decode_numeric(frames: Sequence[bytes]) -> NumericDocument:
    """The document of a message that was received on `NUMERIC_TOPIC`.

    Raises:
        RemoteProtocolError: not such a message.
    """
    if len(frames) != 2 or frames[0] != NUMERIC_TOPIC:
        raise RemoteProtocolError("not a numeric KPI message")
    return documents.decode(frames[1], NumericDocument)  # type: ignore[arg-type]


def text(number: float) -> str:
    """A number as old consoles read it: digits, a point only where it has a fraction."""
    return str(number) if isinstance(number, int) else f"{number:.3f}".rstrip("0").rstrip(".")
