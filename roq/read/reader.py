"""Reads one exchange to its end and for ever, whatever the network does: pure.

    fan-out (SUB)    batches, END every half second, PRESENCE once the filters are in place
    data (DEALER)    HEADS: what should I have? FETCH: send it. STREAMS, SEEK: where do I start?

A batch that the fan-out has dropped shows by the chain of offsets
(`roq.read.offset_chain`) or, if it was the last of its topic, by HEADS
(`roq.read.verification`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from roq.errors import RemoteProtocolError
from roq.machine import Tick
from roq.model import ExchangeInfo
from roq.number_ranges import OFFSET_MAX
from roq.protocol import channel, documents
from roq.protocol.channel import (
    FETCH,
    FETCHED_ENTRY,
    HEADS,
    POSITION,
    SEEK,
    STREAMS,
    FetchRequest,
    read_number,
)
from roq.protocol.entry import (
    ENTRY,
    ENTRY_BYTES,
    ENTRY_KINDS,
    FIRST_KINDS,
    MAGIC,
    NONE,
    EntryKind,
    read_entry,
)
from roq.protocol.version import WIRE_VERSION
from roq.read.events import (
    Answered,
    Ask,
    BelowFloor,
    Confirmed,
    DataDown,
    DataUp,
    Effect,
    Event,
    From,
    Gone,
    Pause,
    Refetch,
    Resume,
    Start,
    StreamsFound,
    Subscribe,
    Unsubscribe,
    Verify,
)
from roq.read.log_requests import Inquiry, LogRequests
from roq.read.offset_chain import TRIES_MAX, LogGap, OffsetChain, Want
from roq.read.positions import Positions
from roq.read.verification import Verification

PRESENCE_SECONDS: Final = 1.5
"""Without an answer for so long, the subscription is made again under another nonce."""
FETCH_BYTES: Final = 2 * 1024 * 1024

_ENTRY: Final = int(EntryKind.ENTRY)
_unpack = ENTRY.unpack
_CONTROL: Final = bytes([channel.CONTROL])
_LARGE: Final = frozenset({int(EntryKind.ANNOUNCE), int(EntryKind.FORGOTTEN_ANNOUNCE)})
_FORGOTTEN: Final = frozenset({int(EntryKind.FORGOTTEN), int(EntryKind.FORGOTTEN_ANNOUNCE)})


class Reader:
    """One subscriber's reading of one exchange process.

    Args:
        exchange: who is read, and which log; entries that name another one are dropped and
            counted. Another process may take over, its log being the same.
        queue: the queue's id; likewise.
        prefixes: what is wanted, at most 64.
        start: where to begin.
        nonce: 16 random bytes, for the private presence topic.
        streams: ask which streams there are (at a subscriber's start).
        now: the present time.
        repair: off only in tests that prove what it is good for.

    Attributes:
        queue: its id.
        positions: what the exchange is told of the reading.
        chain: `chain.passed` and `chain.gaps` are emptied by the reader's owner.
        verification: whether everything in the log was passed on.
        live_at: when the fan-out said something last.
        other_version: of the entries that came and could not be read for it; 0: none.
        not_kept: why it does not begin: what it was to begin with is kept no more.
        dirty: something happened in `live` that wants a `Tick`.
        held_back: the fan-out is not read, and the log no further, as others are to catch up first;
            set by the reader's owner, which feeds a `Tick` afterwards.
    """

    def __init__(
        self,
        exchange: ExchangeInfo,
        queue: bytes,
        prefixes: Sequence[bytes],
        start: Start,
        *,
        nonce: bytes,
        streams: bool,
        now: float,
        repair: bool = True,
    ) -> None:
        self.exchange = exchange
        self.chain = OffsetChain()
        self.confirmed = False
        self.present = False
        self.connected = False
        self.dirty = False
        self.held_back = False
        self.verification = Verification(self.chain, now)
        self.floor = 0
        self.foreign = 0
        self.malformed = 0
        self.other_version = 0
        self.refused = 0
        self.queue = queue
        self._number = exchange.number
        self._generation = exchange.generation
        self._prefixes = list(prefixes)[: channel.PREFIXES_MAX]
        self._start = start
        self._repair = repair
        self._nonce = int.from_bytes(nonce[:15], "little")
        self._attempt = 0
        self._presence_at = now + PRESENCE_SECONDS
        self._streams_after: int | None = 0 if streams else None
        self._seek = start.at is From.TIME
        self._paused = False
        self.not_kept = ""
        self.live_at = now
        self._live_position = -1
        self._ended_at = -1
        self._quiet = False
        self.requests = LogRequests(queue)
        self.positions = Positions(
            self.chain, queue, exchange.generation,
            self._nonce.to_bytes(channel.READER_BYTES, "little"), self._prefixes,
        )  # fmt: skip
        self._again: dict[tuple[bytes, int], int] = {}
        """What is wanted again, with how often it did not come. Who wants it bounds it."""
        self._chain_next = False
        if start.at is From.NEW:
            self.chain.verified = 0

    @property
    def presence_topic(self) -> bytes:
        """The private topic that is subscribed at present."""
        return channel.PRESENCE_TOPIC + (self._nonce << 8 | self._attempt & 0xFF).to_bytes(
            16, "little"
        )

    @property
    def at_rest(self) -> bool:
        """Nothing was appended of late, and everything before was passed on."""
        return self._quiet and (self.chain.verified or 0) >= self._ended_at

    def subscriptions(self) -> list[bytes]:
        """The filters to set before the fan-out is connected."""
        return [*self._prefixes, channel.END_TOPIC, self.presence_topic]

    # --- the fan-out ------------------------------------------------------------------------------

    def live(self, frames: list[bytes], now: float) -> None:
        """Take the parts of one message of the fan-out, see `framing.split_live`.

        The hot path: work per batch, none per message.
        """
        parts = len(frames)
        if not 2 <= parts <= 3 or len(frames[1]) != ENTRY_BYTES:
            self._unreadable(frames)
            return
        topic = frames[0]
        magic, version, kind, number, queue, generation, offset, previous, _ = _unpack(frames[1])
        if (
            queue != self.queue
            or generation != self._generation
            or number != self._number
            or magic != MAGIC
            or version != WIRE_VERSION
            or offset > OFFSET_MAX
        ):
            self._unreadable(frames)
            return
        self.live_at = now
        chain = self.chain
        if (
            parts == 3
            and kind == _ENTRY
            and chain.last.get(topic) == previous
            and offset > previous
            and not chain.repairs
        ):
            chain.passed.append((topic, offset, frames[2]))  # first: this may be interrupted
            chain.last[topic] = offset
            self._live_position = offset
            return
        self.dirty = True
        if previous > OFFSET_MAX and not (previous == NONE and kind in FIRST_KINDS):
            self.malformed += 1
        elif kind == EntryKind.END:
            self._ended(topic, offset, previous)
        elif kind == EntryKind.PRESENCE:
            self._present(topic, offset, previous)
        else:
            self._other(kind, topic, offset, previous, frames[2] if parts == 3 else None)

    def _unreadable(self, frames: list[bytes]) -> None:
        """Not an entry of this exchange: of another one, of another format, or of nobody."""
        entry = frames[len(frames) > 1] if 1 <= len(frames) <= 3 else b""
        if entry[:2] == MAGIC and entry[2:3] not in {b"", bytes((WIRE_VERSION,))}:
            self.other_version = entry[2]
        if len(entry) == ENTRY_BYTES:
            self.foreign += 1
        else:
            self.malformed += 1

    def _other(
        self, kind: int, topic: bytes, offset: int, previous: int, batch: bytes | None
    ) -> None:
        large = kind in _LARGE
        if topic[:1] == _CONTROL or large is (batch is not None) or kind not in ENTRY_KINDS:
            self.malformed += 1
            return
        self._live_position = max(self._live_position, offset)
        if kind in _FORGOTTEN:
            self.chain.arrived_forgotten(topic, offset, previous, batch)
        elif self._repair or batch is None:
            self.chain.arrived(topic, offset, previous, batch)
        else:
            self.chain.arrived(topic, offset, NONE, batch)

    def _ended(self, topic: bytes, end: int, floor: int) -> None:
        if topic != channel.END_TOPIC:
            self.malformed += 1
            return
        self.floor = max(self.floor, floor)
        self.positions.ended = True
        self._live_position = max(self._live_position, end - 1)
        self._quiet, self._ended_at = end == self._ended_at, end
        if self.chain.verified is not None and end > self.chain.verified:
            self.verification.wanted = True

    def _present(self, topic: bytes, end: int, floor: int) -> None:
        if topic != self.presence_topic:
            return  # another subscriber's, or an older nonce of ours
        self.present = True
        self.floor = max(self.floor, floor)
        self._live_position = max(self._live_position, end - 1)
        self.verification.wanted = True
        if self.chain.verified is None and not self._seek:
            match self._start.at:
                case From.LATEST:
                    self._begin(end)
                case From.EARLIEST:
                    self._begin(floor)
                case _:
                    self._begin_at(self._start.value, end)

    def _begin_at(self, offset: int, end: int) -> None:
        """Begin at the offset that was asked for: kept no more, perhaps, or another log's."""
        if self.floor <= offset <= end:
            self._begin(offset)
        elif self._start.below is BelowFloor.ERROR:
            self.not_kept = (
                f"exchange {self.exchange.name} keeps nothing below offset {self.floor}, and "
                f"offset {offset} was asked for"
                if offset < self.floor
                else f"offset {offset} was asked for, and the log of exchange {self.exchange.name} "
                f"ends at {end}: the offset is one of another log, as of an earlier queue of this "
                "name"
            )
        elif offset > end:  # nothing of this log was read: to skip it would lose it in silence
            self._begin(end if self._start.below is BelowFloor.LATEST else self.floor)
        elif self._start.below is BelowFloor.EARLIEST:
            self._begin(offset)
        else:
            self.chain.gaps.append(LogGap(b"", offset, end))
            self.chain.advance(end)

    def _begin(self, offset: int) -> None:
        if offset < self.floor:
            self.chain.gaps.append(LogGap(b"", offset, self.floor))
            offset = self.floor
        self.chain.advance(offset)

    # --- events -----------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in; see `roq.machine`."""
        effects: list[Effect] = []
        self.dirty = False
        match event:
            case DataUp():
                self.connected = True
                self.verification.wanted = True
            case DataDown():
                self.connected = False
                self.positions.disconnected()
                self._give_up(self.requests.abandon())
            case Answered(frames):
                self._answered(frames, effects, now)
            case Verify(since):
                self.verification.demand(since)
            case Refetch(topic, offset):
                self._again.setdefault((topic, offset), 0)
            case Pause():
                self._paused = True
            case Resume():
                self._paused = False
                self.live_at = now
                self.requests.extend(now)
            case Tick():
                pass
        self._look_at_clock(now)
        self._presence(effects, now)
        self.verification.resolve(now, self.live_at, self._live_position)
        self._confirm(effects)
        self._pump(effects, now)
        effects.extend(self.chain.gaps)
        self.chain.gaps.clear()
        return effects

    def next_deadline(self) -> float | None:
        """When a `Tick` is wanted; None while paused."""
        if self._paused:
            return None
        times = self.requests.deadlines()
        if not self.present:
            times.append(self._presence_at)
        if self.connected and self.chain.verified is not None:
            retry = self.chain.retry_at()
            if retry is not None and FETCH not in self.requests and not self.held_back:
                times.append(retry)
            look = self.verification.next_deadline(self.live_at)
            if look is not None:
                times.append(look)
        return min(times, default=None)

    def report(self, now: float, lowest: int | None) -> Ask | None:
        """Tell the exchange how far it is read, if it is time to; `lowest`: see `Positions`."""
        due = self.report_at() <= now
        return Ask(self.positions.report(self._live_position + 1, now, lowest)) if due else None

    def report_at(self) -> float:
        """When the next report is due; infinity: not before something happens."""
        if not (self.connected and self.present and self._repair) or self.chain.verified is None:
            return inf
        rests = not (self._paused or self.held_back) and self.positions.read >= self._ended_at
        return self.positions.deadline(self._live_position + 1, rests=rests)

    def farewells(self) -> list[list[bytes]]:
        """The requests that say that it reads no more and wants nothing that is under way."""
        last = []
        if FETCH in self.requests:
            nothing = FetchRequest(id=0, queue=self.queue, generation=self._generation)
            last.append([FETCH, documents.encode(nothing)])
        leaves = self.positions.farewell()
        return [*last, leaves] if leaves else last

    def check(self) -> None:
        """Assert the invariants."""
        self.chain.check()
        assert self.connected or not len(self.requests)  # noqa: S101
        assert not self.confirmed or self.chain.verified is not None  # noqa: S101

    def _give_up(self, requests: list[Inquiry]) -> None:
        """These will not be answered: the parts that need them ask again."""
        for inquiry in requests:
            self.chain.failed(inquiry.wants)
            if inquiry.kind == HEADS:
                self.verification.give_up()

    def _look_at_clock(self, now: float) -> None:
        if self.held_back:
            self.live_at = now  # nobody listens, so it is not silent
        if not self._paused:
            self._give_up(self.requests.expired(now))

    def _presence(self, effects: list[Effect], now: float) -> None:
        if not self.present and now >= self._presence_at and not self._paused:
            effects.append(Unsubscribe(self.presence_topic))
            self._attempt += 1
            effects.append(Subscribe(self.presence_topic))
            self._presence_at = now + PRESENCE_SECONDS

    def _confirm(self, effects: list[Effect]) -> None:
        if (
            not self.confirmed
            and self.present
            and self.chain.verified is not None
            and self._streams_after is None
        ):
            self.confirmed = True
            effects.append(Confirmed())

    # --- requests ---------------------------------------------------------------------------------

    def _pump(self, effects: list[Effect], now: float) -> None:
        """Ask what is to be asked and is not under way."""
        if not self.connected or self._paused:
            return
        if self._seek and SEEK not in self.requests:
            self._ask(effects, SEEK, now, time_us=self._start.value)
        if self.chain.verified is None:
            return
        if self._streams_after is not None and STREAMS not in self.requests:
            self._ask(effects, STREAMS, now, prefixes=self._prefixes, after=self._streams_after)
        if HEADS not in self.requests and self._repair:
            since = self.verification.question(now, self.live_at)
            if since is not None:
                self._ask(effects, HEADS, now, prefixes=self._prefixes, since=since)
        if FETCH not in self.requests and (self.confirmed or self._start.at is From.NEW):
            self._ask_fetch(effects, now)

    def _ask_fetch(self, effects: list[Effect], now: float) -> None:
        # What the merge wants again and what the chain misses take turns, or the one starves.
        again = list(self._again)[: channel.WANTS_MAX]
        missing: list[Want] = []
        if (not again or self._chain_next) and not self.held_back:
            missing = self.chain.wants(channel.WANTS_MAX, now)
        if missing:
            again = []
        self._chain_next = bool(again)
        wants = missing or [(topic, offset, offset + 1) for topic, offset in again]
        if wants:
            inquiry = self._ask(
                effects, FETCH, now, generation=self._generation, wants=wants, max_bytes=FETCH_BYTES
            )
            inquiry.again = again
            inquiry.wants = missing

    def _ask(self, effects: list[Effect], kind: bytes, now: float, **fields: object) -> Inquiry:
        inquiry, ask = self.requests.ask(kind, now, **fields)
        effects.append(ask)
        return inquiry

    # --- answers ----------------------------------------------------------------------------------

    def fetched(self, frames: list[bytes], now: float) -> bool:
        """Take a batch that a fetch brings; False if these frames are something else: `Answered`.

        The other hot path, of a reader that catches up.
        """
        if len(frames) != 5 or frames[0] != FETCHED_ENTRY:
            return False
        try:
            self._fetched_entry(frames, now)
        except RemoteProtocolError:
            self.malformed += 1
        return True

    def _answered(self, frames: list[bytes], effects: list[Effect], now: float) -> None:
        try:
            kind = frames[0]
            if self.fetched(frames, now):
                return
            if kind == FETCH and len(frames) == 2:
                self._fetch_ended(documents.decode(frames[1], channel.Fetched), effects, now)
            elif kind == HEADS and len(frames) == 2:
                self._heads(documents.decode(frames[1], channel.Heads))
            elif kind == STREAMS and len(frames) == 2:
                self._streams(documents.decode(frames[1], channel.Streams), effects)
            elif kind == SEEK and len(frames) == 2:
                self._sought(documents.decode(frames[1], channel.Seek))
            elif kind == POSITION and len(frames) == 2:
                self.positions.answered(documents.decode(frames[1], channel.Reading))
            elif kind == channel.REFUSED:
                self.positions.refused()
                self.refused += 1
                self.requests.hurry(now)
            else:
                self.malformed += 1
        except RemoteProtocolError:
            self.malformed += 1

    def _fetched_entry(self, frames: list[bytes], now: float) -> None:
        _, number, topic, head, batch = frames
        inquiry = self.requests.find(FETCH, read_number(number), now)
        entry = read_entry(head)
        came = (entry.queue, entry.generation, entry.exchange)
        if came != (self.queue, self._generation, self._number):
            self.foreign += 1
        elif inquiry is None:
            if (topic, entry.offset) in self._again:
                del self._again[topic, entry.offset]
                self.chain.passed.append((topic, entry.offset, batch))
                return
            self.chain.fetched_late(topic, entry.offset, entry.previous, entry.kind, batch)
        elif not inquiry.wants:
            key = (topic, entry.offset)
            if key in inquiry.again:
                inquiry.again.remove(key)  # it may be wanted once more before this fetch has ended
                self._again.pop(key, None)
                self.chain.passed.append((topic, entry.offset, batch))
        elif entry.kind in _FORGOTTEN:
            self.chain.fetched_forgotten(topic, entry.offset, entry.previous, batch)
        else:
            self.chain.fetched(topic, entry.offset, entry.previous, batch)

    def _fetch_ended(self, answer: channel.Fetched, effects: list[Effect], now: float) -> None:
        inquiry = self._close(FETCH, answer)
        if inquiry is None:
            return
        self.floor = max(self.floor, answer.floor)
        self.chain.answered(inquiry.wants, answer.reached, answer.floor, answer.done, now)
        for key in inquiry.again:
            if key in self._again and (answer.done or answer.reached > key[1]):
                tries = self._again.pop(key) + 1
                if key[1] < answer.floor or tries > TRIES_MAX:
                    effects.append(Gone(*key))
                else:
                    self._again[key] = tries  # the log has it, so it was dropped on the way

    def _close(
        self, kind: bytes, answer: channel.Fetched | channel.Heads | channel.Streams | channel.Seek
    ) -> Inquiry | None:
        """The question that this answers, if it is one that is waited for."""
        if answer.generation != self._generation:
            self.foreign += 1
            return None
        return self.requests.close(kind, answer.id)

    def _heads(self, answer: channel.Heads) -> None:
        if self._close(HEADS, answer) is not None:
            self.floor = max(self.floor, answer.floor)
            self.verification.answered(answer)

    def _streams(self, answer: channel.Streams, effects: list[Effect]) -> None:
        if self._close(STREAMS, answer) is not None:
            effects.append(StreamsFound(answer.streams))
            self._streams_after = answer.next or None

    def _sought(self, answer: channel.Seek) -> None:
        if self._close(SEEK, answer) is not None:
            self._seek = False
            self.floor = max(self.floor, answer.floor)
            self._begin(max(answer.offset, self.floor))
