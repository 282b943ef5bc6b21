"""Requests that were made together, and what has become of them: one object for all.

Those that went into the same batch of their publisher are a *part*: they stand in the log of one
exchange at one offset, one after the other.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import groupby
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

from roq.client.io.callbacks import UserFuture
from roq.client.publish.batching import Payload, size_of
from roq.client.publish.receipt import REGISTERING, Receipt
from roq.client.request.endpoint import Endpoint, is_async
from roq.client.request.pending import ASYNC, Pending, Requested, Waits
from roq.errors import InvalidRequest, RoQError, Unavailable
from roq.model import LogId
from roq.protocol.requesting import Position, RequestEnd, RequestState, positions_of

R = TypeVar("R")

REPEAT_BYTES: Final = 64 * 1024 * 1024
"""What is kept at most."""


class ManyPart:
    """Requests of a `PendingMany` that went into one batch, one after the other.

    Attributes:
        many: of which they are some.
        receipt: of the batch.
        first: index in the batch of the first one.
        members: which of all they are, in order.
        at: log and offset of the batch; None: it is not known to be accepted.
        due: when their time is over.
        left: so many of them have not ended.
    """

    __slots__ = ("at", "due", "first", "left", "many", "members", "receipt")

    def __init__(
        self, many: PendingMany[Any], receipt: Receipt, first: int, members: Sequence[int]
    ) -> None:
        self.many = many
        self.receipt = receipt
        self.first = first
        self.members = members
        self.at: tuple[LogId, int] | None = None
        self.due = many.due
        self.left = len(members)

    def place(self) -> tuple[LogId, int] | None:
        """Where they are; None: they were not accepted yet."""
        status = self.receipt.status
        if self.at is None and status is not None and status.ok and status.offset is not None:
            self.at = status.log, status.offset
        return self.at

    def positions(self) -> list[Position]:
        """Where each is; none before that is known."""
        at = self.place()
        if at is None:
            return []
        return positions_of(at[1], self.first, len(self.members))

    def open(self) -> list[Position]:
        """Where those are that have not ended."""
        ends, members = self.many.ends, self.members
        placed = zip(members, self.positions(), strict=False)  # none before it is known where
        return [at for member, at in placed if ends[member] is None]

    def open_members(self) -> list[int]:
        """Which of all have not ended."""
        return [member for member in self.members if self.many.ends[member] is None]

    @property
    def endpoint(self) -> Endpoint[Any, Any]:
        """What was requested."""
        return self.many.endpoint

    def done(self) -> bool:
        """Whether all of them have ended."""
        return not self.left

    def places(self) -> list[tuple[LogId, Position]]:
        """Where those are that have not ended, as far as that is known."""
        at = self.place()
        return [] if at is None else [(at[0], position) for position in self.open()]

    def recount(self) -> None:
        """Whoever was settling some of them was interrupted."""
        self.left = len(self.open_members())
        self.many.recount()

    def settle(self, outcome: RequestEnd) -> None:
        """Some of them have ended so."""
        at = outcome.index - self.first
        self.left -= self.many.settle_all(self.members[at : at + outcome.count], outcome)


class Together(NamedTuple):
    """Requests of a `PendingMany` that have ended together, from this one on."""

    outcome: RequestEnd
    first: int

    def end(self, number: int) -> RequestEnd:
        """Of one of them."""
        return self.outcome.some(self.outcome.index + number - self.first)


class PendingMany(Sequence[Pending[R]], Generic[R]):
    """Requests that were made together, in order. Made by `Requester.request_many`.

        pending = requester.request_many(create, [Order(7), Order(8)])
        seven, eight = pending.results(10)

    It is a sequence: `pending[1]` is one of them, as a `Pending`, which is made when somebody looks
    at it. The retrieval of its response is confirmed as that of all.

    Attributes:
        endpoint: what was requested.
        ends: how each has ended, alone or with others, or why that is not known; None: it has not.
    """

    __slots__ = (
        "_callbacks", "_held", "_left", "_queue", "_singles", "_waits", "due", "endpoint", "ends",
        "parts", "repeat",
    )  # fmt: skip

    def __init__(self, waits: Waits, queue: str, endpoint: Endpoint[Any, R], count: int) -> None:
        self.endpoint = endpoint
        self.parts: list[ManyPart] = []
        """Where they went; of those that were sent once more, the last one counts."""
        self.repeat: list[Payload] | None = None
        """What is sent once more if an exchange dies with it."""
        self.due = float("inf")
        """When the time of those is over that leave now."""
        self._waits = waits
        self._queue = queue
        self.ends: list[RequestEnd | Together | RoQError | None] = [None] * count
        self._left = count
        self._singles: dict[int, Pending[R]] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._held = 0
        """Callbacks that have not ended; retrievals are confirmed when there is none."""

    # --- the user's -------------------------------------------------------------------------------

    @property
    def accepted(self) -> list[Receipt]:
        """The receipts of the batches in which they travel, in order."""
        return [part.receipt for part in self.parts]

    def done(self) -> bool:
        """Whether of all of them it is known how they have ended."""
        return not self._left

    def results(self, timeout: float | None = None) -> list[R | RoQError]:
        """Wait until all have ended; gives of each its response, or why there is none.

        Args:
            timeout: seconds for all of them; None: as long as it takes.

        Raises:
            Unavailable: not in time.
        """
        if self._left:
            self._waits.wait_for(self.done, timeout)
        return self._results(timeout)

    def result(self, timeout: float | None = None) -> list[R]:
        """As `results`, if each has a response.

        Raises:
            NoResponse, DeliveryError, Unavailable: of the first that has none, as `Pending.result`.
        """
        values: list[R] = []
        for value in self.results(timeout):
            if isinstance(value, RoQError):
                raise value
            values.append(value)
        return values

    def future(self) -> Future[list[R | RoQError]]:
        """`results` as a future; its callbacks must not wait for anything of this client.

        Raises:
            Closed: this is a forked child, and they had not all ended before.
        """
        future: Future[list[R | RoQError]] = UserFuture()
        future.set_running_or_notify_cancel()

        def settle() -> None:
            try:
                values = self.results(0)
            except BaseException as error:  # noqa: BLE001 - also of a codec, and whoever waits is told
                future.set_exception(error)
            else:
                future.set_result(values)

        self._ring(settle)
        return future

    def on_done(self, callback: Callable[[PendingMany[R]], object]) -> None:
        """Call this once when all have ended, in the client's thread for callbacks.

        As `Pending.on_done`: with callbacks that were given before any has ended, the retrieval of
        all is confirmed when the last of these callbacks has ended.

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
        """The responses are not wanted any more; as `Pending.cancel`."""
        self._waits.cancel(self)

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, number: int) -> Pending[R]: ...

    @overload
    def __getitem__(self, number: slice) -> list[Pending[R]]: ...

    def __getitem__(self, number: int | slice) -> Pending[R] | list[Pending[R]]:
        if isinstance(number, slice):
            return [self._single(each) for each in range(len(self))[number]]
        return self._single(range(len(self))[number])

    def __repr__(self) -> str:
        ended = len(self) - self._left
        return f"<roq.PendingMany {self.endpoint.name}: {ended:,} of {len(self):,} have ended>"

    # --- the event loop's -------------------------------------------------------------------------

    def when_done(self, begin: Callable[[], None]) -> None:
        """Call this once when all have ended; it does not wait, and has `called` called."""
        with REGISTERING:
            self._held += 1
        self._ring(begin)

    def called(self) -> None:
        """A callback has ended."""
        with REGISTERING:
            self._held -= 1
            last = not self._held
        if last:
            self._waits.confirm(self)

    # --- the collector's --------------------------------------------------------------------------

    @property
    def placed(self) -> bool:
        """Whether it is known where all of them are that have not ended."""
        return all(part.place() is not None or not part.left for part in self.parts)

    def went(self, part: ManyPart) -> None:
        """Some of them have left, or are about to; those that are sent once more have new ids."""
        with REGISTERING:
            self.parts.append(part)
            for number in self._singles.keys() & set(part.members) if self._singles else ():
                self._singles[number].sent(part.receipt, part.first + part.members.index(number))

    def forget_repeat(self) -> int:
        """They will not be sent once more; how many bytes were kept for that."""
        kept, self.repeat = self.repeat, None
        return sum(map(size_of, kept or ()))

    def places(self) -> list[tuple[LogId, Position]]:
        """Where they are, as far as that is known; without those of which nothing has arrived and
        that are given up: whoever asks by their ids may fetch them."""
        return [
            (part.at[0], position)
            for part in self.parts
            for member, position in zip(part.members, part.positions(), strict=False)
            if part.at is not None and not isinstance(self.ends[member], RoQError)
        ]

    @property
    def held(self) -> bool:
        """Whether retrievals are confirmed later, when callbacks have ended."""
        return self._held > 0

    def settle(self, member: int, outcome: RequestEnd | None, error: RoQError | None) -> bool:
        """One of them has ended so, or this cannot be known; False: that was known already."""
        if self.ends[member] is not None:
            return False
        with REGISTERING:
            self.ends[member] = error if outcome is None else outcome
            single = self._singles.get(member)
            self._left -= 1
        if single is not None:
            single.settle(outcome, error)
        self._ended()
        return True

    def settle_all(self, members: Sequence[int], outcome: RequestEnd) -> int:
        """Some of them have ended so; of how many that was not known."""
        count, first = len(members), members[0]
        alike = members == range(first, first + count) and count > 1
        with REGISTERING:
            alike = alike and not self._singles
            if alike := alike and self.ends[first : first + count].count(None) == count:
                self.ends[first : first + count] = [Together(outcome, first)] * count
                self._left -= count
        if not alike:
            pairs = zip(members, outcome.each(), strict=True)
            return sum(self.settle(member, each, None) for member, each in pairs)
        self._ended()
        return count

    def recount(self) -> None:
        """Whoever was settling some of them was interrupted."""
        with REGISTERING:
            self._left = self.ends.count(None)
        self._ended()

    # --- inside -----------------------------------------------------------------------------------

    def _results(self, waited: float | None) -> list[R | RoQError]:
        """`results`, when so long was waited for them."""
        if self._left:
            left = f"{self._left:,} of {len(self):,} requests"
            raise Unavailable(f"no response of {self.endpoint.name} to {left} within {waited} s")
        values: list[R | RoQError] = []
        for end, alike in groupby(self.ends):
            first, count = len(values), sum(1 for _ in alike)
            if isinstance(end, Together) and end.outcome.state is RequestState.DONE:
                with suppress(RoQError):  # of one of them: below
                    values += list(map(self.endpoint.decode_response, end.outcome.values))
            values += [self._result(number) for number in range(len(values), first + count)]
        return values

    def _ended(self) -> None:
        if not self._left and self.repeat is not None:
            self._waits.let_go(self)
        self._ring_all()

    def _result(self, number: int) -> R | RoQError:
        end = self.ends[number]
        if isinstance(end, Together):
            end = end.end(number)
        try:
            if isinstance(end, RequestEnd) and end.state is RequestState.DONE:
                return self.endpoint.decode_response(end.value)
            return self._single(number).result(0)
        except RoQError as error:
            return error

    def _single(self, number: int) -> Pending[R]:
        with REGISTERING:
            single = self._singles.get(number)
            if single is not None:
                return single
            single = self._singles[number] = Pending(self._waits, self._queue, self.endpoint)
            part = next((part for part in reversed(self.parts) if number in part.members), None)
            if part is not None:
                single.sent(part.receipt, part.first + part.members.index(number))
            single.is_one_of_many()
            end = self.ends[number]
            if isinstance(end, Together):
                end = end.end(number)
            if isinstance(end, RequestEnd):
                single.settle(end)
            elif end is not None:
                single.settle(None, end)
        return single

    def _ring_all(self) -> None:
        if not self._left and self._callbacks:
            self._waits.ring(self._callbacks)

    def _ring(self, ring: Callable[[], None]) -> None:
        with REGISTERING:
            if self._left:
                self._waits.check_process()
                self._callbacks.append(ring)
                return
        ring()


class KeptRequests:
    """What one collector keeps of idempotent requests, to send it once more if an exchange dies.

    As far as the allowance reaches; from any thread.

    Attributes:
        bytes: what is kept.
        left_out: requests for which there was no room.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.left_out = 0
        self._lock = threading.Lock()

    def keep(self, pending: Pending[Any], data: bytes) -> None:
        """This may be sent once more."""
        with self._lock:
            if self.bytes + (size := size_of(data)) <= REPEAT_BYTES:
                self.bytes += size
                pending.repeat = data
            else:
                self.left_out += 1

    def keep_many(self, many: PendingMany[Any], data: list[Payload]) -> None:
        """Likewise, all of these or none."""
        size = sum(map(size_of, data))
        with self._lock:
            if self.bytes + size <= REPEAT_BYTES:
                self.bytes += size
                many.repeat = data.copy()
            else:
                self.left_out += len(data)

    def renew(self, pending: Pending[Any], data: bytes) -> None:
        """What is sent the next time; what was kept before stays if there is no room."""
        with self._lock:
            if pending.repeat is not None and self._grow(size_of(data) - size_of(pending.repeat)):
                pending.repeat = data

    def renew_some(self, many: PendingMany[Any], data: Mapping[int, Payload]) -> None:
        """Likewise, of some of them."""
        with self._lock:
            if (kept := many.repeat) is not None:
                grown = sum(size_of(each) - size_of(kept[at]) for at, each in data.items())
                if self._grow(grown):
                    for at, each in data.items():
                        kept[at] = each

    def _grow(self, size: int) -> bool:
        fits = self.bytes + size <= REPEAT_BYTES
        self.bytes += size if fits else 0
        return fits

    def let_go(self, *requested: Requested) -> None:
        """These will not be sent once more."""
        with self._lock:
            self.bytes -= sum(each.forget_repeat() for each in requested)
