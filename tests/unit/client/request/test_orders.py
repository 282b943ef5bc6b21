"""What exchanges answer to an operator's orders is one answer, or an error that says what to do."""

from __future__ import annotations

from typing import Any, cast

import pytest
from described import described

from roq.client.io.engine import Engine
from roq.client.io.exchange_questions import Answers
from roq.client.request import orders
from roq.client.request.context import parse_id
from roq.errors import GroupNotFound, InvalidRequest, ResponseLost, Unavailable
from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.consuming import GROUP_ORDER, GroupOrder, Ordered
from roq.protocol.public_answers import QueueDescription

ENGINE = cast("Engine", None)
ID = parse_id("work/x2-7-42-3")


class Exchanges:
    """What they answer, by name; and what they were asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, GroupOrder]] = []

    def ask_all(
        self, _: Engine, queue: QueueDescription, letter: bytes, order: GroupOrder, seconds: float
    ) -> Answers:
        assert (letter, seconds) == (GROUP_ORDER, 3.0)
        letters: dict[str, list[bytes]] = {}
        missing = {}
        for each in queue.exchanges:
            self.asked.append((each.name, order))
            answer = self.answers[each.name]
            if answer is None:
                missing[each.name] = "it is away"
            elif isinstance(answer, str):
                letters[each.name] = [REFUSED, documents.encode(Refused(code=answer, text="no"))]
            else:
                ordered = Ordered(id=1, generation=7, told=answer)
                letters[each.name] = [GROUP_ORDER, documents.encode(ordered)]
        return Answers(letters, missing)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Exchanges:
    made = Exchanges(x1=["b", "a"], x2=["b"])
    monkeypatch.setattr(orders, "ask_all", made.ask_all)
    return made


def order(word: str = "drain", instance: str = "") -> list[str]:
    return orders.order_instances(ENGINE, described(), "billing", word, instance, 3.0)


def test_each_instance_is_named_once_and_one_exchange_is_enough(there: Exchanges) -> None:
    assert order("unflag", "b") == ["a", "b"]
    assert {(each.order, each.instance) for _, each in there.asked} == {("unflag", "b")}
    there.answers["x2"] = None
    assert order() == ["a", "b"]


@pytest.mark.parametrize(
    ("x1", "x2", "error"),
    [
        ([], None, Unavailable), ("no_group", "no_group", GroupNotFound),
        ([], "no_group", InvalidRequest), ("invalid_request", [], InvalidRequest),
    ],
)  # fmt: skip
def test_that_nobody_is_told_is_an_error(
    there: Exchanges, x1: Any, x2: Any, error: type[Exception]
) -> None:
    there.answers = {"x1": x1, "x2": x2}
    with pytest.raises(error) as raised:
        order(instance="b")
    if error is GroupNotFound:
        assert "has no service billing; `roq service list work`" in str(raised.value)


def test_a_request_runs_again_at_its_exchange_alone(there: Exchanges) -> None:
    orders.run_again(ENGINE, described(), "billing", ID, 3.0)
    ((name, asked),) = there.asked
    assert (name, asked.order, asked.group) == ("x2", "retry", "billing")
    assert (asked.generation, asked.offset, asked.index) == (7, 42, 3)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, Unavailable), ("full", Unavailable), ("no_group", GroupNotFound),
        ("invalid_request", InvalidRequest),
    ],
)  # fmt: skip
def test_a_request_that_cannot_run_again_says_why(
    there: Exchanges, answer: Any, error: type[Exception]
) -> None:
    there.answers["x2"] = answer
    with pytest.raises(error):
        orders.run_again(ENGINE, described(), "billing", ID, 3.0)


def test_of_an_exchange_that_is_gone_nothing_runs_again(there: Exchanges) -> None:
    with pytest.raises(ResponseLost):
        orders.run_again(ENGINE, described(), "billing", parse_id("work/x3-7-42-3"), 3.0)
    assert there.asked == []
