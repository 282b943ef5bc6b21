"""The outcomes of the requests of one service: kept until they are fetched, or their time is over.

Nothing is overwritten: what finds no room is refused. What was fetched or is over is remembered for
a while, by its state alone, so that somebody who asks for it late is told why it is not there.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from msgspec.structs import replace

from roq.log.group_changes import Known
from roq.protocol.requesting import (
    DURATION_BOUNDS,
    ENDS,
    Answer,
    Durations,
    FetchedRun,
    Position,
    RequestEnd,
    RequestState,
    RequestView,
    keys_of,
    positions_of,
    quick,
)

REMEMBER_SECONDS: Final = 600.0
REMEMBER_MAX: Final = 100_000
"""Ends that are remembered; with more, the oldest are forgotten."""
OVERHEAD_BYTES: Final = 400
"""What an outcome takes beside its value and its text."""
_ANSWERS: Final = ENDS - {RequestState.UNKNOWN}


class DurationMeter:
    """Counts durations by how long they are."""

    def __init__(self) -> None:
        self._counts = [0] * (len(DURATION_BOUNDS) + 1)
        self.seconds = 0.0

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self._counts)

    def note(self, seconds: float, times: int = 1) -> None:
        """So long, so often."""
        self._counts[bisect_left(DURATION_BOUNDS, seconds)] += times
        self.seconds += seconds * times

    def read(self) -> Durations:
        """All of them."""
        return Durations(counts=list(self._counts), seconds=self.seconds)


def summed(meters: Iterable[DurationMeter]) -> Durations:
    """What several have counted, together."""
    told = [each.read() for each in meters if each.seconds or each.count]
    counts = [sum(column) for column in zip(*(each.counts for each in told), strict=True)]
    return Durations(counts, sum(each.seconds for each in told))


class RequestFigures:
    """Of one service.

    Attributes:
        accepted: requests that were looked at.
        waiting: until one was handed out, of each attempt since it was accepted.
        running: until it was answered.
    """

    def __init__(self) -> None:
        self.accepted = 0
        self.waiting = DurationMeter()
        self.running = DurationMeter()


class Ended(NamedTuple):
    """Requests have ended; `publisher` is who has made them."""

    publisher: bytes
    outcome: RequestEnd


_NOTHING: Final = RequestEnd(0, 0, RequestState.RETRIEVED)


class _Kept:
    """Outcomes that have come together; they take their room until the last of them is gone."""

    __slots__ = ("left", "outcome")

    def __init__(self, outcome: RequestEnd) -> None:
        self.outcome = outcome
        self.left = outcome.count


class OutcomeStore:
    """What has become of requests, by where they stand in the log.

    Attributes:
        bytes: what the stored outcomes take.
        unfetched: how long outcomes were stored that were fetched.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.unfetched = DurationMeter()
        self._stored: dict[Position, _Kept] = {}
        self._lives: deque[tuple[float, _Kept]] = deque()
        """When outcomes are over; with those that were fetched."""
        self._remembered: OrderedDict[Position, tuple[float, RequestState]] = OrderedDict()
        self._unseen = range(0)
        self._unseen_until = 0.0
        self._new: list[_Kept] = []
        self._known: list[Known] = []
        """What has come since `take_changes`, and of what only the state is known since then."""
        self._noting = True

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[RequestEnd]:
        return (kept.outcome.some(position.at) for position, kept in self._stored.items())

    def positions(self) -> Iterator[Position]:
        """Where the requests stand, those first that have ended first."""
        return iter(self._stored)

    def get(self, position: Position) -> RequestEnd | None:
        """The outcome that is stored here; None: there is none."""
        kept = self._stored.get(position)
        return None if kept is None else kept.outcome.some(position.at)

    def remembered(self, position: Position) -> RequestState | None:
        """What became of an outcome that is not stored any more; None: that is not known."""
        found = self._remembered.get(position)
        if found is not None:
            return found[1]
        return RequestState.LATE if position.offset in self._unseen else None

    def state_of(self, position: Position) -> RequestState | None:
        """How the request has ended that is here, as far as that is known."""
        stored = self._stored.get(position)
        return self.remembered(position) if stored is None else stored.outcome.state

    @property
    def unknown(self) -> RequestState:
        """How one has ended that is not open, and of which nothing else is known."""
        return RequestState.LATE if self._unseen else RequestState.FORGOTTEN

    def pass_over(self, offsets: range, until: float) -> None:
        """Nobody has looked at these, or will: what was a request was too late; that is remembered
        until then."""
        self._unseen, self._unseen_until = offsets, until

    def known(self) -> list[Known]:
        """All that is remembered."""
        return [Known(position, state) for position, (_, state) in self._remembered.items()]

    def fits(self, values: Sequence[bytes], text: str, most: int) -> bool:
        """Whether outcomes with these values, and this text each, find room among so many bytes."""
        return self.bytes + _size(values, text) <= most

    def fitting(
        self, answer: Answer, runs: Iterable[tuple[int, int]], most: int
    ) -> Iterator[tuple[int, RequestState, list[bytes], str]]:
        """How requests have ended that were answered, as what finds room among so many bytes:
        index of the first, state, values, text. To be kept before the next ones are asked for.

        Args:
            runs: (index of the first, how many) of them.
        """
        state, text = answer.state, answer.text
        if state not in _ANSWERS:
            state, text = RequestState.FAILED, f"its instance has answered {state}"
        every = [answer.value, *answer.more]
        for first, count in runs:
            values = every[first - answer.index : first - answer.index + count]
            if answer.silent or self.fits(values, text, most):
                yield first, state, values, text
                continue
            for index, value in enumerate(values, first):
                if self.fits([value], text, most):
                    yield index, state, [value], text
                    continue
                size = len(value) + len(text)
                why = f"its response of {size} bytes finds no room in the store of {most} bytes"
                yield index, RequestState.FAILED, [b""], why

    def put(self, outcome: RequestEnd, until: float, *, again: bool = False) -> None:
        """Keep these until then; what is here already stays as it is.

        Args:
            again: the requests may have run again since: of two ends the later one counts.
        """
        if again:
            for position in outcome.positions:
                self.reopen(position)
        self.keep(outcome, until, sys.maxsize)

    def keep(self, outcome: RequestEnd, until: float, most: int) -> bool:
        """As `put`, if all that is here has so many bytes at most then; False: nothing is done."""
        values, size = outcome.values, size_of(outcome)
        if self.bytes + size > most:
            return False
        positions = positions_of(outcome.offset, outcome.index, len(values))
        if not self._stored.keys().isdisjoint(positions):
            if outcome.more:
                for each in outcome.each():
                    self.keep(each, until, sys.maxsize)
            return True
        kept = _Kept(outcome)
        self._stored.update(dict.fromkeys(positions, kept))
        self._lives.append((until, kept))
        if self._noting:
            self._new.append(kept)
        self.bytes += size
        return True

    def reopen(self, position: Position) -> None:
        """The request is open again: nothing is known of how it has ended."""
        kept = self._stored.pop(position, None)
        if kept is not None:
            self._took(kept, 1)
        self._remembered.pop(position, None)

    def run_again(self, position: Position, now: float) -> None:
        """The request was published once more, and is open again when that was looked at."""
        self.reopen(position)
        self.put_state([position], RequestState.ACCEPTED, now)

    def again(self, position: Position) -> bool:
        """Whether the request was published once more, and nobody has looked at that."""
        return self.remembered(position) is RequestState.ACCEPTED

    def fetched(self, position: Position, now: float, time_us: int = 0) -> bool:
        """The outcome has arrived where it was wanted; False: it was not here.

        Args:
            time_us: by the clock of the log; 0: it is not noted how long that has taken.
        """
        return self.fetched_all([(*position, 1)], now, time_us) == 1

    def fetched_all(self, runs: Iterable[FetchedRun], now: float, time_us: int = 0) -> int:
        """Likewise, of several; how many were here."""
        take, count = self._stored.pop, 0
        for run in runs:
            positions = keys_of(*run)
            found = [take(position, None) for position in positions]
            gone: list[Position] = []
            at = 0
            for kept, alike in groupby(found):
                length = sum(1 for _ in alike)
                if kept is not None:
                    gone += positions[at : at + length]
                    if time_us:
                        seconds = max(0.0, (time_us - kept.outcome.ended_us) / 1_000_000)
                        self.unfetched.note(seconds, length)
                    self._took(kept, length)
                at += length
            self.put_state(gone, RequestState.RETRIEVED, now)
            count += len(gone)
        return count

    def put_state(self, positions: Sequence[Position], state: RequestState, now: float) -> None:
        """Requests have ended in this way, or run again; more is not kept of them."""
        self.note(positions, state, now)
        if self._noting:
            self._known += [quick(Known, (position, state)) for position in positions]

    def note(self, positions: Sequence[Position], state: RequestState, now: float) -> None:
        """Requests have ended in this way, and nobody wants to fetch that."""
        remembered = self._remembered
        if not remembered.keys().isdisjoint(positions):
            for position in positions:
                remembered.pop(position, None)
        remembered.update(dict.fromkeys(positions, (now + REMEMBER_SECONDS, state)))
        for _ in range(len(remembered) - REMEMBER_MAX):
            remembered.popitem(last=False)

    def pass_time(self, now: float) -> int:
        """What is over by now goes; how many outcomes nobody has fetched."""
        lost = 0
        while self._lives and self._lives[0][0] <= now:
            _, kept = self._lives.popleft()
            left = self._left(kept)
            for position in left:
                self._drop(position, RequestState.EXPIRED, now)
            lost += len(left)
        while self._remembered and next(iter(self._remembered.values()))[0] <= now:
            self._remembered.popitem(last=False)
        if self._unseen_until <= now:
            self._unseen = range(0)
        if len(self._lives) > 2 * len(self._stored) + REMEMBER_MAX:
            self._lives = deque(each for each in self._lives if each[1].left)
        return lost

    def retime(self, until: Callable[[RequestEnd], float]) -> None:
        """From now on each outcome is kept so long."""
        self._lives = deque(
            sorted(
                ((until(kept.outcome), kept) for kept in dict.fromkeys(self._stored.values())),
                key=lambda life: life[0],
            )
        )

    def clear(self) -> None:
        """Nothing is here."""
        for held in (self._stored, self._lives, self._remembered, self._new, self._known):
            held.clear()
        self.bytes = 0

    # --- what outlives the process ----------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Whether `take_changes` has something."""
        return bool(self._new or self._known)

    def take_changes(self) -> tuple[list[RequestEnd], list[Known]]:
        """What has come since the last call, and of what only the state is known since then."""
        come: list[RequestEnd] = []
        for kept in self._new:
            if kept.left == kept.outcome.count:  # as nearly always
                come.append(kept.outcome)
            else:
                come += [kept.outcome.some(position.at) for position in self._left(kept)]
        known = self._known
        self._new, self._known = [], []
        return come, known

    def drop_changes(self) -> None:
        """What has come is known already."""
        self._new, self._known = [], []

    def note_no_changes(self) -> None:
        """Nobody ever wants to know what has come."""
        self._noting = False
        self.drop_changes()

    def know(self, known: Known, now: float) -> None:
        """An earlier process has written that no more is known of this one."""
        if not self._drop(*known, now):
            self.note([known.position], known.state, now)

    def check(self) -> None:
        """Assert the invariants."""
        every = dict.fromkeys(self._stored.values())
        sizes = [size_of(kept.outcome) for kept in every]
        assert self.bytes == sum(sizes)  # noqa: S101
        assert all(len(self._left(kept)) == kept.left for kept in every)  # noqa: S101
        assert len(self._remembered) <= REMEMBER_MAX  # noqa: S101
        assert all(at in kept.outcome.positions for at, kept in self._stored.items())  # noqa: S101

    def _left(self, kept: _Kept) -> list[Position]:
        """Where those of these are that are stored."""
        if not kept.left:
            return []
        return [at for at in kept.outcome.positions if self._stored.get(at) is kept]

    def _took(self, kept: _Kept, count: int) -> None:
        """So many of these are not stored any more."""
        kept.left -= count
        if not kept.left:
            self.bytes -= size_of(kept.outcome)
            kept.outcome = _NOTHING  # `_lives` has it until its time is over

    def _drop(self, position: Position, state: RequestState, now: float) -> bool:
        kept = self._stored.pop(position, None)
        if kept is None:
            return False
        self._took(kept, 1)
        self.put_state([position], state, now)
        return True


def stored_view(told: RequestView, stored: RequestEnd, age: float) -> RequestView:
    """How a request stands whose outcome is stored; `told`: without that."""
    return replace(
        told, text=stored.text, instance=stored.instance, attempts=stored.attempts,
        bytes=len(stored.value), age_seconds=age,
    )  # fmt: skip


def size_of(outcome: RequestEnd) -> int:
    """Bytes that outcomes which have come together take."""
    return _size(outcome.values, outcome.text)


def _size(values: Sequence[bytes], text: str) -> int:
    return len(values) * (OVERHEAD_BYTES + len(text)) + sum(map(len, values))
