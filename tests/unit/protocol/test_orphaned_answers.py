"""By which names and tokens a request is known that was sent once more."""

from __future__ import annotations

import pytest

from roq.errors import RemoteProtocolError
from roq.model import LogId
from roq.number_ranges import CHILD_EPOCH_MAX, OFFSET_MAX
from roq.protocol.orphaned_answers import (
    BEFORE,
    BEFORE_MAX,
    OFFERED_MAX,
    TOKEN_BYTES,
    AnswersOffered,
    AnswersTaken,
    OrphanedAnswer,
    before_of,
    maker_of,
    sent_again,
    token_of,
)
from roq.protocol.requesting import (
    AGAIN_PUBLISHER,
    DELAYED_FROM,
    Position,
    RequestState,
    decode,
    encode,
)

LOG = LogId(3, 196_610)
MAKER = b"p" * 16


def test_a_request_that_is_sent_once_more_says_as_what_it_was_known_the_latest_last() -> None:
    told = sent_again({"mark": "x"}, LOG, Position(42, 1))
    assert told == {"mark": "x", BEFORE: "x3-196610-42-1"}
    told = sent_again(told, LogId(4, 1), Position(DELAYED_FROM + 7, 0))
    assert before_of(told) == [(LOG, Position(42, 1)), (LogId(4, 1), Position(DELAYED_FROM + 7, 0))]


def test_of_many_names_the_latest_are_told_however_long_they_are() -> None:
    told: dict[str, str] = {}
    largest = LogId((1 << 32) - 1, CHILD_EPOCH_MAX)
    for index in range(2 * BEFORE_MAX):
        told = sent_again(told, largest, Position(OFFSET_MAX, (1 << 20) - 1 - index))
    names = before_of(told)
    assert len(names) == BEFORE_MAX
    assert names[-1] == (largest, Position(OFFSET_MAX, (1 << 20) - 2 * BEFORE_MAX))


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "1-1-1-1", "x1-1-1", "x1-1-1-1 ", "x1-1-1-1  x1-1-1-2", "x1-1-1-1\n", "x-1-1-1-1",
        f"x1-{CHILD_EPOCH_MAX + 1}-1-1", f"x1-1-{OFFSET_MAX + 1}-1", "x\u0661-1-1-1",
        "x1-1-1-1 " * 100,
    ],
)  # fmt: skip
def test_what_is_no_name_is_none(text: str) -> None:
    assert before_of({BEFORE: text}) == []
    assert before_of({}) == []


def test_a_token_tells_apart_whatever_differs() -> None:
    at = Position(42, 1)
    tokens = {
        token_of(LOG, at, MAKER, b"payload"),
        token_of(LogId(3, 196_611), at, MAKER, b"payload"),
        token_of(LOG, Position(42, 2), MAKER, b"payload"),
        token_of(LOG, at, b"q" * 16, b"payload"),
        token_of(LOG, at, MAKER, b"payloae"),
    }
    assert len(tokens) == 5
    assert {len(each) for each in tokens} == {TOKEN_BYTES}
    assert token_of(LOG, at, MAKER, memoryview(b"payload")) in tokens


def test_who_has_made_a_request_that_its_exchange_has_published() -> None:
    assert maker_of({}, MAKER) == MAKER
    assert maker_of({"roq.delayed.publisher": "aa"}, MAKER) == b"\xaa"
    assert maker_of({AGAIN_PUBLISHER: "bb"}, MAKER) == b"\xbb"
    assert maker_of({AGAIN_PUBLISHER: "no hex"}, MAKER) == b""
    assert token_of(LOG, Position(0, 0), b"m" * 1_000, b"")


def test_an_answer_is_one_or_a_failure() -> None:
    token = bytes(16)
    done = OrphanedAnswer(token, value=b"v").at(3)
    assert (done.index, done.state, done.value) == (3, "done", b"v")
    for state in (RequestState.FAILED, RequestState.RUNNING, RequestState.CANCELLED):
        assert OrphanedAnswer(token, state).at(0).state is RequestState.FAILED


def test_what_does_not_fit_is_refused() -> None:
    for token in (b"", bytes(15), bytes(17)):
        with pytest.raises(RemoteProtocolError):
            decode(encode(AnswersOffered([OrphanedAnswer(token)])), AnswersOffered)
        with pytest.raises(RemoteProtocolError):
            decode(encode(AnswersTaken([token])), AnswersTaken)
    many = [OrphanedAnswer(bytes(16))] * (OFFERED_MAX + 1)
    with pytest.raises(RemoteProtocolError):
        decode(encode(AnswersOffered(many)), AnswersOffered)
    told = AnswersOffered(many[1:])
    assert decode(encode(told), AnswersOffered) == told
