"""A consumer group at one log: who may have which messages, for how long, and what is done. Pure.

    open --leased to a member--> out --acknowledged--> done
      ^                           |
      +---- given back, or its member is silent or gone: again after a while, as one more attempt

`base` is the first offset that is not wholly done, `next` the first that was never handed out; what
lies between is kept by offset, and is bounded: a message that nobody gets done holds the group in
the end, and `stalled` names it. Batches are leased whole, as far as the member's credit reaches; a
lease stands for a run of messages of one batch, so that what is given back can go elsewhere in
parts.

What must outlive the process comes out of `take_changes` and goes into the log; another process is
given it by `apply`, and leases out again what was not done.
"""

from __future__ import annotations

from collections import OrderedDict
from struct import Struct
from typing import Final, Generic, TypeVar, cast

from roq.log.free_messages import FreeMessages
from roq.log.group_changes import GroupDelta, Tried
from roq.log.group_journal import GroupJournal
from roq.log.leases import Lease, Member, NumberedLeases, Piece, bits_at, runs_of, split_by_attempts
from roq.log.log import Log, Record
from roq.log.open_batches import OpenBatches
from roq.protocol.batch import HEADER_BYTES, Kind
from roq.protocol.consuming import GroupSettings, GroupState, MemberState, Run
from roq.protocol.entry import read_entry
from roq.protocol.later import LATER_TOPIC

B = TypeVar("B")

WINDOW: Final = 20_000
"""Batches between the first that is not done and the last that was handed out."""
SCAN_MAX: Final = 256
"""Batches of other topics that are passed over at once."""
MEMBERS_MAX: Final = 10_000
STEP_SECONDS_MAX: Final = 0.6
"""More does not pass between two looks: a process that was stopped, or late, does not take members
for silent whom it has not read yet."""
RETURN_SECONDS: Final = 2.0
"""After a start members have so long to say what they hold, before that goes to others."""

_KIND_AND_COUNT: Final = Struct("<3xB4xI")
"""Of the header of a batch (`roq.protocol.batch`)."""


class ConsumerGroup(Generic[B]):
    """One group.

    Args:
        name: of the group.
        log: what it reads.
        settings: what its first member has said.
        created_us: when it was made, µs UTC.
        start: where it begins.
        now: the clock, seconds.

    Attributes:
        out: messages that members hold.
        acknowledged, failed, lapsed, expired: as `GroupState` says.
    """

    def __init__(
        self,
        name: str,
        log: Log[B],
        settings: GroupSettings,
        created_us: int,
        start: int,
        now: float,
    ) -> None:
        self.name = name
        self.settings = settings
        self.created_us = created_us
        self.out = 0
        self.acknowledged = self.failed = self.lapsed = self.expired = 0
        self.paused = False
        self._log = log
        self._prefixes = settings.prefixes
        self._everything = b"" in settings.prefixes
        self._members: OrderedDict[bytes, Member] = OrderedDict()
        """In the order of their turns; of an exclusive group the first one gets everything."""
        self._open = OpenBatches(start)
        self._free = FreeMessages()
        self._journal = GroupJournal(name, self._open)
        self._passing = False
        """Whether the last look at the log has ended among batches of other topics."""
        self._clock = now
        self._ticked_at = now
        self._hold_until = now

    # --- members ----------------------------------------------------------------------------------

    @property
    def base(self) -> int:
        """The first offset that is not wholly done."""
        return self._open.base

    @property
    def next(self) -> int:
        """The first offset that was never handed out."""
        return self._open.next

    def __len__(self) -> int:
        return len(self._members)

    def member(self, member: bytes) -> Member | None:
        """The member of this id."""
        return self._members.get(member)

    def join(self, member: bytes, name: str) -> Member | None:
        """A member comes, or comes back; None: there are too many.

        One that comes back begins anew with its credit, and holds nothing until it is `resume`d.
        """
        known = self._members.get(member)
        if known is not None:
            self._return_all(known, counted=False)
            known.restart()
            known.heard = self._clock
            return known
        if len(self._members) >= MEMBERS_MAX:
            return None
        made = self._members[member] = Member(member, name, self._clock)
        return made

    def resume(
        self, member: Member, held: list[Run], numbers: NumberedLeases
    ) -> tuple[list[Lease], list[Run]]:
        """What a member held before: leased to it again, if nobody else has it; and what is done.

        Args:
            numbers: gives the numbers of leases.
        """
        leases: list[Lease] = []
        done: list[Run] = []
        exclusive = self.settings.mode == "exclusive"
        others = exclusive and any(each.leases for each in self._members.values())
        for offset, first, count in held:
            if offset >= self._log.committed:
                continue
            while self.next <= offset and self._may_open():
                self._open_next()
            if self._is_done(offset, first, count):
                done.append(Run(offset, first, count))
            elif not others:
                taken = self._free.take(offset, first, count)
                leases.extend(self._lease(member, piece, numbers) for piece in taken)
        if exclusive and leases:
            self._members.move_to_end(member.id, last=False)  # it goes on as the one
        return leases, done

    def leave(self, member: bytes) -> None:
        """A member goes, and what it holds is free at once: it was not tried."""
        known = self._members.pop(member, None)
        if known is not None:
            self._return_all(known, counted=False)

    def gone(self, member: bytes) -> None:
        """A member's connection has ended: what it holds was tried, and is free at once."""
        known = self._members.pop(member, None)
        if known is not None:
            self.lapsed += known.held
            self._return_all(known, counted=True, reason="its consumer has gone")

    def heard(self, member: Member) -> None:
        """The member is there: its leases go on."""
        member.heard = self._clock

    def tick(self, now: float) -> list[Member]:
        """Time has passed; gives the members that were silent for too long, and have lost what they
        held. Call it about twice a second."""
        self._clock += min(max(0.0, now - self._ticked_at), STEP_SECONDS_MAX)
        self._ticked_at = now
        silent = [
            member
            for member in self._members.values()
            if member.leases and self._clock - member.heard > self.settings.lease_seconds
        ]
        for member in silent:
            self.lapsed += member.held
            self._return_all(member, counted=True, reason="its consumer was silent")
            member.restart()
            del self._members[member.id]
        return silent

    def hold(self) -> None:
        """Hand nothing out for a while: members come back and say what they hold."""
        self._hold_until = self._clock + RETURN_SECONDS

    # --- handing out ------------------------------------------------------------------------------

    def next_lease(self, numbers: NumberedLeases) -> tuple[Lease, Record[B]] | None:
        """What goes out now, and to whom; None: nothing, or nobody who would take it.

        A few batches of other topics are passed over at a time: ask again while `busy`.
        """
        self._passing = False
        self._keep_up()
        if self.paused or self._clock < self._hold_until:
            return None
        while True:
            piece = self._first_piece()
            if piece is None:
                return None
            member = self._taker(piece.length)
            if member is None:
                return None
            record = self._log.record(piece.offset)
            if record is not None:
                break
            self._drop(piece)  # the disk has lost it
        self._free.remove(piece)
        share = member.share(piece.length)
        if share < piece.length:
            rest = piece._replace(first=piece.first + share, length=piece.length - share)
            self._free.add(rest, first=True)
            piece = piece._replace(length=share)
        lease = self._lease(member, piece, numbers)
        member.taken += piece.length
        member.taken_bytes += record[3]
        if self.settings.mode != "exclusive":
            self._members.move_to_end(member.id)
        return lease, record

    @property
    def busy(self) -> bool:
        """Whether `next_lease` has given nothing because it was passing over other topics."""
        return self._passing and not self.paused and self._may_open()

    # --- what members have done -------------------------------------------------------------------

    def acknowledge(self, member: Member, number: int, first: int = 0, count: int = 0) -> bool:
        """Messages are done; False: this lease is not the member's, or not any more.

        Args:
            first, count: which ones, counted within the batch; no count: all of the lease.
        """
        lease = member.leases.get(number)
        if lease is None:
            return False
        bits = self._bits_of(lease, first, count) if count else lease.open
        if bits < 0:
            return False
        self._settle(lease, bits, done=True)
        return True

    def give_back(
        self, member: Member, number: int, first: int, count: int, delay: float, *,
        counted: bool, reason: str,
    ) -> bool:  # fmt: skip
        """Messages are to be tried again; False: as `acknowledge`."""
        lease = member.leases.get(number)
        bits = -1 if lease is None else self._bits_of(lease, first, count)
        if lease is None or bits < 0:
            return False
        if counted:
            self.failed += bits.bit_count()
            settings = self.settings
            doubled = settings.retry_seconds * 2 ** min(lease.attempts, 32)
            delay = delay or min(doubled, settings.retry_seconds_max)
        self._return(lease, bits, counted=counted, delay=delay, reason=reason)
        return True

    # --- operators --------------------------------------------------------------------------------

    def seek(self, offset: int) -> list[Member]:
        """Go on from here, backward or forward; gives the members, whose leases are all over."""
        members = list(self._members.values())
        for member in members:
            member.leases.clear()
            member.held = 0
            member.restart()
        self._members.clear()
        self.out = 0
        self._free.clear()
        self._open.restart(min(max(offset, self._log.floor), self._log.committed))
        self._journal.restart()
        return members

    def pause(self, *, paused: bool) -> None:
        """Hand nothing out, or go on."""
        if self.paused is not paused:
            self.paused = paused
            self._journal.note_all()

    def state(self, *, who: bool, most: int) -> GroupState:
        """How the group stands.

        Args:
            who: with its members, at most so many.
        """
        self._keep_up()
        members = list(self._members.values())[:most] if who else []
        return GroupState(
            name=self.name, settings=self.settings, created_us=self.created_us, base=self.base,
            end=self._log.committed, out=self.out, waiting=self._free.count,
            oldest_us=self._oldest(), members=len(self._members), paused=self.paused,
            acknowledged=self.acknowledged, failed=self.failed, lapsed=self.lapsed,
            expired=self.expired, stalled=self._stalled(),
            who=[
                MemberState(
                    member=each.id, name=each.name, held=each.held, credit=max(0, each.credit),
                    acknowledged=each.acknowledged, silent_seconds=self._clock - each.heard,
                )
                for each in members
            ],
        )  # fmt: skip

    # --- what outlives the process ----------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Whether `take_changes` has something."""
        return self._journal.changed

    def take_changes(self) -> GroupDelta | None:
        """What has changed since the last call; None: nothing."""
        if not self._journal.changed:
            return None
        return self._journal.take() or self.snapshot()

    def drop_changes(self) -> None:
        """Nobody wants to know what has changed."""
        self._journal.drop()

    def snapshot(self) -> GroupDelta:
        """All of the group, as it stands."""
        tried = [
            Tried(each.offset, each.first, each.length, each.attempts, each.reason)
            for each in self._held()
            if each.attempts
        ]
        return self._journal.snapshot(tried, self.settings, self.created_us, paused=self.paused)

    def apply(self, delta: GroupDelta) -> None:
        """Take in what an earlier process has written, in order; before anything else happens."""
        if delta.settings is not None:
            self.settings = delta.settings
            self._prefixes = delta.settings.prefixes
            self._everything = b"" in delta.settings.prefixes
            self.created_us = delta.created_us
            self.paused = delta.paused
        self._journal.apply(delta, WINDOW)

    def check(self) -> None:
        """Assert the invariants. Costs O(n): tests and simulation only."""
        self._open.check()
        assert self.next <= max(self._log.committed, self.base)  # noqa: S101
        assert self._open.span <= WINDOW  # noqa: S101
        held: dict[int, int] = {}
        for each in self._held():
            bits = (
                each.open << each.first
                if isinstance(each, Lease)
                else bits_at(each.first, each.length)
            )
            assert not held.get(each.offset, 0) & bits, "nobody has what another one has"  # noqa: S101
            held[each.offset] = held.get(each.offset, 0) | bits
        assert held == self._open.bits, "each open message is somewhere"  # noqa: S101
        assert self.out == sum(each.open.bit_count() for each in self._leases())  # noqa: S101
        assert self._free.count == sum(each.length for each in self._free)  # noqa: S101
        for member in self._members.values():
            assert member.held == sum(  # noqa: S101
                lease.open.bit_count() for lease in member.leases.values()
            )

    # --- inside -----------------------------------------------------------------------------------

    def _leases(self) -> list[Lease]:
        return [lease for member in self._members.values() for lease in member.leases.values()]

    def _held(self) -> list[Piece | Lease]:
        return [*self._free, *self._leases()]

    def _may_open(self) -> bool:
        return self.next < self._log.committed and self._open.span < WINDOW

    def _is_done(self, offset: int, first: int, length: int) -> bool:
        """Whether none of these messages is open, as far as that is known."""
        size = self._open.size(offset)
        if not size:
            return offset < self.next or self._journal.known(offset) is None
        mask = bits_at(first, min(length, size - first)) if first < size else 0
        return not self._open.bits[offset] & mask

    def _taker(self, count: int) -> Member | None:
        """Whose turn it is, of those that would take so many messages, or a part of them."""
        if self.settings.mode == "exclusive":
            first = next(iter(self._members.values()), None)
            return first if first is not None and first.share(count) else None
        for member in self._members.values():
            if member.share(count):
                return member
        return None

    def _first_piece(self) -> Piece | None:
        """What goes out next; it stays where it is."""
        self._passing = False
        if self.settings.mode == "exclusive" and self._free:
            # In order: what was given back comes before everything behind it, if it waits for long.
            return self._free.lowest(self._clock)
        first = self._free.first(self._clock)
        for _ in range(SCAN_MAX):
            if first is not None or not self._may_open():
                break
            self._open_next()
            first = self._free.first(self._clock)
        self._passing = first is None
        return first

    def _drop(self, piece: Piece) -> None:
        """Nobody can have this any more."""
        self._free.remove(piece)
        self.expired += 1
        self._finish(piece.offset, bits_at(piece.first, piece.length))

    def _open_next(self) -> None:
        """Look at the batch at `next`: what of it is the group's, and not done, is ready."""
        offset = self._log.following(self.next)
        if offset != self.next:
            self._open.leap(offset)
            return
        whole = self._journal.known(offset) is None
        count = 0 if whole else self._count_at(offset)  # nothing has changed if that raises
        done, tried = self._journal.take_known(offset)
        open_bits = bits_at(0, count) & ~done
        self._open.open(count, open_bits)
        for first, length in runs_of(open_bits):
            for piece in split_by_attempts(offset, first, length, tried):
                self._free.add(piece)

    def _count_at(self, offset: int) -> int:
        """How many messages of the group's this batch has."""
        if offset < self._log.floor:
            return 0
        record = self._log.record(offset)
        if record is None:
            self.expired += 1
            return 0
        topic, _, batch, size = record
        if size < HEADER_BYTES or not (self._everything or topic.name.startswith(self._prefixes)):
            return 0
        if topic.name == LATER_TOPIC:
            return 0
        kind, count = _KIND_AND_COUNT.unpack_from(cast("bytes", batch))
        return int(count) if kind == Kind.DATA else 0

    def _lease(self, member: Member, piece: Piece, numbers: NumberedLeases) -> Lease:
        lease = Lease(numbers.next(), member, piece)
        member.leases[lease.number] = lease
        member.held += piece.length
        self.out += piece.length
        return lease

    def _bits_of(self, lease: Lease, first: int, count: int) -> int:
        """The bits of a lease that these messages are, as far as they are open; -1: none of its."""
        start = first - lease.first
        if start < 0 or start + count > lease.length:
            return -1
        return bits_at(start, count) & lease.open

    def _settle(self, lease: Lease, bits: int, *, done: bool) -> None:
        """These bits of a lease are the member's no more."""
        amount = bits.bit_count()
        lease.open &= ~bits
        lease.member.held -= amount
        self.out -= amount
        if done:
            lease.member.acknowledged += amount
            self.acknowledged += amount
            self._finish(lease.offset, bits << lease.first)
        if not lease.open:
            del lease.member.leases[lease.number]

    def _finish(self, offset: int, bits: int) -> None:
        """These messages are done, whoever says so."""
        if self._open.finish(offset, bits):
            self._journal.note_done(offset)

    def _return(self, lease: Lease, bits: int, *, counted: bool, delay: float, reason: str) -> None:
        """These messages of a lease are free after so many seconds."""
        attempts = lease.attempts + counted
        why = reason if counted else lease.reason
        self._settle(lease, bits, done=False)
        for start, length in runs_of(bits):
            piece = Piece(lease.offset, lease.first + start, length, attempts, why)
            self._free.wait(piece, self._clock + delay)
            if counted:
                self._journal.note_tried(Tried(*piece))

    def _return_all(self, member: Member, *, counted: bool, reason: str = "") -> None:
        """All that a member holds is free at once."""
        for lease in list(member.leases.values()):
            self._return(lease, lease.open, counted=counted, delay=0.0, reason=reason)

    def _keep_up(self) -> None:
        """What has left the log is nobody's any more."""
        floor = self._log.floor
        if floor <= self.base:
            return
        for member in self._members.values():
            for lease in [each for each in member.leases.values() if each.offset < floor]:
                self._settle(lease, lease.open, done=False)
        for piece in [each for each in self._free if each.offset < floor]:
            self._free.remove(piece)
        self._journal.drop_below(floor)
        self.expired += self._open.drop_below(floor)

    def _oldest(self) -> int:
        """When the batch at `base` was appended; 0: there is none."""
        if self.base >= self._log.committed:
            return 0
        record = self._log.record(self.base)
        return 0 if record is None else read_entry(record[1]).appended_us

    def _stalled(self) -> str:
        """Why nothing goes out though there is something to do."""
        if self.base >= self._log.committed:
            return ""
        if self.paused or not self._members:
            return "it is paused" if self.paused else "it has no member here"
        if self._open.span >= WINDOW and self._free.first(self._clock) is None:
            holder = next((each for each in self._leases() if each.offset == self.base), None)
            who = f"{holder.member.name} holds it" if holder else "it waits for its next attempt"
            return (
                f"{WINDOW} batches are open, since the one at offset {self.base} is not done: {who}"
            )
        first = self._free.first(self._clock)
        waits = first is not None or self._may_open()
        if waits and not self._taker(1 if first is None else first.length):
            return "each of its members holds as much as it takes"
        return ""
