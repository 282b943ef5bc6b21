"""Whether decisions make sense for the queue that they were taken for.

Policies may come from users, so what they decide is checked before it is done: a publisher that
is not there or on its way already, an exchange that takes nobody, a queue that would outgrow its
rules. One senseless decision spoils its whole round, for the rest may rest upon it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from roq.model import PublisherId, exchange_name
from roq.policy.snapshot import (
    ExchangeView,
    Grow,
    Move,
    PublisherView,
    QueueView,
    Shrink,
    Stripe,
)

DECISIONS_MAX: Final = 1_024
"""Of one round."""
STRIPES_MAX: Final = 16
"""Exchanges over which one publisher may be spread."""
AT_ONCE_MAX: Final = 4
"""Exchanges that may be added in one round."""
REASON_CHARACTERS_MAX: Final = 500


def problem_of(decisions: object, view: QueueView) -> str:
    """Say in a sentence what is wrong with what a policy gave; empty if nothing is."""
    if not isinstance(decisions, list):
        return f"{type(decisions).__name__} instead of a list of decisions"
    if not decisions:
        return ""
    if len(decisions) > DECISIONS_MAX:
        return f"{len(decisions)} decisions in one round, more than {DECISIONS_MAX}"
    try:
        return _Check(view).problem_of(decisions)
    except (TypeError, AttributeError) as error:
        return f"a decision has a field of the wrong type: {error}"


class _Check:
    def __init__(self, view: QueueView) -> None:
        self._view = view
        self._exchanges = {each.number: each for each in view.exchanges}
        self._publishers: dict[tuple[PublisherId, int], PublisherView] = {
            (each.id, exchange.number): each for exchange in view.exchanges for each in exchange.top
        }
        self._known = {each.id: each for each in self._publishers.values()}
        self._touched: set[PublisherId] = set()
        self._scaled = view.scaling

    def problem_of(self, decisions: Sequence[object]) -> str:
        """What is wrong with the first decision that is wrong."""
        for decision in decisions:
            match decision:
                case Move():
                    problem = self._move(decision)
                case Stripe():
                    problem = self._stripe(decision)
                case Grow():
                    problem = self._grow(decision)
                case Shrink():
                    problem = self._shrink(decision)
                case _:
                    return f"{decision!r:.100} is no decision"
            if problem:
                return f"{type(decision).__name__}: {problem}"
            if len(decision.reason) > REASON_CHARACTERS_MAX:
                return f"a reason has at most {REASON_CHARACTERS_MAX} characters"
            if not _can_be_sent(decision.reason):
                return "a reason has half of a surrogate pair in it"
        return ""

    def _move(self, move: Move) -> str:
        if move.source == move.target:
            return f"source and target are both {exchange_name(move.source)}"
        known = self._publishers.get((move.publisher, move.source))
        if known is None:
            return f"publisher {move.publisher.hex()} is not at {exchange_name(move.source)}"
        if known.exchanges != (move.source,):
            return f"publisher {move.publisher.hex()} is not at {exchange_name(move.source)} alone"
        return self._touch(known) or self._takes(move.target)

    def _stripe(self, stripe: Stripe) -> str:
        known = self._known.get(stripe.publisher)
        if known is None:
            return f"publisher {stripe.publisher.hex()} is not known"
        if not 0 < len(stripe.targets) <= STRIPES_MAX:
            return f"{len(stripe.targets)} targets; there may be 1 to {STRIPES_MAX}"
        if len(set(stripe.targets)) < len(stripe.targets):
            return "an exchange is named twice"
        problems = [self._takes(number) for number in stripe.targets]
        return self._touch(known) or next(filter(None, problems), "")

    def _touch(self, publisher: PublisherView) -> str:
        if publisher.moving:
            return f"publisher {publisher.id.hex()} is on its way already"
        if publisher.id in self._touched:
            return f"publisher {publisher.id.hex()} is sent to two places"
        self._touched.add(publisher.id)
        return ""

    def _takes(self, number: int) -> str:
        exchange = self._exchanges.get(number)
        if exchange is None:
            return f"there is no exchange {exchange_name(number)}"
        return "" if exchange.accepting else f"{exchange_name(number)} takes no publishers"

    def _grow(self, grow: Grow) -> str:
        if self._scaled:
            return "an exchange is being added or removed already"
        self._scaled = True
        if not 0 < grow.count <= AT_ONCE_MAX:
            return f"{grow.count} exchanges at once; there may be 1 to {AT_ONCE_MAX}"
        most = self._view.rules.exchanges_max
        if len(self._view.exchanges) + grow.count > most:
            return f"the queue may have {most} exchanges"
        return ""

    def _shrink(self, shrink: Shrink) -> str:
        if self._scaled:
            return "an exchange is being added or removed already"
        self._scaled = True
        exchange = self._exchanges.get(shrink.number)
        if exchange is None:
            return f"there is no exchange {exchange_name(shrink.number)}"
        return self._refusal_to_leave(exchange)

    def _refusal_to_leave(self, exchange: ExchangeView) -> str:
        if not exchange.accepting:
            return f"{exchange_name(exchange.number)} is being emptied already"
        if not exchange.removable:
            return f"{exchange_name(exchange.number)} was not made by scaling"
        rest = sum(each.accepting for each in self._exchanges.values()) - 1
        least = max(1, self._view.rules.exchanges_min)
        return f"the queue keeps {least} exchanges" if rest < least else ""


def _can_be_sent(text: str) -> bool:
    if not isinstance(text, str):
        raise TypeError(f"{type(text).__name__} instead of a text")
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)
