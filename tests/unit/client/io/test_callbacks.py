"""Calls back in a thread of its own."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future

import pytest

from roq.client.io.callbacks import NOTICES_MAX, Callbacks, UserFuture
from roq.client.io.lock import ClientLock

ERRORS = [ZeroDivisionError, SystemExit, KeyboardInterrupt]


def test_calls_are_made_in_order_and_all_before_the_end() -> None:
    callbacks, made = Callbacks(), list[int]()
    for number in range(100):
        callbacks.post(lambda number=number: made.append(number))
    callbacks.close()
    assert made == list(range(100))
    callbacks.post(lambda: made.append(-1))
    callbacks.close()
    assert made[-1] == 99


@pytest.mark.parametrize("error", ERRORS)
def test_a_call_that_raises_is_logged_and_the_next_one_made(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    callbacks, made = Callbacks(), list[str]()

    def fail() -> None:
        raise error

    callbacks.post(fail)
    callbacks.post(lambda: made.append("next"))
    callbacks.close()
    assert made == ["next"]
    assert error.__name__ in caplog.text
    assert callbacks.failed == 1


def test_a_call_that_does_not_come_back_holds_up_nobody_and_nothing_piles_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    callbacks, begun, released = Callbacks(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        released.wait(30)

    made: list[int] = []
    callbacks.post(hang)
    assert begun.wait(10)
    with caplog.at_level(logging.WARNING):
        for number in range(NOTICES_MAX + 5):
            callbacks.post(lambda number=number: made.append(number))
    assert "too slow" in caplog.text
    released.set()
    callbacks.close()
    assert made == list(range(5, NOTICES_MAX + 5))


@pytest.mark.parametrize("closed", [False, True])
def test_what_is_left_out_is_not_called_with_a_lock_of_the_client_held(
    monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    guard, got = ClientLock("the publisher of orders"), Future[bool]()
    callbacks, begun, released = (
        Callbacks(guard.held),
        threading.Event(),
        threading.Event(),
    )

    def left_out() -> None:  # a program has another thread publish, and waits for that
        other = threading.Thread(target=lambda: got.set_result(guard.lock.acquire(timeout=1)))
        other.start()
        other.join()

    if closed:
        callbacks.close()
    else:
        monkeypatch.setattr("roq.client.io.callbacks.NOTICES_MAX", 1)
        callbacks.post(lambda: (begun.set(), released.wait(30)))
        assert begun.wait(10)
    with guard.lock:
        callbacks.post(lambda: None, left_out)
        callbacks.post(lambda: None)
    assert got.result(10)
    released.set()
    callbacks.close()


def test_without_a_call_there_is_no_thread() -> None:
    before = threading.active_count()
    callbacks = Callbacks()
    assert threading.active_count() == before
    callbacks.close()


def test_it_may_be_closed_by_a_call() -> None:
    callbacks, done = Callbacks(), threading.Event()
    callbacks.post(lambda: (callbacks.close(), done.set()))
    assert done.wait(10)


def test_what_no_thread_was_there_for_is_left_out_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError

    monkeypatch.setattr(threading.Thread, "start", refuse)
    callbacks, made = Callbacks(), list[str]()
    callbacks.post(lambda: made.append("called"), lambda: made.append("left out"))
    callbacks.close()
    assert made == ["left out"]


def test_what_comes_while_the_last_calls_are_made_is_left_out() -> None:
    callbacks, made = Callbacks(), list[str]()

    def again() -> None:
        callbacks.post(bool, lambda: made.append("late"))

    def end() -> None:
        callbacks.close()
        again()

    callbacks.post(end)
    callbacks.close()
    again()
    assert made == ["late"] * 2


@pytest.mark.parametrize("error", ERRORS)
def test_what_a_future_calls_ends_neither_the_thread_nor_other_calls(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    future, made = UserFuture[int](), list[int]()

    def fail(_: object) -> None:
        raise error

    future.add_done_callback(fail)
    future.add_done_callback(lambda done: made.append(done.result()))
    ended: list[str] = []
    thread = threading.Thread(target=lambda: (future.set_result(7), ended.append("well")))
    thread.start()
    thread.join(20)
    assert (made, ended) == ([7], ["well"])
    assert error.__name__ in caplog.text


def test_what_a_future_calls_at_once_is_its_callers_own_matter() -> None:
    future = UserFuture[int]()
    future.set_result(7)

    def leave(_: object) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        future.add_done_callback(leave)
