"""Plays the steps of a plan on a environment, and says after each what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

import msgspec

from roq.errors import RoQError
from roq.simulation.experiments.chaos.change import Change
from roq.simulation.experiments.chaos.environment import Environment
from roq.simulation.experiments.chaos.faults import FAULTS, Happening, NobodyThere
from roq.simulation.experiments.chaos.logs import LogWatch
from roq.simulation.experiments.chaos.plan import Draw, Step
from roq.simulation.real.judge import Tally

WHOLE_SECONDS: Final = 40.0
"""After everything is healed the cluster has so long to be whole again."""
SLOW_SECONDS: Final = 5.0
"""What takes longer is explained."""
CAUGHT_UP_SECONDS: Final = 15.0
"""When it is whole, subscribers have so long to get what was acknowledged by then."""
ANSWERED_SECONDS: Final = 25.0
"""Or so long, if there are requests: their time has to pass, and that of a second question."""


class Outcome(msgspec.Struct, kw_only=True):
    """What came of one step."""

    number: int
    began: float
    """Seconds from the beginning of the run."""
    faults: list[str]
    """What happened to whom, and for how long."""
    kinds: list[str]
    changed: bool
    """A program has created a queue meanwhile."""
    waited_for: str
    """The last thing that kept the cluster from being whole."""
    whole_seconds: float | None
    """From the end of the last fault until the cluster was whole; None: it was not in time."""
    caught_up_seconds: float | None
    """From then on until subscribers had everything; None: they had not in time."""
    slowest_publish: float
    """The longest `publish()` meanwhile, seconds."""
    counted_lost: int
    """Messages that subscribers have reported as lost."""
    violations: list[str]


class _Active:
    """A fault that happens."""

    def __init__(self, draw: Draw, happening: Happening, hit: str, began: float) -> None:
        self.draw = draw
        self.hit = hit
        self.ends = began + draw.seconds
        self._happening = happening

    def heal(self) -> None:
        """End it."""
        with suppress(StopIteration):
            next(self._happening)

    def __str__(self) -> str:
        lasting = f" for {self.draw.seconds:.1f} s" if self.draw.seconds else ""
        return f"{self.draw.kind} {self.hit}{lasting}"


class Player:
    """One run.

    Args:
        say: called with a line for people at each fault and each end of a step.
        patience: so many times as long as promised may everything take.
    """

    def __init__(
        self, environment: Environment, say: Callable[[str], None], patience: float = 1.0
    ) -> None:
        self._environment = environment
        self._say = say
        self._patience = patience
        self._began = time.monotonic()
        self._change: Change | None = None
        self._words = LogWatch(environment.machines.folder)
        self._durable = all(wish.durable for wish in environment.wishes)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def play(self, step: Step) -> Outcome:
        """Let everything of a step happen, heal it, and look at what is left."""
        environment, judge = self._environment, self._environment.workers.judge
        environment.rest(step.calm)
        began, before = self.elapsed, replace(judge.tally)
        happened = list(self._happen(step))
        healed = time.monotonic()
        change, self._change = self._change, None
        violations = [
            f"not whole: {each}" for each in environment.whole(WHOLE_SECONDS * self._patience)
        ]
        whole = None if violations else time.monotonic() - healed
        waited_for = environment.last_complaint
        if change is not None:
            violations += change.settle()
        looked = time.monotonic()
        late = self._behind(happened)
        caught_up = None if late else time.monotonic() - looked
        violations += [f"forever behind: {each}" for each in late]
        judge.check()
        violations += self._judged(happened, before)
        violations += self._words.look()
        violations += environment.parts.take_crashes()
        outcome = Outcome(
            number=step.number,
            began=round(began, 2),
            faults=[str(each) for each in happened],
            kinds=[each.draw.kind for each in happened],
            changed=change is not None,
            whole_seconds=whole,
            waited_for=waited_for,
            caught_up_seconds=caught_up,
            slowest_publish=judge.take_slowest(),
            counted_lost=judge.tally.counted_lost - before.counted_lost,
            violations=violations,
        )
        self._say(_line(outcome))
        return outcome

    def _happen(self, step: Step) -> Iterator[_Active]:
        """Begin and heal the faults of a step, each in its time."""
        environment, began = self._environment, time.monotonic()
        waiting = sorted(step.draws, key=lambda draw: draw.after)
        active: list[_Active] = []
        change_at = None if step.change_after is None else began + step.change_after
        while waiting or active or change_at is not None:
            environment.tend()
            now = time.monotonic()
            if change_at is not None and now >= change_at:
                change_at = None
                self._change = Change(environment, f"extra-{step.number}", self._patience)
                self._say(f"{self.elapsed:7.1f} s  queue extra-{step.number} is created")
            if waiting and now >= began + waiting[0].after:
                draw = waiting.pop(0)
                begun = self._begin(draw)
                if begun is not None:
                    active.append(begun)
                    yield begun
            for each in [each for each in active if each.ends <= now]:
                active.remove(each)
                each.heal()
            environment.rest(0.02)

    def _begin(self, draw: Draw) -> _Active | None:
        happening = FAULTS[draw.kind].happen(self._environment, draw)
        try:
            hit = next(happening)
        except NobodyThere:
            self._say(f"{self.elapsed:7.1f} s  {draw.kind}: no such process is there")
            return None
        except RoQError as error:
            self._say(f"{self.elapsed:7.1f} s  {draw.kind}: no such process can be found: {error}")
            return None
        active = _Active(draw, happening, hit, time.monotonic())
        self._say(f"{self.elapsed:7.1f} s  {active}")
        return active

    def _behind(self, happened: list[_Active]) -> list[str]:
        """Subscribers that do not get what was acknowledged by now; waits for them."""
        judge = self._environment.workers.judge
        # What a dead publisher had acknowledged may have died with an exchange, too.
        forgotten = any(FAULTS[each.draw.kind].forgets for each in happened) and not self._durable
        marks, now = judge.acked(ended=not forgotten), time.monotonic()

        def caught_up() -> bool:
            return not (judge.behind(marks) or judge.undone(marks) or judge.unanswered(now))

        seconds = ANSWERED_SECONDS if judge.requests else CAUGHT_UP_SECONDS
        self._environment.until(caught_up, seconds * self._patience)
        undone = [] if self._may_lose(happened) else judge.undone(marks)
        judge.give_up(marks)
        return judge.behind(marks) + undone + judge.unanswered(now)

    def _judged(self, happened: list[_Active], before: Tally) -> list[str]:
        """What the judge has found that must not be."""
        judge = self._environment.workers.judge
        findings, judge.findings = judge.findings, []
        lost = judge.tally.counted_lost - before.counted_lost
        if self._durable:
            return [*findings, f"{lost} messages of durable queues are lost"] if lost else findings
        if judge.tally.violations == before.violations and self._may_lose(happened):
            return []
        return findings

    def _may_lose(self, happened: list[_Active]) -> bool:
        """Beyond the replay allowance messages may be lost with an exchange; they are counted."""
        faults = [FAULTS[each.draw.kind] for each in happened]
        lost = any(each.forgets for each in faults) and any(each.deafens for each in faults)
        return lost and not self._durable


def _line(outcome: Outcome) -> str:
    if outcome.violations:
        return "\n".join(f"           ✘ {each}" for each in outcome.violations)
    slow = f" ({outcome.waited_for})" if (outcome.whole_seconds or 0) > SLOW_SECONDS else ""
    lost = f", {outcome.counted_lost} counted as lost" if outcome.counted_lost else ""
    return (
        f"           ✔ whole after {outcome.whole_seconds:.1f} s{slow}, all arrived "
        f"{outcome.caught_up_seconds:.1f} s later, slowest publish() "
        f"{1_000 * outcome.slowest_publish:.0f} ms{lost}"
    )
