"""Calls back in a thread of its own."""

from __future__ import annotations

import logging
import threading

import pytest

from roq.client.notices import NOTICES_MAX, Notices


def test_calls_are_made_in_order_and_all_before_the_end() -> None:
    notices, made = Notices(), list[int]()
    for number in range(100):
        notices.post(lambda number=number: made.append(number))
    notices.close()
    assert made == list(range(100))
    notices.post(lambda: made.append(-1))
    notices.close()
    assert made[-1] == 99


def test_a_call_that_raises_is_logged_and_the_next_one_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notices, made = Notices(), list[str]()

    def fail() -> None:
        raise ZeroDivisionError

    notices.post(fail)
    notices.post(lambda: made.append("next"))
    notices.close()
    assert made == ["next"]
    assert "ZeroDivisionError" in caplog.text


def test_a_call_that_does_not_come_back_holds_up_nobody_and_nothing_piles_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notices, begun, released = Notices(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        released.wait(30)

    made: list[int] = []
    notices.post(hang)
    assert begun.wait(10)
    with caplog.at_level(logging.WARNING):
        for number in range(NOTICES_MAX + 5):
            notices.post(lambda number=number: made.append(number))
    assert "too slow" in caplog.text
    released.set()
    notices.close()
    assert made == list(range(5, NOTICES_MAX + 5))


def test_without_a_call_there_is_no_thread() -> None:
    before = threading.active_count()
    notices = Notices()
    assert threading.active_count() == before
    notices.close()


def test_it_may_be_closed_by_a_call() -> None:
    notices, done = Notices(), threading.Event()
    notices.post(lambda: (notices.close(), done.set()))
    assert done.wait(10)
