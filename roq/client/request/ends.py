"""Takes in how requests have ended: tells them, and has exchanges told that this has arrived.

All of it with the lock of the collector (`roq.client.request.shell`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import groupby
from typing import Any

from roq.client.publish.receipt import SendStatus
from roq.client.request.confirmations import Confirmations
from roq.client.request.machine import RequesterMachine
from roq.client.request.many import KeptRequests, ManyPart
from roq.client.request.pending import Pending, PendingRun
from roq.client.request.waiting_requests import GRACE_SECONDS, Sent, Waiting, WaitingRequests
from roq.errors import RoQError, Unavailable
from roq.model import LogId
from roq.protocol.requesting import Position, RequestEnd


class Ends:
    """What has ended, of one collector.

    Args:
        requests, machine, confirmations, kept: the collector's.

    Attributes:
        changed: those who wait have reason to look.
    """

    def __init__(
        self, requests: WaitingRequests, machine: RequesterMachine, confirmations: Confirmations,
        kept: KeptRequests,
    ) -> None:  # fmt: skip
        self.changed = False
        self._requests = requests
        self._machine = machine
        self._confirmations = confirmations
        self._kept = kept
        self._left: deque[Sent] = deque()
        """Batches of requests that have left, or are about to, but for those that are accepted."""

    def left(self, sent: Sent) -> None:
        """These have left; from any thread, without the lock."""
        self._left.append(sent)

    def give_up(self, now: float, trouble: Callable[[], str]) -> None:
        """Those end whose time is over for long, and that no exchange has said to have: one may
        refuse them, for want of room on its disk, as long as their publisher is patient.

        Args:
            trouble: says why none does.
        """
        for _ in range(len(self._left)):
            sent = self._left.popleft()
            if sent.receipt.done():
                continue
            self._left.append(sent)
            if not sent.look_at:  # most are accepted before that
                sent.look_at = now + GRACE_SECONDS
            elif sent.look_at <= now:
                self._give_up(sent, now, trouble)

    def _give_up(self, sent: Sent, now: float, trouble: Callable[[], str]) -> None:
        sent.look_at = now + GRACE_SECONDS
        over = []
        for waiter in dict.fromkeys(sent.pendings):
            if waiter is not None and not waiter.done():
                end = waiter.due + GRACE_SECONDS
                if end <= now:
                    over.append(waiter)
                else:
                    sent.look_at = min(sent.look_at, end)
        sent.given_up |= frozenset(over)
        for waiter in over:
            why = f"its time is over, and no exchange has said that it has it: {trouble()}"
            error = Unavailable(f"{waiter.endpoint.name}: {why}")
            self.settle_all(waiter, None, error)  # one that has it may say otherwise by its id

    def accepted(self, sent: Sent, status: SendStatus, now: float) -> None:
        """They have a fate after all: of what was given up the exchange is told not to begin it."""
        for index, waiter in enumerate(sent.pendings if sent.given_up else ()):
            if waiter is None or waiter not in sent.given_up:
                continue
            if status.ok and status.offset is not None:
                named = waiter.at[1] if isinstance(waiter, Pending) and waiter.at else None
                at = named or Position(status.offset, index)
                service = waiter.endpoint.service
                self._machine.wait(service, status.log, at, now, ask=False)  # until it has ended
                self._machine.cancel(service, status.log, at, now, late=True)
            sent.pendings[index] = None

    def take(self, log: LogId, end: RequestEnd, now: float) -> None:
        """An exchange says that some requests have ended."""
        index = end.index
        for waiters, alike in groupby(self._requests.at(log, end.keys)):
            count = len(list(alike))
            self._take_alike(log, end.some(index, count), waiters, now)
            index += count

    def settle(
        self, pending: Pending[Any], outcome: RequestEnd | None, error: RoQError | None
    ) -> None:
        """This one has ended so, or that cannot be known."""
        self.changed = True
        self._requests.not_due(pending)
        pending.settle(outcome, error)

    def settle_part(self, part: ManyPart, log: LogId, end: RequestEnd) -> None:
        """Some of those that were made together have ended."""
        self.changed = True
        part.settle(end)
        if not part.many.held:
            self._machine.fetched(part.endpoint.service, log, end.position, end.count)
            self._confirmations.soon()
        if not part.left:
            self._requests.not_due(part)

    def settle_run(self, run: PendingRun, end: RequestEnd) -> None:
        """Some of those that stand side by side have ended."""
        self.changed = True
        told, free = run.settle(end)
        self._kept.let_go(*told)
        if len(free) == end.count:
            self._machine.fetched(run.endpoint.service, run.log, end.position, end.count)
            self._confirmations.soon()
        else:
            for pending in free:
                self._confirmations.add(pending)
        run.drop(end)
        if not run.left:
            self._requests.not_due(run)

    def settle_all(
        self, waiter: Waiting, outcome: RequestEnd | None, error: RoQError | None
    ) -> None:
        """All of them, if they are several, that have not ended."""
        if isinstance(waiter, Pending):
            self.settle(waiter, outcome, error)
            return
        self.changed = True
        self._requests.not_due(waiter)
        if isinstance(waiter, PendingRun):
            for pending in waiter.open():
                self.settle(pending, outcome, error)
        else:
            for member in waiter.open_members():
                waiter.many.settle(member, outcome, error)
        waiter.left = 0

    def _take_alike(
        self, log: LogId, end: RequestEnd, waiters: tuple[Waiting, ...], now: float
    ) -> None:
        """Some requests have ended together, for which these wait; several for parts alone."""
        for waiter in waiters:
            if isinstance(waiter, ManyPart):
                self.settle_part(waiter, log, end)
            elif isinstance(waiter, PendingRun):
                self.settle_run(waiter, end)
            else:
                self.settle(waiter, end, None)
        if waiters:
            self._requests.close_all(log, end.keys)
        else:
            self._requests.came_early(log, end, now)
