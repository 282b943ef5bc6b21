"""RoQ's requests through the public API: one requester, one service.

window     as many requests under way as a batch holds, each response waited for in turn
many       the same, and three times more, by `request_many`, to a batch handler
accepted   one after the other; the time until each is accepted
response   one after the other; the time until each response is there
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import Final

import roq
from roq.benchmarks.case import Run
from roq.benchmarks.clients import Answering, BenchPublisher, BenchSubscriber, asked, paced
from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS

MODULE: Final = "roq_requests"
ECHO: Final = roq.endpoint("bench.echo", request=bytes, response=bytes, idempotent=True)
ECHO_ALL: Final = roq.endpoint("bench.echo_all", request=bytes, response=bytes, idempotent=True)
BATCHES: Final = 4
"""Calls of `request_many` that are under way."""
LARGEST: Final = 256
"""Requests that one call of the batch handler has at most."""
THREADS: Final = 16


class RoqRequester:
    """The asking side.

    Attributes:
        ack_us: what the style measures, of each request of a light load.
    """

    def __init__(self, style: str, options: dict[str, str]) -> None:
        self._accepts = style == "accepted"
        self._many = style == "many"
        self._queue = options["queue"]
        self._cluster = roq.connect(options["cluster"], timeout=OPEN_SECONDS)
        self._requester: roq.Requester | None = None
        self.ack_us: list[float] = []

    def open(self, run: Run) -> None:
        """A requester that has had a response."""
        self._requester = self._cluster.requester(self._queue)
        answer = self._requester.request(ECHO, bytes(run.size)).result(OPEN_SECONDS)
        assert len(answer) == run.size  # noqa: S101 - a broken benchmark must not go unseen

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Keep as many requests under way as there are payloads."""
        if self._many:
            self._publish_many(run, payloads)
            return
        request = self._asker().request
        asked(run, payloads, lambda each: partial(request(ECHO, each).result, RUN_SECONDS))

    def _publish_many(self, run: Run, payloads: list[bytes]) -> None:
        requester, under_way, size = self._asker(), deque[roq.PendingMany[bytes]](), 0
        for first in range(0, run.count, len(payloads)):
            if len(under_way) == BATCHES:
                size += sum(map(len, under_way.popleft().result(RUN_SECONDS)))
            some = payloads[: run.count - first]
            under_way.append(requester.request_many(ECHO_ALL, some))
        for many in under_way:
            size += sum(map(len, many.result(RUN_SECONDS)))
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    def pace(self, run: Run) -> None:
        """Ask at a rate, one after the other."""
        requester, self.ack_us = self._asker(), []
        for payload in paced(run):
            began = time.monotonic()
            pending = requester.request(ECHO, payload)
            if self._accepts:
                receipt = pending.accepted
                assert receipt is not None  # noqa: S101 - it was made here
                receipt.wait(RUN_SECONDS)
                self.ack_us.append((time.monotonic() - began) * 1e6)
                pending.result(RUN_SECONDS)
            else:
                pending.result(RUN_SECONDS)
                self.ack_us.append((time.monotonic() - began) * 1e6)

    def close(self) -> None:
        """Ask no more."""
        self._asker().close()

    def _asker(self) -> roq.Requester:
        assert self._requester is not None  # noqa: S101 - the harness opens first
        return self._requester


class RoqService(Answering):
    """The answering side."""

    def __init__(self, options: dict[str, str]) -> None:
        self._queue = options["queue"]
        self._cluster = roq.connect(options["cluster"], timeout=OPEN_SECONDS)
        self._service: roq.Service | None = None

    def open(self, run: Run) -> None:  # noqa: ARG002 - it answers whatever comes
        """Serve; the measurements that follow find it."""
        if self._service is None:
            self._service = self._cluster.service("bench", queue=self._queue, threads=THREADS)
            self._service.handler(ECHO)(_echo)
            self._service.handler(ECHO_ALL, batch=LARGEST)(_echo_all)
            self._service.start()


def _echo(value: bytes, context: roq.RequestContext) -> bytes:  # noqa: ARG001 - as handlers are
    return value


def _echo_all(values: list[bytes], contexts: object) -> list[bytes]:  # noqa: ARG001 - as above
    return values


def publisher(style: str, options: dict[str, str]) -> BenchPublisher:
    """The asking side in a style."""
    return RoqRequester(style, options)


def subscriber(style: str, options: dict[str, str]) -> BenchSubscriber:  # noqa: ARG001
    """The answering side."""
    return RoqService(options)
