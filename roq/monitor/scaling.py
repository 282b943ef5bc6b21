"""Exchanges more and exchanges less: what is asked of the leading configuration manager.

`PHASES` says how far one may be; docs/states.md draws it.

Several may come at once, or one may go. Whatever fails is told on the statistics stream and tried
again no sooner than after a pause that doubles each time. A request of which nobody knows what
became of it is asked again under the same transaction, so there is never one exchange too many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from roq.errors import Busy, Interrupted, NotLeader, RegistryAway, Unavailable
from roq.machine import Transitions
from roq.model import exchange_name
from roq.monitor.events import Ask, Effect
from roq.monitor.statistics_events import StatisticsEvents
from roq.protocol.control import Answer, Done, Failure, GcmRequest, ScaledOut, ScaleIn, ScaleOut
from roq.runtime.backoff import longest_wait
from roq.timing import SCALE_ASKS_SECONDS

ARRIVAL_SECONDS: Final = 10.0
"""A new exchange reports within this, or it counts as failed."""
PAUSE_SECONDS: Final = 5.0
PAUSE_MAX_SECONDS: Final = 60.0
STOP_TRIES: Final = 5
"""How often it is asked that an emptied exchange be stopped."""
PASSING: Final = {
    "unavailable", NotLeader.code, RegistryAway.code, Interrupted.code, Busy.code
}  # fmt: skip
"""Codes of refusals that say nothing about the request; all others are final."""
REASON_MAX: Final = 300

Asker = Callable[[GcmRequest, float], Ask]
"""Gives the effect that asks, with a serial of its own, and a deadline in seconds."""


class Phase(Enum):
    """How far an operation is."""

    ASKED = auto()
    ARRIVING = auto()
    EMPTYING = auto()
    PAUSING = auto()
    """The exchange is empty, but could not be stopped; it is asked again."""


PHASES: Final = Transitions(
    begin={Phase.ASKED: "one more is wanted", Phase.EMPTYING: "one less is wanted"},
    follow={
        Phase.ASKED: {
            Phase.ARRIVING: "one more: ScaledOut",
            Phase.PAUSING: "one less: not now",
        },
        Phase.EMPTYING: {Phase.ASKED: "empty and read"},
        Phase.PAUSING: {Phase.ASKED: "the pause is over"},
    },
    end={
        Phase.ASKED: "Done, or a refusal that is final",
        Phase.ARRIVING: "it has reported, or not in time",
        Phase.EMPTYING: "called off",
        Phase.PAUSING: "others have removed it, or called off",
    },
)


@dataclass(slots=True, eq=False)
class Operation:
    """One exchange more or less.

    Attributes:
        reason: why, as the policy says.
        since: when it was decided.
        phase: how far it is.
        transaction: of the request for one more; empty: it is one less.
        number: of the exchange; 0 as long as that is not known.
        host: where it runs.
        serial: of the question that is open; 0 if none is.
        deadline: when this phase has lasted too long; None if the emptying sees to that.
        tries: how often it was asked.
        epoch, end: of the log of an exchange that is to go, once it is empty; -1: not known.
        holds_nothing: that log is on a disk, and holds nothing any more that is kept for anybody.
    """

    reason: str
    since: float
    phase: Phase
    transaction: str = ""
    number: int = 0
    host: str = ""
    serial: int = 0
    deadline: float | None = None
    tries: int = 0
    epoch: int = 0
    end: int = -1
    holds_nothing: bool = False

    @property
    def out(self) -> bool:
        """Whether it is one more."""
        return bool(self.transaction)


class Scaling:
    """The scale operations that are under way, and the pause after one that failed.

    Args:
        queue: name of the queue.
        queue_id: of this life of it.
        epoch: of this monitor; makes transactions unique.
        ask: makes questions.
        news: where it is told.
    """

    def __init__(
        self, queue: str, queue_id: bytes, epoch: int, ask: Asker, news: StatisticsEvents
    ) -> None:
        self._queue = queue
        self._queue_id = queue_id
        self._epoch = epoch
        self._ask = ask
        self._news = news
        self._operations: list[Operation] = []
        self._counter = 0
        self._transactions: list[str] = []
        """Of requests to grow of which nobody knows what became of them."""
        self._failures = 0
        self._rests_until = float("-inf")

    @property
    def under_way(self) -> bool:
        """Whether an exchange is on its way, in or out."""
        return bool(self._operations)

    def shrinking(self) -> int:
        """The number of the exchange that is to go; 0 if none is."""
        return next((each.number for each in self._operations if not each.out), 0)

    def rests(self, now: float) -> bool:
        """Whether nothing is begun after a failure a short while ago."""
        return now < self._rests_until

    def stopping(self, number: int) -> bool:
        """Whether it was asked that this exchange be stopped, and nobody has answered yet."""
        operation = self._removal(number)
        return operation is not None and operation.phase is Phase.ASKED

    def going(self, number: int) -> bool:
        """Whether this exchange is empty and to be stopped, asked for already or again soon."""
        operation = self._removal(number)
        return operation is not None and operation.phase is not Phase.EMPTYING

    def grow(self, count: int, reason: str, now: float) -> list[Effect]:
        """Ask for so many exchanges more; nothing if something is under way."""
        if self._operations:
            return []
        effects: list[Effect] = []
        for number in range(count):
            if number == len(self._transactions):
                self._counter += 1
                self._transactions.append(f"scale-out {self._epoch:x}.{self._counter}")
            effects += self._ask_for_one(self._transactions[number], reason[:REASON_MAX], now)
        return effects

    def _ask_for_one(self, transaction: str, reason: str, now: float) -> list[Effect]:
        ask = self._ask(
            ScaleOut(
                queue=self._queue, queue_id=self._queue_id, transaction=transaction, reason=reason
            ),
            SCALE_ASKS_SECONDS,
        )  # fmt: skip
        self._operations.append(
            Operation(reason, now, Phase.ASKED, transaction=transaction, serial=ask.serial)
        )
        return [ask, *self._news.scale("out", "started", reason)]

    def shrink(self, number: int, reason: str, now: float) -> list[Effect]:
        """One exchange less: it is being emptied from now on; nothing if something is under way."""
        if self._operations:
            return []
        reason = reason[:REASON_MAX]
        self._operations.append(Operation(reason, now, Phase.EMPTYING, number=number))
        return self._news.scale("in", "started", reason, number=number)

    def emptied(
        self, number: int, epoch: int, end: int, *, holds_nothing: bool = False
    ) -> list[Effect]:
        """The exchange that is to go is empty and read up to its `end`: have it stopped.

        Args:
            holds_nothing: its log is on a disk, and holds nothing any more.
        """
        operation = self._removal(number)
        if operation is None or operation.phase is not Phase.EMPTYING:
            return []
        operation.epoch, operation.end = epoch, end
        operation.holds_nothing = holds_nothing
        return self._ask_to_stop(operation)

    def arrived(self, number: int, now: float) -> list[Effect]:
        """An exchange serves that was not there before."""
        arriving = (each for each in self._operations if each.phase is Phase.ARRIVING)
        operation = next((each for each in arriving if each.number == number), None)
        return self._done(operation, now) if operation is not None else []

    def removed_by_others(self, number: int, now: float) -> list[Effect]:
        """Another part has taken the removal of this exchange over."""
        operation = self._removal(number)
        return self._done(operation, now) if operation is not None else []

    def taken_back(self, number: int, reason: str) -> list[Effect]:
        """An exchange that served its log alone takes publishers again: one more, at once."""
        return self._news.scale("out", "done", reason[:REASON_MAX], number=number)

    def called_off(self, number: int, reason: str, now: float) -> list[Effect]:
        """The exchange that was to go stays."""
        operation = self._removal(number)
        if operation is None:
            return []
        return self._failed(operation, f"{exchange_name(number)} stays: {reason}", now)

    def answered(
        self, serial: int, answer: Answer | Unavailable, serves: Callable[[int], bool], now: float
    ) -> list[Effect]:
        """The configuration manager says something.

        Args:
            serial: of the question.
            answer: what it says.
            serves: whether the exchange with this number serves.
            now: the present time.
        """
        asked = (each for each in self._operations if each.serial == serial)
        operation = next(asked, None) if serial else None
        if operation is None:
            return []
        operation.serial = 0
        if operation.out:
            return self._answered_out(operation, answer, serves, now)
        if isinstance(answer, Done):
            return self._done(operation, now)
        return self._not_stopped(operation, answer, now)

    def time_passed(self, now: float) -> list[Effect]:
        """End what has lasted too long; ask again what is to be asked again."""
        effects: list[Effect] = []
        for operation in list(self._operations):
            if operation.deadline is None or now < operation.deadline:
                continue
            if operation.phase is Phase.PAUSING:
                effects += self._ask_to_stop(operation)
                continue
            name = exchange_name(operation.number)
            reason = f"{name} was started on {operation.host}, but has not reported in time"
            effects += self._failed(operation, reason, now)
        return effects

    def next_deadline(self) -> float | None:
        """When something has lasted too long."""
        deadlines = [each.deadline for each in self._operations if each.deadline is not None]
        return min(deadlines, default=None)

    def check(self) -> None:
        """Assert the invariants."""
        assert len({each.out for each in self._operations}) <= 1  # noqa: S101
        for each in self._operations:
            assert (each.phase is Phase.ASKED) == bool(each.serial)  # noqa: S101
            assert each.number > 0 or each.out  # noqa: S101
            waits = each.phase in {Phase.ARRIVING, Phase.PAUSING}
            assert waits == (each.deadline is not None)  # noqa: S101

    def _removal(self, number: int) -> Operation | None:
        going = (each for each in self._operations if not each.out)
        return next((each for each in going if each.number == number), None)

    # --- out --------------------------------------------------------------------------------------

    def _answered_out(
        self,
        operation: Operation,
        answer: Answer | Unavailable,
        serves: Callable[[int], bool],
        now: float,
    ) -> list[Effect]:
        if not isinstance(answer, ScaledOut) or answer.number <= 0:
            if _is_final(answer):
                self._transactions.remove(operation.transaction)
            return self._failed(operation, _text(answer), now)
        self._transactions.remove(operation.transaction)
        operation.number, operation.host = answer.number, answer.host[:REASON_MAX]
        if serves(answer.number):
            return self._done(operation, now)
        operation.phase = PHASES.step(operation.phase, Phase.ARRIVING)
        operation.deadline = now + ARRIVAL_SECONDS
        return []

    # --- in ---------------------------------------------------------------------------------------

    def _ask_to_stop(self, operation: Operation) -> list[Effect]:
        ask = self._ask(
            ScaleIn(
                queue=self._queue, queue_id=self._queue_id, number=operation.number,
                reason=operation.reason, epoch=operation.epoch, end=operation.end,
                holds_nothing=operation.holds_nothing,
            ),
            SCALE_ASKS_SECONDS,
        )  # fmt: skip
        operation.phase = PHASES.step(operation.phase, Phase.ASKED)
        operation.serial, operation.deadline = ask.serial, None
        operation.tries += 1
        return [ask]

    def _not_stopped(
        self, operation: Operation, answer: Answer | Unavailable, now: float
    ) -> list[Effect]:
        if _is_final(answer) or operation.tries >= STOP_TRIES:
            return self._failed(operation, _text(answer), now)
        operation.phase = PHASES.step(operation.phase, Phase.PAUSING)
        operation.deadline = now + longest_wait(operation.tries, PAUSE_SECONDS, PAUSE_MAX_SECONDS)
        return []

    # --- the end ----------------------------------------------------------------------------------

    def _done(self, operation: Operation, now: float) -> list[Effect]:
        PHASES.leave(operation.phase)
        self._operations.remove(operation)
        self._failures = 0
        return self._tell(operation, "done", operation.reason, now)

    def _failed(self, operation: Operation, reason: str, now: float) -> list[Effect]:
        PHASES.leave(operation.phase)
        self._operations.remove(operation)
        if not self.rests(now):  # what fails together has failed once
            self._failures += 1
            self._rests_until = now + longest_wait(self._failures, PAUSE_SECONDS, PAUSE_MAX_SECONDS)
        return self._tell(operation, "failed", reason, now)

    def _tell(self, operation: Operation, state: str, reason: str, now: float) -> list[Effect]:
        return self._news.scale(
            "out" if operation.out else "in", state, reason,
            number=operation.number, host=operation.host, seconds=now - operation.since,
        )  # fmt: skip


def _is_final(answer: Answer | Unavailable) -> bool:
    """Whether asking the same again would bring the same."""
    passing = isinstance(answer, Failure) and answer.CODE in PASSING
    return not passing and not isinstance(answer, Unavailable)


def _text(answer: Answer | Unavailable) -> str:
    if isinstance(answer, Failure):
        return answer.COMMENT[:REASON_MAX]
    if isinstance(answer, Unavailable):
        return str(answer)[:REASON_MAX]
    return f"the configuration manager answered {type(answer).__name__}"
