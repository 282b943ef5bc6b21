"""What `roq top` shows of a queue: statistics documents in, rows out; no socket, clock or colour.

    board = Board("orders")
    board.take(document, when)          # each document of the stream, and when it came
    view = board.view(now)              # rows, the busiest first

Times are seconds on any one clock; only differences mean anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec

from roq.model import exchange_name
from roq.protocol.kpi import (
    ExchangeKpi,
    MoveKpi,
    NumericDocument,
    PublisherRate,
    QueueKpi,
    ScaleKpi,
    SubscriberKpi,
)

STALE_SECONDS: Final = 5.0
"""What was not heard of for so long is gone; two periods are two seconds at most each."""
MOVING_SECONDS: Final = 15.0
"""A move takes less; if nobody says how it ended, the monitor that knew is gone."""
EVENTS_MAX: Final = 200
SUBSCRIBERS_MAX: Final = 10_000


class ExchangeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange; rates are per second."""

    exchange: str
    number: int
    host: str
    load: float
    """Payload bytes that come in, as a share of the limit: 1.0 is all that it may take."""
    messages_in: float
    bytes_in: float
    messages_out: float
    bytes_out: float
    publishers: int
    subscribers: int
    acks_pending: int
    lag_ms: float
    cpu_percent: float
    memory_bytes: int
    ring_bytes: int
    leaving: bool
    holding: bool = False
    """Its publishers wait for a slow subscriber."""
    behind: int = 0
    """Subscribers that it does not wait for any more."""
    requests: int | None = None
    """To services, that have not ended; None: there never was one."""


class PublisherRow(msgspec.Struct, frozen=True, kw_only=True):
    """One of the busiest publishers, over all exchanges that it publishes at."""

    publisher: str
    exchanges: list[str]
    """More than one: it is striped."""
    messages: float
    bytes: float
    moving: bool
    name: str = ""
    """As it calls itself; empty: it has not told."""


class SubscriberRow(msgspec.Struct, frozen=True, kw_only=True):
    """One subscriber, as it tells about itself."""

    subscriber: str
    messages: float
    latency_ms: float
    lost: int


class MoveEvent(msgspec.Struct, frozen=True, kw_only=True, tag="move"):
    """A publisher that was, or is being, moved."""

    at: float
    """When it began."""
    publisher: str
    sources: list[str]
    targets: list[str]
    state: str
    """See `MoveKpi.state`."""
    reason: str
    bytes: float
    """What it publishes, per second."""
    pause_ms: float
    name: str = ""
    """As the publisher calls itself; empty: it has not told."""


class ScaleEvent(msgspec.Struct, frozen=True, kw_only=True, tag="scale"):
    """An exchange that was, or is being, added or removed."""

    at: float
    """When it began."""
    direction: str
    """`out` or `in`."""
    state: str
    """See `ScaleKpi.state`."""
    exchange: str
    """Empty as long as nobody knows which."""
    host: str
    reason: str
    seconds: float


Event: TypeAlias = MoveEvent | ScaleEvent


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one moment; rates are per second."""

    queue: str
    limit: float
    """Payload bytes per second that one exchange may take; 0: not known yet."""
    publisher_count: int
    subscriber_count: int
    waiting: int
    """Publishers that wait for an exchange."""
    messages_in: float
    bytes_in: float
    messages_out: float
    bytes_out: float
    latency_ms: float
    """Mean over the subscribers, by the messages that they got."""
    lost: int
    """As the subscribers count."""
    moves: int
    """Publishers that were moved since the board is there."""
    exchanges: list[ExchangeRow]
    publishers: list[PublisherRow]
    subscribers: list[SubscriberRow]
    events: list[Event]
    """The last ones, in the order in which they began."""

    @property
    def load(self) -> float:
        """Of the busiest exchange."""
        return max((row.load for row in self.exchanges), default=0.0)


class Board:
    """What is known of one queue."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.rounds = 0
        """Documents about the whole queue so far: one each KPI period."""
        self.moves = 0
        self._queue_id = b""
        self._total: tuple[float, QueueKpi] | None = None
        self._exchanges: dict[int, tuple[float, ExchangeKpi]] = {}
        self._subscribers: dict[str, tuple[float, SubscriberKpi]] = {}
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)

    def take(self, document: NumericDocument, when: float) -> None:
        """Take one document of the stream in."""
        if document.queue_id != self._queue_id:
            self._forget(document.queue_id)
        match document:
            case ExchangeKpi():
                self._exchanges[document.number] = (when, document)
            case QueueKpi():
                self._total = (when, document)
                self.rounds += 1
            case SubscriberKpi():
                if len(self._subscribers) < SUBSCRIBERS_MAX:
                    self._subscribers[document.subscriber] = (when, document)
            case MoveKpi():
                self._moved(document, when)
            case ScaleKpi():
                self._scaled(document, when)

    def view(self, now: float) -> QueueView:
        """Everything as it is now; what was not heard of for a while is left out."""
        exchanges = _fresh(self._exchanges, now)
        subscribers = _fresh(self._subscribers, now)
        total = self._fresh_total(now)
        limit = 0.0 if total is None else total.limit_bytes_per_second
        heard = sum(each.received_per_second for each in subscribers)
        # Who is striped counts once: such a one is among the busiest of each of its exchanges.
        named = [rate.publisher for each in exchanges for rate in each.top]
        repeated = len(named) - len(set(named))
        return QueueView(
            queue=self.queue,
            limit=limit,
            publisher_count=sum(each.publishers for each in exchanges) - repeated,
            subscriber_count=0 if total is None else total.subscribers,
            waiting=0 if total is None else total.waiting,
            messages_in=sum(each.messages_in_per_second for each in exchanges),
            bytes_in=sum(each.bytes_in_per_second for each in exchanges),
            messages_out=sum(each.messages_out_per_second for each in exchanges),
            bytes_out=sum(each.bytes_out_per_second for each in exchanges),
            latency_ms=(
                sum(each.latency_ms * each.received_per_second for each in subscribers) / heard
                if heard
                else 0.0
            ),
            lost=sum(each.lost for each in subscribers),
            moves=self.moves,
            exchanges=[_exchange_row(each, limit) for each in exchanges],
            publishers=self._publisher_rows(exchanges, now),
            subscribers=sorted(map(_subscriber_row, subscribers), key=lambda row: -row.messages),
            events=sorted(self._events, key=lambda event: event.at),
        )

    def complete(self) -> bool:
        """Whether every exchange of the queue has been heard of."""
        return self._total is not None and len(self._exchanges) >= self._total[1].exchanges

    def _fresh_total(self, now: float) -> QueueKpi | None:
        if self._total is None or now - self._total[0] > STALE_SECONDS:
            return None
        return self._total[1]

    def _forget(self, queue_id: bytes) -> None:
        """The queue was made anew under the same name: its exchanges count from 1 again."""
        self._queue_id = queue_id
        self._total = None
        self._exchanges.clear()
        self._subscribers.clear()

    # --- publishers -------------------------------------------------------------------------------

    def _publisher_rows(self, exchanges: Iterable[ExchangeKpi], now: float) -> list[PublisherRow]:
        rates: dict[str, list[tuple[str, PublisherRate]]] = {}
        for exchange in exchanges:
            for rate in exchange.top:
                rates.setdefault(rate.publisher, []).append((exchange.exchange, rate))
        moving = {
            event.publisher
            for event in self._events
            if isinstance(event, MoveEvent)
            and event.state == "started"
            and now - event.at < MOVING_SECONDS
        }
        rows = [_publisher_row(name, at, name in moving) for name, at in rates.items()]
        return sorted(rows, key=lambda row: (-row.bytes, row.publisher))

    # --- moves and scale operations ---------------------------------------------------------------

    def _moved(self, document: MoveKpi, when: float) -> None:
        self.moves += document.state == "accepted"

        def same(event: Event) -> bool:
            return (
                isinstance(event, MoveEvent)
                and event.publisher == document.publisher
                and event.state == "started"
            )

        began = self._take_back(same) if document.state != "started" else None
        self._events.append(
            MoveEvent(
                at=when if began is None else began.at,
                publisher=document.publisher,
                sources=_names(document.sources),
                targets=_names(document.targets),
                state=document.state,
                reason=document.reason or ("" if began is None else began.reason),
                bytes=document.bytes_per_second,
                pause_ms=document.pause_ms,
                name=self._name_of(document.publisher),
            )
        )

    def _name_of(self, publisher: str) -> str:
        for _, exchange in self._exchanges.values():
            for rate in exchange.top:
                if rate.publisher == publisher and rate.name:
                    return rate.name
        return ""

    def _scaled(self, document: ScaleKpi, when: float) -> None:
        def same(event: Event) -> bool:
            return (
                isinstance(event, ScaleEvent)
                and event.direction == document.direction
                and event.state == "started"
            )

        # Several exchanges may be added at once: each beginning is one more.
        began = self._take_back(same) if document.state != "started" else None
        self._events.append(
            ScaleEvent(
                at=when if began is None else began.at,
                direction=document.direction,
                state=document.state,
                exchange=exchange_name(document.number) if document.number else "",
                host=document.host,
                reason=document.reason or ("" if began is None else began.reason),
                seconds=document.seconds,
            )
        )

    def _take_back(self, same: Callable[[Event], bool]) -> Event | None:
        """Remove the event that this one concludes, and give it."""
        for event in reversed(self._events):
            if same(event):
                self._events.remove(event)
                return event
        return None


T = TypeVar("T")
K = TypeVar("K")


def _fresh(known: dict[K, tuple[float, T]], now: float) -> list[T]:
    """Forget what was not heard of for a while; the others, by key."""
    for key in [key for key, (when, _) in known.items() if now - when > STALE_SECONDS]:
        del known[key]
    return [known[key][1] for key in sorted(known)]  # type: ignore[type-var]


def _names(numbers: Sequence[int]) -> list[str]:
    return [exchange_name(number) for number in numbers]


def _exchange_row(document: ExchangeKpi, limit: float) -> ExchangeRow:
    return ExchangeRow(
        exchange=document.exchange,
        number=document.number,
        host=document.host,
        load=document.bytes_in_per_second / limit if limit > 0 else 0.0,
        messages_in=document.messages_in_per_second,
        bytes_in=document.bytes_in_per_second,
        messages_out=document.messages_out_per_second,
        bytes_out=document.bytes_out_per_second,
        publishers=document.publishers,
        subscribers=document.subscribers,
        acks_pending=document.acks_pending,
        lag_ms=document.lag_ms,
        cpu_percent=document.cpu_percent,
        memory_bytes=document.memory_bytes,
        ring_bytes=document.ring_bytes,
        leaving=document.leaving,
        requests=document.requests_open if document.requests_accepted else None,
        holding=bool(document.holding),
        behind=document.behind,
    )


def _publisher_row(name: str, at: list[tuple[str, PublisherRate]], moving: bool) -> PublisherRow:
    # An exchange that it has just left still knows it, but gets nothing from it.
    busy = [exchange for exchange, rate in at if rate.bytes_per_second > 0]
    return PublisherRow(
        publisher=name,
        exchanges=busy or [exchange for exchange, _ in at],
        messages=sum(rate.messages_per_second for _, rate in at),
        bytes=sum(rate.bytes_per_second for _, rate in at),
        moving=moving,
        name=next((rate.name for _, rate in at if rate.name), ""),
    )


def _subscriber_row(document: SubscriberKpi) -> SubscriberRow:
    return SubscriberRow(
        subscriber=document.subscriber,
        messages=document.received_per_second,
        latency_ms=document.latency_ms,
        lost=document.lost,
    )
