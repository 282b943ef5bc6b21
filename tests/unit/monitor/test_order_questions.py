"""What a monitor passes on between exchanges, and what it answers itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from roq.model import ExchangeInfo, LogId
from roq.monitor.events import Effect, Push
from roq.monitor.exchanges import Exchanges
from roq.monitor.order_questions import pass_on
from roq.protocol.consuming import AWAY, GONE, SETTLED, OrderAnswer, OrderQuestion
from roq.protocol.control import ExchangeReport, OrderAsk, OrderTold
from roq.protocol.reports import ExchangeLoad

QUEUE = b"q" * 16


def peer(number: int) -> tuple[bytes, bool]:
    return (b"x%d" % number, False)


def serving(*numbers: int) -> Exchanges:
    """Exchanges of epoch 9, with logs of generation 5."""
    exchanges = Exchanges()
    for number in numbers:
        info = ExchangeInfo(
            number=number, epoch=9, generation=5, host="h", data="tcp://a:1", live="tcp://a:2"
        )
        report = ExchangeReport(queue_id=QUEUE, exchange=info, load=ExchangeLoad())
        exchanges.report(report, peer(number), 0.0)
    return exchanges


def question(number: int, generation: int = 5) -> OrderQuestion:
    return OrderQuestion("g", b"p" * 16, 3, LogId(number, generation))


def ask(*questions: OrderQuestion, asker: tuple[int, int] = (1, 9)) -> OrderAsk:
    return OrderAsk(queue_id=QUEUE, asker=asker, questions=list(questions))


def told(*answers: OrderAnswer) -> OrderTold:
    return OrderTold(queue_id=QUEUE, asker=(1, 9), answers=list(answers))


def passed(
    message: OrderAsk | OrderTold, exchanges: Exchanges, *, known: bool = True,
    logs: frozenset[int] = frozenset(), settled: bool = True,
) -> list[Effect]:  # fmt: skip
    rules: Any = SimpleNamespace(known=known, logs=logs)
    return pass_on(message, exchanges, rules, settled=settled)


def test_questions_go_to_the_exchanges_that_have_the_logs() -> None:
    message = ask(question(2), question(3), question(2))
    assert passed(message, serving(1, 2, 3)) == [
        Push((peer(2),), ask(question(2), question(2))),
        Push((peer(3),), ask(question(3))),
    ]


def test_answers_go_to_who_has_asked() -> None:
    message = told(OrderAnswer(question(2), SETTLED))
    assert passed(message, serving(1, 2)) == [Push((peer(1),), message)]


def test_of_who_has_asked_and_is_no_more_nothing_is_passed_on() -> None:
    assert passed(ask(question(2), asker=(1, 8)), serving(1, 2)) == []
    assert passed(told(OrderAnswer(question(2), SETTLED)), serving(2)) == []


def test_a_log_that_comes_back_is_away_and_any_other_is_gone() -> None:
    message = ask(question(2), question(3), question(1, generation=4))
    (answer,) = passed(message, serving(1), logs=frozenset({1, 2}))
    assert answer == Push(
        (peer(1),),
        told(
            OrderAnswer(question(2), AWAY),
            OrderAnswer(question(3), GONE),
            OrderAnswer(question(1, generation=4), GONE),
        ),
    )


def test_who_does_not_know_all_exchanges_yet_says_of_none_that_it_is_gone() -> None:
    assert passed(ask(question(2)), serving(1), settled=False) == []
    assert passed(ask(question(2)), serving(1), known=False) == []
