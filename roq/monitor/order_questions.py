"""Passes on what exchanges ask each other about the order of publishers that have moved. Pure.

Nothing is remembered: who is not answered asks again. What is asked of a log that does not serve is
answered here, as only the monitor knows whether it comes back.
"""

from __future__ import annotations

from roq.model import LogId
from roq.monitor.events import Effect, Push
from roq.monitor.exchanges import Exchanges
from roq.monitor.scaling_rules import Rules
from roq.protocol.consuming import AWAY, GONE, OrderAnswer, OrderQuestion
from roq.protocol.control import OrderAsk, OrderTold


def pass_on(
    message: OrderAsk | OrderTold, exchanges: Exchanges, rules: Rules, *, settled: bool
) -> list[Effect]:
    """A question to the exchanges that have the logs, an answer to the one that has asked.

    Args:
        exchanges: that serve.
        rules: of the queue: they name the logs that come back.
        settled: whether all exchanges that serve are known.
    """
    asker = exchanges.find(message.asker)
    if asker is None or asker.peer is None:
        return []
    if isinstance(message, OrderTold):
        return [Push((asker.peer,), message)]
    by_log: dict[LogId, list[OrderQuestion]] = {}
    for question in message.questions:
        by_log.setdefault(question.log, []).append(question)
    effects: list[Effect] = []
    answers: list[OrderAnswer] = []
    for log, questions in by_log.items():
        serving = exchanges.numbered(log.number)
        if serving is not None and serving.info.log == log:
            if serving.peer is not None:
                asked = OrderAsk(
                    queue_id=message.queue_id, asker=message.asker, questions=questions
                )
                effects.append(Push((serving.peer,), asked))
        elif settled and rules.known:
            comes_back = serving is None and log.number in rules.logs
            answers += [OrderAnswer(each, AWAY if comes_back else GONE) for each in questions]
    if answers:
        told = OrderTold(queue_id=message.queue_id, asker=message.asker, answers=answers)
        effects.append(Push((asker.peer,), told))
    return effects
