"""The outcomes of the requests of one service: kept until they are fetched, or their time is over.

Nothing is overwritten: what finds no room is refused. What was fetched or is over is remembered for
a while, by its state alone, so that somebody who asks for it late is told why it is not there.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from roq.log.group_changes import Known
from roq.protocol.requesting import (
    DURATION_BOUNDS,
    Durations,
    FetchedRun,
    Position,
    RequestEnd,
    RequestState,
    quick,
)

REMEMBER_SECONDS: Final = 600.0
REMEMBER_MAX: Final = 100_000
"""Ends that are remembered; with more, the oldest are forgotten."""
OVERHEAD_BYTES: Final = 400
"""What an outcome takes beside its value and its text."""


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
    """A request has ended; `publisher` is who has made it."""

    publisher: bytes
    outcome: RequestEnd


class OutcomeStore:
    """What has become of requests, by where they stand in the log.

    Attributes:
        bytes: what the stored outcomes take.
        unfetched: how long outcomes were stored that were fetched.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.unfetched = DurationMeter()
        self._stored: dict[Position, RequestEnd] = {}
        self._lives: deque[tuple[float, Position, RequestEnd]] = deque()
        """When each outcome is over; with those that were fetched."""
        self._remembered: OrderedDict[Position, tuple[float, RequestState]] = OrderedDict()
        self._new: list[RequestEnd] = []
        self._known: list[Known] = []
        """What has come since `take_changes`, and of what only the state is known since then."""
        self._noting = True

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[RequestEnd]:
        return iter(self._stored.values())

    def get(self, position: Position) -> RequestEnd | None:
        """The outcome that is stored here; None: there is none."""
        return self._stored.get(position)

    def remembered(self, position: Position) -> RequestState | None:
        """What became of an outcome that is not stored any more; None: that is not known."""
        found = self._remembered.get(position)
        return None if found is None else found[1]

    def known(self) -> list[Known]:
        """All that is remembered."""
        return [Known(position, state) for position, (_, state) in self._remembered.items()]

    def fits(self, value: bytes, text: str, most: int) -> bool:
        """Whether an outcome finds room among so many bytes."""
        return self.bytes + OVERHEAD_BYTES + len(value) + len(text) <= most

    def put(
        self, outcome: RequestEnd, until: float, position: Position | None = None, *,
        again: bool = False,
    ) -> None:  # fmt: skip
        """Keep this one until then; one that is here already stays as it is.

        Args:
            position: its own, if who calls has it.
            again: the request may have run again since: of two ends the later one counts.
        """
        position = position or _place(outcome)
        if again:
            self.reopen(position)
        self.keep(outcome, until, sys.maxsize, position)

    def keep(self, outcome: RequestEnd, until: float, most: int, position: Position) -> bool:
        """As `put`, if all that is here has so many bytes at most then; False: nothing is done."""
        size = OVERHEAD_BYTES + len(outcome.value) + len(outcome.text)
        if self.bytes + size > most:
            return False
        if position not in self._stored:
            self._stored[position] = outcome
            self._lives.append((until, position, outcome))
            if self._noting:
                self._new.append(outcome)
            self.bytes += size
        return True

    def reopen(self, position: Position) -> None:
        """The request is open again: nothing is known of how it has ended."""
        outcome = self._stored.pop(position, None)
        self.bytes -= 0 if outcome is None else _size(outcome)
        self._remembered.pop(position, None)

    def run_again(self, position: Position, now: float) -> None:
        """The request was published once more, and is open again when that was looked at."""
        self.reopen(position)
        self.put_state(position, RequestState.ACCEPTED, now)

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
        stored, remembered, known = self._stored, self._remembered, self._known
        memory = now + REMEMBER_SECONDS, RequestState.RETRIEVED
        count = ended_us = alike = 0
        positions = [
            quick(Position, (offset, index))
            for offset, first, length in runs
            for index in range(first, first + length)
        ]
        for position in positions:
            outcome = stored.pop(position, None)
            if outcome is None:
                continue
            count += 1
            self.bytes -= OVERHEAD_BYTES + len(outcome.value) + len(outcome.text)
            if remembered.pop(position, None) is None and len(remembered) >= REMEMBER_MAX:
                remembered.popitem(last=False)
            remembered[position] = memory
            if self._noting:
                known.append(quick(Known, (position, RequestState.RETRIEVED)))
            if outcome.ended_us != ended_us:  # those that were answered together are alike
                self._note_unfetched(ended_us, time_us, alike)
                ended_us, alike = outcome.ended_us, 0
            alike += 1
        self._note_unfetched(ended_us, time_us, alike)
        return count

    def _note_unfetched(self, ended_us: int, time_us: int, count: int) -> None:
        if time_us and count:
            self.unfetched.note(max(0.0, (time_us - ended_us) / 1_000_000), count)

    def put_state(self, position: Position, state: RequestState, now: float) -> None:
        """A request has ended in this way, or runs again; more is not kept of it."""
        self.note(position, state, now)
        if self._noting:
            self._known.append(Known(position, state))

    def note(self, position: Position, state: RequestState, now: float) -> None:
        """A request has ended in this way, and nobody wants to fetch that."""
        self._remembered.pop(position, None)
        self._remembered[position] = now + REMEMBER_SECONDS, state
        if len(self._remembered) > REMEMBER_MAX:
            self._remembered.popitem(last=False)

    def pass_time(self, now: float) -> int:
        """What is over by now goes; how many outcomes nobody has fetched."""
        lost = 0
        while self._lives and self._lives[0][0] <= now:
            _, position, outcome = self._lives.popleft()
            if self._stored.get(position) is outcome:
                self._drop(position, RequestState.EXPIRED, now)
                lost += 1
        while self._remembered and next(iter(self._remembered.values()))[0] <= now:
            self._remembered.popitem(last=False)
        if len(self._lives) > 2 * len(self._stored) + REMEMBER_MAX:
            self._lives = deque(e for e in self._lives if self._stored.get(e[1]) is e[2])
        return lost

    def retime(self, until: Callable[[RequestEnd], float]) -> None:
        """From now on each outcome is kept so long."""
        self._lives = deque(
            sorted(
                ((until(each), position, each) for position, each in self._stored.items()),
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
        come = [each for each in self._new if self._stored.get(_place(each)) is each]
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
            self.note(*known, now)

    def check(self) -> None:
        """Assert the invariants."""
        assert self.bytes == sum(map(_size, self._stored.values()))  # noqa: S101
        assert len(self._remembered) <= REMEMBER_MAX  # noqa: S101
        assert all(_place(each) == at for at, each in self._stored.items())  # noqa: S101

    def _drop(self, position: Position, state: RequestState, now: float) -> bool:
        outcome = self._stored.pop(position, None)
        if outcome is None:
            return False
        self.bytes -= _size(outcome)
        self.put_state(position, state, now)
        return True


def _place(outcome: RequestEnd) -> Position:
    return Position(outcome.offset, outcome.index)


def _size(outcome: RequestEnd) -> int:
    return OVERHEAD_BYTES + len(outcome.value) + len(outcome.text)
