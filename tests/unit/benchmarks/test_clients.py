"""How those ask that wait for each response apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roq.benchmarks.case import Run
from roq.benchmarks.clients import Asking

RUN = Run(topic="bench.", size=8, batch=3, count=10, rate=1_000_000)


class Service:
    """Answers with what it was asked; knows how many requests were under way at most."""

    def __init__(self) -> None:
        self.under_way = self.most = self.total = 0

    def ask(self, payload: bytes) -> Callable[[], bytes]:
        self.under_way += 1
        self.total += 1
        self.most = max(self.most, self.under_way)

        def wait() -> bytes:
            self.under_way -= 1
            return payload

        return wait


def test_as_many_requests_are_under_way_as_there_are_payloads() -> None:
    service = Service()
    Asking(service.ask).publish(RUN, [bytes(8)] * 3)
    assert (service.most, service.total, service.under_way) == (3, 10, 0)


def test_a_response_of_another_size_is_no_measurement() -> None:
    with pytest.raises(AssertionError):
        Asking(lambda _: lambda: b"short").publish(RUN, [bytes(8)])
    with pytest.raises(AssertionError):
        Asking(lambda _: lambda: b"short").open(RUN)


def test_at_a_rate_there_is_one_at_a_time() -> None:
    service = Service()
    asking = Asking(service.ask)
    asking.pace(RUN)
    assert (service.most, len(asking.ack_us)) == (1, 10)
