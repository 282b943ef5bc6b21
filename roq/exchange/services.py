"""The services of one exchange: the groups whose messages are requests, and what is said to them.

Pure, and a part of `roq.exchange.consumers`, which has the members and tells what is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Final, Generic, Protocol, TypeVar, cast

import msgspec

from roq.errors import RemoteProtocolError
from roq.exchange.commit import OWED_MAX, check_owed
from roq.exchange.delayed_message import KeptMessage, Outgoing, Wanted, columns_of
from roq.exchange.events import Effect, Send
from roq.exchange.readers import RefusedRequest, check_queue
from roq.exchange.requesters import Requesters
from roq.exchange.requests import Request
from roq.log.delayed_requests import Keeper
from roq.log.groups import ConsumerGroup
from roq.log.leases import Member
from roq.log.log import Log
from roq.log.outcomes import REMEMBER_SECONDS, summed
from roq.log.service_group import ServiceGroup
from roq.log.timing_wheel import Row
from roq.protocol import documents, requesting
from roq.protocol.attributes import NO_ATTRIBUTES, BatchAttributes, pack_attributes
from roq.protocol.batch import read_body, read_header
from roq.protocol.consuming import (
    MEMBERS_PER_ANSWER_MAX,
    SETTLED_MAX,
    Done,
    GroupOrder,
    GroupSettings,
    requests_in,
)
from roq.protocol.defined_services import DefinedServices, defined_for, under
from roq.protocol.delayed import DELAYED_TOPIC
from roq.protocol.orphaned_answers import ORPHANED, AnswersOffered, AnswersTaken
from roq.protocol.requesting import (
    AGAIN,
    AGAIN_PUBLISHER,
    ATTEND,
    DISCARD_REASONS,
    FIGURES,
    INSTANCE_ORDER,
    REQUESTS,
    REVOKED,
    SEPARATOR,
    SETTINGS,
    Attend,
    Figures,
    InstanceOrder,
    Position,
    RequestsQuery,
    RequestState,
    Revoked,
    ServiceSettings,
    Want,
    delayed_position,
    prefix_of,
)

B = TypeVar("B")

DELETED_MAX: Final = 1_000
"""Services of which it is remembered where they were deleted; with more, the oldest go."""
AGAIN_FROM: Final = frozenset({RequestState.DISCARDED, RequestState.FAILED, RequestState.UNKNOWN})
"""A request that has ended so may run again."""
_GONE: Final = "what was requested is not kept any more: make the request anew"
LEASE_SECONDS: Final = 10.0
"""Of a service that its first requester has made: after so much silence an instance is lost."""


class _Speaks(Protocol[B]):
    """An instance, and where it is."""

    group: ConsumerGroup[B]
    member: Member

    def send(self, letter: bytes, *rest: bytes) -> Send:
        """A message for it."""
        ...


class DeletedBefore(Wanted):
    """What is delayed is not published if its service was deleted since; its requester is told.

    Args:
        ends: of services, where in the log that was.
        told: called with the service, who has made the request, and as what it is known.
    """

    def __init__(
        self, ends: Mapping[str, int], told: Callable[[str, bytes, Position], None]
    ) -> None:
        self._ends = ends
        self._told = told

    def topic_of(self, row: Row, held: KeptMessage) -> bytes:
        """As of any."""
        topic = held.message.topic
        gone = bool(self._ends) and row.offset < self._ends.get(_service_of(topic), 0)
        return DELAYED_TOPIC if gone else topic

    def left(self, messages: list[tuple[Row, KeptMessage]]) -> int:
        """As of any."""
        for _, held in messages:
            position = delayed_position(held.message.id)
            if position is not None:
                self._told(_service_of(held.message.topic), held.message.publisher, position)
        return super().left(messages)


class Services(Generic[B]):
    """What an exchange does for services.

    Args:
        queue: queue id.
        log: of the exchange.
        groups: all groups of the exchange, by name.
        owed: gives what requesters are sent when all that has happened so far is kept.
        open_group: makes a group that begins at an offset.
        after: called when something has happened to a group.

    Attributes:
        now: the time, set by who calls.
        defined: what the definition of the queue says; None: nobody has told yet.
        ends: of services that were deleted, where that was: one of the same name begins there, and
            what was delayed before is not published.
        deleted_before: which delayed requests are published.
        publish: appends something to the log; None: there is no room.
        handlers: of requests that wait for their turn, by letter.
        words: what instances say that is taken in at once, by letter.
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
        self.defined: DefinedServices | None = None
        self.ends: dict[str, int] = {}
        self.handlers: Final[dict[bytes, Callable[[Request], list[Effect]]]] = {
            ATTEND: self._attend,
            REQUESTS: self._report,
        }
        self.words: Final[dict[bytes, Callable[[_Speaks[B], bytes], None]]] = {
            FIGURES: self._figures,
            ORPHANED: self._take_in,
        }
        self._queue = queue
        self._log = log
        self._groups = groups
        self._owed = owed
        self._open_group = open_group
        self._after = after
        self._services: dict[str, ServiceGroup[B]] = {}
        self.publish: Callable[[bytes, Outgoing], list[Effect] | None] = lambda *_: None
        self._keeper: Keeper | None = None
        self._orders: list[tuple[ServiceGroup[B], bytes, bytes]] = []
        self._requesters: Requesters[B] = Requesters(log, self.ends)
        self.deleted_before = DeletedBefore(self.ends, self._requesters.unwanted)

    def __bool__(self) -> bool:
        return bool(self._services or self._requesters)

    @property
    def all(self) -> list[ServiceGroup[B]]:
        """All services."""
        return list(self._services.values())

    def find_links(self, link_of: Callable[[bytes], bytes | None]) -> None:
        """This gives the connection by which a publisher publishes here; None: it has none."""
        self._requesters.link_of = link_of

    def keep_delayed(self, keeper: Keeper) -> None:
        """This has the delayed requests that are not due."""
        self._keeper = self._requesters.keeper = keeper

    def add(self, group: ConsumerGroup[B]) -> None:
        """There is one more group."""
        if isinstance(group, ServiceGroup):
            self._services[group.name] = group
            group.delayed.keeper = self._keeper
            group.delayed.since = self.ends.get(group.name, 0)

    def recovered(self) -> None:
        """The groups of an earlier process are here."""
        for each in self._groups.values():
            self.add(each)
        for group in self._services.values():
            age = (self._log.time_us - group.created_us) / 1_000_000
            if age < REMEMBER_SECONDS:
                # It may have had other settings when it was made: what it had then is not told.
                within = max(group.service.result_within, ServiceSettings().result_within)
                self._pass_over(group, self._since(group.created_us, within), age)

    def deleted(self, group: ConsumerGroup[B]) -> None:
        """An operator has deleted a group."""
        if isinstance(group, ServiceGroup):
            self._requesters.ended(group)
            del self._services[group.name]
            self.end(group.name, group.base)
            self._requesters.deleted(group.name)

    def end(self, name: str, offset: int) -> None:
        """This service was deleted here."""
        self.ends.pop(name, None)
        self.ends[name] = offset
        if len(self.ends) > DELETED_MAX:
            del self.ends[next(iter(self.ends))]

    def open(self, name: str, settings: GroupSettings) -> ConsumerGroup[B]:
        """Make a service; it begins with what may still be answered in time."""
        service = under(settings.service or ServiceSettings(), self._defined(name))
        made = msgspec.structs.replace(
            settings, prefixes=(prefix_of(name),), mode="shared", service=service
        )
        since = self._since(self._log.time_us, service.result_within)
        start = max(since, self.ends.get(name, 0))
        if self._requesters.behind(name) <= start:
            start = self._log.end  # nobody has asked since, and there may be much else
        group = self._open_group(name, made, min(start, self._log.committed))
        self._pass_over(self._find(name), since, 0.0)
        return group

    def define(self, services: DefinedServices) -> None:
        """The definition of the queue says this now; requesters are told what has changed."""
        if services == self.defined:
            return
        self.defined = services
        for group in self._services.values():
            settings = under(group.service, self._defined(group.name))
            if settings != group.service:
                group.choose(msgspec.structs.replace(settings, chosen=True))
                self._owed().extend(self._requesters.settings(group))
                self._after(group)

    def choose(self, group: ServiceGroup[B], settings: ServiceSettings) -> None:
        """A client brings settings: they hold where the definition of the queue says nothing."""
        brought = msgspec.structs.replace(settings, defined=())
        group.choose(under(brought, self._defined(group.name)))

    def _defined(self, name: str) -> dict[str, float]:
        """What the definition says of a service; not told yet: as it was said when it was made."""
        if self.defined is not None:
            return defined_for(self.defined, name)
        group = self._services.get(name)
        found = ServiceSettings() if group is None else group.service
        return {each: getattr(found, each) for each in found.defined if each in SETTINGS}

    def _since(self, made_us: int, within: float) -> int:
        """With which offset a service begins that is made then."""
        return self._log.seek(max(0, made_us - int(within * 1_000_000)))

    def _pass_over(self, group: ServiceGroup[B], since: int, age: float) -> None:
        """What came before this, and may be of this service, ended as late, if anybody asks; but
        what the service has before it, which clocks that jump make look as old."""
        until = min(since, self._requesters.behind(group.name), group.base)
        unseen = range(self.ends.get(group.name, 0), until)
        group.outcomes.pass_over(unseen, self.now + REMEMBER_SECONDS - age)

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

    def order(self, group: ConsumerGroup[B], order: GroupOrder) -> tuple[list[str], list[Effect]]:
        """An operator wants something of a service; the names of the instances that are told.

        Raises:
            RefusedRequest: it is none, or the request cannot run again.
        """
        if not isinstance(group, ServiceGroup):
            raise RefusedRequest("invalid_request", f"group {group.name} is no service")
        if order.order == "retry":
            return [], self._run_again(group, order)
        told = requesting.encode(InstanceOrder(order.order))
        names = []
        for each in group.state(who=True, most=len(group)).who:
            if order.instance in {"", each.name, each.member.hex()}:
                self._orders.append((group, each.member, told))
                names.append(each.name)
        return names[:MEMBERS_PER_ANSWER_MAX], []

    def _run_again(self, group: ServiceGroup[B], order: GroupOrder) -> list[Effect]:
        position = Position(order.offset, order.index)
        if order.generation != self._log.generation:
            raise RefusedRequest("invalid_request", f"its exchange is gone, with {_GONE}")
        state = group.state_of(position)
        if state not in AGAIN_FROM:
            text = f"a request runs again that is {', '.join(sorted(AGAIN_FROM))}; this one is"
            raise RefusedRequest("invalid_request", f"{text} {state or 'not looked at yet'}")
        found = self._message_at(position, group.name)
        if found is None:
            raise RefusedRequest("invalid_request", _GONE)
        effects = self.publish(*found)
        if effects is None:
            raise RefusedRequest("full", "this exchange has no room for it; try again")
        group.outcomes.run_again(position, self.now)
        self._after(group)
        return effects

    def _message_at(self, position: Position, service: str) -> tuple[bytes, Outgoing] | None:
        """What was requested, as it is published again: topic and message; None: it is not there
        any more.

        Raises:
            RefusedRequest: the disk does not give it now.
        """
        offset, index = position
        record = None
        if self._log.floor <= offset < self._log.committed:
            record = self._log.record(offset)
            if record is None and not self._log.is_lost(offset):
                text = "the disk does not give what was requested now; try again"
                raise RefusedRequest("full", text)
        if record is None or not record[0].name.startswith(prefix_of(service)):
            return None
        try:
            data = cast("bytes", record[2])
            header = read_header(data)
            payloads, packed = read_body(data, header)
            given = NO_ATTRIBUTES
            if packed is not None:
                given = BatchAttributes(packed, 0, header.count).of(index)
            payload = payloads[index]
        except (RemoteProtocolError, IndexError):
            return None
        properties = {k: v for k, v in given.properties.items() if not k.startswith("roq.")}
        properties[AGAIN] = f"{offset}-{index}"
        properties[AGAIN_PUBLISHER] = header.publisher.hex()
        again = msgspec.structs.replace(given, properties=properties)
        outgoing = Outgoing([payload], pack_attributes({0: again}), columns_of([again]))
        return record[0].name, outgoing

    def _figures(self, peer: _Speaks[B], document: bytes) -> None:
        """An instance says how it is."""
        figures, group = requesting.decode(document, Figures), peer.group
        if isinstance(group, ServiceGroup):
            group.figures[peer.member.id] = figures

    def _take_in(self, peer: _Speaks[B], document: bytes) -> None:
        """An instance has answers to requests whose exchange is gone."""
        offered, group, owed = requesting.decode(document, AnswersOffered), peer.group, self._owed()
        full = not offered.answers or len(owed) >= OWED_MAX
        if full or not isinstance(group, ServiceGroup):
            return  # it says so again
        taken, outdated = list[bytes](), list[bytes]()
        attempts, wait = group.service.reply_attempts, group.service.reply_wait
        for each in offered.answers if attempts else ():
            counts = group.answer_former(peer.member, each)
            if counts is not None:
                (taken if counts else outdated).append(each.token)
        self._after(group)
        told = requesting.encode(AnswersTaken(taken, outdated, attempts, wait))
        owed.append(peer.send(ORPHANED, told))

    def gone(self, route: bytes) -> None:
        """A connection has ended."""
        self._requesters.gone(route)

    def tick(self) -> None:
        """Time has passed."""
        self._requesters.tick(self._services)

    def told(self) -> Iterator[tuple[ServiceGroup[B], bytes, bytes, bytes]]:
        """What members are to be told since the last call: group, member, letter, what to say;
        and it is noted which requesters are to be told something."""
        orders, self._orders = self._orders, []
        for group, member, told in orders:
            yield group, member, INSTANCE_ORDER, told
        for group in self._services.values():
            if group.ended:
                self._requesters.ended(group)
                self._after(group)
            if not group.revoked:
                continue
            by_member: dict[bytes, list[tuple[int, int]]] = {}
            for member, lease, index in group.revoked:
                by_member.setdefault(member, []).append((lease, index))
            group.revoked.clear()
            for member, requests in by_member.items():
                yield group, member, REVOKED, requesting.encode(Revoked(requests))

    def load(self) -> dict[str, object]:
        """How the requests of all services stand, and what has become of them, by the names of
        `ExchangeLoad`; empty: there are no services."""
        groups = self._services.values()
        if not groups:
            return {}
        counts: Counter[str] = Counter()
        for group in groups:
            counts.update(group.counts)
        other = counts["cancelled"] + counts["late"] + counts["unknown"]
        why = {reason: counts[reason] for reason in DISCARD_REASONS if counts[reason]}
        if rest := counts["discarded"] - sum(why.values()):
            why[DISCARD_REASONS[-1]] = rest  # this one alone comes from instances
        return {
            "requests_open": sum(group.open_count for group in groups),
            "requests_accepted": sum(group.measured.accepted for group in groups),
            "requests_done": counts["done"],
            "requests_failed": counts["failed"],
            "requests_discarded": counts["discarded"],
            "requests_discarded_by": why,
            "requests_otherwise": other,
            "requests_retried": sum(group.failed for group in groups),
            "responses_stored": sum(len(group.outcomes) for group in groups),
            "responses_bytes": sum(group.outcomes.bytes for group in groups),
            "responses_expired": counts["expired"],
            "requests_oldest_seconds": max((group.oldest_age for group in groups), default=0.0),
            "requests_waiting": summed(group.measured.waiting for group in groups),
            "requests_running": summed(group.measured.running for group in groups),
            "responses_unfetched": summed(group.outcomes.unfetched for group in groups),
            "responses_fetched": sum(group.outcomes.unfetched.count for group in groups),
        }

    def take(self) -> list[Send]:
        """What requesters are to be told when all that has happened until `told` is kept."""
        return self._requesters.take()

    def check(self) -> None:
        """Assert the invariants."""
        assert all(self._groups.get(name) is each for name, each in self._services.items())  # noqa: S101
        self._requesters.check()

    def _attend(self, asked: Request) -> list[Effect]:
        attend = documents.decode(asked.document, Attend)
        check_queue(attend.queue, self._queue)
        check_owed(len(self._owed()))
        if attend.service not in self._groups:
            made = GroupSettings(attempts=0, lease_seconds=LEASE_SECONDS, service=attend.settings)
            self.open(attend.service, made)
        group = self._find(attend.service)
        self.choose(group, attend.settings)
        self._owed().append(self._requesters.attend(asked, attend, group))
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


def _service_of(topic: bytes) -> str:
    """Empty: it is no topic of requests."""
    service, found, _ = topic.partition(SEPARATOR.encode())
    return service.decode() if found else ""


def answered(group: ServiceGroup[B], member: Member, done: Done) -> list[int]:
    """What an instance has begun and answered; gives the leases that were not its own.

    Raises:
        RemoteProtocolError: it names more requests than are looked at in one go.
    """
    if (count := requests_in(done)) > SETTLED_MAX:
        text = f"a Done names {SETTLED_MAX:,} requests at most, not {count:,}"
        raise RemoteProtocolError(text)
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
