"""Overloaded exchanges: publishers leave them for exchanges with room.

An exchange is overloaded above 1.10 L. As in the known algorithm a publisher goes to the exchange
with the lowest load, if that stays below 0.90 L, or else if both even out by it; but as many go in
one round as it takes to come down to L, and those that leave the two most even go first.

Evening out counts only if all exchanges that take part end at least 10 % below what the overloaded
one had. Rates that are known to 5 % then cannot make a move look good that is not, so each one
lowers the true peak of those exchanges, and publishers never go in circles.

Where nothing helps, nobody tries, or after some rounds not any more. A load far above what all
exchanges that the queue may have can take says that the limit is not that of these exchanges. To
add some and to spread publishers over them would cost everybody something and bring nobody below
the limit, so such a load is out of reach from the first round on. Where an exchange stays
overloaded because the queue may not grow, noise makes this or that move look just worth it once in
a while. So what every exchange carries is remembered when nothing has helped for some rounds, and
as long as all of them stay near that, publishers are left in peace.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Final

from roq.model import PublisherId, exchange_name
from roq.policy.growth import CLEAR
from roq.policy.known import FULL, GAIN, OVERLOAD
from roq.policy.loads import IMPROVEMENT, Loads
from roq.policy.memory import Marks
from roq.policy.snapshot import QueueView

RELIEVED: Final = 1.00
"""Publishers leave an overloaded exchange until it is at so much of its limit."""
GAIN_MIN: Final = 0.10
"""What evening out must take off the peak, as a part of it."""
NOISE: Final = 1.08
"""The last period over the mean, up to which nothing has happened."""
FLICKER_HITS: Final = 3
REACH: Final = 4.0
"""A load above so many times what the most exchanges may take together is out of reach."""
RESIGN_HITS: Final = 5
"""Rounds in a row in which there was an overload and no move that helped."""
CHANGE: Final = 0.12
"""A load that has changed by more than this part is another one; noise of 5 % stays below."""
CHANGE_MIN: Final = 0.01
"""The same, as a part of the limit."""

_FLICKER: Final = "hits flicker "
_STUCK: Final = "hits hopeless"
_RESIGNED: Final = "resigned "


def overloaded(loads: Loads, besides: Collection[int] = ()) -> dict[int, float]:
    """Exchanges above what they can take, the worst first, with their load."""
    most = OVERLOAD * loads.limit
    found = {n: load for n, load in loads.load.items() if load > most and n not in besides}
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def flickering(view: QueueView, marks: Marks) -> set[int]:
    """Exchanges that are above 1.10 L by so little, or so briefly, that it may be noise.

    That is so if the mean of the window is below 1.10 L and the last period not far above the mean.
    In the third round in a row it counts all the same.
    """
    most = OVERLOAD * view.limit
    names, found = [], set()
    for each in view.exchanges:
        name = f"{_FLICKER}{each.number}"
        near = each.mean <= most < each.throughput <= min(CLEAR * view.limit, NOISE * each.mean)
        if marks.hit(name, near):
            names.append(name)
        if 0 < marks.get(name) < FLICKER_HITS:
            found.add(each.number)
    marks.keep(_FLICKER, names)
    return found


def relieve(loads: Loads, source: int, moves_max: int, *, hasty: bool = False) -> int:
    """Send publishers of an overloaded exchange elsewhere; says how many.

    Args:
        loads: what is decided so far; gets these moves as well.
        source: the overloaded exchange.
        moves_max: no more than so many.
        hasty: only where there is room; nothing is evened out.
    """
    shown = f"{exchange_name(source)} carries {loads.load[source] / loads.limit:.0%} of its limit"
    done = _fill_others(loads, source, moves_max, f"overload: {shown}")
    if not hasty and loads.load[source] > OVERLOAD * loads.limit and done < moves_max:
        done += _even_out(loads, source, moves_max - done, f"load optimisation: {shown}")
    return done


def most_even(
    loads: Loads, source: int, target: int, below: float, *, hasty: bool = False
) -> PublisherId | None:
    """The publisher whose move leaves the lower peak of the two, the target staying `below`.

    Of several it is the busiest; then the lowest id, so that the same view gives the same answer.
    Publishers that rest are taken only if it is `hasty`.
    """
    here, there = loads.load[source], loads.load[target]
    lowest = inf
    best: tuple[float, PublisherId] | None = None
    for publisher, rate in loads.movable(source, hasty=hasty).items():
        left, grown = here - rate, there + rate
        if grown < below:
            peak = max(left, grown)
            if peak > lowest:
                continue
            key = (-rate, publisher)
            if best is None or peak < lowest or key < best:
                lowest, best = peak, key
    return best[1] if best is not None else None


def _fill_others(loads: Loads, source: int, moves_max: int, reason: str) -> int:
    done = 0
    while loads.load[source] > RELIEVED * loads.limit and done < moves_max:
        target = loads.lowest({source})
        if target is None:
            break
        publisher = most_even(loads, source, target, FULL * loads.limit, hasty=True)
        if publisher is None:
            break
        loads.move(publisher, source, target, reason)
        done += 1
    return done


def _even_out(loads: Loads, source: int, moves_max: int, reason: str) -> int:
    trial = loads.trial()
    before = trial.load[source]
    touched = {source}
    done = 0
    while done < moves_max:
        here = trial.load[source]
        target = trial.lowest({source})
        if target is None or here - trial.load[target] <= GAIN * here:
            break
        publisher = most_even(trial, source, target, here * (1 - IMPROVEMENT))
        if publisher is None:
            break
        trial.move(publisher, source, target, reason)
        touched.add(target)
        done += 1
    if max(trial.load[number] for number in touched) > (1 - GAIN_MIN) * before:
        return 0
    loads.adopt(trial)
    return done


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
