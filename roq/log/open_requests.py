"""The requests of one service that have not ended: who was offered what, and who has begun with it.

Books alone: what follows from them is decided in `roq.log.service_group`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from msgspec.structs import replace

from roq.log.group_changes import BegunBy, bytes_of
from roq.log.leases import Lease, Piece, runs_of
from roq.protocol.requesting import Position, RequestEnd, RequestState, RequestView


@dataclass(slots=True)
class RequestBatch:
    """A batch of requests of which some are open.

    Attributes:
        publisher: who has made them.
        appended_us: when it was accepted, µs UTC.
        due: when its requests are over, by the clock of the group.
        ready_at: since when what is free of it waits for an instance.
        leases: under which parts of it are out.
    """

    publisher: bytes
    appended_us: int
    due: float
    ready_at: float
    leases: list[Lease] = field(default_factory=list)

    def holder(self, index: int) -> Lease | None:
        """The lease under which this request is out; None: it is not."""
        for lease in self.leases:
            at = index - lease.first
            if 0 <= at < lease.length and lease.open >> at & 1:
                return lease
        return None


@dataclass(slots=True)
class Offer:
    """A lease that its instance has not wholly confirmed, until when it has to, and what of it."""

    lease: Lease
    due: float
    unconfirmed: int


@dataclass(slots=True)
class Trials:
    """What went wrong with one request: how often nobody has confirmed it, or its instance was
    lost."""

    unconfirmed: int = 0
    lost: int = 0


class OpenRequests:
    """Books of what is open.

    Attributes:
        batches: by offset, in order.
        offers: by number of the lease, the one that is due first at the front.
        parked: by offset, what must not be begun again and no lease stands for, and until when.
        since: by number of the lease, when it was given out: append time, µs UTC. The clock of the
            group is too coarse to measure by.
        once_changed: whether `take_begun` has something.
    """

    def __init__(self) -> None:
        self.batches: OrderedDict[int, RequestBatch] = OrderedDict()
        self.offers: dict[int, Offer] = {}
        self.since: dict[int, int] = {}
        self.parked: dict[int, tuple[int, float]] = {}
        self._once: dict[int, dict[bytes, int]] = {}
        """By offset and member."""
        self._changed: set[tuple[int, bytes]] = set()
        self._trials: dict[Position, Trials] = {}

    def clear(self) -> None:
        """Nothing is open."""
        for held in (self.batches, self.offers, self.since, self.parked, self._once, self._trials):
            held.clear()
        self._changed.clear()

    def state(self, position: Position, free: Piece | None) -> RequestState:
        """How an open request stands.

        Args:
            free: as what it waits for an instance; None: it does not.
        """
        offset, index = position
        lease = self.batches[offset].holder(index)
        if lease is not None:
            begun = self.begun(lease) >> (index - lease.first) & 1
            return RequestState.RUNNING if begun else RequestState.OFFERED
        if self.parked.get(offset, (0, 0.0))[0] >> index & 1:
            return RequestState.RUNNING
        tried = free is not None and free.attempts
        return RequestState.RETRYING if tried else RequestState.ACCEPTED

    def free(self, offset: int, bits: int) -> int:
        """Which of these open requests nobody holds."""
        bits &= ~self.parked.get(offset, (0, 0.0))[0]
        for lease in self.batches[offset].leases:
            bits &= ~(lease.open << lease.first)
        return bits

    def trials(self, offset: int, index: int) -> Trials:
        """What went wrong with a request so far."""
        return self._trials.setdefault(Position(offset, index), Trials())

    def losses(self, lease: Lease) -> int:
        """How often the instance of each of these was lost, as far as this process knows."""
        if not self._trials:
            return 0
        never = Trials()
        places = (Position(lease.offset, lease.first + at) for at in indexes(lease.open))
        return min(self._trials.get(place, never).lost for place in places)

    def ended(self, outcome: RequestEnd) -> None:
        """These are open no more."""
        if self._trials:
            for position in outcome.keys:
                self._trials.pop(position, None)

    # --- leases -----------------------------------------------------------------------------------

    def lease(self, lease: Lease, due: float, time_us: int) -> None:
        """This was offered to an instance."""
        self.since[lease.number] = time_us
        self.batches[lease.offset].leases.append(lease)
        self.offers[lease.number] = Offer(lease, due, lease.open)

    def confirm(self, lease: Lease, bits: int) -> None:
        """The instance has begun with this part of a lease, or has no more to do with it."""
        offer = self.offers.get(lease.number)
        if offer is not None:
            offer.unconfirmed &= ~bits
            if not offer.unconfirmed:
                del self.offers[lease.number]

    def close(self, lease: Lease, bits: int) -> None:
        """These bits of a lease have no more to do with it."""
        self.confirm(lease, bits)
        self.forget_once(lease.offset, bits << lease.first)
        self.prune(lease)

    def prune(self, lease: Lease) -> None:
        """Forget a lease of which nothing is open."""
        batch = self.batches.get(lease.offset)
        if not lease.open:
            self.since.pop(lease.number, None)
        if batch is not None and not lease.open and lease in batch.leases:
            batch.leases.remove(lease)

    def begun(self, lease: Lease) -> int:
        """What of the open bits of a lease its instance has said that it has begun."""
        offer = self.offers.get(lease.number)
        return lease.open if offer is None else lease.open & ~offer.unconfirmed

    def withdraw(self, lease: Lease) -> tuple[int, int]:
        """The lease ends without a word of its instance.

        Returns:
            Of its open bits, counted within the batch: what was begun and may be begun again, and
            what must not.
        """
        begun = self.begun(lease)
        self.offers.pop(lease.number, None)
        self.since.pop(lease.number, None)
        once = self.once(lease.offset) & lease.open << lease.first
        return begun << lease.first & ~once, once

    # --- what must not be begun again -------------------------------------------------------------

    def once(self, offset: int) -> int:
        """What of a batch was begun and must not be begun again."""
        return sum(self._once.get(offset, {}).values())  # a request is begun by one of them

    def once_by(self, offset: int, member: bytes) -> int:
        """Likewise, by this one."""
        return self._once.get(offset, {}).get(member, 0)

    def begin_once(self, offset: int, member: bytes, bits: int) -> None:
        """A member has begun these, and they must not be begun again."""
        self.set_once(offset, member, self.once_by(offset, member) | bits)
        self._changed.add((offset, member))

    def forget_once(self, offset: int, bits: int) -> None:
        """These have ended, or may be begun again."""
        for member, once in list(self._once.get(offset, {}).items()):
            if once & bits:
                self.set_once(offset, member, once & ~bits)
                self._changed.add((offset, member))

    def set_once(self, offset: int, member: bytes, bits: int) -> None:
        """Of this member it is these, as an earlier process has written."""
        by_member = self._once.setdefault(offset, {})
        by_member[member] = bits
        if not bits:
            del by_member[member]
        if not by_member:
            del self._once[offset]

    def drop_below(self, floor: int) -> None:
        """Everything below is done."""
        for offset in [each for each in self._once if each < floor]:
            del self._once[offset]

    def parked_by(self, offset: int, member: bytes) -> int:
        """What is parked here and this member has begun."""
        return self.parked.get(offset, (0, 0.0))[0] & self.once_by(offset, member)

    def park(self, offset: int, bits: int, until: float) -> None:
        """No lease stands for these; whoever has begun may come back until then."""
        before, late = self.parked.get(offset, (0, until))
        self.parked[offset] = before | bits, max(late, until)

    def unpark(self, offset: int, bits: int) -> None:
        """These are not parked, if they were."""
        before, until = self.parked.get(offset, (0, 0.0))
        if before & ~bits:
            self.parked[offset] = before & ~bits, until
        else:
            self.parked.pop(offset, None)

    # --- what outlives the process ----------------------------------------------------------------

    @property
    def once_changed(self) -> bool:
        """Whether `take_begun` has something."""
        return bool(self._changed)

    def take_begun(self) -> list[BegunBy]:
        """What must not be begun again, by batch and member, where it has changed since the last
        call."""
        begun = [BegunBy(*each, bytes_of(self.once_by(*each))) for each in self._changed]
        self._changed.clear()
        return begun

    def all_begun(self) -> list[BegunBy]:
        """All that must not be begun again."""
        return [
            BegunBy(offset, member, bytes_of(bits))
            for offset, by_member in self._once.items()
            for member, bits in by_member.items()
        ]

    def check(self) -> None:
        """Assert the invariants."""
        for offset, (bits, _) in self.parked.items():
            assert bits & ~self.once(offset) == 0, "only what was begun is parked"  # noqa: S101
        for by_member in self._once.values():
            every = 0
            for bits in by_member.values():
                assert bits & ~every == bits > 0, "nothing is begun by two"  # noqa: S101
                every |= bits
        for offer in self.offers.values():
            assert offer.unconfirmed & ~offer.lease.open == 0  # noqa: S101
        for position in self._trials:
            assert position.offset in self.batches  # noqa: S101

    def parked_places(self) -> list[tuple[int, int]]:
        """Offset and index of all that is parked."""
        return [
            (offset, index) for offset, (bits, _) in self.parked.items() for index in indexes(bits)
        ]


def open_view(
    told: RequestView, batch: RequestBatch, free: Piece | None, index: int, age: float
) -> RequestView:
    """How an open request stands, with who has it, and how often it was tried.

    Args:
        told: without that.
        free: as what it waits for an instance; None: it does not.
        age: seconds since it was accepted.
    """
    lease = batch.holder(index)
    tried, runs = lease or free, told.state is RequestState.RUNNING
    return replace(
        told, text="" if tried is None else tried.reason,
        instance="" if lease is None else lease.member.name,
        attempts=0 if tried is None else tried.attempts + runs, age_seconds=age,
    )  # fmt: skip


def indexes(bits: int) -> list[int]:
    """Which bits are ones."""
    return [at for first, length in runs_of(bits) for at in range(first, first + length)]
