"""The requesters of one exchange: who waits for the ends of which requests. Pure.

A requester attends a service and is told how its own requests end, without asking; anybody may ask
for single ones. What was told stays stored until it is confirmed, or its life is over. What is to
be told comes out of `take`, and is sent when it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, TypeVar

from roq.exchange.events import Send
from roq.exchange.readers import RefusedRequest
from roq.exchange.requests import Request
from roq.log.delayed_requests import Keeper
from roq.log.log import Log
from roq.log.outcomes import size_of
from roq.log.service_group import ServiceGroup
from roq.model import PUBLISHER_ID_BYTES
from roq.protocol import documents, requesting
from roq.protocol.requesting import (
    ATTEND,
    DELAYED_FROM,
    DELAYED_LOOKS,
    ENDS,
    OUTCOMES,
    REQUESTS,
    UNASKED,
    Attend,
    Attended,
    Position,
    RequestEnd,
    RequestEnds,
    Requests,
    RequestsQuery,
    RequestState,
    Want,
    delayed_message,
    prefix_of,
)

B = TypeVar("B")

REQUESTERS_MAX: Final = 10_000
TAGS_MAX: Final = 1_000
"""Of them, those that share a connection."""
DELETED: Final = "an operator has deleted the service"
PUBLISHERS_MAX: Final = 100
ATTENDED_MAX: Final = 1_000
"""Of one requester: services that it attends."""
POSITIONS_MAX: Final = 100_000
"""Likewise: requests that it waits for, and has asked for,"""
WAITED_MAX: Final = 1_000_000
"""of all requesters together."""
LOOKS_MAX: Final = 10_000
"""So many of them are looked at in one tick, and so many forgotten whose requester has gone."""
TOLD_BYTES: Final = 32 * 1024 * 1024
"""What is told to who asks, at once; of more it is asked again."""
FRAME_BYTES: Final = 1024 * 1024
"""Ends that travel together."""
LINK_BYTES: Final = 256 * 1024
"""What is larger does not travel between the acknowledgements of a publisher."""


@dataclass(slots=True, eq=False)
class Asker:
    """One that waits, over one connection."""

    route: bytes
    tag: bytes
    link: bytes = b""
    """It is told over the connection of this publisher, if that has one; empty: of none."""
    asked: bool = False
    """Some of what it is to be told it has asked for: it may wait as that connection is cut, and
    hears it where it has asked."""
    publishers: set[bytes] = field(default_factory=set)
    services: set[str] = field(default_factory=set)
    """Those that it attends."""
    wanted: dict[str, set[Position]] = field(default_factory=dict)
    """By service: what it has asked for."""
    due: dict[str, list[RequestEnd]] = field(default_factory=dict)
    """By service: what it is to be told."""


class Requesters(Generic[B]):
    """Who waits at one exchange.

    Args:
        log: of the exchange.
        deleted: by service that was deleted, where in the log that was.

    Attributes:
        keeper: what has the delayed requests that are not due.
        link_of: gives the connection by which a publisher publishes here; None: it has none.
    """

    def __init__(self, log: Log[B], deleted: Mapping[str, int]) -> None:
        self.keeper: Keeper | None = None
        self.link_of: Callable[[bytes], bytes | None] = lambda _: None
        self._log = log
        self._deleted = deleted
        self._requesters: dict[tuple[bytes, bytes], Asker] = {}
        """By route and tag."""
        self._routes: dict[bytes, list[bytes]] = {}
        """The tags of each."""
        self._by_publisher: dict[bytes, Asker] = {}
        self._waiting: dict[tuple[str, Position], dict[Asker, None]] = {}
        self._unseen: dict[tuple[str, Position], int] = {}
        """Of these it is not known yet whether there is such a request: it is when its service has
        looked at everything below this offset."""
        self._wait_count = 0
        """How many wait, for each of these."""
        self._leaving: list[Asker] = []
        """Those that have gone, and are still among those that wait."""
        self._due: dict[Asker, None] = {}
        self._told_bytes = 0
        """What those are told that have asked, since `take`."""

    def __len__(self) -> int:
        return len(self._requesters)

    def attend(self, asked: Request, attend: Attend, group: ServiceGroup[B]) -> Send:
        """A requester comes, or comes back."""
        requester = self._requester(asked.route, asked.reader)
        if attend.publisher:
            if len(attend.publisher) != PUBLISHER_ID_BYTES:
                raise RefusedRequest("invalid_request", "a publisher has an id of 16 bytes")
            publishers = requester.publishers
            if attend.publisher not in publishers and len(publishers) >= PUBLISHERS_MAX:
                raise RefusedRequest("full", f"{PUBLISHERS_MAX} publishers are a requester's most")
            publishers.add(attend.publisher)
            requester.link = attend.publisher if attend.by_link else b""
            self._by_publisher[attend.publisher] = requester
        if group.name not in requester.services and len(requester.services) >= ATTENDED_MAX:
            raise RefusedRequest("full", f"{ATTENDED_MAX} services are a requester's most")
        requester.services.add(group.name)
        answer = Attended(
            id=attend.id, generation=self._log.generation, settings=group.service,
            service=group.name,
        )  # fmt: skip
        return Send(asked.route, (ATTEND + asked.reader, documents.encode(answer)))

    def settings(self, group: ServiceGroup[B]) -> list[Send]:
        """Those of a service have changed: whoever attends it is told."""
        told = Attended(
            id=UNASKED, generation=self._log.generation, settings=group.service,
            service=group.name,
        )  # fmt: skip
        return [
            Send(each.route, (ATTEND + each.tag, documents.encode(told)))
            for each in self._requesters.values()
            if group.name in each.services
        ]

    def want(
        self, route: bytes, tag: bytes, want: Want, group: ServiceGroup[B] | None, now: float
    ) -> None:
        """What a requester wants to know, and does not want any more.

        Args:
            group: the service; None: nobody has told of it here yet, or it was deleted.

        Raises:
            RefusedRequest: it waits for too much; what there was no room for is not waited for.
        """
        requester = self._requester(route, tag)
        if group is not None:
            _heed(group, want, now, self._log.time_us)
            self.ended(group)
        room = POSITIONS_MAX - sum(map(len, requester.wanted.values()))
        room = min(room, WAITED_MAX - self._wait_count)
        wanted = requester.wanted.setdefault(want.service, set())
        behind = self.behind(want.service) if group is None and want.wanted else 0
        left_out = untold = 0
        for position in want.wanted:
            if group is None:
                outcome = self._outcome_before(want.service, behind, position)
            else:
                outcome = _outcome_at(group, position)
            if outcome is not None:
                if self._told_bytes >= TOLD_BYTES:
                    untold += 1
                    continue
                requester.asked = True
                self._tell(requester, want.service, [outcome])
                continue
            if position not in wanted:
                if not room:
                    left_out += 1
                    continue
                room -= 1
                self._wait_count += 1
                wanted.add(position)
                self._waiting.setdefault((want.service, position), {})[requester] = None
            delayed = position.offset >= DELAYED_FROM
            seen = self._log.end if delayed else position.offset + 1
            if group is None or (group.next < seen and not (delayed and group.state_of(position))):
                self._unseen.setdefault((want.service, position), seen)
        if not wanted:
            del requester.wanted[want.service]
        if left_out:
            text = (
                f"a requester waits for {POSITIONS_MAX:,} requests at most, and all of them "
                f"together for {WAITED_MAX:,}: {left_out} more are not waited for"
            )
            raise RefusedRequest("full", text)
        if untold:
            text = f"so much is on its way already: ask again how {untold} requests have ended"
            raise RefusedRequest("full", text)

    def ended(self, group: ServiceGroup[B]) -> None:
        """Tell those who wait what has ended since the last call."""
        name = group.name
        for publisher, outcome in group.ended:
            requester = self._by_publisher.get(publisher)
            if requester is not None:
                requester.due.setdefault(name, []).append(outcome)
                self._due[requester] = None
            if self._waiting:
                for position in outcome.positions:
                    self._resolve(name, position, outcome, requester)
        group.ended.clear()

    def tick(self, groups: Mapping[str, ServiceGroup[B]]) -> None:
        """Time has passed: look again for what was not known."""
        self._forget_gone()
        for key, seen in list(islice(self._unseen.items(), LOOKS_MAX)):
            service, position = key
            self._unseen[key] = self._unseen.pop(key)  # others have their turn before it
            group = groups.get(service)
            if group is None:
                continue
            outcome = _outcome_at(group, position)
            if outcome is None and group.next >= seen:
                del self._unseen[key]
                if group.state_of(position) is None:  # it waits no more, and was not published
                    outcome = RequestEnd(*position, RequestState.FORGOTTEN)
            if outcome is not None:
                self._resolve(service, position, outcome)

    def behind(self, service: str) -> int:
        """Where the log goes on behind the last batch that may have requests to a service."""
        log = self._log
        heads, _ = log.heads((prefix_of(service),), 0, log.end, max(1, log.topics))
        return min(log.committed, heads[-1][1] + 1) if heads else 0

    def deleted(self, service: str) -> None:
        """The service is gone: what is delayed is cancelled, of the rest no more is known."""
        for name, position in [key for key in self._waiting if key[0] == service]:
            end = self._delayed_end(service, position)
            self._resolve(name, position, end or RequestEnd(*position, RequestState.FORGOTTEN))

    def unwanted(self, service: str, publisher: bytes, position: Position) -> None:
        """This one was delayed, and would be due; its service was deleted."""
        end = RequestEnd(*position, RequestState.CANCELLED, text=DELETED)
        requester = self._by_publisher.get(publisher)
        if requester is not None:
            self._tell(requester, service, [end])
        self._resolve(service, position, end, requester)

    def gone(self, route: bytes) -> None:
        """A connection has ended."""
        for tag in self._routes.pop(route, ()):
            requester = self._requesters.pop((route, tag))
            self._due.pop(requester, None)
            for publisher in requester.publishers:
                if self._by_publisher.get(publisher) is requester:
                    del self._by_publisher[publisher]
            if requester.wanted:
                self._leaving.append(requester)

    def take(self) -> list[Send]:
        """What is to be sent when all that has happened so far is kept."""
        if not self._due:
            return []
        sends: list[Send] = []
        for requester in self._due:
            by_link = requester.link and not requester.asked
            link = self.link_of(requester.link) if by_link else None
            for service, outcomes in requester.due.items():
                for some in _portions(outcomes):
                    told = requesting.encode(RequestEnds(service, some))
                    if link is not None and len(told) <= LINK_BYTES:
                        sends.append(Send(link, (OUTCOMES, told)))
                    else:
                        sends.append(Send(requester.route, (OUTCOMES + requester.tag, told)))
            requester.due, requester.asked = {}, False
        self._due.clear()
        self._told_bytes = 0
        return sends

    def report(self, asked: Request, query: RequestsQuery, group: ServiceGroup[B]) -> Send:
        """How the requests of a service stand."""
        if query.offset >= 0:
            views = [group.view(Position(query.offset, query.index))]
        else:
            views = group.views()
        answer = Requests(
            id=query.id, generation=self._log.generation, settings=group.service, requests=views,
            counts={str(key): count for key, count in group.counts.items() if count},
            open=group.open_count, stored=len(group.outcomes), stored_bytes=group.outcomes.bytes,
            more=query.offset < 0 and len(views) < group.open_count + len(group.outcomes),
            accepted=group.measured.accepted, retried=group.failed,
            waiting=group.measured.waiting.read(), running=group.measured.running.read(),
            unfetched=group.outcomes.unfetched.read(),
        )  # fmt: skip
        return Send(asked.route, (REQUESTS + asked.reader, documents.encode(answer)))

    def check(self) -> None:
        """Assert the invariants."""
        assert self._unseen.keys() <= self._waiting.keys()  # noqa: S101
        for (service, position), waiting in self._waiting.items():
            assert waiting, "somebody waits"  # noqa: S101
            for each in waiting:
                assert position in each.wanted[service]  # noqa: S101
        waits = sum(map(len, self._waiting.values()))
        assert waits == self._wait_count <= WAITED_MAX  # noqa: S101
        askers = [*self._requesters.values(), *self._leaving]
        assert waits == sum(len(each) for one in askers for each in one.wanted.values())  # noqa: S101
        assert set(self._by_publisher.values()) <= set(self._requesters.values())  # noqa: S101

    def _requester(self, route: bytes, tag: bytes) -> Asker:
        found = self._requesters.get((route, tag))
        if found is None:
            if len(self._requesters) >= REQUESTERS_MAX:
                raise RefusedRequest("full", f"{REQUESTERS_MAX} requesters are here already")
            tags = self._routes.setdefault(route, [])
            if len(tags) >= TAGS_MAX:
                raise RefusedRequest("full", f"{TAGS_MAX} requesters share this connection already")
            found = self._requesters[route, tag] = Asker(route, tag)
            tags.append(tag)
        return found

    def _outcome_before(self, service: str, behind: int, position: Position) -> RequestEnd | None:
        """As `_outcome_at`, of a service that is not here; None: it may come, and know it."""
        deleted = self._deleted.get(service, 0)
        if position.offset >= DELAYED_FROM:
            if self._waits(position) is not None:
                return self._delayed_end(service, position)
            # It may have been published, and nobody have looked at it.
            return None if behind > deleted else RequestEnd(*position, RequestState.FORGOTTEN)
        if position.offset < deleted:
            return RequestEnd(*position, RequestState.FORGOTTEN)
        return None if position.offset < behind else RequestEnd(*position, RequestState.NEVER)

    def _waits(self, position: Position) -> int | None:
        """Where a delayed request waits that is known so; None: none does."""
        message = delayed_message(position)
        return None if message is None or self.keeper is None else self.keeper.request(message)

    def _delayed_end(self, service: str, position: Position) -> RequestEnd | None:
        """How a request has ended that was delayed when its service was deleted; None: it is no
        such one."""
        at = self._waits(position)
        if at is None or at >= self._deleted.get(service, 0):
            return None
        return RequestEnd(*position, RequestState.CANCELLED, text=DELETED)

    def _tell(self, requester: Asker, service: str, outcomes: list[RequestEnd]) -> None:
        if outcomes:
            requester.due.setdefault(service, []).extend(outcomes)
            self._told_bytes += sum(map(size_of, outcomes))
            self._due[requester] = None

    def _resolve(
        self, service: str, position: Position, outcome: RequestEnd, told: Asker | None = None
    ) -> None:
        """Whoever has asked for this one is told, but for who was told already."""
        self._unseen.pop((service, position), None)
        waiting = self._waiting.pop((service, position), ())
        self._wait_count -= len(waiting)
        for requester in waiting:
            requester.asked = True
            requester.wanted[service].discard(position)
            if not requester.wanted[service]:
                del requester.wanted[service]
            here = self._requesters.get((requester.route, requester.tag)) is requester
            if here and requester is not told:
                self._tell(requester, service, [outcome.some(position.at)])

    def _forget_gone(self) -> None:
        """Who has gone waits for nothing any more: some of it, as it may be much."""
        looks = LOOKS_MAX
        while self._leaving and looks:
            requester = self._leaving[-1]
            if not requester.wanted:
                self._leaving.pop()
                continue
            service, positions = next(iter(requester.wanted.items()))
            key = service, positions.pop()
            if not positions:
                del requester.wanted[service]
            waiting = self._waiting[key]
            del waiting[requester]
            self._wait_count -= 1
            looks -= 1
            if not waiting:
                del self._waiting[key]
                self._unseen.pop(key, None)


def _heed(group: ServiceGroup[B], want: Want, now: float, time_us: int) -> None:
    """What is not wanted any more."""
    group.outcomes.fetched_all(want.fetched, now, time_us)
    looks = DELAYED_LOOKS
    for positions, late in ((want.cancelled, False), (want.late, True)):
        for position in positions:
            looks -= position.offset >= DELAYED_FROM
            if looks < 0:
                text = f"one message cancels {DELAYED_LOOKS} delayed requests at most: send more"
                raise RefusedRequest("full", text)
            group.cancel(position, late=late)


def _outcome_at(group: ServiceGroup[B], position: Position) -> RequestEnd | None:
    """What has become of a request; None: it has not ended, or was not looked at yet."""
    stored = group.outcomes.get(position)
    if stored is not None:
        return stored
    state = group.state_of(position)
    over = state in ENDS or state in {
        RequestState.RETRIEVED, RequestState.EXPIRED, RequestState.FORGOTTEN, RequestState.NEVER,
    }  # fmt: skip
    return RequestEnd(*position, state) if state is not None and over else None


def _portions(outcomes: list[RequestEnd]) -> Iterable[list[RequestEnd]]:
    """In frames that are not too large."""
    some: list[RequestEnd] = []
    size = 0
    for outcome in outcomes:
        some.append(outcome)
        size += size_of(outcome)
        if size >= FRAME_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
