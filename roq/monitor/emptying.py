"""Exchanges that are to go: they get no publishers, lose those that they have, and are read.

    leaving --nobody there, everything read--> retired --it has said so--> ready --stopped--> gone
       \\--called off, nobody wants it any more--> takes publishers again

What an exchange holds goes with it. So it is told before to accept nothing more (it is *retired*),
and only a report in which it says that it does shows that nothing came behind what it tells.

One that scaling empties *rests* when its last publisher has left and something still holds it: it
has no publishers, counts no more for the policy, and serves what is there until that has gone, or a
load that rises takes it back. What is in the log of a durable queue holds it until that has left by
its age, or, with the limit `log_until_done`, until all groups have done it; in any queue a
subscriber that has not read it does, a consumer group that has not done it, and a response that
nobody has fetched: all that would be lost.

Two parties have an exchange emptied: the queue's own policy (scale-in), and a manager that asks
for it with `Empty`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from roq.errors import NoCapacity
from roq.model import LogId, exchange_name
from roq.monitor.events import Effect, Note, Peer, Send
from roq.monitor.exchanges import Exchange, Exchanges
from roq.monitor.sessions import Sessions
from roq.protocol.control import UNAVAILABLE, Emptied, Empty, failure
from roq.timing import (
    EMPTYING_ANSWER_SECONDS,
    ORPHAN_FORGOTTEN_SECONDS,
    SAME_GROUPS_SECONDS,
)

ASKED_SECONDS: Final = 120.0
"""Nobody has asked again for so long: the exchange takes publishers again."""
MOVING_SECONDS: Final = 60.0
"""Scaling in is called off if publishers are still there after so long."""
READING_SECONDS: Final = 60.0
"""So long after its last publisher an exchange may be read before it rests; with a log it rests at
once."""
EMPTIED_SECONDS: Final = 30.0
"""Clients are told for so long that nothing was lost with an exchange that has gone."""
STOPPING_SECONDS: Final = 30.0
"""An exchange that was stopped is kept free of publishers for so long: a report may come late."""
LEAVING_MAX: Final = 1_024
WAITERS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class _Waiter:
    peer: Peer
    request: int
    deadline: float


@dataclass(slots=True)
class Leaving:
    """An exchange that is being emptied.

    Attributes:
        number: of the exchange.
        since: when that began.
        asked_at: when it was wanted for the last time.
        scaling: the queue shrinks by itself.
        empty_since: no publisher has been there since; None if one is.
        keeps: it stays as long as its log holds something.
        resting: it has no publishers, and waits only for what it holds, for as long as that takes.
        ready: it is empty and read, and accepts nothing more.
        stopped_at: it was stopped; None before.
        read_seconds: so long after its last publisher it may go though subscribers have not read
            it; 0: it may not.
        unread_goes: that time is over.
        answered_at: when somebody was told last that it may go, who stops it now; None: nobody was.
    """

    number: int
    since: float
    asked_at: float
    scaling: bool
    empty_since: float | None = None
    keeps: bool = False
    resting: bool = False
    ready: bool = False
    stopped_at: float | None = None
    read_seconds: float = 0.0
    unread_goes: bool = False
    answered_at: float | None = None
    waiters: list[_Waiter] = field(default_factory=list)

    def rests_at(self, now: float) -> bool:
        """Whether scaling waits no more for it, as others carry the load; it goes when it can."""
        if not self.scaling or self.empty_since is None or self.ready:
            return False
        return self.keeps or now - self.empty_since >= READING_SECONDS


class Emptying:
    """All exchanges of a queue that are being emptied.

    Args:
        queue: name of the queue.
        exchanges, sessions: of the queue.
        has_log: whether the exchange with this number may have a log that outlives its process.
    """

    def __init__(
        self,
        queue: str,
        exchanges: Exchanges,
        sessions: Sessions,
        has_log: Callable[[int], bool],
    ) -> None:
        self._has_log = has_log
        self._queue = queue
        self._exchanges = exchanges
        self._sessions = sessions
        self._leaving: dict[int, Leaving] = {}
        self._emptied: dict[LogId, float] = {}

    def __len__(self) -> int:
        return len(self._leaving)

    def __iter__(self) -> Iterator[Leaving]:
        return iter(list(self._leaving.values()))

    def find(self, number: int) -> Leaving | None:
        """This exchange, if it is being emptied."""
        return self._leaving.get(number)

    def under_way(self) -> bool:
        """Whether an exchange that serves is on its way out; one that rests has time."""
        return any(
            self._exchanges.numbered(each.number) is not None for each in self if not each.resting
        )

    def resting(self) -> list[int]:
        """The exchanges that rest, the newest first."""
        return sorted((each.number for each in self if each.resting), reverse=True)

    def begin(self, number: int, now: float, *, scaling: bool, keeps: bool = False) -> Leaving:
        """Begin to empty an exchange, or go on with it.

        Args:
            number: of the exchange.
            now: the present time.
            scaling: the queue shrinks by itself.
            keeps: it stays as long as its log holds something.

        Raises:
            NoCapacity: it is the last one that takes publishers, or too many are being emptied.
        """
        leaving = self._leaving.get(number)
        if leaving is None:
            self._refuse_the_last(number)
            if len(self._leaving) >= LEAVING_MAX:
                raise NoCapacity(f"{LEAVING_MAX} exchanges of this queue are being emptied already")
            leaving = self._leaving[number] = Leaving(number, now, now, scaling, keeps=keeps)
            self._exchanges.leaving.add(number)
        leaving.asked_at = now
        return leaving

    def asked(self, peer: Peer, message: Empty, now: float) -> list[Effect]:
        """A manager wants an exchange to be emptied; answered when it is.

        Raises:
            NoCapacity: as `begin`.
        """
        self._refuse_the_last(message.number)  # also if it was told before that it may go
        leaving = self.begin(message.number, now, scaling=False)
        leaving.scaling = leaving.keeps = leaving.resting = False
        leaving.read_seconds = message.read_seconds
        if message.at_once:
            effects = self.look(leaving, now)
            why = self._holds(leaving)
            if why:
                return [*effects, _not_empty(peer, message.id, leaving, why)]
            return [*effects, *self._answer(leaving, [_Waiter(peer, message.id, now)], now)]
        if len(leaving.waiters) >= WAITERS_MAX:
            oldest = leaving.waiters.pop(0)
            waits = [_refusal(oldest, "others have asked for the same since")]
        else:
            waits = []
        leaving.waiters.append(_Waiter(peer, message.id, now + EMPTYING_ANSWER_SECONDS))
        return [*waits, *self.look(leaving, now)]

    def call_off(self, number: int, reason: str) -> list[Effect]:
        """This exchange takes publishers again; those that wait for the contrary are told why."""
        leaving = self._leaving.pop(number, None)
        self._exchanges.leaving.discard(number)
        if leaving is None:
            return []
        text = f"{exchange_name(number)} takes publishers again: {reason}"
        note = Note("emptying_called_off", text, warning=True)
        return [*(_refusal(each, text) for each in leaving.waiters), note]

    def look(self, leaving: Leaving, now: float) -> list[Effect]:
        """Notice how far it is; answers those who wait for it when it is ready."""
        exchange = self._exchanges.numbered(leaving.number)
        if exchange is None or not self._there(exchange):
            if leaving.empty_since is None:
                leaving.empty_since = now
        elif leaving.empty_since is not None:
            leaving.empty_since, leaving.asked_at = None, now  # it has so long again
        empty_since, limit = leaving.empty_since, leaving.read_seconds
        leaving.unread_goes = empty_since is not None and 0 < limit <= now - empty_since
        leaving.ready = not self.waits_for(leaving)
        leaving.resting = leaving.rests_at(now)
        if self._holds(leaving):
            return []
        waiters, leaving.waiters = leaving.waiters, []
        return self._answer(leaving, waiters, now)

    def _answer(self, leaving: Leaving, waiters: list[_Waiter], now: float) -> list[Effect]:
        if not waiters:
            return []
        leaving.answered_at = now
        number = leaving.number
        epoch, end = self.final_end(number)
        effects: list[Effect] = [
            Send(each.peer, Emptied(id=each.request, number=number, epoch=epoch, end=end))
            for each in waiters
        ]
        why = self.waits_for(leaving)
        if why:
            text = f"{exchange_name(number)} goes after {leaving.read_seconds:g} s all the same"
            effects.append(Note("emptying_unread", f"{text}: {why}", warning=True))
        return effects

    def forget_gone(self, leaving: Leaving, logs: Collection[int], wanted: Collection[int]) -> bool:
        """Forget one that waits for what it holds, if it does not serve and the queue has it no
        more, or not its log; whether that is so.

        Args:
            leaving: what is meant.
            logs: numbers of the exchanges with logs that the queue has.
            wanted: numbers of all exchanges that it has.
        """
        serves = self._exchanges.numbered(leaving.number) is not None
        has = leaving.number in (logs if leaving.keeps else wanted)
        waits = leaving.keeps or leaving.resting
        if serves or has or not waits or leaving.stopped_at is not None:
            return False
        del self._leaving[leaving.number]
        self._exchanges.leaving.discard(leaving.number)
        return True

    def final_end(self, number: int) -> tuple[int, int]:
        """Epoch of this exchange, and where its log ends; (0, -1) if it does not serve.

        That is final once it is ready: nobody publishes there, and nobody is sent there any more.
        """
        exchange = self._exchanges.numbered(number)
        return (0, -1) if exchange is None else (exchange.key[1], exchange.load.end_offset)

    def stopped(self, number: int, now: float) -> None:
        """This exchange was stopped for good."""
        leaving = self._leaving.get(number)
        if leaving is not None:
            leaving.stopped_at = now

    def lost(self, exchange: Exchange, now: float) -> None:
        """This exchange serves no more; if it was ready for that, nobody misses it."""
        leaving = self._leaving.get(exchange.number)
        if leaving is not None and leaving.ready:
            self._emptied[exchange.info.log] = now

    def emptied(self, now: float) -> list[LogId]:
        """The logs that went lately after everything in them had been read."""
        late = [log for log, when in self._emptied.items() if now - when >= EMPTIED_SECONDS]
        for log in late:
            del self._emptied[log]
        return list(self._emptied)[-LEAVING_MAX:]

    def waits_for(self, leaving: Leaving) -> str:
        """What is missing until it is ready, in a few words; empty if nothing is."""
        return self._waits_for(leaving, unread_goes=False)

    def _waits_for(self, leaving: Leaving, *, unread_goes: bool) -> str:
        why = self._lacks(leaving, unread_goes=unread_goes)
        exchange = self._exchanges.numbered(leaving.number)
        if not why and exchange is not None and not exchange.retired:
            return "it has not said that it accepts nothing more"
        return why

    def retires(self, number: int) -> bool:
        """Whether this exchange is to accept nothing more: that it might is all that keeps it, or
        somebody who was told that it may go stops it now."""
        leaving = self._leaving.get(number)
        if leaving is None:
            return False
        if leaving.answered_at is not None or leaving.stopped_at is not None:
            return True
        return not self._lacks(leaving, unread_goes=leaving.unread_goes)

    def _lacks(self, leaving: Leaving, *, unread_goes: bool) -> str:
        exchange = self._exchanges.numbered(leaving.number)
        if exchange is None:  # nothing is there that could be lost, unless it is in a log
            holds = leaving.keeps or leaving.resting or self._has_log(leaving.number)
            # One that rests for long may be held up, or cut off, and come back with what it holds.
            away = holds and leaving.stopped_at is None
            return "it does not serve, and may hold something" if away else ""
        unread = self._sessions.behind(exchange.info.log, exchange.load.end_offset)
        for count, what in (
            (self._there(exchange), "publisher{} still there"),
            (0 if unread_goes else unread, "subscriber{} not at its end yet"),
            (exchange.load.groups_behind, "consumer group{} not at its end yet"),
            (exchange.load.delayed, "delayed message{} not due yet"),
            (exchange.load.transactions, "open transaction{}"),
            (exchange.load.responses_stored, "response{} not fetched yet"),
        ):
            if count:
                return f"{count} {what.format('s' * (count > 1))}"
        held = exchange.load.end_offset - exchange.load.floor_offset
        if leaving.keeps and held > 0 and not _done_by_groups(leaving, exchange):
            return f"{held} batch{'es' * (held > 1)} still in its log"
        return ""

    def _holds(self, leaving: Leaving) -> str:
        """What it still has to wait for, in a few words; empty if it may go.

        A subscriber that has not read it in the time that it had is told what is lost; what groups
        have not done, what is delayed, and responses, would be lost to whom nobody tells.
        """
        return self._waits_for(leaving, unread_goes=leaving.unread_goes)

    def overdue(self, leaving: Leaving, now: float) -> str:
        """Why this is to be called off, in a few words; empty if it is not."""
        serves = self._exchanges.numbered(leaving.number) is not None
        if leaving.stopped_at is not None:
            late = now - leaving.stopped_at >= STOPPING_SECONDS
            return "it was stopped and serves all the same" if late and serves else ""
        told = leaving.answered_at
        stops = told is not None and now - told < STOPPING_SECONDS
        if serves and not stops and not self._exchanges.accepting():
            return "no other exchange takes publishers"
        if not leaving.scaling:
            late = now - leaving.asked_at >= ASKED_SECONDS and not leaving.waiters
            return f"it was not asked for again for {ASKED_SECONDS:g} s" if late else ""
        late = leaving.empty_since is None and now - leaving.asked_at >= MOVING_SECONDS
        return self.waits_for(leaving) if late and not leaving.ready else ""

    def time_passed(self, now: float) -> list[Effect]:
        """Tell those who have waited long enough what is still missing; forget what is gone."""
        effects: list[Effect] = []
        for leaving in self:
            late = [each for each in leaving.waiters if now >= each.deadline]
            for waiter in late:
                leaving.waiters.remove(waiter)
                why = self.waits_for(leaving)
                effects.append(_not_empty(waiter.peer, waiter.request, leaving, why))
            if self._gone_for_good(leaving, now):
                del self._leaving[leaving.number]
                self._exchanges.leaving.discard(leaving.number)
        return effects

    def next_deadline(self) -> float | None:
        """When a request has waited long enough."""
        deadlines = [each.deadline for leaving in self for each in leaving.waiters]
        return min(deadlines, default=None)

    def end(self, text: str, code: str) -> list[Effect]:
        """The monitor stops: answer all who wait."""
        waiters = [each for leaving in self for each in leaving.waiters]
        for leaving in self:
            leaving.waiters.clear()
        return [_refusal(each, text, code) for each in waiters]

    def check(self) -> None:
        """Assert the invariants."""
        assert set(self._leaving) == self._exchanges.leaving  # noqa: S101
        assert len(self._leaving) <= LEAVING_MAX  # noqa: S101
        assert all(len(each.waiters) <= WAITERS_MAX for each in self)  # noqa: S101

    def _there(self, exchange: Exchange) -> int:
        return exchange.publishers(self._sessions.publishers_at(exchange.key))

    def _gone_for_good(self, leaving: Leaving, now: float) -> bool:
        if self._exchanges.numbered(leaving.number) is not None or leaving.waiters:
            return False
        if leaving.stopped_at is not None:
            return now - leaving.stopped_at >= STOPPING_SECONDS
        return not leaving.scaling and now - leaving.asked_at >= ASKED_SECONDS

    def _refuse_the_last(self, number: int) -> None:
        others = [each for each in self._exchanges.accepting() if each.number != number]
        if not others and self._exchanges.numbered(number) is not None:
            raise NoCapacity(
                f"{exchange_name(number)} is the last exchange of queue {self._queue} that takes "
                "publishers: add another one first"
            )


def _done_by_groups(leaving: Leaving, exchange: Exchange) -> bool:
    """Whether nobody waits for what is in the log of an exchange whose groups have done all of it:
    that is what the queue wants, and no other exchange has a group that this one lacks. One that
    was made there before the last publisher left here is known by now."""
    since = leaving.empty_since
    if not exchange.same_groups or not exchange.load.groups or since is None:
        return False
    return exchange.seen - since >= SAME_GROUPS_SECONDS


def _not_empty(peer: Peer, request: int, leaving: Leaving, why: str) -> Send:
    text = f"{exchange_name(leaving.number)} is not empty: {why}"
    return Send(peer, failure(request, text, UNAVAILABLE))


def _refusal(waiter: _Waiter, text: str, code: str = UNAVAILABLE) -> Send:
    return Send(waiter.peer, failure(waiter.request, text, code))


# Exchanges that report here although the queue does not have them: how they go.
#
#     told --still told a while later--> being emptied --empty and read, or too late--> dismissed
#
# The leading configuration manager says which ones they are. Such an exchange is left where nobody
# could stop it: its host manager died before it had told that the exchange runs, or while it was to
# be removed. It is emptied as any other, so that nothing in it is lost; the last one that takes
# publishers stays as long as it is that.

CERTAIN_SECONDS: Final = 2.0
"""The manager must say it for so long."""
EMPTY_SECONDS: Final = 20.0
"""An unwanted exchange that may go has so long to become empty."""
NUMBERS_MAX: Final = 1_024


@dataclass(slots=True)
class _Told:
    since: float
    last: float


class Orphans:
    """What the configuration manager has said of exchanges that nobody wants."""

    def __init__(self) -> None:
        self._told: dict[int, _Told] = {}

    def told(self, numbers: Collection[int], now: float) -> list[int]:
        """Take in what it says now; gives those of which it has said so for long enough."""
        for number, known in list(self._told.items()):
            if now - known.last >= ORPHAN_FORGOTTEN_SECONDS:
                del self._told[number]
        for number in list(numbers)[:NUMBERS_MAX]:
            known = self._told.setdefault(number, _Told(now, now))
            known.last = now
        return sorted(
            number
            for number in numbers
            if number in self._told and now - self._told[number].since >= CERTAIN_SECONDS
        )
