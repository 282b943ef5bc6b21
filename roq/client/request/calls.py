"""What handlers of a service are called with, and what they have returned: one request, or for a
batch handler some that follow each other."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from roq.client.request.context import RequestContext, RequestId, together
from roq.client.request.endpoint import Endpoint
from roq.client.request.request_holding import HandlerResult, RequestHolding
from roq.errors import InvalidRequest
from roq.protocol.requesting import SILENT, Position, RequestState, named_by


class Work(NamedTuple):
    """Requests that are to run, one, or for a batch handler some that follow each other: which of
    those that are held together."""

    holding: RequestHolding
    at: int
    length: int = 1

    def each(self) -> list[Work]:
        """Each of them alone."""
        return [Work(self.holding, at) for at in range(self.at, self.at + self.length)]


class HeldWork:
    """A request, for the context of its handler.

    Args:
        queue: name of the queue.
        work: one request.
    """

    __slots__ = ("_queue", "_work")

    def __init__(self, queue: str, work: Work) -> None:
        self._queue = queue
        self._work = work

    @property
    def id(self) -> str:
        """As of any held request."""
        holding, at, _ = self._work
        position = named_by(self.headers) or Position(holding.offset, holding.first + at)
        return str(RequestId(self._queue, holding.log, position))

    @property
    def headers(self) -> Mapping[str, str]:
        """As of any held request."""
        batch = self._work.holding.batch
        if batch.attributes is None:
            return {}
        return batch.attributes.of(batch.sequence + self._work.at).properties

    @property
    def lost(self) -> bool:
        """As of any held request."""
        return self._work.holding.is_lost(self._work.at, 1)


@dataclass(slots=True, eq=False)
class Registered:
    """A handler, and of what.

    Attributes:
        most: requests that one call has at most; 0: it is no batch handler.
        due: of a batch handler, what has not begun.
    """

    endpoint: Endpoint[Any, Any]
    handler: Callable[[Any, Any], Any]
    coroutine: bool
    most: int = 0
    due: deque[Work] = field(default_factory=deque)

    def take(self) -> list[Work]:
        """What the next call has; another thread may take some of it meanwhile."""
        taken: list[Work] = []
        room = self.most
        with contextlib.suppress(IndexError):
            while room:
                holding, at, count = self.due.popleft()
                if count > room:
                    self.due.appendleft(Work(holding, at + room, count - room))
                    count = room
                taken.append(Work(holding, at, count))
                room -= count
        return taken


class BatchRun(NamedTuple):
    """Requests that follow each other, of a batch that a handler is called with."""

    work: Work
    values: list[Any]
    contexts: list[RequestContext]
    """All have the same deadline."""


def values_of(batch: list[BatchRun]) -> tuple[list[Any], list[RequestContext]]:
    """What a batch handler is called with."""
    values = [value for each in batch for value in each.values]
    return values, [context for each in batch for context in each.contexts]


def first_over(batch: list[BatchRun]) -> RequestContext:
    """For what is requested meanwhile: it has as much time as the request whose time is over
    first, and is wanted as long as any of them is."""
    first = min((each.contexts[0] for each in batch), key=lambda context: context.deadline)
    return together(first, [each.contexts for each in batch])


def answers_of(answers: Any, count: int) -> list[Any]:
    """What a batch handler has returned, an answer to each request."""
    if not isinstance(answers, Sequence) or isinstance(answers, str | bytes | bytearray):
        raise InvalidRequest(
            f"the batch handler has returned {type(answers).__name__}, and not a list with an "
            "answer to each request, in order"
        )
    if len(answers) != count:
        raise InvalidRequest(
            f"the batch handler has returned {len(answers)} answers to {count} requests: give one "
            "to each, in order"
        )
    return list(answers)


def results_of(
    registered: Registered, run: BatchRun, answers: list[Any], now: float
) -> list[HandlerResult] | None:
    """What a batch handler has returned for these, if all are responses in time; None: each is
    looked at alone."""
    if now >= run.contexts[0].deadline:
        return None
    if any(isinstance(answer, BaseException) for answer in answers):
        return None
    encode = registered.endpoint.encode_response
    try:
        done = [HandlerResult(RequestState.DONE, encode(answer)) for answer in answers]
    except BaseException:  # noqa: BLE001 - of the codec
        return None
    holding, first, _ = run.work
    if holding.batch.payloads[first][1] & SILENT:  # as all of them
        return [HandlerResult(RequestState.DONE, silent=True)] * len(done)
    return done


def result_of(
    registered: Registered, value: Any, context: RequestContext, now: float
) -> HandlerResult:
    """What a handler has returned; nothing that comes too late counts."""
    if now >= context.deadline:
        text = "its result came when its time was over"
        return HandlerResult(RequestState.LATE, text=text, ran_late=True)
    return HandlerResult(RequestState.DONE, registered.endpoint.encode_response(value))


def marked(work: Work, answered: HandlerResult) -> HandlerResult:
    """An answer that nobody waits for has no value."""
    flags = work.holding.batch.payloads[work.at][1:2]
    if flags and flags[0] & SILENT:
        return msgspec.structs.replace(answered, silent=True, value=b"")
    return answered
