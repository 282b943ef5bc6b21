"""Which requests a client waits for: where each is, who waits for it, and until when. Pure.

Ends may come before it is known where their requests are; they wait for that here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from roq.client.publish.receipt import Receipt
from roq.client.request.context import RequestContext, is_lost
from roq.client.request.many import ManyPart
from roq.client.request.pending import Pending, PendingRun, Requested
from roq.model import LogId
from roq.protocol.requesting import Position, RequestEnd

TICK_SECONDS: Final = 0.25
OVERDUE_MAX: Final = 10_000
"""So many requests whose time is over are looked at in one go. Each is asked for, and given up when
nothing comes within `GRACE_SECONDS`: meanwhile whoever looks at them reads no answers."""
GRACE_SECONDS: Final = 5.0
"""After its time a request has so long for its exchange to say how it has ended."""
EARLY_MAX: Final = 100_000
"""Ends that may come before it is known where the request is."""
EARLY_SECONDS: Final = 60.0
ENDLESS: Final = float("inf")
INNER_LOOK: Final = 1_000
"""With more that was requested inside handlers, it is looked what of it has ended."""

At = tuple[LogId, Position]
Waiter = Pending[Any] | ManyPart
"""What waits for the end of a request: itself, or those that were made with it."""
Waiting = Waiter | PendingRun
"""Likewise, when it is known where it is: or itself and its neighbours."""


class Sent:
    """Requests of one batch, in order, and its receipt."""

    __slots__ = ("given_up", "look_at", "pendings", "receipt", "taken")

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        self.pendings: list[Waiter | None] = []
        """None: nobody waits for this one. A part stands in the place of each that it has."""
        self.taken = 0
        """So many of them have been looked at."""
        self.look_at = 0.0
        """When it is looked next whose time is over, as long as they are not accepted."""
        self.given_up: frozenset[Waiter] = frozenset()
        """Those that have ended by that."""

    def singles(self) -> list[Pending[Any]]:
        """The next ones, as far as they were made one by one and end by the same time."""
        some: list[Pending[Any]] = []
        slot = -1
        for index in range(self.taken, len(self.pendings)):
            each = self.pendings[index]
            if not isinstance(each, Pending) or each.delayed is not None:
                break
            if (at := _slot(each.due)) != slot and some:
                break
            slot = at
            some.append(each)
        return some

    def took(self, count: int) -> None:
        """The next ones have been looked at."""
        self.pendings[self.taken : self.taken + count] = [None] * count
        self.taken += count


class WaitingRequests:
    """Who waits for what.

    Attributes:
        open: by log, and place.
        count: requests that are accepted, or asked for by their ids, and have not ended.
        due: by the quarter of a second in which their time is over.
        early: ends of requests that are not known here, and when they came.
    """

    def __init__(self) -> None:
        self.open: dict[LogId, dict[Position, tuple[Waiting, ...]]] = {}
        self.count = 0
        self.due: dict[int, set[Waiting]] = {}
        self.early: OrderedDict[At, tuple[float, RequestEnd]] = OrderedDict()

    def add(self, log: LogId, positions: Sequence[Position], waiter: Waiting) -> None:
        """This one waits for these, until its time is over."""
        waiters, opened = (waiter,), self.open.setdefault(log, {})
        if opened.keys().isdisjoint(positions):
            opened.update(dict.fromkeys(positions, waiters))
        else:
            for position in positions:
                opened[position] = (*opened.get(position, ()), waiter)
        self.count += len(positions)
        if waiter.due < ENDLESS:
            self.due.setdefault(_slot(waiter.due), set()).add(waiter)

    def at(self, log: LogId, positions: Iterable[Position]) -> list[tuple[Waiting, ...]]:
        """What waits for each of these."""
        opened = self.open.get(log, {})
        return [opened.get(position, ()) for position in positions]

    def close(self, place: At) -> tuple[Waiting, ...]:
        """Nothing is waited for there any more; what was."""
        waiters = self.open.get(place[0], {}).pop(place[1], ())
        self.count -= len(waiters)
        return waiters

    def leave(self, place: At, waiter: Waiting) -> bool:
        """This one does not wait there any more; whether others do."""
        others = tuple(each for each in self.close(place) if each is not waiter)
        if others:
            self.open[place[0]][place[1]] = others
            self.count += len(others)
        return bool(others)

    def close_all(self, log: LogId, positions: Iterable[Position]) -> None:
        """Nothing is waited for at these any more."""
        take = self.open.get(log, {}).pop
        self.count -= sum(len(take(position, ())) for position in positions)

    def clear(self) -> list[Waiting]:
        """Nothing is waited for any more; what was."""
        waiters = list(dict.fromkeys(self._every()))
        self.open.clear()
        self.count = 0
        return waiters

    def not_due(self, waiter: Waiting) -> None:
        """Its time is of no matter any more."""
        slot = _slot(waiter.due)
        some = self.due.get(slot)
        if some is not None:
            some.discard(waiter)
            if not some:
                del self.due[slot]

    def due_again(self, waiter: Waiting, at: float) -> None:
        """Look at it once more then."""
        self.due.setdefault(_slot(at), set()).add(waiter)

    def overdue(self, now: float) -> list[Waiting]:
        """Those whose time is over by now, of many the first ones, and the others the next time;
        and what is early for too long goes."""
        early = self.early
        while early and next(iter(early.values()))[0] < now - EARLY_SECONDS:
            early.popitem(last=False)
        some: list[Waiting] = []
        room = OVERDUE_MAX
        for slot in sorted(slot for slot in self.due if slot * TICK_SECONDS <= now):
            here = self.due[slot]
            while here and room > 0:
                some.append(waiter := here.pop())
                room -= 1 if isinstance(waiter, Pending) else waiter.left
            if not here:
                del self.due[slot]
        return some

    def came_early(self, log: LogId, end: RequestEnd, now: float) -> None:
        """This is the end of requests that are not known here yet, or never will be."""
        for each in end.each():
            self.early[log, Position(each.offset, each.index)] = now, each
            if len(self.early) > EARLY_MAX:
                self.early.popitem(last=False)

    def recount(self) -> None:
        """Whoever was changing something here was interrupted in the middle of it."""
        self.count = sum(1 for _ in self._every())
        for waiter in set(self._every()):
            if not isinstance(waiter, Pending):
                waiter.recount()

    def _every(self) -> Iterator[Waiting]:
        return (each for at in self.open.values() for some in at.values() for each in some)


class InnerRequests:
    """What was requested inside handlers and has not ended: when the request that a handler runs
    was taken from its instance, nobody wants what it has requested either. From any thread.

    Args:
        lock: held while something is changed here.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self._lock = lock
        self._made: dict[RequestContext, list[Requested]] = {}
        """By the request that a handler runs; some of it may have ended."""
        self._count = 0
        self._look_at = INNER_LOOK

    def __len__(self) -> int:
        return self._count

    def add(self, context: RequestContext, requested: Requested) -> None:
        """This was requested by the handler that has this context."""
        with self._lock:
            self._made.setdefault(context, []).append(requested)
            self._count += 1
            if self._count > self._look_at:
                self._let_go_ended()
                self._look_at = max(INNER_LOOK, 2 * self._count)

    def unwanted(self) -> list[tuple[Requested, bool]]:
        """What nobody wants any more and has not ended, and whether as its time is over; it is not
        here afterwards."""
        if not self._made:
            return []
        with self._lock:
            self._let_go_ended()
            lost = [context for context in self._made if is_lost(context)]
            found = [
                (each, not context.remaining)
                for context in lost
                for each in self._made.pop(context)
            ]
            self._count -= len(found)
        return found

    def _let_go_ended(self) -> None:
        left = {
            context: [each for each in some if not each.done()]
            for context, some in self._made.items()
        }
        self._made = {context: some for context, some in left.items() if some}
        self._count = sum(map(len, self._made.values()))


def _slot(at: float) -> int:
    """The quarter of a second in which a time is over; -1: it never is."""
    return int(at / TICK_SECONDS) + 1 if at < ENDLESS else -1
