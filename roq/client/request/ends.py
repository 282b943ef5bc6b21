"""Takes in how requests have ended: tells them, and has exchanges told that this has arrived.

All of it with the lock of the collector (`roq.client.request.shell`).
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from roq.client.request.confirmations import Confirmations
from roq.client.request.machine import RequesterMachine
from roq.client.request.many import KeptRequests, ManyPart
from roq.client.request.pending import Pending, PendingRun
from roq.client.request.waiting_requests import Waiting, WaitingRequests
from roq.errors import RoQError
from roq.model import LogId
from roq.protocol.requesting import RequestEnd


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
