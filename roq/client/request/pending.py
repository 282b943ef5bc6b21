"""A request that was made, and what has become of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Generic, Protocol, TypeVar

from roq.client.io.callbacks import UserFuture
from roq.client.publish.batching import size_of
from roq.client.publish.receipt import REGISTERING, Receipt, failure
from roq.client.request.context import RequestId
from roq.client.request.endpoint import Endpoint, is_async
from roq.errors import NO_RESPONSES, DeliveryError, InvalidRequest, RoQError, Unavailable
from roq.model import LogId
from roq.protocol.requesting import (
    Position,
    RequestEnd,
    RequestState,
    delayed_position,
    positions_of,
    quick,
)

R = TypeVar("R")


EXCHANGE_GONE: Final = "its exchange is gone, with all that it knew"
"""What a client says of a request whose exchange the cluster has no more."""

_WHY: Final = {
    RequestState.RETRIEVED: "its response was fetched already",
    RequestState.EXPIRED: "nobody has fetched its response in time",
    RequestState.FORGOTTEN: "it has ended, and how is not remembered any more",
    RequestState.NEVER: "there was no such request",
    RequestState.CANCELLED: "it was cancelled",
}
"""Where an exchange says no more than the state."""


ASYNC: Final = (
    "on_done of roq.Pending calls plain functions, and this one is async: use roq.aio, or future()"
)


class Requested(Protocol):
    """A request, or several that were made together."""

    @property
    def endpoint(self) -> Endpoint[Any, Any]:
        """What was requested."""
        ...

    @property
    def placed(self) -> bool:
        """Whether it is known where all of them are that are accepted."""
        ...

    def done(self) -> bool:
        """Whether of all it is known how they have ended."""
        ...

    def places(self) -> list[tuple[LogId, Position]]:
        """Where they are, as far as that is known."""
        ...

    def forget_repeat(self) -> int:
        """They will not be sent once more; how many bytes were kept for that."""
        ...


class Waits(Protocol):
    """Who looks after requests that are open: the collector of a client."""

    @property
    def check_process(self) -> Callable[[], None]:
        """Raises `Closed` in a forked child: nobody there hears how a request ends."""
        ...

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until this is so; False: it was not in time."""
        ...

    def later(self, call: Callable[[], object]) -> None:
        """Have this called in the thread for callbacks: it may wait."""
        ...

    def confirm(self, requested: Requested) -> None:
        """The outcome has arrived."""
        ...

    def cancel(self, requested: Requested, *, late: bool = False) -> None:
        """It is not wanted any more."""
        ...

    def let_go(self, requested: Requested) -> None:
        """It will not be sent once more."""
        ...

    def ring(self, rings: list[Callable[[], None]]) -> None:
        """Call these, and take them off, also if this is said again; they do not wait."""
        ...


class Pending(Generic[R]):
    """A request, and its response when there is one. Made by `Requester.request`.

    Attributes:
        endpoint: what was requested.
        accepted: the receipt: whether an exchange has it. None of one that was found by its id.
    """

    __slots__ = (
        "_at", "_callbacks", "_error", "_held", "_index", "_outcome", "_queue", "_waits",
        "accepted", "delayed", "due", "endpoint", "repeat",
    )  # fmt: skip

    def __init__(self, waits: Waits, queue: str, endpoint: Endpoint[Any, R]) -> None:
        self.endpoint = endpoint
        self.accepted: Receipt | None = None
        self.repeat: bytes | None = None
        """What is sent once more if the exchange dies with it."""
        self.delayed: tuple[int, bytes] | None = None
        """When it is to be handed out, µs UTC, and the id of its message; None: at once."""
        self.due = float("inf")
        """When its time is over."""
        self._waits = waits
        self._queue = queue
        self._at: tuple[LogId, Position] | None = None
        self._index = 0
        self._outcome: RequestEnd | None = None
        self._error: RoQError | None = None
        self._callbacks: list[Callable[[], None]] | None = None
        self._held = 0
        """Callbacks that have not ended; the retrieval is confirmed when there is none."""

    # --- the user's -------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Text that names the request, for any client of the cluster, as long as it is known.

        Raises:
            Unavailable: it has no id yet: wait for `accepted`.
            DeliveryError: it was not accepted.
        """
        at = self.at
        if at is None:
            self._check_accepted()
            raise Unavailable("the request is not accepted yet: wait for `accepted` first")
        return str(RequestId(self._queue, *at))

    @property
    def state(self) -> str:
        """How it has ended, as `RequestState` names it; `pending`: not yet, as far as is known."""
        if self._outcome is not None:
            return str(self._outcome.state)
        return "pending" if self._error is None else "unavailable"

    @property
    def attempts(self) -> int:
        """Leases under which it was handed out until it ended; 0: none, or it has not ended."""
        return 0 if self._outcome is None else self._outcome.attempts

    def done(self) -> bool:
        """Whether it is known how it has ended, or that this cannot be known here."""
        return self._outcome is not None or self._error is not None

    def result(self, timeout: float | None = None) -> R:
        """Wait for the response, and give it.

        Args:
            timeout: seconds; None: as long as it takes.

        Raises:
            NoResponse: it has ended without one; the class says how.
            DeliveryError: the request was not accepted.
            Unavailable: not in time, or its exchange cannot be reached: ask again by its id.
        """
        if not self.done() and not self._waits.wait_for(self.done, timeout) and not self.done():
            raise Unavailable(f"no response of {self.endpoint.name} within {timeout} s")
        return self._value()

    def future(self) -> Future[R]:
        """The same as a future; its callbacks must not wait for anything of this client.

        Raises:
            Closed: this is a forked child, and it had not ended before.
        """
        future: Future[R] = UserFuture()
        future.set_running_or_notify_cancel()

        def settle() -> None:
            try:
                value = self._value()
            except BaseException as error:  # noqa: BLE001 - also of a codec, and whoever waits is told
                future.set_exception(error)
            else:
                future.set_result(value)

        self._ring(settle)
        return future

    def on_done(self, callback: Callable[[Pending[R]], object]) -> None:
        """Call this once when it has ended, in the client's thread for callbacks.

        It may take its time. What it raises is logged and ends nothing. Without callbacks the
        retrieval of a response is confirmed as soon as it has arrived; with callbacks that were
        given before that, when the last of them has ended: if the program is killed before,
        another client may fetch the response by the id.

        Raises:
            InvalidRequest: it is `async def`: the client has no event loop, `roq.aio` does.
        """
        if is_async(callback):
            raise InvalidRequest(ASYNC)

        def call() -> None:
            try:
                told = callback(self)
                if inspect.iscoroutine(told):
                    told.close()
                    raise InvalidRequest(ASYNC)
            finally:
                self.called()

        self.when_done(lambda: self._waits.later(call))

    def cancel(self) -> None:
        """The response is not wanted any more: what has not begun never is, and what runs is told.

        How it has ended comes as ever: `cancelled`, or what it was before.
        """
        self._waits.cancel(self)

    def __repr__(self) -> str:
        at = self.at
        name = "" if at is None else f" {RequestId(self._queue, *at)}"
        return f"<roq.Pending {self.endpoint.name}{name}: {self.state}>"

    # --- the event loop's -------------------------------------------------------------------------

    def when_done(self, begin: Callable[[], None]) -> None:
        """Call this once when it has ended; it does not wait, and has `called` called some time."""
        with REGISTERING:
            self._held += 1
        self._ring(begin)

    def called(self) -> None:
        """A callback has ended."""
        with REGISTERING:
            self._held -= 1
            last = not self._held
        if last and self._outcome is not None:
            self._waits.confirm(self)

    # --- the collector's --------------------------------------------------------------------------

    @property
    def at(self) -> tuple[LogId, Position] | None:
        """Where it is; None: it was not accepted yet."""
        if self._at is None and self.accepted is not None:
            status = self.accepted.status
            if status is not None and status.ok and status.offset is not None:
                named = None if self.delayed is None else delayed_position(self.delayed[1])
                here = quick(Position, (status.offset, self._index))
                self._at = status.log, named or here
        return self._at

    def sent(self, receipt: Receipt, index: int) -> None:
        """It has left, or is about to, as the message of this index in its batch."""
        self._at = None
        self._index = index
        self.accepted = receipt

    @property
    def placed(self) -> bool:
        """Whether it is known where it is."""
        return self.at is not None

    def places(self) -> list[tuple[LogId, Position]]:
        """Where it is, if that is known."""
        at = self.at
        return [] if at is None else [at]

    def forget_repeat(self) -> int:
        """It will not be sent once more; how many bytes were kept for that."""
        kept, self.repeat = self.repeat, None
        return 0 if kept is None else size_of(kept)

    def is_one_of_many(self) -> None:
        """Its retrieval is confirmed with that of others."""
        self._held += 1

    def place(self, log: LogId, position: Position) -> None:
        """It is here."""
        self._at = log, position

    def settle(self, outcome: RequestEnd | None, error: RoQError | None = None) -> bool:
        """It has ended so, or this cannot be known; False: that was known already."""
        new = not self.done()
        if new:
            self._outcome, self._error = outcome, error
            if self.repeat is not None:
                self._waits.let_go(self)
            with REGISTERING:
                held = self._held
            if not held and outcome is not None:  # else whoever asks by the id may fetch it
                self._waits.confirm(self)
        self._ring_all()
        return new

    def _end(self, outcome: RequestEnd) -> bool:
        """As `settle`; who says it looks after all that follows. False: it was given up before."""
        if self._outcome is None and self._error is None:
            self._outcome = outcome
        return self._error is None

    def _ring_all(self) -> None:
        """Who is to be called is called, also of one that was settled by who was interrupted."""
        if self._callbacks:
            self._waits.ring(self._callbacks)
            self._callbacks = None

    def _ring(self, ring: Callable[[], None]) -> None:
        with REGISTERING:
            if not self.done():
                self._waits.check_process()
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(ring)
                return
        ring()

    def _value(self) -> R:
        if self._error is not None:
            raise self._error
        outcome = self._outcome
        if outcome is None:  # by `done`, there is one
            raise Unavailable("the request has not ended")
        if outcome.state is RequestState.DONE:
            return self.endpoint.decode_response(outcome.value)
        error = NO_RESPONSES.get(outcome.state, NO_RESPONSES["unknown"])
        at = self.at
        name = "" if at is None else f" ({RequestId(self._queue, *at)})"
        why = outcome.text or _WHY.get(outcome.state, outcome.state)
        raise error(f"{self.endpoint.name}{name}: {why}")

    def _check_accepted(self) -> None:
        status = None if self.accepted is None else self.accepted.status
        if status is not None and not status.ok:
            raise failure(status, 1)
        if isinstance(self._error, DeliveryError):
            raise self._error


class PendingRun:
    """Requests that were made one by one, and stand in one batch of a log one after the other.

    Args:
        pendings: these, in order.
        log, offset: of the batch.
        first: index in the batch of the first one.

    Attributes:
        pendings: the same; None in the place of each that has ended, as its response may be large.
        endpoint: of one of them; they are of one service.
        due: when the time of one of them is over; theirs are nearly alike.
        left: so many of them are still there.
    """

    __slots__ = ("due", "endpoint", "first", "left", "log", "offset", "pendings")

    def __init__(self, pendings: list[Pending[Any]], log: LogId, offset: int, first: int) -> None:
        self.pendings: list[Pending[Any] | None] = [*pendings]
        self.log = log
        self.offset = offset
        self.first = first
        self.endpoint: Endpoint[Any, Any] = pendings[0].endpoint
        self.due = pendings[0].due
        self.left = len(pendings)

    @property
    def positions(self) -> list[Position]:
        """Where each is."""
        return positions_of(self.offset, self.first, len(self.pendings))

    def done(self) -> bool:
        """Whether all of them have ended."""
        return not self.left

    def open(self) -> list[Pending[Any]]:
        """Those that have not ended."""
        return [each for each in self.pendings if each is not None and not each.done()]

    def places(self) -> list[tuple[LogId, Position]]:
        """Where those are that have not ended."""
        placed = zip(self.pendings, self.positions, strict=True)
        return [
            (self.log, position)
            for each, position in placed
            if each is not None and not each.done()
        ]

    def recount(self) -> None:
        """Whoever was settling some of them was interrupted."""
        self.left = len(self.pendings) - self.pendings.count(None)

    def settle(self, outcome: RequestEnd) -> tuple[list[Pending[Any]], list[Pending[Any]]]:
        """Some of them have ended so: these, and those among them whose retrieval is confirmed
        now; of the others that is done when their callbacks have ended.

        May be said again by who was interrupted, until they are dropped.
        """
        at = outcome.index - self.first
        ends = zip(self.pendings[at : at + outcome.count], outcome.each(), strict=True)
        told = [
            each
            for each, end in ends
            if each is not None and each._end(end)  # noqa: SLF001 - of this module
        ]
        with REGISTERING:
            free = [each for each in told if not each._held]  # noqa: SLF001 - as above
        for each in told:
            each._ring_all()  # noqa: SLF001 - as above
        return told, free

    def drop(self, outcome: RequestEnd) -> None:
        """All that these were waited for is done."""
        at, count = outcome.index - self.first, outcome.count
        gone = self.pendings[at : at + count]
        self.pendings[at : at + count] = [None] * count
        self.left -= count - gone.count(None)
