"""What a consumer holds: the messages of one lease, and which of them are settled.

The user's thread settles messages, the I/O thread tells the exchange; neither waits for the other.
A settled message is marked before the holding is put on the list of those that have news, so what
one look misses the next one finds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from roq.errors import RemoteProtocolError
from roq.model import LogId
from roq.protocol.attributes import BatchAttributes
from roq.protocol.batch import HEADER_BYTES, Kind, read_body, read_header
from roq.protocol.columns import read_column
from roq.protocol.consuming import Run
from roq.read.message import Batch

OPEN: Final = 0
ACKED: Final = 1
TOLD: Final = 2
"""Acknowledged, and the exchange was told."""
RETURNED: Final = 3
GIVEN: Final = 4
"""Returned, and the exchange was told."""
LOST: Final = 5
"""Somebody else has it."""
KEPT: Final = 6
"""Acknowledged, and the exchange has said that it is kept."""
STRANDED: Final = 7
"""A request that runs, or is answered, and whose exchange is gone."""
_OPEN: Final = bytes((OPEN,))
_ACKED: Final = bytes((ACKED,))
_TOLD: Final = bytes((TOLD,))
_KEPT: Final = bytes((KEPT,))


class Segment(NamedTuple):
    """Messages of a holding, and the lease by which they are held."""

    lease: int
    first: int
    length: int


@dataclass(slots=True, kw_only=True)
class ConsumerStats:
    """What has happened so far.

    Attributes:
        received, acknowledged, returned: messages.
        confirmed: acknowledgements that are kept.
        lost: messages that were taken from this member while it held them.
        redelivered: messages that came as a second or further attempt.
        malformed: leases that could not be read; they were given back.
        given_up: those of them that were tried as often as may be: they were acknowledged.
        passed_over: messages without any of the group's tags; they were acknowledged unseen.
        unburied: dead letters that could not be written, each time; they come again.
    """

    received: int = 0
    acknowledged: int = 0
    returned: int = 0
    confirmed: int = 0
    lost: int = 0
    redelivered: int = 0
    malformed: int = 0
    given_up: int = 0
    passed_over: int = 0
    unburied: int = 0


class Holding:
    """Consecutive messages of one batch that were leased together.

    Attributes:
        log, offset: of the batch.
        number: of a lease by which it is held; no process of its exchange uses one twice.
        first: index in the batch of the first of these messages.
        batch: these messages alone.
        count: how many of these are held, or were; the others are somebody else's.
        lanes: the key group of each, in a group that is ordered by key.
        priority: of all of these, in a group with priorities.
        begun: so many of these, or more, the user has got, or has passed by.
        attempt: the how manieth one this is, from 1.
        losses: of a request, so many of those before have ended as their instance was lost.
        overdue: their time to live is over: they are for the dead letters.
        segments: by which leases they are held; several only after a connection was lost.
        states: of each message.
        dirty: it is on the list of those that have news.
        lost: nothing of it is held any more, so nothing that is said of it counts.
        unconfirmed: what the exchange was told of it and has not confirmed, in how many pieces.
        untold: messages of which the exchange was not told anything.
    """

    __slots__ = (
        "attempt", "batch", "begun", "count", "dirty", "first", "lanes", "log", "losses", "lost",
        "number", "offset", "overdue", "priority", "segments", "states", "unconfirmed", "untold",
    )  # fmt: skip

    def __init__(
        self, log: LogId, offset: int, lease: int, first: int, attempt: int, batch: Batch
    ) -> None:
        self.log = log
        self.offset = offset
        self.number = lease
        self.first = first
        self.batch = batch
        self.attempt = attempt
        size = len(batch.payloads)
        self.segments = [Segment(lease, first, size)]
        self.states = bytearray(size)
        self.count = self.untold = size
        self.lanes: bytes | None = None
        self.begun = 0
        self.overdue = False
        self.losses = self.priority = 0
        self.unconfirmed = 0
        self.dirty = False
        self.lost = False

    def leave_out(self, bits: int) -> None:
        """Of these messages only those with a bit are held."""
        for index in range(len(self.states)):
            if not bits >> index & 1:
                self.states[index] = LOST
        self.count = self.untold = bits.bit_count()

    def next_run(self, most: int) -> tuple[int, int]:
        """The next messages that are to be done and follow each other: the index of the first, and
        how many; they count as begun. (0, 0): there are none."""
        states = self.states
        index = states.find(_OPEN, self.begun)
        if index < 0:
            self.begun = len(states)
            return 0, 0
        ahead = states if not index and len(states) <= most else states[index : index + most]
        count = len(ahead) - len(ahead.lstrip(_OPEN))
        self.begun = index + count
        return index, count

    @property
    def open(self) -> int:
        """Messages that are not settled."""
        return self.states.count(_OPEN)

    def settle(self, index: int, count: int, state: int) -> int:
        """These messages are settled, if they were open; how many were.

        Args:
            index: counted from the first one that is held.
        """
        states = self.states
        if count == 1:
            if states[index]:
                return 0
            states[index] = state
            return 1
        settled = states.count(_OPEN, index, index + count)
        if settled == count:
            states[index : index + count] = bytes((state,)) * count
        else:
            for at in range(index, index + count):
                states[at] = states[at] or state
        return settled

    def take_acked(self) -> list[Run]:
        """What was acknowledged and not told; it counts as told from now on."""
        states, size = self.states, len(self.states)
        if states.count(_ACKED) == size:  # as nearly always
            states[:] = _TOLD * size
            return [Run(self.offset, self.first, size)]
        runs: list[Run] = []
        at = states.find(_ACKED)
        while at >= 0:
            rest = states[at:]
            end = size - len(rest.lstrip(_ACKED))
            states[at:end] = _TOLD * (end - at)
            runs.append(Run(self.offset, self.first + at, end - at))
            at = states.find(_ACKED, end)
        return runs

    def given(self, run: Run) -> int:
        """The exchange is told that these are returned; how many still are the member's."""
        given = 0
        for at in range(run.first - self.first, run.first - self.first + run.length):
            if self.states[at] == RETURNED:
                self.states[at] = GIVEN
                given += 1
        return given

    def lose(self, indexes: Iterable[int]) -> tuple[int, int, int]:
        """These messages of the batch are somebody else's, but for those that are kept.

        Returns:
            How many that are, how many of them were settled, and how many not told.
        """
        lost = settled = untold = 0
        for index in indexes:
            state = self.states[index - self.first]
            if state < GIVEN:
                self.states[index - self.first] = LOST
                lost += 1
                settled += state != OPEN
                untold += state != TOLD
        self.lost = all(state == LOST for state in self.states)
        return lost, settled, untold

    def keep_done(self, index: int) -> bool:
        """The exchange says that this message is done; whether that is by this member's word."""
        mine = self.states[index - self.first] in {ACKED, TOLD}
        if mine:
            self.states[index - self.first] = KEPT
        return mine

    def keep(self, run: Run) -> int:
        """The exchange has kept these, as far as they were told; how many are new to that."""
        states, kept = self.states, 0
        begin, end = run.first - self.first, run.first - self.first + run.length
        if states.count(_TOLD, begin, end) == run.length:  # as nearly always
            states[begin:end] = _KEPT * run.length
            return run.length
        for at in range(begin, end):
            if states[at] == TOLD:
                states[at] = KEPT
                kept += 1
        return kept

    def is_open(self, index: int, count: int = 1) -> bool:
        """Whether any of these is still to be done, counted from the first one that was held."""
        return OPEN in self.states[index : index + count]

    def is_lost(self, index: int, count: int) -> bool:
        """Whether any of these is, counted from the first one that was held."""
        if count == 1:
            return self.states[index] == LOST
        return LOST in self.states[index : index + count]

    def held(self) -> list[Run]:
        """All that is the member's, settled or not: the exchange may not know that yet."""
        runs: list[Run] = []
        at, size = 0, len(self.states)
        while at < size:
            end = at
            while end < size and self.states[end] < GIVEN:
                end += 1
            if end > at:
                runs.append(Run(self.offset, self.first + at, end - at))
            at = end + 1
        return runs

    def untell(self) -> None:
        """What was told has to be told again."""
        states = self.states
        at = states.find(_TOLD)
        while at >= 0:  # in place: the user's thread may settle others meanwhile
            states[at] = ACKED
            at = states.find(_TOLD, at + 1)
        self.untold = sum(state < GIVEN for state in states)

    def leases_of(self, run: Run) -> list[tuple[int, int, int]]:
        """By which leases these messages are held: (lease, first, length)."""
        found: list[tuple[int, int, int]] = []
        for lease, first, length in self.segments:
            begin, end = max(first, run.first), min(first + length, run.first + run.length)
            if begin < end:
                found.append((lease, begin, end - begin))
        return found


def pass_over(holding: Holding, tags: Collection[str]) -> int:
    """Messages with none of these tags are done, as exchanges know tags by a few bits only; how
    many they are. No tags: all are wanted."""
    if not tags:
        return 0
    wanted, passed = frozenset(tags), 0
    for index in range(len(holding.batch)):
        if holding.is_open(index) and not _has_tag(holding.batch, index, wanted):
            passed += holding.settle(index, 1, ACKED)
    return passed


def _has_tag(batch: Batch, index: int, wanted: frozenset[str]) -> bool:
    """Whether a message has one of these tags, or ones that cannot be read: its handler is told."""
    if batch.attributes is None:
        return False
    try:
        tags = batch.attributes.of(batch.sequence + index).tags
    except RemoteProtocolError:
        return True
    return not wanted.isdisjoint(tags)


def column_of(packed: bytes, kind: int, first: int, length: int) -> bytes:
    """What a batch says of these messages (`roq.protocol.columns`).

    Raises:
        RemoteProtocolError: it is none.
    """
    header = read_header(packed)
    area = packed[HEADER_BYTES : HEADER_BYTES + header.ext_bytes]
    column = read_column(area, kind, header.count)
    return column * length if len(column) == 1 else column[first : first + length]


def batch_of(topic: bytes, packed: bytes, first: int, length: int) -> Batch:
    """These messages of a batch.

    Raises:
        RemoteProtocolError: it cannot be read, or does not have them.
    """
    header = read_header(packed)
    if header.kind != Kind.DATA or first + length > header.count:
        raise RemoteProtocolError("a lease of messages that its batch does not have")
    payloads, attributes = read_body(packed, header)
    sequence = header.first_sequence
    return Batch(
        payloads if length == len(payloads) else payloads[first : first + length],
        topic.decode(), header.publisher, sequence + first, header.created_us, len(packed),
        None if attributes is None else BatchAttributes(attributes, sequence, header.count),
    )  # fmt: skip
