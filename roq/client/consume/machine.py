"""All that one member of a consumer group decides: when to join, what to tell, what to take. Pure.

    away --connected--> joining --joined--> in --silent for too long, or told so--> joining …

Each exchange of the queue is a seat of its own. A seat that joins again says what it holds, and
goes on with what nobody else has got meanwhile; what it has acknowledged and not heard of is told
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from roq.client.consume.extensions import Granted
from roq.client.consume.holding import (
    ConsumerStats,
    Holding,
    Segment,
    batch_of,
    column_of,
    pass_over,
)
from roq.client.consume.ordering import ORDERED
from roq.client.consume.seat import (
    IN,
    UNCONFIRMED_BATCHES_MAX,
    UNCONFIRMED_BYTES_MAX,
    Membership,
    Prefetch,
    Return,
    Seat,
    SeatPhase,
    Told,
)
from roq.client.io.queue_connections import AskExchange
from roq.errors import RemoteProtocolError
from roq.model import ExchangeInfo, LogId
from roq.number_ranges import UNREADABLE
from roq.protocol import consuming, documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.columns import KEY_GROUPS, PRIORITIES
from roq.protocol.consuming import (
    ATTEMPT_MAX,
    CREDIT,
    DELETED,
    DONE,
    EXTEND,
    JOIN,
    LEASED,
    LEAVE,
    LOSSES_MAX,
    LOSSES_SHIFT,
    OVERDUE,
    Credit,
    Done,
    DoneConfirmed,
    Extended,
    Join,
    Joined,
    LeaveGroup,
    Returned,
    Run,
    held_most,
    pack_runs,
    parts_of,
    read_lease,
)
from roq.protocol.entry import read_entry
from roq.protocol.requesting import ServiceSettings

ASK_SECONDS: Final = 3.0
"""A Join that is not answered is repeated after so long; one that is refused, after a while."""
ASK_SECONDS_MAX: Final = 48.0
"""Each time it waits twice as long, up to this: an exchange drops its answer for the next Join."""
AGAIN_SECONDS: Final = 1.0
RENEW_EARLY: Final = 0.7
"""When so large a part of that is over they are renewed when the exchange is heard."""
_LEASED_PARTS: Final = 5


class ConsumerMachine:
    """One member at all exchanges of its queue.

    Args:
        member: who it is.

    Attributes:
        arrived: holdings that came since the shell has looked, in order.
        passed_over: likewise those with messages that are settled without the user.
        given_up: log and offset of what nobody could read, and why, since the shell has looked.
        extended: requests for more time that were answered, since the shell has looked.
        resolved: messages that were settled, and of which it is known what has become.
        stats: counters.
        refusal: why the group does not take this member, for good; empty: it does.
        attempts: so often is a message tried, by the group's settings; 0: without an end.
        service: settings of the service that the group is, as an exchange has told last.
    """

    holding_type = Holding

    def __init__(self, member: Membership) -> None:
        self.stats = ConsumerStats()
        self.refusal: tuple[str, str] | None = None
        self.arrived: list[Holding] = []
        self.passed_over: list[Holding] = []
        self.given_up: list[tuple[LogId, int, str]] = []
        self.extended: list[Granted] = []
        self.resolved = 0
        self.attempts = member.settings.attempts
        self.service: ServiceSettings | None = None
        self._member = member
        self.prefetch = Prefetch(member.prefetch, member.prefetch_quick)
        self._ordered = member.settings.mode in ORDERED
        self._seats: dict[LogId, Seat] = {}
        self._created_us: int | None = None
        self._started = False
        self._closing = False
        self._requests = 0
        self._decide_at = float("inf")

    @property
    def seats(self) -> dict[LogId, Seat]:
        """All exchanges."""
        return self._seats

    @property
    def joined(self) -> bool:
        """Whether it is in at every exchange that is there."""
        return bool(self._seats) and all(
            seat.phase is SeatPhase.IN for seat in self._seats.values()
        )

    @property
    def holds(self) -> bool:
        """Whether it has anything of which it has not told what became."""
        return any(seat.open for seat in self._seats.values())

    def open(self, exchange: ExchangeInfo, queue: bytes) -> None:
        """The queue has this exchange, or has it at another address."""
        seat = self._seats.get(exchange.log)
        if seat is None:
            seat = self._seats[exchange.log] = Seat(exchange, queue)
            # What is new later is read from its beginning: the group is older.
            seat.make = not self._asks_first
        seat.exchange = exchange

    def leave(self, log: LogId) -> None:
        """This exchange is gone with its log, and what was held of it."""
        seat = self._seats.pop(log, None)
        if seat is None:
            return
        self._forget_told(seat)
        self.extended += seat.extensions.expire(float("inf"))
        for holding in list(seat.holdings.values()):
            self._lose(seat, holding, range(holding.first, holding.first + len(holding.batch)))

    def up(self, log: LogId, now: float) -> list[AskExchange]:
        """The connection stands."""
        seat = self._seats.get(log)
        if seat is None:
            return []
        seat.up = True
        return self._join(log, seat, now)

    def down(self, log: LogId) -> None:
        """The connection has ended; what is held may still be the member's."""
        seat = self._seats.get(log)
        if seat is not None:
            seat.up = False
            seat.phase = SeatPhase.AWAY
            seat.ask_at = float("inf")

    def take(self, log: LogId, parts: list[bytes], now: float) -> list[AskExchange]:
        """Something came from an exchange.

        Raises:
            RemoteProtocolError: it cannot be read.
        """
        seat = self._seats.get(log)
        if seat is None:
            return []
        if self._lapsed(seat, now):
            return self._join(log, seat, now)
        letter = parts[0]
        if letter == LEASED and len(parts) == _LEASED_PARTS:
            return self._leased(log, seat, parts, now)
        asks: list[AskExchange] = []
        if letter == DONE:
            waited = self._waits(seat)
            self._confirmed(seat, consuming.decode(parts[1], DoneConfirmed))
            if waited and not self._waits(seat) and seat.phase is SeatPhase.IN:
                asks = [self._credit(log, seat, now)]
        elif letter == EXTEND:
            answer = consuming.decode(parts[1], Extended)
            self.extended += seat.extensions.answered(answer.request, answer.seconds)
        elif letter == JOIN:
            asks = self._joined(log, seat, documents.decode(parts[1], Joined), now)
        elif letter == LEAVE and seat.up:
            asks = self._join(log, seat, now)
        elif letter == REFUSED:
            asks = self._refused(seat, documents.decode(parts[1], Refused), now)
        return asks

    def heard(self, log: LogId, now: float) -> list[AskExchange]:
        """An exchange was heard: say what it would be told soon, as it is about to read."""
        seat = self._seats.get(log)
        if seat is None or seat.phase is not IN or self._lapsed(seat, now):
            return []
        if now - seat.told_at < RENEW_EARLY * seat.renew_seconds:
            return []
        return [self._credit(log, seat, now)]

    def tell(
        self, holdings: Iterable[Holding], returned: list[Return], now: float
    ) -> list[AskExchange]:
        """The user has settled messages: tell the exchanges.

        Args:
            holdings: those with messages that were acknowledged.
            returned: what is to be tried again.
        """
        by_seat: dict[LogId, Done] = {}
        told: dict[LogId, list[Told]] = {}
        asks = self._rejoin(now)
        for holding in holdings:
            self._collect(holding, by_seat, told)
        for holding, run, verdict in returned:
            seat = self._seats.get(holding.log)
            if seat is None or holding.lost:
                continue
            if seat.phase is not SeatPhase.IN:
                seat.returns.append((holding, run, verdict))
                continue
            given = holding.given(run)
            if not given:
                continue  # it is somebody else's by now, and was counted when that was heard
            done = by_seat.setdefault(holding.log, Done(0, [], [], []))
            for lease, first, length in holding.leases_of(run):
                done.returned.append(
                    Returned(lease, first, length, verdict.delay, verdict.counted, verdict.reason)
                )
            self._told(seat, holding, given)
            seat.returning += given
            told.setdefault(holding.log, []).append((holding, [], given))
            self.stats.returned += given
        for log, done in by_seat.items():
            asks += self._send(log, self._seats[log], done, told.get(log, []), now)
        self.prefetch.look(self.stats.acknowledged, now)
        return asks

    def extend(
        self, holding: Holding, run: Run, until: float, request: int, now: float
    ) -> list[AskExchange]:
        """The user wants to hold these messages until then, whatever happens to this process."""
        asks = self._rejoin(now)
        seat = self._seats.get(holding.log)
        if seat is None or seat.holdings.get(holding.number) is not holding:
            self.extended.append((request, 0.0))
            return asks
        seat.extensions.add(holding, run, until, request)
        if seat.phase is SeatPhase.IN:
            asks += self._extend(holding.log, seat, now, of=request)
        return asks

    def _extend(
        self, log: LogId, seat: Seat, now: float, *, of: int | None = None
    ) -> list[AskExchange]:
        frames, refused = seat.extensions.ask(now, of=of)
        self.extended += refused
        return [AskExchange(log, each) for each in frames]

    def tick(self, now: float) -> list[AskExchange]:
        """Time has passed; call it about twice a second."""
        asks = self._rejoin(now)
        fewer = self.prefetch.idle(now)
        for log, seat in self._seats.items():
            self.extended += seat.extensions.expire(now)
            if seat.phase is SeatPhase.IN:
                if fewer or now - seat.told_at >= seat.renew_seconds:
                    asks.append(self._credit(log, seat, now))
            elif seat.up and now >= seat.ask_at:
                asks += self._join(log, seat, now)
        if now >= self._decide_at:
            asks += self._decide(now, late=True)
        return asks

    def farewells(self) -> list[AskExchange]:
        """What is said last: everything that is held is given back."""
        goodbye = consuming.encode(LeaveGroup(self._member.id))
        return [
            AskExchange(log, [LEAVE, goodbye])
            for log, seat in self._seats.items()
            if seat.phase in {SeatPhase.IN, SeatPhase.JOINING}
        ]

    def taking(self, *, taking: bool, now: float) -> list[AskExchange]:
        """Take nothing more, or take again."""
        self._closing = not taking
        return [
            self._credit(log, seat, now)
            for log, seat in self._seats.items()
            if seat.phase is SeatPhase.IN
        ]

    def _lapsed(self, seat: Seat, now: float) -> bool:
        """Whether this process was silent for so long that others have what it holds: what has come
        meanwhile is not to be believed."""
        return seat.phase is IN and now - seat.told_at > seat.lease_seconds

    def _rejoin(self, now: float) -> list[AskExchange]:
        """Join again where this process was silent for too long, before it says anything there."""
        asks: list[AskExchange] = []
        for log, seat in self._seats.items():
            if self._lapsed(seat, now):
                asks += self._join(log, seat, now)
        return asks

    # --- joining ----------------------------------------------------------------------------------

    @property
    def _asks_first(self) -> bool:
        """Whether it matters where a group that is made begins."""
        return self._member.latest or self._member.start_us > 0

    def _join(self, log: LogId, seat: Seat, now: float) -> list[AskExchange]:
        if self.refusal is not None:
            return []  # a group that was deleted is not made again by its own members
        member = self._member
        self._requests += 1
        seat.attempt += 1
        again = 2 * seat.patience if seat.phase is SeatPhase.JOINING else ASK_SECONDS
        seat.patience = min(again, ASK_SECONDS_MAX)
        seat.phase = SeatPhase.JOINING
        seat.told_at = now
        seat.request = self._requests
        seat.ask_at = now + seat.patience
        held = [run for holding in seat.holdings.values() for run in holding.held()]
        # What there is no room for is not held any more: it comes again.
        held = held[: held_most(seat.frame_bytes)]
        created, start_us = self._created_us, member.start_us
        if created is not None:
            # Another exchange has the group already: here it begins as early as it has begun there,
            # and from the beginning if all was wanted, whichever exchange has answered first.
            start_us = created if member.latest else min(start_us, created)
        join = Join(
            id=seat.request, queue=seat.queue, group=member.group, member=member.id,
            name=member.name, attempt=seat.attempt, settings=member.settings,
            make=seat.make or created is not None, start_us=start_us, generation=log.generation,
            start_end=member.latest and created is None, holds=pack_runs(held),
        )  # fmt: skip
        return [AskExchange(log, [JOIN, documents.encode(join)])]

    def _joined(self, log: LogId, seat: Seat, joined: Joined, now: float) -> list[AskExchange]:
        if joined.id != seat.request or seat.phase is not SeatPhase.JOINING:
            return []
        seat.phase, seat.trouble = SeatPhase.IN, ""
        seat.make = True
        seat.ask_at = float("inf")
        seat.lease_seconds = joined.settings.lease_seconds
        seat.frame_bytes = joined.frame_bytes
        self.attempts, self.service = joined.settings.attempts, joined.settings.service
        self._created_us = (
            joined.created_us
            if self._created_us is None
            else min(self._created_us, joined.created_us)
        )
        asks = self._resume(log, seat, joined, now)
        return asks + self._decide(now)

    def _resume(self, log: LogId, seat: Seat, joined: Joined, now: float) -> list[AskExchange]:
        """Go on with what is still held; what is not, and was not done, is lost."""
        self._forget_told(seat)
        seat.arrived = seat.granted = seat.arrived_bytes = 0
        seat.open = seat.open_bytes = seat.held_bytes = 0
        holdings = list(seat.holdings.values())
        seat.holdings = {}
        by_offset: dict[int, list[tuple[int, int, int]]] = {}
        for number, offset, first, length in joined.again:
            by_offset.setdefault(offset, []).append((number, first, length))
        done = {(run.offset, run.first + at) for run in joined.done for at in range(run.length)}
        for holding in holdings:
            # Leases of some messages lie between each other: only what was held here is held again.
            runs = holding.held()
            holding.segments = [
                Segment(number, begin, end - begin)
                for number, first, length in by_offset.get(holding.offset, ())
                for run in runs
                if (begin := max(first, run.first))
                < (end := min(first + length, run.first + run.length))
            ]
            mine = {each.first + at for each in holding.segments for at in range(each.length)}
            theirs: list[int] = []
            for run in runs:
                for index in range(run.first, run.first + run.length):
                    if index in mine:
                        continue
                    if (holding.offset, index) in done and holding.keep_done(index):
                        self.stats.confirmed += 1
                        self.resolved += 1
                    else:
                        theirs.append(index)
            lost, settled, _ = holding.lose(theirs)
            self.stats.lost += lost
            self.resolved += settled
            holding.untell()
            for segment in holding.segments[:1]:  # that of an earlier process may be used again
                holding.number = segment.lease
            if holding.untold:
                self._keep(seat, holding)
        returns, seat.returns = seat.returns, []
        asks = self.tell(list(seat.holdings.values()), returns, now)
        return (asks or [self._credit(log, seat, now)]) + self._extend(log, seat, now)

    def _refused(self, seat: Seat, refused: Refused, now: float) -> list[AskExchange]:
        seat.trouble = refused.text
        if refused.code == DELETED:
            self.refusal = refused.code, refused.text
            seat.phase = SeatPhase.AWAY
            return []
        if seat.phase is SeatPhase.IN:
            # It has not understood something: all is told again.
            seat.phase, seat.ask_at = SeatPhase.AWAY, now + AGAIN_SECONDS
        if seat.phase is not SeatPhase.JOINING:
            return []
        if refused.code == "no_group":
            seat.phase = SeatPhase.WAITING
            seat.ask_at = float("inf")
            self._decide_at = min(self._decide_at, now + ASK_SECONDS)
            return self._decide(now)
        if refused.code in {"group_differs", "invalid_request", "malformed", "version"}:
            self.refusal = refused.code, refused.text
        seat.phase = SeatPhase.AWAY
        seat.ask_at = now + AGAIN_SECONDS
        return []

    def _decide(self, now: float, *, late: bool = False) -> list[AskExchange]:
        """Have the group made where it is not, once it is known where it is, and since when."""
        waiting = [(log, s) for log, s in self._seats.items() if s.phase is SeatPhase.WAITING]
        open_questions = any(seat.phase is SeatPhase.JOINING for seat in self._seats.values())
        if not waiting:
            self._decide_at = float("inf")
        if not waiting or (open_questions and self._created_us is None and not late):
            return []
        self._decide_at = float("inf")
        asks: list[AskExchange] = []
        for log, seat in waiting:
            seat.make = True
            asks += self._join(log, seat, now)
        return asks

    # --- leases -----------------------------------------------------------------------------------

    def _leased(self, log: LogId, seat: Seat, parts: list[bytes], now: float) -> list[AskExchange]:
        _, head, topic, frame, packed = parts
        number, first, length, told, bits = read_lease(head)
        attempt = told & ATTEMPT_MAX
        count = bits.bit_count()
        entry = read_entry(frame)
        if seat.phase is not IN or (entry.exchange, entry.generation) != log:
            return []  # of an earlier stay: it is over
        seat.arrived += count
        seat.arrived_bytes += len(packed)
        try:
            batch = batch_of(topic, packed, first, length)
        except (RemoteProtocolError, *UNREADABLE) as error:
            self.stats.malformed += 1
            if attempt > self.attempts > 0:
                # Nobody can read it, so it is no dead letter either; the log still has it.
                self.stats.given_up += 1
                self.given_up.append((log, entry.offset, str(error)))
                return self._send(log, seat, Done(0, [number], [], []), [], now)
            back = Returned(number, first, length, 0.0, True, f"cannot be read: {error}"[:200])
            return self._send(log, seat, Done(0, [], [], [back]), [], now)
        holding = self.holding_type(log, entry.offset, number, first, attempt, batch)
        if told != attempt:
            holding.overdue = told >= OVERDUE
            holding.losses = told >> LOSSES_SHIFT & LOSSES_MAX
        if count < length:
            holding.leave_out(bits)
        mode, tags = self._member.settings.mode, self._member.settings.tags
        if mode == "keyed":
            holding.lanes = column_of(packed, KEY_GROUPS, first, length)
        elif mode == "priority":
            holding.priority = column_of(packed, PRIORITIES, first, length)[0]
        self._keep(seat, holding)
        if tags and (passed := pass_over(holding, tags)):
            count -= passed
            self.stats.passed_over += passed
            self.passed_over.append(holding)
        self.stats.received += count
        if attempt > 1:
            self.stats.redelivered += count
        if count:
            self.arrived.append(holding)
        return []

    def _keep(self, seat: Seat, holding: Holding) -> None:
        seat.holdings[holding.number] = holding
        seat.held_bytes += holding.batch.size
        seat.open += holding.untold
        if holding.untold:
            seat.open_bytes += holding.batch.size

    def _collect(
        self,
        holding: Holding,
        by_seat: dict[LogId, Done],
        told: dict[LogId, list[Told]],
    ) -> None:
        """What was acknowledged of a holding goes into the next Done."""
        seat = self._seats.get(holding.log)
        holding.dirty = False
        if seat is None or holding.lost or seat.phase is not IN:
            return
        runs = holding.take_acked()
        if not runs:
            return
        done = by_seat.setdefault(holding.log, Done(0, [], [], []))
        count = runs[0].length if len(runs) == 1 else sum(run.length for run in runs)
        if count == holding.count and len(holding.segments) == 1:
            done.whole.append(holding.segments[0].lease)
        else:
            for run in runs:
                done.parts.extend(holding.leases_of(run))
        self._told(seat, holding, count)
        told.setdefault(holding.log, []).append((holding, runs, 0))
        self.stats.acknowledged += count

    def _told(self, seat: Seat, holding: Holding, count: int) -> None:
        seat.open -= count
        holding.untold -= count
        if not holding.untold:
            seat.open_bytes -= holding.batch.size

    def _send(
        self, log: LogId, seat: Seat, done: Done, told: list[Told], now: float
    ) -> list[AskExchange]:
        seat.told_at = now
        asks: list[AskExchange] = []
        parts = parts_of(done, seat.frame_bytes)
        for part in parts:
            seat.serial += 1
            # With the last part all is confirmed; what is refused may stand in any.
            mine = told if part is parts[-1] else [(holding, [], 0) for holding, _, _ in told]
            seat.unconfirmed.append((seat.serial, mine))
            for holding, _, _ in mine:
                holding.unconfirmed += 1
            message = msgspec.structs.replace(part, serial=seat.serial, credit=self._granted(seat))
            asks.append(AskExchange(log, [DONE, consuming.encode(message)]))
        return asks

    def _credit(self, log: LogId, seat: Seat, now: float) -> AskExchange:
        seat.told_at = now
        return AskExchange(log, [CREDIT, consuming.encode(self._granted(seat))])

    def _granted(self, seat: Seat) -> Credit:
        """All that this seat has taken and would take."""
        member = self._member
        seats = max(1, len(self._seats))
        share = max(1, -(-self.prefetch.messages // seats))
        share_bytes = max(1, -(-member.prefetch_bytes // seats))
        if self._waits(seat):
            return Credit(seat.arrived, seat.arrived_bytes, share)
        return Credit(
            seat.arrived + max(0, share - seat.open),
            seat.arrived_bytes + max(0, share_bytes - seat.open_bytes),
            share,
        )

    def _waits(self, seat: Seat) -> bool:
        """Whether it takes nothing more there for now."""
        if self._closing or (seat.returning and self._ordered):
            return True  # what came before all of that is free again would overtake some of it
        seats = max(1, len(self._seats))
        if (len(seat.holdings) - seat.open) * seats >= UNCONFIRMED_BATCHES_MAX:
            return True  # at least: what is open may be several messages of one
        return (seat.held_bytes - seat.open_bytes) * seats >= UNCONFIRMED_BYTES_MAX

    def _confirmed(self, seat: Seat, confirmed: DoneConfirmed) -> None:
        refused = set(confirmed.refused)
        while seat.unconfirmed and seat.unconfirmed[0][0] <= confirmed.serial:
            _, told = seat.unconfirmed.popleft()
            for holding, runs, returned in told:
                holding.unconfirmed -= 1
                seat.returning -= returned
                for each in holding.segments if refused else ():
                    if each.lease in refused:
                        self._lose(seat, holding, range(each.first, each.first + each.length))
                kept = sum(map(holding.keep, runs))
                self.stats.confirmed += kept
                self.resolved += kept + returned
                self._let_go(seat, holding)

    def _forget_told(self, seat: Seat) -> None:
        """What was told and not confirmed: what was returned is the exchange's, by itself."""
        for _, told in seat.unconfirmed:
            for holding, _, returned in told:
                holding.unconfirmed = 0
                self.resolved += returned
        seat.unconfirmed.clear()
        seat.returning = 0

    def _lose(self, seat: Seat, holding: Holding, indexes: Iterable[int]) -> None:
        """These messages are somebody else's."""
        lost, settled, untold = holding.lose(indexes)
        self.stats.lost += lost
        self.resolved += settled
        if untold:
            self._told(seat, holding, untold)
        self._let_go(seat, holding)

    def _let_go(self, seat: Seat, holding: Holding) -> None:
        """It is held no more, if all of it is settled and its exchange knows."""
        if holding.untold or holding.unconfirmed:
            return
        if seat.holdings.pop(holding.number, None) is not None:
            seat.held_bytes -= holding.batch.size
