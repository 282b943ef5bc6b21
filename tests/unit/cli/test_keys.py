"""What keys mean to `roq top`, and how they are read."""

from __future__ import annotations

import os
import pty
import sys
import termios

import pytest

from roq.cli.keys import HELP, HINT, Browsing, Keys, Press, pressed

NAMES = ["orders", "prices"]


@pytest.mark.parametrize("key", ["q", "Q"])
@pytest.mark.parametrize("helping", [False, True])
def test_q_quits_from_everywhere(key: str, helping: bool) -> None:
    browsing = Browsing("orders")
    browsing.helping = helping
    assert browsing.press(key, NAMES) is Press.QUIT


@pytest.mark.parametrize("key", ["n", "\t", "\x1b[C"])
def test_the_next_queue_and_all_after_the_last_one(key: str) -> None:
    browsing = Browsing(None)
    seen = []
    for _ in range(4):
        assert browsing.press(key, NAMES) is Press.DRAW
        seen.append(browsing.queue)
    assert seen == ["orders", "prices", None, "orders"]


@pytest.mark.parametrize("key", ["p", "\x1b[D", "\x1b[Z"])
def test_the_queue_before(key: str) -> None:
    browsing = Browsing("prices")
    seen = []
    for _ in range(3):
        browsing.press(key, NAMES)
        seen.append(browsing.queue)
    assert seen == ["orders", None, "prices"]


@pytest.mark.parametrize("key", ["a", "\x1b"])
def test_all_queues_again(key: str) -> None:
    browsing = Browsing("prices")
    assert browsing.press(key, NAMES) is Press.DRAW
    assert browsing.queue is None


def test_a_queue_that_is_gone_is_left_for_the_first_one() -> None:
    browsing = Browsing("removed")
    browsing.press("n", NAMES)
    assert browsing.queue == "orders"
    assert Browsing("removed").press("n", []) is Press.DRAW


def test_help_is_opened_by_its_key_and_closed_by_any() -> None:
    browsing = Browsing("orders")
    assert browsing.press("?", NAMES) is Press.DRAW
    assert browsing.helping
    assert browsing.press("n", NAMES) is Press.DRAW
    assert (browsing.helping, browsing.queue) == (False, "orders")


def test_other_keys_mean_nothing() -> None:
    assert Browsing("orders").press("x", NAMES) is Press.NOTHING


def test_the_hint_fits_into_eighty_columns_and_the_help_names_every_key() -> None:
    assert len(HINT) <= 80
    told = " ".join(keys for keys, _ in HELP)
    assert all(key in told for key in ("q", "?", "n", "p", "a", "Tab", "Esc"))


def test_keys_come_one_by_one_without_enter_and_the_terminal_is_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller, terminal = pty.openpty()
    try:
        with os.fdopen(terminal, "r", closefd=False) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            before = termios.tcgetattr(terminal)
            with pressed() as keys:
                assert keys.there
                os.write(controller, b"n")
                assert keys.wait(20) == "n"
                os.write(controller, b"\x1b[C")
                assert keys.wait(20) == "\x1b[C"
                assert keys.wait(0.01) == ""
            assert termios.tcgetattr(terminal) == before
    finally:
        os.close(controller)
        os.close(terminal)


def test_without_a_terminal_there_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    try:
        with os.fdopen(read, "r") as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            with pressed() as keys:
                assert not keys.there
                assert keys.wait(0.01) == ""
    finally:
        os.close(write)


def test_a_terminal_that_is_gone_is_asked_no_more() -> None:
    read, write = os.pipe()
    os.close(write)
    try:
        keys = Keys(read)
        assert keys.wait(5) == ""
        assert not keys.there
    finally:
        os.close(read)
