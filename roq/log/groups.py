"""A consumer group at one log: who may have which messages, for how long, and what is done. Pure.

    open --leased to a member--> out --acknowledged--> done
      ^                           |
      +---- given back, or its member is silent or gone: again after a while, as one more attempt

What lies between the first that is not done and the last that was looked at (`group_progress`) is
bounded: a message that nobody gets done holds the group in the end, and `stalled` names it. Batches
are leased whole, as far as the member's credit reaches; a lease stands for some messages of one
batch, so that what is given back can go elsewhere in parts, and what is ordered by key to the
member that has the key.

What must outlive the process comes out of `take_changes` and goes into the log; another process is
given it by `apply`, and leases out again what was not done.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, TypeVar

from roq.log import group_progress
from roq.log.free_messages import FreeMessages
from roq.log.group_changes import GroupDelta, Tried
from roq.log.group_filter import GroupFilter
from roq.log.group_progress import GroupProgress
from roq.log.keyed_messages import KeyedMessages
from roq.log.leases import (
    Lease,
    Member,
    NumberedLeases,
    Piece,
    bits_at,
    check_held,
    lowest_of,
    piece_of,
    runs_of,
    wait_after,
)
from roq.log.log import Log, Record
from roq.log.ranked_messages import RankedMessages
from roq.protocol.consuming import GroupSettings, GroupState, MemberState, Run

B = TypeVar("B")

SCAN_MAX: Final = 256
"""Batches of other topics that are passed over at once."""
AHEAD_STEP: Final = 1_000
"""With priorities the group looks at so many batches more at once, when its window has room."""
MEMBERS_MAX: Final = 10_000
STEP_SECONDS_MAX: Final = 0.6
"""More does not pass between two looks: a process that was stopped, or late, does not take members
for silent whom it has not read yet."""
RETURN_SECONDS: Final = 2.0
"""After a start members have so long to say what they hold, before that goes to others."""


class ConsumerGroup(GroupProgress[B]):
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
        sought_us: when an operator has moved it last, µs UTC; 0: never.
        acknowledged, failed, lapsed: as `GroupState` says.
    """

    def __init__(
        self, name: str, log: Log[B], settings: GroupSettings, created_us: int, start: int,
        now: float,
    ) -> None:  # fmt: skip
        super().__init__(name, log, settings, start, now)
        self.created_us, self.sought_us = created_us, 0
        self.out = self.acknowledged = self.failed = self.lapsed = 0
        self.paused = False
        self._members: OrderedDict[bytes, Member] = OrderedDict()
        """In the order of their turns; of an exclusive group the first one gets everything."""
        self._passing = self._dropping = False
        """Whether the last look has ended among batches of other topics, or what has expired."""
        self._ticked_at = self._hold_until = now

    # --- members ----------------------------------------------------------------------------------

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
            if known.silent and self._keyed is not None:
                self._keyed.join(member)
            known.silent = False
            return known
        if len(self._members) >= MEMBERS_MAX:
            return None
        made = self._members[member] = Member(member, name, self._clock)
        if self._keyed is not None:
            self._keyed.join(member)
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
            elif not others and first + count <= self._open.size(offset):
                taken = (
                    self._free.take(offset, first, count, member.id)
                    if isinstance(self._free, KeyedMessages)
                    else self._free.take(offset, first, count)
                )
                leases.extend(self._lease(member, piece, numbers) for piece in taken)
        if exclusive and leases:
            self._members.move_to_end(member.id, last=False)  # it goes on as the one
        return leases, done

    def leave(self, member: bytes) -> None:
        """A member goes, and what it holds is free at once: it was not tried."""
        known = self._members.pop(member, None)
        if known is not None:
            self._return_all(known, counted=False)
            self._left(known)

    def gone(self, member: bytes) -> None:
        """A member's connection has ended: what it holds was tried, and is free at once."""
        known = self._members.pop(member, None)
        if known is not None:
            self.lapsed += known.held
            self._return_all(known, counted=True, reason="its consumer has gone")
            self._left(known)

    def heard(self, member: Member) -> None:
        """The member is there: its leases go on."""
        member.heard = self._clock

    def tick(self, now: float) -> list[Member]:
        """Time has passed; gives the members that were silent for too long, and have lost what they
        held. Call it about twice a second."""
        self._clock += min(max(0.0, now - self._ticked_at), STEP_SECONDS_MAX)
        self._ticked_at = now
        self._keep_up()  # without members nobody else does
        since = self._clock - self.settings.lease_seconds
        silent = [
            each
            for each in self._members.values()
            if (each.leases or each.silent) and each.heard < since
        ]
        for member in silent:
            before = member.held
            self._return_all(member, counted=True, reason="its consumer was silent", over=True)
            self.lapsed += before - member.held
            member.restart()
            self._left(member)
            member.silent = True  # what it has asked more time for it holds, and gets nothing else
        gone = [each for each in silent if not each.leases]
        for member in gone:
            del self._members[member.id]
        return gone

    def hold(self) -> None:
        """Hand nothing out for a while: members come back and say what they hold."""
        self._hold_until = self._clock + RETURN_SECONDS

    # --- handing out ------------------------------------------------------------------------------

    def next_lease(self, numbers: NumberedLeases) -> tuple[Lease, Record[B]] | None:
        """What goes out now, and to whom; None: nothing, or nobody who would take it.

        A few batches that are nobody's are passed over at a time: ask again while `busy`.
        """
        self._passing = self._dropping = False
        self._keep_up()
        if self.paused or self._clock < self._hold_until or self.reads.waits(self._clock):
            return None
        if self._plain and not self._free and (straight := self._next_straight(numbers)):
            return straight
        for _ in range(SCAN_MAX):
            chosen = self._choose() if self._keyed is None else self._choose_keyed(self._keyed)
            if chosen is None:
                return None
            member, piece = chosen
            record = self.reads.record(piece.offset, self._clock)
            overdue = record is not None and self.lifetimes.any and self.lifetimes.over(record)
            if record is not None and (not overdue or self.settings.bury_expired):
                break
            if record is None and self.reads.waits(self._clock):
                return None
            self._drop(piece, lost=record is None)
        else:
            self._dropping = True
            return None
        self._free.remove(piece)
        share = member.share(amount := piece.amount, self._free.reserve(piece))
        if share < amount:
            bits = piece.bits << piece.first
            mine = lowest_of(bits, share)
            self._free.add(piece.part(bits & ~mine), first=True)
            piece, amount = piece.part(mine), share
        if self._ranked is not None:
            self._ranked.went(piece, self._clock)
        lease = self._lease(member, piece, numbers)
        lease.overdue = overdue
        member.taken += amount
        member.taken_bytes += record[3]
        if self.settings.mode != "exclusive":
            self._members.move_to_end(member.id)
        return lease, record

    def _next_straight(self, numbers: NumberedLeases) -> tuple[Lease, Record[B]] | None:
        """As `next_lease`, for what is usual: nothing is free, and the batch at `next` was never
        tried, says nothing of its messages, and goes to one member. In half the steps; None: it is
        nobody's, and passed over, or goes the long way."""
        opened, clock, reads = self._open, self._clock, self.reads
        offset = opened.next
        unusual = self._journal.remembers or self.lifetimes.any or reads.refuses(clock)
        if unusual or not self._may_open() or self._log.following(offset) != offset:
            return None
        if (record := reads.record(offset, clock)) is None:
            return None
        count, _ = self._filter.look_at(record)
        if not count:
            opened.open(0, 0)
            return None
        member = None if self._filter.extended else self._taker(count)
        if member is None or member.share(count) < count:
            return None
        if not self._goes_straight(offset, bits := bits_at(0, count), record):
            return None
        opened.seen[offset] = record[0].name, record[1], b""
        opened.open(count, bits)
        lease = self._lease(member, Piece(offset, 0, count, 0, ""), numbers)
        member.taken += count
        member.taken_bytes += record[3]
        self._members.move_to_end(member.id)
        return lease, record

    def _goes_straight(self, offset: int, bits: int, record: Record[B]) -> bool:  # noqa: ARG002
        """Whether this batch, which is usual otherwise, goes out so; if not, nothing changes."""
        return True

    @property
    def busy(self) -> bool:
        """Whether `next_lease` has given nothing because it was passing over what is nobody's."""
        return self._dropping or (self._passing and not self.paused and self._may_open())

    @property
    def more(self) -> bool:
        """Whether `next_lease` may have something: what is free, or was not looked at."""
        return bool(self._free) or self._may_open()

    # --- what members have done -------------------------------------------------------------------

    def acknowledge(self, member: Member, number: int, first: int = 0, count: int = 0) -> bool:
        """Messages are done; False: this lease is not the member's, or not any more.

        Args:
            first, count: which ones, counted within the batch; no count: all of the lease.
        """
        lease = member.leases.get(number)
        bits = -1 if lease is None else self._bits_of(lease, first, count) if count else lease.open
        if lease is None or bits < 0:
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
            delay = delay or wait_after(lease.attempts, lease.offset, self.settings)
        self._return(lease, bits, counted=counted, delay=delay, reason=reason)
        return True

    def extend(self, member: Member, number: int, first: int, count: int, seconds: float) -> bool:
        """The member holds messages for so long at least, though nothing is heard of it; False: as
        `acknowledge`, or they are settled."""
        lease = member.leases.get(number)
        bits = -1 if lease is None else self._bits_of(lease, first, count)
        if lease is None or bits <= 0:
            return False
        lease.extended |= bits
        lease.until = max(lease.until, self._clock + seconds)
        return True

    def recall(self, lease: Lease, amount: int, size: int) -> None:
        """What was not sent yet goes back, as if it had never been leased.

        Args:
            amount, size: messages that its member has taken by it, and bytes of their batch.
        """
        member = lease.member
        member.taken -= amount
        member.taken_bytes -= size
        if member.leases.get(lease.number) is lease:
            self._return(lease, lease.open, counted=False, delay=0.0, reason="")

    # --- operators --------------------------------------------------------------------------------

    def seek(self, offset: int) -> list[Member]:
        """Go on from here, backward or forward; gives the members, whose leases are all over."""
        members = list(self._members.values())
        for member in members:
            member.leases.clear()
            member.held = 0
            member.restart()
        self._members.clear()
        self.sought_us = max(self._log.time_us, self.sought_us + 1)
        self.out = 0
        self._free.clear()
        self._open.restart(min(max(offset, self._log.floor), self._log.committed))
        self._journal.restart()
        return members

    @property
    def returning(self) -> bool:
        """Whether members may still come back to a process that was started anew."""
        return self._clock < self._hold_until

    def finish_below(self, offset: int) -> None:
        """Everything below is done, whoever has done it; what lies above stays as it is."""
        if offset > self.base:
            self._leave_behind(offset)

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
        oldest, unseen_us = self.oldest() if who else ([], 0)
        return GroupState(
            name=self.name, settings=self.settings, created_us=self.created_us, base=self.base,
            end=self._log.committed, out=self.out, waiting=self._free.count,
            oldest_us=self.oldest_us, oldest=oldest, unseen_us=unseen_us,
            members=len(self._members), paused=self.paused,
            acknowledged=self.acknowledged, failed=self.failed,
            lapsed=self.lapsed, expired=self.expired, malformed=self._filter.malformed,
            stale=self.stale, stalled=self.stalled,
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
            Tried(each.offset, each.first + start, length, each.attempts, each.reason)
            for each in self._held()
            if each.attempts
            for start, length in runs_of(each.open if isinstance(each, Lease) else each.bits)
        ]
        return self._journal.snapshot(
            tried, self.settings, self.created_us, paused=self.paused, sought_us=self.sought_us
        )

    def apply(self, delta: GroupDelta) -> None:
        """Take in what an earlier process has written, in order; before anything else happens."""
        if delta.settings is not None:
            self.settings = delta.settings
            self._filter = GroupFilter(delta.settings)
            self.created_us, self.sought_us = delta.created_us, delta.sought_us
            self.paused = delta.paused
        self._journal.apply(delta, group_progress.WINDOW)

    def check(self) -> None:
        """Assert the invariants. Costs O(n): tests and simulation only."""
        self._open.check()
        assert self.next <= max(self._log.committed, self.base)  # noqa: S101
        assert self._open.span <= group_progress.WINDOW  # noqa: S101
        held = check_held(self._unheld(), self._members.values())
        assert held == self._open.bits, "each open message is somewhere"  # noqa: S101
        assert self.out == sum(each.open.bit_count() for each in self._leases())  # noqa: S101
        assert self._free.count == sum(each.amount for each in self._free)  # noqa: S101
        if self._keyed is not None:
            self._keyed.check(self._leases())

    # --- inside -----------------------------------------------------------------------------------

    def _leases(self) -> list[Lease]:
        return [lease for member in self._members.values() for lease in member.leases.values()]

    def _unheld(self) -> list[Piece]:
        return list(self._free)

    def _held(self) -> list[Piece | Lease]:
        return [*self._unheld(), *self._leases()]

    def _left(self, member: Member) -> None:
        """It is no member any more, and gets nothing."""
        if self._keyed is not None and not member.silent:
            self._keyed.leave(member.id)

    def _choose(self) -> tuple[Member, Piece] | None:
        """What goes out next, and to whom; it stays where it is."""
        piece = self._first_piece() if self._ranked is None else self._highest(self._ranked)
        if piece is None:
            return None
        member = self._taker(piece.amount, self._free.reserve(piece))
        return None if member is None else (member, piece)

    def _highest(self, ranked: RankedMessages) -> Piece | None:
        """Likewise, of all that is in reach."""
        for _ in range(SCAN_MAX):
            # In steps: to look at each batch that comes into reach costs two reads of the disk.
            ahead = self._open.span > group_progress.WINDOW - AHEAD_STEP
            if not self._may_open() or (ranked and ahead):
                return ranked.first(self._clock)
            self._open_next()
        self._passing = True
        return None

    def _choose_keyed(self, keyed: KeyedMessages) -> tuple[Member, Piece] | None:
        """Likewise, where each member has keys of its own."""
        every, lanes = self._members.values(), keyed.groups.lanes
        taking = [each for each in every if each.credit > 0 and lanes(each.id)]
        for _ in range(SCAN_MAX):
            idle = False
            for member in taking:
                piece = keyed.choose(member.id, self._clock)
                if piece is None:
                    idle = True
                elif member.share(piece.amount):
                    return member, piece
            if not idle or not self._may_open():
                return None
            self._open_next()
        self._passing = True
        return None

    def _taker(self, count: int, reserve: int = 0) -> Member | None:
        """Whose turn it is, of those that would take so many messages, or a part of them."""
        if self.settings.mode == "exclusive":
            first = next(iter(self._members.values()), None)
            return first if first is not None and first.share(count) else None
        for member in self._members.values():
            if member.share(count, reserve):
                return member
        return None

    def _first_piece(self) -> Piece | None:
        """What goes out next; it stays where it is."""
        self._passing = False
        exclusive = self.settings.mode == "exclusive"
        if exclusive and isinstance(self._free, FreeMessages) and self._free:
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

    def _lease(self, member: Member, piece: Piece, numbers: NumberedLeases) -> Lease:
        lease = Lease(numbers.next(), member, piece)
        member.leases[lease.number] = lease
        member.held += (amount := piece.amount)
        self.out += amount
        if self._keyed is not None:
            self._keyed.leased(lease)
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
            self.stale += amount * lease.overdue
            self._finish(lease.offset, bits << lease.first)
        if not lease.open:
            del lease.member.leases[lease.number]
            if self._keyed is not None:
                self._keyed.over(lease)

    def _return(self, lease: Lease, bits: int, *, counted: bool, delay: float, reason: str) -> None:
        """These messages of a lease are free after so many seconds."""
        attempts = lease.attempts + counted
        why = reason if counted else lease.reason
        self._settle(lease, bits, done=False)
        divided = not isinstance(self._free, FreeMessages)
        if divided and bits:
            # As a whole: in runs it would go out in as many leases as it has messages.
            piece = piece_of(lease.offset, bits << lease.first, attempts, why)
            self._free.wait(piece, self._clock + delay)
        for start, length in runs_of(bits):
            tried = Tried(lease.offset, lease.first + start, length, attempts, why)
            if not divided:
                self._free.wait(Piece(*tried), self._clock + delay)
            if counted:
                self._journal.note_tried(tried)

    def _return_all(
        self, member: Member, *, counted: bool, reason: str = "", over: bool = False
    ) -> None:
        """All that a member holds is free at once.

        Args:
            over: but for what it has asked more time for.
        """
        for lease in list(member.leases.values()):
            bits = lease.over(self._clock) if over else lease.open
            self._return(lease, bits, counted=counted, delay=0.0, reason=reason)

    def _keep_up(self) -> None:
        """What has left the log is nobody's any more."""
        if self._log.floor > self.base:
            self.expired += self._leave_behind(self._log.floor)

    def _leave_behind(self, offset: int) -> int:
        """Begin here, without what is open below; how many batches that were."""
        for member in self._members.values():
            for lease in [each for each in member.leases.values() if each.offset < offset]:
                self._settle(lease, lease.open, done=False)
        for piece in [each for each in self._free if each.offset < offset]:
            self._free.remove(piece)
        self._journal.drop_below(offset)
        return self._open.drop_below(offset)

    @property
    def stalled(self) -> str:
        """Why nothing goes out though there is something to do; empty: it does."""
        if self.base >= self._log.committed:
            return ""
        if self.paused or not self._members:
            return "it is paused" if self.paused else "it has no member here"
        if self._is_full and self._free.first(self._clock) is None:
            holder = next((each for each in self._leases() if each.offset == self.base), None)
            who = f"{holder.member.name} holds it" if holder else "it waits for its next attempt"
            since = f"{self._open.span} batches are open, since the one at offset {self.base}"
            return f"{since} is not done: {who}"
        first = self._free.first(self._clock)
        waits = first is not None or self._may_open()
        if waits and not self._taker(1 if first is None else first.amount):
            return "each of its members holds as much as it takes"
        return ""
