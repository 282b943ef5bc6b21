"""The policy "balanced", RoQ's default: keeps exchanges below their limit with as few as it takes.

One round, in this order:

1. **Overload.** An exchange above 1.10 L hands publishers on until it is at L (`relief`); one that
   a single publisher overloads has it spread over several (`striping`). At once, on the first
   report that shows it.
2. **Rebalancing**, for a while after exchanges have come or gone: until the busiest has at most
   1.25 times the mean, or nothing takes 5 % off it (`rebalance`).
3. **Growth**, if an exchange stays overloaded by all that, or another rule is broken (`growth`).
4. **Shrinking**, if the rest can carry everything under 70 % for some time (`shrinking`).

A load that is out of reach of all exchanges that the rules allow (`relief`) is left alone.

Exchanges that have taken part in a move are left alone until reports tell what has become of it,
and nobody is moved to even things out while there are such exchanges. A publisher that was moved
rests for five seconds; only an overload moves it again before that. By steady load, noise of 5 %
included, and with a fixed set of exchanges all moves are made within `ROUNDS_TO_REST` rounds, and
none after.
"""

from __future__ import annotations

from typing import Final

from roq.model import PublisherId
from roq.policy.growth import BYTES_PER_MB, may_grow, needed, reason_to_grow, watch_exchanges
from roq.policy.known import OVERLOAD
from roq.policy.loads import Loads
from roq.policy.memory import Marks
from roq.policy.rebalance import BALANCED, CLEARLY_UNBALANCED, TARGET, plan
from roq.policy.relief import (
    count_round,
    flickering,
    is_out_of_reach,
    is_resigned,
    overloaded,
    relieve,
)
from roq.policy.shrinking import regret, shrink
from roq.policy.snapshot import Decision, Grow, Memory, QueueView, Shrink
from roq.policy.striping import gather, spread, too_big

MOVES_MAX: Final = 256
"""Publishers that are moved in one round."""
SETTLE_ROUNDS: Final = 1
"""Rounds after a move in which reports may still be about the time before it."""
SETTLE_ROUNDS_MAX: Final = 6
"""So many if a publisher is still on its way."""
REST_SECONDS: Final = 5.0
COLD: Final = 0.10
"""Below this part of the limit an exchange's load says nothing; it is not rebalanced."""
BALANCED_HITS: Final = 2
UNBALANCED_HITS: Final = 2
STUCK_HITS: Final = 3
PHASE_ROUNDS_MAX: Final = 30
"""Rounds with load after which rebalancing ends in any case."""
ROUNDS_TO_REST: Final = 20
"""Rounds after a change of load or exchanges within which the last publisher is moved, for up to
as many publishers of an exchange as its report lists; each further list takes three rounds more."""

UNKNOWN_SECONDS: Final = 3.0
"""So long a new exchange may have publishers without any report telling what they bring."""

_PHASE: Final = "rebalancing"
_BALANCED: Final = "hits balanced"
_UNBALANCED: Final = "hits unbalanced"
_STUCK: Final = "hits stuck"
_SETTLING: Final = "settling "
_MOVED: Final = "moved "


class Balanced:
    """Overloads at once, evenness after a scale event, growth and shrinking by all rules."""

    def decide(self, view: QueueView, memory: Memory) -> tuple[list[Decision], Memory]:
        """The decisions of one round; see the module."""
        marks = Marks(memory, view.now)
        changed = watch_exchanges(marks, view)
        if changed:
            _end_phase(marks)
            marks.put(_PHASE, 0)
            # Where they were moved to was the best of other exchanges.
            marks.keep(_MOVED, ())
            marks.keep(_SETTLING, ())
        resting = _resting(marks)
        settling = _settling(marks, view, resting)
        unknown = _unknown(view)
        loads = Loads(view, avoid=unknown | _crowded(view), resting=resting)

        resigned = is_out_of_reach(view) or is_resigned(marks, loads)
        flickers = flickering(view, marks)
        if not resigned:
            _relieve(view, loads, settling, flickers)
        if not settling:
            gather(view, loads, marks)
            if not unknown:
                _rebalance(loads, marks, changed=changed and bool(memory.marks))
        stuck = overloaded(loads, flickers)
        moves = loads.decisions()
        for move in moves:
            marks.start(_MOVED + move.publisher.hex())
        for number in loads.touched:
            marks.put(f"{_SETTLING}{number}", 0)
        quiet = not settling and not moves
        count_round(marks, loads, bool(stuck) and quiet and not resigned)
        hopeless = bool(settling) or is_out_of_reach(view)
        return [*moves, *_scale(view, marks, {} if hopeless else stuck, quiet)], marks.memory()


def _relieve(view: QueueView, loads: Loads, settling: set[int], flickers: set[int]) -> None:
    """Relieve overloaded exchanges as far as others can help."""
    for number in overloaded(loads, settling | flickers):
        publisher = too_big(view, loads, number)
        if publisher is not None and publisher.id not in loads.resting:
            spread(view, loads, publisher)
        if loads.load[number] > OVERLOAD * loads.limit:
            relieve(loads, number, MOVES_MAX, hasty=bool(settling))


def _rebalance(loads: Loads, marks: Marks, *, changed: bool) -> None:
    """One round of the phase after a scale event.

    Args:
        changed: in this round others take publishers than in the one before: what is uneven by
            that is no noise.
    """
    if _PHASE not in marks or loads.peak <= COLD * loads.limit:
        return  # a phase waits until there is load
    rounds = marks.get(_PHASE) + 1
    marks.put(_PHASE, rounds)
    balanced = loads.imbalance <= BALANCED and not loads.touched
    hits = marks.hit(_UNBALANCED, loads.imbalance > BALANCED)
    over = marks.hit(_BALANCED, balanced) >= BALANCED_HITS or rounds > PHASE_ROUNDS_MAX
    clear = changed or loads.imbalance > CLEARLY_UNBALANCED or bool(loads.touched)
    bearable = TARGET if loads.touched else BALANCED  # who moves anyway moves to where he can stay
    if loads.imbalance > bearable and (hits >= UNBALANCED_HITS or clear):
        better = plan(loads, MOVES_MAX)
        # While some rest, it may be they who are in the way.
        hopeless = better is None and not loads.resting
        over = over or marks.hit(_STUCK, hopeless) >= STUCK_HITS
        if better is not None:
            loads.adopt(better)
    if over:
        _end_phase(marks)


def _scale(
    view: QueueView, marks: Marks, stuck: dict[int, float], quiet: bool
) -> list[Grow | Shrink]:
    """Growth or shrinking, never both."""
    reason = reason_to_grow(marks, view, stuck)
    if reason:
        if not may_grow(marks, view):
            return []
        regret(marks)
        return [Grow(reason, needed(view))]
    spare = shrink(marks, view, quiet)
    return [spare] if spare is not None else []


def _settling(marks: Marks, view: QueueView, resting: set[PublisherId]) -> set[int]:
    """Exchanges whose reports may still be about the time before a move; counts the round."""
    names = marks.named(_SETTLING)
    moving = bool(names and resting) and any(
        publisher.moving and publisher.id in resting
        for each in view.exchanges
        for publisher in each.top
    )
    found = set()
    for name in names:
        rounds = marks.get(name) + 1
        if rounds > SETTLE_ROUNDS_MAX or (rounds > SETTLE_ROUNDS and not moving):
            marks.drop(name)
        else:
            marks.put(name, rounds)
            found.add(int(name.removeprefix(_SETTLING)))
    return found


def _end_phase(marks: Marks) -> None:
    marks.drop(_PHASE, _BALANCED, _UNBALANCED, _STUCK)


def _resting(marks: Marks) -> set[PublisherId]:
    """Publishers that were moved a moment ago; forgets the others."""
    found = set()
    for name in marks.named(_MOVED):
        if marks.since(name) < REST_SECONDS:
            found.add(PublisherId(bytes.fromhex(name.removeprefix(_MOVED))))
        else:
            marks.drop(name)
    return found


def _unknown(view: QueueView) -> set[int]:
    """Exchanges with publishers of which no report has told yet what they bring."""
    return {
        each.number
        for each in view.exchanges
        if each.publishers and not each.throughput and each.age < UNKNOWN_SECONDS
    }


def _crowded(view: QueueView) -> set[int]:
    """Exchanges on hosts that a rule says are full."""
    rules = view.rules
    full = {
        host.host
        for host in view.hosts
        if 0 < rules.host_cpu_percent < host.cpu_percent
        or 0 < rules.host_memory_mb * BYTES_PER_MB < host.memory_used_bytes
    }
    return {each.number for each in view.exchanges if each.host in full}
