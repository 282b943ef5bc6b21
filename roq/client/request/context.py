"""The id of a request, and what a handler knows of the request that it runs.

Ids are text that may be stored; they say where the request is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol

from roq.errors import InvalidRequest
from roq.model import LogId
from roq.number_ranges import OFFSET_MAX
from roq.protocol.requesting import Position

_PATTERN: Final = re.compile(r"([A-Za-z0-9._-]{1,128})/x(\d{1,9})-(\d{1,18})-(\d{1,19})-(\d{1,7})")


class RequestId(NamedTuple):
    """Where a request is: queue, log of an exchange, and position."""

    queue: str
    log: LogId
    position: Position

    def __str__(self) -> str:
        return (
            f"{self.queue}/x{self.log.number}-{self.log.generation}"
            f"-{self.position.offset}-{self.position.at}"
        )


def parse_id(text: str) -> RequestId:
    """The id that this text is.

    Raises:
        InvalidRequest: it is none.
    """
    found = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidRequest(f"{text!r:.80} is no id of a request, such as work/x1-1-42-0")
    queue, *numbers = found.groups()
    number, generation, offset, index = map(int, numbers)
    if offset > OFFSET_MAX:
        raise InvalidRequest(f"{text!r:.80} is no id of a request: no log has such an offset")
    return RequestId(queue, LogId(number, generation), Position(offset, index))


class HeldRequest(Protocol):
    """A request that an instance holds; what of it costs something is asked for when it is
    wanted."""

    @property
    def id(self) -> str:
        """As its requester sees it."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """What the requester has given with it."""
        ...

    @property
    def lost(self) -> bool:
        """Whether it is not the instance's any more."""
        ...


class RequestContext:
    """Of one run of a handler; of a batch handler, of one request of its batch.

    Attributes:
        endpoint: name of the endpoint.
        attempt: the how manieth attempt this is, from 1.
        deadline: when its time is over, on the monotonic clock; infinity: it has no end of its own.
    """

    __slots__ = ("_held", "_now", "attempt", "deadline", "endpoint")

    def __init__(
        self, held: HeldRequest, endpoint: str, attempt: int, deadline: float,
        now: Callable[[], float],
    ) -> None:  # fmt: skip
        self.endpoint = endpoint
        self.attempt = attempt
        self.deadline = deadline
        self._held = held
        self._now = now

    @property
    def id(self) -> str:
        """Of the request, as its requester sees it."""
        return self._held.id

    @property
    def headers(self) -> Mapping[str, str]:
        """What the requester has given with it."""
        return self._held.headers

    @property
    def remaining(self) -> float:
        """Seconds until its time is over."""
        return max(0.0, self.deadline - self._now())

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the response any more: it was cancelled, its time is over, or
        another instance has the request by now."""
        return self._held.lost or self._now() >= self.deadline

    def __repr__(self) -> str:
        return f"<roq.RequestContext {self.endpoint} {self.id}, attempt {self.attempt}>"


class _Together:
    """The requests of a batch, for what its handler requests."""

    __slots__ = ("_every", "_first")

    def __init__(self, first: HeldRequest, every: Sequence[Sequence[RequestContext]]) -> None:
        self._first = first
        self._every = every

    @property
    def id(self) -> str:
        return self._first.id

    @property
    def headers(self) -> Mapping[str, str]:
        return self._first.headers

    @property
    def lost(self) -> bool:
        return all(is_lost(each) for some in self._every for each in some)


def together(first: RequestContext, every: Sequence[Sequence[RequestContext]]) -> RequestContext:
    """For what a batch handler requests: it has the time of the first one, and is wanted as long
    as any of them is."""
    held = _Together(first._held, every)  # noqa: SLF001 - of this module
    now = first._now  # noqa: SLF001 - as above
    return RequestContext(held, first.endpoint, first.attempt, first.deadline, now)


def is_lost(context: RequestContext) -> bool:
    """Whether the request was taken from this instance: cancelled, or another one has it."""
    return context._held.lost  # noqa: SLF001 - of this module


CURRENT: Final[ContextVar[RequestContext | None]] = ContextVar("roq_request", default=None)
"""Of the handler that runs here."""
