"""Overloads that nothing helps: nobody tries, or after some rounds not any more.

A load far above what all exchanges that the queue may have can take says that the limit is not that
of these exchanges. To add some and to spread publishers over them would cost everybody something
and bring nobody below the limit, so such a load is out of reach from the first round on.

Where an exchange stays overloaded because the queue may not grow, noise makes this or that move
look just worth it once in a while. So what every exchange carries is remembered when nothing has
helped for some rounds, and as long as all of them stay near that, publishers are left in peace.
"""

from __future__ import annotations

from typing import Final

from roq.policy.loads import Loads
from roq.policy.marks import Marks
from roq.policy.snapshot import QueueView

REACH: Final = 4.0
"""A load above so many times what the most exchanges may take together is out of reach."""
RESIGN_HITS: Final = 5
"""Rounds in a row in which there was an overload and no move that helped."""
CHANGE: Final = 0.12
"""A load that has changed by more than this part is another one; noise of 5 % stays below."""
CHANGE_MIN: Final = 0.01
"""The same, as a part of the limit."""

_STUCK: Final = "hits hopeless"
_RESIGNED: Final = "resigned "


def is_out_of_reach(view: QueueView) -> bool:
    """Whether the limit would be far exceeded even with all exchanges that there may be."""
    accepting = [each.throughput for each in view.exchanges if each.accepting]
    most = max(len(accepting), view.rules.exchanges_max)
    return sum(accepting) > REACH * most * view.limit


def is_resigned(marks: Marks, loads: Loads) -> bool:
    """Whether nothing has helped lately, and everything is as it was then."""
    names = marks.named(_RESIGNED)
    if not names:
        return False
    before = {int(name.removeprefix(_RESIGNED)): marks.get(name) for name in names}
    margin = CHANGE_MIN * loads.limit
    same = before.keys() == loads.load.keys() and all(
        abs(load - before[number]) <= CHANGE * before[number] + margin
        for number, load in loads.load.items()
    )
    if not same:
        marks.drop(*names)
    return same


def count_round(marks: Marks, loads: Loads, hopeless: bool) -> None:
    """Note whether an overload was left in this round without anything being done about it."""
    if marks.hit(_STUCK, hopeless) >= RESIGN_HITS:
        marks.drop(_STUCK)
        for number, load in loads.load.items():
            marks.put(f"{_RESIGNED}{number}", load)
