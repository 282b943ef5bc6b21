"""Connections and timers around an `InstanceMachine`: requests in, answers and figures out.

All of it runs in the client's I/O thread, but for what `ConsumerShell` says.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, cast

import msgspec

from roq.client.consume.holding import OPEN, Holding
from roq.client.consume.message import DONE, Settlement
from roq.client.consume.seat import Membership
from roq.client.consume.shell import ConsumerShell
from roq.client.io.engine import Engine
from roq.client.request.instance import HandlerResult, InstanceMachine, RequestHolding
from roq.errors import RoQError
from roq.log.leases import runs_of
from roq.model import LogId
from roq.protocol.requesting import ENVELOPE, ONCE, Figures

GATHER_SECONDS: Final = 0.001
"""Answers to requests that have come together wait so long for each other at most."""
_UNBEGUN: Final = Settlement(counted=False, reason="its instance ends")


class InstanceShell(ConsumerShell):
    """One instance's.

    Args:
        engine: the client's threads.
        member: who it is.
        run: called with requests that are to run: the holding, and which of its requests.
        on_tick: called a few times a second.
        on_order: called with what an operator wants, as of `InstanceOrder`.
        on_joined, on_refused: as of `ConsumerShell`.
    """

    def __init__(
        self,
        engine: Engine,
        member: Membership,
        run: Callable[[RequestHolding, range], None],
        on_tick: Callable[[], None],
        on_order: Callable[[str], None],
        *,
        on_joined: Callable[[], None],
        on_refused: Callable[[RoQError], None],
    ) -> None:
        machine = InstanceMachine(member)
        super().__init__(
            engine, member, on_joined=on_joined, on_refused=on_refused, machine=machine
        )
        self._instance = machine
        self._run = run
        self._on_tick = on_tick
        self._on_order = on_order
        self._waiting_once: dict[RequestHolding, None] = {}
        """What must not be begun again, and is not confirmed."""
        self._young: deque[RequestHolding] = deque()
        """What runs and was not said to be begun."""
        self.on_ready = self._arrived
        self._given = 0
        """Requests that were to run, counted as those that are settled."""
        self._available = True
        self._draining = False
        self._settling = threading.Lock()

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
        self.settle(holding, index, len(answers), DONE)

    def give_back(self, holding: RequestHolding, index: int, verdict: Settlement) -> None:
        """A request is to be run again; raises as `answer`."""
        self.settle(holding, index, 1, verdict)

    def settle(self, holding: Holding, index: int, count: int, verdict: Settlement) -> None:
        """As of any consumer, from any thread."""
        with self._settling:
            super().settle(holding, index, count, verdict)

    def drain(self) -> None:
        """Take nothing more, and give back what has not begun."""
        self._draining = True
        self.take_no_more()
        waiting, self._waiting_once = list(self._waiting_once), {}
        for holding in waiting:
            self._decline(holding)

    def tell_figures(self, figures: Figures) -> None:
        """Say how the instance is, and take requests only while it is available."""
        if self._draining:
            figures = msgspec.structs.replace(figures, available=False, rule="it ends")
        self._perform(self._instance.figures(figures))
        if figures.available is not self._available:
            self._available = figures.available
            now = self._engine.reactor.now()
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
            for holding in started:
                if self._waiting_once.pop(holding, 0) is None:
                    self._run_all(holding, begun)

    def _arrived(self) -> None:
        """Requests have come: run them, or say first that they are begun."""
        once: list[RequestHolding] = []
        begun = self._given
        while True:
            holding = cast("RequestHolding | None", self.take())
            if holding is None:
                break
            if self._draining:
                self._decline(holding)
            elif _any_once(holding):
                self._waiting_once[holding] = None
                once.append(holding)
            else:
                self._young.append(holding)
                self._run_all(holding, begun)
        if once:
            self._begin(once)

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

    def _begin(self, once: list[RequestHolding]) -> None:
        now = self._engine.reactor.now()
        self._perform(self._instance.begin([(each, True) for each in once], now))

    def _tick(self) -> None:
        super()._tick()
        if self._closed:
            return
        self._on_tick()
        for holding in [each for each in self._waiting_once if each.lost]:
            del self._waiting_once[holding]
        self._begin(list(self._waiting_once))
        young = [each for each in self._young if each.is_open(0, len(each.batch))]
        self._young.clear()
        now = self._engine.reactor.now()
        self._perform(self._instance.begin([(each, False) for each in young], now))

    def _decline(self, holding: RequestHolding) -> None:
        """None of these has run: others may have them."""
        with suppress(RoQError):  # it is lost, or all is closed: then others have them anyway
            self.settle(holding, 0, len(holding.batch), _UNBEGUN)

    def _run_all(self, holding: RequestHolding, begun: int) -> None:
        """Have what is open of it run.

        Args:
            begun: what was given when this turn began: with more than one, they wait for others.
        """
        self._given += holding.open
        if not self._flushing and self._given > begun + 1:
            self._flushing = True  # who ends first need not wake this thread
            self._flush_timer = self._engine.reactor.call_later(GATHER_SECONDS, self._flush)
        self._hurry_at = self._next_hurry()
        if holding.open == len(holding.states):  # as nearly always
            self._run(holding, range(len(holding.states)))
            return
        opened = sum(1 << at for at, state in enumerate(holding.states) if state == OPEN)
        for first, count in runs_of(opened):
            self._run(holding, range(first, first + count))


def _any_once(holding: RequestHolding) -> bool:
    """Whether any of these requests must not be begun again, or cannot be read."""
    for payload in holding.batch.payloads:
        if len(payload) < ENVELOPE.size or payload[1] & ONCE:
            return True
    return False
