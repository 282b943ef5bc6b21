"""Questions of a reader: one of each kind, each with a deadline, with more patience each time."""

from __future__ import annotations

import pytest

from roq.protocol.channel import FETCH, HEADS, SEEK
from roq.read.log_requests import (
    PATIENCE_SECONDS,
    PATIENCE_SECONDS_MAX,
    Inquiry,
    LogRequests,
)
from roq.timing import FETCH_PATIENCE_SECONDS

FIELDS: dict[bytes, dict[str, object]] = {
    HEADS: {"prefixes": [b""], "since": 0},
    FETCH: {"generation": 1},
}


def ask(requests: LogRequests, kind: bytes, now: float) -> Inquiry:
    return requests.ask(kind, now, **FIELDS[kind])[0]


@pytest.fixture
def requests() -> LogRequests:
    return LogRequests(b"id")


def test_a_question_is_under_way_until_its_answer_ends(requests: LogRequests) -> None:
    inquiry, effect = requests.ask(HEADS, 0.0, **FIELDS[HEADS])
    assert effect.frames[0] == HEADS
    assert HEADS in requests
    assert requests.find(HEADS, inquiry.number, 0.5) is inquiry
    assert requests.close(HEADS, inquiry.number) is inquiry
    assert HEADS not in requests


def test_an_answer_to_an_older_question_belongs_to_nothing(requests: LogRequests) -> None:
    older = ask(requests, HEADS, 0.0)
    newer = ask(requests, HEADS, 0.5)
    assert requests.close(HEADS, older.number) is None
    assert requests.close(HEADS, newer.number) is newer


def test_it_shows_that_the_exchange_sends_all_the_same(requests: LogRequests) -> None:
    older = ask(requests, HEADS, 0.0)
    newer = ask(requests, HEADS, 0.0)
    assert requests.find(HEADS, older.number, 5.0) is None
    assert newer.deadline == 5.0 + PATIENCE_SECONDS


def test_patience_doubles_with_each_silence_up_to_a_limit_and_an_answer_ends_that(
    requests: LogRequests,
) -> None:
    waits = []
    for _ in range(6):
        inquiry = ask(requests, HEADS, 0.0)
        waits.append(inquiry.deadline)
        assert requests.expired(inquiry.deadline - 0.01) == []
        assert requests.expired(inquiry.deadline) == [inquiry]
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert waits[-1] == PATIENCE_SECONDS_MAX
    assert requests.timeouts == 6
    inquiry = ask(requests, HEADS, 0.0)
    requests.close(HEADS, inquiry.number)
    assert ask(requests, HEADS, 0.0).deadline == PATIENCE_SECONDS


def test_a_fetch_is_waited_for_longer(requests: LogRequests) -> None:
    inquiry = ask(requests, FETCH, 0.0)
    assert inquiry.deadline == max(PATIENCE_SECONDS, FETCH_PATIENCE_SECONDS)


def test_a_refusal_has_it_asked_again_soon_and_never_later(requests: LogRequests) -> None:
    inquiry = ask(requests, FETCH, 0.0)
    requests.hurry(0.0)
    assert inquiry.deadline == min(PATIENCE_SECONDS, max(PATIENCE_SECONDS, FETCH_PATIENCE_SECONDS))
    requests.hurry(1_000.0)
    assert inquiry.deadline <= PATIENCE_SECONDS


def test_when_the_connection_ends_nothing_is_under_way(requests: LogRequests) -> None:
    asked = [ask(requests, kind, 0.0) for kind in (HEADS, FETCH)]
    assert requests.abandon() == asked
    assert (len(requests), requests.deadlines()) == (0, [])
    assert SEEK not in requests
