"""A consumer group whose messages are requests: who begins with what, and how each one ends. Pure.

    accepted --leased--> offered --begun--> running --answered--> done, failed …
       ^                    |                  |
       |  not confirmed in time; its instance is lost before it has begun, or may begin again
       +--------------------+------------------+
                            lost, and it must not be begun again: unknown

What hands out, renews and takes back is the group (`roq.log.groups`). Here is what comes on top:
an answer acknowledges a request and is kept, both in one record of the log; an instance confirms
what it was offered; and what nobody takes, or nobody answers in time, ends as well. So each request
ends exactly once, and whoever holds a lease that is over can neither acknowledge nor answer.

A request that must not be begun twice and that no lease stands for is *parked*: its instance may
come back and say that it has it. Until it has said so, or a moment is over, nobody gets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import Final, TypeVar, cast

from msgspec.structs import replace

from roq.log.delayed_requests import DelayedRequests
from roq.log.free_messages import FreeMessages
from roq.log.group_changes import GroupDelta
from roq.log.groups import RETURN_SECONDS, ConsumerGroup
from roq.log.leases import Lease, Member, NumberedLeases, Piece, bits_at, runs_of
from roq.log.least_loaded import LeastLoadedOfTwo, why_nobody
from roq.log.log import Log, Record
from roq.log.open_requests import OpenRequests, RequestBatch, indexes, open_view
from roq.log.outcomes import Ended, OutcomeStore, RequestFigures, stored_view
from roq.log.ranked_messages import RankedMessages
from roq.protocol.consuming import GroupSettings, GroupState, Run
from roq.protocol.entry import appended_us
from roq.protocol.orphaned_answers import OrphanedAnswer
from roq.protocol.requesting import (
    LISTED_MAX,
    Answer,
    Begun,
    Figures,
    Position,
    RequestEnd,
    RequestState,
    RequestView,
    ServiceSettings,
    delayed_message,
    quick,
    shortened,
)

B = TypeVar("B")

AHEAD_MAX: Final = 1_000
NAMES_AHEAD_MAX: Final = 500
"""Looked at in one tick though nobody takes them: batches; of these, requests sent once more."""
CLOCK_SECONDS: Final = 0.5
"""The clock of a group is so old at most: so much more time an instance has to confirm."""
SECOND_US: Final = 1_000_000
_PUBLISHER: Final = Struct("<16x16s")
"""Of the header of a batch (`roq.protocol.batch`)."""


class ServiceGroup(ConsumerGroup[B]):
    """The requests of one service at one log.

    Args: as of `ConsumerGroup`; `settings.service` is there.

    Attributes:
        outcomes: what is kept of requests that have ended.
        ended: those that have ended since the exchange has looked.
        revoked: (member, lease, index) of what was taken from an instance since then.
        figures: what instances have said of themselves, by member.
        counts: how requests have ended since the start, and why some were discarded.
        measured: how many there were, and how long they have taken.
    """

    def __init__(
        self, name: str, log: Log[B], settings: GroupSettings, created_us: int, start: int,
        now: float,
    ) -> None:  # fmt: skip
        super().__init__(name, log, settings, created_us, start, now)
        self.outcomes = OutcomeStore()
        self.ended: list[Ended] = []
        self.revoked: dict[tuple[bytes, int, int], None] = {}
        self.figures: dict[bytes, Figures] = {}
        self.counts: Counter[str] = Counter()
        self.measured = RequestFigures()
        self._requests = OpenRequests()
        self._free: FreeMessages | RankedMessages  # a service is shared
        self.delayed = DelayedRequests()
        self._choice = LeastLoadedOfTwo()
        self._taken_at = now
        """When something was handed out last, or nothing could be for another reason than that
        nobody would have it."""

    @property
    def service(self) -> ServiceSettings:
        """What holds for its requests."""
        return self.settings.service or ServiceSettings()

    def choose(self, settings: ServiceSettings) -> None:
        """Go on with these, if somebody has chosen them."""
        if settings.chosen and settings != self.service:
            self.settings = replace(self.settings, service=settings)
            self._journal.note_all()
            for batch in self._requests.batches.values():
                batch.due = self._due(batch.appended_us)
            self.outcomes.retime(self._kept_until)

    @property
    def full(self) -> bool:
        """Whether so much is stored that nothing is handed out."""
        return self.outcomes.bytes > self.service.store_bytes // 2

    # --- what instances say -----------------------------------------------------------------------

    def begin(self, member: Member, begun: Begun) -> bool:
        """An instance begins with requests; False: some of them are not its own (any more)."""
        lease = member.leases.get(begun.lease)
        bits = -1 if lease is None else self._bits_of(lease, begun.first, begun.length)
        if lease is None or bits < 0:
            return False
        self._requests.confirm(lease, bits)
        if begun.once:
            self._requests.begin_once(lease.offset, member.id, bits << lease.first)
            # It waits for a word before it begins, and may not have heard what was taken from it.
            for index in indexes(bits_at(begun.first, begun.length) & ~(bits << lease.first)):
                self.revoked[member.id, lease.number, index] = None
        return bits.bit_count() == begun.length

    def answer(self, member: Member, answer: Answer) -> bool:
        """An instance says how requests have ended; False: some are not its own (any more)."""
        return self.answer_all(member, answer.lease, [answer]) == 1 + len(answer.more)

    def answer_all(self, member: Member, number: int, answers: Iterable[Answer]) -> int:
        """Likewise, of requests under one lease; how many are its own."""
        lease = member.leases.get(number)
        if lease is None:
            return 0
        attempts, now_us, most = lease.attempts + 1, self._log.time_us, self.service.store_bytes
        offset, publisher = lease.offset, self._requests.batches[lease.offset].publisher
        still = held = lease.open << lease.first
        for answer in answers:
            own = (still >> answer.index & bits_at(0, 1 + len(answer.more))) << answer.index
            still ^= own
            for index, state, values, text in self.outcomes.fitting(answer, runs_of(own), most):
                made = RequestEnd(
                    offset, index, state, values[0], text, attempts, now_us, member.name, values[1:]
                )
                self._note_end(made, publisher, most, silent=answer.silent)
        bits = (held ^ still) >> lease.first
        if bits:
            took = self._age(self._requests.since.get(number, now_us))
            self.measured.running.note(took, bits.bit_count())
            self._settle(lease, bits, done=True)
            self._requests.close(lease, bits)
        return bits.bit_count()

    def answer_former(self, member: Member, answer: OrphanedAnswer) -> bool | None:
        """An instance says how a request has ended that was sent once more: whether that counts,
        as no instance has begun with it here; None: none that was looked at is such a request."""
        at = self.delayed.former.where(answer.token)
        if at is None or self._requests.state(at, self._free.at(*at)) is RequestState.RUNNING:
            return None if at is None else False
        fitting = self.outcomes.fitting(answer.at(at.at), [(at.at, 1)], self.service.store_bytes)
        for _, state, values, text in fitting:
            self._end(at.offset, 1 << at.at, state, text, value=values[0], by=member.name)
        return True

    def take_back(self, member: Member, number: int, first: int, count: int) -> None:
        """The instance is about to give these back itself: they have not run, or may run again."""
        if (lease := member.leases.get(number)) is not None:
            self._requests.close(lease, max(0, self._bits_of(lease, first, count)))

    # --- what requesters say ----------------------------------------------------------------------

    def cancel(self, position: Position, *, late: bool) -> bool:
        """A request is not wanted any more; False: it is not open."""
        why = "its time was over" if late else "its requester said so"
        state = RequestState.LATE if late else RequestState.CANCELLED
        named, position = position, self.delayed.where(position)
        if self.delayed.withdraw(named):
            made = RequestEnd(*named, state, text=why, ended_us=self._log.time_us)
            self._note_end(made, b"", self.service.store_bytes // 2)
            return True
        # It may be in the log, and nobody have looked at it: a delayed one, wherever it is.
        while (self.next <= position.offset or self.outcomes.again(named)) and self._may_open():
            self._open_next()
        position = self.delayed.where(named)
        if not self._open.bits.get(position.offset, 0) >> position.at & 1:
            return False
        self._end(position.offset, 1 << position.at, state, why)
        return True

    def state_of(self, position: Position) -> RequestState | None:
        """How a request stands; None: it was not looked at yet, and may not be one."""
        if (known := self.outcomes.state_of(position)) is not None:
            return known
        offset, index = position = self.delayed.where(position)
        if delayed_message(position) is not None:
            unseen = None if self.next < self._log.end else self.outcomes.unknown
            return self.delayed.waits(position) or unseen
        if self._open.bits.get(offset, 0) >> index & 1:
            return self._requests.state(position, self._free.at(offset, index))
        size = self._open.size(offset)
        if offset >= self._log.committed or (size and index >= size):
            return RequestState.NEVER
        return None if offset >= self.next else RequestState.FORGOTTEN

    # --- time -------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Member]:
        """As of any group; and what has waited, or was offered, for too long ends."""
        silent = super().tick(now)
        for member in self.figures.keys() - self._members.keys():
            del self.figures[member]
        most = self.delayed.former.tick() + NAMES_AHEAD_MAX
        for _ in range(AHEAD_MAX):
            if not self._may_open() or self.delayed.former.read >= most:
                break
            self._open_next()
        self._take_unconfirmed()
        for offset, (bits, until) in list(self._requests.parked.items()):
            if until <= self._clock:
                self._end(offset, bits, RequestState.UNKNOWN, "its instance was lost")
        for offset, batch in list(self._requests.batches.items()):
            if batch.due > self._clock:
                break
            self._end_late(offset)
        self._discard()
        if expired := self.outcomes.pass_time(self._clock):
            self.counts[RequestState.EXPIRED] += expired
        return silent

    def _take_unconfirmed(self) -> None:
        """What no instance has confirmed in time is taken back, or ends if that was too often."""
        for offer in list(self._requests.offers.values()):
            if offer.due > self._clock:
                continue
            lease, bits = offer.lease, offer.unconfirmed
            ends = 0
            for at in indexes(bits):
                trials = self._requests.trials(lease.offset, lease.first + at)
                trials.unconfirmed += 1
                ends |= (trials.unconfirmed >= self.service.send_attempts) << at
            # It gets nothing more before it has said something.
            lease.member.granted = lease.member.taken
            kind = "not confirmed"
            why = f"{kind} within {self.service.confirm_within:g} s by {lease.member.name}"
            self._end(lease.offset, ends << lease.first, RequestState.DISCARDED, why, kind)
            if again := bits & ~ends:
                self._requests.confirm(lease, again)
                for at in indexes(again):
                    self.revoked[lease.member.id, lease.number, lease.first + at] = None
                self._return(lease, again, counted=False, delay=0.0, reason=kind)

    def _discard(self) -> None:
        """What an instance was looked for often enough ends, with the reason."""
        service = self.service
        held = self.paused or self.full or self.reads.waits(self._clock)
        if held or self._clock < self._hold_until:
            self._taken_at = self._clock
            return
        if self._clock - self._taken_at < (patience := service.send_attempts * service.send_wait):
            return
        kind, text = why_nobody(self.name, self._members.values(), self.figures)
        text += f"; looked for {service.send_attempts} times"
        for offset, batch in list(self._requests.batches.items()):
            if self._clock - batch.ready_at >= patience:
                bits = self._requests.free(offset, self._open.bits[offset])
                self._end(offset, bits, RequestState.DISCARDED, text, kind)

    @property
    def stalled(self) -> str:
        """As of any group; or that nobody fetches what is stored."""
        stored = f"its store has {self.outcomes.bytes:,} bytes that nobody has fetched"
        return stored if self.full and self._requests.batches else super().stalled

    # --- handing out ------------------------------------------------------------------------------

    def next_lease(self, numbers: NumberedLeases) -> tuple[Lease, Record[B]] | None:
        """As of any group; nothing while too much is stored."""
        if self.full:
            return None
        found = super().next_lease(numbers)
        if found is not None:
            lease, self._taken_at = found[0], self._clock
            age = self._age(self._requests.batches[lease.offset].appended_us)
            self.measured.waiting.note(age, lease.open.bit_count())
        return found

    def _taker(self, count: int, reserve: int = 0) -> Member | None:
        """Who gets so many requests, or some of them."""
        some = tuple(self._members.values())
        found = self._choice.choose(some, self.figures, count, reserve) if len(some) > 1 else None
        return found or super()._taker(count, reserve)

    def join(self, member: bytes, name: str) -> Member | None:
        """As of any group."""
        self.figures.pop(member, None)
        return super().join(member, name)

    def resume(
        self, member: Member, held: list[Run], numbers: NumberedLeases
    ) -> tuple[list[Lease], list[Run]]:
        """As of any group; what an instance has begun it goes on with."""
        for offset, first, count in held:
            while self.next <= offset < self._log.committed and self._may_open():
                self._open_next()
            mine = self._requests.parked_by(offset, member.id)
            if not mine or first + count > self._open.size(offset):
                continue  # as the group itself does
            mine &= bits_at(first, count)
            self._requests.unpark(offset, mine)
            for start, length in runs_of(mine):
                self._free.add(Piece(offset, start, length, 0, ""))
        leases, done = super().resume(member, held, numbers)
        for lease in leases:
            self._requests.confirm(lease, lease.open)
        return leases, done

    def leave(self, member: bytes) -> None:
        """As of any group; what it has begun and not said to be done may have run."""
        known = self._members.get(member)
        offsets = [] if known is None else [lease.offset for lease in known.leases.values()]
        super().leave(member)
        for offset in offsets:
            bits = self._requests.parked_by(offset, member)
            self._end(offset, bits, RequestState.UNKNOWN, "its instance has left")

    def seek(self, offset: int) -> list[Member]:
        """As of any group, when it is deleted; what is open is cancelled."""
        while self._may_open():
            self._open_next()
        for at in list(self._requests.batches):
            self._end(at, -1, RequestState.CANCELLED, "an operator has deleted the service")
        members = super().seek(offset)
        self._requests.clear()
        self.delayed.clear()
        return members

    # --- how it stands ----------------------------------------------------------------------------

    def state(self, *, who: bool, most: int) -> GroupState:
        """As of any group, with what instances have said of themselves."""
        state = super().state(who=who, most=most)
        told = [replace(each, figures=self.figures.get(each.member)) for each in state.who]
        return replace(state, who=told)

    @property
    def open_count(self) -> int:
        """Requests that were looked at and have not ended."""
        return sum(bits.bit_count() for bits in self._open.bits.values())

    @property
    def oldest_age(self) -> float:
        """Seconds since the oldest of them was accepted; 0: there is none."""
        return next((self._age(each.appended_us) for each in self._requests.batches.values()), 0.0)

    def views(self) -> list[RequestView]:
        """Requests that are open, and those whose outcome is stored, as many as are listed: half of
        them are of either kind, unless there are fewer of it."""
        room = LISTED_MAX - min(len(self.outcomes), LISTED_MAX // 2)
        places = list(islice(self._open_places(), room))
        places += islice(self.outcomes.positions(), LISTED_MAX - len(places))
        return [shortened(self.view(position)) for position in sorted(places)]

    def view(self, position: Position) -> RequestView:
        """One request."""
        state = self.state_of(position) or RequestState.ACCEPTED
        stored = self.outcomes.get(position)
        offset, index = self.delayed.name(position)
        place = self.delayed.where(position)
        told = RequestView(offset=offset, index=index, state=state)
        if stored is not None:
            return stored_view(told, stored, self._age(stored.ended_us))
        batch = self._requests.batches.get(place.offset)
        if batch is None:
            return told
        return open_view(told, batch, self._free.at(*place), place.at, self._age(batch.appended_us))

    # --- what outlives the process ----------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Whether `take_changes` has something."""
        return super().changed or self.outcomes.changed or self._requests.once_changed

    def take_changes(self) -> GroupDelta | None:
        """As of any group; that a request is done and how it has ended is one change."""
        if not self.changed:
            return None
        delta = super().take_changes() or GroupDelta(self.name, self.base)
        ends, known = self.outcomes.take_changes()
        begun = self._requests.take_begun()
        if delta.settings is not None:
            return delta  # all of it
        return replace(delta, ends=ends, known=known, begun=begun)

    def drop_changes(self) -> None:
        """Nobody wants to know what has changed, now or later."""
        super().drop_changes()
        self.outcomes.note_no_changes()
        self._requests.take_begun()

    def snapshot(self) -> GroupDelta:
        """All of it, as it stands."""
        ends, known, begun = list(self.outcomes), self.outcomes.known(), self._requests.all_begun()
        return replace(super().snapshot(), ends=ends, known=known, begun=begun)

    def apply(self, delta: GroupDelta) -> None:
        """Take in what an earlier process has written, in order."""
        super().apply(delta)
        if delta.settings is not None:
            self.outcomes.clear()
            self._requests.clear()
            self.delayed.clear()
        for known in delta.known:  # of what has ended again since, `ends` has it
            self.outcomes.know(known, self._clock)
        for outcome in delta.ends:
            until = max(self._clock + RETURN_SECONDS, self._kept_until(outcome))
            self.outcomes.put(outcome, until, again=True)
        for offset, who, bits in delta.begun:
            self._requests.set_once(offset, who, int.from_bytes(bits, "little"))
        self.outcomes.drop_changes()  # it is written already
        self._requests.drop_below(self.base)
        self._taken_at = self._clock

    def check(self) -> None:
        """Assert the invariants. Costs O(n): tests and simulation only."""
        for part in (self._open, self.outcomes, self._requests):
            part.check()
        places = Counter(self._requests.parked_places())
        for each in self._held():
            bits = each.open if isinstance(each, Lease) else each.bits
            places.update((each.offset, each.first + at) for at in indexes(bits))
        wanted = set(self._open_places())
        assert places.keys() == wanted, "each open request is somewhere"  # noqa: S101
        assert set(places.values()) <= {1}, "and in one place alone"  # noqa: S101
        assert self._requests.batches.keys() == self._open.bits.keys()  # noqa: S101
        self.delayed.check(wanted)
        for piece in self._free:
            begun = self._requests.once(piece.offset) & piece.bits << piece.first
            assert not begun, "nobody is given what must not be begun again"  # noqa: S101

    # --- inside: what the group does, and what comes on top ---------------------------------------

    def _open_places(self) -> Iterator[Position]:
        for offset, bits in self._open.bits.items():
            yield from (Position(offset, index) for index in indexes(bits))

    def _open_next(self) -> None:
        offset = self.next
        super()._open_next()
        bits, record = self._open.bits.get(offset, 0), self.reads.last
        if not bits or record is None:
            return
        if self._enter(offset, bits, record) <= self._clock:  # no instance gets it first
            self._end_late(offset)
        elif once := self._requests.once(offset) & bits:
            self._park(offset, once, max(self._hold_until, self._clock + RETURN_SECONDS))

    def _goes_straight(self, offset: int, bits: int, record: Record[B]) -> bool:
        if self._requests.once(offset) or self._due(appended_us(record[1])) <= self._clock:
            return False
        self._enter(offset, bits, record)
        return True

    def _enter(self, offset: int, bits: int, record: Record[B]) -> float:
        """These requests of a batch are open; when they are over."""
        due = self._due(at_us := appended_us(record[1]))
        (publisher,) = _PUBLISHER.unpack_from(cast("bytes", record[2]))
        self._requests.batches[offset] = RequestBatch(publisher, at_us, due, self._clock)
        for named in self.delayed.opened(offset, bits, record[2]):
            self.outcomes.reopen(named)
        self.measured.accepted += bits.bit_count()
        return due

    def _end_late(self, offset: int) -> None:
        why = f"no result within {self.service.result_within:g} s"
        self._end(offset, -1, RequestState.LATE, why)

    def _lease(self, member: Member, piece: Piece, numbers: NumberedLeases) -> Lease:
        lease = super()._lease(member, piece, numbers)
        due = self._clock + CLOCK_SECONDS + self.service.confirm_within
        self._requests.lease(lease, due, self._log.time_us)
        lease.losses = self._requests.losses(lease)
        return lease

    def _return(self, lease: Lease, bits: int, *, counted: bool, delay: float, reason: str) -> None:
        super()._return(lease, bits, counted=counted, delay=delay, reason=reason)
        self._requests.confirm(lease, bits)  # also of what was recalled
        self._requests.prune(lease)
        batch = self._requests.batches[lease.offset]
        batch.ready_at = max(batch.ready_at, self._clock + delay)

    def _return_all(
        self, member: Member, *, counted: bool, reason: str = "", over: bool = False
    ) -> None:
        """All that an instance holds is free; but for what must not be begun again. What it has
        not begun it has not tried either."""
        ended = []
        for lease in list(member.leases.values()):
            begun, once = self._requests.withdraw(lease)
            ended.append((lease.offset, begun, once))
            offered = lease.open & ~((begun | once) >> lease.first)
            if offered:
                self._return(lease, offered, counted=False, delay=0.0, reason=reason)
        super()._return_all(member, counted=counted, reason=reason, over=over)
        for offset, begun, once in ended:
            if once:
                self._park(offset, once, self._clock + RETURN_SECONDS)
            if counted:
                self._lose(offset, begun)

    def _lose(self, offset: int, bits: int) -> None:
        """These were begun, and their instance is lost: again, unless that was too often."""
        ends, most = 0, self.service.run_attempts
        for index in indexes(bits):
            trials = self._requests.trials(offset, index)
            trials.lost += 1
            ends |= (trials.lost >= most) << index
        why = f"begun {most} times, and each time its instance was lost"
        self._end(offset, ends, RequestState.UNKNOWN, why)

    def _keep_up(self) -> None:
        if (floor := self._log.floor) > self.base:
            for offset in [each for each in self._requests.batches if each < floor]:
                self._end(offset, -1, RequestState.LATE, "it left the log")
        super()._keep_up()

    def _drop(self, piece: Piece, *, lost: bool) -> None:
        self.expired += 1
        why = "the disk has lost it" if lost else "its time to live was over"
        self._end(piece.offset, piece.bits << piece.first, RequestState.LATE, why)

    def _finish(self, offset: int, bits: int) -> None:
        super()._finish(offset, bits)
        if offset not in self._open.bits:
            self._requests.batches.pop(offset, None)

    def _park(self, offset: int, bits: int, until: float) -> None:
        self._take_free(offset, bits)
        self._requests.park(offset, bits, until)

    def _take_free(self, offset: int, bits: int) -> None:
        """These are not to be handed out."""
        for first, length in runs_of(bits):
            self._free.take(offset, first, length)

    def _end(
        self, offset: int, bits: int, state: RequestState, text: str, kind: str = "",
        value: bytes = b"", by: str = "",
    ) -> None:  # fmt: skip
        """These (-1: all that are open) end, whoever holds them; `kind` is counted, too.
        `value`: what the instance of the name `by` has answered elsewhere."""
        bits &= self._open.bits.get(offset, 0)
        if not bits:
            return
        batch = self._requests.batches[offset]
        free, attempts = bits, Counter[int]()
        for lease in list(batch.leases):
            mine = (bits >> lease.first) & lease.open
            if not mine:
                continue
            begun = self._requests.begun(lease)
            for at in indexes(mine):
                self.revoked[lease.member.id, lease.number, lease.first + at] = None
                attempts[lease.first + at] = lease.attempts + (begun >> at & 1)
            free &= ~(mine << lease.first)
            self._settle(lease, mine, done=False)
            self._requests.close(lease, mine)
        self._requests.unpark(offset, free)
        self._take_free(offset, free)
        self._requests.forget_once(offset, bits)
        self._finish(offset, bits)
        if kind:
            self.counts[kind] += bits.bit_count()
        for index in indexes(bits):
            attempt, at_us = attempts[index] + bool(by), self._log.time_us
            made = RequestEnd(offset, index, state, value, text, attempt, at_us, by)
            most = self.service.store_bytes  # half of it is for answers
            self._note_end(made, batch.publisher, most if by else most // 2)

    def _note_end(
        self, outcome: RequestEnd, publisher: bytes, most: int, *, silent: bool = False
    ) -> None:
        """Requests have ended; that is kept if all that is kept has so many bytes at most."""
        if outcome.more and self.delayed:
            for each in outcome.each():
                self._note_end(each, publisher, most, silent=silent)
            return
        self._requests.ended(outcome)
        if (delayed := self.delayed.ended(outcome.position)) is not None:
            position, publisher = delayed
            outcome = replace(outcome, offset=position.offset, index=position.at)
        self.counts[outcome.state] += outcome.count
        if silent:  # that one runs again is written, and so is how that has ended
            note = self.outcomes.put_state if delayed else self.outcomes.note
            note(outcome.positions, outcome.state, self._clock)
            return
        if not self.outcomes.keep(outcome, self._clock + self.service.keep_result, most):
            self.outcomes.put_state(outcome.positions, outcome.state, self._clock)
        self.ended.append(quick(Ended, (publisher, outcome)))

    def _due(self, appended_us: int) -> float:
        """When a request that was accepted then is over."""
        return self._clock + self.service.result_within - self._age(appended_us)

    def _kept_until(self, outcome: RequestEnd) -> float:
        return self._clock + self.service.keep_result - self._age(outcome.ended_us)

    def _age(self, time_us: int) -> float:
        """Seconds since a time."""
        return max(0.0, (self._log.time_us - time_us) / SECOND_US)
