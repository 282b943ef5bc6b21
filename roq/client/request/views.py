"""How services and their requests stand, asked of every exchange of a queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Final

import msgspec

from roq.client.consume.groups import GroupMember, GroupSummary, no_service, read
from roq.client.io.engine import Engine
from roq.client.io.exchange_questions import ask_all, told
from roq.client.request.context import RequestId
from roq.client.request.pending import EXCHANGE_GONE
from roq.errors import GroupNotFound, ResponseLost, Unavailable
from roq.model import LogId
from roq.protocol.public_answers import QueueDescription
from roq.protocol.requesting import (
    ENDS,
    REQUESTS,
    Durations,
    Position,
    Requests,
    RequestsQuery,
    RequestState,
    RequestView,
    ServiceSettings,
)

_REQUEST: Final = 1
"""Each question has a connection's tag of its own, so its number tells nothing."""


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request that is open, or whose outcome is kept; without its value."""

    id: str
    state: str
    """As `RequestState` names it."""
    text: str
    """Why it has ended so; empty: there is nothing to say."""
    instance: str
    """Who has it, or has ended it; empty: nobody."""
    attempts: int
    age_seconds: float
    """Since it was accepted, or since it has ended."""
    bytes: int
    """Of the stored response."""


class RequestDescription(RequestRow, frozen=True, kw_only=True):
    """One request, as its exchange knows it; its outcome stays there.

    `state` is one of `RequestState`, or `lost`: its exchange is gone, with all that it knew. Only
    `retrieved`, `expired`, `forgotten` and `never` are known of requests long over or unknown.
    """

    outcome: str
    """`open`: it has not ended. `kept`: it has, and whoever asks for the response is told so.
    `gone`: there is nothing to fetch, and `state` says why."""
    since: float | None
    """When it was accepted, or has ended, in seconds since 1970; None: that is not known."""


_GONE: Final = frozenset(
    {
        RequestState.RETRIEVED, RequestState.EXPIRED, RequestState.FORGOTTEN, RequestState.NEVER,
    }
)  # fmt: skip


class ServiceView(msgspec.Struct, frozen=True, kw_only=True):
    """A service over all exchanges that have answered."""

    name: str
    queue: str
    settings: ServiceSettings
    open: int
    """Requests that have not ended."""
    stored: int
    """Outcomes that nobody has fetched yet."""
    stored_bytes: int
    oldest_seconds: float | None
    """Age of the oldest request that has not ended; None: there is none."""
    counts: dict[str, int]
    """By how requests have ended, since each exchange's process has started."""
    accepted: int = 0
    retried: int = 0
    """Given back by their instances, to be run again."""
    waiting: Durations = Durations()
    """Until a request was handed out, of each attempt since it was accepted."""
    running: Durations = Durations()
    """Until it was answered."""
    unfetched: Durations = Durations()
    """Until its outcome was fetched."""
    requests: list[RequestRow]
    """Those that are open or stored, the oldest first; at most 1,000 of each exchange (half of them
    open and half stored, if there are so many), and of each text 1,000 characters."""
    more: bool = False
    """There are more than these."""
    instances: list[GroupMember]
    """Who answers them."""
    stalled: list[str]
    """Where nothing is handed out although there is something to do, and why."""
    missing: dict[str, str]
    """Exchanges that have not answered, and why; empty: the answer is complete."""


def describe_service(
    engine: Engine,
    queue: QueueDescription,
    group: GroupSummary,
    seconds: float,
) -> ServiceView:
    """How a service stands.

    Args:
        group: what is known of it as a consumer group, with its members.
        seconds: that exchanges have to answer.

    Raises:
        GroupNotFound: no exchange has it.
        Unavailable: it is not known whether any exchange has it.
        QueueStopped: the queue does not run.
    """
    name = group.name
    query = RequestsQuery(id=_REQUEST, queue=bytes.fromhex(queue.queue_id), service=name)
    found, missing = read(ask_all(engine, queue, REQUESTS, query, seconds), REQUESTS, Requests)
    if not found:
        if missing:
            raise Unavailable(f"service {name} of queue {queue.name}: {told(missing)}")
        raise GroupNotFound(no_service(queue.name, name))
    numbers = {each.name: each.number for each in queue.exchanges}
    return summed(queue.name, group, found, numbers, missing)


def describe_request(
    engine: Engine, queue: QueueDescription, service: str, request: RequestId, seconds: float,
    now: float,
) -> RequestDescription:  # fmt: skip
    """How one request stands, by its exchange alone.

    Args:
        seconds: that its exchange has to answer.
        now: seconds since 1970.

    Raises:
        GroupNotFound: its exchange does not have the service.
        Unavailable: its exchange does not answer.
        QueueStopped: the queue does not run.
    """
    name, (number, generation), (offset, index) = request
    there = [each for each in queue.exchanges if each.number == number]
    query = RequestsQuery(
        id=_REQUEST, queue=bytes.fromhex(queue.queue_id), service=service, offset=offset,
        index=index,
    )  # fmt: skip
    found: dict[str, Requests] = {}
    if there:
        asked = msgspec.structs.replace(queue, exchanges=there)
        answers = ask_all(engine, asked, REQUESTS, query, seconds)
        found, missing = read(answers, REQUESTS, Requests)
        if missing:
            raise Unavailable(f"request {request}: {told(missing)}")
        if not found:
            raise GroupNotFound(no_service(name, service))
    views = [
        view for each in found.values() if each.generation == generation for view in each.requests
    ]
    if not views:  # the exchange that has its number now is another one
        return RequestDescription(
            id=str(request), state=ResponseLost.state, text=EXCHANGE_GONE, instance="", attempts=0,
            age_seconds=0.0, bytes=0, outcome="gone", since=None,
        )  # fmt: skip
    row = _row(name, request.log, views[0])
    ended = "kept" if views[0].state in ENDS else "open"
    return RequestDescription(
        **msgspec.structs.asdict(row), outcome="gone" if views[0].state in _GONE else ended,
        since=now - row.age_seconds if row.age_seconds else None,
    )  # fmt: skip


def summed(
    queue: str,
    group: GroupSummary,
    found: Mapping[str, Requests],
    numbers: Mapping[str, int],
    missing: Mapping[str, str],
) -> ServiceView:
    """One view of what exchanges have answered.

    Args:
        queue: its name.
        group: as of `describe_service`.
        found: by name of the exchange.
        numbers: of these exchanges.
    """
    counts: dict[str, int] = {}
    for each in found.values():
        for ending, number in each.counts.items():
            counts[ending] = counts.get(ending, 0) + number
    rows = [
        _row(queue, LogId(numbers[exchange], each.generation), request)
        for exchange, each in found.items()
        for request in each.requests
    ]
    return ServiceView(
        name=group.name, queue=queue, settings=next(iter(found.values())).settings,
        open=sum(each.open for each in found.values()),
        stored=sum(each.stored for each in found.values()),
        stored_bytes=sum(each.stored_bytes for each in found.values()),
        oldest_seconds=group.oldest_seconds, counts=counts,
        accepted=sum(each.accepted for each in found.values()),
        retried=sum(each.retried for each in found.values()),
        waiting=_together(each.waiting for each in found.values()),
        running=_together(each.running for each in found.values()),
        unfetched=_together(each.unfetched for each in found.values()),
        requests=sorted(rows, key=lambda row: -row.age_seconds),
        more=any(each.more for each in found.values()),
        instances=group.who, stalled=group.stalled, missing=dict(missing),
    )  # fmt: skip


def _row(queue: str, log: LogId, request: RequestView) -> RequestRow:
    return RequestRow(
        id=str(RequestId(queue, log, Position(request.offset, request.index))),
        state=str(request.state), text=request.text, instance=request.instance,
        attempts=request.attempts, age_seconds=request.age_seconds, bytes=request.bytes,
    )  # fmt: skip


def _together(some: Iterable[Durations]) -> Durations:
    """All of them."""
    every = list(some)
    counts = [sum(counts) for counts in zip_longest(*(each.counts for each in every), fillvalue=0)]
    return Durations(counts, sum(each.seconds for each in every))
