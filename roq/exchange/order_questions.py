"""What exchanges ask each other so that groups keep the order of publishers that move. Pure.

    this exchange --OrderAsk--> monitor --OrderAsk--> the one where the publisher was
    this exchange <--OrderTold-- monitor <--OrderTold-- it, or the monitor if that is gone or away

Nothing here is waited for: a question that is not answered is asked again, less and less often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from roq.exchange.events import Effect, Tell
from roq.log.groups import ConsumerGroup
from roq.log.log import Log
from roq.log.moved_publishers import MovedPublishers
from roq.log.ordered_group import ORDERED_MODES, OrderedGroup, Question
from roq.log.service_group import ServiceGroup
from roq.model import PUBLISHER_ID_BYTES, LogId, PublisherId
from roq.protocol.consuming import (
    NO_GROUP,
    ORDER_QUESTIONS_MAX,
    SETTLED,
    WAITS,
    GroupSettings,
    OrderAnswer,
    OrderQuestion,
)
from roq.protocol.control import OrderAsk, OrderTold

B = TypeVar("B")

QUESTIONS_MAX: Final = ORDER_QUESTIONS_MAX // 2
"""Of one group at once: a publisher may have been at several exchanges."""


class OrderAsker(Generic[B]):
    """Asks for the ordered groups of one exchange, and answers for them.

    Args:
        queue: queue id.
        epoch: of this process.
        log: of the exchange.
        groups: all groups of the exchange, by name.
        stays: where publishers were, and when they left.
        after: called when something of a group is free.
    """

    def __init__(
        self, queue: bytes, epoch: int, log: Log[B], groups: dict[str, ConsumerGroup[B]],
        stays: MovedPublishers, after: Callable[[ConsumerGroup[B]], None],
    ) -> None:  # fmt: skip
        self._queue = queue
        self._asker = stays.own.number, epoch
        self._log = log
        self._groups = groups
        self._stays = stays
        self._after = after
        self._asking: set[str] = set()
        """Groups that hold something back, or may."""

    def group(
        self, name: str, settings: GroupSettings, created_us: int, start: int, now: float
    ) -> ConsumerGroup[B]:
        """A group of the kind that its settings want."""
        if settings.service is not None:
            return ServiceGroup(name, self._log, settings, created_us, start, now)
        if settings.mode in ORDERED_MODES:
            return OrderedGroup(name, self._log, settings, created_us, start, now, self._stays)
        return ConsumerGroup(name, self._log, settings, created_us, start, now)

    @property
    def deadline(self) -> float | None:
        """When something is to be asked; None: nothing is held back."""
        if not self._asking:
            return None
        times = [group.ask_at for group in self._ordered(self._asking)]
        return min((at for at in times if at is not None), default=None)

    def looked(self, group: ConsumerGroup[B]) -> None:
        """This group has looked at its log."""
        if isinstance(group, OrderedGroup) and group.ask_at is not None:
            self._asking.add(group.name)

    def run(self, now: float) -> list[Effect]:
        """Ask what is to be asked now."""
        effects: list[Effect] = []
        if not self._asking:
            return effects
        for group in self._ordered(sorted(self._asking)):
            if group.ask_at is None:
                self._asking.discard(group.name)
                continue
            questions = [
                OrderQuestion(group.name, each.publisher, each.epoch, each.log)
                for each in group.questions(now, QUESTIONS_MAX)
            ]
            effects += [
                Tell(OrderAsk(
                    queue_id=self._queue, asker=self._asker,
                    questions=questions[at : at + ORDER_QUESTIONS_MAX],
                ))
                for at in range(0, len(questions), ORDER_QUESTIONS_MAX)
            ]  # fmt: skip
        self._asking &= self._groups.keys()
        return effects

    def asked(self, message: OrderAsk) -> list[Effect]:
        """Another exchange asks how far groups are here."""
        if message.queue_id != self._queue:
            return []
        answers = [
            OrderAnswer(each, self._outcome(each))
            for each in message.questions
            if LogId(*each.log) == self._stays.own and len(each.publisher) == PUBLISHER_ID_BYTES
        ]
        if not answers:
            return []
        return [Tell(OrderTold(queue_id=self._queue, asker=message.asker, answers=answers))]

    def told(self, message: OrderTold) -> None:
        """Another exchange, or the monitor, answers."""
        if message.queue_id != self._queue or message.asker != self._asker:
            return
        for (name, publisher, epoch, log), outcome in message.answers:
            group = self._groups.get(name)
            if isinstance(group, OrderedGroup) and group.told(
                Question(PublisherId(publisher), epoch, LogId(*log)), outcome
            ):
                self._after(group)

    def _outcome(self, question: OrderQuestion) -> str:
        publisher, epoch = PublisherId(question.publisher), question.epoch
        # Also where there is no group yet: what comes later under this epoch was sent later.
        end = self._stays.end_of(publisher, epoch, self._log.end)
        group = self._groups.get(question.group)
        if group is None:
            return NO_GROUP
        if not isinstance(group, OrderedGroup) or group.is_done(publisher, epoch, end):
            return SETTLED
        return WAITS

    def _ordered(self, names: Iterable[str]) -> list[OrderedGroup[B]]:
        groups = [self._groups.get(name) for name in names]
        return [group for group in groups if isinstance(group, OrderedGroup)]
