"""Connections and timers around an `InstanceMachine`: requests in, answers and figures out.

All of it runs in the client's I/O thread, but for what `ConsumerShell` says.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol, cast

import msgspec

from roq.client.consume.holding import OPEN, Holding
from roq.client.consume.message import DONE, Settlement
from roq.client.consume.seat import Membership
from roq.client.consume.shell import ConsumerShell
from roq.client.io.engine import Engine
from roq.client.request.instance import InstanceMachine
from roq.client.request.orphaned_answers import HeldAt
from roq.client.request.request_holding import RUNS, WAITING, HandlerResult, RequestHolding
from roq.errors import Closed, RoQError
from roq.log.leases import runs_of, wait_after
from roq.model import LogId
from roq.protocol.requesting import ENVELOPE, ONCE, Figures

GATHER_SECONDS: Final = 0.001
"""Answers to requests that have come together wait so long for each other at most."""
SOONEST_SECONDS: Final = 0.001
"""After an error: none at all would be as the service says."""
_UNBEGUN: Final = Settlement(counted=False, reason="its instance ends")


class Handlers(Protocol):
    """What runs requests: see `Handling`."""

    @property
    def used(self) -> int:
        """Requests that wait for a handler, or have a thread."""
        ...

    @property
    def moves(self) -> int:
        """Changes whenever a thread was free."""
        ...

    @property
    def busy(self) -> int:
        """Requests that run."""
        ...

    def enqueue(self, holding: RequestHolding, indexes: range) -> None:
        """These are to run."""
        ...

    def withdraw(self, holding: RequestHolding) -> None:
        """Give back what of this has not begun."""
        ...

    def note_orphaned(self, taken: int, dropped: int) -> None:
        """So many answers whose exchange was gone have found another one, or none, so far."""
        ...


class InstanceShell(ConsumerShell):
    """One instance's.

    Args:
        engine: the client's threads.
        member: who it is.
        handlers: have requests run, and give back what has not begun.
        on_tick: called a few times a second.
        on_order: called with what an operator wants, as of `InstanceOrder`.
        at_once: as of `InstanceMachine`.
        on_joined, on_refused: as of `ConsumerShell`.
    """

    def __init__(
        self,
        engine: Engine,
        member: Membership,
        handlers: Handlers,
        on_tick: Callable[[], None],
        on_order: Callable[[str], None],
        *,
        on_joined: Callable[[], None],
        on_refused: Callable[[RoQError], None],
        at_once: int = 0,
    ) -> None:
        machine = InstanceMachine(member, lambda: handlers.used, lambda: handlers.moves, at_once)
        super().__init__(
            engine, member, on_joined=on_joined, on_refused=on_refused, machine=machine
        )
        self._instance = machine
        self._handlers = handlers
        self._retry = member.settings
        self._on_tick = on_tick
        self._on_order = on_order
        self._once: list[RequestHolding] = []
        """What must not be begun again, and was not wholly begun when it was looked at last."""
        self._unbegun: deque[RequestHolding] = deque()
        """Of these, those that were not wholly said to be begun."""
        self._running: list[RequestHolding] = []
        """What was to run when the I/O thread looked last, and has come since."""
        self.on_ready = self._arrived
        self._given = 0
        """Requests that were to run, counted as those that are settled."""
        self._available = True
        self._draining = False
        self._settling = threading.Lock()
        self._service = member.group
        self._offers_soon = False
        self._dropped = 0
        """Answers that found no exchange, as far as that was logged."""

    def answer(self, holding: RequestHolding, index: int, answers: Sequence[HandlerResult]) -> None:
        """Requests that follow each other have ended; from any thread.

        Args:
            index: of the first one, counted from the first one that is held.
            answers: how.

        Raises:
            LeaseLost: some are not this instance's any more; what is said of the others counts.
            Closed: it is closed.
        """
        holding.answers.update(enumerate(answers, holding.first + index))
        try:
            self.settle(holding, index, len(answers), DONE)
        finally:
            if holding.lost:
                self._instance.orphaned.lost_holdings.append(holding)
                self._offer_soon()

    def give_back(self, holding: RequestHolding, index: int, verdict: Settlement) -> None:
        """A request is to be run again: after an error when this instance says, whoever has made
        the service; raises as `answer`."""
        if verdict.counted:
            tried = max(0, holding.attempt - holding.losses - 1)
            wait = max(SOONEST_SECONDS, wait_after(tried, holding.offset, self._retry))
            verdict = Settlement(delay=wait, reason=verdict.reason)
        try:
            self.settle(holding, index, 1, verdict)
        finally:
            if holding.lost:
                self._instance.orphaned.given_back.append(HeldAt(holding, index))
                self._offer_soon()

    def settle(self, holding: Holding, index: int, count: int, verdict: Settlement) -> None:
        """As of any consumer, from any thread."""
        with self._settling:
            super().settle(holding, index, count, verdict)

    def drain(self) -> None:
        """Take nothing more, and give back what has not begun."""
        self._draining = True
        self.take_no_more()
        self._give_up()

    def _give_up(self) -> None:
        """Give back what no handler has begun with."""
        for holding in self._once:
            self._decline(holding, holding.started)
        self._once.clear()
        self._unbegun.clear()
        for holding in self._running:
            self._handlers.withdraw(holding)

    def close(self) -> None:
        """As of any consumer; what no handler has begun with has not run."""
        self._give_up()
        super().close()

    @property
    def unsettled(self) -> int:
        """As of any consumer, with answers for which an exchange is looked for."""
        return super().unsettled + self._instance.orphaned.count

    def tell_figures(self, figures: Figures) -> None:
        """Say how the instance is, and take requests only while it is available: that at once."""
        if self._draining:
            figures = msgspec.structs.replace(figures, available=False, rule="it ends")
        now, changes = self._engine.reactor.now(), figures.available is not self._available
        self._perform(self._instance.figures(figures, now, soon=changes))
        if changes:
            self._available = figures.available
            self._perform(self._instance.taking(taking=figures.available, now=now))

    def _take(self, name: LogId, answers: list[list[bytes]]) -> None:
        super()._take(name, answers)
        orders, self._instance.orders = self._instance.orders, []
        for order in orders:
            self._on_order(order)
        started = self._instance.started
        if started:
            self._instance.started = []
            begun = self._given
            for holding, run in started:
                self._run_some(holding, run, begun)

    def _arrived(self) -> None:
        """Requests have come: run them, or say first that they are begun."""
        begun = self._given
        while True:
            holding = cast("RequestHolding | None", self.take())
            if holding is None:
                break
            if self._draining:
                self._decline(holding, 0)
            elif _any_once(holding):
                self._once.append(holding)
                self._unbegun.append(holding)
            elif self._instance.orphaned.any and self._adopt(holding):
                for first, count in holding.open_at(0):
                    self._run_some(holding, range(first, first + count), begun)
            else:
                self._run_some(holding, range(len(holding.states)), begun)
        if self._unbegun:
            self._begin_more()

    def _call(self, function: Callable[[], None]) -> None:
        self._engine.call_here(function)  # who has run a handler sends its answer

    def _next_hurry(self) -> int:
        """As of any consumer; and when all that runs here has ended."""
        return min(super()._next_hurry(), max(self._given, self._marked + 1))

    @property
    def _gathers(self) -> bool:
        return self._instance.holds

    def _hurry(self) -> None:
        super()._hurry()
        if not self._gathers:
            self._end_flushing()

    def _end_flushing(self) -> None:
        if not self._gathers:
            self._given = self._marked
        super()._end_flushing()

    def _flush_now(self) -> bool:
        told = super()._flush_now()
        if self._unbegun:
            self._begin_more()
        return told

    def _begin_more(self) -> None:
        """Say that requests begin, as many as will soon: what was said to be begun, and is lost
        with this process, may have run."""
        unbegun, machine = self._unbegun, self._instance
        room = machine.ahead.messages - self._handlers.used - machine.starting
        if room > 0:
            self._perform(machine.begin(unbegun, room, self._engine.reactor.now()))
            while unbegun and unbegun[0].begun == len(unbegun[0].states):
                unbegun.popleft()

    def _tick(self) -> None:
        if self._instance.orphaned.any:
            self._offer()  # before there is room for more: it may be one of these
        super()._tick()
        if self._closed:
            return
        self._on_tick()
        self._look_at_running()
        # Where it has joined again, what was said to be begun and not kept is to be said again.
        self._once = [each for each in self._once if each.is_open(each.started, len(each.states))]
        self._unbegun = deque(each for each in self._once if each.begun < len(each.states))
        if self._unbegun:
            self._begin_more()

    def _gone(self, name: LogId) -> None:
        with self._settling:
            super()._gone(name)

    def _offer_soon(self) -> None:
        if not self._offers_soon:
            self._offers_soon = True
            with suppress(Closed):
                self._engine.call_soon(self._offer)

    def _offer(self) -> None:
        """Offer answers whose exchange is gone to others, and give them to their successors."""
        self._offers_soon = False  # what comes from now on is another time's
        orphaned, now = self._instance.orphaned, self._engine.reactor.now()
        if self._closed:
            return
        self._perform(self._instance.offer(now))
        answered, orphaned.answered = orphaned.answered, []
        for (holding, at), result in answered:
            with suppress(RoQError):  # it is not wanted any more
                self.answer(holding, at, [result])
                orphaned.taken += not holding.lost  # else its own exchange is gone as well
        to_run, orphaned.to_run = orphaned.to_run, []
        for holding, at in to_run:
            holding.stages[at] = 0
            if holding.is_open(at):
                self._run_some(holding, range(at, at + 1), self._given)
            elif holding.lost:  # its own exchange is gone, and it may have a successor
                orphaned.given_back.append(HeldAt(holding, at))
                self._offer_soon()
        if orphaned.dropped > self._dropped:
            self._limited.warning(
                "orphaned_answers", now,
                "%d answers of service %s were dropped so far: their exchanges are gone, and at no "
                "other one somebody waits for them: the requester has the answer already, or is "
                "gone, or another instance has begun with the request",
                orphaned.dropped, self._service, event="orphaned_answers",
            )  # fmt: skip
            self._dropped = orphaned.dropped
        self._handlers.note_orphaned(orphaned.taken, orphaned.dropped)

    def _adopt(self, holding: RequestHolding) -> bool:
        """What runs here already, and was sent once more, is not run again; whether any is."""
        adopted = False
        self._instance.orphaned.collect(self._engine.reactor.now())  # it may have come at once
        for at in range(len(holding.states)):
            found = self._instance.orphaned.adopt(holding, at) if holding.is_open(at) else False
            if found is False:
                continue
            adopted = True
            self._given += 1
            holding.stages[at] = RUNS
            if isinstance(found, HandlerResult):
                with suppress(RoQError):
                    self.answer(holding, at, [found])
        if adopted:
            self._running.append(holding)
        return adopted

    def _look_at_running(self) -> None:
        """Say what runs, and give back what has waited since the look before: its threads hang, or
        have long to do, and others may be free."""
        running = [each for each in self._running if each.is_open(0, len(each.states))]
        self._running = running
        again = [each for each in running if not each.begun]
        self._perform(self._instance.say_running(again, self._engine.reactor.now()))
        late = [each for each in running if each.waited and each.open_at(WAITING)]
        # What is held at an exchange that is away waits for that.
        unbegun = [each for each in self._unbegun if each.waited and self._is_certain(each)]
        if late or (unbegun and self._handlers.busy):
            self._instance.rest()
        for holding in late:
            self._handlers.withdraw(holding)
        for holding in unbegun:
            self._decline(holding, holding.begun)
            holding.begun = len(holding.states)
        for holding in running:
            holding.waited = True
        for holding in self._unbegun:
            holding.waited = self._is_certain(holding)

    def _decline(self, holding: RequestHolding, first: int) -> None:
        """None of these has run, from this one on: others may have them."""
        count = len(holding.states) - first
        with suppress(RoQError):  # it is lost, or all is closed: then others have them anyway
            if count:
                self.settle(holding, first, count, _UNBEGUN)

    def _run_some(self, holding: RequestHolding, run: range, begun: int) -> None:
        """Have what is open of these run.

        Args:
            begun: what was given when this turn began: with more than one, they wait for others.
        """
        self._running.append(holding)
        holding.waited = False
        opened = holding.states.count(OPEN, run.start, run.stop)
        self._given += opened
        if not self._flushing and self._given > begun + 1:
            self._flushing = True  # who ends first need not wake this thread
            self._flush_timer = self._engine.reactor.call_later(GATHER_SECONDS, self._flush)
        self._hurry_at = self._next_hurry()
        if opened == len(run):  # as nearly always
            self._handlers.enqueue(holding, run)
            return
        bits = sum(1 << at for at in run if holding.states[at] == OPEN)
        for first, count in runs_of(bits):
            self._handlers.enqueue(holding, range(first, first + count))


def _any_once(holding: RequestHolding) -> bool:
    """Whether any of these requests must not be begun again, or cannot be read."""
    for payload, state in zip(holding.batch.payloads, holding.states, strict=True):
        if state == OPEN and (len(payload) < ENVELOPE.size or payload[1] & ONCE):
            return True
    return False
