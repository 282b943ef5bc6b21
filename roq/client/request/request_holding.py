"""Requests that an instance holds together: how far each is, and what was answered. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from roq.client.consume.holding import LOST, OPEN, Holding
from roq.log.leases import runs_of
from roq.model import LogId
from roq.protocol.consuming import SETTLED_MAX, Run
from roq.protocol.requesting import MORE_MAX, Begun, RequestState
from roq.read.message import Batch

ANSWER_OVERHEAD_BYTES: Final = 64
"""For what an answer has beside its value and its text."""
ALIKE_BYTES: Final = 64 * 1024
"""Values that are told, and kept, together: what is not fetched keeps the others."""

WAITING: Final = 1
"""Of a request that is to run: no handler has it."""
RUNS: Final = 2
SAID: Final = 3
"""It runs, and its exchange was told so."""
BACK: Final = 4
"""It was given back before it began: it does not run here."""


class HandlerResult(msgspec.Struct, frozen=True, gc=False):
    """What has become of a request."""

    state: RequestState
    value: bytes = b""
    text: str = ""
    silent: bool = False
    ran_late: bool = False
    """Its handler has returned when its time was over: what is late else has not run."""


class RequestHolding(Holding):
    """Requests of one batch that were leased together.

    Attributes:
        answers: by index in the batch, of those that have ended.
        begun: so many of the first ones the exchange was told to be begun, never to be begun again.
        started: and so many of them it has kept.
        stages: of each, how far it is here; 0: it is not to run yet. Who changes `WAITING` has the
            lock of the handlers.
        waited: it was looked at before, since it was to run.
    """

    __slots__ = ("answers", "begun", "stages", "started", "waited")

    def __init__(
        self, log: LogId, offset: int, lease: int, first: int, attempt: int, batch: Batch
    ) -> None:
        super().__init__(log, offset, lease, first, attempt, batch)
        self.answers: dict[int, HandlerResult] = {}
        self.begun = self.started = 0
        self.waited = False
        self.stages = bytearray(len(self.states))

    def next_unbegun(self, most: int) -> tuple[range, list[tuple[int, int]]]:
        """The next ones that were not said to be begun, so many at most, and which of these are
        not somebody else's: index of the first, and how many."""
        size, states = len(self.states), self.states
        left = (at for at in range(self.begun, size) if states[at] != LOST)
        some = list(islice(left, most))
        stop = size if len(some) < most else some[-1] + 1 if some else self.begun
        return range(self.begun, stop), runs_of(sum(1 << at for at in some))

    def open_at(self, stage: int) -> list[tuple[int, int]]:
        """Which of those that have not ended are so far: index of the first, and how many."""
        both = enumerate(zip(self.states, self.stages, strict=True))
        return runs_of(sum(1 << at for at, each in both if each == (OPEN, stage)))


HeldBegun = tuple[RequestHolding, Begun]
"""Requests that begin, and as part of what they are held."""


def begun_of(holding: RequestHolding, index: int, count: int, *, once: bool = False) -> list[Begun]:
    """What is told of these that begin: index of the first, and how many."""
    run = Run(holding.offset, holding.first + index, count)
    return [Begun(*each, once) for each in holding.leases_of(run)]


def portions(begun: Iterable[HeldBegun], most: int) -> Iterator[list[HeldBegun]]:
    """In order, in as many as one message each has room for: so many, and as many requests."""
    some: list[HeldBegun] = []
    room = SETTLED_MAX
    for holding, each in begun:
        at, stop = each.first, each.first + each.length
        while at < stop:
            if len(some) >= most or not room:
                yield some
                some, room = [], SETTLED_MAX
            count = min(stop - at, room)
            some.append((holding, Begun(each.lease, at, count, each.once)))
            at += count
            room -= count
    if some:
        yield some


def alike(
    answers: Mapping[int, HandlerResult], first: int, stop: int, most: int
) -> tuple[HandlerResult, list[bytes], int]:
    """How a request has ended, the values of those behind it that have ended alike, and what all
    of them take in a message that has room for so many bytes."""
    result, size = fitting(answers[first], most)
    more: list[bytes] = []
    state, silent, room = result.state, result.silent, min(most, ALIKE_BYTES) - size
    if result.text:
        return result, more, size
    for index in range(first + 1, min(stop, first + 1 + MORE_MAX)):
        other = answers[index]
        room -= ANSWER_OVERHEAD_BYTES + len(other.value)
        if room < 0 or other.state is not state or other.silent is not silent or other.text:
            break
        more.append(other.value)
        size += ANSWER_OVERHEAD_BYTES + len(other.value)
    return result, more, size


def fitting(result: HandlerResult, most: int) -> tuple[HandlerResult, int]:
    """A result as far as one message of so many bytes has room for it, and what it takes there."""
    text = result.text.encode() if result.text else b""
    size = ANSWER_OVERHEAD_BYTES + len(result.value) + len(text)
    if size <= most:
        return result, size
    if result.value:
        told = (
            f"its response has {len(result.value)} bytes, and an answer to this exchange of its "
            f"queue has at most {most}"
        )
        failed = HandlerResult(RequestState.FAILED, text=told, silent=result.silent)
        return failed, ANSWER_OVERHEAD_BYTES + len(told)
    cut = text[: most - ANSWER_OVERHEAD_BYTES].decode(errors="ignore")
    return msgspec.structs.replace(result, text=cut), most
