"""Until when a policy that has nothing to do need not be asked.

A policy is a pure function, so as long as nothing changes but the time it can be asked about the
future: shown the same queue an hour later. If it decides nothing then, it would have decided
nothing in between, because what policies wait for (cool-downs, rests, patience) ends and does not
begin again by itself. If it does, the first such period is found by halving.

That holds when its memory does not change either. One that counts rounds for ever is taken for
settled after `ROUNDS_MAX` of them.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Final

import msgspec

from roq.policy.balanced import PHASE_ROUNDS_MAX
from roq.policy.snapshot import Memory, Policy, QueueView
from roq.simulation.forecast.tally import Tally

HORIZON_SECONDS: Final = 3_600.0
ROUNDS_MAX: Final = PHASE_ROUNDS_MAX + 10


class Waiting:
    """One policy and one queue.

    Args:
        policy: decides.
        period: seconds between two rounds.
        late: by which a round may be later than that.
        tally: counts how often it is asked about the future.
    """

    def __init__(self, policy: Policy, period: float, late: float, tally: Tally) -> None:
        self._policy = policy
        self._period = period
        self._late = late
        self._seen: object = None
        self._rounds = 0
        self._until = -inf
        self._tally = tally

    def needless(self, seen: object, now: float) -> bool:
        """Whether it need not be asked now.

        Args:
            seen: all that it would be shown but the time.
            now: the present time.
        """
        return seen == self._seen and now < self._until

    @property
    def until(self) -> float:
        """When it is to be asked again if nothing changes; infinite: never."""
        return self._until

    def disturbed(self) -> None:
        """It has decided something, or is another one: ask it again."""
        self._seen, self._rounds, self._until = None, 0, -inf

    def quiet(self, seen: object, view: QueueView, before: Memory, after: Memory) -> None:
        """It was asked and has decided nothing."""
        self._rounds = self._rounds + 1 if seen == self._seen else 1
        self._seen = seen
        self._until = -inf
        settled = before.marks == after.marks or self._rounds > ROUNDS_MAX
        if settled and self._rounds > 1:  # what has just changed will change on
            self._until = self._first_decision(view, after)

    def _first_decision(self, view: QueueView, memory: Memory) -> float:
        last = ceil(HORIZON_SECONDS / self._period)
        if not self._decides(view, memory, last):
            return inf
        none, step = 0, 1
        while none + step < last and not self._decides(view, memory, none + step):
            none, step = none + step, 2 * step  # most waits are short
        last = min(last, none + step)
        while last - none > 1:
            middle = (none + last) // 2
            if self._decides(view, memory, middle):
                last = middle
            else:
                none = middle
        # Half a period earlier: the round of that period, whatever rounding makes of it.
        return view.now + (last - 0.5) * self._period

    def _decides(self, view: QueueView, memory: Memory, periods: int) -> bool:
        self._tally.asked_ahead += 1
        later = msgspec.structs.replace(view, now=view.now + periods * self._period + self._late)
        return bool(self._policy.decide(later, memory)[0])
