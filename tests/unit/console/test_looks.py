"""Each question is asked once, however many look."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from roq.console import looks as module
from roq.console.looks import Looks
from roq.errors import RoQError, Unavailable


class Inline:
    """Keeps what is to be asked until a test lets it."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def submit(self, call: Any, /, *arguments: Any) -> Any:
        future: Future[None] = Future()
        self.calls.append(lambda: (call(*arguments), future.set_result(None)))
        return future

    def run(self) -> None:
        for call in self.calls:
            call()
        self.calls.clear()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def inline() -> Inline:
    return Inline()


def test_an_answer_is_shared_until_it_is_too_old(inline: Inline) -> None:
    clock, asked = Clock(), list[int]()
    looks = Looks(inline, clock)  # type: ignore[arg-type]

    def ask() -> int:
        asked.append(1)
        return len(asked)

    assert looks.look("k", ask, 2.0, wait=0.0).value is None
    inline.run()
    assert [looks.look("k", ask, 2.0).value for _ in range(50)] == [1] * 50
    assert not inline.calls
    clock.now = 2.0
    assert looks.look("k", ask, 2.0).get() == 1, "the old one is given while it is asked anew"
    assert looks.look("k", ask, 2.0).get() == 1
    assert len(inline.calls) == 1, "it is under way once"
    inline.run()
    assert looks.look("k", ask, 2.0).get() == 2


def test_an_error_keeps_the_last_answer(inline: Inline) -> None:
    clock = Clock()
    looks = Looks(inline, clock)  # type: ignore[arg-type]
    looks.look("k", lambda: 7, 1.0, wait=0.0)
    inline.run()
    clock.now = 1.0

    def away() -> int:
        raise Unavailable("nobody answers")

    looks.look("k", away, 1.0)
    inline.run()
    look = looks.look("k", away, 1.0)
    assert (look.value, str(look.error), look.at) == (7, "nobody answers", 0.0)
    looks.look("other", away, 1.0, wait=0.0)
    inline.run()
    with pytest.raises(Unavailable, match="nobody answers"):
        looks.look("other", away, 1.0).get()


def test_the_first_one_waits_for_the_answer_but_not_for_ever() -> None:
    go = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        looks = Looks(executor, Clock())
        assert looks.look("quick", lambda: 1, 1.0).get() == 1
        with pytest.raises(RoQError, match="not answered within 0 s"):
            looks.look("slow", lambda: go.wait(9), 1.0, wait=0.0).get()
        go.set()


def test_after_a_change_everything_is_asked_anew(inline: Inline) -> None:
    looks = Looks(inline, Clock())  # type: ignore[arg-type]
    looks.look("k", lambda: 1, 9.0, wait=0.0)
    inline.run()
    looks.forget()
    looks.look("k", lambda: 2, 9.0)
    inline.run()
    assert looks.look("k", lambda: 3, 9.0).value == 2


def test_what_nobody_looks_at_is_forgotten(inline: Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKS_MAX", 2)
    looks = Looks(inline, Clock())  # type: ignore[arg-type]
    for key in "abc":
        looks.look(key, lambda: 1, 1.0, wait=0.0)
        inline.run()
    assert list(looks._entries) == ["b", "c"]
