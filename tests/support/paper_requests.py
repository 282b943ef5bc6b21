"""A cluster of paper for what `roq request` and `roq response` ask and print."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

import roq
from roq.client.request.views import RequestDescription, RequestRow

ID = "work/x1-7-3-1"
ROW = RequestRow(
    id=ID, state="failed", text="ValueError: no\nmore", instance="one", attempts=2,
    age_seconds=30.0, bytes=0,
)  # fmt: skip


class PaperPending:
    """Is accepted, and has a response."""

    id = ID
    state = "done"
    endpoint = roq.endpoint("billing.create", request=object, response=object)
    ends: Exception | None = None

    def __init__(self, value: object) -> None:
        self.value = value
        self.waited: list[float] = []
        self.cancelled = False
        self.accepted = SimpleNamespace(wait=self.waited.append)

    def result(self, timeout: float) -> object:
        self.waited.append(timeout)
        if self.ends is not None:
            raise self.ends
        return self.value

    def cancel(self) -> None:
        self.cancelled = True


class PaperCluster:
    """Notes what is requested, and answers with it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.delays: list[float | None] = []
        self.beside: list[tuple[dict[str, str], int]] = []
        self.endpoints: list[roq.Endpoint[Any, Any]] = []
        self.pending = PaperPending({"total": 847})
        self.rows = [ROW]
        self.described = RequestDescription(
            **msgspec.structs.asdict(ROW), outcome="kept", since=1_000_000_000.0
        )
        self.missing: dict[str, str] = {}
        self.more = False

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def requester(self, queue: str, *, collect: bool) -> PaperCluster:
        self.asked.append((queue, collect))
        return self

    def request(
        self, endpoint: roq.Endpoint[Any, Any], value: object, *, headers: dict[str, str],
        priority: int, delay: float | None,
    ) -> PaperPending:  # fmt: skip
        self.delays.append(delay)
        self.beside.append((headers, priority))
        self.asked.append((endpoint.name, endpoint.idempotent, value))
        self.endpoints.append(endpoint)
        return self.pending

    def response(self, endpoint: roq.Endpoint[Any, Any], request_id: str) -> PaperPending:
        self.asked.append((endpoint.name, request_id))
        self.endpoints.append(endpoint)
        return self.pending

    def retry_request(
        self, endpoint: roq.Endpoint[Any, Any], request_id: str, *, timeout: float
    ) -> None:
        self.asked.append((endpoint.service, request_id, timeout))

    def describe_request(
        self, endpoint: roq.Endpoint[Any, Any], request_id: str, *, timeout: float
    ) -> RequestDescription:
        self.asked.append((endpoint.service, request_id, timeout))
        return self.described

    def describe_service(self, queue: str, name: str, *, timeout: float) -> SimpleNamespace:
        self.asked.append((queue, name, timeout))
        return SimpleNamespace(requests=self.rows, missing=self.missing, more=self.more)
