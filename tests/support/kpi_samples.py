"""Documents of the statistics stream with what a test cares about, the rest 0."""

from __future__ import annotations

import msgspec

from roq.client.admin.statistics import Sample
from roq.protocol.kpi import ExchangeKpi, MoveKpi, PublisherRate, ScaleKpi, SubscriberKpi

QUEUE_ID = b"q" * 16


def exchange(when: float, number: int, total: int = 0, **fields: object) -> Sample:
    """An exchange that has taken in `total` bytes until now."""
    zeros = {
        field.name: 0
        for field in msgspec.structs.fields(ExchangeKpi)
        if getattr(field.type, "__origin__", field.type) in {int, float} and field.required
    }
    given: dict[str, object] = {
        "queue": "load",
        "queue_id": QUEUE_ID,
        "exchange": f"x{number}",
        "number": number,
        "host": "127.0.0.1",
        "bytes_in": total,
        "epoch": 1,
    }
    return Sample(when, ExchangeKpi(**{**zeros, **given, **fields}))  # type: ignore[arg-type]


def rate(publisher: str, size: float) -> PublisherRate:
    """A publisher that brings so many bytes a second."""
    return PublisherRate(
        publisher=publisher, messages=0, bytes=0, messages_per_second=0.0, bytes_per_second=size
    )


def move(when: float, publisher: str, state: str, epoch: int = 1, pause: float = 0.0) -> Sample:
    """A publisher that goes from x1 to x2."""
    return Sample(
        when,
        MoveKpi(
            queue="load",
            queue_id=QUEUE_ID,
            publisher=publisher,
            sources=[1],
            targets=[2],
            epoch=epoch,
            state=state,
            reason="",
            pause_ms=pause,
        ),
    )


def scale(when: float, direction: str, state: str, number: int = 0, seconds: float = 0.0) -> Sample:
    """An exchange that comes or goes."""
    return Sample(
        when,
        ScaleKpi(
            queue="load",
            queue_id=QUEUE_ID,
            direction=direction,
            state=state,
            reason="",
            number=number,
            seconds=seconds,
        ),
    )


def subscriber(when: float, name: str, latency: float, received: float = 1.0) -> Sample:
    """A subscriber."""
    return Sample(
        when,
        SubscriberKpi(
            queue="load",
            queue_id=QUEUE_ID,
            subscriber=name,
            received=1,
            received_per_second=received,
            latency_ms=latency,
            lost=0,
        ),
    )
