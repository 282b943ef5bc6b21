"""Who holds which messages of a log: members of a consumer group, and their leases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from roq.log.group_changes import Tried
from roq.protocol.consuming import DELAY_SECONDS_MAX, GroupSettings

_JITTER: Final = 0.25
_EPOCHS: Final = 1 << 36
"""Of processes: see `roq.model.child_epoch`."""
_COUNT_BITS: Final = 26
"""A process that gives more leases goes on among the numbers of the next one."""


class Piece(NamedTuple):
    """Open messages of one batch that nobody holds."""

    offset: int
    first: int
    length: int
    """From the first to the last of them."""
    attempts: int
    reason: str
    mask: int = 0
    """Which of these they are, a bit for each; 0: all."""

    @property
    def bits(self) -> int:
        """A bit for each of them, counted from `first`."""
        return self.mask or (1 << self.length) - 1

    @property
    def amount(self) -> int:
        """How many they are."""
        return self.mask.bit_count() if self.mask else self.length

    def part(self, bits: int) -> Piece:
        """Some of them: these bits of the batch."""
        return piece_of(self.offset, bits, self.attempts, self.reason)


class Lease:
    """Messages that one member holds.

    Attributes:
        number: by which the member names it; never used twice in this process.
        offset, first, length: of the batch, and from which to which of its messages.
        open: one bit for each that it stands for and that is not done.
        attempts: how often they were tried before.
        losses: of these attempts, those whose member was lost.
        reason: why the last attempt failed.
        lanes: the key groups of its messages, in a group that is ordered by key.
        overdue: the time to live of its messages was over when it was given.
        extended, until: one bit for each of those that its member holds until then, by the group's
            clock, whether it is heard of or not.
    """

    __slots__ = (
        "attempts", "extended", "first", "lanes", "length", "losses", "member", "number",
        "offset", "open", "overdue", "reason", "until",
    )  # fmt: skip

    def __init__(self, number: int, member: Member, piece: Piece) -> None:
        self.number = number
        self.member = member
        self.offset = piece.offset
        self.first = piece.first
        self.length = piece.length
        self.attempts = piece.attempts
        self.losses = 0
        self.reason = piece.reason
        self.open = piece.bits
        self.lanes: frozenset[int] = frozenset()
        self.overdue = False
        self.extended = 0
        self.until = 0.0

    def over(self, now: float) -> int:
        """The bits of it that its member loses, as it was silent for too long."""
        return self.open if self.until <= now else self.open & ~self.extended


class Member:
    """One consumer, at this log.

    Attributes:
        id: 16 bytes.
        name: as people see it.
        granted, granted_bytes: what it was ready to take since it came, all in all.
        taken, taken_bytes: what it got.
        window: so many messages it holds at once at most.
        leases: by number, in order.
        held: messages of them that are not done.
        heard: when it has said something last, by the group's clock.
        acknowledged: messages, since it came.
        blocked: its connection is full: nothing is handed to it.
        silent: it was for too long, and holds only what it has asked more time for.
    """

    __slots__ = (
        "acknowledged", "blocked", "granted", "granted_bytes", "heard", "held", "id", "leases",
        "name", "silent", "taken", "taken_bytes", "window",
    )  # fmt: skip

    def __init__(self, member: bytes, name: str, now: float) -> None:
        self.id = member
        self.name = name
        self.heard = now
        self.leases: dict[int, Lease] = {}
        self.held = 0
        self.acknowledged = 0
        self.blocked = self.silent = False
        self.restart()

    def restart(self) -> None:
        """It counts anew what it is ready to take."""
        self.granted = self.granted_bytes = self.taken = self.taken_bytes = self.window = 0

    @property
    def credit(self) -> int:
        """Messages that it would take now."""
        if self.blocked or self.silent or self.granted_bytes <= self.taken_bytes:
            return 0
        return self.granted - self.taken

    def share(self, count: int, reserve: int = 0) -> int:
        """How many of so many messages it gets now: all, or a part if they are more than it ever
        holds; 0: none yet.

        Args:
            reserve: so much of what it takes is kept for others, if it takes more than that.
        """
        kept = reserve if self.window > reserve else 0
        credit, window = self.credit - kept, self.window - kept
        if credit >= count:
            return count
        if count <= window or credit < max(1, window // 2):
            return 0
        return credit


class NumberedLeases:
    """Gives the numbers of leases: one for all groups of a process, and higher ones than those of
    the processes before.

    Args:
        epoch: of the process.
    """

    def __init__(self, epoch: int = 0) -> None:
        self._last = (epoch % _EPOCHS) << _COUNT_BITS

    def next(self) -> int:
        """Another number than all before."""
        self._last += 1
        return self._last


def check_held(free: Iterable[Piece], members: Iterable[Member]) -> dict[int, int]:
    """Assert that nobody has what another one has; gives what somebody has, bits by offset."""
    held: dict[int, int] = {}
    every = [(each.offset, each.bits << each.first) for each in free]
    for member in members:
        leases = member.leases.values()
        every += [(each.offset, each.open << each.first) for each in leases]
        assert member.held == sum(each.open.bit_count() for each in leases)  # noqa: S101
    for offset, bits in every:
        assert not held.get(offset, 0) & bits  # noqa: S101
        held[offset] = held.get(offset, 0) | bits
    return held


def piece_of(offset: int, bits: int, attempts: int = 0, reason: str = "") -> Piece:
    """These messages of a batch, a bit for each; at least one."""
    first = (bits & -bits).bit_length() - 1
    length = bits.bit_length() - first
    mask = bits >> first
    return Piece(offset, first, length, attempts, reason, 0 if mask == (1 << length) - 1 else mask)


def lowest_of(bits: int, count: int) -> int:
    """So many of these bits, the lowest ones."""
    rest = bits
    for _ in range(count):
        rest &= rest - 1
    return bits & ~rest


def bits_of_column(column: bytes, value: int) -> int:
    """A bit for each message that has this value in a column; without an end if that is all."""
    if len(column) == 1:
        return -int(column[0] == value)
    table = bytearray(b"0" * 256)
    table[value] = ord("1")
    return int(column.translate(table)[::-1], 2)


def bits_at(first: int, count: int) -> int:
    """So many ones from this bit on."""
    return ((1 << count) - 1) << first


def runs_of(bits: int) -> list[tuple[int, int]]:
    """Stretches of ones: (first, count)."""
    runs: list[tuple[int, int]] = []
    at = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        at += zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        runs.append((at, ones))
        bits >>= ones
        at += ones
    return runs


def split_by_attempts(offset: int, first: int, count: int, tried: list[Tried]) -> list[Piece]:
    """A run of open messages, by how often each was tried."""
    if not tried:
        return [Piece(offset, first, count, 0, "")]
    newest: list[Tried | None] = [None] * count
    for each in tried:  # each takes its place: to look for that of each message is quadratic
        begin, end = max(each.first, first), min(each.first + each.length, first + count)
        newest[begin - first : max(begin, end) - first] = [each] * (end - begin)
    pieces: list[Piece] = []
    for index, known in enumerate(newest, first):
        attempts, reason = (0, "") if known is None else (known.attempts, known.reason)
        last = pieces[-1] if pieces else None
        if last is not None and (last.attempts, last.reason) == (attempts, reason):
            pieces[-1] = last._replace(length=last.length + 1)
        else:
            pieces.append(Piece(offset, index, 1, attempts, reason))
    return pieces


def wait_after(tried: int, offset: int, settings: GroupSettings) -> float:
    """Seconds between a failure and the next attempt: doubled with each, and up to a quarter more.

    How much more is drawn from batch and attempt: what has failed in one instant does not come back
    in one, the messages of a batch stay together, and each history is played as it was.

    Args:
        tried: attempts before the one that has failed.
        offset: of the batch.
    """
    wait = min(settings.retry_seconds * 2.0 ** min(tried, 32), settings.retry_seconds_max)
    return min(wait * (1 + _JITTER * _draw(offset, tried)), DELAY_SECONDS_MAX)


def _draw(offset: int, tried: int) -> float:
    """A number in [0, 1), spread evenly over neighbours."""
    return (offset * 0x9E3779B1 + tried * 0x85EBCA77) % (1 << 32) / (1 << 32)
