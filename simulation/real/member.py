"""A member of a consumer group at work: it holds messages for a moment, and acknowledges most; it
writes down by which leases it holds them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from random import Random
from typing import Final

from roq.client.consume.holding import ACKED, KEPT, LOST, OPEN, RETURNED, TOLD, Holding
from roq.client.consume.message import ConsumedBatch
from roq.errors import LeaseLost
from roq.model import LogId
from roq.protocol.consuming import Run
from roq.simulation.real.journal import Lease, LeaseState, Written

WORK_SECONDS: Final = (0.0, 0.02)
WORK_SHARE: Final = 0.1
"""The part of the batches that it works on for so long; with the others it is done at once."""
BACK_SHARE: Final = 0.003
"""The part that it gives back; in an exclusive group all others wait for that."""
_OPEN_STATES: Final = frozenset({OPEN, ACKED, TOLD, RETURNED})
"""Something more is to come of these."""


class Taken:
    """Messages that the member has begun, and by which leases it has said that it holds them."""

    def __init__(self, holding: Holding, index: int, count: int) -> None:
        self.holding = holding
        self.index = index
        self.count = count
        self.leases: set[int] = set()

    @property
    def over(self) -> bool:
        """Whether it is known what has become of all of them."""
        states = self.holding.states[self.index : self.index + self.count]
        return _OPEN_STATES.isdisjoint(states)

    def pieces(self, begin: int, count: int) -> list[tuple[int, int, int]]:
        """By which leases these are held: (lease, index in the holding, how many)."""
        holding = self.holding
        run = Run(holding.offset, holding.first + begin, count)
        found = holding.leases_of(run)
        return [(lease, first - holding.first, length) for lease, first, length in found]


class Member:
    """Works, and writes it down.

    Args:
        journal: where it is written.
        chance: draws how long it works, and what it gives back.
        reads: whether the member is at the exchange with this log.
    """

    def __init__(self, journal: Written, chance: Random, reads: Callable[[LogId], bool]) -> None:
        self._journal = journal
        self._reads = reads
        self._chance = chance
        self._taken: list[Taken] = []

    def begin(self, batch: ConsumedBatch) -> float:
        """Take a batch; gives for how long it is worked on."""
        taken = Taken(batch._holding, batch._index, len(batch))  # noqa: SLF001
        self._taken.append(taken)
        self._note_leases(taken, "held")
        works = self._chance.random() < WORK_SHARE
        return self._chance.uniform(*WORK_SECONDS) if works else 0.0

    def end(self, batch: ConsumedBatch) -> None:
        """The work is done, or to be done again: told to the journal first."""
        back = self._chance.random() < BACK_SHARE
        taken = self._taken[-1]
        self._note(taken, "back" if back else "acked", 0, taken.index, taken.count)
        with suppress(LeaseLost):  # `look` sees what was
            if back:
                batch.nack(reason="chance")
            else:
                batch.ack()

    def look(self) -> None:
        """Write down what is known by now of what it has taken."""
        every, self._taken = self._taken, []
        for taken in every:
            self._note_leases(taken, "resumed")
            if taken.over:  # asked once: the I/O thread goes on meanwhile
                self._note_end(taken)
            else:
                self._taken.append(taken)

    def _note_leases(self, taken: Taken, state: LeaseState) -> None:
        """Leases that are new: those by which they came, or by which they are held again."""
        for lease, index, count in taken.pieces(taken.index, taken.count):
            if lease not in taken.leases:
                taken.leases.add(lease)
                self._note(taken, state, lease, index, count)

    def _note_end(self, taken: Taken) -> None:
        """What is confirmed, and by which lease; and what is another one's."""
        begin, end = taken.index, taken.index + taken.count
        leases = {
            at: lease
            for lease, index, count in taken.pieces(begin, taken.count)
            for at in range(index, index + count)
        }
        states = taken.holding.states
        for (state, lease), group in groupby(
            range(begin, end), key=lambda at: (states[at], leases.get(at, 0))
        ):
            every = list(group)
            word: LeaseState = "lost" if self._reads(taken.holding.log) else "cut"
            if state in {KEPT, LOST}:
                self._note(taken, "kept" if state == KEPT else word, lease, every[0], len(every))

    def _note(self, taken: Taken, state: LeaseState, lease: int, index: int, count: int) -> None:
        holding = taken.holding
        self._journal.write(
            Lease(
                time.monotonic(), state, str(holding.log), holding.offset, holding.first + index,
                count, lease, holding.batch.publisher.hex(), holding.batch.sequence + index,
            )
        )  # fmt: skip
