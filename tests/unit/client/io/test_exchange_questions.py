"""One question goes to every exchange of a queue; who does not answer is named, with the reason."""

from __future__ import annotations

import msgspec
import pytest
from paper_exchanges import PaperEngine, queue

from roq.client.io.exchange_questions import Answers, ask_all, told
from roq.errors import QueueStopped
from roq.protocol import documents
from roq.protocol.public_answers import QueueDescription

LETTER = b"?"
SECONDS = 0.1


class Question(msgspec.Struct):
    id: int


def asked(engine: PaperEngine, there: QueueDescription) -> Answers:
    return ask_all(engine.real, there, LETTER, Question(7), SECONDS)


def repeats(frames: list[bytes]) -> list[bytes]:
    letter, document = frames
    assert documents.decode(document, Question) == Question(7)
    return [letter, b"answer"]


def test_all_are_asked_the_same_and_their_connections_are_closed() -> None:
    engine = PaperEngine(x1=repeats, x2=repeats)
    answers = asked(engine, queue("x1", "x2"))
    assert answers == Answers({"x1": [LETTER, b"answer"], "x2": [LETTER, b"answer"]}, {})
    assert engine.log == ["closed", "closed"]


def test_who_does_not_answer_in_time_is_named_and_so_is_who_is_away() -> None:
    engine = PaperEngine(x1=repeats, x2=None)
    answers = asked(engine, queue("x1", "x2", away="x3"))
    assert set(answers.letters) == {"x1"}
    assert answers.missing == {"x2": "refused by the system", "x3": "it is away"}


def test_a_queue_without_exchanges_is_answered_at_once() -> None:
    assert asked(PaperEngine(), queue(away="x1")) == Answers({}, {"x1": "it is away"})


def test_a_stopped_queue_is_not_asked() -> None:
    with pytest.raises(QueueStopped, match="start it"):
        asked(PaperEngine(), queue(running=False))


def test_who_is_missing_is_told_in_the_order_of_names() -> None:
    assert told({"x2": "it is away", "x1": "no"}) == "exchange x1: no; exchange x2: it is away"
