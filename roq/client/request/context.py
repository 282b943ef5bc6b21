"""What a handler knows of the request that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Final


class RequestContext:
    """Of one run of a handler.

    Attributes:
        id: of the request, as its requester sees it.
        endpoint: name of the endpoint.
        attempt: the how manieth attempt this is, from 1.
        deadline: when its time is over, on the monotonic clock; infinity: it has no end of its own.
    """

    __slots__ = ("_gone", "_headers", "_now", "attempt", "deadline", "endpoint", "id")

    def __init__(
        self, request_id: str, endpoint: str, attempt: int, deadline: float,
        now: Callable[[], float], headers: Callable[[], Mapping[str, str]],
        gone: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.id = request_id
        self.endpoint = endpoint
        self.attempt = attempt
        self.deadline = deadline
        self._now = now
        self._headers = headers
        self._gone = gone

    @property
    def headers(self) -> Mapping[str, str]:
        """What the requester has given with it."""
        return self._headers()

    @property
    def remaining(self) -> float:
        """Seconds until its time is over."""
        return max(0.0, self.deadline - self._now())

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the response any more: it was cancelled, its time is over, or
        another instance has the request by now."""
        return self._gone() or self._now() >= self.deadline

    def __repr__(self) -> str:
        return f"<roq.RequestContext {self.endpoint} {self.id}, attempt {self.attempt}>"


CURRENT: Final[ContextVar[RequestContext | None]] = ContextVar("roq_request", default=None)
"""Of the handler that runs here."""
