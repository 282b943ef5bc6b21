"""The documents of the statistics stream, made from what the monitor knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from roq.model import exchange_name
from roq.monitor.exchanges import Exchange, Exchanges
from roq.monitor.sessions import Session, Sessions
from roq.monitor.window import PublisherRates
from roq.protocol import kpi
from roq.protocol.reports import ExchangeLoad

BYTES_PER_MB: Final = 1024 * 1024
_AS_TOLD: Final = frozenset(kpi.ExchangeKpi.__struct_fields__) & frozenset(
    ExchangeLoad.__struct_fields__
)
"""What exchanges tell, and the stream tells on as it is."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the machine knows of itself.

    Attributes:
        version: of the topology.
        waiting: publishers that wait for an exchange.
        moving: publishers that are being moved.
        policy: name of the policy that is wanted.
        policy_errors: rounds that it has spoilt.
    """

    version: int
    waiting: int
    moving: int = 0
    policy: str = ""
    policy_errors: int = 0


class Kpis:
    """What was published last, so that old consoles get the growth within each period.

    Args:
        queue: name of the queue.
        queue_id: of this life of the queue.
        monitor_epoch: of this process.
        limit: of one exchange, payload bytes per minute; may be changed.
    """

    def __init__(self, queue: str, queue_id: bytes, monitor_epoch: int, limit: float) -> None:
        self._queue = queue
        self._queue_id = queue_id
        self._monitor_epoch = monitor_epoch
        self.limit = limit
        self._published: dict[tuple[int, int], ExchangeLoad] = {}

    def messages(
        self, exchanges: Exchanges, sessions: Sessions, standing: Standing, now: float
    ) -> list[tuple[bytes, ...]]:
        """All messages of one KPI period, in the order in which they are sent."""
        growth = {each.key: self._growth(each) for each in exchanges}
        messages = []
        for exchange in exchanges:
            messages.append(self._old_exchange(exchange, *growth[exchange.key], now))
            leaving = exchange.number in exchanges.leaving
            document = self._exchange(exchange, sessions, leaving, now)
            messages.append(kpi.numeric_frames(document))
        messages.append(self._old_queue(exchanges, sum(size for _, size in growth.values())))
        messages.append(kpi.numeric_frames(self._summed(exchanges, sessions, standing)))
        for session in sessions.subscribers():
            if session.fresh:
                messages.append(self._old_subscriber(session, now))
                messages.append(kpi.numeric_frames(self._subscriber(session, now)))
                session.reported, session.fresh = (session.received, now), False
        self._published = {each.key: each.load for each in exchanges}
        return [tuple(frames) for frames in messages]

    def pass_over(self, exchanges: Exchanges, sessions: Sessions, now: float) -> None:
        """Nobody listens in this period; the growth within the next one is counted from here."""
        self._published = {each.key: each.load for each in exchanges}
        for session in sessions.subscribers():
            if session.fresh:
                session.reported, session.fresh = (session.received, now), False

    def _growth(self, exchange: Exchange) -> tuple[int, int]:
        """Messages and bytes since the last period; another process counts from 0."""
        before = self._published.get(exchange.key, ExchangeLoad())
        messages = exchange.load.messages_in - before.messages_in
        size = exchange.load.bytes_in - before.bytes_in
        return max(0, messages), max(0, size)

    def _old_exchange(
        self, exchange: Exchange, messages: int, size: int, now: float
    ) -> list[bytes]:
        load = exchange.load
        return kpi.old_exchange_frames(
            kpi.OldExchange(X_ID=exchange.info.name, QName=self._queue),
            kpi.OldCounts(
                Minute=_minute(exchange.since, now),
                TotalProcessed=kpi.text(load.messages_in),
                Processed=kpi.text(messages),
                TotalThroughput=kpi.text(load.bytes_in),
                Throughput=kpi.text(size),
                Producers=kpi.text(load.publishers),
            ),
            kpi.OldUsage(
                CPU=kpi.text(float(load.cpu_percent)),
                MEMORY=kpi.text(load.memory_bytes / BYTES_PER_MB),
            ),
        )

    def _old_queue(self, exchanges: Exchanges, size: int) -> list[bytes]:
        return kpi.old_frames(
            kpi.OldQueue(
                QName=self._queue,
                XChanges=kpi.text(len(exchanges)),
                Producers=kpi.text(sum(each.load.publishers for each in exchanges)),
                Throughput=kpi.text(size),
            )
        )

    def _old_subscriber(self, session: Session, now: float) -> list[bytes]:
        received = max(0, session.received - session.reported[0])
        return kpi.old_frames(
            kpi.OldSubscriber(
                QName=self._queue,
                Minute=_minute(session.since, now),
                TotalReceived=kpi.text(session.received),
                Received=kpi.text(received),
                SubsriberID=session.client.hex(),
                MeanLat=kpi.text(float(session.latency_ms)),
            )
        )

    def _exchange(
        self, exchange: Exchange, sessions: Sessions, leaving: bool, now: float
    ) -> kpi.ExchangeKpi:
        info, load, rates = exchange.info, exchange.load, exchange.window.mean()
        top, last = exchange.window.top(), exchange.window.last()
        return kpi.ExchangeKpi(
            queue=self._queue,
            queue_id=self._queue_id,
            exchange=exchange_name(info.number),
            number=info.number,
            epoch=info.epoch,
            host=info.host,
            uptime_seconds=now - exchange.since,
            messages_in_per_second=rates.messages_in,
            bytes_in_per_second=rates.bytes_in,
            messages_out_per_second=rates.messages_out,
            bytes_out_per_second=rates.bytes_out,
            leaving=leaving,
            top=[_publisher(each, sessions) for each in top],
            others=max(0, load.publishers - len(top)),
            others_messages_per_second=_rest(last.messages_in, (each.messages for each in top)),
            others_bytes_per_second=_rest(last.bytes_in, (each.bytes for each in top)),
            **{name: getattr(load, name) for name in _AS_TOLD},
        )

    def _summed(self, exchanges: Exchanges, sessions: Sessions, standing: Standing) -> kpi.QueueKpi:
        rates = [each.window.mean() for each in exchanges]
        return kpi.QueueKpi(
            queue=self._queue,
            queue_id=self._queue_id,
            monitor_epoch=self._monitor_epoch,
            version=standing.version,
            exchanges=len(exchanges),
            publishers=sum(each.load.publishers for each in exchanges),
            subscribers=len(sessions.subscribers()),
            waiting=standing.waiting,
            moving=standing.moving,
            policy=standing.policy,
            policy_errors=standing.policy_errors,
            limit_bytes_per_second=self.limit / 60,
            messages_in_per_second=sum(each.messages_in for each in rates),
            bytes_in_per_second=sum(each.bytes_in for each in rates),
            messages_out_per_second=sum(each.messages_out for each in rates),
            bytes_out_per_second=sum(each.bytes_out for each in rates),
        )

    def _subscriber(self, session: Session, now: float) -> kpi.SubscriberKpi:
        received, when = session.reported
        seconds = now - when
        grown = max(0, session.received - received)
        return kpi.SubscriberKpi(
            queue=self._queue,
            queue_id=self._queue_id,
            subscriber=session.client.hex(),
            received=session.received,
            received_per_second=grown / seconds if seconds > 0 else 0.0,
            latency_ms=session.latency_ms,
            lost=session.lost,
        )


def _minute(since: float, now: float) -> str:
    return kpi.text(int((now - since) // 60))


def _rest(total: float, parts: Iterable[float]) -> float:
    return max(0.0, total - sum(parts))


def _publisher(rates: PublisherRates, sessions: Sessions) -> kpi.PublisherRate:
    session = sessions.find(rates.load.publisher)
    return kpi.PublisherRate(
        publisher=rates.load.publisher.hex(),
        messages=rates.load.messages,
        bytes=rates.load.bytes,
        messages_per_second=rates.messages,
        bytes_per_second=rates.bytes,
        name="" if session is None else session.name,
    )
