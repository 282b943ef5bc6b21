"""The services of one exchange: the groups whose messages are requests, and what is said to them.

Pure, and a part of `roq.exchange.consumers`, which has the members and tells what is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final, Generic, TypeVar

import msgspec

from roq.exchange.events import Effect, Send
from roq.exchange.readers import RefusedRequest, check_queue
from roq.exchange.requesters import Requesters
from roq.exchange.requests import Request
from roq.log.delayed_requests import Keeper
from roq.log.groups import ConsumerGroup
from roq.log.leases import Member
from roq.log.log import Log
from roq.log.service_group import ServiceGroup
from roq.protocol import documents, requesting
from roq.protocol.consuming import Done, GroupSettings
from roq.protocol.requesting import (
    ATTEND,
    REQUESTS,
    Attend,
    Figures,
    RequestsQuery,
    Revoked,
    Want,
    prefix_of,
)

B = TypeVar("B")

DELETED_MAX: Final = 1_000
"""Services of which it is remembered where they were deleted; with more, the oldest go."""
LEASE_SECONDS: Final = 10.0
"""Of a service that its first requester has made: after so much silence an instance is lost."""


class Services(Generic[B]):
    """What an exchange does for services.

    Args:
        queue: queue id.
        log: of the exchange.
        groups: all groups of the exchange, by name.
        owed: gives what is sent when all that has happened so far is kept.
        open_group: makes a group that begins at an offset.
        after: called when something has happened to a group.

    Attributes:
        now: the time, set by who calls.
        ends: of services that were deleted, where that was: one of the same name begins there.
        handlers: of requests that wait for their turn, by letter.
        keeper: what has the delayed requests that are not due.
    """

    def __init__(
        self,
        queue: bytes,
        log: Log[B],
        groups: dict[str, ConsumerGroup[B]],
        owed: Callable[[], list[Send]],
        open_group: Callable[[str, GroupSettings, int], ConsumerGroup[B]],
        after: Callable[[ConsumerGroup[B]], None],
    ) -> None:
        self.now = 0.0
        self.ends: dict[str, int] = {}
        self.handlers: Final[dict[bytes, Callable[[Request], list[Effect]]]] = {
            ATTEND: self._attend,
            REQUESTS: self._report,
        }
        self._queue = queue
        self._log = log
        self._groups = groups
        self._owed = owed
        self._open_group = open_group
        self._after = after
        self._services: dict[str, ServiceGroup[B]] = {}
        self.keeper: Keeper | None = None
        self._requesters: Requesters[B] = Requesters(log, self.ends)

    def __bool__(self) -> bool:
        return bool(self._services or self._requesters)

    @property
    def all(self) -> list[ServiceGroup[B]]:
        """All services."""
        return list(self._services.values())

    def add(self, group: ConsumerGroup[B]) -> None:
        """There is one more group."""
        if isinstance(group, ServiceGroup):
            self._services[group.name] = group
            group.delayed.keeper = self.keeper

    def deleted(self, group: ConsumerGroup[B]) -> None:
        """An operator has deleted a group."""
        if isinstance(group, ServiceGroup):
            self._requesters.ended(group)
            self._requesters.deleted(group.name)
            del self._services[group.name]
            self.end(group.name, group.base)

    def end(self, name: str, offset: int) -> None:
        """This service was deleted here."""
        self.ends.pop(name, None)
        self.ends[name] = offset
        if len(self.ends) > DELETED_MAX:
            del self.ends[next(iter(self.ends))]

    def open(self, name: str, settings: GroupSettings) -> ConsumerGroup[B]:
        """Make a service; it begins with what may still be answered in time."""
        service = settings.service or requesting.ServiceSettings()
        since = self._log.time_us - int(service.result_within * 1_000_000)
        made = msgspec.structs.replace(
            settings, prefixes=(prefix_of(name),), mode="shared", service=service
        )
        start = max(self._log.seek(max(0, since)), self.ends.get(name, 0))
        group = self._open_group(name, made, min(start, self._log.committed))
        self.ends.pop(name, None)
        return group

    def want(self, asked: Request) -> list[Effect]:
        """A requester says what it wants, and does not want any more."""
        want = requesting.decode(asked.document, Want)
        group = self._services.get(want.service)
        try:
            self._requesters.want(asked.route, asked.reader, want, group, self.now)
        finally:
            if group is not None:
                self._after(group)
        return []

    def figures(self, group: ConsumerGroup[B], member: Member, document: bytes) -> None:
        """An instance says how it is."""
        figures = requesting.decode(document, Figures)
        if isinstance(group, ServiceGroup):
            group.figures[member.id] = figures

    def gone(self, route: bytes) -> None:
        """A connection has ended."""
        self._requesters.gone(route)

    def tick(self) -> list[Send]:
        """Time has passed; what is to be asked."""
        if not self:
            return []
        return self._requesters.tick(self._services, self.now)

    def revoked(self) -> Iterator[tuple[ServiceGroup[B], bytes, bytes]]:
        """What is not some member's any more, since the last call: group, member, what to say."""
        for group in self._services.values():
            if not group.revoked:
                continue
            by_member: dict[bytes, list[tuple[int, int]]] = {}
            for member, lease, index in group.revoked:
                by_member.setdefault(member, []).append((lease, index))
            group.revoked.clear()
            for member, requests in by_member.items():
                yield group, member, requesting.encode(Revoked(requests))

    def load(self) -> dict[str, float]:
        """How the requests of all services stand, and what has become of them, by the names of
        `ExchangeLoad`."""
        groups = self._services.values()
        counts: Counter[str] = Counter()
        for group in groups:
            counts.update(group.counts)
        other = counts["cancelled"] + counts["late"] + counts["unknown"]
        return {
            "requests_open": sum(group.open_count for group in groups),
            "requests_accepted": sum(group.measured.accepted for group in groups),
            "requests_done": counts["done"],
            "requests_failed": counts["failed"],
            "requests_discarded": counts["discarded"],
            "requests_otherwise": other,
            "requests_retried": sum(group.failed for group in groups),
            "responses_stored": sum(len(group.outcomes) for group in groups),
            "responses_bytes": sum(group.outcomes.bytes for group in groups),
            "responses_expired": counts["expired"],
            "requests_oldest_seconds": max((group.oldest_age for group in groups), default=0.0),
            "requests_wait_seconds": sum(group.measured.waiting.seconds for group in groups),
            "requests_run_seconds": sum(group.measured.running.seconds for group in groups),
            "responses_kept_seconds": sum(group.outcomes.unfetched.seconds for group in groups),
            "responses_fetched": sum(group.outcomes.unfetched.count for group in groups),
        }

    def take(self) -> list[Send]:
        """What requesters are to be told when all that has happened so far is kept."""
        for group in self._services.values():
            if group.ended:
                self._requesters.ended(group)
                self._after(group)
        return self._requesters.take()

    def check(self) -> None:
        """Assert the invariants."""
        assert all(self._groups.get(name) is each for name, each in self._services.items())  # noqa: S101
        self._requesters.check()

    def _attend(self, asked: Request) -> list[Effect]:
        attend = documents.decode(asked.document, Attend)
        check_queue(attend.queue, self._queue)
        if attend.service not in self._groups:
            made = GroupSettings(attempts=0, lease_seconds=LEASE_SECONDS, service=attend.settings)
            self.open(attend.service, made)
        group = self._find(attend.service)
        self._owed().append(self._requesters.attend(asked, attend, group, self.now))
        self._after(group)
        return []

    def _report(self, asked: Request) -> list[Effect]:
        query = documents.decode(asked.document, RequestsQuery)
        check_queue(query.queue, self._queue)
        return [self._requesters.report(asked, query, self._find(query.service))]

    def _find(self, name: str) -> ServiceGroup[B]:
        group = self._groups.get(name)
        if group is None:
            raise RefusedRequest("no_group", f"there is no service {name} at this exchange")
        if not isinstance(group, ServiceGroup):
            raise RefusedRequest(
                "group_differs", f"{name} is a consumer group of this queue, and no service"
            )
        return group


_lease_of: Final = attrgetter("lease")


def answered(group: ServiceGroup[B], member: Member, done: Done) -> list[int]:
    """What an instance has begun and answered; gives the leases that were not its own."""
    # A lease that is there may have lost some of its requests: its instance was told which.
    named = [each.lease for each in done.begun] + [each.lease for each in done.answers]
    refused = [lease for lease in named if lease not in member.leases]
    for begun in done.begun:
        group.begin(member, begun)
    for number, answers in groupby(done.answers, _lease_of):
        group.answer_all(member, number, answers)
    for each in done.returned:
        group.take_back(member, each.lease, each.first, each.length)
    # A request that is acknowledged without an answer would have no end.
    return [*refused, *done.whole, *(lease for lease, _, _ in done.parts)]
