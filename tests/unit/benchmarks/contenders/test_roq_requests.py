"""RoQ's requests: as many under way as there are payloads, every response there and counted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from roq.benchmarks.case import Run
from roq.benchmarks.clients import payloads_of
from roq.benchmarks.contenders import roq_requests as module
from roq.benchmarks.contenders.roq_requests import (
    BATCHES,
    ECHO,
    ECHO_ALL,
    LARGEST,
    publisher,
    subscriber,
)

RUN = Run(topic="bench.1.", size=8, batch=3, count=20)
PACED = Run(topic="bench.1.", size=8, batch=1, count=4, rate=1_000)
OPTIONS = {"queue": "q", "cluster": "h:1"}


class PaperCluster:
    """Requester, service and cluster in one: answers what it is asked.

    Attributes:
        asked: what was requested, one by one or together.
        most: how many were under way at most.
    """

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.under_way = self.most = 0
        self.calls: list[Any] = []
        self.handlers: dict[str, tuple[Any, dict[str, int]]] = {}
        self.short = 0

    def requester(self, _queue: str) -> PaperCluster:
        return self

    def service(self, name: str, *, queue: str, threads: int) -> PaperCluster:
        self.calls.append((name, queue, threads))
        return self

    def handler(self, endpoint: Any, **more: int) -> Callable[[Any], None]:
        return lambda handle: self.handlers.update({endpoint.name: (handle, more)})

    def start(self) -> None:
        self.calls.append("start")

    def _pending(self, endpoint: Any, value: Any, answer: Any) -> Any:
        self.asked.append((endpoint, value))
        self.under_way += 1
        self.most = max(self.most, self.under_way)

        def result(_timeout: float) -> Any:
            self.under_way -= 1
            self.calls.append("result")
            return answer

        return SimpleNamespace(
            result=result, accepted=SimpleNamespace(wait=lambda _: self.calls.append("accepted"))
        )

    def request(self, endpoint: Any, value: bytes) -> Any:
        return self._pending(endpoint, value, value[self.short :])

    def request_many(self, endpoint: Any, values: list[bytes]) -> Any:
        return self._pending(endpoint, values, [each[self.short :] for each in values])

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PaperCluster:
    paper = PaperCluster()
    monkeypatch.setattr(module.roq, "connect", lambda *_, **__: paper)
    return paper


def test_as_many_are_under_way_as_there_are_payloads(cluster: PaperCluster) -> None:
    asks = publisher("window", OPTIONS)
    asks.open(RUN)
    assert cluster.asked == [(ECHO, bytes(8))]
    asks.publish(RUN, payloads_of(RUN))
    assert (len(cluster.asked) - 1, cluster.most, cluster.under_way) == (RUN.count, 3, 0)
    asks.close()
    assert cluster.calls[-1] == "close"


def test_many_are_asked_together_and_a_few_calls_are_under_way(cluster: PaperCluster) -> None:
    asks = publisher("many", OPTIONS)
    asks.open(RUN)
    asks.publish(RUN, payloads_of(RUN))
    calls = cluster.asked[1:]
    assert {endpoint for endpoint, _ in calls} == {ECHO_ALL}
    assert [len(values) for _, values in calls] == [3] * 6 + [2]
    assert (cluster.most, cluster.under_way) == (BATCHES, 0)


@pytest.mark.parametrize("style", ["window", "many"])
def test_a_response_of_another_size_is_no_measurement(style: str, cluster: PaperCluster) -> None:
    asks = publisher(style, OPTIONS)
    asks.open(RUN)
    cluster.short = 1
    with pytest.raises(AssertionError):
        asks.publish(RUN, payloads_of(RUN))
    with pytest.raises(AssertionError):
        asks.open(RUN)


@pytest.mark.parametrize(
    ("style", "steps"), [("accepted", ["accepted", "result"]), ("response", ["result"])]
)
def test_at_a_rate_one_is_asked_after_the_other_and_what_the_style_says_is_timed(
    style: str, steps: list[str], cluster: PaperCluster
) -> None:
    asks: Any = publisher(style, OPTIONS)
    asks.open(PACED)
    cluster.calls.clear()
    asks.pace(PACED)
    assert cluster.calls == steps * PACED.count
    assert (len(asks.ack_us), cluster.most) == (PACED.count, 1)


def test_the_service_answers_what_it_is_asked_and_begins_once(cluster: PaperCluster) -> None:
    answers = subscriber("window", OPTIONS)
    answers.open(RUN)
    answers.open(RUN)
    assert cluster.calls == [("bench", "q", module.THREADS), "start"]
    one, _ = cluster.handlers["bench.echo"]
    every, more = cluster.handlers["bench.echo_all"]
    assert (one(b"a", None), every([b"a", b"b"], None)) == (b"a", [b"a", b"b"])
    assert more == {"batch": LARGEST}
