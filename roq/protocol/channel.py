"""The messages on the two sockets of an exchange, beside the batches themselves.

**data** (ROUTER; publishers and readers connect a DEALER). The first frame of a batch is its topic,
which is UTF-8; the first frame of anything else is 0xFF and one letter. After it comes one BSON
document, or the binary body where the table says so. What an exchange sends travels as one frame:
`roq.protocol.framing`.

    publisher → exchange                        exchange → publisher
    [FF H] Hello                                [FF R] Ready        (Hello accepted)
    [topic][batch]                              [FF A] <u64 runs    cumulative link number
                                                [FF Y] <u64         synced up to this link number
    [FF C] Claim                                [FF C] Claimed      a named publisher was opened
    [FF B] Bye                                  [FF X] Reset        replay from `expected`
                                                [FF N] Refused      Hello or one batch refused
                                                [FF W] Held         acks wait for a slow reader

    reader → exchange                           exchange → reader
    [FF h] HeadsRequest                         [FF h] Heads
    [FF s] StreamsRequest                       [FF s] Streams
    [FF t] SeekRequest                          [FF t] Seek
    [FF p] Position                             [FF p] Reading
    [FF K] FindRequest                          [FF K] KeyPlaces
    [FF f] FetchRequest                         [FF d] <u64 id, topic, entry, batch   (0..n)
                                                [FF D] <u64 id, topic, entry; then [batch]
                                                [FF f] Fetched

`runs` stand in an ACK only if the Hello has asked for them (`places`): where the batches lie in the
log, each run as three <u64: link number and offset of its first batch, and how many batches follow
each other both by link number and by offset, this one included.

A request that the exchange cannot read is answered with [FF N] Refused (link_number 0).

Several readers may share a connection. Each then puts four bytes of its own behind the letter of a
request, and everything that answers it has the same four behind its letter.

**live** (XPUB; readers connect a SUB). Topic, entry and batch; control topics are 0xFF and
a letter: `FF E` carries END entries (every half second), and each reader subscribes to `FF S` + 16
random bytes of its own. Subscriptions made before a connect travel in byte order, so that one
arrives last; the PRESENCE entry that the exchange publishes on it proves that all filters are in
place.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Annotated, Final

import msgspec

from roq.errors import RemoteProtocolError
from roq.model import NO_LOG, LogId
from roq.number_ranges import ChildEpoch, ExchangeNumber, Offset, Whole
from roq.protocol.batch import LOGS_MAX
from roq.protocol.version import WIRE_VERSION

CONTROL: Final = 0xFF

HELLO: Final = b"\xffH"
READY: Final = b"\xffR"
ACK: Final = b"\xffA"
SYNCED: Final = b"\xffY"
"""Of an exchange that acknowledges ahead of its disk: what is on it by now."""
RESET: Final = b"\xffX"
REFUSED: Final = b"\xffN"
HELD: Final = b"\xffW"
BYE: Final = b"\xffB"
CLAIM: Final = b"\xffC"
HEADS: Final = b"\xffh"
STREAMS: Final = b"\xffs"
SEEK: Final = b"\xfft"
POSITION: Final = b"\xffp"
FIND: Final = b"\xffK"
FETCH: Final = b"\xfff"
FETCHED_ENTRY: Final = b"\xffd"
FETCHED_LARGE: Final = b"\xffD"
"""As FETCHED_ENTRY, but the batch is the next message: it is sent as it lies in the log."""

END_TOPIC: Final = b"\xffE"
PRESENCE_TOPIC: Final = b"\xffS"
NONCE_BYTES: Final = 16
READER_BYTES: Final = NONCE_BYTES - 1
"""What of a nonce stays the same when a reader subscribes to another one: its last bytes."""

NUMBER: Final = Struct("<Q")
"""A link number: the body of SYNCED, and what begins that of ACK. A request id: what begins that of
FETCHED_ENTRY."""
_RUN: Final = Struct("<QQQ")
Run = tuple[int, int, int]
"""Link number and offset of the first batch, and the number of batches."""

PREFIXES_MAX: Final = 64
WANTS_MAX: Final = 256
READER_TAG_BYTES: Final = 4
"""Behind the letter: which of the readers that share a connection."""
READERS_PER_CONNECTION_MAX: Final = 256
"""So many of them are served at once."""
FETCH_BYTES_MAX: Final = 4 * 1024 * 1024
PAGE_MAX: Final = 1_000
STREAMS_PER_HELLO_MAX: Final = 65_536
EARLIER_IDS_MAX: Final = 7
SLOWEST_BYTES_PER_SECOND: Final = 4 * 1024 * 1024
"""A network that is slower than this may not get the largest messages through."""


def transfer_seconds(message_bytes: int) -> float:
    """How long so many bytes may be on their way, without a sign of life, before one worries."""
    return message_bytes / SLOWEST_BYTES_PER_SECOND


def read_number(frame: bytes) -> int:
    """The link number of an ACK.

    Raises:
        RemoteProtocolError: another size.
    """
    if len(frame) % _RUN.size != NUMBER.size:
        raise RemoteProtocolError(
            f"an acknowledgement has {NUMBER.size} bytes and {_RUN.size} for each run, "
            f"this one {len(frame)}"
        )
    number: int = NUMBER.unpack_from(frame)[0]
    return number


def pack_runs(runs: Iterable[Run]) -> bytes:
    """What stands behind the link number of an ACK."""
    return b"".join(_RUN.pack(*run) for run in runs)


def read_runs(frame: bytes) -> list[Run]:
    """The runs of an ACK that `read_number` has read."""
    return list(_RUN.iter_unpack(memoryview(frame)[NUMBER.size :]))


class StreamState(msgspec.Struct, frozen=True, array_like=True):
    """Where one topic of a publisher stands, in Hello."""

    topic: bytes
    first: Whole
    """Sequence of the first message that this link may carry."""
    idle_us: Whole
    """How long ago the newest message before `first` was acknowledged; 0 if there is none."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of each connection of a publisher."""

    version: Whole = WIRE_VERSION
    queue: bytes
    """Queue id, 16 bytes: an exchange of another queue refuses."""
    publisher: bytes
    epoch: Whole
    attempt: Whole
    """Rises with each connection of this publisher; the newest connection owns the link."""
    streams: list[StreamState] = []
    places: Whole = 0
    """The lowest link number whose offset it wants to be told; 0: it wants none."""
    incarnation: Whole = 0
    """Of a named publisher: a later one has a higher number, and lower ones are refused."""
    logs: Annotated[list[LogId], msgspec.Meta(max_length=LOGS_MAX)] = []
    """Other logs into which it has published before."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """Hello accepted: send from `expected` on."""

    exchange: ExchangeNumber
    exchange_epoch: ChildEpoch
    generation: ChildEpoch
    """Of the exchange's log."""
    expected: Whole
    """Link number that the exchange wants next, the first that its log has not committed. If it was
    acknowledged, and not by a log that runs `ahead`, the publisher goes on under a higher epoch."""
    message_bytes: Whole
    batch_bytes: Whole
    batch_messages: Whole
    window_bytes: Whole
    window_batches: Whole
    taken: Whole = 0
    """Up to this link number its log has everything, though perhaps not committed: what was sent
    up to there keeps its numbers. Below `expected` it says nothing."""
    durable: bool = False
    """What is acknowledged outlives the exchange: it is not to be sent elsewhere as well."""
    ahead: bool = False
    """A power cut may take what is acknowledged, until it is told to be synced: the publisher keeps
    it for as long, and sends again what Ready does not know any more."""
    places: list[tuple[Whole, Offset, Whole]] = []
    """Runs of batches from `Hello.places` on, as in ACK, as far as the exchange remembers them."""


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """A link number was skipped: replay from `expected`. 0 means: say Hello on a new connection."""

    expected: Whole
    text: str = ""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A Hello, a batch or a request is not accepted.

    `link_number` 0 means the whole link (or request). Otherwise this batch: the publisher puts a
    VOID batch in its place, which is not refused, and replays from it. Codes: `version`,
    `foreign_queue`, `stale_epoch`, `full`, `moved`, `fenced`, `forgotten`, `stopping`, `too_large`,
    `topics`, `malformed`, `invalid_request`. After `forgotten` the publisher comes back under a
    higher epoch: what it has sent under this one stands in the log, and nobody knows how far it
    came.
    """

    code: str
    text: str
    link_number: Whole = 0
    addresses: list[str] = []
    """With `moved`: the data addresses where the publisher publishes now, as far as known."""


class Bye(msgspec.Struct, frozen=True, kw_only=True):
    """The publisher leaves this exchange; `epoch` is its epoch at the next one (0: it closes)."""

    publisher: bytes
    epoch: Whole = 0


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A publisher of this name was opened: nothing of an earlier one is to be taken any more."""

    queue: bytes
    publisher: bytes
    incarnation: Whole
    earlier: list[bytes] = []
    """The ids that the name had in former lives of the queue."""


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """How far the streams of this publisher have come in the log."""

    incarnation: Whole
    """The highest one that the exchange knows: if it is higher than that of the claim, the claim
    does not count."""
    streams: list[tuple[bytes, Whole]]
    """(topic, sequence after the highest one)."""
    committed: bool
    """Whether the log has committed all of it; if not, ask again."""
    earlier: list[tuple[bytes, Whole]] = []
    """Likewise, the highest of the earlier ids."""
    log: LogId = NO_LOG


class HeadsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which topics under `prefixes` have a batch at or above offset `since`?"""

    id: Whole
    queue: bytes
    prefixes: list[bytes]
    since: Whole


class Heads(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, in order of offset; `end` was taken when the request was handled."""

    id: Whole
    generation: ChildEpoch
    end: Offset
    floor: Offset
    """Lowest offset that can still be fetched."""
    heads: list[tuple[bytes, Offset]]
    """Topic and offset of its newest batch."""
    more: bool = False
    """Ask again with `since` = the last offset of this page + 1."""


class StreamsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which (publisher, topic) streams are known under `prefixes`? Pages begin after `after`."""

    id: Whole
    queue: bytes
    prefixes: list[bytes]
    after: Whole = 0
    """Position of the page: `next` of the page before."""


class Streams(msgspec.Struct, frozen=True, kw_only=True):
    """One page of streams: (publisher id, topic, next sequence)."""

    id: Whole
    generation: ChildEpoch
    streams: list[tuple[bytes, bytes, Whole]]
    next: Whole = 0
    """0: this was the last page."""


class SeekRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which offset has the first batch appended at or after this time (µs UTC)?"""

    id: Whole
    queue: bytes
    time_us: Whole


class Seek(msgspec.Struct, frozen=True, kw_only=True):
    """The offset; the end of the log if nothing is that new."""

    id: Whole
    generation: ChildEpoch
    offset: Offset
    end: Offset
    floor: Offset


class FindRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Where may batches with a message of this key be, below `before`? The newest first."""

    id: Whole
    queue: bytes
    generation: ChildEpoch
    key: Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
    """`roq.protocol.columns.key_hash` of it: who asks looks at the keys themselves."""
    before: Whole


class KeyPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """The answer; a range that no index knows of is given as a whole."""

    id: Whole
    generation: ChildEpoch
    places: list[tuple[Offset, Offset]]
    """Ranges [first, behind the last), each below the one before."""
    reached: Offset
    """Nowhere else from here on; ask again with `before` = this, unless it is the floor."""
    floor: Offset


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Send the batches of these topics; each want is (topic, from offset, up to but without).

    With `prefixes` there are no wants, but a part of the log as it stands: every batch at or above
    `first` and below `until` whose topic begins with one of them (an empty one: with anything).
    """

    id: Whole
    queue: bytes
    generation: ChildEpoch
    wants: list[tuple[bytes, Whole, Whole]] = []
    max_bytes: Whole = 1024 * 1024
    prefixes: list[bytes] = []
    first: Whole = 0
    until: Whole = 0


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """All that this request brings was sent before; entries come in order of offset."""

    id: Whole
    generation: ChildEpoch
    reached: Offset
    """Everything wanted below this offset was sent or is gone: ask again from here."""
    floor: Offset
    done: bool
    """Nothing wanted is left at or above `reached`."""
    evicted: Offset = 0
    """Of a part of the log: offsets that had left it before they were looked at."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a subscriber has read; and what is there in a part of the log, if it asks.

    A subscriber that reports is waited for near the end of the ring; a mere reader does not report.
    """

    id: Offset
    queue: bytes
    generation: Offset
    reader: bytes
    """The last 15 bytes of its presence topic."""
    name: bytes = b""
    """The subscriber's id, for people."""
    read: Offset
    """Everything that it wants below this offset was received, or is known to be gone."""
    prefixes: list[bytes] = []
    since: Offset = 0
    """Which topics have batches from this offset on,"""
    until: Offset = 0
    """and below this one? 0: it does not ask."""
    leaves: bool = False
    """It reads no more, and is not waited for from now on; not answered."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a position."""

    id: Offset
    generation: Offset
    floor: Offset
    until: Offset = 0
    """As in the question, or the end of the log."""
    heads: list[tuple[bytes, Offset]] = []
    """Topic and offset of its newest batch below `until`, in order of offset."""
    next: Offset = 0
    """Where the next page begins; 0: this was the last one."""
    behind: bool = False
    """It was waited for long enough: it is not waited for any more, until it has caught up."""
    near: bool = True
    """Publishers wait for a reader, so each step counts. Else there is time to report."""


HELD_SECONDS_MAX: Final = 86_400.0


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Batches are taken, or will be asked for again; acks wait until a slow reader has read on.

    Told twice a second. Meanwhile the exchange is well.
    """

    reader: bytes
    """Id of the slowest subscriber."""
    seconds: Annotated[float, msgspec.Meta(ge=0, le=HELD_SECONDS_MAX)]
    """For how long it has been waited for."""
    most: Annotated[float, msgspec.Meta(ge=0, le=HELD_SECONDS_MAX)]
    """After so long it is not waited for any more."""
    disk: bool = False
    """It is no subscriber that is waited for, but the disk of the exchange."""
    group: bool = False
    """It is a consumer group, `reader` the beginning of its name: it is waited for for ever."""
    full: str = ""
    """Why that has no room: `disk_full`, and where; empty: it has, and is at work."""
    accepted: Whole = 0
    """With `disk`: the exchange has the batches up to this link number; its disk has not confirmed
    those that are not acknowledged."""
